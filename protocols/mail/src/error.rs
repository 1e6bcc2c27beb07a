//! Errors of the client: what to do next.

use std::time::Duration;

/// Why the client has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// Use `http://HOST:PORT` or `https://HOST`, and nothing behind it.
    #[error("the address of a mail listener is http://HOST:PORT or https://HOST")]
    Address,
    /// Use a key without spaces and control characters.
    #[error("the key can't be sent: it has characters that no key has")]
    Key,
    /// See whether it runs: it has not seen the request.
    #[error("can't connect to the mail listener")]
    Unreachable,
    /// Try again with the same idempotency key: whether it acted is unknown.
    #[error("the connection to the mail listener broke")]
    Broken,
    /// Try again with the same idempotency key: whether it acted is unknown.
    #[error("the mail listener did not answer in {} s", .0.as_secs_f32())]
    TimedOut(Duration),
    /// See `detail`; 401 and 403 are about who you are, 429 and 503 pass.
    #[error("{detail} ({status})")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// What the server says.
        detail: String,
        /// After how many seconds it may pass.
        retry_after_s: Option<u64>,
    },
    /// It isn't a mail listener, or another version of one.
    #[error("the answer is not a mail listener's")]
    Unreadable,
}

impl ClientError {
    /// Whether the same may pass later.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable | Self::Broken | Self::TimedOut(_) => true,
            Self::Refused { status, .. } => matches!(status, 429 | 500 | 503 | 504),
            _ => false,
        }
    }

    /// Whether it is about who asks: the key, the id, or what they may.
    pub fn is_denied(&self) -> bool {
        matches!(
            self,
            Self::Refused {
                status: 401 | 403,
                ..
            }
        )
    }
}
