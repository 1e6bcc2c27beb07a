//! Writes to existing tasks: claims, steps, cancellations, releases.

use std::sync::Arc;
use std::time::Duration;

use callboard_message::{DataClass, Failure, TaskState};
use callboard_runtime::{
    ClaimRequest, Lease, LeaseView, ReleaseReason, Task, TaskId, TaskOwner, TaskResult, TaskStep,
};

use super::listed_states;
use super::ready::{ExceptOwners, READY_TASKS};
use super::row::{TaskRecord, lease_end, task_record};
use super::tx_tasks::{OwnedTaskActor, TaskWriteError, TxContext, TxTasks};
use crate::sql::{Row, args, to_unix_ms};
use crate::tx::{Tx, WriteOp};

/// Maximum number of tasks that one claim leases. Further tasks are left to the next claim.
pub const CLAIM_TASKS_MAX: usize = 64;
/// Maximum number of tasks that one claim examines. It is higher than [`CLAIM_TASKS_MAX`], because
/// some examined tasks are ended instead, and some may be claimed only by other workers.
const CLAIM_SCANNED_MAX: usize = 1024;

/// Write operation that leases ready tasks, oldest first.
pub(super) struct ClaimTasks {
    pub(super) claim: ClaimRequest,
    pub(super) context: TxContext,
}

impl WriteOp for ClaimTasks {
    type Output = Vec<(Arc<Task>, Lease)>;
    const NAME: &'static str = "task.claim";

    async fn run(&mut self, tx: &mut Tx) -> sqlx::Result<Self::Output> {
        let tasks_max = self.claim.tasks_max.min(CLAIM_TASKS_MAX);
        let mut work = TxTasks::new(tx, self.context.clone());
        let except = ExceptOwners::of(&self.claim);
        let mut leases = Vec::new();
        let (mut after, mut looks) = (0_i64, 0);
        while leases.len() < tasks_max && looks < CLAIM_SCANNED_MAX {
            let limit = tasks_max - leases.len();
            let now_ms = work.tx.now_ms;
            let args = args![&self.claim.scope, now_ms, after, limit];
            let (sql, args) = READY_TASKS.with(args, &except);
            let rows = work.tx.db.rows(sql, &args).await?;
            looks += rows.len();
            for row in &rows {
                after = row.get(1)?;
                let stored = task_record(row)?;
                let id = stored.task.id.clone();
                // Claiming an earlier task may have ended this one. Then the loaded record is newer
                // than the row.
                work.insert(stored);
                leases.extend(self.claim_one(&mut work, &id).await?);
            }
            if rows.len() < limit {
                break;
            }
            work.write().await?;
        }
        work.write().await?;
        Ok(leases
            .into_iter()
            .filter_map(|lease| Some((work.visible_task(&lease.task).ok()?, lease)))
            .collect())
    }
}

impl ClaimTasks {
    async fn claim_one(&self, work: &mut TxTasks<'_>, id: &TaskId) -> sqlx::Result<Option<Lease>> {
        let now = work.now();
        let Some(stored) = work
            .record(id)
            .filter(|stored| stored.task.is_ready(now))
            .cloned()
        else {
            return Ok(None);
        };
        let task = &stored.task;
        let steps = if task.lease.is_some() || task.cancel_requested {
            task.recovery_steps()
        } else {
            Vec::new()
        };
        let is_lost = task.class == DataClass::Clinical && !work.volatile().contains(id);
        if let Some(end) = steps.iter().find(|step| step.is_end()) {
            work.end_task(id, end.clone()).await?;
            return Ok(None);
        }
        if is_lost {
            if task.lease.is_some() || self.is_holder_gone(work, &stored).await? {
                work.end_task(id, worker_lost_step()).await?;
            }
            return Ok(None);
        }
        Ok(work
            .apply_own_steps(id, steps)
            .is_ok()
            .then(|| work.grant_lease(id, &self.claim.worker, self.claim.lease)))
    }

    /// Returns whether no other running process holds a task's bodies: the process that held them
    /// has ended, or is this one. While another process holds them, only that process may claim the
    /// task.
    async fn is_holder_gone(
        &self,
        work: &mut TxTasks<'_>,
        stored: &TaskRecord,
    ) -> sqlx::Result<bool> {
        let Some(held_by) = &stored.held_by else {
            return Ok(true);
        };
        let Some((name, epoch)) = held_by.rsplit_once('#') else {
            return Ok(true);
        };
        if **held_by == *work.tx.worker {
            return Ok(true);
        }
        let sql = "SELECT epoch FROM writer WHERE name = $1 AND closed = 0";
        Ok(work.tx.db.number(sql, &args![name]).await?.to_string() != epoch)
    }
}

fn worker_lost_step() -> TaskStep {
    TaskStep::Failed(Failure::unavailable(
        "the node ended before this was done, and held the request in memory only: send it again",
    ))
}

