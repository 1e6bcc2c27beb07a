//! Tasks in a transaction: read under lock, changed in memory, written at the end. So what is refused has written nothing.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::SystemTime;

use callboard_message::{DataClass, TaskState};
use callboard_runtime::{
    Audit, AuditEntry, BodyMark, By, Lease, LeaseView, Task, TaskError, TaskEvent, TaskId,
    TaskOutcome, TaskOwner, TaskResult, TaskStep,
};

use super::row::{Stored, columns, event_body, stored, until};
use crate::held::{Held, redacted};
use crate::sql::{Arg, ManyRows, Sql, args, time};
use crate::tx::Tx;

/// What a write of tasks needs besides its transaction.
#[derive(Clone)]
pub(super) struct Means {
    pub(super) held: Arc<Held>,
    pub(super) marks: Arc<dyn Audit>,
    /// This write, as [`Held`] knows it.
    pub(super) write: u64,
}

/// Why a write of tasks ends early: a refusal, which has written nothing, or the database's error.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(super) enum Stop {
    Refused(#[from] TaskError),
    Database(#[from] sqlx::Error),
}

impl Stop {
    /// What a write came to, for its caller.
    pub(super) fn told<T>(done: Result<T, Self>) -> sqlx::Result<TaskResult<T>> {
        match done {
            Ok(done) => Ok(Ok(done)),
            Err(Self::Refused(refused)) => Ok(Err(refused)),
            Err(Self::Database(error)) => Err(error),
        }
    }
}

/// [`By`], for a write that outlives its caller.
#[derive(Clone)]
pub(super) enum Actor {
    Worker(Lease),
    Owner(TaskOwner),
    Operator,
}

impl From<By<'_>> for Actor {
    fn from(by: By<'_>) -> Self {
        match by {
            By::Worker(lease) => Self::Worker(lease.clone()),
            By::Owner(owner) => Self::Owner(owner.clone()),
            By::Operator => Self::Operator,
        }
    }
}

impl Actor {
    pub(super) fn by(&self) -> By<'_> {
        match self {
            Self::Worker(lease) => By::Worker(lease),
            Self::Owner(owner) => By::Owner(owner),
            Self::Operator => By::Operator,
        }
    }
}

/// A task that was read, with what is still to be written of it.
struct Loaded {
    stored: Stored,
    events: Vec<(TaskEvent, Option<BodyMark>)>,
    is_changed: bool,
}

/// The tasks that a transaction has read.
pub(super) struct Work<'t> {
    pub(super) tx: &'t mut Tx,
    means: Means,
    tasks: HashMap<TaskId, Loaded>,
}

const LOAD: Sql = Sql {
    sqlite: concat!("SELECT ", columns!(), " FROM task WHERE id = $1"),
    postgres: concat!("SELECT ", columns!(), " FROM task WHERE id = $1 FOR UPDATE"),
};

static INSERT_EVENTS: ManyRows = ManyRows::new(
    "INSERT INTO task_event (task, number, at_ms, state, is_end, body) VALUES",
    6,
    "",
);

impl<'t> Work<'t> {
    pub(super) fn new(tx: &'t mut Tx, means: Means) -> Self {
        Self {
            tx,
            means,
            tasks: HashMap::new(),
        }
    }

    pub(super) fn now(&self) -> SystemTime {
        time(self.tx.now_ms)
    }

    pub(super) fn held(&self) -> &Held {
        &self.means.held
    }

    /// Reads a task, unless it was read before; false where there is none.
    pub(super) async fn load(&mut self, id: &TaskId) -> sqlx::Result<bool> {
        if self.tasks.contains_key(id) {
            return Ok(true);
        }
        let row = self.tx.db.row(LOAD, &args![id.as_str()]).await?;
        match row {
            Some(row) => self.add(stored(&row)?),
            None => return Ok(false),
        }
        Ok(true)
    }

    /// A task as it is in the store.
    pub(super) fn add(&mut self, stored: Stored) {
        let loaded = Loaded {
            stored,
            events: Vec::new(),
            is_changed: false,
        };
        self.tasks
            .entry(loaded.stored.task.id.clone())
            .or_insert(loaded);
    }

    pub(super) fn task(&self, id: &TaskId) -> TaskResult<&Task> {
        self.tasks
            .get(id)
            .map(|loaded| &loaded.stored.task)
            .ok_or(TaskError::NotFound)
    }

