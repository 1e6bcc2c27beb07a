//! Where tasks are kept.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::{BoxFuture, FutureExt, ready};

use super::record::{Owner, TaskRecord};

/// Why a task isn't kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum StoreError {
    /// Wait until tasks have ended and their time is over.
    #[error("too many tasks are kept: try again later")]
    Full,
}

/// Keeps tasks; each is written anew, whole, at every step. What is put is there when the future ends: a store on a
/// journal answers after its commit.
pub(crate) trait TaskStore: Send + Sync {
    /// Keeps a task that wasn't there.
    ///
    /// # Errors
    /// [`StoreError::Full`].
    fn begin(&self, task: Arc<TaskRecord>) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Puts a task in the place of the one with its id; nothing where there is none any more.
    fn put(&self, task: Arc<TaskRecord>) -> BoxFuture<'_, ()>;

    /// A task by its id.
    fn get<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Option<Arc<TaskRecord>>>;

    /// The first `items_max` tasks of an owner whose number is over `after`, in order, and whether there are more.
    fn page<'a>(
        &'a self,
        owner: &'a Owner,
        after: u64,
        items_max: usize,
    ) -> BoxFuture<'a, (Vec<Arc<TaskRecord>>, bool)>;

    /// Forgets a task.
    fn remove<'a>(&'a self, id: &'a str) -> BoxFuture<'a, ()>;
}

/// Tasks in memory: they end with the process.
pub(crate) struct MemoryTasks {
    tasks_max: usize,
    of_owner_max: usize,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    numbers: HashMap<String, u64>,
    in_order: BTreeMap<u64, Arc<TaskRecord>>,
    of_owner: HashMap<Owner, usize>,
}

impl MemoryTasks {
    pub(crate) fn new(tasks_max: usize, of_owner_max: usize) -> Self {
        Self { tasks_max, of_owner_max, kept: Mutex::default() }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert(&self, task: Arc<TaskRecord>) -> Result<(), StoreError> {
        let mut kept = self.kept();
        let of_owner = kept.of_owner.get(&task.owner).copied().unwrap_or_default();
        if kept.in_order.len() >= self.tasks_max || of_owner >= self.of_owner_max {
            return Err(StoreError::Full);
        }
        kept.of_owner.insert(task.owner.clone(), of_owner + 1);
        kept.numbers.insert(task.id.clone(), task.number);
        kept.in_order.insert(task.number, task);
        Ok(())
    }

    fn forget(&self, id: &str) {
        let mut kept = self.kept();
        let Some(number) = kept.numbers.remove(id) else { return };
        let Some(task) = kept.in_order.remove(&number) else { return };
        let left = kept.of_owner.get(&task.owner).map_or(0, |n| n.saturating_sub(1));
        match left {
            0 => drop(kept.of_owner.remove(&task.owner)),
            left => drop(kept.of_owner.insert(task.owner.clone(), left)),
        }
    }
}

impl TaskStore for MemoryTasks {
    fn begin(&self, task: Arc<TaskRecord>) -> BoxFuture<'_, Result<(), StoreError>> {
        ready(self.insert(task)).boxed()
    }

    fn put(&self, task: Arc<TaskRecord>) -> BoxFuture<'_, ()> {
        if let Some(kept) = self.kept().in_order.get_mut(&task.number) {
            *kept = task;
        }
        ready(()).boxed()
    }

    fn get<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Option<Arc<TaskRecord>>> {
        let kept = self.kept();
        ready(kept.numbers.get(id).and_then(|number| kept.in_order.get(number).cloned())).boxed()
    }

    fn page<'a>(
        &'a self,
        owner: &'a Owner,
        after: u64,
        items_max: usize,
    ) -> BoxFuture<'a, (Vec<Arc<TaskRecord>>, bool)> {
        let kept = self.kept();
        let mut theirs = kept.in_order.range(after.saturating_add(1)..).map(|(_, t)| t).filter(|t| t.owner == *owner);
        let page: Vec<_> = theirs.by_ref().take(items_max).cloned().collect();
        let more = theirs.next().is_some();
        ready((page, more)).boxed()
    }

    fn remove<'a>(&'a self, id: &'a str) -> BoxFuture<'a, ()> {
        self.forget(id);
        ready(()).boxed()
    }
}
