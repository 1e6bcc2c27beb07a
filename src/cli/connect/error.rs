//! Errors of configuration files of applications.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::cli::ExitError;

/// Maximum size of a configuration file, in bytes. Claude Code keeps more than settings in its file.
pub(in crate::cli) const CLIENT_FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Reason why a configuration file can't be read or written.
#[derive(Debug, Error)]
pub(super) enum ClientFileError {
    #[error("failed to read {}: {source}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} has more than {} bytes: shorten it", .path.display(), CLIENT_FILE_BYTES_MAX)]
    TooLarge { path: PathBuf },
    #[error("{} changed in the meantime: close the application, or run the command again", .path.display())]
    Changed { path: PathBuf },
    #[error("failed to write {}: {source}", .path.display())]
    Write { path: PathBuf, source: io::Error },
}

impl ExitError for ClientFileError {
    fn is_usage(&self) -> bool {
        matches!(self, Self::TooLarge { .. })
    }
}

/// Reason why the text of a configuration file can't be edited. It holds nothing of the text, which may have keys in it.
#[derive(Debug, Error)]
pub(super) enum EditError {
    #[error("not plain JSON ({0}): comments and trailing commas can't be edited")]
    Json(#[from] serde_json::Error),
    #[error("not TOML: {message} at line {line}")]
    Toml {
        /// Description of the problem.
        message: String,
        /// Line, from 1.
        line: usize,
    },
    #[error("{what} is not {expected}")]
    WrongType {
        /// Name of the setting.
        what: String,
        /// Expected type, with an article.
        expected: &'static str,
    },
    #[error(
        "the server {name} is another program's: choose --name, or first remove the server by --remove"
    )]
    OtherProgram {
        /// Name of the server.
        name: String,
    },
    #[error("its servers are written in a form that can't be edited")]
    UnsupportedForm,
}

impl EditError {
    /// Creates the error of a setting that is not an object, or a table of TOML.
    pub(super) fn not_an_object(what: &str) -> Self {
        Self::WrongType {
            what: what.to_owned(),
            expected: "an object",
        }
    }
}
