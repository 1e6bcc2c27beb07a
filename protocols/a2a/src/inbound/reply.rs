//! Answers over HTTP, whole and as event streams.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::{Poll, ready};
use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{ALLOW, HeaderValue, RETRY_AFTER, VARY};
use callboard_message::RawObject;
use callboard_rpc::serve::guard::{JSON, Refused, refused};
use callboard_rpc::serve::idle::Busy;
use callboard_rpc::serve::reply::{self, json};
use callboard_rpc::serve::{Permit, Standing};
use callboard_rpc::{Id, Nulls, RpcError, SseEvent, code, encode_event, encode_response};
use callboard_runtime::TaskOwner;
use futures::{StreamExt, stream};
use parking_lot::Mutex;
use serde_json::value::RawValue;

use super::admit::A2A_JSON;
use super::calls::{Events, Numbered};
use super::options::A2aOptions;
use crate::{A2aError, Dialect, ErrorKind};

/// How an answer is put into HTTP.
#[derive(Debug, Clone)]
pub(super) enum Binding {
    /// A JSON-RPC response under this id; `None` where the request's could not be read.
    Rpc(Option<Id>),
    /// The answer itself.
    Rest {
        /// Whether the client reads A2A's own type of JSON.
        own_type: bool,
    },
}

impl Binding {
    /// An answer.
    pub(super) fn answer(&self, result: &RawValue) -> HttpResponse {
        json(StatusCode::OK, self.content_type(), self.wrap(result))
    }

    /// Why there is no answer, to who reads nothing but an event stream.
    pub(super) fn error_event(&self, error: &A2aError, dialect: Dialect) -> HttpResponse {
        reply::event_stream().body(encode_event(&SseEvent::message(
            self.wrap_error(error, dialect),
        )))
    }

    /// Why there is no answer.
    pub(super) fn error(&self, error: &A2aError, dialect: Dialect) -> HttpResponse {
        let status = match self {
            Self::Rpc(_) => StatusCode::OK,
            Self::Rest { .. } => {
                StatusCode::from_u16(error.kind.http()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
            }
        };
        let mut response = json(status, self.content_type(), self.wrap_error(error, dialect));
        if error.kind == ErrorKind::Overloaded {
            response
                .headers_mut()
                .insert(RETRY_AFTER, HeaderValue::from(reply::RETRY_AFTER_S));
        }
        response
    }

    /// What an answer, or an event of a stream, is put into.
    fn wrap(&self, result: &RawValue) -> Vec<u8> {
        match self {
            Self::Rpc(id) => encode_response(id.as_ref(), Ok(result), Nulls::Omit),
            Self::Rest { .. } => result.get().as_bytes().to_vec(),
        }
    }

    /// What an error is put into.
    fn wrap_error(&self, error: &A2aError, dialect: Dialect) -> Vec<u8> {
        match self {
            Self::Rpc(id) => {
                encode_response(id.as_ref(), Err(&dialect.write_error(error)), Nulls::Omit)
            }
            Self::Rest { .. } => dialect.write_http_error(error).get().as_bytes().to_vec(),
        }
    }

    fn content_type(&self) -> &'static str {
        if matches!(self, Self::Rest { own_type: true }) {
            A2A_JSON
        } else {
            JSON
        }
    }

    /// A request that never became a call.
    pub(super) fn refuse(&self, refused: Refused) -> HttpResponse {
        let of_type = (refused.status == StatusCode::UNSUPPORTED_MEDIA_TYPE)
            .then(|| ErrorKind::ContentTypeNotSupported.error(refused.message));
        let body = match (self, of_type) {
            (Self::Rpc(_), Some(error)) => self.wrap_error(&error, Dialect::V10),
            (Self::Rpc(_), None) => {
                let error = RpcError::new(code::INVALID_REQUEST, refused.message);
                encode_response(None, Err(&error), Nulls::Omit)
            }
            (Self::Rest { .. }, of_type) => {
                let mut error = RawObject::of("code", refused.status.as_u16())
                    .with("status", grpc_name(refused.status))
                    .with("message", refused.message);
                if let Some(of_type) = of_type {
                    error.set("details", of_type.all_details());
                }
                RawObject::of("error", error)
                    .to_raw()
                    .get()
                    .as_bytes()
                    .to_vec()
            }
        };
        let mut response = reply::refuse(refused, self.content_type(), body);
        if refused.status == StatusCode::UNAUTHORIZED {
            response
                .headers_mut()
                .insert(VARY, HeaderValue::from_static("Authorization"));
        }
        response
    }
}

/// What gRPC calls a refusal with this HTTP status (`google.rpc.Code`).
fn grpc_name(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "UNAUTHENTICATED",
        StatusCode::FORBIDDEN => "PERMISSION_DENIED",
        StatusCode::NOT_FOUND => "NOT_FOUND",
        StatusCode::METHOD_NOT_ALLOWED => "UNIMPLEMENTED",
        StatusCode::REQUEST_TIMEOUT => "DEADLINE_EXCEEDED",
        StatusCode::TOO_MANY_REQUESTS => "RESOURCE_EXHAUSTED",
        StatusCode::SERVICE_UNAVAILABLE => "UNAVAILABLE",
        _ => "INVALID_ARGUMENT",
    }
}

/// A path that has other methods.
pub(super) fn only(allow: &'static str) -> HttpResponse {
    HttpResponse::MethodNotAllowed()
        .insert_header((ALLOW, allow))
        .finish()
}

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
        const OWNER_FULL: Refused = refused(
            StatusCode::TOO_MANY_REQUESTS,
            "too many open streams: end one first",
        );
        const FULL: Refused = refused(
            StatusCode::SERVICE_UNAVAILABLE,
            "there are too many open streams: try again later",
        );
        let mut open = self.of_owner.lock();
        let has = open.get(&owner).copied().unwrap_or_default();
        if has >= options.principal_streams_max {
            return Err(OWNER_FULL);
        }
        let of_all = Permit::take(&self.all, options.streams_max).ok_or(FULL)?;
        open.insert(owner.clone(), has + 1);
        Ok(Room {
            _of_all: of_all,
            of_owner: self.of_owner.clone(),
            owner,
        })
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
pub(super) fn stream_events(
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
        let Some(open) = &mut events else {
            return Poll::Ready(None);
        };
        let Some(event) = ready!(open.poll_next_unpin(cx)) else {
            return Poll::Ready(None);
        };
        let (event, ends) = match event {
            Ok(Numbered {
                number,
                event,
                ends,
            }) => {
                let event = writer.write(&event, ends);
                (
                    SseEvent::message(binding.wrap(&event)).with_id(number.to_string()),
                    ends,
                )
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
