use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use callboard_message::TaskState;

use super::graph::Graph;
use crate::journal::JournalError;
use crate::task::{
    Begun, By, Claim, Lease, LeaseView, NewTask, Released, TASK_BYTES_MAX_DEFAULT, TASK_LEASE, TASKS_AT_ONCE_MAX, Task,
    TaskError, TaskEvent, TaskFilter, TaskId, TaskOwner, TaskStep,
};

/// What is kept of a task.
struct Slot {
    task: Arc<Task>,
    events: Vec<TaskEvent>,
    /// What it was begun with: see [`NewTask::asked`].
    asked: Vec<u8>,
    /// Of its latest lease.
    epoch: u64,
}

type Key = (String, TaskOwner, String);

/// All tasks.
pub(super) struct Kept {
    tasks_max: usize,
    last: u64,
    /// Clocks are set back; leases aren't.
    latest: SystemTime,
    numbers: HashMap<TaskId, u64>,
    slots: BTreeMap<u64, Slot>,
    keys: HashMap<Key, u64>,
    of_scope: HashMap<String, usize>,
    of_owner: HashMap<(String, TaskOwner), usize>,
}

impl Kept {
    pub(super) fn new(tasks_max: usize) -> Self {
        Self {
            tasks_max,
            last: 0,
            latest: UNIX_EPOCH,
            numbers: HashMap::new(),
            slots: BTreeMap::new(),
            keys: HashMap::new(),
            of_scope: HashMap::new(),
            of_owner: HashMap::new(),
        }
    }

    fn slot(&self, id: &TaskId) -> Option<&Slot> {
        self.slots.get(self.numbers.get(id)?)
    }

    fn slot_mut(&mut self, id: &TaskId) -> Option<&mut Slot> {
        self.slots.get_mut(self.numbers.get(id)?)
    }

    pub(super) fn task(&self, id: &TaskId) -> Option<&Task> {
        self.slot(id).map(|slot| &*slot.task)
    }

    pub(super) fn get(&self, id: &TaskId) -> Option<Arc<Task>> {
        self.slot(id).map(|slot| slot.task.clone())
    }

    /// The time, which never runs back.
    fn now(&mut self, now: SystemTime) -> SystemTime {
        self.latest = self.latest.max(now);
        self.latest
    }

    pub(super) fn begin(&mut self, new: NewTask, worker: &str, now: SystemTime) -> Result<Begun, TaskError> {
        let now = self.now(now);
        if let Some(there) = self.there(&new)? {
            return Ok(Begun::Again(there));
        }
        let id = new.id.clone();
        self.check(&[&new], now)?;
        self.insert(vec![new], now);
        let lease = self.lease(&id, worker, TASK_LEASE, now);
        let slot = self.slot_mut(&id).ok_or(TaskError::NotFound)?;
        let mut task = Task::clone(&slot.task);
        match task.take(vec![TaskStep::Start], now) {
            Ok(events) => {
                slot.events.extend(events);
                slot.task = Arc::new(task);
            }
            // It waits for others, or was cancelled with one of them.
            Err(_) => Arc::make_mut(&mut slot.task).lease = None,
        }
        Ok(Begun::New(slot.task.clone(), lease))
    }

    pub(super) fn begin_all(&mut self, new: Vec<NewTask>, now: SystemTime) -> Result<Vec<Arc<Task>>, TaskError> {
        let now = self.now(now);
        if new.len() > TASKS_AT_ONCE_MAX {
            return Err(JournalError::Invalid("too many tasks at once").into());
        }
        let mut ids = Vec::with_capacity(new.len());
        let mut fresh = Vec::new();
        for new in new {
            match self.there(&new)? {
                Some(there) => ids.push(there.id.clone()),
                None => {
                    ids.push(new.id.clone());
                    fresh.push(new);
                }
            }
        }
        self.check(&fresh.iter().collect::<Vec<_>>(), now)?;
        self.insert(fresh, now);
        Ok(ids.iter().filter_map(|id| self.get(id)).collect())
    }

    /// The task that `new` was begun as before.
    fn there(&self, new: &NewTask) -> Result<Option<Arc<Task>>, TaskError> {
        new.check()?;
        let key = new.key.clone().map(|key| (new.scope.clone(), new.owner.clone(), key));
        let number = key.and_then(|key| self.keys.get(&key)).or_else(|| self.numbers.get(&new.id));
        let Some(slot) = number.and_then(|number| self.slots.get(number)) else { return Ok(None) };
        let same = slot.asked == new.asked() && slot.task.owner == new.owner && slot.task.scope == new.scope;
        if same { Ok(Some(slot.task.clone())) } else { Err(TaskError::KeyReused) }
    }

