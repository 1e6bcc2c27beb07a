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
    Begun, By, Claim, Claimed, Lease, NewTask, Released, Task, TaskError, TaskEvent, TaskFilter, TaskId, TaskPage,
    TaskStep, Tasks,
};
use crate::journal::JournalError;
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
        Self { kept: Mutex::new(Kept::new(tasks_max)), changes: watch::Sender::new(0) }
    }

    /// The tasks, and the time for them.
    fn now(&self) -> (MutexGuard<'_, Kept>, SystemTime) {
        let mut kept = self.kept.lock();
        let now = kept.now(SystemTime::now());
        (kept, now)
    }

    /// Does something with the tasks, at a time, and tells who follows.
    fn change<T>(&self, change: impl FnOnce(&mut Kept, SystemTime) -> T) -> T {
        let (mut kept, now) = self.now();
        let done = change(&mut kept, now);
        drop(kept);
        self.changes.send_modify(|number| *number += 1);
        done
    }
}

#[async_trait]
impl Tasks for MemoryTasks {
    async fn begin(&self, new: NewTask) -> Result<Begun, TaskError> {
        self.change(|kept, now| kept.begin(new, WORKER, now))
    }

    async fn begin_all(&self, new: Vec<NewTask>) -> Result<Vec<Arc<Task>>, TaskError> {
        self.change(|kept, now| kept.begin_all(new, now))
    }

    async fn step(&self, id: &TaskId, by: By<'_>, steps: Vec<TaskStep>) -> Result<Arc<Task>, TaskError> {
        self.change(|kept, now| kept.step(id, by, steps, now))
    }

    async fn get(&self, id: &TaskId) -> Result<Option<Arc<Task>>, JournalError> {
        Ok(self.kept.lock().get(id))
    }

    async fn list(&self, filter: TaskFilter, after: u64, tasks_max: usize) -> Result<TaskPage, JournalError> {
        Ok(self.kept.lock().list(&filter, after, tasks_max))
    }

    async fn events(&self, id: &TaskId, after: u64, events_max: usize) -> Result<Vec<TaskEvent>, JournalError> {
        Ok(self.kept.lock().events(id, after, events_max))
    }

    async fn claim(&self, claim: Claim) -> Result<Vec<Claimed>, JournalError> {
        let (mut kept, now) = self.now();
        let (claimed, is_news) = kept.claim(&claim, now);
        drop(kept);
        if is_news {
            self.changes.send_modify(|number| *number += 1);
        }
        Ok(claimed)
    }

    async fn renew(&self, by: &str, lease: Duration) -> Result<u64, JournalError> {
        let (mut kept, now) = self.now();
        Ok(kept.renew(by, lease, now))
    }

    async fn release(&self, lease: &Lease, why: Released) -> Result<(), JournalError> {
        self.change(|kept, now| kept.release(lease, why, now));
        Ok(())
    }

    async fn want_cancel(&self, id: &TaskId, by: By<'_>) -> Result<Arc<Task>, TaskError> {
        self.change(|kept, now| kept.want_cancel(id, by, now))
    }

    async fn forget(&self, id: &TaskId) -> Result<(), JournalError> {
        self.change(|kept, now| kept.forget(id, now));
        Ok(())
    }

    async fn cancels(&self, by: &str) -> Result<Vec<TaskId>, JournalError> {
        Ok(self.kept.lock().cancels(by))
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn worker(&self) -> &str {
        WORKER
    }
}
