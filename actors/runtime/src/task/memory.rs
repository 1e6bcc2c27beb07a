//! Tasks in memory: they end with the process.

mod begin;
mod kept;
mod slot;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use tokio::sync::watch;

use super::{
    Begun, By, Claim, Claimed, Lease, NewTask, Released, Task, TaskEvent, TaskFilter, TaskId,
    TaskPage, TaskResult, TaskStep, Tasks,
};
use crate::journal::JournalResult;
use crate::sync::{Mutex, MutexGuard};
use kept::Kept;

/// Tasks that [`MemoryTasks`] holds, by default.
const MEMORY_TASKS_MAX_DEFAULT: usize = 10_000;
/// Its name in leases: it is nobody's but this process's.
const WORKER: &str = "memory#1";

/// Tasks that last as long as the process.
pub struct MemoryTasks {
    kept: Mutex<Kept>,
    changes: watch::Sender<u64>,
}

impl Default for MemoryTasks {
    fn default() -> Self {
        Self::with_capacity(MEMORY_TASKS_MAX_DEFAULT)
    }
}

impl MemoryTasks {
    /// Tasks, at most `tasks_max` of them; then [`JournalError::Full`], as long as none has ended and expired.
    pub fn with_capacity(tasks_max: usize) -> Self {
        Self {
            kept: Mutex::new(Kept::new(tasks_max)),
            changes: watch::Sender::new(0),
        }
    }

    /// The tasks, as of now.
    fn kept(&self) -> MutexGuard<'_, Kept> {
        let mut kept = self.kept.lock();
        kept.now = kept.now.max(SystemTime::now());
        kept
    }

    /// Does something with the tasks, and tells who follows.
    fn change<T>(&self, change: impl FnOnce(&mut Kept) -> T) -> T {
        let done = change(&mut self.kept());
        self.changes.send_modify(|number| *number += 1);
        done
    }
}

#[async_trait]
impl Tasks for MemoryTasks {
    async fn begin(&self, new: NewTask) -> TaskResult<Begun> {
        self.change(|kept| kept.begin(new, WORKER))
    }

    async fn begin_all(&self, new: Vec<NewTask>) -> TaskResult<Vec<Arc<Task>>> {
        self.change(|kept| kept.begin_all(new))
    }

    async fn step(&self, id: &TaskId, by: By<'_>, steps: Vec<TaskStep>) -> TaskResult<Arc<Task>> {
        self.change(|kept| kept.step(id, by, steps))
    }

    async fn get(&self, id: &TaskId) -> JournalResult<Option<Arc<Task>>> {
        Ok(self.kept.lock().get(id))
    }

    async fn list(
        &self,
        filter: TaskFilter,
        after: u64,
        tasks_max: usize,
    ) -> JournalResult<TaskPage> {
        Ok(self.kept.lock().list(&filter, after, tasks_max))
    }

    async fn events(
        &self,
        id: &TaskId,
        after: u64,
        events_max: usize,
    ) -> JournalResult<Vec<TaskEvent>> {
        Ok(self.kept.lock().events(id, after, events_max))
    }

    async fn claim(&self, claim: Claim) -> JournalResult<Vec<Claimed>> {
        let (claimed, is_news) = self.kept().claim(&claim);
        if is_news {
            self.changes.send_modify(|number| *number += 1);
        }
        Ok(claimed)
    }

    async fn renew(&self, by: &str, lease: Duration) -> JournalResult<u64> {
        Ok(self.kept().renew(by, lease))
    }

    async fn release(&self, lease: &Lease, why: Released) -> JournalResult<()> {
        self.change(|kept| kept.release(lease, why));
        Ok(())
    }

    async fn want_cancel(&self, id: &TaskId, by: By<'_>) -> TaskResult<Arc<Task>> {
        self.change(|kept| kept.want_cancel(id, by))
    }

    async fn forget(&self, id: &TaskId) -> JournalResult<()> {
        self.change(|kept| kept.forget(id));
        Ok(())
    }

    async fn cancels(&self, by: &str) -> JournalResult<Vec<TaskId>> {
        Ok(self.kept.lock().cancels(by))
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn worker(&self) -> &str {
        WORKER
    }
}
