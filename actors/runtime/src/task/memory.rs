//! In-memory task store; lasts as long as the process.

mod create;
mod slot;
mod table;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use tokio::sync::watch;

use super::{
    ClaimRequest, ClaimedTask, CreateOutcome, Lease, NewTask, ReleaseReason, Task, TaskActor,
    TaskEvent, TaskFilter, TaskId, TaskOwner, TaskPage, TaskResult, TaskStep, TaskStore,
};
use crate::journal::JournalResult;
use crate::sync::{Mutex, MutexGuard};
use table::TaskTable;

/// Default maximum number of tasks in a [`MemoryTaskStore`].
const MEMORY_TASKS_MAX_DEFAULT: usize = 10_000;
/// Maximum number of tasks of one owner in a [`MemoryTaskStore`] of default capacity: a quarter of
/// them, because all agents of a node share the store.
const MEMORY_OWNER_TASKS_MAX_DEFAULT: usize = MEMORY_TASKS_MAX_DEFAULT / 4;
/// Worker id in leases of the in-memory store. There is one only, as no other process uses the
/// store.
const WORKER_ID: &str = "memory#1";

/// In-memory task store; tasks last as long as the process.
pub struct MemoryTaskStore {
    table: Mutex<TaskTable>,
    changes: watch::Sender<u64>,
}

/// Creates a store for 10,000 tasks, of which one owner may have a quarter. Beyond that, creating
/// fails with [`TaskError::TooMany`](super::TaskError::TooMany).
impl Default for MemoryTaskStore {
    fn default() -> Self {
        let mut table = TaskTable::new(MEMORY_TASKS_MAX_DEFAULT);
        table.owner_tasks_max = Some(MEMORY_OWNER_TASKS_MAX_DEFAULT);
        Self::of(table)
    }
}

impl MemoryTaskStore {
    /// Creates a store for `tasks_max` tasks of any owners. Beyond that, creating fails with
    /// [`JournalError::Full`](crate::JournalError::Full) until ended tasks have expired.
    pub fn with_capacity(tasks_max: usize) -> Self {
        Self::of(TaskTable::new(tasks_max))
    }

    fn of(table: TaskTable) -> Self {
        Self {
            table: Mutex::new(table),
            changes: watch::Sender::new(0),
        }
    }

    /// Locks the task table and sets its clock to the current time.
    fn lock_table(&self) -> MutexGuard<'_, TaskTable> {
        let mut table = self.table.lock();
        table.now = table.now.max(SystemTime::now());
        table
    }

    /// Modifies the task table by `change` and notifies readers that wait for changes.
    fn modify<T>(&self, change: impl FnOnce(&mut TaskTable) -> T) -> T {
        let done = change(&mut self.lock_table());
        self.changes.send_modify(|number| *number += 1);
        done
    }
}

#[async_trait]
impl TaskStore for MemoryTaskStore {
    async fn create(&self, new: NewTask) -> TaskResult<CreateOutcome> {
        self.modify(|table| table.create(new, WORKER_ID))
    }

    async fn create_all(&self, new: Vec<NewTask>) -> TaskResult<Vec<Arc<Task>>> {
        self.modify(|table| table.create_all(new))
    }

    async fn apply(
        &self,
        id: &TaskId,
        by: TaskActor<'_>,
        steps: Vec<TaskStep>,
    ) -> TaskResult<Arc<Task>> {
        self.modify(|table| table.apply(id, by, steps))
    }

    async fn get(&self, id: &TaskId) -> JournalResult<Option<Arc<Task>>> {
        Ok(self.table.lock().get(id))
    }

    async fn list(
        &self,
        filter: TaskFilter,
        after: u64,
        tasks_max: usize,
    ) -> JournalResult<TaskPage> {
        Ok(self.table.lock().list(&filter, after, tasks_max))
    }

    async fn events(
        &self,
        id: &TaskId,
        after: u64,
        events_max: usize,
    ) -> JournalResult<Vec<TaskEvent>> {
        Ok(self.table.lock().events(id, after, events_max))
    }

    async fn claim(&self, claim: ClaimRequest) -> JournalResult<Vec<ClaimedTask>> {
        let (claimed, is_news) = self.lock_table().claim(&claim);
        if is_news {
            self.changes.send_modify(|number| *number += 1);
        }
        Ok(claimed)
    }

    async fn renew(&self, by: &str, lease: Duration) -> JournalResult<u64> {
        Ok(self.lock_table().renew(by, lease))
    }

    async fn release(&self, lease: &Lease, why: ReleaseReason) -> JournalResult<()> {
        self.modify(|table| table.release(lease, why));
        Ok(())
    }

    async fn request_cancel(&self, id: &TaskId, by: TaskActor<'_>) -> TaskResult<Arc<Task>> {
        self.modify(|table| table.request_cancel(id, by))
    }

    async fn delete(&self, id: &TaskId) -> JournalResult<()> {
        self.modify(|table| table.delete(id));
        Ok(())
    }

    async fn delete_ended(
        &self,
        scope: &str,
        owner: &TaskOwner,
        tasks_max: usize,
    ) -> JournalResult<usize> {
        Ok(self.modify(|table| table.delete_ended(scope, owner, tasks_max)))
    }

    async fn cancel_requests(&self, by: &str) -> JournalResult<Vec<TaskId>> {
        Ok(self.table.lock().cancel_requests(by))
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn worker_id(&self) -> &str {
        WORKER_ID
    }
}
