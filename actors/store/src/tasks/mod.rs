//! Tasks. The state machine is the runtime's ([`Task::step`]); a transaction reads under lock, and writes what it came to.

mod begin;
mod row;
mod steps;
mod work;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use callboard_message::DataClass;
use callboard_runtime::{
    Audit, Begun, By, Claim, Claimed, JournalError, JournalResult, Lease, NewTask, Released,
    TASKS_AT_ONCE_MAX, Task, TaskError, TaskEvent, TaskFilter, TaskId, TaskPage, TaskResult,
    TaskStep, Tasks, storable,
};
use tokio::sync::watch;

use crate::parts::{Core, Visitor};
use crate::place::PAGE_MAX;
use crate::sql::{Arg, Row, args, ms};
use crate::tx::Write;
use begin::Begin;
use row::{columns, event, stored};
use steps::{Forget, Release, Renew, Step, Take, WantCancel};
use work::Means;

pub use begin::GRAPH_TASKS_MAX;
pub use steps::CLAIM_TASKS_MAX;

/// Bytes of bodies that one read answers at most, unless the first row alone has more.
/// At the limit: the rest is the next page's.
pub const PAGE_BYTES_MAX: i64 = 16 * 1024 * 1024;

/// A statement with a list of ids in it, which is `$1`; what follows the list may differ.
macro_rules! of_ids {
    ($text:literal) => {
        of_ids!($text, "", "")
    };
    ($text:literal, $sqlite:literal, $postgres:literal) => {
        $crate::sql::Sql {
            sqlite: concat!($text, " IN (SELECT value FROM json_each($1))", $sqlite),
            postgres: concat!(
                $text,
                " = ANY (ARRAY(SELECT json_array_elements_text(CAST($1 AS json))))",
                $postgres
            ),
        }
    };
}
pub(crate) use of_ids;

impl Visitor {
    /// Its tasks: a visitor may look at them, and cancel. `marks` hashes what the store may not keep itself.
    pub fn tasks(&self, marks: Arc<dyn Audit>) -> Arc<dyn Tasks> {
        Arc::new(SqlTasks {
            core: self.core.clone(),
            marks,
        })
    }
}

/// Tasks from number `$1` to `$9` that a filter leaves. Whose they are is said so that an index serves it.
macro_rules! select {
    ($what:expr, $whose:literal) => {
        concat!(
            "SELECT ",
            $what,
            " FROM task WHERE number > $1 AND number <= $9",
            $whose,
            " AND (CAST($4 AS TEXT) IS NULL OR agent = $4) AND (CAST($5 AS TEXT) IS NULL OR message = $5) \
             AND updated_ms >= $6 AND (CAST($8 AS TEXT) = '' OR CAST($8 AS TEXT) LIKE '%,' || state || ',%') \
             ORDER BY number LIMIT $10"
        )
    };
}

/// The texts for all tasks, those of an owner, and the parts of one.
macro_rules! selects {
    ($what:expr) => {
        [
            select!(
                $what,
                " AND (CAST($2 AS TEXT) IS NULL OR scope = $2) AND (CAST($3 AS TEXT) IS NULL OR owner = $3) \
                 AND CAST($7 AS TEXT) IS NULL"
            ),
            select!($what, " AND scope = $2 AND owner = $3 AND CAST($7 AS TEXT) IS NULL"),
            select!(
                $what,
                " AND parent = $7 AND (CAST($2 AS TEXT) IS NULL OR scope = $2) \
                 AND (CAST($3 AS TEXT) IS NULL OR owner = $3)"
            ),
        ]
    };
}

const SIZES: [&str; 3] = selects!("number, bytes");
const TASKS: [&str; 3] = selects!(columns!());

/// The tasks of an open store.
struct SqlTasks {
    core: Arc<Core>,
    marks: Arc<dyn Audit>,
}

impl SqlTasks {
    fn means(&self) -> Means {
        let held = self.core.held.clone();
        let write = held.write();
        Means {
            held,
            marks: self.marks.clone(),
            write,
        }
    }

