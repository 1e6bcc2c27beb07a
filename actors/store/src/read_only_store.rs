//! Read-only view of a store.

use std::sync::Arc;

use callboard_runtime::{AuditStore, Journal, KvStore, TaskStore};

use crate::store_core::StoreCore;
use crate::tasks::SqlTasks;

/// View of a store for reading and for cancelling tasks. It takes no writer lock, so it can be
/// opened beside the node that writes. Callers must not write otherwise, which isn't prevented.
#[derive(Clone)]
pub struct ReadOnlyStore {
    pub(crate) core: Arc<StoreCore>,
}

impl ReadOnlyStore {
    /// Returns the journal of this store.
    pub fn journal(&self) -> Arc<dyn Journal> {
        self.core.clone()
    }

    /// Returns the key-value store.
    pub fn notes(&self) -> Arc<dyn KvStore> {
        self.core.clone()
    }

    /// Returns the task store. In a read-only view, tasks may be read and cancelled. `marks`
    /// computes the digests of requests and of bodies that must not be stored.
    pub fn tasks(&self, marks: Arc<dyn AuditStore>) -> Arc<dyn TaskStore> {
        Arc::new(SqlTasks::new(self.core.clone(), marks))
    }

    /// Closes the connections. Later operations fail with `JournalError::Unavailable`.
    pub async fn close(&self) {
        self.core.close().await;
    }
}
