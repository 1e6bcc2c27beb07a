//! Why a remote agent didn't answer as asked.

use std::fmt;
use std::time::Duration;

use callboard_message::{Failure, FailureKind};
use callboard_rpc::http1::{BodyError, NetError};
use callboard_rpc::{EgressError, SseError};
use serde_json::json;

use crate::card::VerifyError;
use crate::{A2aError, ErrorKind};

/// Most of an agent's words in an error that are kept, in characters.
const MESSAGE_CHARS_MAX: usize = 2_048;

/// An error that an agent answered with.
#[derive(Clone)]
pub struct AgentError {
    /// As the agent wrote it; over HTTP+JSON that of its reason.
    pub code: i64,
    /// What that is in A2A's terms.
    pub kind: ErrorKind,
    /// What the agent says about it.
    pub message: String,
}

impl AgentError {
    /// `code`: as the agent wrote it, where it wrote one.
    pub(super) fn new(error: A2aError, code: Option<i64>) -> Self {
        let message = error.message.chars().take(MESSAGE_CHARS_MAX).collect();
        Self {
            code: code.unwrap_or_else(|| error.kind.code()),
            kind: error.kind,
            message,
        }
    }
}

impl fmt::Debug for AgentError {
    // What an agent says may hold anything.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AgentError({}, {} bytes)", self.code, self.message.len())
    }
}