    /// Whether all of them can be kept.
    fn check(&mut self, new: &[&NewTask], now: SystemTime) -> Result<(), TaskError> {
        if self.slots.len() + new.len() > self.tasks_max {
            self.forget_expired(now);
        }
        if self.slots.len() + new.len() > self.tasks_max {
            return Err(JournalError::Full { records_max: self.tasks_max }.into());
        }
        let (mut ids, mut keys) = (HashSet::new(), HashSet::new());
        let (mut of_scope, mut of_owner) = (HashMap::new(), HashMap::new());
        for task in new {
            let key = task.key.as_ref().map(|key| (&task.scope, &task.owner, key));
            if !ids.insert(&task.id) || !key.is_none_or(|key| keys.insert(key)) {
                return Err(TaskError::KeyReused);
            }
            let bytes = task.bytes();
            if bytes > TASK_BYTES_MAX_DEFAULT {
                return Err(TaskError::TooLarge { bytes, bytes_max: TASK_BYTES_MAX_DEFAULT });
            }
            let owner = (task.scope.clone(), task.owner.clone());
            let there = self.of_scope.get(&task.scope).copied().unwrap_or_default();
            fits(task.scope_tasks_max, there, of_scope.entry(&task.scope).or_insert(0))?;
            let there = self.of_owner.get(&owner).copied().unwrap_or_default();
            fits(task.owner_tasks_max, there, of_owner.entry(owner).or_insert(0))?;
        }
        Graph::new(self, new).check()
    }

    fn insert(&mut self, new: Vec<NewTask>, now: SystemTime) {
        let ids: Vec<_> = new.iter().map(|task| task.id.clone()).collect();
        for mut new in new {
            let mut once = HashSet::new();
            new.needs.retain(|need| once.insert(need.clone()));
            self.last += 1;
            let number = self.last;
            if let Some(key) = new.key.clone() {
                self.keys.insert((new.scope.clone(), new.owner.clone(), key), number);
            }
            *self.of_scope.entry(new.scope.clone()).or_default() += 1;
            *self.of_owner.entry((new.scope.clone(), new.owner.clone())).or_default() += 1;
            self.numbers.insert(new.id.clone(), number);
            let asked = new.asked();
            let task = Arc::new(Task::submitted(new, number, 0, now));
            self.slots.insert(number, Slot { task, events: Vec::new(), asked, epoch: 0 });
        }
        for id in &ids {
            let Some(task) = self.get(id) else { continue };
            let states = task.needs.iter().filter_map(|need| self.task(need)).map(|need| need.state);
            let waiting = states.filter(|state| *state != TaskState::Completed).count();
            if let Some(slot) = self.slot_mut(id) {
                Arc::make_mut(&mut slot.task).waiting = u32::try_from(waiting).unwrap_or(u32::MAX);
            }
            if let Some(slot) = task.parent.as_ref().and_then(|parent| self.slot_mut(parent)) {
                Arc::make_mut(&mut slot.task).children_open += 1;
            }
        }
        for id in &ids {
            let Some(task) = self.get(id) else { continue };
            let mut states = task.needs.iter().filter_map(|need| self.task(need)).map(|need| need.state);
            if let Some(state) = states.find(|state| state.is_terminal() && *state != TaskState::Completed) {
                self.end(id, TaskStep::need_ended(state), now);
            }
        }
    }

    pub(super) fn step(
        &mut self,
        id: &TaskId,
        by: By<'_>,
        steps: Vec<TaskStep>,
        now: SystemTime,
    ) -> Result<Arc<Task>, TaskError> {
        let now = self.now(now);
        let slot = self.slot_mut(id).ok_or(TaskError::NotFound)?;
        may(&slot.task, by)?;
        let foreign = steps.iter().find(|step| !matches!(by, By::Worker(_)) && !step.is_for_others());
        if let Some(step) = foreign {
            return Err(TaskError::Illegal { from: slot.task.state, step: step.name() });
        }
        let largest = steps.iter().map(TaskStep::bytes).max().unwrap_or_default();
        let mut task = Task::clone(&slot.task);
        let events = task.take(steps, now)?;
        let bytes = largest.max(task.bytes());
        if bytes > TASK_BYTES_MAX_DEFAULT {
            return Err(TaskError::TooLarge { bytes, bytes_max: TASK_BYTES_MAX_DEFAULT });
        }
        slot.events.extend(events);
        slot.task = Arc::new(task);
        let task = slot.task.clone();
        if task.state.is_terminal() {
            self.settle(&task, now);
        }
        Ok(task)
    }

