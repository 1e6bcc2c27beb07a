//! Beginning tasks: keys, limits, and the graph of those that wait for each other.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use callboard_message::{DataClass, TaskState};
use callboard_runtime::{
    Audit, JournalError, Lease, NewTask, TASK_DEPTH_MAX, TASK_LEASE, Task, TaskError, TaskGraph,
    TaskId, TaskResult, TaskStep,
};

use super::of_ids;
use super::row::{Stored, columns, list, stored, whole_ms};
use super::work::{Means, Stop, Work};
use crate::sql::{Arg, Db, ManyRows, Sql, args};
use crate::tx::{Tx, Write};

/// Keeps tasks of which all or none are kept.
pub(super) struct Begin {
    pub(super) new: Vec<NewTask>,
    /// Whether the first is begun by whoever asks.
    pub(super) starts: bool,
    pub(super) means: Means,
}

/// The tasks as they are now, in their order, and the lease on the first where it is new and was to start.
pub(super) type Begun = (Vec<Arc<Task>>, Option<Lease>);

impl Write for Begin {
    type Output = TaskResult<Begun>;
    const NAME: &'static str = "task.begin";
    const CHANGES_TASKS: bool = true;

    fn bytes(&self) -> usize {
        self.new.iter().map(NewTask::bytes).sum()
    }

    async fn run(&mut self, tx: &mut Tx) -> sqlx::Result<Self::Output> {
        Stop::told(self.begin(tx).await)
    }
}

