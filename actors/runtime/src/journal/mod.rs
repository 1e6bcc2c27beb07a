//! What must outlast a process, as streams of records: the trait, and a journal in memory.

mod error;
mod memory;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use error::{JournalError, storable};
pub use memory::MemoryJournal;

/// Most records that [`Journal::append_all`] takes at once.
pub const RECORDS_AT_ONCE_MAX: usize = 256;

/// One fact to keep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// What it belongs to, for example `effects/…`.
    pub stream: String,
    /// The same key twice in a stream is the same record: the second is not written.
    pub key: Option<String>,
    /// The fact, as JSON.
    pub body: Value,
}

/// Streams of records. What was acknowledged survives as the implementation says.
#[async_trait]
pub trait Journal: Send + Sync + 'static {
    /// Keeps `record` and answers with its number in its stream: from 1, without gaps. A record whose key its stream already
    /// has is not kept again; the answer is the first one's number.
    async fn append(&self, record: Record) -> Result<u64, JournalError>;

    /// As [`Journal::append`] for each record, all or none, at most [`RECORDS_AT_ONCE_MAX`]. The numbers are in their order.
    async fn append_all(&self, records: Vec<Record>) -> Result<Vec<u64>, JournalError>;

    /// Records of `stream` with a number above `after`, oldest first, at most `records_max`.
    async fn read(&self, stream: &str, after: u64, records_max: usize) -> Result<Vec<(u64, Record)>, JournalError>;
}
