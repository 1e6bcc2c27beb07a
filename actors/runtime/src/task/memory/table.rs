use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use callboard_message::TaskState;

use super::slot::TaskSlot;
use crate::task::{
    ClaimRequest, ClaimedTask, Lease, LeaseView, ReleaseReason, TASK_BYTES_MAX_DEFAULT, Task,
    TaskActor, TaskError, TaskEvent, TaskFilter, TaskId, TaskOwner, TaskPage, TaskResult, TaskStep,
};

type TaskKey = (String, TaskOwner, String);

/// Table of all tasks with its indexes.
pub(super) struct TaskTable {
    pub(super) tasks_max: usize,
    /// Maximum number of stored tasks of one owner, over all scopes.
    pub(super) owner_tasks_max: Option<usize>,
    pub(super) last: u64,
    /// Current time of the store, which never goes back. The system clock may be set back, but
    /// leases must not run longer.
    pub(super) now: SystemTime,
    pub(super) numbers: HashMap<TaskId, u64>,
    pub(super) slots: BTreeMap<u64, TaskSlot>,
    /// Numbers of the tasks that need a task, by the id of the needed task.
    dependents: HashMap<TaskId, BTreeSet<u64>>,
    /// Expiry times of tasks with their numbers, earliest first.
    expiring: BTreeSet<(SystemTime, u64)>,
    pub(super) keys: HashMap<TaskKey, u64>,
    pub(super) count_by_scope: HashMap<String, usize>,
    /// Number of stored tasks by scope and owner.
    pub(super) count_by_owner: HashMap<String, HashMap<TaskOwner, usize>>,
}

impl TaskTable {
    pub(super) fn new(tasks_max: usize) -> Self {
        Self {
            tasks_max,
            owner_tasks_max: None,
            last: 0,
            now: UNIX_EPOCH,
            numbers: HashMap::new(),
            slots: BTreeMap::new(),
            dependents: HashMap::new(),
            expiring: BTreeSet::new(),
            keys: HashMap::new(),
            count_by_scope: HashMap::new(),
            count_by_owner: HashMap::new(),
        }
    }

    /// Inserts a task and its index entries.
    pub(super) fn put(&mut self, number: u64, slot: TaskSlot) {
        for need in &slot.needs {
            self.dependents
                .entry(need.clone())
                .or_default()
                .insert(number);
        }
        self.expiring.insert((slot.task.expires, number));
        self.numbers.insert(slot.task.id.clone(), number);
        self.slots.insert(number, slot);
    }

    /// Removes a task and its index entries, also from the needs of other tasks.
    fn remove_slot(&mut self, id: &TaskId) -> Option<TaskSlot> {
        let number = self.numbers.remove(id)?;
        let slot = self.slots.remove(&number)?;
        self.expiring.remove(&(slot.task.expires, number));
        for other in self.dependents.remove(id).unwrap_or_default() {
            self.slots
                .get_mut(&other)
                .iter_mut()
                .for_each(|other| other.needs.retain(|need| need != id));
        }
        for need in &slot.needs {
            if let Some(numbers) = self.dependents.get_mut(need) {
                numbers.remove(&number);
                if numbers.is_empty() {
                    self.dependents.remove(need);
                }
            }
        }
        Some(slot)
    }

    pub(super) fn slot(&self, id: &TaskId) -> Option<&TaskSlot> {
        self.slots.get(self.numbers.get(id)?)
    }

    pub(super) fn slot_mut(&mut self, id: &TaskId) -> Option<&mut TaskSlot> {
        self.slots.get_mut(self.numbers.get(id)?)
    }

    pub(super) fn task(&self, id: &TaskId) -> Option<&Task> {
        self.slot(id).map(|slot| &*slot.task)
    }

    /// Returns the ids of a parent and a child for each pair that is still open.
    pub(super) fn open_parts(&self) -> impl Iterator<Item = (&TaskId, &TaskId)> {
        let open = self
            .slots
            .values()
            .filter(|slot| !slot.task.state.is_terminal());
        open.filter_map(|slot| {
            let parent = slot.task.parent.as_ref()?;
            self.task(parent)
                .is_some_and(|parent| !parent.state.is_terminal())
                .then_some((parent, &slot.task.id))
        })
    }

    pub(super) fn get(&self, id: &TaskId) -> Option<Arc<Task>> {
        self.slot(id).map(|slot| slot.task.clone())
    }

    pub(super) fn apply(
        &mut self,
        id: &TaskId,
        by: TaskActor<'_>,
        steps: Vec<TaskStep>,
    ) -> TaskResult<Arc<Task>> {
        let now = self.now;
        let slot = self.slot_mut(id).ok_or(TaskError::NotFound)?;
        slot.task.check_allowed(by, &steps)?;
        let largest = steps.iter().map(TaskStep::bytes).max().unwrap_or_default();
        Task::check_bytes(largest)?;
        let task = slot.apply_within(TASK_BYTES_MAX_DEFAULT, steps, now)?;
        if task.state.is_terminal() {
            self.settle_dependents(&task);
        }
        Ok(task)
    }

