//! How a task goes on: the one state machine of every store.

use std::fmt;
use std::time::SystemTime;

use callboard_message::{Failure, FailureKind, RawObject, TaskState};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::record::{OpenQuestion, Task, TaskOutcome, size_of_failure};
use super::{By, OnRestart, TASK_EVENTS_MAX_DEFAULT, TASK_SAID_EVENTS_MAX, TaskError, TaskResult};

/// What can happen to a task. No step names a state: the state follows from it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(tag = "kind", content = "body", rename_all = "snake_case")]
pub enum TaskStep {
    /// Its worker begins, or begins again.
    Start,
    /// How far it has come, for people.
    Said(String),
    /// A turn of the conversation with its agent.
    History(RawObject),
    /// It has made something.
    Artifact(RawObject),
    /// It asked.
    Asked(OpenQuestion),
    /// It needs a credential. For people: which.
    AuthWanted(String),
    /// A question was answered.
    Answered {
        /// Which.
        key: String,
        /// The answer, as it came.
        answer: Box<RawValue>,
    },
    /// A question waits no more for its answer.
    GivenUp {
        /// Which.
        key: String,
    },
    /// Its agent replied.
    Completed(Box<RawValue>),
    /// Its agent failed.
    Failed(Failure),
    /// Its agent won't do it.
    Rejected(Failure),
    /// Somebody wants it no more.
    Cancelled {
        /// For people.
        why: String,
    },
}

/// Why a task ended that somebody wanted ended.
pub const CANCELLED_WHY: &str = "cancelled by request";

/// One event in the life of a task.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TaskEvent {
    /// Its place among the task's events, from 1, without gaps.
    pub number: u64,
    /// When it was kept.
    pub at: SystemTime,
    /// Where the task stands after it.
    pub state: TaskState,
    /// What happened.
    pub step: TaskStep,
}

impl TaskStep {
    /// Somebody wanted it ended.
    pub fn cancelled() -> Self {
        Self::Cancelled {
            why: CANCELLED_WHY.to_owned(),
        }
    }

    /// A task that it needs has ended as `state`, which isn't completed.
    pub fn need_ended(state: TaskState) -> Self {
        Self::Cancelled {
            why: format!("a step that it needs ended as {state}"),
        }
    }

    /// What a task says when a part of it has ended.
    pub fn part_ended(part: &Task) -> Self {
        Self::Said(format!(
            "a part of it ({} of {}) ended as {}",
            part.message, part.agent, part.state
        ))
    }

    /// Its name as it is written in JSON.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Said(_) => "said",
            Self::History(_) => "history",
            Self::Artifact(_) => "artifact",
            Self::Asked(_) => "asked",
            Self::AuthWanted(_) => "auth_wanted",
            Self::Answered { .. } => "answered",
            Self::GivenUp { .. } => "given_up",
            Self::Completed(_) => "completed",
            Self::Failed(_) => "failed",
            Self::Rejected(_) => "rejected",
            Self::Cancelled { .. } => "cancelled",
        }
    }

    /// Whether a task has ended after it.
    pub const fn is_end(&self) -> bool {
        matches!(
            self,
            Self::Completed(_) | Self::Failed(_) | Self::Rejected(_) | Self::Cancelled { .. }
        )
    }

    /// Whether others than the task's worker may take it: they answer and cancel.
    pub const fn is_for_others(&self) -> bool {
        matches!(self, Self::Answered { .. } | Self::Cancelled { .. })
    }

    /// How large its body is, in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Start => 0,
            Self::Said(text) | Self::AuthWanted(text) | Self::Cancelled { why: text } => text.len(),
            Self::History(body) | Self::Artifact(body) => body.bytes(),
            Self::Asked(open) => open.bytes(),
            Self::Answered { key, answer } => key.len() + answer.get().len(),
            Self::GivenUp { key } => key.len(),
            Self::Completed(reply) => reply.get().len(),
            Self::Failed(failure) | Self::Rejected(failure) => size_of_failure(failure),
        }
    }
}

// Bodies may be anybody's data: only sizes are printed.
impl fmt::Debug for TaskStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({} bytes)", self.name(), self.bytes())
    }
}

/// An event beside its task.
pub(super) struct KeptEvent {
    at: SystemTime,
    state: TaskState,
    rest: Rest,
}

/// What of a step isn't in its task.
enum Rest {
    Start,
    /// It is this one of the task's artifacts.
    Artifact(usize),
    /// It is the task's outcome.
    Completed,
    Failed,
    Rejected,
    Step(Box<TaskStep>),
}

