//! Reading tasks, beside whoever writes.

use std::sync::Arc;

use callboard_message::DataClass;
use callboard_runtime::{JournalError, Task, TaskEvent, TaskFilter, TaskId, TaskPage, storable};

use super::held::Held;
use super::row::{columns, event, stored};
use super::work::number;
use crate::clock::ms;
use crate::error::journal_error;
use crate::readers::{PAGE_MAX, Readers};
use crate::sql::{Arg, Row};

/// Bytes of bodies that one read answers at most, unless the first row alone has more.
pub const PAGE_BYTES_MAX: i64 = 16 * 1024 * 1024;

/// What the database answered a reader, or rows that say nothing.
pub(super) fn told(error: sqlx::Error) -> JournalError {
    match error {
        sqlx::Error::Decode(what) => JournalError::Damaged(what.to_string()),
        error => journal_error(&error),
    }
}

fn task(row: &Row, held: &Held) -> Result<Arc<Task>, JournalError> {
    let mut task = stored(row).map_err(told)?.task;
    if task.class == DataClass::Clinical {
        held.complete(&mut task);
    }
    Ok(Arc::new(task))
}

pub(super) async fn get(readers: &Readers, held: &Held, id: &TaskId) -> Result<Option<Arc<Task>>, JournalError> {
    const SQL: &str = concat!("SELECT ", columns!(), " FROM task WHERE id = $1");
    if storable(id.as_str()).is_err() {
        return Ok(None);
    }
    readers.rows(SQL, &[id.as_str().into()]).await?.first().map(|row| task(row, held)).transpose()
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

pub(super) async fn list(
    readers: &Readers,
    held: &Held,
    filter: &TaskFilter,
    after: u64,
    tasks_max: usize,
) -> Result<TaskPage, JournalError> {
    let owner = filter.owner.as_ref().map(|owner| owner.as_str());
    let parent = filter.parent.as_ref().map(TaskId::as_str);
    let (scope, agent, message) = (filter.scope.as_deref(), filter.agent.as_deref(), filter.message.as_deref());
    [scope, owner, agent, message, parent].into_iter().flatten().try_for_each(storable)?;
    let states = filter.states.iter().fold(String::new(), |all, state| format!("{all},{},", state.as_str()));
    let which = match (scope, owner, parent) {
        (_, _, Some(_)) => 2,
        (Some(_), Some(_), None) => 1,
        _ => 0,
    };
    let tasks_max = tasks_max.min(PAGE_MAX);
    let mut args: [Arg<'_>; 10] = [
        number(after).into(),
        scope.into(),
        owner.into(),
        agent.into(),
        message.into(),
        filter.since.map_or(i64::MIN, ms).into(),
        parent.into(),
        states.as_str().into(),
        i64::MAX.into(),
        number(tasks_max as u64 + 1).into(),
    ];
    let mut db = readers.get().await?;
    let sizes = db.rows(SIZES[which], &args).await.map_err(told)?;
    let fits = fitting(&sizes, tasks_max)?;
    let Some(last) = fits.checked_sub(1).and_then(|last| sizes.get(last)) else {
        return Ok((Vec::new(), !sizes.is_empty()));
    };
    args[8] = last.int(0).map_err(told)?.into();
    let rows = db.rows(TASKS[which], &args).await.map_err(told)?;
    let tasks = rows.iter().map(|row| task(row, held)).collect::<Result<_, _>>()?;
    Ok((tasks, sizes.len() > fits))
}

/// How many of the rows, `number, bytes`, are one page.
fn fitting(sizes: &[Row], rows_max: usize) -> Result<usize, JournalError> {
    let mut bytes: i64 = 0;
    for (at, row) in sizes.iter().take(rows_max).enumerate() {
        bytes = bytes.saturating_add(row.int(1).map_err(told)?);
        if bytes > PAGE_BYTES_MAX {
            return Ok(at.max(1));
        }
    }
    Ok(sizes.len().min(rows_max))
}

pub(super) async fn events(
    readers: &Readers,
    held: &Held,
    id: &TaskId,
    after: u64,
    events_max: usize,
) -> Result<Vec<TaskEvent>, JournalError> {
    const SIZES: &str = "SELECT number, CAST(octet_length(body) AS BIGINT) FROM task_event \
                         WHERE task = $1 AND number > $2 ORDER BY number LIMIT $3";
    const EVENTS: &str = "SELECT number, at_ms, state, body FROM task_event \
                          WHERE task = $1 AND number > $2 ORDER BY number LIMIT $3";
    if storable(id.as_str()).is_err() {
        return Ok(Vec::new());
    }
    let mut args: [Arg<'_>; 3] =
        [id.as_str().into(), number(after).into(), number(events_max.min(PAGE_MAX) as u64).into()];
    let mut db = readers.get().await?;
    let fits = fitting(&db.rows(SIZES, &args).await.map_err(told)?, PAGE_MAX)?;
    if fits == 0 {
        return Ok(Vec::new());
    }
    args[2] = number(fits as u64).into();
    let rows = db.rows(EVENTS, &args).await.map_err(told)?;
    let mut events = rows.iter().map(event).collect::<Result<Vec<_>, _>>().map_err(told)?;
    events.iter_mut().for_each(|event| held.complete_event(id, event));
    Ok(events)
}

pub(super) async fn cancels(readers: &Readers, by: &str) -> Result<Vec<TaskId>, JournalError> {
    let sql = "SELECT id FROM task WHERE lease_by = $1 AND cancel = 1 ORDER BY number";
    let rows = readers.rows(sql, &[by.into()]).await?;
    rows.iter().map(|row| super::row::id(row.text(0)?)).collect::<Result<_, _>>().map_err(told)
}