/// Maximum bytes of the steps that end a task in a full store. A larger result is rejected there.
const RESERVED_END_BYTES_MAX: usize = 64 * 1024;

/// Write operation that applies several steps to a task, all or none.
pub(super) struct ApplySteps {
    pub(super) id: TaskId,
    pub(super) by: OwnedTaskActor,
    pub(super) steps: Vec<TaskStep>,
    pub(super) context: TxContext,
}

impl WriteOp for ApplySteps {
    type Output = TaskResult<Arc<Task>>;
    const NAME: &'static str = "task.step";
    const CHANGES_TASKS: bool = true;

    fn uses_reserve(&self) -> bool {
        self.steps.iter().any(TaskStep::is_end) && self.bytes() <= RESERVED_END_BYTES_MAX
    }

    fn bytes(&self) -> usize {
        self.steps.iter().map(TaskStep::bytes).sum()
    }

    async fn run(&mut self, tx: &mut Tx) -> sqlx::Result<Self::Output> {
        TaskWriteError::into_output(self.apply(tx).await)
    }
}

impl ApplySteps {
    async fn apply(&self, tx: &mut Tx) -> Result<Arc<Task>, TaskWriteError> {
        let mut work = TxTasks::new(tx, self.context.clone());
        work.load(&self.id).await?;
        work.task(&self.id)?
            .check_allowed(self.by.as_actor(), &self.steps)?;
        work.apply_steps(&self.id, self.steps.clone())?;
        if work.task(&self.id)?.state.is_terminal() {
            work.settle_dependents(&self.id).await?;
        }
        work.write().await?;
        Ok(work.visible_task(&self.id)?)
    }
}

/// Write operation that cancels a task and its children: running ones get a cancel request, others
/// end at once.
pub(super) struct RequestCancel {
    pub(super) id: TaskId,
    pub(super) by: OwnedTaskActor,
    pub(super) context: TxContext,
}

impl WriteOp for RequestCancel {
    type Output = TaskResult<Arc<Task>>;
    const NAME: &'static str = "task.want_cancel";
    const CHANGES_TASKS: bool = true;

    fn uses_reserve(&self) -> bool {
        true
    }

    async fn run(&mut self, tx: &mut Tx) -> sqlx::Result<Self::Output> {
        let mut work = TxTasks::new(tx, self.context.clone());
        work.load(&self.id).await?;
        let allowed = work
            .task(&self.id)
            .and_then(|task| task.check_cancel_allowed(self.by.as_actor()));
        if let Err(refused) = allowed {
            return Ok(Err(refused));
        }
        let family = task_with_parts(&mut work, &self.id).await?;
        let now = work.now();
        // Children first, so their parent has none left when it ends.
        for id in family.iter().rev() {
            work.load(id).await?;
            let Ok(task) = work.task(id) else { continue };
            if task.state.is_terminal() {
                continue;
            }
            if task.lease.as_ref().is_some_and(|lease| lease.until > now) {
                work.modify(id, |stored| stored.task.cancel_requested = true);
            } else {
                work.end_task(id, TaskStep::cancelled()).await?;
            }
        }
        work.write().await?;
        Ok(work.visible_task(&self.id))
    }
}

/// Returns the ids of a task and all its descendants, parents before children.
async fn task_with_parts(work: &mut TxTasks<'_>, first: &TaskId) -> sqlx::Result<Vec<TaskId>> {
    // A task that has ended may have running children.
    let sql = "SELECT id FROM task WHERE parent = $1 ORDER BY number";
    let mut family = vec![first.clone()];
    let mut at = 0;
    while let Some(parent) = family.get(at).cloned() {
        for row in work.tx.db.rows(sql, &args![parent.as_str()]).await? {
            family.push(row.get(0)?);
        }
        at += 1;
    }
    Ok(family)
}

/// Write operation that ends the lease of a task.
pub(super) struct ReleaseLease {
    pub(super) lease: Lease,
    pub(super) why: ReleaseReason,
    pub(super) context: TxContext,
}

impl WriteOp for ReleaseLease {
    type Output = ();
    const NAME: &'static str = "task.release";
    const CHANGES_TASKS: bool = true;

    fn uses_reserve(&self) -> bool {
        true
    }

    async fn run(&mut self, tx: &mut Tx) -> sqlx::Result<()> {
        let (id, why) = (&self.lease.task, self.why);
        let mut work = TxTasks::new(tx, self.context.clone());
        work.load(id).await?;
        let Ok(task) = work.task(id) else {
            return Ok(());
        };
        if !task.is_held_by(&self.lease) {
            return Ok(());
        }
        let is_over = task.cancel_requested;
        work.modify(id, |stored| match why {
            ReleaseReason::Waiting => stored.task.lease = None,
            ReleaseReason::Interrupted => stored
                .task
                .lease
                .iter_mut()
                .for_each(|lease| lease.until = LeaseView::RELEASED),
        });
        if is_over {
            work.end_task(id, TaskStep::cancelled()).await?;
        }
        work.write().await
    }
}