impl KeptEvent {
    /// The event whole; `number` is its place among the task's.
    pub(super) fn of(&self, task: &Task, number: u64) -> TaskEvent {
        let failure = || match &task.outcome {
            Some(TaskOutcome::Failed(failure)) => failure.clone(),
            _ => Failure::new(FailureKind::Internal, "why it ended isn't kept"),
        };
        let step = match &self.rest {
            Rest::Start => TaskStep::Start,
            Rest::Artifact(nth) => {
                TaskStep::Artifact(task.artifacts.get(*nth).cloned().unwrap_or_default())
            }
            Rest::Completed => TaskStep::Completed(match &task.outcome {
                Some(TaskOutcome::Reply(reply)) => reply.clone(),
                _ => RawValue::NULL.to_owned(),
            }),
            Rest::Failed => TaskStep::Failed(failure()),
            Rest::Rejected => TaskStep::Rejected(failure()),
            Rest::Step(step) => TaskStep::clone(step),
        };
        TaskEvent {
            number,
            at: self.at,
            state: self.state,
            step,
        }
    }
}

impl Task {
    /// Takes a step and answers where the task stands then. It works, or waits for input as long as it has a question, until
    /// it ends for good. On an error it is as it was.
    ///
    /// # Errors
    /// [`TaskError::HasEnded`], [`TaskError::Illegal`], [`TaskError::ChildrenRunning`].
    pub fn step(&mut self, step: &TaskStep, now: SystemTime) -> TaskResult<TaskState> {
        Ok(self.take_one(step.clone(), now)?.state)
    }

    fn take_one(&mut self, step: TaskStep, now: SystemTime) -> TaskResult<KeptEvent> {
        let state = self.after(&step)?;
        let rest = self.keep(step);
        self.state = state;
        if state.is_terminal() {
            self.open.clear();
            self.cancel_wanted = false;
            self.lease = None;
        }
        self.last_event += 1;
        // Clocks are set back; a task isn't.
        self.updated = now.max(self.updated);
        Ok(KeptEvent {
            at: self.updated,
            state,
            rest,
        })
    }

    /// Where the task will stand after a step.
    fn after(&self, step: &TaskStep) -> TaskResult<TaskState> {
        use TaskState::{
            AuthRequired, Canceled, Completed, Failed, InputRequired, Rejected, Submitted, Working,
        };
        let from = self.state;
        if from.is_terminal() {
            return Err(TaskError::HasEnded(from));
        }
        let is_open = |key: &str| self.open.iter().any(|open| open.key == key);
        Ok(match (step, from) {
            (TaskStep::Start, Submitted | Working | AuthRequired) if self.waiting == 0 => Working,
            (TaskStep::Said(_) | TaskStep::History(_), _) => from,
            (TaskStep::Artifact(_), Working | InputRequired | AuthRequired) => from,
            (TaskStep::Asked(open), Working | InputRequired) if !is_open(&open.key) => {
                InputRequired
            }
            (TaskStep::AuthWanted(_), Working) => AuthRequired,
            (TaskStep::Answered { key, .. } | TaskStep::GivenUp { key }, _) if is_open(key) => {
                if self.open.iter().all(|open| open.key == *key) {
                    Working
                } else {
                    InputRequired
                }
            }
            (TaskStep::Completed(_), Working | InputRequired | AuthRequired)
                if self.children_open > 0 =>
            {
                return Err(TaskError::ChildrenRunning(self.children_open));
            }
            (TaskStep::Completed(_), Working | InputRequired | AuthRequired) => Completed,
            (TaskStep::Failed(_), _) => Failed,
            (TaskStep::Rejected(_), Submitted | Working) => Rejected,
            (TaskStep::Cancelled { .. }, _) => Canceled,
            _ => {
                return Err(TaskError::Illegal {
                    from,
                    step: step.name(),
                });
            }
        })
    }

    /// Keeps what a step brings, and answers what isn't in the task then.
    fn keep(&mut self, step: TaskStep) -> Rest {
        match step {
            TaskStep::Artifact(artifact) => {
                self.artifacts.push(artifact);
                return Rest::Artifact(self.artifacts.len() - 1);
            }
            TaskStep::Completed(reply) => {
                self.outcome = Some(TaskOutcome::Reply(reply));
                self.said = None;
                return Rest::Completed;
            }
            TaskStep::Failed(failure) => {
                self.fail(failure);
                return Rest::Failed;
            }
            TaskStep::Rejected(failure) => {
                self.fail(failure);
                return Rest::Rejected;
            }
            TaskStep::Start => return Rest::Start,
            TaskStep::Said(ref said)
            | TaskStep::AuthWanted(ref said)
            | TaskStep::Cancelled { why: ref said } => {
                self.said = Some(said.clone());
            }
            TaskStep::Asked(ref open) => self.open.push(open.clone()),
            TaskStep::Answered { ref key, .. } | TaskStep::GivenUp { ref key } => {
                self.open.retain(|open| open.key != *key);
            }
            TaskStep::History(_) => {}
        }
        Rest::Step(Box::new(step))
    }

