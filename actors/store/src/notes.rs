//! Notes: small JSON by space and key.

use std::sync::Arc;

use callboard_message::RawObject;
use callboard_runtime::{JournalError, NOTES_MAX_DEFAULT, Note, NoteError, Notes, check_note, storable};
use futures::future::BoxFuture;

use crate::clock::time;
use crate::error::journal_error;
use crate::open::{Core, SqlStore, Visitor};
use crate::readers::PAGE_MAX;
use crate::sql::Row;
use crate::writer::{Tx, Write};

impl SqlStore {
    /// Its notes.
    pub fn notes(&self) -> Arc<dyn Notes> {
        Arc::new(SqlNotes { core: Arc::clone(&self.core) })
    }
}

impl Visitor {
    /// Its notes: to look at, and to put one in.
    pub fn notes(&self) -> Arc<dyn Notes> {
        Arc::new(SqlNotes { core: Arc::clone(&self.core) })
    }
}

/// The notes of an open store.
struct SqlNotes {
    core: Arc<Core>,
}

impl Notes for SqlNotes {
    fn get<'a>(&'a self, space: &'a str, key: &'a str) -> BoxFuture<'a, Result<Option<Note>, JournalError>> {
        Box::pin(async move {
            [space, key].into_iter().try_for_each(storable)?;
            let sql = "SELECT key, version, at_ms, body FROM note WHERE space = $1 AND key = $2";
            let rows = self.core.readers.rows(sql, &[space.into(), key.into()]).await?;
            rows.first().map(note).transpose()
        })
    }

    fn put<'a>(
        &'a self,
        space: &'a str,
        key: &'a str,
        body: RawObject,
        expected: Option<u64>,
    ) -> BoxFuture<'a, Result<u64, NoteError>> {
        Box::pin(async move {
            check_note(space, key, &body)?;
            let (space, key) = (space.to_owned(), key.to_owned());
            let body = body.to_raw().get().to_owned();
            self.core.writer.submit(Put { space, key, body, expected }).await?
        })
    }

    fn remove<'a>(&'a self, space: &'a str, key: &'a str) -> BoxFuture<'a, Result<bool, JournalError>> {
        Box::pin(async move {
            [space, key].into_iter().try_for_each(storable)?;
            let remove = Remove { space: space.to_owned(), key: Some(key.to_owned()) };
            Ok(self.core.writer.submit(remove).await? > 0)
        })
    }

    fn list<'a>(
        &'a self,
        space: &'a str,
        after: Option<&'a str>,
        notes_max: usize,
    ) -> BoxFuture<'a, Result<Vec<Note>, JournalError>> {
        Box::pin(async move {
            [space, after.unwrap_or_default()].into_iter().try_for_each(storable)?;
            let notes_max = i64::try_from(notes_max.min(PAGE_MAX)).unwrap_or(i64::MAX);
            // No key is empty: the empty text is before all of them.
            let sql = "SELECT key, version, at_ms, body FROM note WHERE space = $1 AND key > $2 ORDER BY key LIMIT $3";
            let args = [space.into(), after.unwrap_or_default().into(), notes_max.into()];
            self.core.readers.rows(sql, &args).await?.iter().map(note).collect()
        })
    }

    fn clear<'a>(&'a self, space: &'a str) -> BoxFuture<'a, Result<u64, JournalError>> {
        Box::pin(async move {
            storable(space)?;
            self.core.writer.submit(Remove { space: space.to_owned(), key: None }).await
        })
    }
}

fn note(row: &Row) -> Result<Note, JournalError> {
    let told = |e| journal_error(&e);
    let key = row.text(0).map_err(told)?.to_owned();
    let body = serde_json::from_str(row.text(3).map_err(told)?)
        .map_err(|_| JournalError::Damaged("a note is no JSON object".to_owned()))?;
    Ok(Note { key, version: row.count(1).map_err(told)?, at: time(row.int(2).map_err(told)?), body })
}

struct Put {
    space: String,
    key: String,
    body: String,
    expected: Option<u64>,
}

impl Put {
    async fn put(&self, tx: &mut Tx) -> Result<Result<u64, NoteError>, sqlx::Error> {
        const VERSION: &str = "SELECT version FROM note WHERE space = $1 AND key = $2";
        const COUNT: &str = "SELECT count(*) FROM note WHERE space = $1";
        const NEW: &str = "INSERT INTO note (space, key, version, at_ms, body) VALUES ($1, $2, 1, $3, $4) \
                           ON CONFLICT (space, key) DO NOTHING RETURNING version";
        const NEXT: &str = "UPDATE note SET version = version + 1, at_ms = $3, body = $4 \
                            WHERE space = $1 AND key = $2 AND version = $5 RETURNING version";
        const EITHER: &str = "INSERT INTO note (space, key, version, at_ms, body) VALUES ($1, $2, 1, $3, $4) \
                              ON CONFLICT (space, key) DO UPDATE SET version = note.version + 1, \
                              at_ms = excluded.at_ms, body = excluded.body RETURNING version";
        let now = tx.now_ms();
        let there = tx.db().number(VERSION, &[(&self.space).into(), (&self.key).into()]).await?;
        let changed = |there: i64| NoteError::Changed { version: there.unsigned_abs() };
        if self.expected.is_some_and(|expected| expected != there.unsigned_abs()) {
            return Ok(Err(changed(there)));
        }
        let full = JournalError::Full { records_max: NOTES_MAX_DEFAULT };
        if there == 0 && tx.db().number(COUNT, &[(&self.space).into()]).await? >= NOTES_MAX_DEFAULT as i64 {
            return Ok(Err(full.into()));
        }
        let args = [(&self.space).into(), (&self.key).into(), now.into(), (&self.body).into(), there.into()];
        let version = match (self.expected, there) {
            (None, _) => tx.db().number(EITHER, &args[..4]).await?,
            (Some(_), 0) => tx.db().number(NEW, &args[..4]).await?,
            (Some(_), _) => tx.db().number(NEXT, &args).await?,
        };
        if version > 0 {
            return Ok(Ok(version.unsigned_abs()));
        }
        // Another node was faster.
        let there = tx.db().number(VERSION, &[(&self.space).into(), (&self.key).into()]).await?;
        Ok(Err(changed(there)))
    }
}

impl Write for Put {
    type Output = Result<u64, NoteError>;
    const NAME: &'static str = "note.put";

    fn bytes(&self) -> usize {
        self.space.len() + self.key.len() + self.body.len()
    }

    fn run<'a>(&'a mut self, tx: &'a mut Tx) -> BoxFuture<'a, Result<Self::Output, sqlx::Error>> {
        Box::pin(self.put(tx))
    }
}

/// Removes a note, or a whole space.
struct Remove {
    space: String,
    key: Option<String>,
}

impl Write for Remove {
    type Output = u64;
    const NAME: &'static str = "note.remove";
    const MAKES_ROOM: bool = true;

    fn bytes(&self) -> usize {
        self.space.len()
    }

    fn run<'a>(&'a mut self, tx: &'a mut Tx) -> BoxFuture<'a, Result<u64, sqlx::Error>> {
        Box::pin(async move {
            match &self.key {
                Some(key) => {
                    let sql = "DELETE FROM note WHERE space = $1 AND key = $2";
                    tx.db().execute(sql, &[(&self.space).into(), key.into()]).await
                }
                None => tx.db().execute("DELETE FROM note WHERE space = $1", &[(&self.space).into()]).await,
            }
        })
    }
}
