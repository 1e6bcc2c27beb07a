//! Messages to existing tasks, which answer their questions, and waiting for tasks.

use std::sync::Arc;
use std::time::Duration;

use callboard_message::{RawObject, TaskState};
use callboard_runtime::running::FoundTask;
use callboard_runtime::{OpenQuestion, Task, TaskActor, TaskError, TaskStep, TaskStore};
use tokio::time::{Instant, timeout_at};

use super::history::TaskHistory;
use super::task_start::{MessageDisposition, SendOutcome};
use super::view::{self, NEEDED_PREFIX, context_id};
use crate::convert::{QUESTION_METADATA, check_answer_files, parse_answer};
use crate::wire::{A2aMessage, WireType as _};
use crate::{A2aError, ErrorKind};

/// Handler of messages to existing tasks, which it passes on as answers to their open questions.
pub(super) struct FollowUps {
    tasks: Arc<dyn TaskStore>,
    history: TaskHistory,
}

impl FollowUps {
    pub(super) fn new(tasks: Arc<dyn TaskStore>, history: TaskHistory) -> Self {
        Self { tasks, history }
    }

    /// Passes a message to an existing task as the answer to one of its open questions. A message
    /// that the task has received before changes nothing. If the message lacks required fields and
    /// the task runs in this process, the question stays open, and the task's status text says what
    /// is missing.
    ///
    /// # Errors
    /// `InvalidParams` if the message names another conversation, or lacks required fields and the
    /// task doesn't run in this process; `ContentTypeNotSupported` if it has a file for which the
    /// question has no field; `UnsupportedOperation` if the task has ended, or has no open question
    /// that the message could answer; errors of the task store.
    pub(super) async fn accept(
        &self,
        mut found: FoundTask,
        mut message: A2aMessage,
    ) -> Result<SendOutcome, A2aError> {
        check_context(&found.task, &message)?;
        if self.has_received(&found.task, &message).await? {
            return Ok(SendOutcome::duplicate(found));
        }
        if found.running.as_ref().is_some_and(|live| live.is_resumed) {
            // A question from before the restart will be asked again soon.
            wait_until_settled(&mut found, Instant::now() + REPEATED_QUESTION_TIMEOUT).await?;
        }
        let FoundTask {
            task,
            running: live,
            ..
        } = found;
        if task.state.is_terminal() {
            return Err(ended_error(&task));
        }
        message.context_id = context_id(&task);
        task.id.as_str().clone_into(&mut message.task_id);
        let open = Self::find_open_question(&task, &message)?;
        check_answer_files(&open.question, &message)?;
        let told = match (&live, parse_answer(&open.question, &message)) {
            (Some(live), Ok(answer)) => {
                let steps = answer_steps(&task, &message);
                live.apply(steps, Some((open.key.clone(), answer))).await
            }
            // Only its worker may write other steps of a task, but anyone may answer. The answer
            // contains its message.
            (None, Ok(answer)) => {
                let step = TaskStep::Answered {
                    key: open.key.clone(),
                    answer: answer.to_raw(),
                };
                self.tasks
                    .apply(&task.id, TaskActor::Owner(&task.owner), vec![step])
                    .await
            }
            (Some(live), Err(lacks)) => {
                live.apply(
                    vec![
                        history_step(&message),
                        TaskStep::Said(missing_fields_text(&lacks)),
                    ],
                    None,
                )
                .await
            }
            (None, Err(lacks)) => {
                return Err(ErrorKind::InvalidParams.error(missing_fields_text(&lacks)));
            }
        };
        match told {
            Ok(task) => Ok(SendOutcome {
                task,
                live,
                disposition: MessageDisposition::Answered,
            }),
            Err(TaskError::Illegal { .. }) => Err(no_open_question_error(&task)),
            Err(TaskError::HasEnded(_)) => Err(ended_error(&task)),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether the task's history contains the message already.
    async fn has_received(&self, task: &Task, message: &A2aMessage) -> Result<bool, A2aError> {
        let said = self.history.read(task, None).await?;
        Ok(said
            .into_iter()
            .flatten()
            .any(|said| view::is_same_message(&said, message)))
    }

    /// Returns the open question that a message answers: the one that its metadata names, else the
    /// task's oldest one.
    fn find_open_question<'a>(
        task: &'a Task,
        message: &A2aMessage,
    ) -> Result<&'a OpenQuestion, A2aError> {
        let wanted = message
            .metadata
            .as_ref()
            .and_then(|metadata| metadata.text(QUESTION_METADATA));
        match wanted {
            Some(key) => task.open_questions.iter().find(|open| open.key == key),
            None => task.open_questions.first(),
        }
        .ok_or_else(|| no_open_question_error(task))
    }
}

