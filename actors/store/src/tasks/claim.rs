//! Work is handed out.

use std::sync::Arc;

use callboard_message::{DataClass, Failure, FailureKind};
use callboard_runtime::{Claim, Lease, Task, TaskId, TaskStep};

use super::row::{Stored, columns, stored};
use super::work::{Means, Work};
use crate::sql::{Sql, args};
use crate::writer::{Tx, Write};

/// Most tasks that one claim takes.
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
const READY: Sql = Sql { sqlite: ready!(columns!()), postgres: concat!(ready!(columns!()), " FOR UPDATE SKIP LOCKED") };

/// Takes work, oldest first.
pub(super) struct Take {
    pub(super) claim: Claim,
    pub(super) means: Means,
}

impl Write for Take {
    type Output = Vec<(Arc<Task>, Lease)>;
    const NAME: &'static str = "task.claim";

    async fn run(&mut self, tx: &mut Tx) -> Result<Self::Output, sqlx::Error> {
        let tasks_max = self.claim.tasks_max.min(CLAIM_TASKS_MAX);
        let mut work = Work::new(tx, self.means.clone());
        let mut leases = Vec::new();
        let (mut after, mut looks) = (0_i64, 0);
        while leases.len() < tasks_max && looks < CLAIM_LOOKS_MAX {
            let limit = tasks_max - leases.len();
            let now_ms = work.tx.now_ms();
            let limit_arg = i64::try_from(limit).unwrap_or(i64::MAX);
            let args = args![&self.claim.scope, now_ms, after, limit_arg];
            let rows = work.tx.db().rows(READY, &args).await?;
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
        Ok(leases.into_iter().filter_map(|lease| Some((work.seen(&lease.task).ok()?, lease))).collect())
    }
}

impl Take {
    async fn take_one(&self, work: &mut Work<'_>, id: &TaskId) -> Result<Option<Lease>, sqlx::Error> {
        let now = work.now();
        let Some(stored) = work.stored(id).filter(|stored| stored.task.is_ready(now)).cloned() else { return Ok(None) };
        let task = &stored.task;
        let steps = if task.lease.is_some() || task.cancel_wanted { task.recovery() } else { Vec::new() };
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
        Ok(work.take_own(id, steps).is_ok().then(|| work.lease(id, &self.claim.by, self.claim.lease)))
    }

    /// Whether the process that holds the bodies of a task is no more. As long as it lives the task is its own to take.
    async fn is_gone(&self, work: &mut Work<'_>, stored: &Stored) -> Result<bool, sqlx::Error> {
        let Some(held_by) = &stored.held_by else { return Ok(true) };
        let Some((name, epoch)) = held_by.rsplit_once('#') else { return Ok(true) };
        if **held_by == *work.tx.worker() {
            return Ok(true);
        }
        let sql = "SELECT epoch FROM writer WHERE name = $1 AND closed = 0";
        Ok(work.tx.db().number(sql, &args![name]).await?.to_string() != epoch)
    }
}

fn lost() -> TaskStep {
    TaskStep::Failed(Failure::new(
        FailureKind::Unavailable,
        "the node ended before this was done, and what was asked was held in its memory only",
    ))
}