    /// Ends a task by `step`, and updates the tasks that wait for it. Does nothing if it has ended
    /// already.
    pub(super) fn end(&mut self, id: &TaskId, step: TaskStep) {
        if let Some(ended) = self.end_task(id, step) {
            self.settle_dependents(&ended);
        }
    }

    fn end_task(&mut self, id: &TaskId, step: TaskStep) -> Option<Arc<Task>> {
        let now = self.now;
        self.slot_mut(id)?.apply(vec![step], now).ok()
    }

    /// Updates the tasks that wait for an ended task: those that need it become ready or are
    /// cancelled, and its parent has one open child less.
    fn settle_dependents(&mut self, ended: &Arc<Task>) {
        let (mut all, now) = (VecDeque::from([ended.clone()]), self.now);
        while let Some(ended) = all.pop_front() {
            let needing = self
                .dependents
                .get(&ended.id)
                .into_iter()
                .flatten()
                .filter_map(|number| self.slots.get(number));
            let waits = |slot: &&TaskSlot| !slot.task.state.is_terminal();
            let waiting: Vec<_> = needing
                .filter(waits)
                .map(|slot| slot.task.id.clone())
                .collect();
            for id in waiting {
                if ended.state != TaskState::Completed {
                    all.extend(self.end_task(&id, TaskStep::need_ended(ended.state)));
                } else if let Some(slot) = self.slot_mut(&id) {
                    let task = Arc::make_mut(&mut slot.task);
                    task.pending_needs = task.pending_needs.saturating_sub(1);
                }
            }
            if let Some(slot) = ended
                .parent
                .as_ref()
                .and_then(|parent| self.slot_mut(parent))
            {
                let task = Arc::make_mut(&mut slot.task);
                task.open_children = task.open_children.saturating_sub(1);
                // Fails if the parent has ended, which doesn't matter.
                let _ = slot.apply(vec![TaskStep::part_ended(&ended)], now);
            }
        }
    }

    pub(super) fn list(&self, filter: &TaskFilter, after: u64, tasks_max: usize) -> TaskPage {
        let later = self
            .slots
            .range(after.saturating_add(1)..)
            .map(|(_, slot)| &slot.task);
        let mut left = later.filter(|task| filter.matches(task));
        let page = left.by_ref().take(tasks_max).cloned().collect();
        (page, left.next().is_some())
    }

    pub(super) fn events(&self, id: &TaskId, after: u64, events_max: usize) -> Vec<TaskEvent> {
        let Some(slot) = self.slot(id) else {
            return Vec::new();
        };
        let later = slot
            .events
            .iter()
            .zip(1..)
            .skip(usize::try_from(after).unwrap_or(usize::MAX));
        later
            .take(events_max)
            .map(|(event, number)| event.expand(&slot.task, number))
            .collect()
    }

    pub(super) fn lease(&mut self, id: &TaskId, by: &str, lease: Duration) -> Lease {
        let (mut epoch, until) = (0, self.now + lease);
        if let Some(slot) = self.slot_mut(id) {
            slot.epoch += 1;
            epoch = slot.epoch;
            Arc::make_mut(&mut slot.task).set_lease(LeaseView {
                worker: by.to_owned(),
                epoch,
                until,
            });
        }
        Lease {
            task: id.clone(),
            worker: by.to_owned(),
            epoch,
        }
    }

    /// Claims ready tasks. Also returns true if any task has changed; otherwise no reader is
    /// notified, so that a worker woken by a change doesn't wake itself.
    pub(super) fn claim(&mut self, claim: &ClaimRequest) -> (Vec<ClaimedTask>, bool) {
        let now = self.now;
        let is_ready = |slot: &&TaskSlot| {
            let task = &slot.task;
            task.scope == claim.scope
                && task.is_ready(now)
                && !claim.except_owners.contains(&task.owner)
        };
        let ready: Vec<_> = self
            .slots
            .values()
            .filter(is_ready)
            .map(|slot| slot.task.clone())
            .collect();
        let is_news = !ready.is_empty();
        let mut claimed = Vec::new();
        for task in ready {
            if claimed.len() >= claim.tasks_max {
                break;
            }
            let steps = if task.lease.is_some() || task.cancel_requested {
                task.recovery_steps()
            } else {
                Vec::new()
            };
            if let Some(end) = steps.iter().find(|step| step.is_end()) {
                self.end(&task.id, end.clone());
                continue;
            }
            // The end of an earlier one may have ended this task.
            let Some(slot) = self
                .slot_mut(&task.id)
                .filter(|slot| slot.task.is_ready(now))
            else {
                continue;
            };
            if slot.apply(steps, now).is_err() {
                continue;
            }
            let lease = self.lease(&task.id, &claim.worker, claim.lease);
            claimed.extend(self.get(&task.id).map(|task| (task, lease)));
        }
        (claimed, is_news)
    }