    pub(super) fn stored(&self, id: &TaskId) -> Option<&Stored> {
        self.tasks.get(id).map(|loaded| &loaded.stored)
    }

    /// Changes what isn't a step.
    pub(super) fn change(&mut self, id: &TaskId, change: impl FnOnce(&mut Stored)) {
        if let Some(loaded) = self.tasks.get_mut(id) {
            change(&mut loaded.stored);
            loaded.is_changed = true;
        }
    }

    pub(super) fn lease(&mut self, id: &TaskId, by: &str, lease: std::time::Duration) -> Lease {
        let until = until(self.tx.now_ms, lease);
        let mut epoch = 0;
        self.change(id, |stored| {
            stored.epoch += 1;
            epoch = stored.epoch;
            stored.task.lease = Some(LeaseView {
                by: by.to_owned(),
                epoch,
                until,
            });
        });
        Lease {
            task: id.clone(),
            by: by.to_owned(),
            epoch,
        }
    }

    /// Takes steps of somebody else's making, all or none. Of a clinical task the store gets no word of them.
    pub(super) fn take(&mut self, id: &TaskId, steps: Vec<TaskStep>) -> TaskResult<()> {
        let class = self.task(id)?.class;
        if class != DataClass::Clinical {
            return self.take_own(id, steps);
        }
        let bytes = steps.iter().map(TaskStep::bytes).sum();
        Task::check_bytes(bytes)?;
        self.means.held.make_room(bytes)?;
        let mut next = self.task(id)?.clone();
        let (now, write) = (self.now(), self.means.write);
        let mut events = Vec::with_capacity(steps.len());
        let mut put = Vec::new();
        for step in steps {
            let Some(event) = next.take(vec![redacted(&step)], now)?.pop() else {
                continue;
            };
            let has_body = !matches!(step, TaskStep::Start | TaskStep::GivenUp { .. });
            let mark = has_body.then(|| serde_json::to_vec(&step).unwrap_or_default());
            let mark = mark.map(|body| self.means.marks.mark(class, &body));
            put.push((event.number, step));
            events.push((event, mark));
        }
        if matches!(next.outcome, Some(TaskOutcome::Reply(_))) {
            next.outcome = Some(TaskOutcome::NotKept);
        }
        for (number, step) in put {
            self.means.held.put(id, number, step, write);
        }
        self.took(id, next, events);
        Ok(())
    }

    /// Takes steps that hold nobody's words.
    pub(super) fn take_own(&mut self, id: &TaskId, steps: Vec<TaskStep>) -> TaskResult<()> {
        let largest = steps.iter().map(TaskStep::bytes).max().unwrap_or_default();
        let mut next = self.task(id)?.clone();
        let events = next.take(steps, self.now())?;
        Task::check_bytes(largest.max(next.bytes()))?;
        self.took(
            id,
            next,
            events.into_iter().map(|event| (event, None)).collect(),
        );
        Ok(())
    }

    fn took(&mut self, id: &TaskId, next: Task, events: Vec<(TaskEvent, Option<BodyMark>)>) {
        if let Some(loaded) = self.tasks.get_mut(id) {
            loaded.stored.task = next;
            loaded.events.extend(events);
            loaded.is_changed = true;
        }
    }

    /// Ends a task for a reason of the store's own, unless it has ended, and tells those who wait for it.
    pub(super) async fn end(&mut self, id: &TaskId, step: TaskStep) -> sqlx::Result<()> {
        match self.take_own(id, vec![step]) {
            Ok(()) => self.settle(id).await,
            Err(_) => Ok(()),
        }
    }

    /// A task has ended: those who need it go on, or end with it, and its parent has a part less.
    pub(super) async fn settle(&mut self, id: &TaskId) -> sqlx::Result<()> {
        let mut ended = VecDeque::from([id.clone()]);
        while let Some(ended_id) = ended.pop_front() {
            let Ok(task) = self.task(&ended_id) else {
                continue;
            };
            let (state, parent, told) =
                (task.state, task.parent.clone(), TaskStep::part_ended(task));
            for waiting in self.waiting_for(&ended_id).await? {
                if !self.load(&waiting).await?
                    || self
                        .task(&waiting)
                        .is_ok_and(|task| task.state.is_terminal())
                {
                    continue;
                }
                if state == TaskState::Completed {
                    self.change(&waiting, |stored| {
                        stored.task.waiting = stored.task.waiting.saturating_sub(1)
                    });
                } else if self
                    .take_own(&waiting, vec![TaskStep::need_ended(state)])
                    .is_ok()
                {
                    ended.push_back(waiting);
                }
            }
            let Some(parent) = parent else { continue };
            if self.load(&parent).await? {
                self.change(&parent, |stored| {
                    stored.task.children_open = stored.task.children_open.saturating_sub(1);
                });
                // A parent that has ended says no more.
                let _ = self.take_own(&parent, vec![told]);
            }
        }
        Ok(())
    }

