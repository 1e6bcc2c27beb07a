//! Stored tasks, as the console shows them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use callboard_runtime::{JournalResult, Task, TaskFilter, TaskId, TaskStore, visible};

use super::cache::CachedList;
use super::request::ConsoleError;
use crate::monitor::unix_ms;
use crate::monitor::view::TaskView;

/// Maximum number of tasks in a list: the newest ones.
pub(super) const TASKS_SHOWN_MAX: usize = 500;
/// Maximum number of parts of a task that are shown.
const TASK_PARTS_MAX: usize = 200;
/// Maximum number of reads of the store for the parts of a task. Parts of further parts are left out.
const PART_READS_MAX: usize = 16;
/// Number of tasks that a list examines: the latest, in order of creation.
const TASKS_SCANNED_MAX: u64 = 20_000;
/// Number of tasks that are read from the store at once.
const TASK_PAGE: u16 = 500;
/// Time since its latest change for which a task is listed.
const TASK_TIME: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Newest tasks of a store.
#[derive(Default)]
pub(super) struct NewestTasks {
    list: CachedList<TaskView>,
    /// Highest number of a task at the latest reading; 0 before it.
    last_number: AtomicU64,
}

impl NewestTasks {
    /// Returns the tasks that changed within the last week, newest first, at most [`TASKS_SHOWN_MAX`].
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn get(&self, store: &dyn TaskStore) -> JournalResult<Arc<Vec<TaskView>>> {
        self.list.get(self.read(store)).await
    }

    /// Forgets the list, so that it is read again.
    pub(super) async fn clear(&self) {
        self.list.clear().await;
    }

    async fn read(&self, store: &dyn TaskStore) -> JournalResult<Vec<TaskView>> {
        let last = last_number(store, self.last_number.load(Ordering::Relaxed)).await?;
        self.last_number.store(last, Ordering::Relaxed);
        let since = SystemTime::now()
            .checked_sub(TASK_TIME)
            .unwrap_or(UNIX_EPOCH);
        let first = last.saturating_sub(TASKS_SCANNED_MAX);
        let (mut found, mut end) = (Vec::new(), last);
        while end > first && found.len() < TASKS_SHOWN_MAX {
            let before = end.saturating_sub(u64::from(TASK_PAGE)).max(first);
            let page = read_numbers(store, before, end, since).await?;
            found.extend(page.into_iter().rev());
            end = before;
        }
        found.truncate(TASKS_SHOWN_MAX);
        Ok(found)
    }
}

/// Returns the tasks with numbers above `before` up to `end` that changed since a time, in order of creation.
async fn read_numbers(
    store: &dyn TaskStore,
    before: u64,
    end: u64,
    since: SystemTime,
) -> JournalResult<Vec<TaskView>> {
    let (mut found, mut after) = (Vec::new(), before);
    while after < end {
        let page = store
            .list(TaskFilter::default(), after, usize::from(TASK_PAGE))
            .await;
        let (page, is_more) = page?;
        let shown = |task: &&Arc<Task>| task.number <= end && task.updated >= since;
        found.extend(page.iter().filter(shown).map(|task| task_view(task)));
        match page.last() {
            Some(last) if is_more => after = last.number,
            _ => break,
        }
    }
    Ok(found)
}

/// Returns the highest number of a task; `known` if none is above. Stores list upwards only, so numbers are tried: in
/// growing steps as long as there are tasks above, then in smaller ones.
async fn last_number(store: &dyn TaskStore, known: u64) -> JournalResult<u64> {
    let (mut last, mut step) = (known, 1_u64);
    while let Some(number) = number_above(store, last.saturating_add(step)).await? {
        last = number;
        step = step.saturating_mul(2);
    }
    while step > 0 {
        step /= 2;
        let number = number_above(store, last.saturating_add(step)).await?;
        last = number.unwrap_or(last);
    }
    Ok(last)
}

async fn number_above(store: &dyn TaskStore, after: u64) -> JournalResult<Option<u64>> {
    let (page, _) = store.list(TaskFilter::default(), after, 1).await?;
    Ok(page.first().map(|task| task.number))
}

