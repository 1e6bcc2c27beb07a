//! Tasks within a transaction: read under a lock, changed in memory, and written at the end. So a
//! refused change has written nothing.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::SystemTime;

use callboard_message::{DataClass, TaskState};
use callboard_runtime::{
    AuditEntry, AuditStore, BodyDigest, Lease, LeaseView, Task, TaskActor, TaskError, TaskEvent,
    TaskId, TaskOutcome, TaskOwner, TaskResult, TaskStep,
};

use super::row::{TaskRecord, columns, event_body, lease_end, task_record};
use crate::sql::{BulkStatement, Sql, SqlArg, args, from_unix_ms};
use crate::tx::Tx;
use crate::volatile_store::{VolatileStore, redact_step};

/// Resources that a task write needs besides its transaction: memory for bodies, and the audit
/// store.
#[derive(Clone)]
pub(super) struct TxContext {
    pub(super) volatile: Arc<VolatileStore>,
    pub(super) audit: Arc<dyn AuditStore>,
    /// Id of this write in the [`VolatileStore`].
    pub(super) write_id: u64,
}

/// Failure of a task write: a refusal, which has written nothing, or a database error.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(super) enum TaskWriteError {
    Refused(#[from] TaskError),
    Database(#[from] sqlx::Error),
}

impl TaskWriteError {
    /// Converts a result to the output of a write operation: a refusal is a committed output, a
    /// database error rolls back.
    pub(super) fn into_output<T>(done: Result<T, Self>) -> sqlx::Result<TaskResult<T>> {
        match done {
            Ok(done) => Ok(Ok(done)),
            Err(Self::Refused(refused)) => Ok(Err(refused)),
            Err(Self::Database(error)) => Err(error),
        }
    }
}

/// Owned copy of a [`TaskActor`], for a write that outlives its caller.
#[derive(Clone)]
pub(super) enum OwnedTaskActor {
    Worker(Lease),
    Owner(TaskOwner),
    Operator,
}

impl From<TaskActor<'_>> for OwnedTaskActor {
    fn from(by: TaskActor<'_>) -> Self {
        match by {
            TaskActor::Worker(lease) => Self::Worker(lease.clone()),
            TaskActor::Owner(owner) => Self::Owner(owner.clone()),
            TaskActor::Operator => Self::Operator,
        }
    }
}

impl OwnedTaskActor {
    pub(super) fn as_actor(&self) -> TaskActor<'_> {
        match self {
            Self::Worker(lease) => TaskActor::Worker(lease),
            Self::Owner(owner) => TaskActor::Owner(owner),
            Self::Operator => TaskActor::Operator,
        }
    }
}

/// Task that was read in a transaction, with changes that aren't written yet.
struct LoadedTask {
    stored: TaskRecord,
    events: Vec<(TaskEvent, Option<BodyDigest>)>,
    is_changed: bool,
}

/// Tasks that a transaction has read or changed.
pub(super) struct TxTasks<'t> {
    pub(super) tx: &'t mut Tx,
    context: TxContext,
    tasks: HashMap<TaskId, LoadedTask>,
}

const LOAD: Sql = Sql {
    sqlite: concat!("SELECT ", columns!(), " FROM task WHERE id = $1"),
    postgres: concat!("SELECT ", columns!(), " FROM task WHERE id = $1 FOR UPDATE"),
};

static INSERT_EVENTS: BulkStatement = BulkStatement::new(
    "INSERT INTO task_event (task, number, at_ms, state, is_end, body) VALUES",
    6,
    "",
);

impl<'t> TxTasks<'t> {
    pub(super) fn new(tx: &'t mut Tx, context: TxContext) -> Self {
        Self {
            tx,
            context,
            tasks: HashMap::new(),
        }
    }

    pub(super) fn now(&self) -> SystemTime {
        from_unix_ms(self.tx.now_ms)
    }

    pub(super) fn volatile(&self) -> &VolatileStore {
        &self.context.volatile
    }

    /// Reads a task, unless it was read before. Returns `false` if it doesn't exist.
    pub(super) async fn load(&mut self, id: &TaskId) -> sqlx::Result<bool> {
        if self.tasks.contains_key(id) {
            return Ok(true);
        }
        let row = self.tx.db.row(LOAD, &args![id.as_str()]).await?;
        match row {
            Some(row) => self.insert(task_record(&row)?),
            None => return Ok(false),
        }
        Ok(true)
    }

