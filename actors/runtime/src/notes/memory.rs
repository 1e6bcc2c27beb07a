use std::collections::{BTreeMap, HashMap};
use std::future::ready;
use std::ops::Bound;
use std::time::SystemTime;

use callboard_message::RawObject;
use futures::future::BoxFuture;

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

impl Notes for MemoryNotes {
    fn get<'a>(&'a self, space: &'a str, key: &'a str) -> BoxFuture<'a, Result<Option<Note>, JournalError>> {
        let found = self.spaces.lock().get(space).and_then(|notes| notes.get(key).cloned());
        Box::pin(ready(Ok(found)))
    }

    fn put<'a>(
        &'a self,
        space: &'a str,
        key: &'a str,
        body: RawObject,
        expected: Option<u64>,
    ) -> BoxFuture<'a, Result<u64, NoteError>> {
        Box::pin(ready(self.keep(space, key, body, expected)))
    }

    fn remove<'a>(&'a self, space: &'a str, key: &'a str) -> BoxFuture<'a, Result<bool, JournalError>> {
        let removed = self.spaces.lock().get_mut(space).and_then(|notes| notes.remove(key));
        Box::pin(ready(Ok(removed.is_some())))
    }

    fn list<'a>(
        &'a self,
        space: &'a str,
        after: Option<&'a str>,
        notes_max: usize,
    ) -> BoxFuture<'a, Result<Vec<Note>, JournalError>> {
        let spaces = self.spaces.lock();
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let found = spaces.get(space).map(|notes| {
            let range = notes.range::<str, _>((after, Bound::Unbounded));
            range.map(|(_, note)| note.clone()).take(notes_max).collect()
        });
        Box::pin(ready(Ok(found.unwrap_or_default())))
    }

    fn clear<'a>(&'a self, space: &'a str) -> BoxFuture<'a, Result<u64, JournalError>> {
        let cleared = self.spaces.lock().remove(space).map_or(0, |notes| notes.len());
        Box::pin(ready(Ok(cleared as u64)))
    }
}