impl Begin {
    async fn begin(&self, tx: &mut Tx) -> Result<Begun, Stop> {
        let (mut ids, mut fresh) = (Vec::new(), Vec::new());
        if !tx.db.is_sqlite() {
            // What another node has begun and not yet committed is waited for.
            tx.numbers("task", 0).await?;
        }
        for new in &self.new {
            let mark = asked(&*self.means.marks, new);
            match there(tx, new, &mark).await? {
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

        let mut work = Work::new(tx, self.means.clone());
        for new in &fresh {
            let mut states = new.needs.iter().filter_map(|need| known.states.get(need));
            let dead = states.find(|state| state.is_terminal() && **state != TaskState::Completed);
            if let Some(state) = dead
                && work.load(&new.id).await?
            {
                work.end(&new.id, TaskStep::need_ended(*state)).await?;
            }
        }
        let mut lease = None;
        if let Some(first) = fresh.first().filter(|_| self.starts)
            && work.load(&first.id).await?
        {
            let worker = work.tx.worker.clone();
            lease = Some(work.lease(&first.id, &worker, TASK_LEASE));
            if work.take_own(&first.id, vec![TaskStep::Start]).is_err() {
                // It waits for others, or was cancelled with one of them.
                work.change(&first.id, |stored| stored.task.lease = None);
            }
        }
        work.write().await?;
        let mut tasks = Vec::with_capacity(ids.len());
        for id in &ids {
            work.load(id).await?;
            tasks.push(work.seen(id)?);
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

static INSERT: ManyRows = ManyRows::new(
    "INSERT INTO task (id, number, scope, owner, key, parent, agent, message, class, on_restart, state, waiting, \
     children_open, created_ms, updated_ms, deadline_ms, expires_ms, bytes, request_mark, body) VALUES",
    20,
    "",
);
static INSERT_NEEDS: ManyRows = ManyRows::new("INSERT INTO task_need (task, needs) VALUES", 2, "");

impl Begin {
    /// Whether all of them can be kept, and what there is around them.
    async fn check(&self, tx: &mut Tx, fresh: &[NewTask]) -> Result<TaskGraph, Stop> {
        NewTask::check_distinct(fresh)?;
        let (mut of_scope, mut of_owner) = (HashMap::new(), HashMap::new());
        for new in fresh {
            let scope = of_scope.entry(&new.scope).or_insert(0);
            *scope += 1;
            if let Some(tasks_max) = new.scope_tasks_max
                && count(tx, OF_SCOPE, &args![&new.scope], tasks_max).await? + *scope > tasks_max
            {
                return Err(TaskError::TooMany { tasks_max }.into());
            }
            let owner = of_owner.entry((&new.scope, &new.owner)).or_insert(0);
            *owner += 1;
            let args = args![&new.scope, new.owner.as_str()];
            if let Some(tasks_max) = new.owner_tasks_max
                && count(tx, OF_OWNER, &args, tasks_max).await? + *owner > tasks_max
            {
                return Err(TaskError::TooMany { tasks_max }.into());
            }
        }
        let bytes = fresh
            .iter()
            .filter(|new| new.class == DataClass::Clinical)
            .map(NewTask::bytes)
            .sum();
        self.means.held.make_room(bytes)?;
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
        let first = tx.numbers("task", fresh.len() as u64).await?;
        let now = crate::sql::time(tx.now_ms);
        let worker = tx.worker.clone();
        let mut parts: HashMap<&TaskId, u32> = HashMap::new();
        for parent in fresh.iter().filter_map(|new| new.parent.as_ref()) {
            *parts.entry(parent).or_default() += 1;
        }
        let mut rows = Vec::with_capacity(fresh.len());
        for ((new, request_mark), number) in fresh.iter().zip(marks).zip(first..) {
            let completed = |need: &&TaskId| known.states.get(*need) == Some(&TaskState::Completed);
            let waiting = new.needs.iter().filter(|need| !completed(need)).count();
            let mut task = Task::submitted(
                new.clone(),
                number,
                u32::try_from(waiting).unwrap_or(u32::MAX),
                now,
            );
            task.deadline = task.deadline.map(whole_ms);
            task.expires = whole_ms(task.expires);
            task.children_open = parts.get(&task.id).copied().unwrap_or_default();
            let is_held = task.class == DataClass::Clinical;
            if is_held {
                let request = task.request.take();
                self.means.held.begin(&task.id, request, self.means.write);
            }
            let held_by = is_held.then(|| worker.to_string());
            let stored = Stored {
                task,
                epoch: 0,
                request_mark,
                held_by,
            };
            rows.push((stored.body()?, stored));
        }
        let values: Vec<Arg<'_>> = rows
            .iter()
            .flat_map(|(body, stored)| task_row(stored, body))
            .collect();
        INSERT.execute(&mut tx.db, &values).await?;
        let needs = fresh.iter().flat_map(|new| {
            new.needs
                .iter()
                .map(|need| [new.id.as_str(), need.as_str()])
        });
        let values: Vec<Arg<'_>> = needs.flatten().map(Arg::from).collect();
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

/// What a task was begun with, as a hash: a keyed one where it could be guessed and isn't kept anyway.
fn asked(marks: &dyn Audit, new: &NewTask) -> String {
    let class = if new.class == DataClass::Clinical {
        new.class
    } else {
        DataClass::Internal
    };
    marks.mark(class, &new.asked()).hash
}

/// The task that `new` was begun as before.
async fn there(tx: &mut Tx, new: &NewTask, mark: &str) -> Result<Option<TaskId>, Stop> {
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
    let there = stored(&row)?;
    let same = there.request_mark == mark
        && there.task.owner == new.owner
        && there.task.scope == new.scope;
    if same {
        Ok(Some(there.task.new.id))
    } else {
        Err(TaskError::KeyReused.into())
    }
}

const OF_SCOPE: &str =
    "SELECT count(*) FROM (SELECT 1 AS one FROM task WHERE scope = $1 LIMIT $2) AS there";
const OF_OWNER: &str = "SELECT count(*) FROM (SELECT 1 AS one FROM task WHERE scope = $1 AND owner = $2 LIMIT $3) AS there";

/// How many there are, as far as that matters.
async fn count(
    tx: &mut Tx,
    sql: &'static str,
    args: &[Arg<'_>],
    tasks_max: usize,
) -> sqlx::Result<usize> {
    let mut args = args.to_vec();
    args.push(tasks_max.into());
    Ok(usize::try_from(tx.db.number(sql, &args).await?).unwrap_or_default())
}

fn task_row<'a>(stored: &'a Stored, body: &'a str) -> [Arg<'a>; 20] {
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
        task.waiting,
        task.children_open,
        task.created,
        task.updated,
        task.deadline,
        task.expires,
        body.len(),
        &stored.request_mark,
        body
    ]
}

/// Most tasks that are looked at to find a circle.
/// At the limit: an error: nothing is kept.
pub const GRAPH_TASKS_MAX: usize = 1_024;

/// Looks up what is there of the graph. What new tasks name can't change before the transaction ends.
async fn look_up_graph(db: &mut Db, new: &[NewTask]) -> Result<TaskGraph, Stop> {
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
    let named = list(needs.union(&parents))?;
    for row in db.rows(STATES, &args![named.as_str()]).await? {
        known.states.insert(row.get(0)?, row.get(1)?);
    }
    for parent in &parents {
        let depth = depth_of(db, parent).await?;
        known.depths.insert(parent.clone(), depth);
    }
    // Only what a parent waits for can lead back: to a part that is new. What has ended waits for nobody.
    let runs = |id: &TaskId| {
        known
            .states
            .get(id)
            .is_some_and(|state| !state.is_terminal())
    };
    let needs = needs.into_iter().filter(runs).collect();
    if !parents.is_empty() && !follow(&mut known.waits, db, needs).await? {
        let refused = TaskError::Journal(JournalError::Invalid(
            "the tasks are part of too large a graph",
        ));
        return Err(refused.into());
    }
    Ok(known)
}

async fn depth_of(db: &mut Db, task: &TaskId) -> sqlx::Result<usize> {
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

type Waits = HashMap<TaskId, Vec<TaskId>>;

/// Follows from `next` on who waits for whom; false where that leads too far.
async fn follow(waits: &mut Waits, db: &mut Db, mut next: HashSet<TaskId>) -> sqlx::Result<bool> {
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
        let ids = list(&next)?;
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
