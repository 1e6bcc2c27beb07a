//! `callboard keys`.

use std::io;
use std::path::PathBuf;

use callboard_rpc::{KeyEntry, KeyError, KeyStore};
use secrecy::ExposeSecret;

use super::{EXIT_ANSWERED, EXIT_FAILED, EXIT_USAGE, KeysAction, KeysArguments, show};
use crate::config::{ConfigError, Topology};

/// Why it didn't work.
#[derive(Debug, thiserror::Error)]
enum KeysError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// Say which.
    #[error("which key file? Say --keys FILE, or --topology FILE for one whose listeners name it")]
    NoFile,
    /// Say which.
    #[error("the listeners of the topology name several key files: say --keys FILE")]
    SeveralFiles,
    #[error("failed to write to standard output: {0}")]
    Output(#[from] io::Error),
}

impl KeysError {
    fn is_usage(&self) -> bool {
        !matches!(self, Self::Output(_) | Self::Keys(KeyError::Io { .. } | KeyError::Random))
    }
}

/// Does it, and says how it ended.
pub(super) fn run(arguments: &KeysArguments) -> u8 {
    match act(arguments) {
        Ok(()) => EXIT_ANSWERED,
        Err(error) => {
            show::complain(&error);
            if error.is_usage() { EXIT_USAGE } else { EXIT_FAILED }
        }
    }
}

fn act(arguments: &KeysArguments) -> Result<(), KeysError> {
    let file = file(arguments)?;
    match &arguments.action {
        KeysAction::Add { name, scope } => {
            let key = KeyStore::load_or_new(file)?.add(name, scope.clone())?;
            // The key alone on standard output, so that it can go straight to where it is kept.
            show::line(key.expose_secret())?;
            show::progress(&format!("this is the only time that the key of {name} is shown"));
        }
        KeysAction::List => {
            for key in KeyStore::load(file)?.list() {
                show::line(&described(key))?;
            }
        }
        KeysAction::Revoke { name } => {
            KeyStore::load(file)?.revoke(name)?;
            show::progress(&format!("the key of {name} counts no more"));
        }
    }
    Ok(())
}

fn described(key: &KeyEntry) -> String {
    let state = if key.is_revoked() { "revoked" } else { "valid" };
    let mut line = format!("{}\t{state}", key.name);
    for scope in &key.scopes {
        line.push('\t');
        line.push_str(scope);
    }
    line
}

fn file(arguments: &KeysArguments) -> Result<PathBuf, KeysError> {
    if let Some(file) = &arguments.keys {
        return Ok(file.clone());
    }
    let topology = Topology::read(arguments.topology.as_ref().ok_or(KeysError::NoFile)?)?;
    let mut named: Vec<_> = topology.listeners.into_iter().filter_map(|listener| listener.keys).collect();
    named.dedup();
    match (named.len(), named.pop()) {
        (1, Some(file)) => Ok(file),
        (0, _) => Err(KeysError::NoFile),
        _ => Err(KeysError::SeveralFiles),
    }
}
