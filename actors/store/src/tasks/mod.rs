//! Tasks. The state machine is the runtime's ([`Task::step`]); a transaction reads under lock, and writes what it came to.

mod begin;
mod claim;
mod graph;
mod held;
mod look;
mod row;
mod steps;
mod work;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use callboard_message::TaskState;
use callboard_runtime::{
    Audit, Begun, By, Claim, Claimed, JournalError, Lease, NewTask, Released, TASKS_AT_ONCE_MAX, Task, TaskError,
    TaskEvent, TaskFilter, TaskId, TaskPage, TaskStep, Tasks, storable,
};
use futures::future::BoxFuture;
use tokio::sync::watch;

use crate::clock::ms;
use crate::open::{Core, SqlStore, Visitor};
use crate::sql::Row;
use begin::Begin;
use claim::Take;
use steps::{Forget, Release, Renew, Step, WantCancel};
use work::Means;

pub use claim::CLAIM_TASKS_MAX;
pub use graph::GRAPH_TASKS_MAX;
pub use held::CLINICAL_HELD_BYTES_MAX;
pub(crate) use held::Held;
pub use look::PAGE_BYTES_MAX;

/// A statement with a list of ids in it, which is `$1`; what follows the list may differ.
macro_rules! of_ids {
    ($text:literal) => {
        of_ids!($text, "", "")
    };
    ($text:literal, $sqlite:literal, $postgres:literal) => {
        $crate::sql::Sql {
            sqlite: concat!($text, " IN (SELECT value FROM json_each($1))", $sqlite),
            postgres: concat!($text, " = ANY (ARRAY(SELECT json_array_elements_text(CAST($1 AS json))))", $postgres),
        }
    };
}
use of_ids;

/// The state in a column.
fn state_of(row: &Row, column: usize) -> Result<TaskState, sqlx::Error> {
    TaskState::parse(row.text(column)?).ok_or_else(|| row::unreadable("the state of a task"))
}

impl SqlStore {
    /// Its tasks; `marks` hashes what the store may not keep itself.
    pub fn tasks(&self, marks: Arc<dyn Audit>) -> Arc<dyn Tasks> {
        Arc::new(SqlTasks { core: Arc::clone(&self.core), marks })
    }
}

impl Visitor {
    /// Its tasks: to look at, and to cancel.
    pub fn tasks(&self, marks: Arc<dyn Audit>) -> Arc<dyn Tasks> {
        Arc::new(SqlTasks { core: Arc::clone(&self.core), marks })
    }
}

/// The tasks of an open store.
struct SqlTasks {
    core: Arc<Core>,
    marks: Arc<dyn Audit>,
}

impl SqlTasks {
    fn means(&self) -> Means {
        let held = Arc::clone(&self.core.held);
        let write = held.write();
        Means { held, marks: Arc::clone(&self.marks), write }
    }

    /// Keeps tasks; what is held of them is let go of where they weren't kept.
    async fn begin_some(&self, new: Vec<NewTask>, starts: bool) -> Result<begin::Begun, TaskError> {
        if new.len() > TASKS_AT_ONCE_MAX {
            return Err(JournalError::Invalid("too many tasks at once").into());
        }
        new.iter().try_for_each(begin::check)?;
        let means = self.means();
        let ids: Vec<_> = new.iter().map(|new| new.id.clone()).collect();
        let begun = self.core.writer.submit(Begin { new, starts, means: means.clone() }).await;
        if begun.as_ref().is_err_and(|error| !matches!(error, JournalError::Unknown(_))) {
            ids.iter().for_each(|id| means.held.undo(id, means.write));
        }
        begun?
    }
}

