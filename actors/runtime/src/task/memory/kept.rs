use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use callboard_message::TaskState;

use super::slot::Slot;
use crate::task::{
    By, Claim, Claimed, Lease, LeaseView, Released, TASK_BYTES_MAX_DEFAULT, Task, TaskError,
    TaskEvent, TaskFilter, TaskId, TaskOwner, TaskPage, TaskResult, TaskStep,
};

type Key = (String, TaskOwner, String);

/// All tasks.
pub(super) struct Kept {
    pub(super) tasks_max: usize,
    pub(super) last: u64,
    /// The time, which never runs back: clocks are set back; leases aren't.
    pub(super) now: SystemTime,
    pub(super) numbers: HashMap<TaskId, u64>,
    pub(super) slots: BTreeMap<u64, Slot>,
    /// Who needs a task: the numbers of those whose slots say so.
    needed: HashMap<TaskId, BTreeSet<u64>>,
    /// When each may be forgotten, the earliest first.
    expiring: BTreeSet<(SystemTime, u64)>,
    pub(super) keys: HashMap<Key, u64>,
    pub(super) of_scope: HashMap<String, usize>,
    /// Of each scope.
    pub(super) of_owner: HashMap<String, HashMap<TaskOwner, usize>>,
}

impl Kept {
    pub(super) fn new(tasks_max: usize) -> Self {
        Self {
            tasks_max,
            last: 0,
            now: UNIX_EPOCH,
            numbers: HashMap::new(),
            slots: BTreeMap::new(),
            needed: HashMap::new(),
            expiring: BTreeSet::new(),
            keys: HashMap::new(),
            of_scope: HashMap::new(),
            of_owner: HashMap::new(),
        }
    }

    /// A slot in its place.
    pub(super) fn put(&mut self, number: u64, slot: Slot) {
        for need in &slot.needs {
            self.needed.entry(need.clone()).or_default().insert(number);
        }
        self.expiring.insert((slot.task.expires, number));
        self.numbers.insert(slot.task.id.clone(), number);
        self.slots.insert(number, slot);
    }

    /// Takes a slot out of its place, and out of what others need.
    fn take_out(&mut self, id: &TaskId) -> Option<Slot> {
        let number = self.numbers.remove(id)?;
        let slot = self.slots.remove(&number)?;
        self.expiring.remove(&(slot.task.expires, number));
        for other in self.needed.remove(id).unwrap_or_default() {
            self.slots
                .get_mut(&other)
                .iter_mut()
                .for_each(|other| other.needs.retain(|need| need != id));
        }
        for need in &slot.needs {
            if let Some(numbers) = self.needed.get_mut(need) {
                numbers.remove(&number);
                if numbers.is_empty() {
                    self.needed.remove(need);
                }
            }
        }
        Some(slot)
    }

    pub(super) fn slot(&self, id: &TaskId) -> Option<&Slot> {
        self.slots.get(self.numbers.get(id)?)
    }

    pub(super) fn slot_mut(&mut self, id: &TaskId) -> Option<&mut Slot> {
        self.slots.get_mut(self.numbers.get(id)?)
    }

    pub(super) fn task(&self, id: &TaskId) -> Option<&Task> {
        self.slot(id).map(|slot| &*slot.task)
    }

    /// Tasks that have not ended, each after its parent that hasn't either: what has ended waits for nobody.
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

    pub(super) fn step(
        &mut self,
        id: &TaskId,
        by: By<'_>,
        steps: Vec<TaskStep>,
    ) -> TaskResult<Arc<Task>> {
        let now = self.now;
        let slot = self.slot_mut(id).ok_or(TaskError::NotFound)?;
        slot.task.allows(by, &steps)?;
        let largest = steps.iter().map(TaskStep::bytes).max().unwrap_or_default();
        Task::check_bytes(largest)?;
        let task = slot.take_within(TASK_BYTES_MAX_DEFAULT, steps, now)?;
        if task.state.is_terminal() {
            self.settle(&task);
        }
        Ok(task)
    }

    /// Takes a step that ends a task, unless it has ended, and tells those who wait for it.
    pub(super) fn end(&mut self, id: &TaskId, step: TaskStep) {
        if let Some(ended) = self.ended_by(id, step) {
            self.settle(&ended);
        }
    }

    fn ended_by(&mut self, id: &TaskId, step: TaskStep) -> Option<Arc<Task>> {
        let now = self.now;
        self.slot_mut(id)?.take(vec![step], now).ok()
    }

    /// A task has ended: those who need it go on, or end with it, and its parent has a part less.
    fn settle(&mut self, ended: &Arc<Task>) {
        let (mut all, now) = (VecDeque::from([ended.clone()]), self.now);
        while let Some(ended) = all.pop_front() {
            let needing = self
                .needed
                .get(&ended.id)
                .into_iter()
                .flatten()
                .filter_map(|number| self.slots.get(number));
            let waits = |slot: &&Slot| !slot.task.state.is_terminal();
            let waiting: Vec<_> = needing
                .filter(waits)
                .map(|slot| slot.task.id.clone())
                .collect();
            for id in waiting {
                if ended.state != TaskState::Completed {
                    all.extend(self.ended_by(&id, TaskStep::need_ended(ended.state)));
                } else if let Some(slot) = self.slot_mut(&id) {
                    let task = Arc::make_mut(&mut slot.task);
                    task.waiting = task.waiting.saturating_sub(1);
                }
            }
            if let Some(slot) = ended
                .parent
                .as_ref()
                .and_then(|parent| self.slot_mut(parent))
            {
                let task = Arc::make_mut(&mut slot.task);
                task.children_open = task.children_open.saturating_sub(1);
                // A parent that has ended says no more.
                let _ = slot.take(vec![TaskStep::part_ended(&ended)], now);
            }
        }
    }

