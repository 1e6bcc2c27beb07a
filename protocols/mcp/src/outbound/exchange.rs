//! Types of an exchange with a server: its messages, results and errors.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use callboard_message::{Failure, FailureKind, RawObject};
use callboard_rpc::http1::NetError;
use callboard_rpc::{
    DecodeError, DecodeFailure, DecodeLimits, EnvelopeScan, JsonError, RequestId, RpcError,
    RpcMessage, check_json, code, decode, encode_notification,
};
use serde_json::value::RawValue;

use super::auth::AuthError;
use crate::wire::error_mapping;

/// Notification or request from a server.
#[derive(Clone)]
pub(crate) enum ServerMessage {
    Request {
        id: RequestId,
        method: String,
        params: Option<Box<RawValue>>,
    },
    Notification {
        method: String,
        params: Option<Box<RawValue>>,
    },
}

/// Result of a request to a server: the `result` member of its response.
pub(crate) type ExchangeResult = Result<Box<RawValue>, TransportError>;

pub(crate) type RpcResult = Result<Box<RawValue>, RpcError>;

/// Decoded message from a server, independent of the receive buffer.
pub(crate) enum DecodedMessage {
    Response {
        id: Option<RequestId>,
        outcome: RpcResult,
    },
    Message(ServerMessage),
}