    /// A task as its reader gets it.
    fn task(&self, row: &Row) -> sqlx::Result<Arc<Task>> {
        let mut task = stored(row)?.task;
        if task.class == DataClass::Clinical {
            self.core.held.complete(&mut task);
        }
        Ok(Arc::new(task))
    }

    /// Keeps tasks of which all or none are kept.
    async fn begin_some(&self, new: Vec<NewTask>, starts: bool) -> TaskResult<begin::Begun> {
        if new.len() > TASKS_AT_ONCE_MAX {
            return Err(JournalError::Invalid("too many tasks at once").into());
        }
        new.iter().try_for_each(NewTask::check)?;
        let means = self.means();
        let ids: Vec<_> = new.iter().map(|new| new.id.clone()).collect();
        self.submit(
            &ids,
            &means,
            Begin {
                new,
                starts,
                means: means.clone(),
            },
        )
        .await?
    }

    /// Submits a write of tasks; what is held of them is let go of where it wasn't kept.
    async fn submit<W: Write>(
        &self,
        ids: &[TaskId],
        means: &Means,
        write: W,
    ) -> JournalResult<W::Output> {
        let done = self.core.writer.submit(write).await;
        if done
            .as_ref()
            .is_err_and(|error| !matches!(error, JournalError::Unknown(_)))
        {
            ids.iter().for_each(|id| means.held.undo(id, means.write));
        }
        done
    }
}

#[async_trait]
impl Tasks for SqlTasks {
    async fn begin(&self, new: NewTask) -> TaskResult<Begun> {
        let (mut tasks, lease) = self.begin_some(vec![new], true).await?;
        match (tasks.pop(), lease) {
            (Some(task), Some(lease)) => Ok(Begun::New(task, lease)),
            (Some(task), None) => Ok(Begun::Again(task)),
            (None, _) => Err(TaskError::NotFound),
        }
    }

    async fn begin_all(&self, new: Vec<NewTask>) -> TaskResult<Vec<Arc<Task>>> {
        Ok(self.begin_some(new, false).await?.0)
    }

    async fn step(&self, id: &TaskId, by: By<'_>, steps: Vec<TaskStep>) -> TaskResult<Arc<Task>> {
        storable(id.as_str())?;
        let means = self.means();
        let step = Step {
            id: id.clone(),
            by: by.into(),
            steps,
            means: means.clone(),
        };
        self.submit(std::slice::from_ref(id), &means, step).await?
    }

    async fn get(&self, id: &TaskId) -> JournalResult<Option<Arc<Task>>> {
        const SQL: &str = concat!("SELECT ", columns!(), " FROM task WHERE id = $1");
        if storable(id.as_str()).is_err() {
            return Ok(None);
        }
        Ok(self
            .core
            .readers
            .read(SQL, &args![id.as_str()], |row| self.task(row))
            .await?
            .pop())
    }

    async fn list(
        &self,
        filter: TaskFilter,
        after: u64,
        tasks_max: usize,
    ) -> JournalResult<TaskPage> {
        let owner = filter.owner.as_ref().map(|owner| owner.as_str());
        let parent = filter.parent.as_ref().map(TaskId::as_str);
        let (scope, agent, message) = (
            filter.scope.as_deref(),
            filter.agent.as_deref(),
            filter.message.as_deref(),
        );
        [scope, owner, agent, message, parent]
            .into_iter()
            .flatten()
            .try_for_each(storable)?;
        let states = filter.states.iter().fold(String::new(), |all, state| {
            format!("{all},{},", state.as_str())
        });
        let which = match (scope, owner, parent) {
            (_, _, Some(_)) => 2,
            (Some(_), Some(_), None) => 1,
            _ => 0,
        };
        let tasks_max = tasks_max.min(PAGE_MAX);
        let mut args: [Arg<'_>; 10] = args![
            after,
            scope,
            owner,
            agent,
            message,
            filter.since.map_or(i64::MIN, ms),
            parent,
            states.as_str(),
            i64::MAX,
            tasks_max + 1
        ];
        let sizes = self.core.readers.read(SIZES[which], &args, size).await?;
        let fits = fitting(&sizes, tasks_max);
        let Some((last, _)) = fits.checked_sub(1).and_then(|last| sizes.get(last)) else {
            return Ok((Vec::new(), !sizes.is_empty()));
        };
        args[8] = Arg::from(*last);
        let tasks = self
            .core
            .readers
            .read(TASKS[which], &args, |row| self.task(row))
            .await?;
        Ok((tasks, sizes.len() > fits))
    }

