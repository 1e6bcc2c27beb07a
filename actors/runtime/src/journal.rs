//! What must outlast a process, as streams of records: the trait, and a journal in memory.

use std::collections::HashMap;

use async_trait::async_trait;
use callboard_message::{Failure, FailureKind};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::sync::Mutex;

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
    async fn append(&self, record: Record) -> JournalResult<u64> {
        let numbers = self.append_all(vec![record]).await?;
        numbers
            .first()
            .copied()
            .ok_or_else(|| JournalError::Store("no number was given".to_owned()))
    }

    /// As [`Journal::append`] for each record, all or none, at most [`RECORDS_AT_ONCE_MAX`]. The numbers are in their order.
    async fn append_all(&self, records: Vec<Record>) -> JournalResult<Vec<u64>>;

    /// Records of `stream` with a number above `after`, oldest first, at most `records_max`.
    async fn read(
        &self,
        stream: &str,
        after: u64,
        records_max: usize,
    ) -> JournalResult<Vec<(u64, Record)>>;
}

/// Why the store didn't do it. Kept means committed and synced: what isn't said to be kept was not acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// Remove old records or raise the limit. Only a journal in memory is full so.
    #[error("journal is full ({records_max} records)")]
    Full {
        /// The limit that was met.
        records_max: usize,
    },
    /// The store is at its limit: shorten the retention or raise `size_max_mib`. Nothing was kept.
    #[error(
        "the store is at its limit ({bytes_max} bytes): shorten its retention or raise `size_max_mib`"
    )]
    SizeLimit {
        /// The limit that was met.
        bytes_max: u64,
    },
    /// The disk is full: make room and try again with the same key. Nothing was kept.
    #[error("the store's disk is full: make room and try again")]
    NoSpace,
    /// Too many writes wait: try again later. Nothing was queued.
    #[error("the store is overloaded ({writes_max} writes wait): try again later")]
    Overloaded {
        /// How many may wait.
        writes_max: usize,
    },
    /// Send less.
    #[error("{bytes} bytes are too many for the store (at most {bytes_max})")]
    TooLarge {
        /// What was sent.
        bytes: usize,
        /// The limit that was met.
        bytes_max: usize,
    },
    /// Change it. What is wrong, in one sentence.
    #[error("the store can't keep that: {0}")]
    Invalid(&'static str),
    /// The store is away or closed: try again with the same key. Nothing was kept.
    #[error("the store is away: {0}")]
    Unavailable(String),
    /// The answer to the commit was lost: it may be kept. Try again with the same key.
    #[error("the store didn't answer, it may have been kept: {0}")]
    Unknown(String),
    /// Another process goes by this writer's name: this one must end.
    #[error("another process writes as {writer}")]
    Fenced {
        /// The name.
        writer: String,
    },
    /// Restore a backup.
    #[error("the store is damaged: {0}")]
    Damaged(String),
    /// The store behind it failed; look there. Never holds what was to be kept.
    #[error("journal's store failed: {0}")]
    Store(String),
}

/// What a store answers.
pub type JournalResult<T> = Result<T, JournalError>;

impl JournalError {
    /// Whether the same, sent again later, may be kept.
    pub fn may_pass(&self) -> bool {
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

/// Refuses a text that not every store can hold.
///
/// # Errors
/// [`JournalError::Invalid`] where it has a NUL.
pub fn storable(text: &str) -> JournalResult<()> {
    match text.contains('\0') {
        true => Err(JournalError::Invalid("a text has a NUL character")),
        false => Ok(()),
    }
}

/// Records that [`MemoryJournal`] holds, by default.
const MEMORY_JOURNAL_RECORDS_MAX_DEFAULT: usize = 100_000;

/// A journal that lasts as long as the process.
pub struct MemoryJournal {
    kept: Mutex<Kept>,
    records_max: usize,
}

#[derive(Default)]
struct Kept {
    streams: HashMap<String, Stream>,
    records: usize,
}

#[derive(Default)]
struct Stream {
    records: Vec<Record>,
    keys: HashMap<String, u64>,
}

impl Default for MemoryJournal {
    fn default() -> Self {
        Self::with_capacity(MEMORY_JOURNAL_RECORDS_MAX_DEFAULT)
    }
}

impl MemoryJournal {
    /// A journal that holds `records_max` records and then answers [`JournalError::Full`].
    pub fn with_capacity(records_max: usize) -> Self {
        Self {
            kept: Mutex::default(),
            records_max,
        }
    }
}

impl Kept {
    fn number_of(&self, record: &Record) -> Option<u64> {
        self.streams
            .get(&record.stream)?
            .keys
            .get(record.key.as_ref()?)
            .copied()
    }

    fn push(&mut self, record: Record) -> u64 {
        if let Some(number) = self.number_of(&record) {
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
    async fn append_all(&self, records: Vec<Record>) -> JournalResult<Vec<u64>> {
        if records.len() > RECORDS_AT_ONCE_MAX {
            return Err(JournalError::Invalid("too many records at once"));
        }
        for record in &records {
            storable(&record.stream)?;
            record.key.as_deref().map_or(Ok(()), storable)?;
        }
        let mut kept = self.kept.lock();
        // Doubles are counted too: all or none must be known before the first is kept.
        let new = records
            .iter()
            .filter(|record| kept.number_of(record).is_none())
            .count();
        if kept.records + new > self.records_max {
            return Err(JournalError::Full {
                records_max: self.records_max,
            });
        }
        Ok(records
            .into_iter()
            .map(|record| kept.push(record))
            .collect())
    }

    async fn read(
        &self,
        stream: &str,
        after: u64,
        records_max: usize,
    ) -> JournalResult<Vec<(u64, Record)>> {
        let kept = self.kept.lock();
        let records = kept
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
