//! Journal: append-only streams of records that must outlast the process; the trait and an
//! in-memory implementation.

use std::collections::HashMap;

use async_trait::async_trait;
use callboard_message::{Failure, FailureKind};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::sync::Mutex;

/// Maximum number of records in one [`Journal::append_all`].
pub const JOURNAL_BATCH_MAX: usize = 256;

/// Record of a journal stream, for [`Journal::append`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JournalRecord {
    /// Name of the stream, for example `effects/…`.
    pub stream: String,
    /// Idempotency key: a second record with the same key in the same stream isn't written.
    pub key: Option<String>,
    /// Content, as JSON.
    pub body: Value,
}

/// Append-only streams of records. Durability of acknowledged records depends on the
/// implementation.
#[async_trait]
pub trait Journal: Send + Sync + 'static {
    /// Appends `record` and returns its number in its stream. Numbers start at 1 and have no gaps.
    /// If the stream already has a record with the same key, nothing is written and that record's
    /// number is returned.
    ///
    /// # Errors
    /// Those of [`Journal::append_all`].
    async fn append(&self, record: JournalRecord) -> JournalResult<u64> {
        let numbers = self.append_all(vec![record]).await?;
        numbers.first().copied().ok_or_else(|| {
            JournalError::Store("the `Journal` implementation returned no record number".to_owned())
        })
    }

    /// Appends records, of one stream or several, as [`Journal::append`] does: all or none. Returns
    /// their numbers in the same order.
    ///
    /// # Errors
    /// [`JournalError::Invalid`] for more than [`JOURNAL_BATCH_MAX`] records, or for a NUL
    /// character; the store's error.
    async fn append_all(&self, records: Vec<JournalRecord>) -> JournalResult<Vec<u64>>;

    /// Returns up to `records_max` records of `stream` with a number above `after`, oldest first,
    /// each with its number; none for an unknown stream. A store may return fewer; read on until
    /// none is left.
    ///
    /// # Errors
    /// The store's error.
    async fn read(
        &self,
        stream: &str,
        after: u64,
        records_max: usize,
    ) -> JournalResult<Vec<(u64, JournalRecord)>>;
}

/// Error of a store. A write that returned an error wasn't made, except possibly after
/// [`JournalError::Unknown`]. A write that returned none is committed and synced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The in-memory store, or the key-value space of any store, is full. Remove old entries.
    #[error(
        "the store in memory or the key-value space is full ({records_max} entries): delete some"
    )]
    Full {
        /// Maximum number of entries.
        records_max: usize,
    },
    /// The store has reached its size limit; nothing was written. Shorten the retention or raise
    /// the option `size_max_mib`.
    #[error(
        "the store is at its limit ({bytes_max} bytes): shorten its retention or raise `size_max_mib`"
    )]
    SizeLimit {
        /// Size limit, in bytes.
        bytes_max: u64,
    },
    /// The owner's data has reached its share of the store; nothing was written. Others can still
    /// write. Delete tasks or wait for the retention, or raise the option `owner_bytes_max_mib`.
    #[error(
        "your data is at its limit in the store ({bytes_max} bytes): delete tasks, or ask the operator to raise `owner_bytes_max_mib`"
    )]
    OwnerLimit {
        /// Maximum bytes of one owner.
        bytes_max: u64,
    },
    /// The disk is full; nothing was written. Free space and retry with the same idempotency key.
    #[error("the store's disk is full: make room and try again")]
    NoSpace,
    /// Too many writes are queued, so this one was rejected. Retry later.
    #[error("the store is overloaded ({writes_max} writes wait): try again later")]
    Overloaded {
        /// Maximum number of queued writes.
        writes_max: usize,
    },
    /// The data to be stored is too large. Send less.
    #[error("{bytes} bytes are too many for the store (at most {bytes_max})")]
    TooLarge {
        /// Size of the data, in bytes.
        bytes: usize,
        /// Maximum size of the data, in bytes.
        bytes_max: usize,
    },
    /// The arguments are invalid, for the given reason. Retrying unchanged is useless.
    #[error("the store refuses this: {0}")]
    Invalid(&'static str),
    /// The store is unreachable or closed; nothing was written. Retry with the same idempotency
    /// key. Holds the cause.
    #[error("the store is unavailable and nothing was written, try again later: {0}")]
    Unavailable(String),
    /// The result of the commit is unknown: the record may have been written. Retry with the same
    /// idempotency key. Holds the cause.
    #[error(
        "the write may or may not have been stored, repeat it with the same idempotency key: {0}"
    )]
    Unknown(String),
    /// Another process writes to the store under this process's writer name. This process must
    /// stop.
    #[error(
        "another process writes to the store as writer `{writer}`: stop one, or give each its own `writer`"
    )]
    Fenced {
        /// Writer name that both processes use.
        writer: String,
    },
    /// The store is corrupt, as described by the text. Restore a backup.
    #[error("the store is damaged, restore a backup: {0}")]
    Damaged(String),
    /// The underlying database failed, with its error message. Never contains the data to be
    /// written.
    #[error("the store failed: {0}")]
    Store(String),
}

