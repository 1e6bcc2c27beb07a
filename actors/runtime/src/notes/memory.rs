use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::time::SystemTime;

use async_trait::async_trait;
use callboard_message::RawObject;

use super::{NOTES_MAX_DEFAULT, Note, NoteError, Notes, check_note};
use crate::journal::JournalError;
use crate::sync::Mutex;

/// Notes that last as long as the process.
#[derive(Default)]
pub struct MemoryNotes {
    spaces: Mutex<HashMap<String, BTreeMap<String, Note>>>,
}

impl MemoryNotes {
    fn keep(&self, space: &str, key: &str, body: RawObject, expected: Option<u64>) -> Result<u64, NoteError> {
        check_note(space, key, &body)?;
        let mut spaces = self.spaces.lock();
        let notes = spaces.entry(space.to_owned()).or_default();
        let version = notes.get(key).map_or(0, |note| note.version);
        if expected.is_some_and(|expected| expected != version) {
            return Err(NoteError::Changed { version });
        }
        if version == 0 && notes.len() >= NOTES_MAX_DEFAULT {
            return Err(JournalError::Full { records_max: NOTES_MAX_DEFAULT }.into());
        }
        let note = Note { key: key.to_owned(), version: version + 1, at: SystemTime::now(), body };
        notes.insert(key.to_owned(), note);
        Ok(version + 1)
    }
}

#[async_trait]
impl Notes for MemoryNotes {
    async fn get(&self, space: &str, key: &str) -> Result<Option<Note>, JournalError> {
        Ok(self.spaces.lock().get(space).and_then(|notes| notes.get(key).cloned()))
    }

    async fn put(&self, space: &str, key: &str, body: RawObject, expected: Option<u64>) -> Result<u64, NoteError> {
        self.keep(space, key, body, expected)
    }

    async fn remove(&self, space: &str, key: &str) -> Result<bool, JournalError> {
        Ok(self.spaces.lock().get_mut(space).is_some_and(|notes| notes.remove(key).is_some()))
    }

    async fn list(&self, space: &str, after: Option<&str>, notes_max: usize) -> Result<Vec<Note>, JournalError> {
        let spaces = self.spaces.lock();
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let found = spaces.get(space).map(|notes| {
            let range = notes.range::<str, _>((after, Bound::Unbounded));
            range.map(|(_, note)| note.clone()).take(notes_max).collect()
        });
        Ok(found.unwrap_or_default())
    }

    async fn clear(&self, space: &str) -> Result<u64, JournalError> {
        Ok(self.spaces.lock().remove(space).map_or(0, |notes| notes.len() as u64))
    }
}
