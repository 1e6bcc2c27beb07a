//! Key-value store: small JSON objects by space and key, with versions.

use async_trait::async_trait;
use callboard_message::RawObject;
use callboard_runtime::{
    JournalError, JournalResult, KV_SPACE_ENTRIES_MAX_DEFAULT, KvEntry, KvError, KvStore,
    check_kv_entry, check_storable,
};

use crate::backend::PAGE_ROWS_MAX;
use crate::sql::{Row, Sql, args};
use crate::store_core::StoreCore;
use crate::tx::{Tx, WriteOp};

#[async_trait]
impl KvStore for StoreCore {
    async fn get(&self, space: &str, key: &str) -> JournalResult<Option<KvEntry>> {
        [space, key].into_iter().try_for_each(check_storable)?;
        let sql = "SELECT key, version, at_ms, body FROM note WHERE space = $1 AND key = $2";
        Ok(self
            .readers
            .read(sql, &args![space, key], kv_entry)
            .await?
            .pop())
    }

    async fn put(
        &self,
        space: &str,
        key: &str,
        body: RawObject,
        expected: Option<u64>,
    ) -> Result<u64, KvError> {
        check_kv_entry(space, key, &body)?;
        let (space, key) = (space.to_owned(), key.to_owned());
        let body = body.to_raw().get().to_owned();
        self.writer
            .submit(PutEntry {
                space,
                key,
                body,
                expected,
            })
            .await?
    }

    async fn remove(&self, space: &str, key: &str) -> JournalResult<bool> {
        [space, key].into_iter().try_for_each(check_storable)?;
        let remove = RemoveEntries {
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
    ) -> JournalResult<Vec<KvEntry>> {
        // No key is empty: the empty text sorts before all of them.
        let after = after.unwrap_or_default();
        [space, after].into_iter().try_for_each(check_storable)?;
        let sql = "SELECT key, version, at_ms, body FROM note WHERE space = $1 AND key > $2 ORDER BY key LIMIT $3";
        self.readers
            .read(
                sql,
                &args![space, after, notes_max.min(PAGE_ROWS_MAX)],
                kv_entry,
            )
            .await
    }

    async fn clear(&self, space: &str) -> JournalResult<u64> {
        check_storable(space)?;
        self.writer
            .submit(RemoveEntries {
                space: space.to_owned(),
                key: None,
            })
            .await
    }
}

fn kv_entry(row: &Row) -> sqlx::Result<KvEntry> {
    Ok(KvEntry {
        key: row.get(0)?,
        version: row.get(1)?,
        at: row.get(2)?,
        body: row.json(3)?,
    })
}

struct PutEntry {
    space: String,
    key: String,
    body: String,
    expected: Option<u64>,
}

impl WriteOp for PutEntry {
    type Output = Result<u64, KvError>;
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
            Ok(Err(KvError::VersionConflict {
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
            records_max: KV_SPACE_ENTRIES_MAX_DEFAULT,
        };
        if there == 0
            && tx.db.number(COUNT, &args![&self.space]).await?
                >= KV_SPACE_ENTRIES_MAX_DEFAULT as i64
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
        // Another node wrote the entry between the two statements.
        changed(
            tx.db
                .number(VERSION, &args![&self.space, &self.key])
                .await?,
        )
    }
}

/// Write operation that removes one entry of a key-value space, or all its entries if `key` is
/// `None`.
struct RemoveEntries {
    space: String,
    key: Option<String>,
}

impl WriteOp for RemoveEntries {
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
