//! Errors of the mail client.

use std::time::Duration;

use callboard_rpc::http1::ConnectFailure;

/// Failure of a request of the mail client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MailClientError {
    /// The server's address is not `http://HOST:PORT` or `https://HOST`, without path, query or
    /// user.
    #[error("invalid address of a mail listener: write http://HOST:PORT or https://HOST")]
    InvalidAddress,
    /// The key has characters that can't be sent in a header.
    #[error("the key has characters that a header can't hold: copy it again")]
    InvalidKey,
    /// No connection could be established. The server has received nothing of the request.
    #[error("can't connect to the mail listener at {address}: {why}")]
    Unreachable {
        /// Scheme, host and port of the listener.
        address: String,
        /// Reason that the connection failed.
        why: ConnectFailure,
    },
    /// The connection broke. It is unknown whether the server processed the request. It can be
    /// repeated safely with the same idempotency key.
    #[error(
        "the connection to the mail listener broke: repeat the request with the same idempotency key"
    )]
    ConnectionLost,
    /// There was no response within this time. It is unknown whether the server processed the
    /// request. It can be repeated safely with the same idempotency key.
    #[error("the mail listener did not answer in {} s: repeat the request with the same idempotency key", .0.as_secs_f32())]
    TimedOut(Duration),
    /// The server rejected the request. 401 and 403 concern the credential, 429 and 503 are
    /// temporary.
    #[error("{detail} ({status})")]
    Refused {
        /// HTTP status.
        status: u16,
        /// Explanation of the server, for a person.
        detail: String,
        /// Seconds after which a retry may succeed (`Retry-After`).
        retry_after_s: Option<u64>,
    },
    /// The response doesn't have the format of a mail server, for example because the server has an
    /// incompatible version.
    #[error("the answer isn't from a mail listener: check the address")]
    InvalidResponse,
}

impl MailClientError {
    /// Returns whether the same request may succeed later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::ConnectionLost | Self::TimedOut(_) => true,
            Self::Refused { status, .. } => matches!(status, 429 | 500 | 503 | 504),
            _ => false,
        }
    }

    /// Returns whether the request was rejected because of the key, the agent id or missing
    /// permissions (401 or 403).
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
