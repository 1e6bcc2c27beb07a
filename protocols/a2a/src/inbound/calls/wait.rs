//! A task that its owner looks for, and waits for.

use std::sync::Arc;
use std::time::Duration;

use callboard_message::TaskState;
use callboard_runtime::live::Found;
use callboard_runtime::{Task, TaskError, TaskId, TaskOwner};
use tokio::time::{Instant, timeout_at};

use super::{Core, Who, view};
use crate::convert::{of_store, of_tasks};
use crate::{A2aError, ErrorKind};

/// How long a message waits for a task that goes on after a restart to ask again what it answers.
const ASKS_AGAIN_IN: Duration = Duration::from_secs(5);

impl Core {
    /// A task of `who`'s. Another's isn't told from one that never was.
    ///
    /// # Errors
    /// `TaskNotFound`.
    pub(super) async fn find(&self, who: &Who, id: &str) -> Result<Found, A2aError> {
        let found = match TaskId::new(id) {
            Ok(task) => self.look_for(&task, &who.owner()).await?,
            Err(_) => None,
        };
        found.ok_or_else(|| A2aError::task_not_found(id))
    }

    pub(super) async fn look_for(&self, id: &TaskId, owner: &TaskOwner) -> Result<Option<Found>, A2aError> {
        self.live.find(id, owner).await.map_err(|error| of_store(&error))
    }
}

/// Ends when a task stands still: it has ended, or waits for its owner. At `until` it is as it is.
///
/// # Errors
/// `TaskNotFound` where its time is over; the store's.
pub(super) async fn settled(found: &mut Found, until: Instant) -> Result<(), A2aError> {
    while !found.task.state.is_terminal() && !view::is_interrupted(&found.task) {
        match timeout_at(until, found.changed()).await {
            Ok(changed) => changed.map_err(|error| of_task(&error, &found.task))?,
            Err(_) => return Ok(()),
        }
    }
    Ok(())
}

/// Ends when a task stands still, where it goes on after a restart: what it had asked is asked again, soon.
///
/// # Errors
/// As [`settled`].
pub(super) async fn asks_again(found: &mut Found) -> Result<(), A2aError> {
    match &found.live {
        Some(live) if live.is_resumed => settled(found, Instant::now() + ASKS_AGAIN_IN).await,
        _ => Ok(()),
    }
}

/// Cancels a task, and looks what became of it.
///
/// # Errors
/// `TaskNotCancelable` where it has ended; the store's.
pub(super) async fn cancel(found: &mut Found) -> Result<(), A2aError> {
    let had_ended = found.task.state.is_terminal();
    found.cancel().await.map_err(|error| of_task(&error, &found.task))?;
    let (task, ended_otherwise) = (&found.task, [TaskState::Completed, TaskState::Failed, TaskState::Rejected]);
    if had_ended || ended_otherwise.contains(&task.state) {
        let error = A2aError::new(ErrorKind::TaskNotCancelable, "the task has ended");
        return Err(error.about(task.id.as_str()));
    }
    Ok(())
}

fn of_task(error: &TaskError, task: &Arc<Task>) -> A2aError {
    match error {
        TaskError::NotFound => A2aError::task_not_found(task.id.as_str()),
        error => of_tasks(error),
    }
}
