//! What an exchange with a server is made of: what it says, what a request comes to, and why not.

use std::sync::Arc;
use std::time::Duration;

use callboard_message::{Failure, FailureKind};
use callboard_rpc::http1::{BodyError, NetError};
use callboard_rpc::{
    Id, Incoming, Limits, Refusal, RpcError, SseError, decode, encode_notification,
};
use serde_json::value::RawValue;

use super::auth::AuthError;
use crate::wire::failure;

/// What a server said that is no response.
#[derive(Clone)]
pub(crate) enum Heard {
    /// It asks.
    Request {
        id: Id,
        method: String,
        params: Option<Box<RawValue>>,
    },
    /// It tells.
    Notification {
        method: String,
        params: Option<Box<RawValue>>,
    },
}

/// What an exchange comes to.
pub(crate) type Exchanged = Result<Box<RawValue>, TransportError>;

/// A response's result or error.
pub(crate) type Outcome = Result<Box<RawValue>, RpcError>;

/// One message of a server's, owned.
pub(crate) enum Said {
    Response { id: Option<Id>, outcome: Outcome },
    Event(Heard),
}

/// Why there is no result.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum TransportError {
    /// The server answered with an error; `status` is HTTP's.
    #[error("the server answered with an error")]
    Rpc {
        error: RpcError,
        status: Option<u16>,
    },
    /// HTTP refused, and no JSON-RPC error says why.
    #[error("the server answered with HTTP status {0}")]
    Status(u16),
    /// The server has forgotten the session: begin another.
    #[error("the session is lost")]
    SessionLost,
    /// It can't be reached.
    #[error("{0}")]
    Unreachable(&'static str),
    /// It was reached; whether it acted is unknown.
    #[error("{0}")]
    Broken(&'static str),
    /// What came is no MCP.
    #[error("{0}")]
    Protocol(String),
    /// What came is over a limit.
    #[error("the server's message is over the limit")]
    TooLarge,
    /// Not in time.
    #[error("no answer in {0:?}")]
    TimedOut(Duration),
    /// The request couldn't be authorised.
    #[error("{0}")]
    Auth(Arc<AuthError>),
    /// A failure of this side's.
    #[error("{0}")]
    Failed(Failure),
}

impl From<NetError> for TransportError {
    fn from(error: NetError) -> Self {
        match error {
            NetError::Unreachable => Self::Unreachable("can't connect to the server"),
            NetError::Broken => Self::Broken("the connection to the server broke"),
        }
    }
}

impl From<BodyError> for TransportError {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::TooLarge => Self::TooLarge,
            BodyError::Net(error) => error.into(),
        }
    }
}

impl From<SseError> for TransportError {
    fn from(_: SseError) -> Self {
        Self::TooLarge
    }
}

impl From<TransportError> for Failure {
    fn from(error: TransportError) -> Self {
        let kind = match &error {
            TransportError::Rpc { error, .. } => return failure::of_rpc(error),
            TransportError::Failed(failure) => return failure.clone(),
            TransportError::Status(401 | 403) | TransportError::Auth(_) => FailureKind::Denied,
            TransportError::Status(413 | 429) | TransportError::TooLarge => FailureKind::Overloaded,
            TransportError::Status(408 | 504) | TransportError::TimedOut(_) => {
                FailureKind::TimedOut
            }
            // `Internal` is a bug of ours, whose sentence nobody is told: here it is what says how to mend it.
            _ => FailureKind::Unavailable,
        };
        Self::new(kind, error.to_string())
    }
}

/// Reads one message.
pub(crate) fn read(bytes: &[u8], limits: &Limits) -> Result<Said, Refusal> {
    Ok(match decode(bytes, limits)? {
        Incoming::Response(response) => Said::Response {
            id: response.id,
            outcome: response.outcome.map(RawValue::to_owned),
        },
        Incoming::Request(request) => Said::Event(Heard::Request {
            id: request.id,
            method: request.method,
            params: request.params.map(RawValue::to_owned),
        }),
        Incoming::Notification(told) => Said::Event(Heard::Notification {
            method: told.method,
            params: told.params.map(RawValue::to_owned),
        }),
    })
}

/// The number of one of our requests, from an id that came back.
pub(crate) fn number_of(id: &Id) -> Option<u64> {
    id.as_json().parse().ok()
}

/// The id of our request `number`.
pub(crate) fn id_of(number: u64) -> Id {
    Id::integer(i64::try_from(number).unwrap_or(i64::MAX))
}

/// `notifications/cancelled` for our request `number`.
pub(crate) fn cancelled(number: u64) -> Vec<u8> {
    let params = format!("{{\"requestId\":{number},\"reason\":\"nobody waits for it any more\"}}");
    let params = RawValue::from_string(params).unwrap_or_default();
    encode_notification("notifications/cancelled", Some(&params))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: whoever configured a server of another era reads so, not that something internal went wrong. Method: the
    /// failure that a caller gets.
    #[test]
    fn what_is_no_mcp_is_told() {
        let failure = Failure::from(TransportError::Protocol(
            "the server chose a revision that isn't spoken here".into(),
        ));
        assert_eq!(failure.kind, FailureKind::Unavailable);
        assert_eq!(
            failure.message,
            "the server chose a revision that isn't spoken here"
        );
    }
}