/// Result of a store operation.
pub type JournalResult<T> = Result<T, JournalError>;

impl JournalError {
    /// Returns true if the store has no room for the write: its size limit, its record limit or the
    /// disk. It stays so until an operator or the retention makes room.
    pub fn is_full(&self) -> bool {
        matches!(
            self,
            Self::Full { .. } | Self::SizeLimit { .. } | Self::NoSpace
        )
    }

    /// Returns true if the same write may succeed when retried later.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Full { .. }
                | Self::SizeLimit { .. }
                | Self::NoSpace
                | Self::Overloaded { .. }
                | Self::Unavailable(_)
                | Self::Unknown(_)
        )
    }
}

impl From<JournalError> for Failure {
    fn from(error: JournalError) -> Self {
        let kind = match &error {
            JournalError::Full { .. }
            | JournalError::SizeLimit { .. }
            | JournalError::OwnerLimit { .. }
            | JournalError::NoSpace
            | JournalError::Overloaded { .. } => FailureKind::Overloaded,
            JournalError::TooLarge { .. } | JournalError::Invalid(_) => FailureKind::InvalidInput,
            JournalError::Unavailable(_)
            | JournalError::Unknown(_)
            | JournalError::Fenced { .. } => FailureKind::Unavailable,
            JournalError::Damaged(_) | JournalError::Store(_) => FailureKind::Internal,
        };
        Self::new(kind, error.to_string())
    }
}

/// Checks that every store implementation can hold `text`.
///
/// # Errors
/// [`JournalError::Invalid`] if it contains a NUL character.
pub fn check_storable(text: &str) -> JournalResult<()> {
    match text.contains('\0') {
        true => Err(JournalError::Invalid("a text has a NUL character (U+0000)")),
        false => Ok(()),
    }
}

/// Default maximum number of records in a [`MemoryJournal`].
const MEMORY_JOURNAL_RECORDS_MAX_DEFAULT: usize = 100_000;

/// In-memory journal; lasts as long as the process.
pub struct MemoryJournal {
    state: Mutex<JournalState>,
    records_max: usize,
}

#[derive(Default)]
struct JournalState {
    streams: HashMap<String, RecordStream>,
    records: usize,
}

#[derive(Default)]
struct RecordStream {
    records: Vec<JournalRecord>,
    keys: HashMap<String, u64>,
}

impl Default for MemoryJournal {
    fn default() -> Self {
        Self::with_capacity(MEMORY_JOURNAL_RECORDS_MAX_DEFAULT)
    }
}

impl MemoryJournal {
    /// Creates a journal for `records_max` records. Beyond that, appends fail with
    /// [`JournalError::Full`].
    pub fn with_capacity(records_max: usize) -> Self {
        Self {
            state: Mutex::default(),
            records_max,
        }
    }
}

impl JournalState {
    fn number_of_key(&self, record: &JournalRecord) -> Option<u64> {
        self.streams
            .get(&record.stream)?
            .keys
            .get(record.key.as_ref()?)
            .copied()
    }

    fn push(&mut self, record: JournalRecord) -> u64 {
        if let Some(number) = self.number_of_key(&record) {
            return number;
        }
        let stream = self.streams.entry(record.stream.clone()).or_default();
        let number = stream.records.len() as u64 + 1;
        if let Some(key) = record.key.clone() {
            stream.keys.insert(key, number);
        }
        stream.records.push(record);
        self.records += 1;
        number
    }
}

#[async_trait]
impl Journal for MemoryJournal {
    async fn append_all(&self, records: Vec<JournalRecord>) -> JournalResult<Vec<u64>> {
        if records.len() > JOURNAL_BATCH_MAX {
            return Err(JournalError::Invalid(
                "at most 256 records can be appended at once (`JOURNAL_BATCH_MAX`)",
            ));
        }
        for record in &records {
            check_storable(&record.stream)?;
            record.key.as_deref().map_or(Ok(()), check_storable)?;
        }
        let mut state = self.state.lock();
        // Duplicates within the batch are counted as new: the check must precede the first write,
        // as all or none are appended.
        let new = records
            .iter()
            .filter(|record| state.number_of_key(record).is_none())
            .count();
        if state.records + new > self.records_max {
            return Err(JournalError::Full {
                records_max: self.records_max,
            });
        }
        Ok(records
            .into_iter()
            .map(|record| state.push(record))
            .collect())
    }

    async fn read(
        &self,
        stream: &str,
        after: u64,
        records_max: usize,
    ) -> JournalResult<Vec<(u64, JournalRecord)>> {
        let state = self.state.lock();
        let records = state
            .streams
            .get(stream)
            .map_or(&[][..], |stream| &stream.records);
        let numbered = (1u64..)
            .zip(records)
            .skip(usize::try_from(after).unwrap_or(usize::MAX))
            .take(records_max);
        Ok(numbered
            .map(|(number, record)| (number, record.clone()))
            .collect())
    }
}
