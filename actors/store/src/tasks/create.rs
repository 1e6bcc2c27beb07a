//! Creation of tasks: idempotency keys, limits, and the dependency graph.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use callboard_message::{DataClass, TaskState};
use callboard_runtime::{
    AuditStore, JournalError, Lease, NewTask, TASK_DEPTH_MAX, TASK_LEASE, Task, TaskError,
    TaskGraph, TaskId, TaskResult, TaskStep,
};

use super::of_ids;
use super::row::{
    REQUEST_ROW_BYTES_MIN, TaskRecord, columns, id_list, task_record, truncate_to_ms,
};
use super::tx_tasks::{TaskWriteError, TxContext, TxTasks};
use crate::sql::{BulkStatement, DbConnection, Sql, SqlArg, args};
use crate::tx::{Tx, WriteOp};

/// Write operation that creates several tasks, all or none.
pub(super) struct CreateTasks {
    pub(super) new: Vec<NewTask>,
    /// Whether this process takes a lease on the first task at once.
    pub(super) claims_first: bool,
    pub(super) context: TxContext,
}

/// Created tasks in their current state, in the order of the request; and the lease of the first
/// one, if it is new and was claimed.
pub(super) type CreatedTasks = (Vec<Arc<Task>>, Option<Lease>);

impl WriteOp for CreateTasks {
    type Output = TaskResult<CreatedTasks>;
    const NAME: &'static str = "task.begin";
    const CHANGES_TASKS: bool = true;

    fn bytes(&self) -> usize {
        self.new.iter().map(NewTask::bytes).sum()
    }

    async fn run(&mut self, tx: &mut Tx) -> sqlx::Result<Self::Output> {
        TaskWriteError::into_output(self.create(tx).await)
    }
}

impl CreateTasks {
    async fn create(&self, tx: &mut Tx) -> Result<CreatedTasks, TaskWriteError> {
        let (mut ids, mut fresh) = (Vec::new(), Vec::new());
        if !tx.db.is_sqlite() {
            // Waits for tasks that another node has created but not yet committed.
            tx.take_numbers("task", 0).await?;
        }
        for new in &self.new {
            let mark = request_digest(&*self.context.audit, new);
            match find_existing(tx, new, &mark).await? {
                Some(there) => ids.push(there),
                None => {
                    ids.push(new.id.clone());
                    let mut new = new.clone();
                    new.drop_repeated_needs();
                    fresh.push((mark, new));
                }
            }
        }
        let (marks, fresh): (Vec<_>, Vec<_>) = fresh.into_iter().unzip();
        let known = self.check(tx, &fresh).await?;
        self.insert(tx, &fresh, marks, &known).await?;

        let mut work = TxTasks::new(tx, self.context.clone());
        for new in &fresh {
            let mut states = new.needs.iter().filter_map(|need| known.states.get(need));
            let dead = states.find(|state| state.is_terminal() && **state != TaskState::Completed);
            if let Some(state) = dead
                && work.load(&new.id).await?
            {
                work.end_task(&new.id, TaskStep::need_ended(*state)).await?;
            }
        }
        let mut lease = None;
        if let Some(first) = fresh.first().filter(|_| self.claims_first)
            && work.load(&first.id).await?
        {
            let worker = work.tx.worker.clone();
            lease = Some(work.grant_lease(&first.id, &worker, TASK_LEASE));
            if work
                .apply_own_steps(&first.id, vec![TaskStep::Start])
                .is_err()
            {
                // It waits for other tasks, or was cancelled with one of them.
                work.modify(&first.id, |stored| stored.task.lease = None);
            }
        }
        work.write().await?;
        let mut tasks = Vec::with_capacity(ids.len());
        for id in &ids {
            work.load(id).await?;
            tasks.push(work.visible_task(id)?);
        }
        Ok((tasks, lease))
    }
}

const BY_KEY: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM task WHERE scope = $1 AND owner = $2 AND key = $3"
);
const BY_ID: &str = concat!("SELECT ", columns!(), " FROM task WHERE id = $1");

