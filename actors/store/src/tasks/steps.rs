//! Writes to tasks that are there: claims, steps, cancellations, releases.

use std::sync::Arc;
use std::time::Duration;

use callboard_message::{DataClass, Failure};
use callboard_runtime::{Claim, Lease, Released, Task, TaskId, TaskResult, TaskStep};

use super::row::{OVER, Stored, columns, stored, until};
use super::work::{Actor, Means, Stop, Work};
use crate::sql::{Sql, args, ms};
use crate::tx::{Tx, Write};

/// Most tasks that one claim takes.
/// At the limit: the rest is the next one's.
pub const CLAIM_TASKS_MAX: usize = 64;
/// Most tasks that one claim looks at: some end by it, and some are others' to take.
const CLAIM_LOOKS_MAX: usize = 1024;

/// Which tasks are ready: of scope `$1` at `$2`, over number `$3`, at most `$4`.
macro_rules! ready {
    ($what:expr) => {
        concat!(
            "SELECT ",
            $what,
            " FROM task WHERE scope = $1 AND state IN ('submitted', 'working', 'input_required', 'auth_required') \
             AND waiting = 0 AND children_open = 0 AND (lease_until_ms IS NULL OR lease_until_ms <= $2) AND number > $3 \
             ORDER BY number LIMIT $4"
        )
    };
}

/// Whether there is any: most looks find none, and need no write then.
pub(super) const ANY: &str = ready!("number");
const READY: Sql = Sql {
    sqlite: ready!(columns!()),
    postgres: concat!(ready!(columns!()), " FOR UPDATE SKIP LOCKED"),
};

/// Takes work, oldest first.
pub(super) struct Take {
    pub(super) claim: Claim,
    pub(super) means: Means,
}

impl Write for Take {
    type Output = Vec<(Arc<Task>, Lease)>;
    const NAME: &'static str = "task.claim";

    async fn run(&mut self, tx: &mut Tx) -> sqlx::Result<Self::Output> {
        let tasks_max = self.claim.tasks_max.min(CLAIM_TASKS_MAX);
        let mut work = Work::new(tx, self.means.clone());
        let mut leases = Vec::new();
        let (mut after, mut looks) = (0_i64, 0);
        while leases.len() < tasks_max && looks < CLAIM_LOOKS_MAX {
            let limit = tasks_max - leases.len();
            let now_ms = work.tx.now_ms;
            let args = args![&self.claim.scope, now_ms, after, limit];
            let rows = work.tx.db.rows(READY, &args).await?;
            looks += rows.len();
            for row in &rows {
                after = row.get(1)?;
                let stored = stored(row)?;
                let id = stored.task.id.clone();
                // With those before it another may have ended: then what is known of it is newer than its row.
                work.add(stored);
                leases.extend(self.take_one(&mut work, &id).await?);
            }
            if rows.len() < limit {
                break;
            }
            work.write().await?;
        }
        work.write().await?;
        Ok(leases
            .into_iter()
            .filter_map(|lease| Some((work.seen(&lease.task).ok()?, lease)))
            .collect())
    }
}

impl Take {
    async fn take_one(&self, work: &mut Work<'_>, id: &TaskId) -> sqlx::Result<Option<Lease>> {
        let now = work.now();
        let Some(stored) = work
            .stored(id)
            .filter(|stored| stored.task.is_ready(now))
            .cloned()
        else {
            return Ok(None);
        };
        let task = &stored.task;
        let steps = if task.lease.is_some() || task.cancel_wanted {
            task.recovery()
        } else {
            Vec::new()
        };
        let is_lost = task.class == DataClass::Clinical && !work.held().has(id);
        if let Some(end) = steps.iter().find(|step| step.is_end()) {
            work.end(id, end.clone()).await?;
            return Ok(None);
        }
        if is_lost {
            if task.lease.is_some() || self.is_gone(work, &stored).await? {
                work.end(id, lost()).await?;
            }
            return Ok(None);
        }
        Ok(work
            .take_own(id, steps)
            .is_ok()
            .then(|| work.lease(id, &self.claim.by, self.claim.lease)))
    }

