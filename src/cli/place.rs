//! Which store a command is about: `--topology FILE [--state DIR]` or `--store URL`.

use std::path::{Path, PathBuf};

use callboard_runtime::{JournalError, TaskError};
use callboard_store::{DirectoryError, SqlStore, StoreError, StoreOptions, Visitor};
use secrecy::SecretString;

use super::{EXIT_ANSWERED, EXIT_FAILED, EXIT_USAGE, show};
use crate::config::{ConfigError, Topology};
use crate::node::in_full;

/// The variable with the password of a Postgres store that `--store` names.
const PASSWORD_VARIABLE: &str = "CALLBOARD_STORE_PASSWORD";

/// Which store.
#[derive(Debug, clap::Args)]
pub(super) struct StoreArguments {
    /// The node's topology file (TOML or YAML).
    #[arg(long, value_name = "FILE", required_unless_present = "store", conflicts_with = "store")]
    topology: Option<PathBuf>,
    /// Where the node's agents keep their data. Without it, beside the file.
    #[arg(long, value_name = "DIR", requires = "topology")]
    state: Option<PathBuf>,
    /// The store itself, in place of a topology: sqlite:FILE or postgres://USER@HOST/DATABASE (its password in
    /// CALLBOARD_STORE_PASSWORD).
    #[arg(long, value_name = "URL")]
    store: Option<String>,
}

/// Why a command about a store failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoreFailure {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("{}", in_full(.0))]
    Store(#[from] StoreError),
    /// Nothing outlasts such a node.
    #[error("the node keeps in memory: there is no store to look into")]
    InMemory,
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Task(#[from] TaskError),
    /// Correct the file.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// Name another file.
    #[error("{}: {source}", .path.display())]
    File { path: PathBuf, source: std::io::Error },
    /// It can't be done, as things are.
    #[error("{0}")]
    Refused(String),
    #[error("failed to write to standard output: {0}")]
    Output(#[from] std::io::Error),
}

impl StoreFailure {
    fn is_usage(&self) -> bool {
        match self {
            Self::Config(_) | Self::InMemory | Self::Store(StoreError::Url(_)) => true,
            Self::Directory(error) => !matches!(error, DirectoryError::Journal(_)),
            _ => false,
        }
    }
}

impl StoreArguments {
    /// How the store is opened.
    ///
    /// # Errors
    /// The topology is none, or its store is none.
    pub(super) fn options(&self) -> Result<StoreOptions, StoreFailure> {
        if let Some(url) = &self.store {
            let password = std::env::var(PASSWORD_VARIABLE).ok().map(SecretString::from);
            return Ok(StoreOptions::parse(url, Path::new(""), password)?);
        }
        let file = self.topology.as_deref().unwrap_or(Path::new(""));
        let topology = Topology::read(file)?;
        let state = self.state.as_deref().or(file.parent()).unwrap_or(Path::new(""));
        let declared = topology.store.clone().unwrap_or_default();
        declared.options(&topology.name, state)?.ok_or(StoreFailure::InMemory)
    }

    /// A look into the store, also beside the node that has it open.
    ///
    /// # Errors
    /// There is none, or it can't be read.
    pub(super) async fn visit(&self) -> Result<Visitor, StoreFailure> {
        Ok(SqlStore::visit(&self.options()?).await?)
    }
}

/// Runs a command, and says how it ended.
pub(super) fn run<F: Future<Output = Result<(), StoreFailure>>>(command: F) -> u8 {
    match super::block_on(command).map_err(StoreFailure::Output).flatten() {
        Ok(()) => EXIT_ANSWERED,
        Err(error) => {
            show::complain(&error);
            if error.is_usage() { EXIT_USAGE } else { EXIT_FAILED }
        }
    }
}