/// Checks that a message names no other conversation than that of its task.
///
/// # Errors
/// `InvalidParams`.
pub(super) fn check_context(task: &Task, message: &A2aMessage) -> Result<(), A2aError> {
    match message.context_id.is_empty() || message.context_id == context_id(task) {
        true => Ok(()),
        false => Err(ErrorKind::InvalidParams
            .error("the task belongs to another `contextId`: send that one, or none")),
    }
}

/// Returns the steps that record an answer: the message in the history, and the end of a status
/// message about missing fields.
fn answer_steps(task: &Task, message: &A2aMessage) -> Vec<TaskStep> {
    let is_needed = task
        .status_message
        .as_deref()
        .is_some_and(|said| said.starts_with(NEEDED_PREFIX));
    let said = is_needed.then(|| TaskStep::Said(String::new()));
    [history_step(message)].into_iter().chain(said).collect()
}

/// Returns the step that adds a message to its task's history.
fn history_step(message: &A2aMessage) -> TaskStep {
    TaskStep::History(RawObject::parse(&message.to_raw()).unwrap_or_default())
}

fn missing_fields_text(lacks: &[String]) -> String {
    format!("{NEEDED_PREFIX}{}", lacks.join(", "))
}

fn ended_error(task: &Task) -> A2aError {
    ErrorKind::UnsupportedOperation
        .error("the task has ended: send the message without its id, to begin a new task")
        .with_task(task.id.as_str())
}

fn no_open_question_error(task: &Task) -> A2aError {
    ErrorKind::UnsupportedOperation
        .error("the task has no open question that this message could answer: send the message without its id, to begin a new task")
        .with_task(task.id.as_str())
}

/// Maximum time for which an answer waits until its task, resumed after a restart, asks its
/// question again.
const REPEATED_QUESTION_TIMEOUT: Duration = Duration::from_secs(5);

/// Waits until a task has ended or has an open question, but not longer than the time `until`.
/// Updates `found` to the task's new state.
///
/// # Errors
/// `TaskNotFound` if the task has expired; errors of the task store.
pub(super) async fn wait_until_settled(
    found: &mut FoundTask,
    until: Instant,
) -> Result<(), A2aError> {
    while !found.task.state.is_terminal() && !view::is_interrupted(&found.task) {
        match timeout_at(until, found.wait_until_changed()).await {
            Ok(changed) => changed.map_err(|error| task_error(error, &found.task))?,
            Err(_) => return Ok(()),
        }
    }
    Ok(())
}

/// Cancels a task and updates `found` to its new state.
///
/// # Errors
/// `TaskNotCancelable` if the task has already ended, or ends in another state than cancelled;
/// errors of the task store.
pub(super) async fn cancel_found_task(found: &mut FoundTask) -> Result<(), A2aError> {
    let had_ended = found.task.state.is_terminal();
    found
        .cancel()
        .await
        .map_err(|error| task_error(error, &found.task))?;
    let (task, ended_otherwise) = (
        &found.task,
        [TaskState::Completed, TaskState::Failed, TaskState::Rejected],
    );
    if had_ended || ended_otherwise.contains(&task.state) {
        let error =
            ErrorKind::TaskNotCancelable.error("the task has ended, so it can't be cancelled");
        return Err(error.with_task(task.id.as_str()));
    }
    Ok(())
}

fn task_error(error: TaskError, task: &Task) -> A2aError {
    match error {
        TaskError::NotFound => A2aError::task_not_found(task.id.as_str()),
        error => error.into(),
    }
}
