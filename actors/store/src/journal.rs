//! Streams of records.

use async_trait::async_trait;
use callboard_runtime::{Journal, JournalError, Record};

use crate::parts::Core;
use crate::place::PAGE_MAX;
use crate::sql::{Row, args};

#[async_trait]
impl Journal for Core {
    async fn append(&self, record: Record) -> Result<u64, JournalError> {
        let numbers = self.writer.append(vec![record]).await?;
        numbers.first().copied().ok_or_else(|| JournalError::Store("no number was given".to_owned()))
    }

    async fn append_all(&self, records: Vec<Record>) -> Result<Vec<u64>, JournalError> {
        self.writer.append(records).await
    }

    async fn read(&self, stream: &str, after: u64, records_max: usize) -> Result<Vec<(u64, Record)>, JournalError> {
        let sql = "SELECT number, key, body FROM record WHERE stream = $1 AND number > $2 ORDER BY number LIMIT $3";
        let args = args![stream, after, records_max.min(PAGE_MAX)];
        let record =
            |row: &Row| Ok((row.get(0)?, Record { stream: stream.to_owned(), key: row.get(1)?, body: row.json(2)? }));
        self.readers.read(sql, &args, record).await
    }
}
