//! Export and import of the agent directory as a file: `{"version": 1, "agents": {ID: {…}}}`. The
//! JSON of each agent is kept unchanged.

use std::collections::BTreeMap;
use std::fmt::Display;

use callboard_message::{RawObject, encode_hex};
use callboard_runtime::{JournalError, JournalResult, KvEntry, KvError, KvStore};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::backend::PAGE_ROWS_MAX;

/// Key-value space of the agent directory; keys are agent ids.
pub const DIRECTORY_SPACE: &str = "directory";
/// Key-value space of the SHA-256 hashes of imported files.
const IMPORTED_SPACE: &str = "directory/imported";
/// Maximum size of a directory file, in bytes. A larger file fails with
/// [`DirectoryError::NotADirectory`].
pub const DIRECTORY_FILE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Version of the directory file's format that is read and written.
const FORMAT_VERSION: u64 = 1;

/// Error of a directory import. Agents listed before the one at fault may have been imported;
/// repeat the import with a corrected file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// The text isn't a directory of agents; holds the reason in one sentence.
    #[error("the file isn't a directory of agents (`{{\"version\": 1, \"agents\": {{…}}}}`): {0}")]
    NotADirectory(String),
    /// The file has another format version. Export it again as version 1.
    #[error(
        "the directory file has version {found}, but this callboard reads only {FORMAT_VERSION}: export it again"
    )]
    OtherVersion {
        /// Format version of the file.
        found: u64,
    },
    /// An agent was rejected by the store, for example as too large.
    #[error("agent {id}: {source}")]
    Agent {
        /// Agent id.
        id: String,
        /// Reason of the rejection.
        source: JournalError,
    },
    /// The store failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// Number of agents that an import added, changed and left unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ImportSummary {
    /// Number of agents added.
    pub new: usize,
    /// Number of agents replaced, because their stored JSON differed.
    pub changed: usize,
    /// Number of agents left unchanged, because their stored JSON was the same.
    pub same: usize,
}

/// Returns the agent directory as JSON text: `{"version": 1, "agents": {ID: {…}}}`.
///
/// # Errors
/// Errors of the store.
pub async fn export_directory(notes: &dyn KvStore) -> JournalResult<String> {
    let mut agents = BTreeMap::new();
    let mut after: Option<String> = None;
    loop {
        let page = notes
            .list(DIRECTORY_SPACE, after.as_deref(), PAGE_ROWS_MAX)
            .await?;
        let Some(last) = page.last() else { break };
        after = Some(last.key.clone());
        agents.extend(
            page.into_iter()
                .map(|KvEntry { key, body, .. }| (key, body)),
        );
    }
    let file = RawObject::single("version", FORMAT_VERSION).with("agents", agents);
    Ok(file.to_raw().get().to_owned())
}

/// Imports each agent of a directory file's text. Other agents in the directory stay.
///
/// # Errors
/// [`DirectoryError::NotADirectory`] and [`DirectoryError::OtherVersion`] before anything is
/// written; [`DirectoryError::Agent`] for an agent that the store rejects;
/// [`DirectoryError::Journal`] for errors of the store.
pub async fn import_directory(
    notes: &dyn KvStore,
    text: &str,
) -> Result<ImportSummary, DirectoryError> {
    let agents = parse_agents(text)?;
    let mut imported = ImportSummary::default();
    for (id, body) in agents {
        let there = notes.get(DIRECTORY_SPACE, &id).await?;
        match there {
            Some(there) if there.body == body => {
                imported.same += 1;
                continue;
            }
            Some(_) => imported.changed += 1,
            None => imported.new += 1,
        }
        notes
            .put(DIRECTORY_SPACE, &id, body, None)
            .await
            .map_err(|error| match error {
                KvError::Journal(
                    source @ (JournalError::Invalid(_) | JournalError::TooLarge { .. }),
                ) => DirectoryError::Agent { id, source },
                KvError::Journal(error) => error.into(),
                other => JournalError::Store(other.to_string()).into(),
            })?;
    }
    Ok(imported)
}

/// Imports a directory file as [`import_directory`] does, unless the same text was imported before:
/// then returns `None`.
///
/// # Errors
/// Those of [`import_directory`].
pub async fn import_directory_once(
    notes: &dyn KvStore,
    text: &str,
) -> Result<Option<ImportSummary>, DirectoryError> {
    let hash = encode_hex(&Sha256::digest(text));
    if notes.get(IMPORTED_SPACE, &hash).await?.is_some() {
        return Ok(None);
    }
    let imported = import_directory(notes, text).await?;
    let said = RawObject::single("new", imported.new).with("changed", imported.changed);
    match notes.put(IMPORTED_SPACE, &hash, said, None).await {
        Err(KvError::Journal(error)) => Err(error.into()),
        _ => Ok(Some(imported)),
    }
}

fn parse_agents(text: &str) -> Result<Vec<(String, RawObject)>, DirectoryError> {
    let no = |why: &dyn Display| DirectoryError::NotADirectory(why.to_string());
    if text.len() > DIRECTORY_FILE_BYTES_MAX {
        return Err(no(&format_args!(
            "it has more than {DIRECTORY_FILE_BYTES_MAX} bytes"
        )));
    }
    // Serde's messages name the position and don't quote the file.
    let file: RawObject = serde_json::from_str(text).map_err(|error| no(&error))?;
    match file
        .get("version")
        .map(RawValue::get)
        .map(str::parse::<u64>)
    {
        None | Some(Ok(FORMAT_VERSION)) => {}
        Some(Ok(found)) => return Err(DirectoryError::OtherVersion { found }),
        Some(Err(_)) => return Err(no(&"`version` isn't a whole number")),
    }
    let agents = file
        .get("agents")
        .ok_or_else(|| no(&"`agents` is missing"))?;
    let agents =
        RawObject::parse(agents).map_err(|error| no(&format_args!("`agents`: {error}")))?;
    let read = |(id, body): (&str, &RawValue)| match RawObject::parse(body) {
        Ok(body) => Ok((id.to_owned(), body)),
        Err(error) => Err(no(&format_args!("agent {id:?}: {error}"))),
    };
    agents.iter().map(read).collect()
}
