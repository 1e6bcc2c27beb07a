//! How a command fails: what it says, and its exit code.

use std::fmt::Display;
use std::io;

use callboard_a2a::outbound::{PeerError, RemoteError};
use callboard_mcp::outbound::auth::AuthError;
use callboard_message::{Failure, FailureKind};
use callboard_rpc::KeyError;
use callboard_runtime::{JournalError, TaskError};
use callboard_store::{DirectoryError, ExportError, StoreError};

use super::eval::CaseError;
use super::{EXIT_BLOCKED, EXIT_FAILED, EXIT_USAGE};
use crate::clinics::ClinicsError;
use crate::config::ConfigError;
use crate::node::{NodeError, in_full};

/// Statuses of a mail listener that are its verdict on what was asked: no key, not allowed, wrong, too often.
const REFUSED: [u16; 4] = [401, 403, 422, 429];

/// Why a command failed.
#[derive(Debug)]
pub(super) struct CommandError {
    pub(super) message: String,
    pub(super) exit_code: u8,
}

/// Exit code of a command that came to its end.
pub(super) type Outcome = Result<u8, CommandError>;

impl CommandError {
    /// The command line, or a file named there, is wrong.
    pub(super) fn usage(why: impl Display) -> Self {
        Self { exit_code: EXIT_USAGE, ..Self::failed(why) }
    }

    pub(super) fn failed(why: impl Display) -> Self {
        Self { message: why.to_string(), exit_code: EXIT_FAILED }
    }
}

/// An error that ends a command.
trait Ends: Display {
    /// Whether the command line, or a file named there, is wrong.
    fn is_usage(&self) -> bool {
        true
    }
}

impl<E: Ends> From<E> for CommandError {
    fn from(error: E) -> Self {
        if error.is_usage() { Self::usage(error) } else { Self::failed(error) }
    }
}

impl Ends for JournalError {
    fn is_usage(&self) -> bool {
        false
    }
}

impl Ends for TaskError {
    fn is_usage(&self) -> bool {
        false
    }
}

impl Ends for ConfigError {}
impl Ends for callboard_mcp::outbound::ClientError {}
impl Ends for AuthError {}
impl Ends for CaseError {}
impl Ends for RemoteError {}

impl Ends for NodeError {
    fn is_usage(&self) -> bool {
        self.is_usage()
    }
}

impl Ends for ClinicsError {
    fn is_usage(&self) -> bool {
        self.is_usage()
    }
}

impl Ends for KeyError {
    fn is_usage(&self) -> bool {
        !matches!(self, Self::Io { .. } | Self::Random)
    }
}

impl Ends for DirectoryError {
    fn is_usage(&self) -> bool {
        !matches!(self, Self::Journal(_))
    }
}

impl From<io::Error> for CommandError {
    fn from(error: io::Error) -> Self {
        Self::failed(format_args!("failed to write to standard output: {error}"))
    }
}

impl From<StoreError> for CommandError {
    fn from(error: StoreError) -> Self {
        let why = in_full(&error);
        if matches!(error, StoreError::Url(_)) { Self::usage(why) } else { Self::failed(why) }
    }
}

impl From<ExportError> for CommandError {
    fn from(error: ExportError) -> Self {
        match error {
            ExportError::Store(error) => error.into(),
            ExportError::Io(error) => error.into(),
            other => Self::failed(other),
        }
    }
}

impl From<callboard_mail::ClientError> for CommandError {
    fn from(error: callboard_mail::ClientError) -> Self {
        use callboard_mail::ClientError;
        let exit_code = match &error {
            ClientError::Address | ClientError::Key => EXIT_USAGE,
            ClientError::Refused { status, .. } if REFUSED.contains(status) => EXIT_BLOCKED,
            _ => EXIT_FAILED,
        };
        Self { exit_code, ..Self::failed(error) }
    }
}

impl From<PeerError> for CommandError {
    fn from(error: PeerError) -> Self {
        Failure::from(error).into()
    }
}

impl From<Failure> for CommandError {
    fn from(failure: Failure) -> Self {
        // The code of the protocol's own error, if there is one.
        let data = failure.data.as_ref();
        let code = data.and_then(|data| data["rpc"]["code"].as_i64().or_else(|| data["a2aErrorCode"].as_i64()));
        let code = code.map(|code| format!(" (code {code})")).unwrap_or_default();
        let exit_code = if failure.kind == FailureKind::Blocked { EXIT_BLOCKED } else { EXIT_FAILED };
        Self { exit_code, ..Self::failed(format_args!("{}{code}", failure.message)) }
    }
}
