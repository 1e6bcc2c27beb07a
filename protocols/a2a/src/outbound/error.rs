//! Errors of the A2A client.

use std::fmt;
use std::time::Duration;

use callboard_message::{Failure, FailureKind};
use callboard_rpc::http1::{BodyError, ConnectFailure, NetError};
use callboard_rpc::{EgressError, SseError};
use serde_json::json;

use crate::card::CardVerifyError;
use crate::{A2aError, ErrorKind};

/// Maximum length of a remote agent's error message, in characters. The rest is cut.
const MESSAGE_CHARS_MAX: usize = 2_048;

/// Error response of a remote agent.
#[derive(Clone)]
pub struct RemoteAgentError {
    /// JSON-RPC code of the error as sent by the agent. Over HTTP+JSON, which has none, the code of
    /// `kind`.
    pub code: i64,
    /// Kind of the error in A2A's terms.
    pub kind: ErrorKind,
    /// The agent's description of the error.
    pub message: String,
}

impl RemoteAgentError {
    /// Creates an error; `code` is the code that the agent sent, if any.
    pub(super) fn new(error: A2aError, code: Option<i64>) -> Self {
        let message = error.message.chars().take(MESSAGE_CHARS_MAX).collect();
        Self {
            code: code.unwrap_or_else(|| error.kind.code()),
            kind: error.kind,
            message,
        }
    }
}

impl fmt::Debug for RemoteAgentError {
    // The agent's message may contain confidential data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AgentError({}, {} bytes)", self.code, self.message.len())
    }
}

/// Errors of requests to a remote agent.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum A2aClientError {
    /// The agent responded with an A2A or JSON-RPC error.
    #[error("the agent answered with error {}", .0.code)]
    Agent(RemoteAgentError),
    /// The agent responded with an HTTP error status and without an A2A error.
    #[error("the agent answered with HTTP status {0}")]
    HttpStatus(u16),
    /// The server refused the agent card. Remedy: retry later if the status is 429 or 5xx. 404
    /// means that an earlier card is gone.
    #[error("can't get the agent's card: {url} answered with HTTP status {status}")]
    CardStatus {
        /// HTTP status of the response.
        status: u16,
        /// URL of the card, without its query.
        url: Box<str>,
    },
    /// Only the card of another agent was found. Remedy: if that agent is meant, configure the URL
    /// of its card.
    #[error(
        "there is no agent card at {asked}, and {card} is the card of another agent: {name:?} at {at}; if that one is meant, \
         give the URL of its card"
    )]
    OtherAgent {
        /// The configured address.
        asked: Box<str>,
        /// URL where the card was found.
        card: Box<str>,
        /// Agent name on the card.
        name: Box<str>,
        /// Agent address on the card.
        at: Box<str>,
    },
    /// The agent's server can't be reached. Remedy: check that it runs and that its URL is right,
    /// or retry later.
    #[error("can't connect to the agent: {0}")]
    Unreachable(ConnectFailure),
    /// The connection broke after the request was sent. The agent may have acted on it.
    #[error("the connection to the agent broke; it may have acted on the request")]
    ConnectionBroken,
    /// The response isn't valid A2A; the text describes the problem.
    #[error("{0}")]
    Protocol(String),
    /// A size or count limit was exceeded.
    #[error(
        "the agent's answer is over the limit of its size or of its number of events: ask for less"
    )]
    TooLarge,
    /// There was no response within the timeout.
    #[error("the agent didn't answer within {0:?}")]
    TimedOut(Duration),
    /// Authentication failed; the text names the reason. Remedy: correct the credentials.
    #[error("{0}")]
    Auth(&'static str),
    /// The card names a URL that the egress policy forbids. Remedy: allow the network if the URL is
    /// trusted.
    #[error(
        "the agent's card names a URL that is not contacted: {0}; if it is right, add its network to `networks`"
    )]
    Egress(EgressError),
    /// No agent card was found. Remedy: configure the card's URL or an interface.
    #[error("no agent card was found: configure the card's URL or an interface")]
    CardNotFound,
    /// The card isn't trusted, see the inner error.
    #[error(transparent)]
    UntrustedCard(#[from] CardVerifyError),
    /// The card has no interface in a supported version and binding.
    #[error(
        "the agent card offers no interface with a protocol version and binding that callboard supports"
    )]
    NoCommonInterface,
    /// The agent's protocol version lacks the operation.
    #[error("the agent's version of A2A doesn't have this operation")]
    UnsupportedByVersion,
}

impl A2aClientError {
    /// Returns the JSON-RPC code of the agent's error; `None` if the agent didn't respond with an
    /// A2A or JSON-RPC error.
    pub fn code(&self) -> Option<i64> {
        match self {
            Self::Agent(error) => Some(error.code),
            _ => None,
        }
    }

