//! Checks of key files: API keys of listeners and console, and private keys.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use callboard_a2a::card::CardSigningKey;
use callboard_rpc::{KeyEntry, KeyError, KeyStore};
use secrecy::SecretString;

use super::report::DoctorCheck;
use crate::cli::connect::file::read_text;
use crate::config::{ConsoleDeclaration, Topology};

/// Maximum size of a file with a signing key, in bytes. A larger one is an error. Fixed.
const SIGNING_KEY_BYTES_MAX: u64 = 1024 * 1024;
/// Permission bit of a file that every user of the machine may read.
const WORLD_READABLE: u32 = 0o004;

/// Checks each key file that a listener or the console names.
pub(super) fn check_key_files(topology: &Topology) -> Vec<DoctorCheck> {
    let console: Option<&ConsoleDeclaration> = topology.section();
    let listeners = topology.listeners.iter();
    let listeners = listeners.filter_map(|listener| listener.keys.as_deref());
    let console = console.and_then(|console| console.keys.as_deref());
    let mut files: Vec<&Path> = listeners.chain(console).collect();
    files.sort_unstable();
    files.dedup();
    let signing = topology.listeners.iter();
    let signing = signing.filter_map(|listener| listener.signing_key.as_deref());
    files
        .into_iter()
        .map(check_api_keys)
        .chain(signing.map(check_signing_key))
        .collect()
}

fn check_api_keys(file: &Path) -> DoctorCheck {
    let path = file.display();
    let subject = format!("keys {path}");
    let add = format!("`callboard keys --keys {path} add NAME` makes a key");
    let store = match KeyStore::load(file) {
        Ok(store) => store,
        Err(error) => return unusable_keys(subject, &error, &add),
    };
    let is_valid = |key: &&KeyEntry| !key.is_revoked() && !key.is_expired();
    let valid = store.list().iter().filter(is_valid).count();
    if valid == 0 {
        let found = "none of its keys is valid, so that every request with a key is refused";
        return DoctorCheck::error(subject, found, add);
    }
    if is_world_readable(file) {
        let found = "every user of this machine may read it: names, scopes and hashes of the keys";
        return DoctorCheck::warning(subject, found, format!("run `chmod 600 {path}`"));
    }
    DoctorCheck::ok(subject, format!("valid keys: {valid}"))
}

fn unusable_keys(subject: String, error: &KeyError, add: &str) -> DoctorCheck {
    match error {
        KeyError::Io { source, .. } if source.kind() == ErrorKind::NotFound => {
            DoctorCheck::error(subject, "there is no such file", add)
        }
        KeyError::Io { source, .. } => {
            let found = format!("it can't be read: {}", source.kind());
            DoctorCheck::error(subject, found, "give the file to the user of the node")
        }
        KeyError::Writable { path } => DoctorCheck::error(
            subject,
            "other users may write it",
            format!("run `chmod 600 {}`", path.display()),
        ),
        error => DoctorCheck::error(
            subject,
            error.to_string(),
            format!("restore it from a backup, or move it away: {add}"),
        ),
    }
}

fn check_signing_key(file: &Path) -> DoctorCheck {
    let subject = format!("signing key {}", file.display());
    let text = match read_text(file, SIGNING_KEY_BYTES_MAX) {
        Ok(text) => SecretString::from(text),
        Err(error) => {
            let found = format!("it can't be read: {}", error.kind());
            let remedy = "write the path of a private key in `signing_key`, as PKCS#8 in PEM";
            return DoctorCheck::error(subject, found, remedy);
        }
    };
    if let Err(error) = CardSigningKey::from_pem(&text) {
        let remedy = "make a key of P-256 or Ed25519, as PKCS#8 in PEM";
        return DoctorCheck::error(subject, error.to_string(), remedy);
    }
    let is_readable = check_private_key(&subject, file);
    is_readable.unwrap_or_else(|| DoctorCheck::ok(subject, "it can be used"))
}

/// Returns an error if every user of the machine may read a private key.
pub(super) fn check_private_key(subject: &str, file: &Path) -> Option<DoctorCheck> {
    is_world_readable(file).then(|| {
        let path = file.display();
        DoctorCheck::error(
            subject,
            format!("every user of this machine may read the private key {path}"),
            format!("run `chmod 600 {path}`; if others use this machine, make a new key"),
        )
    })
}

fn is_world_readable(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|about| about.permissions().mode() & WORLD_READABLE != 0)
}
