use std::collections::HashMap;

use async_trait::async_trait;

use super::{Journal, JournalError, RECORDS_AT_ONCE_MAX, Record, storable};
use crate::sync::Mutex;

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
        Self { kept: Mutex::default(), records_max }
    }

    fn keep(&self, records: Vec<Record>) -> Result<Vec<u64>, JournalError> {
        if records.len() > RECORDS_AT_ONCE_MAX {
            return Err(JournalError::Invalid("too many records at once"));
        }
        for record in &records {
            storable(&record.stream)?;
            record.key.as_deref().map_or(Ok(()), storable)?;
        }
        let mut kept = self.kept.lock();
        // Doubles are counted too: all or none must be known before the first is kept.
        let new = records.iter().filter(|record| kept.number_of(record).is_none()).count();
        if kept.records + new > self.records_max {
            return Err(JournalError::Full { records_max: self.records_max });
        }
        Ok(records.into_iter().map(|record| kept.push(record)).collect())
    }
}

impl Kept {
    fn number_of(&self, record: &Record) -> Option<u64> {
        self.streams.get(&record.stream)?.keys.get(record.key.as_ref()?).copied()
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
    async fn append(&self, record: Record) -> Result<u64, JournalError> {
        Ok(self.keep(vec![record])?.first().copied().unwrap_or_default())
    }

    async fn append_all(&self, records: Vec<Record>) -> Result<Vec<u64>, JournalError> {
        self.keep(records)
    }

    async fn read(&self, stream: &str, after: u64, records_max: usize) -> Result<Vec<(u64, Record)>, JournalError> {
        let kept = self.kept.lock();
        let records = kept.streams.get(stream).map_or(&[][..], |stream| &stream.records);
        let numbered = (1u64..).zip(records).skip(usize::try_from(after).unwrap_or(usize::MAX)).take(records_max);
        Ok(numbered.map(|(number, record)| (number, record.clone())).collect())
    }
}
