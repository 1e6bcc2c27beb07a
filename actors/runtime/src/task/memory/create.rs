use std::collections::HashMap;
use std::sync::Arc;

use callboard_message::TaskState;

use super::slot::TaskSlot;
use super::table::{TaskTable, increment};
use crate::journal::JournalError;
use crate::task::{
    CreateOutcome, Lease, LeaseView, NewTask, TASK_BATCH_MAX, TASK_DEPTH_MAX, TASK_LEASE, Task,
    TaskError, TaskGraph, TaskId, TaskResult, TaskStep,
};

impl TaskTable {
    pub(super) fn create(&mut self, new: NewTask, worker: &str) -> TaskResult<CreateOutcome> {
        if let Some(there) = self.existing_task(&new)? {
            return Ok(CreateOutcome::Existing(there));
        }
        if new.needs.is_empty() && new.parent.is_none() {
            return self.create_independent(new, worker);
        }
        self.check(std::slice::from_ref(&new))?;
        let id = new.id.clone();
        self.insert(vec![new]);
        let (lease, now) = (self.lease(&id, worker, TASK_LEASE), self.now);
        let slot = self.slot_mut(&id).ok_or(TaskError::NotFound)?;
        if slot.apply(vec![TaskStep::Start], now).is_err() {
            // It waits for other tasks, or was cancelled with one of them.
            Arc::make_mut(&mut slot.task).lease = None;
        }
        Ok(CreateOutcome::Created(slot.task.clone(), lease))
    }

    /// Creates and starts a task that has no needs and no parent.
    fn create_independent(&mut self, new: NewTask, worker: &str) -> TaskResult<CreateOutcome> {
        self.check_independent(&new)?;
        let number = self.reserve_number(&new);
        let mut task = Task::new_submitted(new, number, 0, self.now);
        let events = task.apply_all_compact(vec![TaskStep::Start], self.now)?;
        let (by, epoch) = (worker.to_owned(), 1);
        task.lease = Some(LeaseView {
            worker: by.clone(),
            epoch,
            until: self.now + TASK_LEASE,
        });
        let lease = Lease {
            task: task.id.clone(),
            worker: by,
            epoch,
        };
        let task = Arc::new(task);
        self.put(
            number,
            TaskSlot {
                task: task.clone(),
                events,
                needs: Vec::new(),
                epoch,
            },
        );
        Ok(CreateOutcome::Created(task, lease))
    }

