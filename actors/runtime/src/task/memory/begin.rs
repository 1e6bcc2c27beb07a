use std::collections::HashMap;
use std::sync::Arc;

use callboard_message::TaskState;

use super::kept::{Kept, one_more};
use super::slot::Slot;
use crate::journal::JournalError;
use crate::task::{
    Begun, Lease, LeaseView, NewTask, TASK_DEPTH_MAX, TASK_LEASE, TASKS_AT_ONCE_MAX, Task,
    TaskError, TaskGraph, TaskId, TaskResult, TaskStep,
};

impl Kept {
    pub(super) fn begin(&mut self, new: NewTask, worker: &str) -> TaskResult<Begun> {
        if let Some(there) = self.there(&new)? {
            return Ok(Begun::Again(there));
        }
        if new.needs.is_empty() && new.parent.is_none() {
            return self.begin_alone(new, worker);
        }
        self.check(std::slice::from_ref(&new))?;
        let id = new.id.clone();
        self.insert(vec![new]);
        let (lease, now) = (self.lease(&id, worker, TASK_LEASE), self.now);
        let slot = self.slot_mut(&id).ok_or(TaskError::NotFound)?;
        if slot.take(vec![TaskStep::Start], now).is_err() {
            // It waits for others, or was cancelled with one of them.
            Arc::make_mut(&mut slot.task).lease = None;
        }
        Ok(Begun::New(slot.task.clone(), lease))
    }

    /// Begins a task that waits for no other, and that no other waits for.
    fn begin_alone(&mut self, new: NewTask, worker: &str) -> TaskResult<Begun> {
        self.check_alone(&new)?;
        let number = self.counted(&new);
        let mut task = Task::submitted(new, number, 0, self.now);
        let events = task.take_over(vec![TaskStep::Start], self.now)?;
        let (by, epoch) = (worker.to_owned(), 1);
        task.lease = Some(LeaseView {
            by: by.clone(),
            epoch,
            until: self.now + TASK_LEASE,
        });
        let lease = Lease {
            task: task.id.clone(),
            by,
            epoch,
        };
        let task = Arc::new(task);
        self.put(
            number,
            Slot {
                task: task.clone(),
                events,
                needs: Vec::new(),
                epoch,
            },
        );
        Ok(Begun::New(task, lease))
    }

    pub(super) fn begin_all(&mut self, new: Vec<NewTask>) -> TaskResult<Vec<Arc<Task>>> {
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
        self.check(&fresh)?;
        self.insert(fresh);
        Ok(ids.iter().filter_map(|id| self.get(id)).collect())
    }

    /// The task that `new` was begun as before.
    fn there(&self, new: &NewTask) -> TaskResult<Option<Arc<Task>>> {
        new.check()?;
        let key = new
            .key
            .clone()
            .map(|key| (new.scope.clone(), new.owner.clone(), key));
        let number = key
            .and_then(|key| self.keys.get(&key))
            .or_else(|| self.numbers.get(&new.id));
        let Some(slot) = number.and_then(|number| self.slots.get(number)) else {
            return Ok(None);
        };
        let same = is_asked(&slot.task, new)
            && slot.task.owner == new.owner
            && slot.task.scope == new.scope;
        if same {
            Ok(Some(slot.task.clone()))
        } else {
            Err(TaskError::KeyReused)
        }
    }

    /// Makes room for so many more.
    fn room(&mut self, more: usize) -> TaskResult<()> {
        if self.slots.len() + more > self.tasks_max {
            self.forget_expired();
        }
        if self.slots.len() + more > self.tasks_max {
            return Err(JournalError::Full {
                records_max: self.tasks_max,
            }
            .into());
        }
        Ok(())
    }

    /// How many of a task's scope and of its owner are kept.
    fn of_its_own(&self, new: &NewTask) -> [usize; 2] {
        let of_owner = self
            .of_owner
            .get(&new.scope)
            .and_then(|owners| owners.get(&new.owner));
        [self.of_scope.get(&new.scope), of_owner].map(|count| count.copied().unwrap_or_default())
    }

    /// Whether a task can be kept that has to do with no other.
    fn check_alone(&mut self, new: &NewTask) -> TaskResult<()> {
        self.room(1)?;
        let [of_scope, of_owner] = self.of_its_own(new);
        fits(new.scope_tasks_max, of_scope, &mut 0)?;
        fits(new.owner_tasks_max, of_owner, &mut 0)
    }

