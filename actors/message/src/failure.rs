use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// What an agent answers when it can't do what was asked. It crosses every protocol.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// What the sender can do about it.
    pub kind: FailureKind,
    /// One sentence for a person. Never holds secrets or patient text.
    pub message: String,
    /// Details for a program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

/// A reply as JSON, or the failure that came in its place.
pub type RawReply = Result<Box<RawValue>, Failure>;

/// What the sender of a failed message can do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FailureKind {
    /// The message doesn't fit: change it.
    InvalidInput,
    /// Nothing goes by that name: look it up again.
    NotFound,
    /// The principal may not: ask whoever grants it.
    Denied,
    /// A guard or a verifier stopped it: don't repeat it.
    Blocked,
    /// The agent won't do it: don't repeat it.
    Rejected,
    /// A limit was met: try again later, or send less.
    Overloaded,
    /// The agent or its network is away: try again later.
    Unavailable,
    /// The deadline passed; whether the agent acted is unknown.
    TimedOut,
    /// The caller cancelled it.
    Cancelled,
    /// The agent had a question and nobody could be asked.
    NobodyToAsk,
    /// A bug of the agent's: report it.
    Internal,
}

impl Failure {
    /// A failure of `kind`, told in one sentence.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            data: None,
        }
    }

    /// The same failure with details for a program.
    pub fn with_data(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }

    /// [`FailureKind::InvalidInput`].
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(FailureKind::InvalidInput, message)
    }

    /// [`FailureKind::NotFound`].
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(FailureKind::NotFound, message)
    }

    /// [`FailureKind::Denied`].
    pub fn denied(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Denied, message)
    }

    /// [`FailureKind::Rejected`].
    pub fn rejected(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Rejected, message)
    }

    /// [`FailureKind::Overloaded`].
    pub fn overloaded(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Overloaded, message)
    }

    /// [`FailureKind::TimedOut`].
    pub fn timed_out(message: impl Into<String>) -> Self {
        Self::new(FailureKind::TimedOut, message)
    }

    /// [`FailureKind::Cancelled`].
    pub fn cancelled(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Cancelled, message)
    }

    /// [`FailureKind::NobodyToAsk`].
    pub fn nobody_to_ask(message: impl Into<String>) -> Self {
        Self::new(FailureKind::NobodyToAsk, message)
    }

    /// [`FailureKind::Unavailable`].
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Unavailable, message)
    }

    /// [`FailureKind::Internal`].
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Internal, message)
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InvalidInput => "invalid input",
            Self::NotFound => "not found",
            Self::Denied => "denied",
            Self::Blocked => "blocked",
            Self::Rejected => "rejected",
            Self::Overloaded => "overloaded",
            Self::Unavailable => "unavailable",
            Self::TimedOut => "timed out",
            Self::Cancelled => "cancelled",
            Self::NobodyToAsk => "nobody to ask",
            Self::Internal => "internal",
        })
    }
}