    /// Takes a step that ends a task, unless it has ended, and tells those who wait for it.
    fn end(&mut self, id: &TaskId, step: TaskStep, now: SystemTime) {
        let Some(slot) = self.slot_mut(id) else { return };
        let mut task = Task::clone(&slot.task);
        let Ok(events) = task.take(vec![step], now) else { return };
        slot.events.extend(events);
        slot.task = Arc::new(task);
        let task = slot.task.clone();
        self.settle(&task, now);
    }

    /// A task has ended: those who need it go on, or end with it, and its parent has a part less.
    fn settle(&mut self, ended: &Task, now: SystemTime) {
        let needs_it = |slot: &&Slot| slot.task.needs.contains(&ended.id) && !slot.task.state.is_terminal();
        let waiting: Vec<_> = self.slots.values().filter(needs_it).map(|slot| slot.task.id.clone()).collect();
        for id in waiting {
            if ended.state != TaskState::Completed {
                self.end(&id, TaskStep::need_ended(ended.state), now);
            } else if let Some(slot) = self.slot_mut(&id) {
                let task = Arc::make_mut(&mut slot.task);
                task.waiting = task.waiting.saturating_sub(1);
            }
        }
        if let Some(slot) = ended.parent.as_ref().and_then(|parent| self.slot_mut(parent)) {
            let task = Arc::make_mut(&mut slot.task);
            task.children_open = task.children_open.saturating_sub(1);
            // A parent that has ended says no more.
            slot.events.extend(task.take(vec![TaskStep::part_ended(ended)], now).unwrap_or_default());
        }
    }

    pub(super) fn list(&self, filter: &TaskFilter, after: u64, tasks_max: usize) -> (Vec<Arc<Task>>, bool) {
        let later = self.slots.range(after.saturating_add(1)..).map(|(_, slot)| &slot.task);
        let mut left = later.filter(|task| filter.leaves(task));
        let page = left.by_ref().take(tasks_max).cloned().collect();
        (page, left.next().is_some())
    }

    pub(super) fn events(&self, id: &TaskId, after: u64, events_max: usize) -> Vec<TaskEvent> {
        let events = self.slot(id).map_or(&[][..], |slot| &slot.events);
        events.iter().skip(usize::try_from(after).unwrap_or(usize::MAX)).take(events_max).cloned().collect()
    }

    fn lease(&mut self, id: &TaskId, by: &str, lease: Duration, now: SystemTime) -> Lease {
        let mut epoch = 0;
        if let Some(slot) = self.slot_mut(id) {
            slot.epoch += 1;
            epoch = slot.epoch;
            Arc::make_mut(&mut slot.task).lease = Some(LeaseView { by: by.to_owned(), epoch, until: now + lease });
        }
        Lease { task: id.clone(), by: by.to_owned(), epoch }
    }

    pub(super) fn claim(&mut self, claim: &Claim, now: SystemTime) -> Vec<(Arc<Task>, Lease)> {
        let now = self.now(now);
        let is_ready = |slot: &&Slot| slot.task.scope == claim.scope && slot.task.is_ready(now);
        let ready: Vec<_> = self.slots.values().filter(is_ready).map(|slot| slot.task.clone()).collect();
        let mut claimed = Vec::new();
        for task in ready {
            if claimed.len() >= claim.tasks_max {
                break;
            }
            let steps = if task.lease.is_some() || task.cancel_wanted { task.recovery() } else { Vec::new() };
            if let Some(end) = steps.iter().find(|step| step.is_end()) {
                self.end(&task.id, end.clone(), now);
                continue;
            }
            // With those before it another may have ended.
            let Some(slot) = self.slot_mut(&task.id).filter(|slot| slot.task.is_ready(now)) else { continue };
            let mut next = Task::clone(&slot.task);
            let Ok(events) = next.take(steps, now) else { continue };
            slot.events.extend(events);
            slot.task = Arc::new(next);
            let lease = self.lease(&task.id, &claim.by, claim.lease, now);
            claimed.extend(self.get(&task.id).map(|task| (task, lease)));
        }
        claimed
    }