/// Why a remote agent didn't answer as asked. Each variant tells what to do next.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// It answered with an error: see its code.
    #[error("the agent answered with error {}", .0.code)]
    Agent(AgentError),
    /// HTTP refused, and no A2A error says why.
    #[error("the agent answered with HTTP status {0}")]
    Status(u16),
    /// HTTP refused its card: where that is 429 or 5xx, try again later; where 404, it was there before.
    #[error("can't get the agent's card: {url} answered with HTTP status {status}")]
    CardStatus {
        /// Of the answer.
        status: u16,
        /// Where the card should be, without its query.
        url: Box<str>,
    },
    /// Only another agent's card was found: give that card's URL, if that agent is meant.
    #[error(
        "there is no agent card at {asked}, and {card} is the card of another agent: {name:?} at {at}; if that one is meant, \
         give the URL of its card"
    )]
    OtherAgent {
        /// The address that was asked for.
        asked: Box<str>,
        /// Where the card was found.
        card: Box<str>,
        /// The name on that card.
        name: Box<str>,
        /// The address on that card.
        at: Box<str>,
    },
    /// It can't be reached: try again later.
    #[error("can't connect to the agent")]
    Unreachable,
    /// It was reached; whether it acted is unknown.
    #[error("the connection to the agent broke")]
    Broken,
    /// What came is no A2A: see what it says.
    #[error("{0}")]
    Protocol(String),
    /// What came is over a limit.
    #[error("the agent's message is over the limit")]
    TooLarge,
    /// Not in time.
    #[error("no answer in {0:?}")]
    TimedOut(Duration),
    /// Who asks can't be shown: mend the credentials.
    #[error("{0}")]
    Auth(&'static str),
    /// Its card sends requests where they may not go: allow the network, if this place is meant.
    #[error("the agent's card names a place to which {0}")]
    Egress(EgressError),
    /// No card where one should be: give its URL, or an interface.
    #[error("no agent card was found there")]
    NoCard,
    /// The card isn't trusted: see why.
    #[error(transparent)]
    Untrusted(#[from] VerifyError),
    /// It has no interface, in a version and binding, that is spoken here.
    #[error("the agent speaks nothing that is spoken here")]
    NothingInCommon,
    /// The version that it speaks has no such operation.
    #[error("the agent's version of A2A has no such operation")]
    NotInVersion,
}

impl PeerError {
    /// The agent's own code, where it answered with an error.
    pub fn code(&self) -> Option<i64> {
        match self {
            Self::Agent(error) => Some(error.code),
            _ => None,
        }
    }

    /// The error's kind, where the agent answered with one.
    pub(super) fn kind(&self) -> Option<ErrorKind> {
        match self {
            Self::Agent(error) => Some(error.kind),
            _ => None,
        }
    }

    /// Whether the interface as a whole is at fault, so that another may do. `is_essential`: every agent does what was
    /// asked.
    pub(super) fn is_of_interface(&self, is_essential: bool) -> bool {
        match self {
            Self::Agent(error) => match error.kind {
                ErrorKind::VersionNotSupported => true,
                ErrorKind::MethodNotFound => is_essential,
                _ => false,
            },
            Self::Status(404 | 405 | 501) => is_essential,
            Self::Unreachable | Self::Egress(_) | Self::NotInVersion => true,
            _ => false,
        }
    }

    /// Whether an earlier card counts no more: it is gone, another agent's, or not trusted.
    pub(super) fn revokes_card(&self) -> bool {
        matches!(
            self,
            Self::CardStatus { status: 404, .. } | Self::OtherAgent { .. } | Self::Untrusted(_)
        )
    }

    /// Whether the agent says that it can't do this, here or at all.
    pub(super) fn is_unsupported(&self) -> bool {
        let is_told = matches!(
            self.kind(),
            Some(ErrorKind::UnsupportedOperation | ErrorKind::MethodNotFound)
        );
        is_told || matches!(self, Self::NotInVersion | Self::Status(404 | 405 | 501))
    }

    /// Whether the answer may have been lost on its way, so that the task tells more.
    pub(super) fn is_lost(&self) -> bool {
        matches!(
            self,
            Self::Broken
                | Self::TimedOut(_)
                | Self::Status(408 | 502 | 503 | 504)
                | Self::Unreachable
        )
    }
}

impl From<PeerError> for Failure {
    fn from(error: PeerError) -> Self {
        let kind = match &error {
            PeerError::Agent(error) => {
                let kind = match error.kind {
                    ErrorKind::TaskNotFound => FailureKind::NotFound,
                    ErrorKind::InvalidParams | ErrorKind::ContentTypeNotSupported => {
                        FailureKind::InvalidInput
                    }
                    ErrorKind::Overloaded => FailureKind::Overloaded,
                    ErrorKind::Denied => FailureKind::Denied,
                    ErrorKind::Blocked => FailureKind::Blocked,
                    // `Internal` is a bug of ours, whose sentence nobody is told.
                    ErrorKind::Internal | ErrorKind::Parse | ErrorKind::InvalidRequest => {
                        FailureKind::Unavailable
                    }
                    _ => FailureKind::Rejected,
                };
                let told = if error.message.is_empty() {
                    "the agent answered with an error"
                } else {
                    &error.message
                };
                return Self::new(kind, told).with_data(json!({ "a2aErrorCode": error.code }));
            }
            PeerError::Auth(_) | PeerError::Untrusted(_) | PeerError::Egress(_) => {
                FailureKind::Denied
            }
            PeerError::TooLarge => FailureKind::Overloaded,
            PeerError::TimedOut(_) => FailureKind::TimedOut,
            PeerError::Status(status) | PeerError::CardStatus { status, .. } => match status {
                401 | 403 => FailureKind::Denied,
                413 | 429 => FailureKind::Overloaded,
                408 | 504 => FailureKind::TimedOut,
                _ => FailureKind::Unavailable,
            },
            // Its sentence says how to mend it.
            _ => FailureKind::Unavailable,
        };
        Self::new(kind, error.to_string())
    }
}

impl From<NetError> for PeerError {
    fn from(error: NetError) -> Self {
        match error {
            NetError::Unreachable => Self::Unreachable,
            NetError::Broken => Self::Broken,
        }
    }
}

impl From<BodyError> for PeerError {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::TooLarge => Self::TooLarge,
            BodyError::Net(error) => error.into(),
        }
    }
}

impl From<SseError> for PeerError {
    fn from(_: SseError) -> Self {
        Self::TooLarge
    }
}
