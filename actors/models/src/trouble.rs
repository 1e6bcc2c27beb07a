//! Failures of providers: the reason, whether another try may help, and what the caller is told.

use std::time::Duration;

use callboard_message::{Failure, FailureKind};
use serde_json::{Value, json};

/// Reason a provider gave no answer. It never holds what was said, either way: providers quote requests in their errors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    /// It answered with an error. `code` is its own short name for it.
    Status {
        status: u16,
        code: Option<String>,
        retry_after: Option<Duration>,
    },
    /// It began to answer and then told of an error.
    Told { code: Option<String>, again: bool },
    /// No connection.
    Connect,
    /// The connection broke before an answer began, or in the middle of one.
    Cut,
    /// Nothing came for too long.
    Silent,
    /// The time for the whole answer is over.
    TimedOut,
    /// The answer is over its limit.
    TooLarge,
    /// The answer can't be read.
    Malformed(&'static str),
    /// The request has something that this provider doesn't take.
    Unfit(&'static str),
}

/// Member of a failure's data: what of ours the provider refuses.
const REFUSES: &str = "provider_refuses";

/// Part of a request of ours that a provider refuses. Whoever asked is told of a failure, not that they were refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The key: somebody has to see to it.
    Key,
    /// The request, as we made it.
    Request,
}

impl Refused {
    /// Returns the refused part that a failure of a model tells of.
    pub fn of(failure: &Failure) -> Option<Self> {
        match failure.data.as_ref()?.get(REFUSES)?.as_str()? {
            "key" => Some(Self::Key),
            "request" => Some(Self::Request),
            _ => None,
        }
    }

    fn data(self) -> Value {
        json!({ REFUSES: match self { Self::Key => "key", Self::Request => "request" } })
    }
}

/// Maximum length of an error's own name, in bytes. A longer one is left out.
const CODE_BYTES_MAX: usize = 64;

/// A provider's short name for an error, if it looks like one: never a sentence.
pub(super) fn code(said: Option<&str>) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    said.filter(|code| {
        !code.is_empty() && code.len() <= CODE_BYTES_MAX && code.chars().all(is_plain)
    })
    .map(str::to_owned)
}

impl Trouble {
    /// Whether the same request may fare better in a while.
    pub fn may_pass(&self) -> bool {
        match self {
            // A quota that is used up stays so.
            Self::Status {
                status: 429, code, ..
            } => code.as_deref() != Some("insufficient_quota"),
            Self::Status { status, .. } => matches!(status, 408 | 500..=599) && *status != 501,
            Self::Told { again, .. } => *again,
            Self::Connect => true,
            _ => false,
        }
    }

    /// For the caller: what happened, in a sentence that quotes nobody.
    pub fn failure(&self) -> Failure {
        use FailureKind::{NotFound, Overloaded, Rejected, TimedOut, Unavailable};
        let (kind, sentence) = match self {
            Self::Status { status: 429, .. } => (Overloaded, "the model's provider has its limit"),
            Self::Status {
                status: 401 | 403, ..
            } => (Unavailable, "the model's provider refuses the key"),
            Self::Status { status: 404, .. } => {
                (NotFound, "the provider has no such model or address")
            }
            Self::Status {
                status: status @ (400 | 413 | 422),
                ..
            } => (
                Rejected,
                &*format!("the model's provider refuses the request ({status})"),
            ),
            Self::Status { status, .. } => (
                Unavailable,
                &*format!("the model's provider answered {status}"),
            ),
            Self::Told { .. } => (Unavailable, "the model's provider broke off with an error"),
            Self::Connect => (Unavailable, "the model's provider can't be reached"),
            Self::Cut => (Unavailable, "the model's provider broke off in the middle"),
            Self::Silent => (TimedOut, "the model was silent for too long"),
            Self::TimedOut => (TimedOut, "the model took too long"),
            Self::TooLarge => (Unavailable, "the model's answer is over its limit"),
            Self::Malformed(what) => (
                Unavailable,
                &*format!("the model's answer can't be read: {what}"),
            ),
            Self::Unfit(what) => (Rejected, &*format!("this model doesn't take {what}")),
        };
        let failure = match self {
            Self::Status {
                code: Some(code), ..
            }
            | Self::Told {
                code: Some(code), ..
            } => Failure::new(kind, format!("{sentence}: {code}")),
            _ => Failure::new(kind, sentence.to_owned()),
        };
        match (self, kind) {
            (
                Self::Status {
                    status: 401 | 403, ..
                },
                _,
            ) => failure.with_data(Refused::Key.data()),
            (_, Rejected) => failure.with_data(Refused::Request.data()),
            _ => failure,
        }
    }
}
