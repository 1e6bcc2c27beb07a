//! State machine of a task, common to all stores.

use std::fmt;
use std::time::SystemTime;

use callboard_message::{Failure, FailureKind, RawObject, TaskState};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::record::{OpenQuestion, Task, TaskOutcome, failure_bytes};
use super::{
    OnRestart, TASK_EVENTS_MAX_DEFAULT, TASK_RERUNS_MAX_DEFAULT, TASK_STATUS_EVENTS_MAX, TaskActor,
    TaskError, TaskResult,
};

/// First words of the status text that [`TaskStep::part_ended`] writes for a child task that has
/// ended.
const PART_ENDED_PREFIX: &str = "a part of it ";

/// Step of a task. The task's new state follows from the step and the current state.
#[derive(Clone, Serialize, Deserialize)]
#[serde(tag = "kind", content = "body", rename_all = "snake_case")]
pub enum TaskStep {
    /// The worker starts or restarts the task.
    Start,
    /// Status text for display, from the agent or the runtime.
    Said(String),
    /// Turn of the conversation with the agent, as JSON.
    History(RawObject),
    /// Artifact that the task has produced, as JSON.
    Artifact(RawObject),
    /// The task asked a question.
    Asked(OpenQuestion),
    /// The task requires a credential. The text, for display, names it.
    AuthWanted(String),
    /// A question of the task was answered.
    Answered {
        /// Key of the question.
        key: String,
        /// The answer as JSON, unchanged.
        answer: Box<RawValue>,
    },
    /// A question of the task was withdrawn without an answer.
    GivenUp {
        /// Key of the question.
        key: String,
    },
    /// The agent replied, which ends the task. Holds the reply.
    Completed(Box<RawValue>),
    /// The agent failed, which ends the task.
    Failed(Failure),
    /// The agent rejected the task, which ends it.
    Rejected(Failure),
    /// The task was cancelled, which ends it.
    Cancelled {
        /// Reason for the cancellation, for display.
        why: String,
    },
}

/// Reason given for a task that was cancelled by request.
pub const CANCEL_REASON_DEFAULT: &str = "cancelled by request";

/// Event in the history of a task: one applied step.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TaskEvent {
    /// Position among the task's events, from 1, without gaps.
    pub number: u64,
    /// Time of the event.
    pub at: SystemTime,
    /// State of the task after the event.
    pub state: TaskState,
    /// The step that caused the event.
    pub step: TaskStep,
}

impl TaskStep {
    /// Creates the step for a cancellation by request.
    pub fn cancelled() -> Self {
        Self::Cancelled {
            why: CANCEL_REASON_DEFAULT.to_owned(),
        }
    }

    /// Creates the step that cancels a task because a task it needs ended in `state`, without
    /// completing.
    pub fn need_ended(state: TaskState) -> Self {
        Self::Cancelled {
            why: format!("a step that it needs ended as {state}"),
        }
    }

    /// Creates the step with the status text for a parent task whose child `part` has ended.
    pub fn part_ended(part: &Task) -> Self {
        Self::Said(format!(
            "{PART_ENDED_PREFIX}({} of {}) ended as {}",
            part.message, part.agent, part.state
        ))
    }

    /// Returns true if `text` is a status text that [`TaskStep::part_ended`] writes.
    pub fn is_part_ended_text(text: &str) -> bool {
        text.starts_with(PART_ENDED_PREFIX)
    }

    /// Returns the name of the step, as in its JSON form.
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

    /// Returns true if the step ends the task.
    pub const fn is_end(&self) -> bool {
        matches!(
            self,
            Self::Completed(_) | Self::Failed(_) | Self::Rejected(_) | Self::Cancelled { .. }
        )
    }

    /// Returns true if actors other than the task's worker may apply the step: answers and
    /// cancellation.
    pub const fn is_for_others(&self) -> bool {
        matches!(self, Self::Answered { .. } | Self::Cancelled { .. })
    }

    /// Returns the size of the step's body, in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Start => 0,
            Self::Said(text) | Self::AuthWanted(text) | Self::Cancelled { why: text } => text.len(),
            Self::History(body) | Self::Artifact(body) => body.bytes(),
            Self::Asked(open) => open.bytes(),
            Self::Answered { key, answer } => key.len() + answer.get().len(),
            Self::GivenUp { key } => key.len(),
            Self::Completed(reply) => reply.get().len(),
            Self::Failed(failure) | Self::Rejected(failure) => failure_bytes(failure),
        }
    }
}

// Bodies may hold personal data, so only sizes are printed.
impl fmt::Debug for TaskStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({} bytes)", self.name(), self.bytes())
    }
}

/// Event of a task without the data that the stored task holds itself.
pub(super) struct CompactEvent {
    at: SystemTime,
    state: TaskState,
    step: CompactStep,
}

