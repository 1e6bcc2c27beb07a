//! Small JSON by space and key: who is in the directory, what agents remember.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::time::SystemTime;

use async_trait::async_trait;
use callboard_message::RawObject;

use crate::journal::{JournalError, JournalResult};
use crate::sync::Mutex;

/// Largest body of a note, in bytes, by default.
pub const NOTE_BYTES_MAX_DEFAULT: usize = 64 * 1024;
/// Most notes of a space, by default.
pub const NOTES_MAX_DEFAULT: usize = 10_000;
/// Longest space or key, in bytes.
pub const NOTE_NAME_BYTES_MAX: usize = 256;

/// What stands under a key.
#[derive(Debug, Clone, PartialEq)]
pub struct Note {
    /// Its key in its space.
    pub key: String,
    /// How often it was put since it was new: from 1.
    pub version: u64,
    /// When it was put last.
    pub at: SystemTime,
    /// What was put.
    pub body: RawObject,
}

/// Why a note wasn't put.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoteError {
    /// Somebody put or removed it since: look at it again.
    #[error("the note has changed: its version is {version}")]
    Changed {
        /// Its version now; 0 where there is none.
        version: u64,
    },
    /// The store didn't do it.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// Where notes are kept. A space is, for example, `directory` or `memory/AGENT`.
#[async_trait]
pub trait Notes: Send + Sync + 'static {
    /// The note under a key.
    async fn get(&self, space: &str, key: &str) -> JournalResult<Option<Note>>;

    /// Puts a note in the place of what stands there, and answers its version. With `expected` only where that is the version
    /// that stands there; 0: where none does.
    ///
    /// # Errors
    /// [`NoteError::Changed`]; [`JournalError::TooLarge`]; [`JournalError::Full`] where its space has no room.
    async fn put(
        &self,
        space: &str,
        key: &str,
        body: RawObject,
        expected: Option<u64>,
    ) -> Result<u64, NoteError>;

    /// Removes a note, and answers whether there was one.
    async fn remove(&self, space: &str, key: &str) -> JournalResult<bool>;

    /// The first `notes_max` notes of a space whose key is after `after`, ordered by the bytes of their keys.
    async fn list(
        &self,
        space: &str,
        after: Option<&str>,
        notes_max: usize,
    ) -> JournalResult<Vec<Note>>;

    /// Removes all notes of a space, and answers how many there were.
    async fn clear(&self, space: &str) -> JournalResult<u64>;
}

/// Refuses names and bodies that no store takes.
///
/// # Errors
/// [`JournalError::Invalid`], [`JournalError::TooLarge`].
pub fn check_note(space: &str, key: &str, body: &RawObject) -> JournalResult<()> {
    let fits =
        |name: &str| !name.is_empty() && name.len() <= NOTE_NAME_BYTES_MAX && !name.contains('\0');
    if !fits(space) || !fits(key) {
        return Err(JournalError::Invalid(
            "a note's space or key is empty, too long, or has a NUL character",
        ));
    }
    let bytes = body.to_raw().get().len();
    match bytes > NOTE_BYTES_MAX_DEFAULT {
        true => Err(JournalError::TooLarge {
            bytes,
            bytes_max: NOTE_BYTES_MAX_DEFAULT,
        }),
        false => Ok(()),
    }
}

/// Notes that last as long as the process.
#[derive(Default)]
pub struct MemoryNotes {
    spaces: Mutex<HashMap<String, BTreeMap<String, Note>>>,
}

#[async_trait]
impl Notes for MemoryNotes {
    async fn get(&self, space: &str, key: &str) -> JournalResult<Option<Note>> {
        Ok(self
            .spaces
            .lock()
            .get(space)
            .and_then(|notes| notes.get(key).cloned()))
    }

    async fn put(
        &self,
        space: &str,
        key: &str,
        body: RawObject,
        expected: Option<u64>,
    ) -> Result<u64, NoteError> {
        check_note(space, key, &body)?;
        let mut spaces = self.spaces.lock();
        let notes = spaces.entry(space.to_owned()).or_default();
        let version = notes.get(key).map_or(0, |note| note.version);
        if expected.is_some_and(|expected| expected != version) {
            return Err(NoteError::Changed { version });
        }
        if version == 0 && notes.len() >= NOTES_MAX_DEFAULT {
            return Err(JournalError::Full {
                records_max: NOTES_MAX_DEFAULT,
            }
            .into());
        }
        let note = Note {
            key: key.to_owned(),
            version: version + 1,
            at: SystemTime::now(),
            body,
        };
        notes.insert(key.to_owned(), note);
        Ok(version + 1)
    }

    async fn remove(&self, space: &str, key: &str) -> JournalResult<bool> {
        Ok(self
            .spaces
            .lock()
            .get_mut(space)
            .is_some_and(|notes| notes.remove(key).is_some()))
    }

    async fn list(
        &self,
        space: &str,
        after: Option<&str>,
        notes_max: usize,
    ) -> JournalResult<Vec<Note>> {
        let spaces = self.spaces.lock();
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let found = spaces.get(space).map(|notes| {
            let range = notes.range::<str, _>((after, Bound::Unbounded));
            range
                .map(|(_, note)| note.clone())
                .take(notes_max)
                .collect()
        });
        Ok(found.unwrap_or_default())
    }

    async fn clear(&self, space: &str) -> JournalResult<u64> {
        Ok(self
            .spaces
            .lock()
            .remove(space)
            .map_or(0, |notes| notes.len() as u64))
    }
}
