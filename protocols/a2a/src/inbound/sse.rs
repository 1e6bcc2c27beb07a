//! Event streams.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use actix_web::{HttpResponse, HttpResponseBuilder};
use bytes::Bytes;
use callboard_rpc::serve::guard::{Refused, refused};
use callboard_rpc::serve::idle::Busy;
use callboard_rpc::serve::{COUNTS_NO_MORE, Permit, Standing};
use callboard_rpc::{SSE_KEEP_ALIVE, SseEvent, encode_event};
use callboard_runtime::TaskOwner;
use futures::{Stream, StreamExt};
use tokio::time::{Instant, Sleep, sleep};

use super::calls::{Events, Numbered};
use super::options::A2aOptions;
use super::reply::Binding;
use crate::{A2aError, Dialect, EventWriter};

/// The streams of a server that are open.
#[derive(Default)]
pub(super) struct Streams {
    all: Arc<AtomicUsize>,
    of_owner: Arc<Mutex<HashMap<TaskOwner, usize>>>,
}

/// Room for one stream, as long as it is open.
pub(super) struct Room {
    _of_all: Permit,
    of_owner: Arc<Mutex<HashMap<TaskOwner, usize>>>,
    owner: TaskOwner,
}

impl Streams {
    /// Room for one more stream of `owner`'s.
    ///
    /// # Errors
    /// 429 where it has too many, 503 where all have.
    pub(super) fn room(&self, owner: TaskOwner, options: &A2aOptions) -> Result<Room, Refused> {
        const OWNER_FULL: Refused = refused(StatusCode::TOO_MANY_REQUESTS, "too many open streams: end one first");
        const FULL: Refused =
            refused(StatusCode::SERVICE_UNAVAILABLE, "there are too many open streams: try again later");
        let mut open = self.of_owner.lock().unwrap_or_else(PoisonError::into_inner);
        let has = open.get(&owner).copied().unwrap_or_default();
        if has >= options.principal_streams_max {
            return Err(OWNER_FULL);
        }
        let of_all = Permit::take(&self.all, options.streams_max).ok_or(FULL)?;
        open.insert(owner.clone(), has + 1);
        Ok(Room { _of_all: of_all, of_owner: self.of_owner.clone(), owner })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut open = self.of_owner.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.owner) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                open.remove(&self.owner);
            }
        }
    }
}

/// Answers with what `events` brings, as long as its reader's credential counts. The call doesn't end with it.
pub(super) fn respond(
    events: Events,
    binding: Binding,
    dialect: Dialect,
    keep_alive: Duration,
    standing: Standing,
    held: (Busy, Room),
) -> HttpResponse {
    let quiet = Box::pin(sleep(keep_alive));
    let writer = dialect.events();
    let body = Body { events, binding, dialect, writer, keep_alive, quiet, standing, has_ended: false, _held: held };
    stream().streaming(body)
}

/// A stream of one event.
pub(super) fn once(event: &SseEvent) -> HttpResponse {
    stream().body(encode_event(event))
}

fn stream() -> HttpResponseBuilder {
    let mut response = HttpResponse::Ok();
    response
        .insert_header((CONTENT_TYPE, "text/event-stream"))
        .insert_header((CACHE_CONTROL, "no-store"))
        // Proxies that collect a response before they pass it on would hold back every event.
        .insert_header(("x-accel-buffering", "no"));
    response
}

/// A task's events as the body of a response: nothing is taken before the client has room for it.
struct Body {
    events: Events,
    binding: Binding,
    dialect: Dialect,
    writer: EventWriter,
    keep_alive: Duration,
    quiet: Pin<Box<Sleep>>,
    /// Whether its reader may still have it.
    standing: Standing,
    has_ended: bool,
    _held: (Busy, Room),
}

impl Body {
    fn written(&mut self, event: Result<Numbered, A2aError>) -> Bytes {
        let event = match event {
            Ok(Numbered { number, event, ends }) => {
                self.has_ended = ends;
                let event = self.writer.write(&event, ends);
                SseEvent::message(self.binding.wrap(&event)).with_id(number.to_string())
            }
            Err(error) => {
                self.has_ended = true;
                SseEvent::message(self.binding.wrap_error(&error, self.dialect))
            }
        };
        encode_event(&event).into()
    }
}

impl Stream for Body {
    type Item = io::Result<Bytes>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.has_ended {
            return Poll::Ready(None);
        }
        if this.standing.poll_lost(cx).is_ready() {
            this.has_ended = true;
            return Poll::Ready(Some(Ok(Bytes::from(format!(": {COUNTS_NO_MORE}\n\n")))));
        }
        if let Poll::Ready(event) = this.events.poll_next_unpin(cx) {
            let Some(event) = event else {
                this.has_ended = true;
                return Poll::Ready(None);
            };
            this.quiet.as_mut().reset(Instant::now() + this.keep_alive);
            return Poll::Ready(Some(Ok(this.written(event))));
        }
        if this.quiet.as_mut().poll(cx).is_ready() {
            this.quiet.as_mut().reset(Instant::now() + this.keep_alive);
            cx.waker().wake_by_ref();
            return Poll::Ready(Some(Ok(Bytes::from_static(SSE_KEEP_ALIVE))));
        }
        Poll::Pending
    }
}