    pub(super) fn create_all(&mut self, new: Vec<NewTask>) -> TaskResult<Vec<Arc<Task>>> {
        if new.len() > TASK_BATCH_MAX {
            return Err(JournalError::Invalid(
                "at most 64 tasks can be created at once (`TASK_BATCH_MAX`)",
            )
            .into());
        }
        let mut ids = Vec::with_capacity(new.len());
        let mut fresh = Vec::new();
        for new in new {
            match self.existing_task(&new)? {
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

    /// Returns the stored task with the same idempotency key or id; `None` if there is none. Fails
    /// if its request differs.
    fn existing_task(&self, new: &NewTask) -> TaskResult<Option<Arc<Task>>> {
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
        let same = is_same_request(&slot.task, new)
            && slot.task.owner == new.owner
            && slot.task.scope == new.scope;
        if same {
            Ok(Some(slot.task.clone()))
        } else {
            Err(TaskError::KeyReused)
        }
    }

    /// Checks that the store has room for `more` tasks. Deletes expired tasks if necessary.
    fn ensure_room(&mut self, more: usize) -> TaskResult<()> {
        if self.slots.len() + more > self.tasks_max {
            self.delete_expired();
        }
        if self.slots.len() + more > self.tasks_max {
            return Err(JournalError::Full {
                records_max: self.tasks_max,
            }
            .into());
        }
        Ok(())
    }

    /// Returns the number of stored tasks in the new task's scope, and the number of those that
    /// have the same owner.
    fn quota_counts(&self, new: &NewTask) -> [usize; 2] {
        let of_owner = self
            .count_by_owner
            .get(&new.scope)
            .and_then(|owners| owners.get(&new.owner));
        [self.count_by_scope.get(&new.scope), of_owner]
            .map(|count| count.copied().unwrap_or_default())
    }

    /// Checks the limits of the store, scope and owner for a new task that has no needs and no
    /// parent. Deletes expired tasks if necessary.
    fn check_independent(&mut self, new: &NewTask) -> TaskResult<()> {
        self.ensure_room(1)?;
        if self.check_quotas_of_one(new).is_err() {
            self.delete_expired();
        }
        self.check_quotas_of_one(new)
    }

    /// Checks the limits of scope and owner for one new task.
    fn check_quotas_of_one(&self, new: &NewTask) -> TaskResult<()> {
        let [of_scope, of_owner] = self.quota_counts(new);
        check_quota(new.scope_tasks_max, of_scope, &mut 0)?;
        check_quota(new.owner_tasks_max, of_owner, &mut 0)?;
        check_quota(self.owner_tasks_max, self.owner_count(new), &mut 0)
    }

    /// Returns the number of stored tasks of the new task's owner in all scopes.
    fn owner_count(&self, new: &NewTask) -> usize {
        let owners = self.count_by_owner.values();
        owners.filter_map(|owners| owners.get(&new.owner)).sum()
    }

    /// Checks limits and dependencies of new tasks. Deletes expired tasks if necessary.
    fn check(&mut self, new: &[NewTask]) -> TaskResult<()> {
        self.ensure_room(new.len())?;
        NewTask::check_distinct(new)?;
        if self.check_quotas(new).is_err() {
            self.delete_expired();
        }
        self.check_quotas(new)?;
        self.graph(new).check(new)
    }

    /// Checks the limits of scopes and owners for all new tasks together.
    fn check_quotas(&self, new: &[NewTask]) -> TaskResult<()> {
        let (mut of_scope, mut of_owner) = (HashMap::new(), HashMap::new());
        let mut of_owner_in_all = HashMap::new();
        for task in new {
            let [there, there_of_owner] = self.quota_counts(task);
            check_quota(
                task.scope_tasks_max,
                there,
                of_scope.entry(&task.scope).or_insert(0),
            )?;
            check_quota(
                task.owner_tasks_max,
                there_of_owner,
                of_owner.entry((&task.scope, &task.owner)).or_insert(0),
            )?;
            check_quota(
                self.owner_tasks_max,
                self.owner_count(task),
                of_owner_in_all.entry(&task.owner).or_insert(0),
            )?;
        }
        Ok(())
    }

    /// Returns the part of the stored task graph that is needed to check `new`.
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
        // Only a parent's dependencies can lead back to a new child. Ended tasks wait for nothing.
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
            waits_for: waits,
            depths,
        }
    }

    /// Counts a new task for its scope and owner, and returns its number.
    fn reserve_number(&mut self, new: &NewTask) -> u64 {
        self.last += 1;
        if let Some(key) = new.key.clone() {
            self.keys
                .insert((new.scope.clone(), new.owner.clone(), key), self.last);
        }
        increment(&mut self.count_by_scope, &new.scope);
        match self.count_by_owner.get_mut(&new.scope) {
            Some(owners) => increment(owners, &new.owner),
            None => drop(
                self.count_by_owner
                    .insert(new.scope.clone(), HashMap::from([(new.owner.clone(), 1)])),
            ),
        }
        self.last
    }

    fn insert(&mut self, new: Vec<NewTask>) {
        let ids: Vec<_> = new.iter().map(|task| task.id.clone()).collect();
        for mut new in new {
            new.drop_repeated_needs();
            let number = self.reserve_number(&new);
            let task = Arc::new(Task::new_submitted(new, number, 0, self.now));
            let needs = task.needs.clone();
            self.put(
                number,
                TaskSlot {
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
                Arc::make_mut(&mut slot.task).pending_needs =
                    u32::try_from(waiting).unwrap_or(u32::MAX);
            }
            if let Some(slot) = task
                .parent
                .as_ref()
                .and_then(|parent| self.slot_mut(parent))
            {
                Arc::make_mut(&mut slot.task).open_children += 1;
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

fn check_quota(tasks_max: Option<usize>, there: usize, new: &mut usize) -> TaskResult<()> {
    *new += 1;
    match tasks_max {
        Some(tasks_max) if there + *new > tasks_max => Err(TaskError::TooMany { tasks_max }),
        _ => Ok(()),
    }
}

/// Returns true if the stored task was created with the agent, message and request of `new`.
fn is_same_request(task: &Task, new: &NewTask) -> bool {
    let (was, is) = (
        task.request.as_ref().map(|raw| raw.get()),
        new.request.as_ref().map(|raw| raw.get()),
    );
    task.agent == new.agent
        && task.message == new.message
        && was.unwrap_or_default() == is.unwrap_or_default()
}