    async fn waiting_for(&mut self, needed: &TaskId) -> sqlx::Result<Vec<TaskId>> {
        let sql = "SELECT n.task FROM task_need n JOIN task t ON t.id = n.task WHERE n.needs = $1 ORDER BY t.number";
        let rows = self.tx.db.rows(sql, &args![needed.as_str()]).await?;
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Writes what has changed, with a line in the audit for each task that has ended.
    pub(super) async fn write(&mut self) -> sqlx::Result<()> {
        let mut changed: Vec<_> = self
            .tasks
            .values_mut()
            .filter(|loaded| loaded.is_changed)
            .collect();
        changed.sort_by_key(|loaded| loaded.stored.task.number);
        let mut events = Vec::new();
        for loaded in changed {
            let has_stepped = !loaded.events.is_empty();
            update(self.tx, &loaded.stored, has_stepped).await?;
            let task = &loaded.stored.task;
            for (event, mark) in loaded.events.drain(..) {
                let body = event_body(&event.step, mark.as_ref())?;
                if event.step.is_end() {
                    self.tx.audit(ended(task, event.number));
                    self.means.held.ended(&task.id);
                }
                events.push((task.id.as_str(), event, body));
            }
            loaded.is_changed = false;
        }
        let values: Vec<Arg<'_>> = events
            .iter()
            .flat_map(|(task, event, body)| event_row(task, event, body))
            .collect();
        INSERT_EVENTS.execute(&mut self.tx.db, &values).await
    }

    /// A task as its reader gets it.
    pub(super) fn seen(&self, id: &TaskId) -> TaskResult<Arc<Task>> {
        let mut task = self.task(id)?.clone();
        if task.class == DataClass::Clinical {
            self.means.held.complete(&mut task);
        }
        Ok(Arc::new(task))
    }
}

async fn update(tx: &mut Tx, stored: &Stored, has_stepped: bool) -> sqlx::Result<()> {
    // Without a step the body is as it was: it may be large.
    const ALL: &str = "UPDATE task SET state = $2, waiting = $3, children_open = $4, cancel = $5, lease_by = $6, \
         lease_epoch = $7, lease_until_ms = $8, updated_ms = $9, last_event = $10, bytes = $11, body = $12 WHERE id = $1";
    const NO_STEP: &str = "UPDATE task SET state = $2, waiting = $3, children_open = $4, cancel = $5, lease_by = $6, \
         lease_epoch = $7, lease_until_ms = $8, updated_ms = $9 WHERE id = $1";
    let task = &stored.task;
    let body = if has_stepped {
        stored.body()?
    } else {
        String::new()
    };
    let args = args![
        task.id.as_str(),
        task.state.as_str(),
        task.waiting,
        task.children_open,
        task.cancel_wanted,
        task.lease.as_ref().map(|lease| lease.by.as_str()),
        stored.epoch,
        stored.lease_until_ms(),
        task.updated,
        task.last_event,
        body.len(),
        body.as_str()
    ];
    let (sql, args) = if has_stepped {
        (ALL, &args[..])
    } else {
        (NO_STEP, &args[..9])
    };
    tx.db.execute(sql, args).await.map(drop)
}

fn event_row<'a>(task: &'a str, event: &'a TaskEvent, body: &'a str) -> [Arg<'a>; 6] {
    args![
        task,
        event.number,
        event.at,
        event.state.as_str(),
        event.step.is_end(),
        body
    ]
}

fn ended(task: &Task, last_event: u64) -> AuditEntry {
    let entry = AuditEntry::new("task")
        .with_agent(&task.agent)
        .with_message(&task.message);
    let entry = entry
        .with_principal(&task.principal)
        .with_class(task.class)
        .with_outcome(task.state.as_str());
    let entry = AuditEntry {
        at: task.updated,
        ..entry
    };
    let entry = entry
        .with("task", task.id.as_str())
        .with("scope", task.scope.as_str())
        .with("events", last_event);
    entry.with("owner", task.owner.as_str())
}
