//! Event streams.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::{Poll, ready};
use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use callboard_rpc::serve::guard::{Refused, refused};
use callboard_rpc::serve::idle::Busy;
use callboard_rpc::serve::{Permit, Standing, reply};
use callboard_rpc::{SseEvent, encode_event};
use callboard_runtime::TaskOwner;
use futures::{StreamExt, stream};
use parking_lot::Mutex;

use super::calls::{Events, Numbered};
use super::options::A2aOptions;
use super::reply::Binding;
use crate::Dialect;

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
        let mut open = self.of_owner.lock();
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
        let mut open = self.of_owner.lock();
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
    let mut writer = dialect.events();
    let mut events = Some(events);
    let source = stream::poll_fn(move |cx| {
        let Some(open) = &mut events else { return Poll::Ready(None) };
        let Some(event) = ready!(open.poll_next_unpin(cx)) else { return Poll::Ready(None) };
        let (event, ends) = match event {
            Ok(Numbered { number, event, ends }) => {
                let event = writer.write(&event, ends);
                (SseEvent::message(binding.wrap(&event)).with_id(number.to_string()), ends)
            }
            Err(error) => (SseEvent::message(binding.wrap_error(&error, dialect)), true),
        };
        if ends {
            events = None;
        }
        Poll::Ready(Some(Ok(encode_event(&event).into())))
    });
    reply::events(source, keep_alive, standing, held)
}