/// Write operation that deletes a task with its events. Returns its owner and bytes; `None` if there was no
/// task.
pub(super) struct DeleteTask {
    pub(super) id: TaskId,
    pub(super) context: TxContext,
}

impl WriteOp for DeleteTask {
    type Output = Option<DeletedTask>;
    const NAME: &'static str = "task.forget";
    const CHANGES_TASKS: bool = true;

    fn uses_reserve(&self) -> bool {
        true
    }

    async fn run(&mut self, tx: &mut Tx) -> sqlx::Result<Self::Output> {
        let sql = "SELECT state FROM task WHERE id = $1";
        let Some(row) = tx.db.row(sql, &args![self.id.as_str()]).await? else {
            return Ok(None);
        };
        // A task is read whole only if it has to be ended.
        if !row.get::<TaskState>(0)?.is_terminal() {
            let mut work = TxTasks::new(tx, self.context.clone());
            work.load(&self.id).await?;
            work.end_task(&self.id, TaskStep::cancelled()).await?;
            work.write().await?;
        }
        delete_rows(tx, &self.id).await
    }
}

/// Write operation that deletes ended tasks of an owner, oldest first.
pub(super) struct DeleteEndedTasks {
    pub(super) scope: String,
    pub(super) owner: TaskOwner,
    pub(super) tasks_max: usize,
}

impl WriteOp for DeleteEndedTasks {
    /// Number of tasks that were chosen, and those of them that this write deleted.
    type Output = (usize, Vec<DeletedTask>);
    const NAME: &'static str = "task.evict";
    const CHANGES_TASKS: bool = true;

    fn uses_reserve(&self) -> bool {
        true
    }

    async fn run(&mut self, tx: &mut Tx) -> sqlx::Result<Self::Output> {
        let sql = "SELECT id FROM task WHERE scope = $1 AND owner = $2 \
                   AND CAST($4 AS TEXT) LIKE '%,' || state || ',%' ORDER BY number LIMIT $3";
        let states = TaskState::ALL.into_iter();
        let ended = listed_states(states.filter(|state| state.is_terminal()));
        let args = args![&self.scope, self.owner.as_str(), self.tasks_max, &ended];
        let rows = tx.db.rows(sql, &args).await?;
        let mut deleted = Vec::with_capacity(rows.len());
        for row in &rows {
            deleted.extend(delete_rows(tx, &row.get(0)?).await?);
        }
        Ok((rows.len(), deleted))
    }
}

/// Deletes the rows of an ended task. Returns `None` if there is no such task.
async fn delete_rows(tx: &mut Tx, id: &TaskId) -> sqlx::Result<Option<DeletedTask>> {
    let args = args![id.as_str()];
    for sql in [
        "DELETE FROM task_request WHERE number IN (SELECT number FROM task WHERE id = $1)",
        "DELETE FROM task_event WHERE task = $1",
        "DELETE FROM task_need WHERE task = $1",
        "DELETE FROM task_need WHERE needs = $1",
    ] {
        tx.db.execute(sql, &args).await?;
    }
    let sql = "DELETE FROM task WHERE id = $1 RETURNING owner, CAST(bytes AS BIGINT)";
    let deleted = tx.db.row(sql, &args).await?;
    let owned = |row: &Row| {
        Ok(DeletedTask {
            id: id.clone(),
            owner: row.get(0)?,
            bytes: row.get::<i64>(1)?.unsigned_abs(),
        })
    };
    deleted.as_ref().map(owned).transpose()
}

/// Task that was deleted, and the bytes by which its owner's usage has shrunk.
pub(super) struct DeletedTask {
    pub(super) id: TaskId,
    pub(super) owner: String,
    pub(super) bytes: u64,
}

/// Write operation that renews every task lease of a worker. Returns the number of renewed leases.
pub(super) struct RenewLeases {
    pub(super) by: String,
    pub(super) lease: Duration,
}

impl WriteOp for RenewLeases {
    type Output = u64;
    const NAME: &'static str = "task.renew";

    fn uses_reserve(&self) -> bool {
        true
    }

    async fn run(&mut self, tx: &mut Tx) -> sqlx::Result<u64> {
        // A released lease (end 0) is not renewed.
        let sql = "UPDATE task SET lease_until_ms = $2 WHERE lease_by = $1 AND lease_until_ms > 0";
        let until = to_unix_ms(lease_end(tx.now_ms, self.lease));
        tx.db.execute(sql, &args![&self.by, until]).await
    }
}