    fn fail(&mut self, failure: Failure) {
        self.said = Some(failure.message.clone());
        self.outcome = Some(TaskOutcome::Failed(failure));
    }

    /// Takes steps, all or none (on an error the task may be half on its way: drop it), and answers the events to keep. What
    /// a task says is left out once it has said too much.
    ///
    /// # Errors
    /// As [`Task::step`]; [`TaskError::TooManyEvents`] for a step that isn't its end.
    pub fn take(&mut self, steps: Vec<TaskStep>, now: SystemTime) -> TaskResult<Vec<TaskEvent>> {
        self.take_each(steps, |task, step| {
            let state = task.step(&step, now)?;
            Ok(TaskEvent {
                number: task.last_event,
                at: task.updated,
                state,
                step,
            })
        })
    }

    /// The same, for who keeps task and events together: what is in the task isn't in the events once more.
    pub(super) fn take_over(
        &mut self,
        steps: Vec<TaskStep>,
        now: SystemTime,
    ) -> TaskResult<Vec<KeptEvent>> {
        self.take_each(steps, |task, step| task.take_one(step, now))
    }

    fn take_each<E>(
        &mut self,
        steps: Vec<TaskStep>,
        take: impl Fn(&mut Self, TaskStep) -> TaskResult<E>,
    ) -> TaskResult<Vec<E>> {
        let mut events = Vec::with_capacity(steps.len());
        for step in steps {
            if matches!(step, TaskStep::Said(_))
                && self.last_event >= TASK_SAID_EVENTS_MAX
                && !self.state.is_terminal()
            {
                continue;
            }
            if self.last_event >= TASK_EVENTS_MAX_DEFAULT && !step.is_end() {
                return Err(TaskError::TooManyEvents {
                    events_max: TASK_EVENTS_MAX_DEFAULT,
                });
            }
            events.push(take(self, step)?);
        }
        Ok(events)
    }

    /// The steps that a claim of this task takes first where its last worker was interrupted ([`super::Released`], or its
    /// lease ran out), or where somebody wants it ended. After an end among them it isn't handed out.
    pub fn recovery(&self) -> Vec<TaskStep> {
        if self.cancel_wanted {
            return vec![TaskStep::cancelled()];
        }
        if self.state == TaskState::Submitted {
            // It was taken, and not begun.
            return Vec::new();
        }
        match self.on_restart {
            OnRestart::Resume => {
                let given_up = self.open.iter().map(|open| TaskStep::GivenUp {
                    key: open.key.clone(),
                });
                given_up.chain([TaskStep::Start]).collect()
            }
            OnRestart::Fail => vec![TaskStep::Failed(Failure::new(
                FailureKind::Unavailable,
                "the node ended while this ran; whether the agent acted is unknown",
            ))],
        }
    }
}

impl Task {
    /// Whether `by` may take `steps`.
    ///
    /// # Errors
    /// [`TaskError::NotFound`], [`TaskError::LostLease`], or [`TaskError::Illegal`] where others than the worker want more than
    /// to answer and to cancel.
    pub fn allows(&self, by: By<'_>, steps: &[TaskStep]) -> TaskResult<()> {
        match by {
            By::Owner(owner) if self.owner != *owner => return Err(TaskError::NotFound),
            // An ended task is nobody's work: that it has ended says more than that the lease is gone.
            By::Worker(lease) if self.is_held_by(lease) || self.state.is_terminal() => {
                return Ok(());
            }
            By::Worker(_) => return Err(TaskError::LostLease),
            By::Owner(_) | By::Operator => {}
        }
        match steps.iter().find(|step| !step.is_for_others()) {
            Some(step) => Err(TaskError::Illegal {
                from: self.state,
                step: step.name(),
            }),
            None => Ok(()),
        }
    }

    /// Whether `by` may want it ended.
    ///
    /// # Errors
    /// As [`Self::allows`]; [`TaskError::HasEnded`].
    pub fn allows_cancel(&self, by: By<'_>) -> TaskResult<()> {
        self.allows(by, &[])?;
        if self.state.is_terminal() {
            Err(TaskError::HasEnded(self.state))
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests;
