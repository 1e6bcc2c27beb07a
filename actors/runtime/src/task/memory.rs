//! Tasks in memory: they end with the process.

mod begin;
mod graph;
mod kept;
mod slot;
#[cfg(test)]
mod tests;

use std::future::ready;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::future::BoxFuture;
use tokio::sync::watch;

use super::{
    Begun, By, Claim, Claimed, Lease, NewTask, Released, Task, TaskError, TaskEvent, TaskFilter, TaskId, TaskPage,
    TaskStep, Tasks,
};
use crate::journal::JournalError;
use crate::sync::Mutex;
use kept::Kept;

/// Tasks that [`MemoryTasks`] holds, by default.
pub const MEMORY_TASKS_MAX_DEFAULT: usize = 10_000;
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

    /// Does something with the tasks, at a time, and tells who follows.
    fn change<T>(&self, change: impl FnOnce(&mut Kept, SystemTime) -> T) -> BoxFuture<'_, T>
    where
        T: Send + 'static,
    {
        let done = change(&mut self.kept.lock(), SystemTime::now());
        self.changes.send_modify(|number| *number += 1);
        Box::pin(ready(done))
    }
}

impl Tasks for MemoryTasks {
    fn begin(&self, new: NewTask) -> BoxFuture<'_, Result<Begun, TaskError>> {
        self.change(|kept, now| kept.begin(new, WORKER, now))
    }

    fn begin_all(&self, new: Vec<NewTask>) -> BoxFuture<'_, Result<Vec<Arc<Task>>, TaskError>> {
        self.change(|kept, now| kept.begin_all(new, now))
    }

    fn step<'a>(
        &'a self,
        id: &'a TaskId,
        by: By<'a>,
        steps: Vec<TaskStep>,
    ) -> BoxFuture<'a, Result<Arc<Task>, TaskError>> {
        self.change(|kept, now| kept.step(id, by, steps, now))
    }

    fn get<'a>(&'a self, id: &'a TaskId) -> BoxFuture<'a, Result<Option<Arc<Task>>, JournalError>> {
        Box::pin(ready(Ok(self.kept.lock().get(id))))
    }

    fn list(&self, filter: TaskFilter, after: u64, tasks_max: usize) -> BoxFuture<'_, Result<TaskPage, JournalError>> {
        Box::pin(ready(Ok(self.kept.lock().list(&filter, after, tasks_max))))
    }

    fn events<'a>(
        &'a self,
        id: &'a TaskId,
        after: u64,
        events_max: usize,
    ) -> BoxFuture<'a, Result<Vec<TaskEvent>, JournalError>> {
        Box::pin(ready(Ok(self.kept.lock().events(id, after, events_max))))
    }

    fn claim(&self, claim: Claim) -> BoxFuture<'_, Result<Vec<Claimed>, JournalError>> {
        let (claimed, is_news) = self.kept.lock().claim(&claim, SystemTime::now());
        if is_news {
            self.changes.send_modify(|number| *number += 1);
        }
        Box::pin(ready(Ok(claimed)))
    }

    fn renew<'a>(&'a self, by: &'a str, lease: Duration) -> BoxFuture<'a, Result<u64, JournalError>> {
        Box::pin(ready(Ok(self.kept.lock().renew(by, lease, SystemTime::now()))))
    }

    fn release<'a>(&'a self, lease: &'a Lease, why: Released) -> BoxFuture<'a, Result<(), JournalError>> {
        self.change(|kept, now| {
            kept.release(lease, why, now);
            Ok(())
        })
    }

    fn want_cancel<'a>(&'a self, id: &'a TaskId, by: By<'a>) -> BoxFuture<'a, Result<Arc<Task>, TaskError>> {
        self.change(|kept, now| kept.want_cancel(id, by, now))
    }

    fn forget<'a>(&'a self, id: &'a TaskId) -> BoxFuture<'a, Result<(), JournalError>> {
        self.change(|kept, now| {
            kept.forget(id, now);
            Ok(())
        })
    }

    fn cancels<'a>(&'a self, by: &'a str) -> BoxFuture<'a, Result<Vec<TaskId>, JournalError>> {
        Box::pin(ready(Ok(self.kept.lock().cancels(by))))
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn worker(&self) -> &str {
        WORKER
    }
}