    /// Returns the kind of the agent's error; `None` if the agent didn't respond with an A2A or
    /// JSON-RPC error.
    pub(super) fn kind(&self) -> Option<ErrorKind> {
        match self {
            Self::Agent(error) => Some(error.kind),
            _ => None,
        }
    }

    /// Returns whether the error concerns the interface as a whole, so that the agent's next
    /// interface should be tried. `is_essential` tells that the failed operation is one that every
    /// agent supports.
    pub(super) fn is_interface_failure(&self, is_essential: bool) -> bool {
        match self {
            Self::Agent(error) => match error.kind {
                ErrorKind::VersionNotSupported => true,
                ErrorKind::MethodNotFound => is_essential,
                _ => false,
            },
            Self::HttpStatus(404 | 405 | 501) => is_essential,
            Self::Unreachable(_) | Self::Egress(_) | Self::UnsupportedByVersion => true,
            _ => false,
        }
    }

    /// Returns whether the error means that a cached card is no longer valid: it was removed,
    /// belongs to another agent, or isn't trusted.
    pub(super) fn revokes_card(&self) -> bool {
        matches!(
            self,
            Self::CardStatus { status: 404, .. } | Self::OtherAgent { .. } | Self::UntrustedCard(_)
        )
    }

    /// Returns whether the error means that the agent doesn't support the operation, in general or
    /// in the task's state.
    pub(super) fn is_unsupported(&self) -> bool {
        let is_told = matches!(
            self.kind(),
            Some(ErrorKind::UnsupportedOperation | ErrorKind::MethodNotFound)
        );
        is_told
            || matches!(
                self,
                Self::UnsupportedByVersion | Self::HttpStatus(404 | 405 | 501)
            )
    }

    /// Returns whether the agent rejected a message before it began, possibly because it doesn't
    /// know the message's context id.
    pub(super) fn may_refuse_context(&self) -> bool {
        matches!(
            self.kind(),
            Some(ErrorKind::InvalidParams | ErrorKind::InvalidRequest | ErrorKind::TaskNotFound)
        ) || matches!(self, Self::HttpStatus(400 | 422))
    }

    /// Returns whether the request may have succeeded although its response was lost, so that the
    /// task should be checked.
    pub(super) fn is_response_lost(&self) -> bool {
        matches!(
            self,
            Self::ConnectionBroken
                | Self::TimedOut(_)
                | Self::HttpStatus(408 | 502 | 503 | 504)
                | Self::Unreachable(_)
        )
    }
}

impl From<A2aClientError> for Failure {
    fn from(error: A2aClientError) -> Self {
        let kind = match &error {
            A2aClientError::Agent(error) => {
                let kind = match error.kind {
                    ErrorKind::TaskNotFound => FailureKind::NotFound,
                    ErrorKind::InvalidParams | ErrorKind::ContentTypeNotSupported => {
                        FailureKind::InvalidInput
                    }
                    ErrorKind::Overloaded => FailureKind::Overloaded,
                    ErrorKind::Denied => FailureKind::Denied,
                    ErrorKind::Blocked => FailureKind::Blocked,
                    // `FailureKind::Internal` means a bug of callboard, whose message is hidden
                    // from callers.
                    ErrorKind::Internal | ErrorKind::Parse | ErrorKind::InvalidRequest => {
                        FailureKind::Unavailable
                    }
                    _ => FailureKind::Rejected,
                };
                let told = if error.message.is_empty() {
                    format!("the agent answered with error {} and no text", error.code)
                } else {
                    error.message.clone()
                };
                return Self::new(kind, told).with_data(json!({ "a2aErrorCode": error.code }));
            }
            A2aClientError::Auth(_)
            | A2aClientError::UntrustedCard(_)
            | A2aClientError::Egress(_) => FailureKind::Denied,
            A2aClientError::TooLarge => FailureKind::Overloaded,
            A2aClientError::TimedOut(_) => FailureKind::TimedOut,
            A2aClientError::HttpStatus(status) | A2aClientError::CardStatus { status, .. } => {
                match status {
                    401 | 403 => FailureKind::Denied,
                    413 | 429 => FailureKind::Overloaded,
                    408 | 504 => FailureKind::TimedOut,
                    _ => FailureKind::Unavailable,
                }
            }
            // The message describes the remedy.
            _ => FailureKind::Unavailable,
        };
        Self::new(kind, error.to_string())
    }
}

impl From<NetError> for A2aClientError {
    fn from(error: NetError) -> Self {
        match error {
            NetError::Unreachable(why) => Self::Unreachable(why),
            NetError::Broken => Self::ConnectionBroken,
        }
    }
}

impl From<BodyError> for A2aClientError {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::TooLarge => Self::TooLarge,
            BodyError::Net(error) => error.into(),
        }
    }
}

impl From<SseError> for A2aClientError {
    fn from(_: SseError) -> Self {
        Self::TooLarge
    }
}
