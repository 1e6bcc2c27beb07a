//! Task store. The state machine is the runtime's `Task`; a transaction reads the task under a lock
//! and writes the result.

mod create;
mod ready;
mod row;
mod steps;
mod tx_tasks;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use callboard_message::{DataClass, TaskState};
use callboard_runtime::{
    AuditStore, ClaimRequest, ClaimedTask, CreateOutcome, JournalError, JournalResult, Lease,
    NewTask, ReleaseReason, TASK_BATCH_MAX, Task, TaskActor, TaskError, TaskEvent, TaskFilter,
    TaskId, TaskOwner, TaskPage, TaskResult, TaskStep, TaskStore, check_storable,
};
use tokio::sync::watch;

use crate::backend::PAGE_ROWS_MAX;
use crate::owner_quota::OwnedKind;
use crate::sql::{Row, SqlArg, args, to_unix_ms};
use crate::store_core::StoreCore;
use crate::tx::WriteOp;
use create::CreateTasks;
use ready::{ExceptOwners, READY_NUMBERS};
use row::{columns, task_event, task_record};
use steps::{
    ApplySteps, ClaimTasks, DeleteEndedTasks, DeleteTask, DeletedTask, ReleaseLease, RenewLeases,
    RequestCancel,
};
use tx_tasks::TxContext;

pub use create::GRAPH_TASKS_MAX;
pub use row::REQUEST_ROW_BYTES_MIN;
pub use steps::CLAIM_TASKS_MAX;

/// Maximum total size of the bodies that one read returns, in bytes. Further rows are returned by
/// the next read. A single larger row is returned alone.
pub const PAGE_BYTES_MAX: i64 = 16 * 1024 * 1024;

/// Builds an SQL statement whose condition is "in the list of ids `$1`". A text that follows the
/// condition may differ by database.
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

/// Builds SQL for tasks with numbers above `$1` up to `$9` that match a filter. `$whose` is the
/// condition on the owner, as literal text so that an index can be used.
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

/// Builds the SQL queries for all tasks, for those of an owner, and for the children of a task.
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

/// Task store on an open store.
pub(crate) struct SqlTasks {
    core: Arc<StoreCore>,
    audit: Arc<dyn AuditStore>,
}

impl SqlTasks {
    /// Creates a task store. `audit` computes the digests of requests and of bodies that must not
    /// be stored.
    pub(crate) fn new(core: Arc<StoreCore>, audit: Arc<dyn AuditStore>) -> Self {
        Self { core, audit }
    }

    fn tx_context(&self) -> TxContext {
        let held = self.core.volatile.clone();
        let write = held.next_write_id();
        TxContext {
            volatile: held,
            audit: self.audit.clone(),
            write_id: write,
        }
    }

    /// Reads a task from a row, and fills in its bodies that are only in memory.
    fn read_task(&self, row: &Row) -> sqlx::Result<Arc<Task>> {
        let mut task = task_record(row)?.task;
        if task.class == DataClass::Clinical {
            self.core.volatile.restore_task(&mut task);
        }
        Ok(Arc::new(task))
    }

    /// Creates several tasks, all or none. `starts` requests a lease on the first one.
    async fn create_some(
        &self,
        new: Vec<NewTask>,
        starts: bool,
    ) -> TaskResult<create::CreatedTasks> {
        if new.len() > TASK_BATCH_MAX {
            return Err(JournalError::Invalid(
                "at most 64 tasks can be created at once (`TASK_BATCH_MAX`)",
            )
            .into());
        }
        new.iter().try_for_each(NewTask::check)?;
        for new in &new {
            let owner = new.owner.as_str();
            let key = args![new.scope.as_str(), owner, new.key.as_deref()];
            let is_repeated = "SELECT 1 FROM task WHERE scope = $1 AND owner = $2 AND key = $3";
            self.core
                .admit_or_repeat((OwnedKind::Task, owner), new.bytes(), is_repeated, &key)
                .await?;
        }
        let means = self.tx_context();
        let ids: Vec<_> = new.iter().map(|new| new.id.clone()).collect();
        self.submit(
            &ids,
            &means,
            CreateTasks {
                new,
                claims_first: starts,
                context: means.clone(),
            },
        )
        .await?
    }

