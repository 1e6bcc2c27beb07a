//! Answers over HTTP.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{ALLOW, HeaderValue, RETRY_AFTER, VARY};
use callboard_message::RawObject;
use callboard_rpc::serve::guard::{JSON, Refused};
use callboard_rpc::serve::reply::{self, json};
use callboard_rpc::{Id, Nulls, RpcError, SseEvent, code, encode_event, encode_response};
use serde_json::value::RawValue;

use super::admit::A2A_JSON;
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
        reply::event_stream().body(encode_event(&SseEvent::message(self.wrap_error(error, dialect))))
    }

    /// Why there is no answer.
    pub(super) fn error(&self, error: &A2aError, dialect: Dialect) -> HttpResponse {
        let status = match self {
            Self::Rpc(_) => StatusCode::OK,
            Self::Rest { .. } => StatusCode::from_u16(error.kind.http()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        };
        let mut response = json(status, self.content_type(), self.wrap_error(error, dialect));
        if error.kind == ErrorKind::Overloaded {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(reply::RETRY_AFTER_S));
        }
        response
    }

    /// What an answer, or an event of a stream, is put into.
    pub(super) fn wrap(&self, result: &RawValue) -> Vec<u8> {
        match self {
            Self::Rpc(id) => encode_response(id.as_ref(), Ok(result), Nulls::Omit),
            Self::Rest { .. } => result.get().as_bytes().to_vec(),
        }
    }

    /// What an error is put into.
    pub(super) fn wrap_error(&self, error: &A2aError, dialect: Dialect) -> Vec<u8> {
        match self {
            Self::Rpc(id) => encode_response(id.as_ref(), Err(&dialect.write_error(error)), Nulls::Omit),
            Self::Rest { .. } => dialect.write_http_error(error).get().as_bytes().to_vec(),
        }
    }

    fn content_type(&self) -> &'static str {
        if matches!(self, Self::Rest { own_type: true }) { A2A_JSON } else { JSON }
    }

    /// A request that never became a call.
    pub(super) fn refuse(&self, refused: Refused) -> HttpResponse {
        let of_type = (refused.status == StatusCode::UNSUPPORTED_MEDIA_TYPE)
            .then(|| A2aError::new(ErrorKind::ContentTypeNotSupported, refused.message));
        let body = match (self, of_type) {
            (Self::Rpc(_), Some(error)) => self.wrap_error(&error, Dialect::V10),
            (Self::Rpc(_), None) => {
                let error = RpcError::new(code::INVALID_REQUEST, refused.message);
                encode_response(None, Err(&error), Nulls::Omit)
            }
            (Self::Rest { .. }, of_type) => {
                let mut error = RawObject::new()
                    .with("code", refused.status.as_u16())
                    .with("status", grpc_name(refused.status))
                    .with("message", refused.message);
                if let Some(of_type) = of_type {
                    error.set("details", of_type.all_details());
                }
                RawObject::new().with("error", error).to_raw().get().as_bytes().to_vec()
            }
        };
        let mut response = reply::refuse(refused, self.content_type(), body);
        if refused.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(VARY, HeaderValue::from_static("Authorization"));
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

/// A JSON-RPC message.
pub(super) fn rpc(status: StatusCode, message: Vec<u8>) -> HttpResponse {
    json(status, JSON, message)
}

/// What wants no answer.
pub(super) fn taken() -> HttpResponse {
    HttpResponse::Accepted().finish()
}

/// A path that has other methods.
pub(super) fn only(allow: &'static str) -> HttpResponse {
    HttpResponse::MethodNotAllowed().insert_header((ALLOW, allow)).finish()
}

/// An address of an agent that isn't served.
pub(super) fn no_agent() -> HttpResponse {
    HttpResponse::NotFound().content_type("text/plain; charset=utf-8").body("no agent of this name is served here")
}

/// A path that leads nowhere.
pub(super) fn nowhere() -> HttpResponse {
    HttpResponse::NotFound().finish()
}
