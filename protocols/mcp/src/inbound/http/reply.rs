//! Answers over HTTP.

use std::io;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use bytes::Bytes;
use callboard_rpc::{Nulls, Refusal, RpcError, code, encode_response};
use futures::Stream;

use crate::wire::code as mcp;
use callboard_rpc::serve::guard::Refused;

/// How long a client that was turned away for want of room should wait.
const RETRY_AFTER_SECONDS: HeaderValue = HeaderValue::from_static("5");

/// A JSON-RPC message.
pub(super) fn json(status: u16, body: Vec<u8>) -> HttpResponse {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    let mut response = HttpResponse::with_body(status, body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    // What an agent answers is nobody's to keep.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response.map_into_boxed_body()
}

/// An event stream.
pub(super) fn events(body: impl Stream<Item = io::Result<Bytes>> + 'static) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((CONTENT_TYPE, "text/event-stream"))
        .insert_header((CACHE_CONTROL, "no-store"))
        // Proxies that collect a response before they pass it on would hold back every event.
        .insert_header(("x-accel-buffering", "no"))
        .streaming(body)
}

/// An event stream that is over before it begins: for a request that was cancelled.
pub(super) fn no_events() -> HttpResponse {
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    let mut response = HttpResponse::Ok();
    for header in headers {
        response.insert_header(header);
    }
    response.finish()
}

/// Taken, and nothing to say.
pub(super) fn accepted() -> HttpResponse {
    HttpResponse::Accepted().finish()
}

/// A message that is none.
pub(super) fn malformed(refusal: &Refusal) -> HttpResponse {
    json(400, encode_response(refusal.id.as_ref(), Err(&RpcError::from(refusal)), Nulls::Omit))
}

/// A request that never became a call.
pub(super) fn refuse(refused: Refused) -> HttpResponse {
    let code = match refused.status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => mcp::OVERLOADED,
        _ => code::INVALID_REQUEST,
    };
    let error = RpcError::new(code, refused.message);
    let mut response = json(refused.status.as_u16(), encode_response(None, Err(&error), Nulls::Omit));
    let headers = response.headers_mut();
    match refused.status {
        StatusCode::METHOD_NOT_ALLOWED => {
            headers.insert(ALLOW, HeaderValue::from_static("GET, POST, DELETE"));
        }
        StatusCode::UNAUTHORIZED => {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(refused.challenge.unwrap_or("Bearer")));
        }
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            headers.insert(RETRY_AFTER, RETRY_AFTER_SECONDS);
        }
        _ => {}
    }
    response
}