/// Returns a task with its parts, those of one task in order of creation, at most [`TASK_PARTS_MAX`].
///
/// # Errors
/// 404 if there is no such task; those of the store.
pub(super) async fn task_with_parts(
    store: &dyn TaskStore,
    id: &str,
) -> Result<(TaskView, Vec<TaskView>), ConsoleError> {
    let unknown = || ConsoleError::not_found("there is no such task, or it isn't kept any more");
    let id = TaskId::new(id).map_err(|_| unknown())?;
    let task = store.get(&id).await;
    let task = task.map_err(ConsoleError::of_store)?.ok_or_else(unknown)?;
    let mut parts: Vec<TaskView> = Vec::new();
    // Parts of parts too, level by level.
    let mut parents = VecDeque::from([(id, 0)]);
    for _ in 0..PART_READS_MAX {
        let left = TASK_PARTS_MAX - parts.len();
        let Some((parent, after)) = parents.pop_front().filter(|_| left > 0) else {
            break;
        };
        let filter = TaskFilter {
            parent: Some(parent.clone()),
            ..TaskFilter::default()
        };
        let page = store.list(filter, after, left).await;
        let (page, is_more) = page.map_err(ConsoleError::of_store)?;
        parts.extend(page.iter().map(|task| task_view(task)));
        if let Some(last) = page.last().filter(|_| is_more) {
            parents.push_front((parent, last.number));
        }
        parents.extend(page.iter().map(|task| (task.id.clone(), 0)));
    }
    Ok((task_view(&task), parts))
}

fn task_view(task: &Task) -> TaskView {
    let parent = task.parent_id().map(|id| id.as_str().to_owned());
    TaskView {
        id: task.id.as_str().to_owned(),
        parent: parent.unwrap_or_default(),
        agent: visible(&task.agent),
        owner: visible(task.owner.as_str()),
        state: task.state.as_str().to_owned(),
        created_ms: unix_ms(task.created),
        changed_ms: unix_ms(task.updated),
    }
}

#[cfg(test)]
mod tests {
    use callboard_message::Principal;
    use callboard_runtime::{MemoryTaskStore, NewTask};

    use super::*;

    async fn create(store: &MemoryTaskStore, parent: Option<&TaskId>) -> TaskId {
        let expires = SystemTime::now() + Duration::from_secs(3_600);
        let new = NewTask {
            parent: parent.cloned(),
            ..NewTask::new(Principal::agent("a"), "agent", "message", expires)
        };
        let id = new.id.clone();
        store.create(new).await.unwrap();
        id
    }

    /// Goal: the highest number is found from any number that was it before. Method: a store that grows, asked each time and
    /// from the beginning.
    #[tokio::test]
    async fn the_highest_number_is_found() {
        let (store, mut known) = (MemoryTaskStore::with_capacity(100), 0);
        assert_eq!(last_number(&store, 0).await.unwrap(), 0);
        for _ in 0..70 {
            let id = create(&store, None).await;
            let number = store.get(&id).await.unwrap().unwrap().number;
            assert_eq!(last_number(&store, 0).await.unwrap(), number);
            known = last_number(&store, known).await.unwrap();
            assert_eq!(known, number);
        }
    }

    /// Goal: a list has the newest tasks, newest first, and not more than its limit. Method: more tasks than that.
    #[tokio::test]
    async fn the_newest_tasks_are_listed() {
        let store = MemoryTaskStore::with_capacity(3 * TASKS_SHOWN_MAX);
        let mut ids = Vec::new();
        for _ in 0..2 * TASKS_SHOWN_MAX + 7 {
            ids.push(create(&store, None).await);
        }
        let tasks = NewestTasks::default();
        let listed = tasks.get(&store).await.unwrap();
        let listed: Vec<&str> = listed.iter().map(|task| &*task.id).collect();
        let newest = ids.iter().rev().take(TASKS_SHOWN_MAX);
        assert_eq!(listed, newest.map(TaskId::as_str).collect::<Vec<_>>());
        let one = create(&store, None).await;
        tasks.clear().await;
        assert_eq!(tasks.get(&store).await.unwrap()[0].id, one.as_str());
    }

    /// Goal: the parts of a task are found with few reads, those of its own parts too. Method: a plan with a part of a part,
    /// and one with more parts than are shown.
    #[tokio::test]
    async fn parts_of_a_task() {
        let store = MemoryTaskStore::with_capacity(1_000);
        let plan = create(&store, None).await;
        let part = create(&store, Some(&plan)).await;
        let below = create(&store, Some(&part)).await;
        let (task, parts) = task_with_parts(&store, plan.as_str()).await.unwrap();
        assert_eq!(task.id, plan.as_str());
        let ids: Vec<&str> = parts.iter().map(|part| &*part.id).collect();
        assert_eq!(ids, [part.as_str(), below.as_str()]);
        for _ in 0..TASK_PARTS_MAX {
            create(&store, Some(&plan)).await;
        }
        let (_, parts) = task_with_parts(&store, plan.as_str()).await.unwrap();
        assert_eq!(parts.len(), TASK_PARTS_MAX);
    }
}
