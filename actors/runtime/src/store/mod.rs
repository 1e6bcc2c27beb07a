//! Stores of a system, and the audit log.

mod audit_log;
pub(crate) mod call_log;

use std::sync::Arc;

use uuid::Uuid;

pub use audit_log::AuditLog;
pub use call_log::CALL_LINES_QUEUED_MAX;

use crate::audit::{AuditStore, MemoryAuditStore};
use crate::journal::{Journal, MemoryJournal};
use crate::kv_store::{KvStore, MemoryKvStore};
use crate::mail::{MailStore, MemoryMailStore};
use crate::task::running::RunningTaskScopes;
use crate::task::{MemoryTaskStore, TaskStore};

/// Stores of a system, which hold everything that must be durable.
#[derive(Clone, derive_more::Debug)]
#[debug("Store {{ run: {run:?} }}")]
pub struct Store {
    /// Journal: append-only streams of records.
    pub journal: Arc<dyn Journal>,
    /// Task store.
    pub tasks: Arc<dyn TaskStore>,
    /// Tasks that run in this process, by scope. Stop them before the store is closed.
    pub running_tasks: RunningTaskScopes,
    /// Mail store.
    pub mail: Arc<dyn MailStore>,
    /// Key-value store for the directory and agents' memory.
    pub kv: Arc<dyn KvStore>,
    /// Audit store.
    pub audit: Arc<dyn AuditStore>,
    /// UUID of this run of the process, different after each start.
    pub run: Arc<str>,
}

impl Store {
    /// Creates in-memory stores, which last as long as the process.
    pub fn in_memory() -> Self {
        let audit: Arc<dyn AuditStore> = Arc::new(MemoryAuditStore::default());
        Self {
            journal: Arc::new(MemoryJournal::default()),
            tasks: Arc::new(MemoryTaskStore::default()),
            running_tasks: RunningTaskScopes::default(),
            mail: Arc::new(MemoryMailStore::new(audit.clone())),
            kv: Arc::new(MemoryKvStore::default()),
            audit,
            run: Uuid::new_v4().to_string().into(),
        }
    }
}

/// Error of setting the stores of a system whose stores have been set or used already. Set them
/// before first use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the system's stores were set or used already: set them right after `System::start`")]
pub struct StoreAlreadySet;