static INSERT: BulkStatement = BulkStatement::new(
    "INSERT INTO task (id, number, scope, owner, key, parent, agent, message, class, on_restart, state, waiting, \
     children_open, created_ms, updated_ms, deadline_ms, expires_ms, bytes, request_mark, body) VALUES",
    20,
    "",
);
static INSERT_NEEDS: BulkStatement =
    BulkStatement::new("INSERT INTO task_need (task, needs) VALUES", 2, "");

impl CreateTasks {
    /// Checks the limits and dependencies of the new tasks. Returns the existing tasks that they
    /// depend on or belong to.
    async fn check(&self, tx: &mut Tx, fresh: &[NewTask]) -> Result<TaskGraph, TaskWriteError> {
        NewTask::check_distinct(fresh)?;
        let (mut of_scope, mut of_owner) = (HashMap::new(), HashMap::new());
        for new in fresh {
            let scope = of_scope.entry(&new.scope).or_insert(0);
            *scope += 1;
            if let Some(tasks_max) = new.scope_tasks_max
                && count_up_to(tx, COUNT_IN_SCOPE, &args![&new.scope], tasks_max).await? + *scope
                    > tasks_max
            {
                return Err(TaskError::TooMany { tasks_max }.into());
            }
            let owner = of_owner.entry((&new.scope, &new.owner)).or_insert(0);
            *owner += 1;
            let args = args![&new.scope, new.owner.as_str()];
            if let Some(tasks_max) = new.owner_tasks_max
                && count_up_to(tx, COUNT_OF_OWNER, &args, tasks_max).await? + *owner > tasks_max
            {
                return Err(TaskError::TooMany { tasks_max }.into());
            }
        }
        let bytes = fresh
            .iter()
            .filter(|new| new.class == DataClass::Clinical)
            .map(NewTask::bytes)
            .sum();
        self.context.volatile.make_room(bytes)?;
        let known = look_up_graph(&mut tx.db, fresh).await?;
        known.check(fresh)?;
        Ok(known)
    }

    async fn insert(
        &self,
        tx: &mut Tx,
        fresh: &[NewTask],
        marks: Vec<String>,
        known: &TaskGraph,
    ) -> sqlx::Result<()> {
        if fresh.is_empty() {
            return Ok(());
        }
        let first = tx.take_numbers("task", fresh.len() as u64).await?;
        let now = crate::sql::from_unix_ms(tx.now_ms);
        let worker = tx.worker.clone();
        let mut parts: HashMap<&TaskId, u32> = HashMap::new();
        for parent in fresh.iter().filter_map(|new| new.parent.as_ref()) {
            *parts.entry(parent).or_default() += 1;
        }
        let mut rows = Vec::with_capacity(fresh.len());
        for ((new, request_mark), number) in fresh.iter().zip(marks).zip(first..) {
            let completed = |need: &&TaskId| known.states.get(*need) == Some(&TaskState::Completed);
            let waiting = new.needs.iter().filter(|need| !completed(need)).count();
            let mut task = Task::new_submitted(
                new.clone(),
                number,
                u32::try_from(waiting).unwrap_or(u32::MAX),
                now,
            );
            task.deadline = task.deadline.map(truncate_to_ms);
            task.expires = truncate_to_ms(task.expires);
            task.open_children = parts.get(&task.id).copied().unwrap_or_default();
            let is_held = task.class == DataClass::Clinical;
            if is_held {
                let request = task.request.take();
                self.context
                    .volatile
                    .insert_request(&task.id, request, self.context.write_id);
            }
            let held_by = is_held.then(|| worker.to_string());
            let request_bytes = task
                .request
                .as_ref()
                .map_or(0, |request| request.get().len());
            let stored = TaskRecord {
                task,
                epoch: 0,
                request_digest: request_mark,
                held_by,
                has_request_row: request_bytes >= REQUEST_ROW_BYTES_MIN,
            };
            rows.push((stored.body()?, stored));
        }
        let values: Vec<SqlArg<'_>> = rows
            .iter()
            .flat_map(|(body, stored)| task_row(stored, body))
            .collect();
        INSERT.execute(&mut tx.db, &values).await?;
        for (_, stored) in &rows {
            if let Some(request) = stored.request_row() {
                let sql = "INSERT INTO task_request (number, body) VALUES ($1, $2)";
                tx.db
                    .execute(sql, &args![stored.task.number, request])
                    .await?;
            }
        }
        let needs = fresh.iter().flat_map(|new| {
            new.needs
                .iter()
                .map(|need| [new.id.as_str(), need.as_str()])
        });
        let values: Vec<SqlArg<'_>> = needs.flatten().map(SqlArg::from).collect();
        INSERT_NEEDS.execute(&mut tx.db, &values).await?;
        for (parent, new) in parts
            .into_iter()
            .filter(|(parent, _)| known.states.contains_key(*parent))
        {
            let sql = "UPDATE task SET children_open = children_open + $2 WHERE id = $1";
            tx.db.execute(sql, &args![parent.as_str(), new]).await?;
        }
        Ok(())
    }
}

