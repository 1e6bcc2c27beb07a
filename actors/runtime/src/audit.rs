//! The audit: who did what, to whom, and how it ended. Never what was said.

mod entry;
mod log;
mod memory;

use async_trait::async_trait;
use callboard_message::DataClass;

use crate::journal::JournalError;

pub use entry::{AuditEntry, AuditValue, BodyMark};
pub use log::AuditLog;
pub use memory::MemoryAudit;

/// Entries that wait to be kept, at most.
pub const AUDIT_QUEUED_MAX: usize = 4_096;

/// Where the audit is kept: append only.
#[async_trait]
pub trait Audit: Send + Sync + 'static {
    /// Keeps entries, all or none, one after the other, and answers the last one's number in this writer's chain.
    async fn append(&self, entries: Vec<AuditEntry>) -> Result<u64, JournalError>;

    /// What stands for a body: its size and its hash, under a key of this store's where the plain one could be guessed.
    fn mark(&self, class: DataClass, body: &[u8]) -> BodyMark;
}
