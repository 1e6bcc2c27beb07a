use std::collections::VecDeque;

use async_trait::async_trait;
use callboard_message::DataClass;

use super::{Audit, AuditEntry, BodyMark};
use crate::journal::JournalError;
use crate::sync::Mutex;

/// Entries that [`MemoryAudit`] holds: older ones are only counted.
const MEMORY_AUDIT_ENTRIES_MAX: usize = 10_000;

/// An audit that lasts as long as the process, with a key that does too.
pub struct MemoryAudit {
    key: [u8; 32],
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    last: u64,
    latest: VecDeque<AuditEntry>,
}

impl Default for MemoryAudit {
    fn default() -> Self {
        Self { key: rand::random(), kept: Mutex::default() }
    }
}

impl MemoryAudit {
    /// The latest entries, oldest first; at most `MEMORY_AUDIT_ENTRIES_MAX`.
    pub fn entries(&self) -> Vec<AuditEntry> {
        self.kept.lock().latest.iter().cloned().collect()
    }
}

#[async_trait]
impl Audit for MemoryAudit {
    async fn append(&self, entries: Vec<AuditEntry>) -> Result<u64, JournalError> {
        let mut kept = self.kept.lock();
        kept.last += entries.len() as u64;
        kept.latest.extend(entries);
        let over = kept.latest.len().saturating_sub(MEMORY_AUDIT_ENTRIES_MAX);
        kept.latest.drain(..over);
        Ok(kept.last)
    }

    fn mark(&self, class: DataClass, body: &[u8]) -> BodyMark {
        BodyMark::of(class, body, &self.key)
    }
}
