//! Writes to tasks that are there.

use std::sync::Arc;
use std::time::Duration;

use callboard_runtime::{Lease, Released, Task, TaskError, TaskId, TaskStep};

use super::row::{OVER, until};
use super::work::{Actor, Means, Work};
use crate::clock::ms;
use crate::sql::args;
use crate::writer::{Tx, Write};

/// Takes steps, all or none.
pub(super) struct Step {
    pub(super) id: TaskId,
    pub(super) by: Actor,
    pub(super) steps: Vec<TaskStep>,
    pub(super) means: Means,
}

impl Write for Step {
    type Output = Result<Arc<Task>, TaskError>;
    const NAME: &'static str = "task.step";
    const CHANGES_TASKS: bool = true;

    fn bytes(&self) -> usize {
        self.steps.iter().map(TaskStep::bytes).sum()
    }

    async fn run(&mut self, tx: &mut Tx) -> Result<Self::Output, sqlx::Error> {
        let mut work = Work::new(tx, self.means.clone());
        work.load(&self.id).await?;
        if let Err(refused) = self.take(&mut work) {
            return Ok(Err(refused));
        }
        if work.task(&self.id).is_ok_and(|task| task.state.is_terminal()) {
            work.settle(&self.id).await?;
        }
        work.write().await?;
        Ok(work.seen(&self.id))
    }
}

impl Step {
    fn take(&self, work: &mut Work<'_>) -> Result<(), TaskError> {
        work.task(&self.id)?.allows(self.by.by(), &self.steps)?;
        work.take(&self.id, self.steps.clone())
    }
}

/// Wants a task and its parts ended.
pub(super) struct WantCancel {
    pub(super) id: TaskId,
    pub(super) by: Actor,
    pub(super) means: Means,
}

impl Write for WantCancel {
    type Output = Result<Arc<Task>, TaskError>;
    const NAME: &'static str = "task.want_cancel";
    const CHANGES_TASKS: bool = true;

    async fn run(&mut self, tx: &mut Tx) -> Result<Self::Output, sqlx::Error> {
        let mut work = Work::new(tx, self.means.clone());
        work.load(&self.id).await?;
        let allowed = work.task(&self.id).and_then(|task| task.allows_cancel(self.by.by()));
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
async fn family(work: &mut Work<'_>, first: &TaskId) -> Result<Vec<TaskId>, sqlx::Error> {
    // One that has ended may have parts that run.
    let sql = "SELECT id FROM task WHERE parent = $1 ORDER BY number";
    let mut family = vec![first.clone()];
    let mut at = 0;
    while let Some(parent) = family.get(at).cloned() {
        for row in work.tx.db().rows(sql, &args![parent.as_str()]).await? {
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

    async fn run(&mut self, tx: &mut Tx) -> Result<(), sqlx::Error> {
        let (id, why) = (&self.lease.task, self.why);
        let mut work = Work::new(tx, self.means.clone());
        work.load(id).await?;
        let Ok(task) = work.task(id) else { return Ok(()) };
        if !task.is_held_by(&self.lease) {
            return Ok(());
        }
        let is_over = task.cancel_wanted;
        work.change(id, |stored| match why {
            Released::Waits => stored.task.lease = None,
            Released::Interrupted => stored.task.lease.iter_mut().for_each(|lease| lease.until = OVER),
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

    async fn run(&mut self, tx: &mut Tx) -> Result<(), sqlx::Error> {
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
            work.tx.db().execute(sql, &id).await?;
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

    async fn run(&mut self, tx: &mut Tx) -> Result<u64, sqlx::Error> {
        // One that was let go of stays over.
        let sql = "UPDATE task SET lease_until_ms = $2 WHERE lease_by = $1 AND lease_until_ms > 0";
        let until = ms(until(tx.now_ms(), self.lease));
        tx.db().execute(sql, &args![&self.by, until]).await
    }
}