/// Returns the digest of a task's request, by which a repeated request is recognised. The digest is
/// keyed for a clinical task, whose request isn't stored and could be guessed from a plain hash.
fn request_digest(marks: &dyn AuditStore, new: &NewTask) -> String {
    let class = if new.class == DataClass::Clinical {
        new.class
    } else {
        DataClass::Internal
    };
    marks.digest(class, &new.idempotency_payload()).hash
}

/// Returns the id of the existing task with the idempotency key or id of `new`; `None` if there is
/// none. `mark` is the digest of the new request. Fails with [`TaskError::KeyReused`] if the
/// existing task has another request, owner or scope.
async fn find_existing(
    tx: &mut Tx,
    new: &NewTask,
    mark: &str,
) -> Result<Option<TaskId>, TaskWriteError> {
    let mut row = None;
    if let Some(key) = &new.key {
        row = tx
            .db
            .row(BY_KEY, &args![&new.scope, new.owner.as_str(), key])
            .await?;
    }
    if row.is_none() {
        row = tx.db.row(BY_ID, &args![new.id.as_str()]).await?;
    }
    let Some(row) = row else { return Ok(None) };
    let there = task_record(&row)?;
    let same = there.request_digest == mark
        && there.task.owner == new.owner
        && there.task.scope == new.scope;
    if same {
        Ok(Some(there.task.spec.id))
    } else {
        Err(TaskError::KeyReused.into())
    }
}

const COUNT_IN_SCOPE: &str =
    "SELECT count(*) FROM (SELECT 1 AS one FROM task WHERE scope = $1 LIMIT $2) AS there";
const COUNT_OF_OWNER: &str = "SELECT count(*) FROM (SELECT 1 AS one FROM task WHERE scope = $1 AND owner = $2 LIMIT $3) AS there";

/// Counts the rows of a query, at most `tasks_max`.
async fn count_up_to(
    tx: &mut Tx,
    sql: &'static str,
    args: &[SqlArg<'_>],
    tasks_max: usize,
) -> sqlx::Result<usize> {
    let mut args = args.to_vec();
    args.push(tasks_max.into());
    Ok(usize::try_from(tx.db.number(sql, &args).await?).unwrap_or_default())
}

fn task_row<'a>(stored: &'a TaskRecord, body: &'a str) -> [SqlArg<'a>; 20] {
    let task = &stored.task;
    args![
        task.id.as_str(),
        task.number,
        &task.scope,
        task.owner.as_str(),
        task.key.as_deref(),
        task.parent.as_ref().map(TaskId::as_str),
        &task.agent,
        &task.message,
        task.class.as_str(),
        task.on_restart.as_str(),
        task.state.as_str(),
        task.pending_needs,
        task.open_children,
        task.created,
        task.updated,
        task.deadline,
        task.expires,
        stored.row_bytes(body),
        &stored.request_digest,
        body
    ]
}

/// Maximum number of tasks examined to detect a dependency cycle. A larger graph fails with
/// `JournalError::Invalid`, and nothing is stored.
pub const GRAPH_TASKS_MAX: usize = 1_024;

