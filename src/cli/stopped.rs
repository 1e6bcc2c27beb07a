//! How a command ends that speaks to somebody else's server or agent.

use std::io;
use std::time::Duration;

use callboard_a2a::outbound::{PeerError, RemoteError};
use callboard_mcp::outbound::ClientError;
use callboard_message::{Failure, FailureKind};

use super::mcp::words::printable;
use super::{EXIT_BLOCKED, EXIT_FAILED, EXIT_USAGE, show};

/// Why a command stopped before its end.
#[derive(Debug, thiserror::Error)]
pub(super) enum Stopped {
    /// Correct the command line.
    #[error("{0}")]
    Usage(String),
    /// See what the other side says.
    #[error("{}{}", .0.message, code_of(.0))]
    Failed(#[from] Failure),
    /// What there is to say can't be said: make room, or write elsewhere.
    #[error("failed to write to standard output: {0}")]
    Output(#[from] io::Error),
    /// The user or the system wanted it to.
    #[error("interrupted")]
    Interrupted,
    /// Give it more time.
    #[error("not done in {0:?}")]
    TimedOut(Duration),
}

impl From<ClientError> for Stopped {
    fn from(error: ClientError) -> Self {
        Self::Usage(error.to_string())
    }
}

impl From<RemoteError> for Stopped {
    fn from(error: RemoteError) -> Self {
        Self::Usage(error.to_string())
    }
}

impl From<PeerError> for Stopped {
    fn from(error: PeerError) -> Self {
        Self::Failed(error.into())
    }
}

/// The other side's own code, where it sent one: an MCP server's, or an A2A agent's.
fn code_of(failure: &Failure) -> String {
    let data = failure.data.as_ref();
    let code = data.and_then(|data| data["rpc"]["code"].as_i64().or_else(|| data["a2aErrorCode"].as_i64()));
    code.map(|code| format!(" (code {code})")).unwrap_or_default()
}

impl Stopped {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => EXIT_USAGE,
            Self::Failed(failure) if failure.kind == FailureKind::Blocked => EXIT_BLOCKED,
            _ => EXIT_FAILED,
        }
    }
}

/// Runs a command, says why it stopped if it did, and gives its exit code.
pub(super) fn run(command: impl Future<Output = Result<u8, Stopped>>) -> u8 {
    super::block_on(command).map_err(Stopped::Output).flatten().unwrap_or_else(|stopped| {
        show::complain(printable(&stopped.to_string()));
        stopped.exit_code()
    })
}
