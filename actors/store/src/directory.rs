//! The directory of agents as a file: `{"version": 1, "agents": {ID: {…}}}`. What is said of an agent stays as it came.

use std::collections::BTreeMap;
use std::fmt::Display;

use callboard_message::{RawObject, hex};
use callboard_runtime::{JournalError, JournalResult, Note, NoteError, Notes};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::place::PAGE_MAX;

/// The space of notes that the directory is kept in: an agent's id is its key.
pub const DIRECTORY_SPACE: &str = "directory";
/// Which files were imported, by their hash.
const IMPORTED_SPACE: &str = "directory/imported";
/// Largest file, in bytes.
/// At the limit: `NotADirectory`.
pub const DIRECTORY_FILE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// What is read and written.
const VERSION: u64 = 1;

/// Why a directory's file wasn't imported. Agents before the one at fault may have been: repeat it with a good file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// It is no directory. What is wrong, in one sentence.
    #[error("it is no directory of agents: {0}")]
    NotADirectory(String),
    /// Another version wrote it: export it anew with version 1.
    #[error("the directory has version {found}; this callboard knows {VERSION}")]
    OtherVersion {
        /// What it says.
        found: u64,
    },
    /// An agent can't be kept.
    #[error("agent {id}: {source}")]
    Agent {
        /// Which.
        id: String,
        /// Why.
        source: JournalError,
    },
    /// The store didn't do it.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// What an import did, in agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Imported {
    /// That weren't there.
    pub new: usize,
    /// Of which something else was said.
    pub changed: usize,
    /// Of which the same was said.
    pub same: usize,
}

/// The directory as a file's text.
///
/// # Errors
/// The store's.
pub async fn export_directory(notes: &dyn Notes) -> JournalResult<String> {
    let mut agents = BTreeMap::new();
    let mut after: Option<String> = None;
    loop {
        let page = notes
            .list(DIRECTORY_SPACE, after.as_deref(), PAGE_MAX)
            .await?;
        let Some(last) = page.last() else { break };
        after = Some(last.key.clone());
        agents.extend(page.into_iter().map(|Note { key, body, .. }| (key, body)));
    }
    let file = RawObject::of("version", VERSION).with("agents", agents);
    Ok(file.to_raw().get().to_owned())
}

/// Puts each agent of a file's text into the directory. Others that are there stay.
///
/// # Errors
/// Where the text is no directory, then nothing was put; where an agent can't be kept; the store's.
pub async fn import_directory(notes: &dyn Notes, text: &str) -> Result<Imported, DirectoryError> {
    let agents = agents(text)?;
    let mut imported = Imported::default();
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
                NoteError::Journal(
                    source @ (JournalError::Invalid(_) | JournalError::TooLarge { .. }),
                ) => DirectoryError::Agent { id, source },
                NoteError::Journal(error) => error.into(),
                other => JournalError::Store(other.to_string()).into(),
            })?;
    }
    Ok(imported)
}

/// As [`import_directory`], unless the same text was imported so before: `None`.
///
/// # Errors
/// As [`import_directory`].
pub async fn import_directory_once(
    notes: &dyn Notes,
    text: &str,
) -> Result<Option<Imported>, DirectoryError> {
    let hash = hex(&Sha256::digest(text));
    if notes.get(IMPORTED_SPACE, &hash).await?.is_some() {
        return Ok(None);
    }
    let imported = import_directory(notes, text).await?;
    let said = RawObject::of("new", imported.new).with("changed", imported.changed);
    match notes.put(IMPORTED_SPACE, &hash, said, None).await {
        Err(NoteError::Journal(error)) => Err(error.into()),
        _ => Ok(Some(imported)),
    }
}

fn agents(text: &str) -> Result<Vec<(String, RawObject)>, DirectoryError> {
    let no = |why: &dyn Display| DirectoryError::NotADirectory(why.to_string());
    if text.len() > DIRECTORY_FILE_BYTES_MAX {
        return Err(no(&format_args!(
            "it has more than {DIRECTORY_FILE_BYTES_MAX} bytes"
        )));
    }
    // Their messages say where, and quote nothing.
    let file: RawObject = serde_json::from_str(text).map_err(|error| no(&error))?;
    match file
        .get("version")
        .map(RawValue::get)
        .map(str::parse::<u64>)
    {
        None | Some(Ok(VERSION)) => {}
        Some(Ok(found)) => return Err(DirectoryError::OtherVersion { found }),
        Some(Err(_)) => return Err(no(&"`version` is no number")),
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
