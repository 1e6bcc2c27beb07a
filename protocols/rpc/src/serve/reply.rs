//! Responses over HTTP, and bodies that are event streams.

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

use super::guard::Refused;
use super::{COUNTS_NO_MORE, Standing};
use crate::SSE_KEEP_ALIVE;

/// How long a client that was turned away for want of room should wait, in seconds.
pub const RETRY_AFTER_S: u64 = 5;

/// A response that no cache may keep.
pub fn json(status: StatusCode, content_type: &'static str, body: Vec<u8>) -> HttpResponse {
    let mut response = HttpResponse::with_body(status, body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response.map_into_boxed_body()
}

/// The response to a request that never became a call, with the headers that its status calls for.
pub fn refuse(refused: Refused, content_type: &'static str, body: Vec<u8>) -> HttpResponse {
    let mut response = json(refused.status, content_type, body);
    let headers = response.headers_mut();
    match refused.status {
        StatusCode::UNAUTHORIZED => {
            headers.insert(
                WWW_AUTHENTICATE,
                HeaderValue::from_static(refused.challenge.unwrap_or("Bearer")),
            );
        }
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            headers.insert(RETRY_AFTER, HeaderValue::from(RETRY_AFTER_S));
        }
        _ => {}
    }
    response
}

/// The head of an event stream.
pub fn event_stream() -> HttpResponseBuilder {
    let mut response = HttpResponse::Ok();
    response
        .insert_header((CONTENT_TYPE, "text/event-stream"))
        .insert_header((CACHE_CONTROL, "no-store"))
        // Proxies that collect a response before they pass it on would hold back every event.
        .insert_header(("x-accel-buffering", "no"));
    response
}

/// An event stream of what `source` brings, until that ends or the credential counts no more; a comment after each
/// `keep_alive` of silence. Nothing is taken from `source` before the client has room for it. `held` is dropped with the
/// response.
pub fn events(
    source: impl Stream<Item = io::Result<Bytes>> + Unpin + 'static,
    keep_alive: Duration,
    mut standing: Standing,
    held: impl Sized + 'static,
) -> HttpResponse {
    let mut source = Some(source);
    let mut quiet = Box::pin(sleep(keep_alive));
    event_stream().streaming(stream::poll_fn(move |cx| {
        let _held = &held;
        let Some(open) = &mut source else {
            return Poll::Ready(None);
        };
        if standing.poll_lost(cx).is_ready() {
            // What it was to say goes to nobody any more.
            source = None;
            return Poll::Ready(Some(Ok(Bytes::from(format!(": {COUNTS_NO_MORE}\n\n")))));
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
