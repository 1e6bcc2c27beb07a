//! `callboard keys`.

use std::path::PathBuf;

use callboard_rpc::{KeyEntry, KeyStore};
use secrecy::ExposeSecret;

use super::{CommandError, CommandResult, EXIT_ANSWERED, KeysAction, KeysArguments, output};
use crate::config::Topology;

/// Runs `callboard keys`.
pub(super) fn run(
    KeysArguments {
        keys,
        topology,
        action,
    }: KeysArguments,
) -> CommandResult {
    let file = keys.map_or_else(|| key_file(topology), Ok)?;
    match action {
        KeysAction::Add { name, scope } => {
            let key = KeyStore::load_or_new(file)?.add(&name, scope)?;
            // The key alone on standard output, so that it can go straight to where it is kept.
            output::print_line(key.expose_secret())?;
            output::print_progress(format_args!(
                "store the key of {name} now: it can't be shown again"
            ));
        }
        KeysAction::List => {
            for key in KeyStore::load(file)?.list() {
                output::print_line(key_row(key))?;
            }
        }
        KeysAction::Revoke { name } => {
            KeyStore::load(file)?.revoke(&name)?;
            output::print_progress(format_args!("revoked the key {name}"));
        }
    }
    Ok(EXIT_ANSWERED)
}

fn key_row(key: &KeyEntry) -> String {
    let state = if key.is_revoked() { "revoked" } else { "valid" };
    [&*key.name, state]
        .into_iter()
        .chain(key.scopes.iter().map(String::as_str))
        .collect::<Vec<_>>()
        .join("	")
}

/// Returns the key file that the listeners of a topology file use.
///
/// # Errors
/// Usage error without a topology file, or if its listeners name no key file or several.
fn key_file(topology: Option<PathBuf>) -> Result<PathBuf, CommandError> {
    let none =
        "the key file is missing: add --keys FILE, or --topology FILE with listeners that name one";
    let topology = Topology::read(&topology.ok_or_else(|| CommandError::usage(none))?)?;
    let mut named: Vec<_> = topology
        .listeners
        .into_iter()
        .filter_map(|listener| listener.keys)
        .collect();
    named.dedup();
    match (named.len(), named.pop()) {
        (1, Some(file)) => Ok(file),
        (0, _) => Err(CommandError::usage(none)),
        _ => Err(CommandError::usage(
            "the listeners of the topology name several key files: choose one by --keys FILE",
        )),
    }
}