    /// Removes what is kept in memory of deleted tasks: their bodies, and their owners' usage.
    fn forget(&self, deleted: impl IntoIterator<Item = DeletedTask>) {
        for task in deleted {
            self.core.volatile.remove(&task.id);
            self.core
                .owner_quota
                .release((OwnedKind::Task, task.owner), task.bytes);
        }
    }

    /// Submits a write of the given tasks. If it fails, the bodies that it put into memory are
    /// removed, except after [`JournalError::Unknown`]: it may have been committed then.
    async fn submit<W: WriteOp>(
        &self,
        ids: &[TaskId],
        means: &TxContext,
        write: W,
    ) -> JournalResult<W::Output> {
        let done = self.core.writer.submit(write).await;
        if done
            .as_ref()
            .is_err_and(|error| !matches!(error, JournalError::Unknown(_)))
        {
            ids.iter()
                .for_each(|id| means.volatile.undo_write(id, means.write_id));
        }
        done
    }
}

#[async_trait]
impl TaskStore for SqlTasks {
    async fn create(&self, new: NewTask) -> TaskResult<CreateOutcome> {
        let (mut tasks, lease) = self.create_some(vec![new], true).await?;
        match (tasks.pop(), lease) {
            (Some(task), Some(lease)) => Ok(CreateOutcome::Created(task, lease)),
            (Some(task), None) => Ok(CreateOutcome::Existing(task)),
            (None, _) => Err(TaskError::NotFound),
        }
    }

    async fn create_all(&self, new: Vec<NewTask>) -> TaskResult<Vec<Arc<Task>>> {
        Ok(self.create_some(new, false).await?.0)
    }

    async fn apply(
        &self,
        id: &TaskId,
        by: TaskActor<'_>,
        steps: Vec<TaskStep>,
    ) -> TaskResult<Arc<Task>> {
        check_storable(id.as_str())?;
        let means = self.tx_context();
        let step = ApplySteps {
            id: id.clone(),
            by: by.into(),
            steps,
            context: means.clone(),
        };
        self.submit(std::slice::from_ref(id), &means, step).await?
    }

