//! Failures of providers: reason, whether a retry may help, and the failure for the caller.

use std::time::Duration;

use callboard_message::{Failure, FailureKind};
use serde_json::{Value, json};

/// Reason that a provider gave no answer. It contains no prompt or answer text, although providers
/// quote requests in their errors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ProviderFailure {
    /// Error response. `code` is the provider's own short name for the error, `retry_after` the
    /// pause that it asks for before a retry.
    Status {
        status: u16,
        code: Option<String>,
        retry_after: Option<Duration>,
    },
    /// Error event in the middle of an answer.
    ErrorEvent {
        code: Option<String>,
        is_retryable: bool,
    },
    /// The connection failed.
    Connect,
    /// The server's certificate isn't accepted.
    Certificate,
    /// The connection broke before or during the answer.
    Disconnected,
    /// No data arrived within the idle timeout.
    IdleTimeout,
    /// The time limit for the whole answer has passed.
    TimedOut,
    /// The answer exceeds its size limit.
    TooLarge,
    /// The answer can't be parsed.
    Malformed(&'static str),
    /// The body of the request exceeds its size limit. It isn't sent.
    RequestTooLarge { bytes: usize, bytes_max: usize },
    /// The request contains something that this provider doesn't support.
    Unsupported(&'static str),
}

/// Key in a failure's data that names the [`RefusedPart`].
const REFUSED_PART_MEMBER: &str = "provider_refuses";

/// Part of a request from this program that the provider refuses. The caller gets a failure of the
/// model, because their own request isn't at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusedPart {
    /// The API key is refused; the operator has to act.
    Key,
    /// The request is refused in the form in which it was sent.
    Request,
}

impl RefusedPart {
    /// Returns the refused part from a model's failure; `None` if the provider refused neither key
    /// nor request.
    pub fn from_failure(failure: &Failure) -> Option<Self> {
        match failure.data.as_ref()?.get(REFUSED_PART_MEMBER)?.as_str()? {
            "key" => Some(Self::Key),
            "request" => Some(Self::Request),
            _ => None,
        }
    }

    fn to_data(self) -> Value {
        json!({ REFUSED_PART_MEMBER: match self { Self::Key => "key", Self::Request => "request" } })
    }
}

/// Maximum bytes of an error code. A longer one is left out.
const CODE_BYTES_MAX: usize = 64;

/// Returns a provider's error code if it looks like one: 1 to [`CODE_BYTES_MAX`] ASCII letters,
/// digits, `_`, `-` and `.`. Else, for example for a sentence, returns `None`.
pub(super) fn sanitize_code(said: Option<&str>) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    said.filter(|code| {
        !code.is_empty() && code.len() <= CODE_BYTES_MAX && code.chars().all(is_plain)
    })
    .map(str::to_owned)
}

impl ProviderFailure {
    /// Whether the same request may succeed later.
    pub fn is_transient(&self) -> bool {
        match self {
            // An exhausted quota stays exhausted.
            Self::Status {
                status: 429, code, ..
            } => code.as_deref() != Some("insufficient_quota"),
            Self::Status { status, .. } => matches!(status, 408 | 500..=599) && *status != 501,
            Self::ErrorEvent {
                is_retryable: again,
                ..
            } => *again,
            Self::Connect => true,
            _ => false,
        }
    }

    /// Returns the kind of the failure for the caller, and its message without the provider's code.
    fn kind_and_sentence(&self) -> (FailureKind, String) {
        use FailureKind::{NotFound, Overloaded, Rejected, TimedOut, Unavailable};
        let (kind, sentence) = match self {
            Self::Status { status: 429, .. } => (
                Overloaded,
                "the model's provider limits the rate of requests: try again later",
            ),
            Self::Status {
                status: 401 | 403, ..
            } => (
                Unavailable,
                "the model's provider refuses the key: check the variable that holds it",
            ),
            Self::Status { status: 404, .. } => (
                NotFound,
                "the model's provider knows no such model or address: check `model` and `url`",
            ),
            Self::Status {
                status: status @ (400 | 413 | 422),
                ..
            } => {
                let sentence = format!(
                    "the model's provider refuses the request with status {status}: check the model's settings"
                );
                return (Rejected, sentence);
            }
            Self::Status { status, .. } => {
                let sentence = format!(
                    "the model's provider answered with status {status}: try again later, or check `url`"
                );
                return (Unavailable, sentence);
            }
            Self::ErrorEvent { .. } => (
                Unavailable,
                "the model's provider ended its answer with an error",
            ),
            Self::Connect => (
                Unavailable,
                "the model's provider can't be reached: check `url` and the network",
            ),
            Self::Certificate => (
                Unavailable,
                "the certificate of the model's provider isn't trusted here, is for another host, or has expired: name its authority in `ca`, and check `url`",
            ),
            Self::Disconnected => (
                Unavailable,
                "the connection to the model's provider broke during the answer: try again",
            ),
            Self::IdleTimeout => (
                TimedOut,
                "the model sent nothing for `timeouts.silence_ms`: try again, or raise it",
            ),
            Self::TimedOut => (
                TimedOut,
                "the model didn't answer within `timeouts.whole_ms` or the call's time limit",
            ),
            Self::TooLarge => (
                Unavailable,
                "the model's answer is over its limit of bytes (`limits.answer_bytes_max`) or of tool uses",
            ),
            Self::Malformed(what) => {
                let sentence = format!("the answer of the model's provider is malformed: {what}");
                return (Unavailable, sentence);
            }
            Self::RequestTooLarge { bytes, bytes_max } => {
                let sentence = format!(
                    "the conversation has {bytes} bytes as a request, more than {bytes_max}: shorten it"
                );
                return (Rejected, sentence);
            }
            Self::Unsupported(what) => {
                let sentence =
                    format!("this model doesn't accept {what}: leave it out or use another model");
                return (Rejected, sentence);
            }
        };
        (kind, sentence.to_owned())
    }

    /// Converts to a failure for the caller. Its message quotes neither request nor answer.
    pub fn to_failure(&self) -> Failure {
        let (kind, sentence) = self.kind_and_sentence();
        let failure = match self {
            Self::Status {
                code: Some(code), ..
            }
            | Self::ErrorEvent {
                code: Some(code), ..
            } => Failure::new(kind, format!("{sentence} (its code: {code})")),
            _ => Failure::new(kind, sentence),
        };
        match (self, kind) {
            (
                Self::Status {
                    status: 401 | 403, ..
                },
                _,
            ) => failure.with_data(RefusedPart::Key.to_data()),
            (_, FailureKind::Rejected) => failure.with_data(RefusedPart::Request.to_data()),
            _ => failure,
        }
    }
}