    pub(super) fn renew(&mut self, by: &str, lease: Duration, now: SystemTime) -> u64 {
        let until = self.now(now) + lease;
        let mut renewed = 0;
        for slot in self.slots.values_mut() {
            if slot.task.lease.as_ref().is_some_and(|lease| lease.by == by && lease.until > UNIX_EPOCH) {
                Arc::make_mut(&mut slot.task).lease.iter_mut().for_each(|lease| lease.until = until);
                renewed += 1;
            }
        }
        renewed
    }

    pub(super) fn release(&mut self, lease: &Lease, why: Released, now: SystemTime) {
        let now = self.now(now);
        let Some(slot) = self.slot_mut(&lease.task).filter(|slot| holds(&slot.task, lease)) else { return };
        let task = Arc::make_mut(&mut slot.task);
        match why {
            Released::Waits => task.lease = None,
            Released::Interrupted => task.lease.iter_mut().for_each(|lease| lease.until = UNIX_EPOCH),
        }
        if task.cancel_wanted {
            self.end(&lease.task, TaskStep::cancelled(), now);
        }
    }

    pub(super) fn want_cancel(&mut self, id: &TaskId, by: By<'_>, now: SystemTime) -> Result<Arc<Task>, TaskError> {
        let now = self.now(now);
        let task = self.task(id).ok_or(TaskError::NotFound)?;
        may(task, by)?;
        if task.state.is_terminal() {
            return Err(TaskError::HasEnded(task.state));
        }
        let mut family = vec![id.clone()];
        let mut at = 0;
        while let Some(parent) = family.get(at).cloned() {
            let parts = self.slots.values().filter(|slot| slot.task.parent.as_ref() == Some(&parent));
            family.extend(parts.map(|slot| slot.task.id.clone()));
            at += 1;
        }
        // Parts first: their parent has none left when it ends.
        for id in family.iter().rev() {
            let Some(slot) = self.slot_mut(id).filter(|slot| !slot.task.state.is_terminal()) else { continue };
            if slot.task.lease.as_ref().is_some_and(|lease| lease.until > now) {
                Arc::make_mut(&mut slot.task).cancel_wanted = true;
            } else {
                self.end(id, TaskStep::cancelled(), now);
            }
        }
        self.get(id).ok_or(TaskError::NotFound)
    }

    pub(super) fn cancels(&self, by: &str) -> Vec<TaskId> {
        let wanted = self.slots.values().filter(|slot| slot.task.cancel_wanted);
        let its = wanted.filter(|slot| slot.task.lease.as_ref().is_some_and(|lease| lease.by == by));
        its.map(|slot| slot.task.id.clone()).collect()
    }

    pub(super) fn forget(&mut self, id: &TaskId, now: SystemTime) {
        let now = self.now(now);
        self.end(id, TaskStep::cancelled(), now);
        let Some(slot) = self.numbers.remove(id).and_then(|number| self.slots.remove(&number)) else { return };
        let task = &slot.task;
        if let Some(key) = task.key.clone() {
            self.keys.remove(&(task.scope.clone(), task.owner.clone(), key));
        }
        one_less(&mut self.of_scope, task.scope.clone());
        one_less(&mut self.of_owner, (task.scope.clone(), task.owner.clone()));
    }

    fn forget_expired(&mut self, now: SystemTime) {
        let expired = |slot: &&Slot| slot.task.state.is_terminal() && slot.task.expires <= now;
        let expired: Vec<_> = self.slots.values().filter(expired).map(|slot| slot.task.id.clone()).collect();
        expired.iter().for_each(|id| self.forget(id, now));
    }
}

/// Whether `by` may do something with a task.
fn may(task: &Task, by: By<'_>) -> Result<(), TaskError> {
    match by {
        By::Operator => Ok(()),
        By::Owner(owner) if task.owner == *owner => Ok(()),
        By::Owner(_) => Err(TaskError::NotFound),
        // An ended task is nobody's work: that it has ended says more than that the lease is gone.
        By::Worker(lease) if holds(task, lease) || task.state.is_terminal() => Ok(()),
        By::Worker(_) => Err(TaskError::LostLease),
    }
}

fn holds(task: &Task, lease: &Lease) -> bool {
    task.lease.as_ref().is_some_and(|has| has.epoch == lease.epoch && has.by == lease.by)
}

fn fits(tasks_max: Option<usize>, there: usize, new: &mut usize) -> Result<(), TaskError> {
    *new += 1;
    match tasks_max {
        Some(tasks_max) if there + *new > tasks_max => Err(TaskError::TooMany { tasks_max }),
        _ => Ok(()),
    }
}

fn one_less<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, usize>, key: K) {
    if let Some(count) = counts.get_mut(&key) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(&key);
        }
    }
}
