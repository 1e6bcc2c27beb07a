//! Messages to a task that there is (they answer what it asks), and waiting for one.

use std::time::Duration;

use callboard_message::{RawObject, TaskState};
use callboard_runtime::live::Found;
use callboard_runtime::{By, OpenQuestion, Task, TaskError, TaskId, TaskStep};
use tokio::time::{Instant, timeout_at};

use super::begin::{Sent, Taken};
use super::view::{self, NEEDED, context};
use super::{Calls, Who};
use crate::convert::{QUESTION, answered};
use crate::wire::{Message, Wire as _};
use crate::{A2aError, ErrorKind};

impl Calls {
    /// Takes a message for a task.
    ///
    /// # Errors
    /// `InvalidParams` where it belongs to another conversation or names no open question, `UnsupportedOperation` where the task has
    /// ended or asks nothing.
    pub(super) async fn follow_up(
        &self,
        mut found: Found,
        mut message: Message,
    ) -> Result<Sent, A2aError> {
        let context = context(&found.task);
        if !message.context_id.is_empty() && message.context_id != context {
            return Err(ErrorKind::InvalidParams.error("the task belongs to another `contextId`"));
        }
        if self.has(&found.task, &message).await? {
            let Found { task, live, .. } = found;
            return Ok(Sent {
                task,
                live,
                how: Taken::Again,
            });
        }
        if found.live.as_ref().is_some_and(|live| live.is_resumed) {
            // What it had asked before the restart is asked again, soon.
            settled(&mut found, Instant::now() + ASKS_AGAIN_IN).await?;
        }
        let Found { task, live, .. } = found;
        if task.state.is_terminal() {
            return Err(ended(&task));
        }
        message.context_id = context;
        task.id.as_str().clone_into(&mut message.task_id);
        let open = self.open(&task, &message)?;
        let told = match (&live, answered(&open.question, &message)) {
            (Some(live), Ok(answer)) => {
                let is_needed = task
                    .said
                    .as_deref()
                    .is_some_and(|said| said.starts_with(NEEDED));
                let said = is_needed.then(|| TaskStep::Said(String::new()));
                let steps = [history_step(&message)].into_iter().chain(said).collect();
                live.tell(steps, Some((open.key.clone(), answer))).await
            }
            // Others than its worker may answer, and nothing else. The answer tells of its message.
            (None, Ok(answer)) => {
                let step = TaskStep::Answered {
                    key: open.key.clone(),
                    answer: answer.to_raw(),
                };
                self.store
                    .tasks
                    .step(&task.id, By::Owner(&task.owner), vec![step])
                    .await
            }
            (Some(live), Err(lacks)) => {
                live.tell(
                    vec![history_step(&message), TaskStep::Said(needed(&lacks))],
                    None,
                )
                .await
            }
            (None, Err(lacks)) => return Err(ErrorKind::InvalidParams.error(needed(&lacks))),
        };
        match told {
            Ok(task) => Ok(Sent {
                task,
                live,
                how: Taken::Answered,
            }),
            Err(TaskError::Illegal { .. }) => Err(asks_nothing(&task)),
            Err(TaskError::HasEnded(_)) => Err(ended(&task)),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether a task has taken a message before.
    async fn has(&self, task: &Task, message: &Message) -> Result<bool, A2aError> {
        let said = self.history(task, None).await?;
        Ok(said
            .into_iter()
            .flatten()
            .any(|said| view::is_same(&said, message)))
    }

    /// The question that a message answers: the one that it names, or the one that waits longest.
    fn open<'a>(&self, task: &'a Task, message: &Message) -> Result<&'a OpenQuestion, A2aError> {
        let wanted = message
            .metadata
            .as_ref()
            .and_then(|metadata| metadata.text(QUESTION));
        match wanted {
            Some(key) => task.open.iter().find(|open| open.key == key),
            None => task.open.first(),
        }
        .ok_or_else(|| asks_nothing(task))
    }
}

/// The message as a part of its task's history.
fn history_step(message: &Message) -> TaskStep {
    TaskStep::History(RawObject::parse(&message.to_raw()).unwrap_or_default())
}

fn needed(lacks: &[String]) -> String {
    format!("{NEEDED}{}", lacks.join(", "))
}

fn ended(task: &Task) -> A2aError {
    ErrorKind::UnsupportedOperation
        .error("the task has ended")
        .about(task.id.as_str())
}

fn asks_nothing(task: &Task) -> A2aError {
    ErrorKind::UnsupportedOperation
        .error("the task asks nothing now")
        .about(task.id.as_str())
}

/// How long a message waits for a task that goes on after a restart to ask again what it answers.
const ASKS_AGAIN_IN: Duration = Duration::from_secs(5);

impl Calls {
    /// A task of `who`'s. Another's isn't told from one that never was.
    ///
    /// # Errors
    /// `TaskNotFound`.
    pub(super) async fn find(&self, who: &Who, id: &str) -> Result<Found, A2aError> {
        let found = match TaskId::new(id) {
            Ok(task) => self.live.find(&task, &who.owner()).await?,
            Err(_) => None,
        };
        found.ok_or_else(|| A2aError::task_not_found(id))
    }
}

/// Ends when a task stands still: it has ended, or waits for its owner. At `until` it is as it is.
///
/// # Errors
/// `TaskNotFound` where its time is over; the store's.
pub(super) async fn settled(found: &mut Found, until: Instant) -> Result<(), A2aError> {
    while !found.task.state.is_terminal() && !view::is_interrupted(&found.task) {
        match timeout_at(until, found.changed()).await {
            Ok(changed) => changed.map_err(|error| of_task(error, &found.task))?,
            Err(_) => return Ok(()),
        }
    }
    Ok(())
}

/// Cancels a task, and looks what became of it.
///
/// # Errors
/// `TaskNotCancelable` where it has ended; the store's.
pub(super) async fn cancel_found(found: &mut Found) -> Result<(), A2aError> {
    let had_ended = found.task.state.is_terminal();
    found
        .cancel()
        .await
        .map_err(|error| of_task(error, &found.task))?;
    let (task, ended_otherwise) = (
        &found.task,
        [TaskState::Completed, TaskState::Failed, TaskState::Rejected],
    );
    if had_ended || ended_otherwise.contains(&task.state) {
        let error = ErrorKind::TaskNotCancelable.error("the task has ended");
        return Err(error.about(task.id.as_str()));
    }
    Ok(())
}

fn of_task(error: TaskError, task: &Task) -> A2aError {
    match error {
        TaskError::NotFound => A2aError::task_not_found(task.id.as_str()),
        error => error.into(),
    }
}
