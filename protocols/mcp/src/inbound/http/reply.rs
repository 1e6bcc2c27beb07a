//! Answers over HTTP.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{ALLOW, HeaderValue};
use callboard_rpc::serve::guard::{JSON, Refused};
use callboard_rpc::serve::reply;
use callboard_rpc::{Nulls, Refusal, RpcError, code, encode_response};

use crate::wire::code as mcp;

/// A JSON-RPC message.
pub(super) fn json(status: u16, body: Vec<u8>) -> HttpResponse {
    reply::json(StatusCode::from_u16(status).unwrap_or(StatusCode::OK), JSON, body)
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
    let message = encode_response(None, Err(&RpcError::new(code, refused.message)), Nulls::Omit);
    let mut response = reply::refuse(refused, JSON, message);
    if refused.status == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, POST, DELETE"));
    }
    response
}