/// Step of a task without the data that the stored task holds itself.
enum CompactStep {
    Start,
    /// Index of the artifact in [`Task::artifacts`].
    Artifact(usize),
    /// The agent replied; the reply is in [`Task::outcome`].
    Completed,
    Failed,
    Rejected,
    Step(Box<TaskStep>),
}

impl CompactEvent {
    /// Restores the event with the data of `task`. `number` is its position among the task's
    /// events.
    pub(super) fn expand(&self, task: &Task, number: u64) -> TaskEvent {
        let failure = || match &task.outcome {
            Some(TaskOutcome::Failed(failure)) => failure.clone(),
            _ => Failure::new(
                FailureKind::Internal,
                "the task failed, but the reason isn't stored",
            ),
        };
        let step = match &self.step {
            CompactStep::Start => TaskStep::Start,
            CompactStep::Artifact(nth) => {
                TaskStep::Artifact(task.artifacts.get(*nth).cloned().unwrap_or_default())
            }
            CompactStep::Completed => TaskStep::Completed(match &task.outcome {
                Some(TaskOutcome::Reply(reply)) => reply.clone(),
                _ => RawValue::NULL.to_owned(),
            }),
            CompactStep::Failed => TaskStep::Failed(failure()),
            CompactStep::Rejected => TaskStep::Rejected(failure()),
            CompactStep::Step(step) => TaskStep::clone(step),
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
    /// Applies a step and returns the task's new state. After a question, an answer or a
    /// withdrawal, that is `InputRequired` while questions are open, otherwise `Working`. On an
    /// error the task is unchanged.
    ///
    /// # Errors
    /// [`TaskError::HasEnded`], [`TaskError::Illegal`], or [`TaskError::ChildrenRunning`] for
    /// completing with open children.
    pub fn apply(&mut self, step: &TaskStep, now: SystemTime) -> TaskResult<TaskState> {
        Ok(self.apply_one(step.clone(), now)?.state)
    }

    fn apply_one(&mut self, step: TaskStep, now: SystemTime) -> TaskResult<CompactEvent> {
        let state = self.state_after(&step)?;
        if matches!(step, TaskStep::Asked(_) | TaskStep::AuthWanted(_)) {
            // What waits for somebody isn't what ends its workers.
            self.lost_workers = 0;
        }
        let rest = self.store_body(step);
        self.state = state;
        if state.is_terminal() {
            self.open_questions.clear();
            self.cancel_requested = false;
            self.lease = None;
        }
        self.last_event += 1;
        // The system clock may be set back.
        self.updated = now.max(self.updated);
        Ok(CompactEvent {
            at: self.updated,
            state,
            step: rest,
        })
    }

    /// Returns the state after a step.
    fn state_after(&self, step: &TaskStep) -> TaskResult<TaskState> {
        use TaskState::{
            AuthRequired, Canceled, Completed, Failed, InputRequired, Rejected, Submitted, Working,
        };
        let from = self.state;
        if from.is_terminal() {
            return Err(TaskError::HasEnded(from));
        }
        let is_open = |key: &str| self.open_questions.iter().any(|open| open.key == key);
        Ok(match (step, from) {
            (TaskStep::Start, Submitted | Working | AuthRequired) if self.pending_needs == 0 => {
                Working
            }
            (TaskStep::Said(_) | TaskStep::History(_), _) => from,
            (TaskStep::Artifact(_), Working | InputRequired | AuthRequired) => from,
            (TaskStep::Asked(open), Working | InputRequired) if !is_open(&open.key) => {
                InputRequired
            }
            (TaskStep::AuthWanted(_), Working) => AuthRequired,
            (TaskStep::Answered { key, .. } | TaskStep::GivenUp { key }, _) if is_open(key) => {
                if self.open_questions.iter().all(|open| open.key == *key) {
                    Working
                } else {
                    InputRequired
                }
            }
            (TaskStep::Completed(_), Working | InputRequired | AuthRequired)
                if self.open_children > 0 =>
            {
                return Err(TaskError::ChildrenRunning(self.open_children));
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

    /// Moves the body of a step into the task and returns the step without it.
    fn store_body(&mut self, step: TaskStep) -> CompactStep {
        match step {
            TaskStep::Artifact(artifact) => {
                self.artifacts.push(artifact);
                return CompactStep::Artifact(self.artifacts.len() - 1);
            }
            TaskStep::Completed(reply) => {
                self.outcome = Some(TaskOutcome::Reply(reply));
                self.status_message = None;
                return CompactStep::Completed;
            }
            TaskStep::Failed(failure) => {
                self.fail(failure);
                return CompactStep::Failed;
            }
            TaskStep::Rejected(failure) => {
                self.fail(failure);
                return CompactStep::Rejected;
            }
            TaskStep::Start => return CompactStep::Start,
            TaskStep::Said(ref said)
            | TaskStep::AuthWanted(ref said)
            | TaskStep::Cancelled { why: ref said } => {
                self.status_message = Some(said.clone());
            }
            TaskStep::Asked(ref open) => self.open_questions.push(open.clone()),
            TaskStep::Answered { ref key, .. } | TaskStep::GivenUp { ref key } => {
                self.open_questions.retain(|open| open.key != *key);
            }
            TaskStep::History(_) => {}
        }
        CompactStep::Step(Box::new(step))
    }

    fn fail(&mut self, failure: Failure) {
        self.status_message = Some(failure.message.clone());
        self.outcome = Some(TaskOutcome::Failed(failure));
    }

    /// Applies steps to the task and returns the events to store. After 9000 events, further status
    /// texts are dropped. On an error, some steps may have been applied, so the caller must discard
    /// the task.
    ///
    /// # Errors
    /// Those of [`Task::apply`]; [`TaskError::TooManyEvents`] after 10,000 events for a step that
    /// doesn't end the task.
    pub fn apply_all(
        &mut self,
        steps: Vec<TaskStep>,
        now: SystemTime,
    ) -> TaskResult<Vec<TaskEvent>> {
        self.apply_each(steps, |task, step| {
            let state = task.apply(&step, now)?;
            Ok(TaskEvent {
                number: task.last_event,
                at: task.updated,
                state,
                step,
            })
        })
    }

    /// Applies steps as [`Task::apply_all`], for a store that has the task next to its events. The
    /// returned events don't repeat the task's data.
    pub(super) fn apply_all_compact(
        &mut self,
        steps: Vec<TaskStep>,
        now: SystemTime,
    ) -> TaskResult<Vec<CompactEvent>> {
        self.apply_each(steps, |task, step| task.apply_one(step, now))
    }

    fn apply_each<E>(
        &mut self,
        steps: Vec<TaskStep>,
        take: impl Fn(&mut Self, TaskStep) -> TaskResult<E>,
    ) -> TaskResult<Vec<E>> {
        let mut events = Vec::with_capacity(steps.len());
        for step in steps {
            if matches!(step, TaskStep::Said(_))
                && self.last_event >= TASK_STATUS_EVENTS_MAX
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

    /// Returns the steps to apply to a task when it is claimed after an interruption
    /// ([`super::ReleaseReason`] or an expired lease), or with a cancellation request. If one of
    /// them ends the task, the worker doesn't get it.
    pub fn recovery_steps(&self) -> Vec<TaskStep> {
        if self.cancel_requested {
            return vec![TaskStep::cancelled()];
        }
        if self.state == TaskState::Submitted {
            // It was claimed but not started.
            return Vec::new();
        }
        match self.on_restart {
            OnRestart::Resume
                if self.has_lost_worker() && self.lost_workers >= TASK_RERUNS_MAX_DEFAULT =>
            {
                let losses = u64::from(self.lost_workers) + 1;
                vec![TaskStep::Failed(Failure::unavailable(format!(
                    "its worker was lost {losses} times while this ran, and it was run again \
                     {TASK_RERUNS_MAX_DEFAULT} times (the limit): look in the node's log for what \
                     ends the node or keeps it from renewing leases, then send it again"
                )))]
            }
            OnRestart::Resume => {
                let given_up = self.open_questions.iter().map(|open| TaskStep::GivenUp {
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
    /// Checks that the actor `by` may apply these steps.
    ///
    /// # Errors
    /// [`TaskError::NotFound`] for another owner, [`TaskError::LostLease`] for a worker without the
    /// current lease, or [`TaskError::Illegal`] if an actor other than the worker applies a step
    /// that isn't an answer or a cancellation.
    pub fn check_allowed(&self, by: TaskActor<'_>, steps: &[TaskStep]) -> TaskResult<()> {
        match by {
            TaskActor::Owner(owner) if self.owner != *owner => return Err(TaskError::NotFound),
            // For an ended task, the caller gets `HasEnded`, which is more helpful than
            // `LostLease`.
            TaskActor::Worker(lease) if self.is_held_by(lease) || self.state.is_terminal() => {
                return Ok(());
            }
            TaskActor::Worker(_) => return Err(TaskError::LostLease),
            TaskActor::Owner(_) | TaskActor::Operator => {}
        }
        match steps.iter().find(|step| !step.is_for_others()) {
            Some(step) => Err(TaskError::Illegal {
                from: self.state,
                step: step.name(),
            }),
            None => Ok(()),
        }
    }

    /// Checks that the actor `by` may request the cancellation of the task.
    ///
    /// # Errors
    /// Those of [`Self::check_allowed`]; [`TaskError::HasEnded`].
    pub fn check_cancel_allowed(&self, by: TaskActor<'_>) -> TaskResult<()> {
        self.check_allowed(by, &[])?;
        if self.state.is_terminal() {
            Err(TaskError::HasEnded(self.state))
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests;