    /// Whether all of them can be kept.
    fn check(&mut self, new: &[NewTask]) -> TaskResult<()> {
        self.room(new.len())?;
        NewTask::check_distinct(new)?;
        let (mut of_scope, mut of_owner) = (HashMap::new(), HashMap::new());
        for task in new {
            let [there, there_of_owner] = self.of_its_own(task);
            fits(
                task.scope_tasks_max,
                there,
                of_scope.entry(&task.scope).or_insert(0),
            )?;
            fits(
                task.owner_tasks_max,
                there_of_owner,
                of_owner.entry((&task.scope, &task.owner)).or_insert(0),
            )?;
        }
        self.graph(new).check(new)
    }

    /// What is there of the graph that `new` becomes a part of.
    fn graph(&self, new: &[NewTask]) -> TaskGraph {
        let named = new
            .iter()
            .flat_map(|task| task.needs.iter().chain(&task.parent));
        let states = named
            .filter_map(|id| Some((id.clone(), self.task(id)?.state)))
            .collect();
        let parents = new.iter().filter_map(|task| task.parent.as_ref());
        let above = |id: &TaskId| self.task(id)?.parent.as_ref();
        let depth = |id| {
            std::iter::successors(above(id), |id| above(id))
                .take(TASK_DEPTH_MAX + 1)
                .count()
        };
        let depths: HashMap<_, _> = parents
            .map(|parent| (parent.clone(), depth(parent)))
            .collect();
        let mut waits: HashMap<_, Vec<_>> = HashMap::new();
        // Only what a parent waits for can lead back: to a part that is new. What has ended waits for nobody.
        if !depths.is_empty() && new.iter().any(|task| !task.needs.is_empty()) {
            for slot in self
                .slots
                .values()
                .filter(|slot| !slot.task.state.is_terminal())
            {
                waits
                    .entry(slot.task.id.clone())
                    .or_default()
                    .extend(slot.needs.iter().cloned());
            }
            for (parent, part) in self.open_parts() {
                waits.entry(parent.clone()).or_default().push(part.clone());
            }
        }
        TaskGraph {
            states,
            waits,
            depths,
        }
    }

    /// Counts a task that is going to be kept, and answers its number.
    fn counted(&mut self, new: &NewTask) -> u64 {
        self.last += 1;
        if let Some(key) = new.key.clone() {
            self.keys
                .insert((new.scope.clone(), new.owner.clone(), key), self.last);
        }
        one_more(&mut self.of_scope, &new.scope);
        match self.of_owner.get_mut(&new.scope) {
            Some(owners) => one_more(owners, &new.owner),
            None => drop(
                self.of_owner
                    .insert(new.scope.clone(), HashMap::from([(new.owner.clone(), 1)])),
            ),
        }
        self.last
    }

    fn insert(&mut self, new: Vec<NewTask>) {
        let ids: Vec<_> = new.iter().map(|task| task.id.clone()).collect();
        for mut new in new {
            new.drop_repeated_needs();
            let number = self.counted(&new);
            let task = Arc::new(Task::submitted(new, number, 0, self.now));
            let needs = task.needs.clone();
            self.put(
                number,
                Slot {
                    task,
                    events: Vec::new(),
                    needs,
                    epoch: 0,
                },
            );
        }
        for id in &ids {
            let Some(task) = self.get(id) else { continue };
            let states = task
                .needs
                .iter()
                .filter_map(|need| self.task(need))
                .map(|need| need.state);
            let waiting = states
                .filter(|state| *state != TaskState::Completed)
                .count();
            if let Some(slot) = self.slot_mut(id) {
                Arc::make_mut(&mut slot.task).waiting = u32::try_from(waiting).unwrap_or(u32::MAX);
            }
            if let Some(slot) = task
                .parent
                .as_ref()
                .and_then(|parent| self.slot_mut(parent))
            {
                Arc::make_mut(&mut slot.task).children_open += 1;
            }
        }
        for id in &ids {
            let Some(task) = self.get(id) else { continue };
            let mut states = task
                .needs
                .iter()
                .filter_map(|need| self.task(need))
                .map(|need| need.state);
            if let Some(state) =
                states.find(|state| state.is_terminal() && *state != TaskState::Completed)
            {
                self.end(id, TaskStep::need_ended(state));
            }
        }
    }
}

fn fits(tasks_max: Option<usize>, there: usize, new: &mut usize) -> TaskResult<()> {
    *new += 1;
    match tasks_max {
        Some(tasks_max) if there + *new > tasks_max => Err(TaskError::TooMany { tasks_max }),
        _ => Ok(()),
    }
}

/// Whether a task was begun with what `new` asks ([`NewTask::asked`]).
fn is_asked(task: &Task, new: &NewTask) -> bool {
    let (was, is) = (
        task.request.as_ref().map(|raw| raw.get()),
        new.request.as_ref().map(|raw| raw.get()),
    );
    task.agent == new.agent
        && task.message == new.message
        && was.unwrap_or_default() == is.unwrap_or_default()
}
