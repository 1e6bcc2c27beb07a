//! Streams of records.

use async_trait::async_trait;
use callboard_runtime::{Journal, JournalResult, Record};

use crate::append::Append;
use crate::parts::Core;
use crate::place::PAGE_MAX;
use crate::sql::{Row, args};

#[async_trait]
impl Journal for Core {
    async fn append_all(&self, records: Vec<Record>) -> JournalResult<Vec<u64>> {
        match records.is_empty() {
            true => Ok(Vec::new()),
            false => self.writer.submit(Append::new(records)?).await,
        }
    }

    async fn read(
        &self,
        stream: &str,
        after: u64,
        records_max: usize,
    ) -> JournalResult<Vec<(u64, Record)>> {
        let sql = "SELECT number, key, body FROM record WHERE stream = $1 AND number > $2 ORDER BY number LIMIT $3";
        let args = args![stream, after, records_max.min(PAGE_MAX)];
        let record = |row: &Row| {
            Ok((
                row.get(0)?,
                Record {
                    stream: stream.to_owned(),
                    key: row.get(1)?,
                    body: row.json(2)?,
                },
            ))
        };
        self.readers.read(sql, &args, record).await
    }
}
