//! HTTP responses: single results and event streams.

use std::task::{Poll, ready};
use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{ALLOW, HeaderValue, RETRY_AFTER, VARY};
use callboard_message::RawObject;
use callboard_rpc::serve::CredentialWatch;
use callboard_rpc::serve::guard::{HttpRejection, JSON};
use callboard_rpc::serve::http_response::{self, json_response};
use callboard_rpc::serve::idle_timeout::ActiveRequest;
use callboard_rpc::{
    RequestId, RpcError, SseEvent, UnusedMember, code, encode_event, encode_response,
};
use callboard_runtime::{ShareError, SharePermit};
use futures::{StreamExt, stream};
use serde_json::value::RawValue;

use super::calls::{NumberedEvent, TaskEventStream};
use super::request_head::A2A_JSON;
use crate::{A2aError, Dialect, ErrorKind};

/// Format of results and errors in HTTP responses, by protocol binding.
#[derive(Debug, Clone)]
pub(super) enum ResponseEncoder {
    /// JSON-RPC responses to the request with this id; `None` if the id couldn't be read.
    JsonRpc(Option<RequestId>),
    /// HTTP+JSON: the result itself is the body.
    HttpJson {
        /// Whether the media type is `application/a2a+json`.
        is_a2a_json: bool,
    },
}

impl ResponseEncoder {
    /// Returns the HTTP response with a result.
    pub(super) fn respond(&self, result: &RawValue) -> HttpResponse {
        json_response(
            StatusCode::OK,
            self.content_type(),
            self.encode_result(result),
        )
    }

    /// Returns an event stream with an error as its only event, for clients that accept only event
    /// streams.
    pub(super) fn respond_error_event(&self, error: &A2aError, dialect: Dialect) -> HttpResponse {
        http_response::event_stream_head().body(encode_event(&SseEvent::message(
            self.encode_error(error, dialect),
        )))
    }

    /// Returns the HTTP response with an error. Its status is 200 over JSON-RPC, and
    /// [`ErrorKind::http_status`] over HTTP+JSON.
    pub(super) fn respond_error(&self, error: &A2aError, dialect: Dialect) -> HttpResponse {
        let status = match self {
            Self::JsonRpc(_) => StatusCode::OK,
            Self::HttpJson { .. } => StatusCode::from_u16(error.kind.http_status())
                .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        };
        let mut response = json_response(
            status,
            self.content_type(),
            self.encode_error(error, dialect),
        );
        if error.kind == ErrorKind::Overloaded {
            let seconds = error.retry_after_s.unwrap_or(http_response::RETRY_AFTER_S);
            response
                .headers_mut()
                .insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }

    /// Encodes a result or a stream's event: as a JSON-RPC response, or as the bare JSON over
    /// HTTP+JSON.
    fn encode_result(&self, result: &RawValue) -> Vec<u8> {
        match self {
            Self::JsonRpc(id) => encode_response(id.as_ref(), Ok(result), UnusedMember::Omit),
            Self::HttpJson { .. } => result.get().as_bytes().to_vec(),
        }
    }

    /// Encodes an error: as a JSON-RPC response, or as the error body of HTTP+JSON.
    fn encode_error(&self, error: &A2aError, dialect: Dialect) -> Vec<u8> {
        match self {
            Self::JsonRpc(id) => encode_response(
                id.as_ref(),
                Err(&dialect.write_error(error)),
                UnusedMember::Omit,
            ),
            Self::HttpJson { .. } => dialect.write_http_error(error).get().as_bytes().to_vec(),
        }
    }

    fn content_type(&self) -> &'static str {
        if matches!(self, Self::HttpJson { is_a2a_json: true }) {
            A2A_JSON
        } else {
            JSON
        }
    }

    /// Returns the response to a request that was rejected before an operation was performed.
    pub(super) fn respond_refused(&self, refused: HttpRejection) -> HttpResponse {
        let of_type = (refused.status == StatusCode::UNSUPPORTED_MEDIA_TYPE)
            .then(|| ErrorKind::ContentTypeNotSupported.error(&*refused.message));
        let body = match (self, of_type) {
            (Self::JsonRpc(_), Some(error)) => self.encode_error(&error, Dialect::V10),
            (Self::JsonRpc(_), None) => {
                let error = RpcError::new(code::INVALID_REQUEST, &*refused.message);
                encode_response(None, Err(&error), UnusedMember::Omit)
            }
            (Self::HttpJson { .. }, of_type) => {
                let mut error = RawObject::single("code", refused.status.as_u16())
                    .with("status", grpc_status_name(refused.status))
                    .with("message", &*refused.message);
                if let Some(of_type) = of_type {
                    error.set("details", of_type.all_details());
                }
                RawObject::single("error", error)
                    .to_raw()
                    .get()
                    .as_bytes()
                    .to_vec()
            }
        };
        let mut response = http_response::rejection_response(&refused, self.content_type(), body);
        if refused.status == StatusCode::UNAUTHORIZED {
            response
                .headers_mut()
                .insert(VARY, HeaderValue::from_static("Authorization"));
        }
        response
    }
}

/// Returns the gRPC name for an HTTP status (`google.rpc.Code`).
fn grpc_status_name(status: StatusCode) -> &'static str {
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

/// Returns a 405 response; `allow` lists the methods of the path.
pub(super) fn method_not_allowed(allow: &'static str) -> HttpResponse {
    HttpResponse::MethodNotAllowed()
        .insert_header((ALLOW, allow))
        .finish()
}

/// Returns the rejection of a request that gets no place among the event streams: 429 at the
/// principal's limit, 503 at the server's.
pub(super) fn stream_rejection(error: ShareError) -> HttpRejection {
    HttpRejection {
        status: match error.is_own_limit() {
            true => StatusCode::TOO_MANY_REQUESTS,
            false => StatusCode::SERVICE_UNAVAILABLE,
        },
        message: format!("too many event streams: {error}").into(),
        challenge: None,
    }
}

/// Returns a response that streams `events` until they end or the client's credential expires. The
/// call that produces the events continues after that.
pub(super) fn stream_events(
    events: TaskEventStream,
    binding: ResponseEncoder,
    dialect: Dialect,
    keep_alive: Duration,
    standing: CredentialWatch,
    held: (ActiveRequest, SharePermit),
) -> HttpResponse {
    let mut writer = dialect.event_writer();
    let mut events = Some(events);
    let source = stream::poll_fn(move |cx| {
        let Some(open) = &mut events else {
            return Poll::Ready(None);
        };
        let Some(event) = ready!(open.poll_next_unpin(cx)) else {
            return Poll::Ready(None);
        };
        let (event, ends) = match event {
            Ok(NumberedEvent {
                number,
                event,
                is_last: ends,
            }) => {
                let event = writer.write(&event, ends);
                (
                    SseEvent::message(binding.encode_result(&event)).with_id(number.to_string()),
                    ends,
                )
            }
            Err(error) => (
                SseEvent::message(binding.encode_error(&error, dialect)),
                true,
            ),
        };
        if ends {
            events = None;
        }
        Poll::Ready(Some(Ok(encode_event(&event).into())))
    });
    http_response::event_stream_response(source, keep_alive, standing, held)
}