    async fn get(&self, id: &TaskId) -> JournalResult<Option<Arc<Task>>> {
        const SQL: &str = concat!("SELECT ", columns!(), " FROM task WHERE id = $1");
        if check_storable(id.as_str()).is_err() {
            return Ok(None);
        }
        Ok(self
            .core
            .readers
            .read(SQL, &args![id.as_str()], |row| self.read_task(row))
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
            .try_for_each(check_storable)?;
        let states = listed_states(filter.states.iter().copied());
        let which = match (scope, owner, parent) {
            (_, _, Some(_)) => 2,
            (Some(_), Some(_), None) => 1,
            _ => 0,
        };
        let tasks_max = tasks_max.min(PAGE_ROWS_MAX);
        let mut args: [SqlArg<'_>; 10] = args![
            after,
            scope,
            owner,
            agent,
            message,
            filter.since.map_or(i64::MIN, to_unix_ms),
            parent,
            states.as_str(),
            i64::MAX,
            tasks_max + 1
        ];
        let sizes = self
            .core
            .readers
            .read(SIZES[which], &args, row_size)
            .await?;
        let fits = page_len(&sizes, tasks_max);
        let Some((last, _)) = fits.checked_sub(1).and_then(|last| sizes.get(last)) else {
            return Ok((Vec::new(), !sizes.is_empty()));
        };
        args[8] = SqlArg::from(*last);
        let tasks = self
            .core
            .readers
            .read(TASKS[which], &args, |row| self.read_task(row))
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
        if check_storable(id.as_str()).is_err() {
            return Ok(Vec::new());
        }
        let mut args: [SqlArg<'_>; 3] = args![id.as_str(), after, events_max.min(PAGE_ROWS_MAX)];
        let fits = page_len(
            &self.core.readers.read(SIZES, &args, row_size).await?,
            PAGE_ROWS_MAX,
        );
        if fits == 0 {
            return Ok(Vec::new());
        }
        args[2] = fits.into();
        let mut events = self.core.readers.read(EVENTS, &args, task_event).await?;
        events
            .iter_mut()
            .for_each(|event| self.core.volatile.restore_event(id, event));
        Ok(events)
    }

    async fn claim(&self, claim: ClaimRequest) -> JournalResult<Vec<ClaimedTask>> {
        check_storable(&claim.scope)?;
        check_storable(&claim.worker)?;
        let except = ExceptOwners::of(&claim);
        let args = args![&claim.scope, SystemTime::now(), 0, 1];
        let (sql, args) = READY_NUMBERS.with(args, &except);
        if claim.tasks_max == 0 || self.core.readers.rows(sql, &args).await?.is_empty() {
            return Ok(Vec::new());
        }
        self.core
            .writer
            .submit(ClaimTasks {
                claim,
                context: self.tx_context(),
            })
            .await
    }

    async fn renew(&self, by: &str, lease: Duration) -> JournalResult<u64> {
        check_storable(by)?;
        self.core
            .writer
            .submit(RenewLeases {
                by: by.to_owned(),
                lease,
            })
            .await
    }

    async fn release(&self, lease: &Lease, why: ReleaseReason) -> JournalResult<()> {
        check_storable(lease.task.as_str())?;
        self.core
            .writer
            .submit(ReleaseLease {
                lease: lease.clone(),
                why,
                context: self.tx_context(),
            })
            .await
    }

    async fn request_cancel(&self, id: &TaskId, by: TaskActor<'_>) -> TaskResult<Arc<Task>> {
        check_storable(id.as_str())?;
        self.core
            .writer
            .submit(RequestCancel {
                id: id.clone(),
                by: by.into(),
                context: self.tx_context(),
            })
            .await?
    }

    async fn delete(&self, id: &TaskId) -> JournalResult<()> {
        check_storable(id.as_str())?;
        let context = self.tx_context();
        let delete = DeleteTask {
            id: id.clone(),
            context,
        };
        let deleted = self.core.writer.submit(delete).await?;
        self.forget(deleted);
        // Its bodies may be there without the row.
        self.core.volatile.remove(id);
        Ok(())
    }

    async fn delete_ended(
        &self,
        scope: &str,
        owner: &TaskOwner,
        tasks_max: usize,
    ) -> JournalResult<usize> {
        check_storable(scope)?;
        check_storable(owner.as_str())?;
        let delete = DeleteEndedTasks {
            scope: scope.to_owned(),
            owner: owner.clone(),
            tasks_max,
        };
        // Another node may have deleted some meanwhile, which makes room too.
        let (count, deleted) = self.core.writer.submit(delete).await?;
        self.forget(deleted);
        Ok(count)
    }

    async fn cancel_requests(&self, by: &str) -> JournalResult<Vec<TaskId>> {
        let sql = "SELECT id FROM task WHERE lease_by = $1 AND cancel = 1 ORDER BY number";
        self.core
            .readers
            .read(sql, &args![by], |row| row.get(0))
            .await
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.core.writer.tasks_changed.clone()
    }

    fn worker_id(&self) -> &str {
        &self.core.worker
    }
}

/// Returns the states as the parameter of `LIKE '%,' || state || ',%'`; empty without any.
fn listed_states(states: impl Iterator<Item = TaskState>) -> String {
    states
        .map(|state| format!(",{},", state.as_str()))
        .collect()
}

/// Reads the columns `number, bytes` of a row.
fn row_size(row: &Row) -> sqlx::Result<(i64, i64)> {
    Ok((row.get(0)?, row.get(1)?))
}

/// Returns the number of leading rows that fit into one page. `sizes` holds the number and the
/// bytes of each row.
fn page_len(sizes: &[(i64, i64)], rows_max: usize) -> usize {
    let mut bytes: i64 = 0;
    let fit = sizes.iter().take(rows_max).take_while(|(_, more)| {
        bytes = bytes.saturating_add(*more);
        bytes <= PAGE_BYTES_MAX
    });
    fit.count().max(sizes.len().min(rows_max).min(1))
}