    /// Whether the process that holds the bodies of a task is no more. As long as it lives the task is its own to take.
    async fn is_gone(&self, work: &mut Work<'_>, stored: &Stored) -> sqlx::Result<bool> {
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

fn lost() -> TaskStep {
    TaskStep::Failed(Failure::unavailable(
        "the node ended before this was done, and what was asked was held in its memory only",
    ))
}

/// Takes steps, all or none.
pub(super) struct Step {
    pub(super) id: TaskId,
    pub(super) by: Actor,
    pub(super) steps: Vec<TaskStep>,
    pub(super) means: Means,
}

impl Write for Step {
    type Output = TaskResult<Arc<Task>>;
    const NAME: &'static str = "task.step";
    const CHANGES_TASKS: bool = true;

    fn bytes(&self) -> usize {
        self.steps.iter().map(TaskStep::bytes).sum()
    }

    async fn run(&mut self, tx: &mut Tx) -> sqlx::Result<Self::Output> {
        Stop::told(self.take(tx).await)
    }
}

impl Step {
    async fn take(&self, tx: &mut Tx) -> Result<Arc<Task>, Stop> {
        let mut work = Work::new(tx, self.means.clone());
        work.load(&self.id).await?;
        work.task(&self.id)?.allows(self.by.by(), &self.steps)?;
        work.take(&self.id, self.steps.clone())?;
        if work.task(&self.id)?.state.is_terminal() {
            work.settle(&self.id).await?;
        }
        work.write().await?;
        Ok(work.seen(&self.id)?)
    }
}

/// Wants a task and its parts ended.
pub(super) struct WantCancel {
    pub(super) id: TaskId,
    pub(super) by: Actor,
    pub(super) means: Means,
}

impl Write for WantCancel {
    type Output = TaskResult<Arc<Task>>;
    const NAME: &'static str = "task.want_cancel";
    const CHANGES_TASKS: bool = true;

    async fn run(&mut self, tx: &mut Tx) -> sqlx::Result<Self::Output> {
        let mut work = Work::new(tx, self.means.clone());
        work.load(&self.id).await?;
        let allowed = work
            .task(&self.id)
            .and_then(|task| task.allows_cancel(self.by.by()));
        if let Err(refused) = allowed {
            return Ok(Err(refused));
        }
        let family = family(&mut work, &self.id).await?;
        let now = work.now();
        // Parts first: their parent has none left when it ends.
        for id in family.iter().rev() {
            work.load(id).await?;
            let Ok(task) = work.task(id) else { continue };
            if task.state.is_terminal() {
                continue;
            }
            if task.lease.as_ref().is_some_and(|lease| lease.until > now) {
                work.change(id, |stored| stored.task.cancel_wanted = true);
            } else {
                work.end(id, TaskStep::cancelled()).await?;
            }
        }
        work.write().await?;
        Ok(work.seen(&self.id))
    }
}

/// A task and all its parts, parents before parts.
async fn family(work: &mut Work<'_>, first: &TaskId) -> sqlx::Result<Vec<TaskId>> {
    // One that has ended may have parts that run.
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

/// Lets go of a task.
pub(super) struct Release {
    pub(super) lease: Lease,
    pub(super) why: Released,
    pub(super) means: Means,
}

impl Write for Release {
    type Output = ();
    const NAME: &'static str = "task.release";
    const CHANGES_TASKS: bool = true;

    async fn run(&mut self, tx: &mut Tx) -> sqlx::Result<()> {
        let (id, why) = (&self.lease.task, self.why);
        let mut work = Work::new(tx, self.means.clone());
        work.load(id).await?;
        let Ok(task) = work.task(id) else {
            return Ok(());
        };
        if !task.is_held_by(&self.lease) {
            return Ok(());
        }
        let is_over = task.cancel_wanted;
        work.change(id, |stored| match why {
            Released::Waits => stored.task.lease = None,
            Released::Interrupted => stored
                .task
                .lease
                .iter_mut()
                .for_each(|lease| lease.until = OVER),
        });
        if is_over {
            work.end(id, TaskStep::cancelled()).await?;
        }
        work.write().await
    }
}

/// Forgets a task with its events.
pub(super) struct Forget {
    pub(super) id: TaskId,
    pub(super) means: Means,
}

impl Write for Forget {
    type Output = ();
    const NAME: &'static str = "task.forget";
    const CHANGES_TASKS: bool = true;

    async fn run(&mut self, tx: &mut Tx) -> sqlx::Result<()> {
        let mut work = Work::new(tx, self.means.clone());
        if !work.load(&self.id).await? {
            return Ok(());
        }
        work.end(&self.id, TaskStep::cancelled()).await?;
        work.write().await?;
        let id = args![self.id.as_str()];
        for sql in [
            "DELETE FROM task_event WHERE task = $1",
            "DELETE FROM task_need WHERE task = $1",
            "DELETE FROM task_need WHERE needs = $1",
            "DELETE FROM task WHERE id = $1",
        ] {
            work.tx.db.execute(sql, &id).await?;
        }
        Ok(())
    }
}

/// Renews every lease of a worker, and answers how many those are.
pub(super) struct Renew {
    pub(super) by: String,
    pub(super) lease: Duration,
}

impl Write for Renew {
    type Output = u64;
    const NAME: &'static str = "task.renew";

    async fn run(&mut self, tx: &mut Tx) -> sqlx::Result<u64> {
        // One that was let go of stays over.
        let sql = "UPDATE task SET lease_until_ms = $2 WHERE lease_by = $1 AND lease_until_ms > 0";
        let until = ms(until(tx.now_ms, self.lease));
        tx.db.execute(sql, &args![&self.by, until]).await
    }
}
