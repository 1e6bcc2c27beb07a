use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::SystemTime;

use callboard_message::TaskState;
use sha2::{Digest, Sha256};

use super::graph::Graph;
use super::kept::{Kept, Slot};
use crate::journal::JournalError;
use crate::task::{Begun, NewTask, TASK_BYTES_MAX_DEFAULT, TASK_LEASE, TASKS_AT_ONCE_MAX, Task, TaskError, TaskStep};

impl Kept {
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
        let same = slot.asked == asked(new) && slot.task.owner == new.owner && slot.task.scope == new.scope;
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
            let asked = asked(&new);
            let task = Arc::new(Task::submitted(new, number, 0, now));
            let needs = task.needs.clone();
            self.put(number, Slot { task, events: Vec::new(), needs, asked, epoch: 0 });
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
}

fn fits(tasks_max: Option<usize>, there: usize, new: &mut usize) -> Result<(), TaskError> {
    *new += 1;
    match tasks_max {
        Some(tasks_max) if there + *new > tasks_max => Err(TaskError::TooMany { tasks_max }),
        _ => Ok(()),
    }
}

fn asked(new: &NewTask) -> [u8; 32] {
    Sha256::digest(new.asked()).into()
}