    async fn events(
        &self,
        id: &TaskId,
        after: u64,
        events_max: usize,
    ) -> JournalResult<Vec<TaskEvent>> {
        const SIZES: &str = "SELECT number, CAST(octet_length(body) AS BIGINT) FROM task_event \
                             WHERE task = $1 AND number > $2 ORDER BY number LIMIT $3";
        const EVENTS: &str = "SELECT number, at_ms, state, body FROM task_event \
                              WHERE task = $1 AND number > $2 ORDER BY number LIMIT $3";
        if storable(id.as_str()).is_err() {
            return Ok(Vec::new());
        }
        let mut args: [Arg<'_>; 3] = args![id.as_str(), after, events_max.min(PAGE_MAX)];
        let fits = fitting(&self.core.readers.read(SIZES, &args, size).await?, PAGE_MAX);
        if fits == 0 {
            return Ok(Vec::new());
        }
        args[2] = fits.into();
        let mut events = self.core.readers.read(EVENTS, &args, event).await?;
        events
            .iter_mut()
            .for_each(|event| self.core.held.complete_event(id, event));
        Ok(events)
    }

    async fn claim(&self, claim: Claim) -> JournalResult<Vec<Claimed>> {
        storable(&claim.scope)?;
        storable(&claim.by)?;
        let args = args![&claim.scope, SystemTime::now(), 0, 1];
        if claim.tasks_max == 0 || self.core.readers.rows(steps::ANY, &args).await?.is_empty() {
            return Ok(Vec::new());
        }
        self.core
            .writer
            .submit(Take {
                claim,
                means: self.means(),
            })
            .await
    }

    async fn renew(&self, by: &str, lease: Duration) -> JournalResult<u64> {
        storable(by)?;
        self.core
            .writer
            .submit(Renew {
                by: by.to_owned(),
                lease,
            })
            .await
    }

    async fn release(&self, lease: &Lease, why: Released) -> JournalResult<()> {
        storable(lease.task.as_str())?;
        self.core
            .writer
            .submit(Release {
                lease: lease.clone(),
                why,
                means: self.means(),
            })
            .await
    }

    async fn want_cancel(&self, id: &TaskId, by: By<'_>) -> TaskResult<Arc<Task>> {
        storable(id.as_str())?;
        self.core
            .writer
            .submit(WantCancel {
                id: id.clone(),
                by: by.into(),
                means: self.means(),
            })
            .await?
    }

    async fn forget(&self, id: &TaskId) -> JournalResult<()> {
        storable(id.as_str())?;
        let means = self.means();
        let held = means.held.clone();
        self.core
            .writer
            .submit(Forget {
                id: id.clone(),
                means,
            })
            .await?;
        held.forget(id);
        Ok(())
    }

    async fn cancels(&self, by: &str) -> JournalResult<Vec<TaskId>> {
        let sql = "SELECT id FROM task WHERE lease_by = $1 AND cancel = 1 ORDER BY number";
        self.core
            .readers
            .read(sql, &args![by], |row| row.get(0))
            .await
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.core.writer.tasks_changed.clone()
    }

    fn worker(&self) -> &str {
        &self.core.worker
    }
}

/// A row of `number, bytes`.
fn size(row: &Row) -> sqlx::Result<(i64, i64)> {
    Ok((row.get(0)?, row.get(1)?))
}

/// How many of the rows are one page.
fn fitting(sizes: &[(i64, i64)], rows_max: usize) -> usize {
    let mut bytes: i64 = 0;
    let fit = sizes.iter().take(rows_max).take_while(|(_, more)| {
        bytes = bytes.saturating_add(*more);
        bytes <= PAGE_BYTES_MAX
    });
    fit.count().max(sizes.len().min(rows_max).min(1))
}
