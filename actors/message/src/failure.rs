use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Error reply of an agent. Adapters transfer it over every protocol.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// Kind of failure, which tells the sender how to react.
    pub kind: FailureKind,
    /// One sentence for a person. It must not hold secrets or patient data.
    pub message: String,
    /// Details for programs, as any JSON value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

/// Member of a failure's data: name of the scope that the caller lacks.
pub const NEEDED_SCOPE_DATA_KEY: &str = "needed_scope";

/// Reply as raw JSON, or the failure that is sent instead of a reply.
pub type RawReply = Result<Box<RawValue>, Failure>;

/// Kind of a [`Failure`], by how the sender should react.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FailureKind {
    /// The message is invalid. The sender should change it.
    InvalidInput,
    /// The named item doesn't exist.
    NotFound,
    /// The principal lacks a permission that the message requires.
    Denied,
    /// A guard or verifier blocked the message. The sender shouldn't repeat it.
    Blocked,
    /// The agent refused the request. The sender shouldn't repeat it.
    Rejected,
    /// A limit was exceeded. The sender should try again later, or send less.
    Overloaded,
    /// The agent or its network is unreachable. The sender should try again later.
    Unavailable,
    /// The deadline has passed. It is unknown whether the agent processed the message.
    TimedOut,
    /// The caller cancelled the call.
    Cancelled,
    /// The agent asked a question, but the caller can't answer questions of this kind.
    #[serde(rename = "nobody_to_ask")]
    NoResponder,
    /// The agent has a defect.
    Internal,
}

impl Failure {
    /// Creates a failure of the given kind with one sentence for a person and no data.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            data: None,
        }
    }

    /// Sets the details for programs and returns the failure.
    pub fn with_data(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }

    /// Creates a failure of the kind [`FailureKind::InvalidInput`].
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(FailureKind::InvalidInput, message)
    }

    /// Creates a failure of the kind [`FailureKind::NotFound`].
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(FailureKind::NotFound, message)
    }

    /// Creates a failure of the kind [`FailureKind::Denied`].
    pub fn denied(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Denied, message)
    }

    /// Creates a failure of the kind [`FailureKind::Denied`] for a caller without the scope `scope`.
    pub fn lacking_scope(message: impl Into<String>, scope: &str) -> Self {
        Self::denied(message).with_data(json!({ NEEDED_SCOPE_DATA_KEY: scope }))
    }

    /// Returns the scope without which the caller was denied; `None` for other failures.
    pub fn needed_scope(&self) -> Option<&str> {
        let data = self
            .data
            .as_ref()
            .filter(|_| self.kind == FailureKind::Denied)?;
        data.get(NEEDED_SCOPE_DATA_KEY)?.as_str()
    }

    /// Creates a failure of the kind [`FailureKind::Rejected`].
    pub fn rejected(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Rejected, message)
    }

    /// Creates a failure of the kind [`FailureKind::Overloaded`].
    pub fn overloaded(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Overloaded, message)
    }

    /// Creates a failure of the kind [`FailureKind::TimedOut`].
    pub fn timed_out(message: impl Into<String>) -> Self {
        Self::new(FailureKind::TimedOut, message)
    }

    /// Creates a failure of the kind [`FailureKind::Cancelled`].
    pub fn cancelled(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Cancelled, message)
    }

    /// Creates a failure of the kind [`FailureKind::NoResponder`].
    pub fn no_responder(message: impl Into<String>) -> Self {
        Self::new(FailureKind::NoResponder, message)
    }

    /// Creates a failure of the kind [`FailureKind::Unavailable`].
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Unavailable, message)
    }

    /// Creates a failure of the kind [`FailureKind::Internal`].
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
            Self::NoResponder => "nobody to ask",
            Self::Internal => "internal",
        })
    }
}
