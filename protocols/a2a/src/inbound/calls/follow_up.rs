//! A message to a task that there is: it answers what the task asks.

use std::sync::Arc;

use callboard_runtime::live::Found;
use callboard_runtime::{By, OpenQuestion, Task, TaskError, TaskStep};

use super::begin::Sent;
use super::view::{NEEDED, context};
use super::{Core, history, wait};
use crate::convert::{Fit, QUESTION, answered, of_store, of_tasks};
use crate::wire::{Message, Wire as _};
use crate::{A2aError, ErrorKind};

impl Core {
    /// Takes a message for a task.
    ///
    /// # Errors
    /// `InvalidParams` where it belongs to another conversation or names no open question, `UnsupportedOperation` where the task has
    /// ended or asks nothing.
    pub(super) async fn follow_up(self: &Arc<Self>, mut found: Found, mut message: Message) -> Result<Sent, A2aError> {
        let context = context(&found.task);
        if !message.context_id.is_empty() && message.context_id != context {
            return Err(A2aError::new(ErrorKind::InvalidParams, "the task belongs to another `contextId`"));
        }
        let is_again = self.has(&found.task, &message).await?;
        if !is_again {
            wait::asks_again(&mut found).await?;
        }
        let Found { task, live, .. } = found;
        if is_again {
            return Ok(Sent { task, live, is_new: false, begun_before: false, is_again: true });
        }
        if task.state.is_terminal() {
            return Err(ended(&task));
        }
        message.context_id = context;
        task.id.as_str().clone_into(&mut message.task_id);
        let open = self.open(&task, &message)?;
        let fit = answered(&open.question, &message);
        let kept = callboard_message::RawObject::parse(&message.to_raw()).unwrap_or_default();
        let mut steps = vec![TaskStep::History(kept)];
        let answer = match fit {
            Fit::Answer(answer) => {
                if task.said.as_deref().is_some_and(|said| said.starts_with(NEEDED)) {
                    steps.push(TaskStep::Said(String::new()));
                }
                Some((open.key.clone(), answer))
            }
            Fit::Lacks(lacks) => {
                steps.push(TaskStep::Said(format!("{NEEDED}{}", lacks.join(", "))));
                None
            }
        };
        let told = match (&live, answer) {
            (Some(live), answer) => live.tell(steps, answer).await,
            // Others than its worker may answer, and nothing else. The answer tells of its message.
            (None, Some((key, answer))) => {
                let step = TaskStep::Answered { key, answer: answer.to_raw() };
                self.store.tasks.step(&task.id, By::Owner(&task.owner), vec![step]).await
            }
            (None, None) => {
                let why = steps.pop().and_then(|step| if let TaskStep::Said(why) = step { Some(why) } else { None });
                return Err(A2aError::new(ErrorKind::InvalidParams, why.unwrap_or_default()));
            }
        };
        match told {
            Ok(task) => Ok(Sent { task, live, is_new: false, begun_before: false, is_again: false }),
            Err(TaskError::Illegal { .. }) => Err(asks_nothing(&task)),
            Err(TaskError::HasEnded(_)) => Err(ended(&task)),
            Err(error) => Err(of_tasks(&error)),
        }
    }

    /// Whether a task has taken a message before.
    async fn has(&self, task: &Task, message: &Message) -> Result<bool, A2aError> {
        let said = history::of(&*self.store.tasks, task, None).await.map_err(|error| of_store(&error))?;
        Ok(said.into_iter().flatten().any(|said| history::is_same(&said, message)))
    }

    /// The question that a message answers: the one that it names, or the one that waits longest.
    fn open<'a>(&self, task: &'a Task, message: &Message) -> Result<&'a OpenQuestion, A2aError> {
        let wanted = message.metadata.as_ref().and_then(|metadata| metadata.text(QUESTION));
        match wanted {
            Some(key) => task.open.iter().find(|open| open.key == key),
            None => task.open.first(),
        }
        .ok_or_else(|| asks_nothing(task))
    }
}

fn ended(task: &Task) -> A2aError {
    A2aError::new(ErrorKind::UnsupportedOperation, "the task has ended").about(task.id.as_str())
}

fn asks_nothing(task: &Task) -> A2aError {
    A2aError::new(ErrorKind::UnsupportedOperation, "the task asks nothing now").about(task.id.as_str())
}
