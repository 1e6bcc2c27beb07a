//! `callboard keys`.

use std::path::PathBuf;

use callboard_rpc::{KeyEntry, KeyOptions, KeyStore, format_expiry, parse_expiry};
use secrecy::{ExposeSecret, SecretString};

use super::output::RowPrinter;
use super::{CommandError, CommandResult, EXIT_ANSWERED, KeysAction, KeysArguments, output};
use crate::config::Topology;

/// Columns of the list.
const KEY_COLUMNS: &str = "NAME\tSTATE\tSCOPES";

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
        KeysAction::Add {
            name,
            scope,
            patient,
            expires,
        } => {
            let options = KeyOptions {
                expires_unix_s: expires,
                patient,
            };
            let key = KeyStore::load_or_new(file)?.add_with(&name, scope, options)?;
            print_key(&key, &name)?;
        }
        KeysAction::Rotate {
            name,
            new_name,
            until,
            expires,
        } => {
            let key = KeyStore::load(file)?.rotate(&name, &new_name, until, expires)?;
            print_key(&key, &new_name)?;
        }
        KeysAction::List => {
            let keys = KeyStore::load(file)?;
            let rows = RowPrinter::with_heading(false, KEY_COLUMNS)?;
            for key in keys.list() {
                rows.print_row(&key.name, || key_row(key))?;
            }
        }
        KeysAction::Revoke { name } => {
            KeyStore::load(file)?.revoke(&name)?;
            output::print_progress(format_args!("revoked the key {name}"));
        }
    }
    Ok(EXIT_ANSWERED)
}

/// Parses the time at which a key expires.
pub(super) fn parse_when(text: &str) -> Result<u64, String> {
    parse_expiry(text).ok_or_else(|| {
        "write a date such as 2026-12-31, or a timestamp such as 2026-12-31T12:00:00Z".to_owned()
    })
}

fn print_key(key: &SecretString, name: &str) -> std::io::Result<()> {
    // The key alone on standard output, so that it can go straight to where it is kept.
    output::print_line(key.expose_secret())?;
    output::print_progress(format_args!(
        "store the key of {name} now: it can't be shown again"
    ));
    Ok(())
}

fn key_row(key: &KeyEntry) -> String {
    let mut state = match (key.is_revoked(), key.is_expired()) {
        (true, _) => "revoked".to_owned(),
        (false, true) => "expired".to_owned(),
        (false, false) => "valid".to_owned(),
    };
    if let Some(at) = key.expires_unix_s.filter(|_| state == "valid") {
        state = format!("{state} until {}", format_expiry(at));
    }
    if let Some(principal) = &key.principal {
        state = format!("{state} as {principal}");
    }
    if let Some(patient) = &key.patient {
        state = format!("{state} for patient {patient}");
    }
    [&*key.name, &state]
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
