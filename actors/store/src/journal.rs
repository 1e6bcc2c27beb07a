//! Journal streams: append records and read them in order.

use async_trait::async_trait;
use callboard_runtime::{Journal, JournalRecord, JournalResult};

use crate::append_records::AppendRecords;
use crate::backend::PAGE_ROWS_MAX;
use crate::sql::{Row, args};
use crate::store_core::StoreCore;

#[async_trait]
impl Journal for StoreCore {
    async fn append_all(&self, records: Vec<JournalRecord>) -> JournalResult<Vec<u64>> {
        match records.is_empty() {
            true => Ok(Vec::new()),
            false => self.writer.submit(AppendRecords::new(records)?).await,
        }
    }

    async fn read(
        &self,
        stream: &str,
        after: u64,
        records_max: usize,
    ) -> JournalResult<Vec<(u64, JournalRecord)>> {
        let sql = "SELECT number, key, body FROM record WHERE stream = $1 AND number > $2 ORDER BY number LIMIT $3";
        let args = args![stream, after, records_max.min(PAGE_ROWS_MAX)];
        let record = |row: &Row| {
            Ok((
                row.get(0)?,
                JournalRecord {
                    stream: stream.to_owned(),
                    key: row.get(1)?,
                    body: row.json(2)?,
                },
            ))
        };
        self.readers.read(sql, &args, record).await
    }
}
