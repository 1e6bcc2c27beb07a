//! The stores of a system, and the log that fills its audit.

mod audit_log;

use std::sync::Arc;

use uuid::Uuid;

pub use audit_log::AuditLog;

use crate::audit::{Audit, MemoryAudit};
use crate::journal::{Journal, MemoryJournal};
use crate::mail::{Mail, MemoryMail};
use crate::notes::{MemoryNotes, Notes};
use crate::task::live::LiveScopes;
use crate::task::{MemoryTasks, Tasks};

/// Where a system keeps what must last.
#[derive(Clone, derive_more::Debug)]
#[debug("Store {{ run: {run:?} }}")]
pub struct Store {
    /// Streams of records.
    pub journal: Arc<dyn Journal>,
    /// Tasks.
    pub tasks: Arc<dyn Tasks>,
    /// Those of them that run here. Stop them before the store is closed.
    pub live: LiveScopes,
    /// Mail.
    pub mail: Arc<dyn Mail>,
    /// Notes: the directory, what agents remember.
    pub notes: Arc<dyn Notes>,
    /// The audit.
    pub audit: Arc<dyn Audit>,
    /// This run of the process: a UUID.
    pub run: Arc<str>,
}

impl Store {
    /// A store that lasts as long as the process.
    pub fn in_memory() -> Self {
        let audit: Arc<dyn Audit> = Arc::new(MemoryAudit::default());
        Self {
            journal: Arc::new(MemoryJournal::default()),
            tasks: Arc::new(MemoryTasks::default()),
            live: LiveScopes::default(),
            mail: Arc::new(MemoryMail::new(audit.clone())),
            notes: Arc::new(MemoryNotes::default()),
            audit,
            run: Uuid::new_v4().to_string().into(),
        }
    }
}

/// The system keeps in a store already: choose one before anything is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the system has a store already")]
pub struct StoreIsSet;
