//! HTTP responses and event streams.

use std::io;
use std::task::{Poll, ready};
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::http::header::{
    CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use actix_web::{HttpResponse, HttpResponseBuilder};
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use tokio::time::{Instant, sleep};

use super::guard::HttpRejection;
use super::{CREDENTIAL_ENDED_MESSAGE, CredentialWatch};
use crate::SSE_KEEP_ALIVE;

/// Value of the header `Retry-After` in responses with status 429 or 503, in seconds.
pub const RETRY_AFTER_S: u64 = 5;

/// Creates a response with a body of the given content type. The header `Cache-Control: no-store`
/// forbids caches to store it.
pub fn json_response(
    status: StatusCode,
    content_type: &'static str,
    body: Vec<u8>,
) -> HttpResponse {
    let mut response = HttpResponse::with_body(status, body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response.map_into_boxed_body()
}

/// Creates the response to a rejected request: like [`json_response`], with `WWW-Authenticate` for
/// status 401 and for a 403 that another token avoids, and `Retry-After` for 429 and 503.
pub fn rejection_response(
    refused: &HttpRejection,
    content_type: &'static str,
    body: Vec<u8>,
) -> HttpResponse {
    let mut response = json_response(refused.status, content_type, body);
    let headers = response.headers_mut();
    match refused.status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            if let Some(challenge) = challenge_header(refused.status, refused.challenge.as_deref())
            {
                headers.insert(WWW_AUTHENTICATE, challenge);
            }
        }
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            headers.insert(RETRY_AFTER, HeaderValue::from(RETRY_AFTER_S));
        }
        _ => {}
    }
    response
}

/// Returns the value of `WWW-Authenticate` in a response; `None` if it has none. Status 401 always
/// has one.
pub fn challenge_header(status: StatusCode, challenge: Option<&str>) -> Option<HeaderValue> {
    let is_required = status == StatusCode::UNAUTHORIZED;
    let text = challenge.or(is_required.then_some("Bearer"))?;
    HeaderValue::from_str(text).ok()
}

/// Creates a builder for an event stream response (`text/event-stream`), with status and headers
/// set.
pub fn event_stream_head() -> HttpResponseBuilder {
    let mut response = HttpResponse::Ok();
    response
        .insert_header((CONTENT_TYPE, "text/event-stream"))
        .insert_header((CACHE_CONTROL, "no-store"))
        // Otherwise proxies that buffer responses would delay every event.
        .insert_header(("x-accel-buffering", "no"));
    response
}

/// Creates an event stream response that sends the chunks of `source`. It ends when `source` ends
/// or the credential is revoked. After each `keep_alive` without a chunk, a comment is sent.
///
/// A chunk is taken from `source` only when the client can receive it. `held` is dropped with the
/// response.
pub fn event_stream_response(
    source: impl Stream<Item = io::Result<Bytes>> + Unpin + 'static,
    keep_alive: Duration,
    mut standing: CredentialWatch,
    held: impl Sized + 'static,
) -> HttpResponse {
    let mut source = Some(source);
    let mut quiet = Box::pin(sleep(keep_alive));
    event_stream_head().streaming(stream::poll_fn(move |cx| {
        let _held = &held;
        let Some(open) = &mut source else {
            return Poll::Ready(None);
        };
        if standing.poll_revoked(cx).is_ready() {
            // The remaining events must not be sent with a revoked credential.
            source = None;
            return Poll::Ready(Some(Ok(Bytes::from(format!(
                ": {CREDENTIAL_ENDED_MESSAGE}\n\n"
            )))));
        }
        if let Poll::Ready(event) = open.poll_next_unpin(cx) {
            quiet.as_mut().reset(Instant::now() + keep_alive);
            if event.is_none() {
                source = None;
            }
            return Poll::Ready(event);
        }
        ready!(quiet.as_mut().poll(cx));
        quiet.as_mut().reset(Instant::now() + keep_alive);
        cx.waker().wake_by_ref();
        Poll::Ready(Some(Ok(Bytes::from_static(SSE_KEEP_ALIVE))))
    }))
}