impl Tasks for SqlTasks {
    fn begin(&self, new: NewTask) -> BoxFuture<'_, Result<Begun, TaskError>> {
        Box::pin(async move {
            let (mut tasks, lease) = self.begin_some(vec![new], true).await?;
            match (tasks.pop(), lease) {
                (Some(task), Some(lease)) => Ok(Begun::New(task, lease)),
                (Some(task), None) => Ok(Begun::Again(task)),
                (None, _) => Err(TaskError::NotFound),
            }
        })
    }

    fn begin_all(&self, new: Vec<NewTask>) -> BoxFuture<'_, Result<Vec<Arc<Task>>, TaskError>> {
        Box::pin(async move { Ok(self.begin_some(new, false).await?.0) })
    }

    fn step<'a>(
        &'a self,
        id: &'a TaskId,
        by: By<'a>,
        steps: Vec<TaskStep>,
    ) -> BoxFuture<'a, Result<Arc<Task>, TaskError>> {
        Box::pin(async move {
            storable(id.as_str())?;
            let means = self.means();
            let step = Step { id: id.clone(), by: by.into(), steps, means: means.clone() };
            let taken = self.core.writer.submit(step).await;
            if taken.as_ref().is_err_and(|error| !matches!(error, JournalError::Unknown(_))) {
                means.held.undo(id, means.write);
            }
            taken?
        })
    }

    fn get<'a>(&'a self, id: &'a TaskId) -> BoxFuture<'a, Result<Option<Arc<Task>>, JournalError>> {
        Box::pin(look::get(&self.core.readers, &self.core.held, id))
    }

    fn list(&self, filter: TaskFilter, after: u64, tasks_max: usize) -> BoxFuture<'_, Result<TaskPage, JournalError>> {
        Box::pin(async move { look::list(&self.core.readers, &self.core.held, &filter, after, tasks_max).await })
    }

    fn events<'a>(
        &'a self,
        id: &'a TaskId,
        after: u64,
        events_max: usize,
    ) -> BoxFuture<'a, Result<Vec<TaskEvent>, JournalError>> {
        Box::pin(look::events(&self.core.readers, &self.core.held, id, after, events_max))
    }

    fn claim(&self, claim: Claim) -> BoxFuture<'_, Result<Vec<Claimed>, JournalError>> {
        Box::pin(async move {
            storable(&claim.scope)?;
            storable(&claim.by)?;
            let args = [(&claim.scope).into(), ms(SystemTime::now()).into(), 0.into(), 1.into()];
            if claim.tasks_max == 0 || self.core.readers.rows(claim::ANY, &args).await?.is_empty() {
                return Ok(Vec::new());
            }
            self.core.writer.submit(Take { claim, means: self.means() }).await
        })
    }

    fn renew<'a>(&'a self, by: &'a str, lease: Duration) -> BoxFuture<'a, Result<u64, JournalError>> {
        Box::pin(async move {
            storable(by)?;
            self.core.writer.submit(Renew { by: by.to_owned(), lease }).await
        })
    }

    fn release<'a>(&'a self, lease: &'a Lease, why: Released) -> BoxFuture<'a, Result<(), JournalError>> {
        Box::pin(async move {
            storable(lease.task.as_str())?;
            self.core.writer.submit(Release { lease: lease.clone(), why, means: self.means() }).await
        })
    }

    fn want_cancel<'a>(&'a self, id: &'a TaskId, by: By<'a>) -> BoxFuture<'a, Result<Arc<Task>, TaskError>> {
        Box::pin(async move {
            storable(id.as_str())?;
            self.core.writer.submit(WantCancel { id: id.clone(), by: by.into(), means: self.means() }).await?
        })
    }

    fn forget<'a>(&'a self, id: &'a TaskId) -> BoxFuture<'a, Result<(), JournalError>> {
        Box::pin(async move {
            storable(id.as_str())?;
            let means = self.means();
            let held = Arc::clone(&means.held);
            self.core.writer.submit(Forget { id: id.clone(), means }).await?;
            held.forget(id);
            Ok(())
        })
    }

    fn cancels<'a>(&'a self, by: &'a str) -> BoxFuture<'a, Result<Vec<TaskId>, JournalError>> {
        Box::pin(look::cancels(&self.core.readers, by))
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.core.writer.tasks_changed()
    }

    fn worker(&self) -> &str {
        &self.core.worker
    }
}
