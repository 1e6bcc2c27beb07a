//! Notes: small JSON by space and key.

use async_trait::async_trait;
use callboard_message::RawObject;
use callboard_runtime::{
    JournalError, JournalResult, NOTES_MAX_DEFAULT, Note, NoteError, Notes, check_note, storable,
};

use crate::parts::Core;
use crate::place::PAGE_MAX;
use crate::sql::{Row, Sql, args};
use crate::tx::{Tx, Write};

#[async_trait]
impl Notes for Core {
    async fn get(&self, space: &str, key: &str) -> JournalResult<Option<Note>> {
        [space, key].into_iter().try_for_each(storable)?;
        let sql = "SELECT key, version, at_ms, body FROM note WHERE space = $1 AND key = $2";
        Ok(self
            .readers
            .read(sql, &args![space, key], note)
            .await?
            .pop())
    }

    async fn put(
        &self,
        space: &str,
        key: &str,
        body: RawObject,
        expected: Option<u64>,
    ) -> Result<u64, NoteError> {
        check_note(space, key, &body)?;
        let (space, key) = (space.to_owned(), key.to_owned());
        let body = body.to_raw().get().to_owned();
        self.writer
            .submit(Put {
                space,
                key,
                body,
                expected,
            })
            .await?
    }

    async fn remove(&self, space: &str, key: &str) -> JournalResult<bool> {
        [space, key].into_iter().try_for_each(storable)?;
        let remove = Remove {
            space: space.to_owned(),
            key: Some(key.to_owned()),
        };
        Ok(self.writer.submit(remove).await? > 0)
    }

    async fn list(
        &self,
        space: &str,
        after: Option<&str>,
        notes_max: usize,
    ) -> JournalResult<Vec<Note>> {
        // No key is empty: the empty text is before all of them.
        let after = after.unwrap_or_default();
        [space, after].into_iter().try_for_each(storable)?;
        let sql = "SELECT key, version, at_ms, body FROM note WHERE space = $1 AND key > $2 ORDER BY key LIMIT $3";
        self.readers
            .read(sql, &args![space, after, notes_max.min(PAGE_MAX)], note)
            .await
    }

    async fn clear(&self, space: &str) -> JournalResult<u64> {
        storable(space)?;
        self.writer
            .submit(Remove {
                space: space.to_owned(),
                key: None,
            })
            .await
    }
}

fn note(row: &Row) -> sqlx::Result<Note> {
    Ok(Note {
        key: row.get(0)?,
        version: row.get(1)?,
        at: row.get(2)?,
        body: row.json(3)?,
    })
}

struct Put {
    space: String,
    key: String,
    body: String,
    expected: Option<u64>,
}

impl Write for Put {
    type Output = Result<u64, NoteError>;
    const NAME: &'static str = "note.put";

    fn bytes(&self) -> usize {
        self.space.len() + self.key.len() + self.body.len()
    }

    async fn run(&mut self, tx: &mut Tx) -> sqlx::Result<Self::Output> {
        const VERSION: Sql = Sql::new(
            "SELECT version FROM note WHERE space = $1 AND key = $2",
            "SELECT version FROM note WHERE space = $1 AND key = $2 FOR UPDATE",
        );
        const COUNT: &str = "SELECT count(*) FROM note WHERE space = $1";
        const PUT: &str = "INSERT INTO note (space, key, version, at_ms, body) VALUES ($1, $2, 1, $3, $4) \
                           ON CONFLICT (space, key) DO UPDATE SET version = note.version + 1, \
                           at_ms = excluded.at_ms, body = excluded.body \
                           WHERE CAST($5 AS BIGINT) IS NULL OR note.version = $5 RETURNING version";
        let now = tx.now_ms;
        let changed = |there: i64| {
            Ok(Err(NoteError::Changed {
                version: there.unsigned_abs(),
            }))
        };
        let there = tx
            .db
            .number(VERSION, &args![&self.space, &self.key])
            .await?;
        if self
            .expected
            .is_some_and(|expected| expected != there.unsigned_abs())
        {
            return changed(there);
        }
        let full = JournalError::Full {
            records_max: NOTES_MAX_DEFAULT,
        };
        if there == 0 && tx.db.number(COUNT, &args![&self.space]).await? >= NOTES_MAX_DEFAULT as i64
        {
            return Ok(Err(full.into()));
        }
        let expected = self.expected.map(|_| there);
        let version = tx
            .db
            .number(
                PUT,
                &args![&self.space, &self.key, now, &self.body, expected],
            )
            .await?;
        if version > 0 {
            return Ok(Ok(version.unsigned_abs()));
        }
        // Another node was faster.
        changed(
            tx.db
                .number(VERSION, &args![&self.space, &self.key])
                .await?,
        )
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

    async fn run(&mut self, tx: &mut Tx) -> sqlx::Result<u64> {
        match &self.key {
            Some(key) => {
                let sql = "DELETE FROM note WHERE space = $1 AND key = $2";
                tx.db.execute(sql, &args![&self.space, key]).await
            }
            None => {
                tx.db
                    .execute("DELETE FROM note WHERE space = $1", &args![&self.space])
                    .await
            }
        }
    }
}
