//! Tasks about to be kept, with those that are there: who waits for whom. A task waits for what it needs, and for its parts.

use std::collections::{HashMap, HashSet};

use callboard_runtime::{JournalError, NewTask, TASK_DEPTH_MAX, TaskError, TaskGraph, TaskId};

use super::of_ids;
use super::row::list;
use crate::sql::{Db, Sql, args};

/// Most tasks that are looked at to find a circle.
pub const GRAPH_TASKS_MAX: usize = 1_024;

/// Looks up what is there of the graph. What new tasks name can't change before the transaction ends.
pub(super) async fn look_up(db: &mut Db, new: &[NewTask]) -> Result<Result<TaskGraph, TaskError>, sqlx::Error> {
    let ours: HashSet<_> = new.iter().map(|task| &task.id).collect();
    let there = |id: &&TaskId| !ours.contains(*id);
    let needs: HashSet<_> = new.iter().flat_map(|task| &task.needs).filter(there).cloned().collect();
    let parents: HashSet<_> = new.iter().filter_map(|task| task.parent.as_ref()).filter(there).cloned().collect();
    let mut known = TaskGraph::default();
    if needs.is_empty() && parents.is_empty() {
        return Ok(Ok(known));
    }
    const STATES: Sql = of_ids!("SELECT id, state FROM task WHERE id", " ORDER BY id", " ORDER BY id FOR UPDATE");
    let named = list(needs.union(&parents))?;
    for row in db.rows(STATES, &args![named.as_str()]).await? {
        known.states.insert(row.get(0)?, row.get(1)?);
    }
    for parent in &parents {
        let depth = depth_of(db, parent).await?;
        known.depths.insert(parent.clone(), depth);
    }
    // Only what a parent waits for can lead back: to a part that is new. What has ended waits for nobody.
    let runs = |id: &TaskId| known.states.get(id).is_some_and(|state| !state.is_terminal());
    let needs = needs.into_iter().filter(runs).collect();
    if !parents.is_empty() && !follow(&mut known.waits, db, needs).await? {
        return Ok(Err(JournalError::Invalid("the tasks are part of too large a graph").into()));
    }
    Ok(Ok(known))
}

async fn depth_of(db: &mut Db, task: &TaskId) -> Result<usize, sqlx::Error> {
    let (mut depth, mut at) = (0, task.as_str().to_owned());
    while depth <= TASK_DEPTH_MAX {
        let row = db.row("SELECT parent FROM task WHERE id = $1", &args![at.as_str()]).await?;
        let Some(parent) = row.map(|row| row.get(0)).transpose()?.flatten() else { break };
        at = parent;
        depth += 1;
    }
    Ok(depth)
}

type Waits = HashMap<TaskId, Vec<TaskId>>;

/// Follows from `next` on who waits for whom; false where that leads too far.
async fn follow(waits: &mut Waits, db: &mut Db, mut next: HashSet<TaskId>) -> Result<bool, sqlx::Error> {
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
