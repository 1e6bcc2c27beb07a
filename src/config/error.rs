use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::problem::{Level, Problem};
use super::upstream::UpstreamError;

/// Why a topology can't be used; each names the place to change.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Check the path and its permissions.
    #[error("failed to read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Split the file.
    #[error("{path} has more than {} bytes", super::TOPOLOGY_BYTES_MAX)]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// Correct what is named.
    #[error("{}: {}", .path.display(), summary(.problems))]
    Mistakes {
        /// The file.
        path: PathBuf,
        /// All that is wrong with it; at least one is an error.
        problems: Vec<Problem>,
    },
    /// Name one that is declared.
    #[error("there is no agent {agent} in the topology")]
    UnknownAgent {
        /// Who was asked for.
        agent: String,
    },
    /// Add an `[[agent]]` or an `[[upstream]]`.
    #[error("the topology declares no agent")]
    NoAgents,
    /// Correct the listener.
    #[error("the listener on {bind}: {why}")]
    Listener {
        /// Where it would listen.
        bind: SocketAddr,
        /// What is wrong with it.
        why: String,
    },
    /// Correct the upstream.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
}

impl ConfigError {
    pub(crate) fn mistakes(path: &Path, problems: Vec<Problem>) -> Self {
        Self::Mistakes { path: path.to_owned(), problems }
    }
}

/// The first error, and how many more there are.
fn summary(problems: &[Problem]) -> String {
    let errors: Vec<_> = problems.iter().filter(|problem| problem.level == Level::Error).collect();
    match errors.as_slice() {
        [] => "it can't be used".to_owned(),
        [only] => only.to_string(),
        [first, more @ ..] => format!("{first}, and {} more (`callboard check` tells them all)", more.len()),
    }
}