/// Errors of sending a request to a server and receiving its response.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum TransportError {
    /// The server answered with a JSON-RPC error; `status` is the HTTP status.
    #[error("the server answered with error {}", .error.code)]
    Rpc {
        error: RpcError,
        status: Option<u16>,
    },
    /// The server answered with an HTTP error status, and no JSON-RPC error in the body.
    #[error("the server answered with HTTP status {0}")]
    Status(u16),
    /// The server has ended the session; a new one is needed.
    #[error("the server has ended the session")]
    SessionLost,
    /// The server can't be reached; the request wasn't sent.
    #[error("{0}")]
    Unreachable(Cow<'static, str>),
    /// The connection broke after the request may have been sent. Whether the server executed it is
    /// unknown.
    #[error("{0}")]
    Broken(Cow<'static, str>),
    /// The server's message isn't valid MCP.
    #[error("{0}")]
    Protocol(String),
    /// The server's message is over a size limit, in bytes.
    #[error("the server's message is over the limit of {0} bytes; `body_bytes_max` raises it")]
    TooLarge(usize),
    /// No response within the time limit.
    #[error("the server didn't answer within {0:?}")]
    TimedOut(Duration),
    /// The request couldn't be authorized.
    #[error("{0}")]
    Auth(Arc<AuthError>),
    /// The request failed in this process, or at the caller that a question was put to.
    #[error("{0}")]
    Failed(Failure),
}

impl TransportError {
    /// Returns true for a server's own answer that it doesn't know the method.
    pub fn is_method_not_found(&self) -> bool {
        matches!(self, Self::Rpc { error, .. } if error.code == code::METHOD_NOT_FOUND)
    }
}

impl From<NetError> for TransportError {
    fn from(error: NetError) -> Self {
        match error {
            NetError::Unreachable(_) => Self::Unreachable(error.to_string().into()),
            NetError::Broken => Self::Broken(
                "the connection to the server broke; it may have acted on the request".into(),
            ),
        }
    }
}

impl From<TransportError> for Failure {
    fn from(error: TransportError) -> Self {
        let kind = match &error {
            TransportError::Rpc { error, .. } => return error_mapping::from_rpc(error),
            TransportError::Failed(failure) => return failure.clone(),
            TransportError::Status(401 | 403) | TransportError::Auth(_) => FailureKind::Denied,
            TransportError::Status(413 | 429) | TransportError::TooLarge(_) => {
                FailureKind::Overloaded
            }
            TransportError::Status(408 | 504) | TransportError::TimedOut(_) => {
                FailureKind::TimedOut
            }
            // The message of an `Internal` failure is withheld from callers, and this one tells the
            // operator what to correct.
            _ => FailureKind::Unavailable,
        };
        Self::new(kind, error.to_string())
    }
}

pub(crate) fn decode_message(
    bytes: &[u8],
    limits: &DecodeLimits,
) -> Result<DecodedMessage, DecodeFailure> {
    Ok(match decode(bytes, limits)? {
        RpcMessage::Response(response) => DecodedMessage::Response {
            id: response.id,
            outcome: response.outcome.map(RawValue::to_owned),
        },
        RpcMessage::Request(request) => DecodedMessage::Message(ServerMessage::Request {
            id: request.id,
            method: request.method,
            params: request.params.map(RawValue::to_owned),
        }),
        RpcMessage::Notification(notification) => {
            DecodedMessage::Message(ServerMessage::Notification {
                method: notification.method,
                params: notification.params.map(RawValue::to_owned),
            })
        }
    })
}

/// Members of results whose items are independent of each other.
const LIST_MEMBERS: [&str; 4] = ["tools", "resources", "resourceTemplates", "prompts"];
/// Nesting depth of an item of a list in its message.
const LIST_ITEM_DEPTH: usize = 3;

/// Reason why a message from the server can't be read, and the response that it is.
pub(crate) struct UnreadableMessage {
    pub failure: DecodeFailure,
    /// Number of the pending request that the message answers; `None` if it is no response.
    pub number: Option<u64>,
}

impl UnreadableMessage {
    /// Returns the error of the request that the message answers.
    pub fn to_error(&self) -> TransportError {
        match self.failure.error {
            DecodeError::Json(JsonError::BytesOver { max }) => TransportError::TooLarge(max),
            _ => TransportError::Protocol(format!("the server's response {}", self.failure)),
        }
    }
}

/// Decodes a message from the server. Of a list with items that can't be read, the others are kept.
///
/// # Errors
/// [`UnreadableMessage`], with the number of the request that the message answers, if it can be
/// found.
pub(crate) fn decode_server_message(
    bytes: &[u8],
    limits: &DecodeLimits,
) -> Result<DecodedMessage, Box<UnreadableMessage>> {
    decode_message(bytes, limits).or_else(|failure| {
        if let Some(list) = decode_readable_items(bytes, limits) {
            callboard_message::log::warn!(%failure, "omitted items of a list that can't be read");
            return Ok(list);
        }
        let mut scan = EnvelopeScan::default();
        scan.push(bytes);
        let number = scan.response_id().as_ref().and_then(request_number);
        Err(Box::new(UnreadableMessage { failure, number }))
    })
}

/// Decodes a response with a list without the items that can't be read. Returns `None` if there are
/// none, or something else can't be read.
fn decode_readable_items(bytes: &[u8], limits: &DecodeLimits) -> Option<DecodedMessage> {
    if bytes.len() > limits.body_bytes_max {
        return None;
    }
    let item_limits = DecodeLimits {
        depth_max: limits.depth_max.saturating_sub(LIST_ITEM_DEPTH),
        ..*limits
    };
    let text = String::from_utf8_lossy(bytes);
    let is_altered = matches!(text, Cow::Owned(_));
    let is_readable = |item: &RawValue| {
        check_json(item.get().as_bytes(), &item_limits).is_ok()
            && !(is_altered && item.get().contains(char::REPLACEMENT_CHARACTER))
    };
    let mut message: RawObject = serde_json::from_str(&text).ok()?;
    let mut result = message.object("result")?;
    let member = LIST_MEMBERS.into_iter().find(|name| result.has(name))?;
    let mut items: Vec<Box<RawValue>> = result.read(member)?;
    items.retain(|item| is_readable(item));
    result.set(member, items);
    message.set("result", result);
    decode_message(message.to_raw().get().as_bytes(), limits).ok()
}

/// Returns the number of the pending request whose JSON-RPC id is `id`, or `None` if the id has a
/// form that this client never assigns.
pub(crate) fn request_number(id: &RequestId) -> Option<u64> {
    id.as_json().parse().ok()
}

pub(crate) fn request_id(number: u64) -> RequestId {
    RequestId::integer(i64::try_from(number).unwrap_or(i64::MAX))
}

/// Encodes the notification `notifications/cancelled` for this client's request `number`.
pub(crate) fn cancelled_notification(number: u64) -> Vec<u8> {
    let params =
        format!("{{\"requestId\":{number},\"reason\":\"the caller cancelled the request\"}}");
    let params = RawValue::from_string(params).unwrap_or_default();
    encode_notification("notifications/cancelled", Some(&params))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: an operator who configured a server of another era gets that error, not an internal
    /// one. Method: the failure that a caller gets.
    #[test]
    fn what_is_no_mcp_is_told() {
        let failure = Failure::from(TransportError::Protocol(
            "the server chose an unsupported revision".into(),
        ));
        assert_eq!(failure.kind, FailureKind::Unavailable);
        assert_eq!(failure.message, "the server chose an unsupported revision");
    }
}
