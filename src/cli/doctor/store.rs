//! Checks of the store: its folder, the free space, and the store itself.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::time::Duration;

use callboard_store::{SqlStore, StoreError, StoreOptions};
use rustix::fs::statvfs;
use tokio::time::timeout;

use super::report::DoctorCheck;
use crate::config::{StoreDeclaration, Topology};
use crate::node::error_with_sources;

/// Maximum time to open and close the store. Then it counts as unusable. Fixed.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// Minimum free space of the file system with the store, in bytes. Less is a warning. Fixed.
const FREE_BYTES_MIN: u64 = 256 * MIB;
const MIB: u64 = 1024 * 1024;
/// Beginning of the place of a store in Postgres.
const POSTGRES_PREFIX: &str = "postgres://";

/// Checks the store of a node with the state directory `state`. Nothing is created or migrated.
pub(super) async fn check_store(topology: &Topology, state: &Path) -> Vec<DoctorCheck> {
    let declared: StoreDeclaration = topology.section().cloned().unwrap_or_default();
    let options = match declared.store_options(&topology.name, state) {
        Ok(Some(options)) => options,
        Ok(None) => {
            let found = "in memory: it ends with the node";
            return vec![DoctorCheck::ok("store", found)];
        }
        Err(error) => {
            let remedy = "correct `url` in [store]";
            return vec![DoctorCheck::error("store", error.to_string(), remedy)];
        }
    };
    let place = options.place();
    let mut checks = Vec::new();
    if !place.starts_with(POSTGRES_PREFIX) {
        let file = Path::new(&place);
        let folder = nearest_folder(file);
        if let Some(unwritable) = check_writable(file, &folder) {
            return vec![unwritable];
        }
        checks.push(check_free_space(&folder));
    }
    checks.push(check_open(&options).await);
    checks
}

/// Returns the folder in which a store would be made: its own, or the nearest one that exists.
fn nearest_folder(file: &Path) -> PathBuf {
    let above = file.ancestors().skip(1);
    let mut above = above.map(|folder| match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    });
    let found = above.find(|folder| folder.exists());
    found.unwrap_or(Path::new(".")).to_owned()
}

/// Returns an error if this user can't write the folder, or a store that is there.
fn check_writable(file: &Path, folder: &Path) -> Option<DoctorCheck> {
    // The probe has no name, so nothing remains of it.
    if let Err(error) = tempfile::tempfile_in(folder) {
        return Some(DoctorCheck::error(
            "store",
            format!(
                "the folder {} can't be written to: {}",
                folder.display(),
                error.kind()
            ),
            "give it to the user of the node, or name another one: `url` in [store], or --state DIR",
        ));
    }
    if !file.exists() {
        return None;
    }
    let opened = OpenOptions::new().read(true).write(true).open(file);
    let error = opened.err()?;
    Some(DoctorCheck::error(
        "store",
        format!("{} can't be written: {}", file.display(), error.kind()),
        "give the file to the user of the node, or name another one: `url` in [store]",
    ))
}

fn check_free_space(folder: &Path) -> DoctorCheck {
    let subject = "free space";
    let place = folder.display();
    let free = match statvfs(folder) {
        Ok(about) => about.f_bavail.saturating_mul(about.f_frsize),
        Err(error) => {
            let found = format!("unknown for {place}: {error}");
            return DoctorCheck::warning(subject, found, "look at its file system");
        }
    };
    let found = format!("{} MiB for {place}", free / MIB);
    match free < FREE_BYTES_MIN {
        true => DoctorCheck::warning(
            subject,
            found,
            format!(
                "make room: {} MiB should be free, and a full disk stops all writes",
                FREE_BYTES_MIN / MIB
            ),
        ),
        false => DoctorCheck::ok(subject, found),
    }
}

async fn check_open(options: &StoreOptions) -> DoctorCheck {
    let subject = format!("store {}", options.place());
    let opened = async {
        let store = SqlStore::open_read_only(options).await?;
        store.close().await;
        Ok::<(), StoreError>(())
    };
    match timeout(OPEN_TIMEOUT, opened).await {
        Ok(Ok(())) => DoctorCheck::ok(subject, "opens, and has the schema of this version"),
        Ok(Err(error)) => unopened_store(subject, &error),
        Err(_) => DoctorCheck::error(
            subject,
            format!("didn't open within {} s", OPEN_TIMEOUT.as_secs()),
            "look at the load of its database or disk",
        ),
    }
}

/// Returns the result for a store that wasn't opened. One that is missing, or older, is made or migrated by the next start.
fn unopened_store(subject: String, error: &StoreError) -> DoctorCheck {
    let schemas = |found: &i64, known: &i64| {
        format!("has schema {found}, and this callboard has schema {known}")
    };
    match error {
        StoreError::Missing { .. } => {
            DoctorCheck::ok(subject, "isn't there yet: the first start makes it")
        }
        StoreError::OlderSchema { found, known, .. } => DoctorCheck::warning(
            subject,
            schemas(found, known),
            "copy its files, then start the node, which migrates it",
        ),
        StoreError::NewerSchema { found, known, .. } => DoctorCheck::error(
            subject,
            schemas(found, known),
            "run the newer version of callboard, or restore a backup",
        ),
        StoreError::NotAStore { .. } => DoctorCheck::error(
            subject,
            "isn't a store of callboard",
            "name another file: `url` in [store]",
        ),
        StoreError::Damaged { .. } => DoctorCheck::error(
            subject,
            "is damaged",
            "restore a backup, and keep the file for analysis",
        ),
        error => DoctorCheck::error(
            subject,
            error_with_sources(error),
            "look at the database that [store] names, and at the rights of this user",
        ),
    }
}
