//! What must outlast a process: the trait, and a journal in memory for tests and for systems that need none.

use std::collections::HashMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::sync::Mutex;

/// Records that [`MemoryJournal`] holds, by default.
pub const MEMORY_JOURNAL_RECORDS_MAX_DEFAULT: usize = 100_000;

/// One fact to keep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// What it belongs to, for example `task/…`, `inbox/…` or `audit`.
    pub stream: String,
    /// The same key twice in a stream is the same record: the second is not written.
    pub key: Option<String>,
    /// The fact, as JSON.
    pub body: Value,
}

/// Why a journal didn't do it. Nothing was acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// Remove old records or raise the limit.
    #[error("journal is full ({records_max} records)")]
    Full {
        /// The limit that was met.
        records_max: usize,
    },
    /// The store behind it failed; look there.
    #[error("journal's store failed: {0}")]
    Store(String),
}

/// Where tasks, inboxes and audit are kept. What was acknowledged survives as the implementation says.
pub trait Journal: Send + Sync {
    /// Keeps `record` and answers with its sequence number in the journal, from 1. A record whose key its stream already has
    /// is not kept again; the answer is the first one's number.
    fn append(&self, record: Record) -> BoxFuture<'_, Result<u64, JournalError>>;

    /// Records of `stream` with a number above `after`, oldest first, at most `records_max`.
    fn read<'a>(
        &'a self,
        stream: &'a str,
        after: u64,
        records_max: usize,
    ) -> BoxFuture<'a, Result<Vec<(u64, Record)>, JournalError>>;
}

/// A journal that lasts as long as the process.
pub struct MemoryJournal {
    kept: Mutex<Kept>,
    records_max: usize,
}

#[derive(Default)]
struct Kept {
    records: Vec<Arc<Record>>,
    keys: HashMap<(String, String), u64>,
}

impl Default for MemoryJournal {
    fn default() -> Self {
        Self::with_capacity(MEMORY_JOURNAL_RECORDS_MAX_DEFAULT)
    }
}

impl MemoryJournal {
    /// A journal that holds `records_max` records and then answers [`JournalError::Full`].
    pub fn with_capacity(records_max: usize) -> Self {
        Self { kept: Mutex::default(), records_max }
    }

    fn keep(&self, record: Record) -> Result<u64, JournalError> {
        let mut kept = self.kept.lock();
        let key = record.key.clone().map(|key| (record.stream.clone(), key));
        if let Some(number) = key.as_ref().and_then(|key| kept.keys.get(key)) {
            return Ok(*number);
        }
        if kept.records.len() >= self.records_max {
            return Err(JournalError::Full { records_max: self.records_max });
        }
        kept.records.push(Arc::new(record));
        let number = kept.records.len() as u64;
        if let Some(key) = key {
            kept.keys.insert(key, number);
        }
        Ok(number)
    }
}

impl Journal for MemoryJournal {
    fn append(&self, record: Record) -> BoxFuture<'_, Result<u64, JournalError>> {
        Box::pin(std::future::ready(self.keep(record)))
    }

    fn read<'a>(
        &'a self,
        stream: &'a str,
        after: u64,
        records_max: usize,
    ) -> BoxFuture<'a, Result<Vec<(u64, Record)>, JournalError>> {
        let kept = self.kept.lock();
        let numbered = kept.records.iter().enumerate().map(|(at, record)| (at as u64 + 1, record));
        let found = numbered.skip(after as usize).filter(|(_, r)| r.stream == stream).take(records_max);
        let found = found.map(|(number, record)| (number, Record::clone(record))).collect();
        Box::pin(std::future::ready(Ok(found)))
    }
}
