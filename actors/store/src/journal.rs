//! Streams of records.

use std::sync::Arc;

use callboard_runtime::{Journal, JournalError, Record};
use futures::future::BoxFuture;

use crate::error::journal_error;
use crate::open::Core;
use crate::readers::PAGE_MAX;
use crate::sql::Row;

/// The streams of an open store.
pub(crate) struct SqlJournal {
    core: Arc<Core>,
}

impl SqlJournal {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core }
    }
}

impl Journal for SqlJournal {
    fn append(&self, record: Record) -> BoxFuture<'_, Result<u64, JournalError>> {
        Box::pin(async move {
            let numbers = self.core.writer.append(vec![record]).await?;
            numbers.first().copied().ok_or_else(|| JournalError::Store("no number was given".to_owned()))
        })
    }

    fn append_all(&self, records: Vec<Record>) -> BoxFuture<'_, Result<Vec<u64>, JournalError>> {
        Box::pin(self.core.writer.append(records))
    }

    fn read<'a>(
        &'a self,
        stream: &'a str,
        after: u64,
        records_max: usize,
    ) -> BoxFuture<'a, Result<Vec<(u64, Record)>, JournalError>> {
        Box::pin(async move {
            let after = i64::try_from(after).unwrap_or(i64::MAX);
            let limit = i64::try_from(records_max.min(PAGE_MAX)).unwrap_or(i64::MAX);
            let found = self
                .core
                .readers
                .rows(
                    "SELECT number, key, body FROM record WHERE stream = $1 AND number > $2 ORDER BY number LIMIT $3",
                    &[stream.into(), after.into(), limit.into()],
                )
                .await?;
            found.iter().map(|row| record(stream, row)).collect()
        })
    }
}

fn record(stream: &str, row: &Row) -> Result<(u64, Record), JournalError> {
    let told = |e| journal_error(&e);
    let number = row.count(0).map_err(told)?;
    let body = serde_json::from_str(row.text(2).map_err(told)?)
        .map_err(|_| JournalError::Damaged(format!("record {number} of a stream is no JSON")))?;
    let key = row.text_or_null(1).map_err(told)?.map(str::to_owned);
    Ok((number, Record { stream: stream.to_owned(), key, body }))
}