/// Reads the existing tasks that new ones name as dependency or parent. These tasks are locked, so
/// that their states can't change before the transaction ends.
async fn look_up_graph(
    db: &mut DbConnection,
    new: &[NewTask],
) -> Result<TaskGraph, TaskWriteError> {
    let ours: HashSet<_> = new.iter().map(|task| &task.id).collect();
    let there = |id: &&TaskId| !ours.contains(*id);
    let needs: HashSet<_> = new
        .iter()
        .flat_map(|task| &task.needs)
        .filter(there)
        .cloned()
        .collect();
    let parents: HashSet<_> = new
        .iter()
        .filter_map(|task| task.parent.as_ref())
        .filter(there)
        .cloned()
        .collect();
    let mut known = TaskGraph::default();
    if needs.is_empty() && parents.is_empty() {
        return Ok(known);
    }
    const STATES: Sql = of_ids!(
        "SELECT id, state FROM task WHERE id",
        " ORDER BY id",
        " ORDER BY id FOR UPDATE"
    );
    let named = id_list(needs.union(&parents))?;
    for row in db.rows(STATES, &args![named.as_str()]).await? {
        known.states.insert(row.get(0)?, row.get(1)?);
    }
    for parent in &parents {
        let depth = task_depth(db, parent).await?;
        known.depths.insert(parent.clone(), depth);
    }
    // Only the dependencies of a parent can lead back to a new child. A task that has ended waits
    // for nothing.
    let runs = |id: &TaskId| {
        known
            .states
            .get(id)
            .is_some_and(|state| !state.is_terminal())
    };
    let needs = needs.into_iter().filter(runs).collect();
    if !parents.is_empty() && !follow_waits(&mut known.waits_for, db, needs).await? {
        let refused = TaskError::Journal(JournalError::Invalid(
            "the new tasks' parents wait for more than 1024 other tasks (`GRAPH_TASKS_MAX`)",
        ));
        return Err(refused.into());
    }
    Ok(known)
}

async fn task_depth(db: &mut DbConnection, task: &TaskId) -> sqlx::Result<usize> {
    let (mut depth, mut at) = (0, task.as_str().to_owned());
    while depth <= TASK_DEPTH_MAX {
        let row = db
            .row("SELECT parent FROM task WHERE id = $1", &args![at.as_str()])
            .await?;
        let Some(parent) = row.map(|row| row.get(0)).transpose()?.flatten() else {
            break;
        };
        at = parent;
        depth += 1;
    }
    Ok(depth)
}

type WaitGraph = HashMap<TaskId, Vec<TaskId>>;

/// Adds to `waits` all unfinished tasks that those in `next` wait for, directly or not:
/// dependencies and children. Returns `false` if there are more than [`GRAPH_TASKS_MAX`].
async fn follow_waits(
    waits: &mut WaitGraph,
    db: &mut DbConnection,
    mut next: HashSet<TaskId>,
) -> sqlx::Result<bool> {
    const NEEDS: Sql = of_ids!(
        "SELECT n.task, n.needs FROM task_need n JOIN task d ON d.id = n.needs \
         WHERE d.state IN ('submitted', 'working', 'input_required', 'auth_required') AND n.task"
    );
    const PARTS: Sql = of_ids!(
        "SELECT parent, id FROM task \
         WHERE state IN ('submitted', 'working', 'input_required', 'auth_required') AND parent"
    );
    while !next.is_empty() {
        if waits.len() + next.len() > GRAPH_TASKS_MAX {
            return Ok(false);
        }
        let ids = id_list(&next)?;
        let mut found = Vec::new();
        for sql in [NEEDS, PARTS] {
            for row in db.rows(sql, &args![ids.as_str()]).await? {
                found.push((row.get(0)?, row.get(1)?));
            }
        }
        for task in next.drain() {
            waits.entry(task).or_default();
        }
        for (task, other) in found {
            if !waits.contains_key(&other) {
                next.insert(other.clone());
            }
            waits.entry(task).or_default().push(other);
        }
    }
    Ok(true)
}