    pub(super) fn renew(&mut self, by: &str, lease: Duration) -> u64 {
        let (until, mut renewed) = (self.now + lease, 0);
        for slot in self.slots.values_mut() {
            if slot
                .task
                .lease
                .as_ref()
                .is_some_and(|lease| lease.worker == by && lease.until > LeaseView::RELEASED)
            {
                Arc::make_mut(&mut slot.task)
                    .lease
                    .iter_mut()
                    .for_each(|lease| lease.until = until);
                renewed += 1;
            }
        }
        renewed
    }

    pub(super) fn release(&mut self, lease: &Lease, why: ReleaseReason) {
        let Some(slot) = self
            .slot_mut(&lease.task)
            .filter(|slot| slot.task.is_held_by(lease))
        else {
            return;
        };
        let task = Arc::make_mut(&mut slot.task);
        match why {
            ReleaseReason::Waiting => task.lease = None,
            ReleaseReason::Interrupted => task
                .lease
                .iter_mut()
                .for_each(|lease| lease.until = LeaseView::RELEASED),
        }
        if task.cancel_requested {
            self.end(&lease.task, TaskStep::cancelled());
        }
    }

    pub(super) fn request_cancel(
        &mut self,
        id: &TaskId,
        by: TaskActor<'_>,
    ) -> TaskResult<Arc<Task>> {
        let now = self.now;
        self.task(id)
            .ok_or(TaskError::NotFound)?
            .check_cancel_allowed(by)?;
        let mut family = vec![id.clone()];
        let mut at = 0;
        while let Some(parent) = family.get(at).cloned() {
            let parts = self
                .slots
                .values()
                .filter(|slot| slot.task.parent.as_ref() == Some(&parent));
            family.extend(parts.map(|slot| slot.task.id.clone()));
            at += 1;
        }
        // Children first: the parent must have no open children when it ends.
        for id in family.iter().rev() {
            let Some(slot) = self
                .slot_mut(id)
                .filter(|slot| !slot.task.state.is_terminal())
            else {
                continue;
            };
            if slot
                .task
                .lease
                .as_ref()
                .is_some_and(|lease| lease.until > now)
            {
                Arc::make_mut(&mut slot.task).cancel_requested = true;
            } else {
                self.end(id, TaskStep::cancelled());
            }
        }
        self.get(id).ok_or(TaskError::NotFound)
    }

    pub(super) fn cancel_requests(&self, by: &str) -> Vec<TaskId> {
        let wanted = self
            .slots
            .values()
            .filter(|slot| slot.task.cancel_requested);
        let its = wanted.filter(|slot| {
            slot.task
                .lease
                .as_ref()
                .is_some_and(|lease| lease.worker == by)
        });
        its.map(|slot| slot.task.id.clone()).collect()
    }

    pub(super) fn delete(&mut self, id: &TaskId) {
        self.end(id, TaskStep::cancelled());
        let Some(slot) = self.remove_slot(id) else {
            return;
        };
        let task = &slot.task;
        if let Some(key) = task.key.clone() {
            self.keys
                .remove(&(task.scope.clone(), task.owner.clone(), key));
        }
        decrement(&mut self.count_by_scope, &task.scope);
        if let Some(owners) = self.count_by_owner.get_mut(&task.scope) {
            decrement(owners, &task.owner);
            if owners.is_empty() {
                self.count_by_owner.remove(&task.scope);
            }
        }
    }

    pub(super) fn delete_ended(
        &mut self,
        scope: &str,
        owner: &TaskOwner,
        tasks_max: usize,
    ) -> usize {
        let tasks = self.slots.values().map(|slot| &slot.task);
        let ended = tasks
            .filter(|task| task.state.is_terminal() && task.owner == *owner && task.scope == scope);
        let ended: Vec<_> = ended.take(tasks_max).map(|task| task.id.clone()).collect();
        ended.iter().for_each(|id| self.delete(id));
        ended.len()
    }

    pub(super) fn delete_expired(&mut self) {
        let expired = self
            .expiring
            .range(..=(self.now, u64::MAX))
            .filter_map(|(_, number)| self.slots.get(number));
        let ended = expired.filter(|slot| slot.task.state.is_terminal());
        let expired: Vec<_> = ended.map(|slot| slot.task.id.clone()).collect();
        expired.iter().for_each(|id| self.delete(id));
    }
}

fn decrement<K: Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(key);
        }
    }
}

/// Increments the count of `key`, which is cloned only if it is new.
pub(super) fn increment<K: Clone + Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) {
    match counts.get_mut(key) {
        Some(count) => *count += 1,
        None => drop(counts.insert(key.clone(), 1)),
    }
}