    pub(super) fn list(&self, filter: &TaskFilter, after: u64, tasks_max: usize) -> TaskPage {
        let later = self
            .slots
            .range(after.saturating_add(1)..)
            .map(|(_, slot)| &slot.task);
        let mut left = later.filter(|task| filter.leaves(task));
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
            .map(|(event, number)| event.of(&slot.task, number))
            .collect()
    }

    pub(super) fn lease(&mut self, id: &TaskId, by: &str, lease: Duration) -> Lease {
        let (mut epoch, until) = (0, self.now + lease);
        if let Some(slot) = self.slot_mut(id) {
            slot.epoch += 1;
            epoch = slot.epoch;
            Arc::make_mut(&mut slot.task).lease = Some(LeaseView {
                by: by.to_owned(),
                epoch,
                until,
            });
        }
        Lease {
            task: id.clone(),
            by: by.to_owned(),
            epoch,
        }
    }

    /// Work, and whether anything has changed: whoever looks for work when something did must not wake itself.
    pub(super) fn claim(&mut self, claim: &Claim) -> (Vec<Claimed>, bool) {
        let now = self.now;
        let is_ready = |slot: &&Slot| slot.task.scope == claim.scope && slot.task.is_ready(now);
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
            let steps = if task.lease.is_some() || task.cancel_wanted {
                task.recovery()
            } else {
                Vec::new()
            };
            if let Some(end) = steps.iter().find(|step| step.is_end()) {
                self.end(&task.id, end.clone());
                continue;
            }
            // With those before it another may have ended.
            let Some(slot) = self
                .slot_mut(&task.id)
                .filter(|slot| slot.task.is_ready(now))
            else {
                continue;
            };
            if slot.take(steps, now).is_err() {
                continue;
            }
            let lease = self.lease(&task.id, &claim.by, claim.lease);
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
                .is_some_and(|lease| lease.by == by && lease.until > UNIX_EPOCH)
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

    pub(super) fn release(&mut self, lease: &Lease, why: Released) {
        let Some(slot) = self
            .slot_mut(&lease.task)
            .filter(|slot| slot.task.is_held_by(lease))
        else {
            return;
        };
        let task = Arc::make_mut(&mut slot.task);
        match why {
            Released::Waits => task.lease = None,
            Released::Interrupted => task
                .lease
                .iter_mut()
                .for_each(|lease| lease.until = UNIX_EPOCH),
        }
        if task.cancel_wanted {
            self.end(&lease.task, TaskStep::cancelled());
        }
    }

    pub(super) fn want_cancel(&mut self, id: &TaskId, by: By<'_>) -> TaskResult<Arc<Task>> {
        let now = self.now;
        self.task(id)
            .ok_or(TaskError::NotFound)?
            .allows_cancel(by)?;
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
        // Parts first: their parent has none left when it ends.
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
                Arc::make_mut(&mut slot.task).cancel_wanted = true;
            } else {
                self.end(id, TaskStep::cancelled());
            }
        }
        self.get(id).ok_or(TaskError::NotFound)
    }

    pub(super) fn cancels(&self, by: &str) -> Vec<TaskId> {
        let wanted = self.slots.values().filter(|slot| slot.task.cancel_wanted);
        let its =
            wanted.filter(|slot| slot.task.lease.as_ref().is_some_and(|lease| lease.by == by));
        its.map(|slot| slot.task.id.clone()).collect()
    }

    pub(super) fn forget(&mut self, id: &TaskId) {
        self.end(id, TaskStep::cancelled());
        let Some(slot) = self.take_out(id) else {
            return;
        };
        let task = &slot.task;
        if let Some(key) = task.key.clone() {
            self.keys
                .remove(&(task.scope.clone(), task.owner.clone(), key));
        }
        one_less(&mut self.of_scope, &task.scope);
        if let Some(owners) = self.of_owner.get_mut(&task.scope) {
            one_less(owners, &task.owner);
            if owners.is_empty() {
                self.of_owner.remove(&task.scope);
            }
        }
    }

    pub(super) fn forget_expired(&mut self) {
        let expired = self
            .expiring
            .range(..=(self.now, u64::MAX))
            .filter_map(|(_, number)| self.slots.get(number));
        let ended = expired.filter(|slot| slot.task.state.is_terminal());
        let expired: Vec<_> = ended.map(|slot| slot.task.id.clone()).collect();
        expired.iter().for_each(|id| self.forget(id));
    }
}

fn one_less<K: Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(key);
        }
    }
}

/// Counts one more of `key`, which is copied only where it is new.
pub(super) fn one_more<K: Clone + Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) {
    match counts.get_mut(key) {
        Some(count) => *count += 1,
        None => drop(counts.insert(key.clone(), 1)),
    }
}