    /// Adds a task that was just read from the store, unless the transaction has read it before.
    pub(super) fn insert(&mut self, stored: TaskRecord) {
        let loaded = LoadedTask {
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

    pub(super) fn record(&self, id: &TaskId) -> Option<&TaskRecord> {
        self.tasks.get(id).map(|loaded| &loaded.stored)
    }

    /// Changes the record of a loaded task directly, without a step or event.
    pub(super) fn modify(&mut self, id: &TaskId, change: impl FnOnce(&mut TaskRecord)) {
        if let Some(loaded) = self.tasks.get_mut(id) {
            change(&mut loaded.stored);
            loaded.is_changed = true;
        }
    }

    pub(super) fn grant_lease(
        &mut self,
        id: &TaskId,
        by: &str,
        lease: std::time::Duration,
    ) -> Lease {
        let until = lease_end(self.tx.now_ms, lease);
        let mut epoch = 0;
        self.modify(id, |stored| {
            stored.epoch += 1;
            epoch = stored.epoch;
            stored.task.set_lease(LeaseView {
                worker: by.to_owned(),
                epoch,
                until,
            });
        });
        Lease {
            task: id.clone(),
            worker: by.to_owned(),
            epoch,
        }
    }

    /// Applies steps that a caller requested, all or none. The steps of a clinical task are
    /// redacted before they are stored, and their bodies kept in memory.
    pub(super) fn apply_steps(&mut self, id: &TaskId, steps: Vec<TaskStep>) -> TaskResult<()> {
        let class = self.task(id)?.class;
        if class != DataClass::Clinical {
            return self.apply_own_steps(id, steps);
        }
        let bytes = steps.iter().map(TaskStep::bytes).sum();
        Task::check_bytes(bytes)?;
        self.context.volatile.make_room(bytes)?;
        let mut next = self.task(id)?.clone();
        let (now, write) = (self.now(), self.context.write_id);
        let mut events = Vec::with_capacity(steps.len());
        let mut put = Vec::new();
        for step in steps {
            let Some(event) = next.apply_all(vec![redact_step(&step)], now)?.pop() else {
                continue;
            };
            let has_body = !matches!(step, TaskStep::Start | TaskStep::GivenUp { .. });
            let mark = has_body.then(|| serde_json::to_vec(&step).unwrap_or_default());
            let mark = mark.map(|body| self.context.audit.digest(class, &body));
            put.push((event.number, step));
            events.push((event, mark));
        }
        if matches!(next.outcome, Some(TaskOutcome::Reply(_))) {
            next.outcome = Some(TaskOutcome::NotKept);
        }
        for (number, step) in put {
            self.context.volatile.insert_step(id, number, step, write);
        }
        self.record_steps(id, next, events);
        Ok(())
    }

    /// Applies steps that the store itself made, all or none. They hold no text of a caller, so
    /// nothing is redacted.
    pub(super) fn apply_own_steps(&mut self, id: &TaskId, steps: Vec<TaskStep>) -> TaskResult<()> {
        let largest = steps.iter().map(TaskStep::bytes).max().unwrap_or_default();
        let mut next = self.task(id)?.clone();
        let events = next.apply_all(steps, self.now())?;
        Task::check_bytes(largest.max(next.bytes()))?;
        self.record_steps(
            id,
            next,
            events.into_iter().map(|event| (event, None)).collect(),
        );
        Ok(())
    }

    fn record_steps(
        &mut self,
        id: &TaskId,
        next: Task,
        events: Vec<(TaskEvent, Option<BodyDigest>)>,
    ) {
        if let Some(loaded) = self.tasks.get_mut(id) {
            loaded.stored.task = next;
            loaded.events.extend(events);
            loaded.is_changed = true;
        }
    }

    /// Ends a task by a step of the store, for example because its worker was lost, and updates its
    /// dependents and parent. Does nothing if the task has ended already.
    pub(super) async fn end_task(&mut self, id: &TaskId, step: TaskStep) -> sqlx::Result<()> {
        match self.apply_own_steps(id, vec![step]) {
            Ok(()) => self.settle_dependents(id).await,
            Err(_) => Ok(()),
        }
    }

    /// Updates the dependents and the parent of a task that has ended. If the task completed, its
    /// dependents continue, otherwise they end too. The parent's number of open children is
    /// decremented.
    pub(super) async fn settle_dependents(&mut self, id: &TaskId) -> sqlx::Result<()> {
        let mut ended = VecDeque::from([id.clone()]);
        while let Some(ended_id) = ended.pop_front() {
            let Ok(task) = self.task(&ended_id) else {
                continue;
            };
            let (state, parent, told) =
                (task.state, task.parent.clone(), TaskStep::part_ended(task));
            for waiting in self.dependents(&ended_id).await? {
                if !self.load(&waiting).await?
                    || self
                        .task(&waiting)
                        .is_ok_and(|task| task.state.is_terminal())
                {
                    continue;
                }
                if state == TaskState::Completed {
                    self.modify(&waiting, |stored| {
                        stored.task.pending_needs = stored.task.pending_needs.saturating_sub(1)
                    });
                } else if self
                    .apply_own_steps(&waiting, vec![TaskStep::need_ended(state)])
                    .is_ok()
                {
                    ended.push_back(waiting);
                }
            }
            let Some(parent) = parent else { continue };
            if self.load(&parent).await? {
                self.modify(&parent, |stored| {
                    stored.task.open_children = stored.task.open_children.saturating_sub(1);
                });
                // Fails if the parent has ended.
                let _ = self.apply_own_steps(&parent, vec![told]);
            }
        }
        Ok(())
    }

    async fn dependents(&mut self, needed: &TaskId) -> sqlx::Result<Vec<TaskId>> {
        let sql = "SELECT n.task FROM task_need n JOIN task t ON t.id = n.task WHERE n.needs = $1 ORDER BY t.number";
        let rows = self.tx.db.rows(sql, &args![needed.as_str()]).await?;
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Writes all changes to the database, with an audit entry for each task that has ended.
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
            update_row(self.tx, &loaded.stored, has_stepped).await?;
            let task = &loaded.stored.task;
            for (event, mark) in loaded.events.drain(..) {
                let body = event_body(&event.step, mark.as_ref())?;
                if event.step.is_end() {
                    self.tx.audit(ended_entry(task, event.number));
                    self.context.volatile.mark_ended(&task.id);
                }
                events.push((task.id.as_str(), event, body));
            }
            loaded.is_changed = false;
        }
        let values: Vec<SqlArg<'_>> = events
            .iter()
            .flat_map(|(task, event, body)| event_row(task, event, body))
            .collect();
        INSERT_EVENTS.execute(&mut self.tx.db, &values).await
    }

    /// Returns a loaded task, with its bodies from memory filled in.
    pub(super) fn visible_task(&self, id: &TaskId) -> TaskResult<Arc<Task>> {
        let mut task = self.task(id)?.clone();
        if task.class == DataClass::Clinical {
            self.context.volatile.restore_task(&mut task);
        }
        Ok(Arc::new(task))
    }
}

async fn update_row(tx: &mut Tx, stored: &TaskRecord, has_stepped: bool) -> sqlx::Result<()> {
    // Without a step, the body, which may be large, is unchanged.
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
        task.pending_needs,
        task.open_children,
        task.cancel_requested,
        task.lease.as_ref().map(|lease| lease.worker.as_str()),
        stored.epoch,
        stored.lease_until_ms(),
        task.updated,
        task.last_event,
        stored.row_bytes(&body),
        body.as_str()
    ];
    let (sql, args) = if has_stepped {
        (ALL, &args[..])
    } else {
        (NO_STEP, &args[..9])
    };
    tx.db.execute(sql, args).await.map(drop)
}

fn event_row<'a>(task: &'a str, event: &'a TaskEvent, body: &'a str) -> [SqlArg<'a>; 6] {
    args![
        task,
        event.number,
        event.at,
        event.state.as_str(),
        event.step.is_end(),
        body
    ]
}

fn ended_entry(task: &Task, last_event: u64) -> AuditEntry {
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
        .with_detail("task", task.id.as_str())
        .with_detail("scope", task.scope.as_str())
        .with_detail("events", last_event);
    entry.with_detail("owner", task.owner.as_str())
}
