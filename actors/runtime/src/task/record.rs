//! A task as it is kept. How it goes on: [`super::step`].

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use callboard_message::{DataClass, Failure, Principal, Question, RawObject, TaskState};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{By, Lease, NewTask, OnRestart, TASK_BYTES_MAX_DEFAULT, TaskError, TaskId, TaskOwner, TaskStep};

/// What is known of a task.
#[derive(Clone)]
pub struct Task {
    /// Its name.
    pub id: TaskId,
    /// Its place in the order in which tasks began.
    pub number: u64,
    /// As [`NewTask::scope`].
    pub scope: String,
    /// As [`NewTask::owner`].
    pub owner: TaskOwner,
    /// As [`NewTask::principal`].
    pub principal: Principal,
    /// As [`NewTask::key`].
    pub key: Option<String>,
    /// As [`NewTask::agent`].
    pub agent: String,
    /// As [`NewTask::message`].
    pub message: String,
    /// As [`NewTask::request`]. `None` where it is no longer held ([`DataClass::Clinical`]).
    pub request: Option<Box<RawValue>>,
    /// As [`NewTask::class`].
    pub class: DataClass,
    /// As [`NewTask::on_restart`].
    pub on_restart: OnRestart,
    /// As [`NewTask::parent`].
    pub parent: Option<TaskId>,
    /// As [`NewTask::needs`].
    pub needs: Vec<TaskId>,
    /// As [`NewTask::deadline`].
    pub deadline: Option<SystemTime>,
    /// As [`NewTask::expires`].
    pub expires: SystemTime,
    /// As [`NewTask::extra`].
    pub extra: RawObject,
    /// Where it stands.
    pub state: TaskState,
    /// When it was begun.
    pub created: SystemTime,
    /// When it took its last step.
    pub updated: SystemTime,
    /// For people: how far it has come, or why it ended.
    pub said: Option<String>,
    /// What it waits for.
    pub open: Vec<OpenQuestion>,
    /// What it came to, once it has ended otherwise than cancelled.
    pub outcome: Option<TaskOutcome>,
    /// What it has made so far.
    pub artifacts: Vec<RawObject>,
    /// The number of its last event; 0 before the first.
    pub last_event: u64,
    /// How many of the tasks that it needs have not completed.
    pub waiting: u32,
    /// How many of its parts have not ended.
    pub children_open: u32,
    /// Somebody wants it ended, and its worker doesn't know yet.
    pub cancel_wanted: bool,
    /// Whose work it is now.
    pub lease: Option<LeaseView>,
}

impl Task {
    /// `new` as it is kept first: submitted, nobody's work. It waits for `waiting` of the tasks that it needs.
    pub fn submitted(new: NewTask, number: u64, waiting: u32, now: SystemTime) -> Self {
        Self {
            id: new.id,
            number,
            scope: new.scope,
            owner: new.owner,
            principal: new.principal,
            key: new.key,
            agent: new.agent,
            message: new.message,
            request: new.request,
            class: new.class,
            on_restart: new.on_restart,
            parent: new.parent,
            needs: new.needs,
            deadline: new.deadline,
            expires: new.expires,
            extra: new.extra,
            state: TaskState::Submitted,
            created: now,
            updated: now,
            said: None,
            open: Vec::new(),
            outcome: None,
            artifacts: Vec::new(),
            last_event: 0,
            waiting,
            children_open: 0,
            cancel_wanted: false,
            lease: None,
        }
    }

    /// How large its bodies are, in bytes.
    pub fn bytes(&self) -> usize {
        let request = self.request.as_ref().map_or(0, |request| request.get().len());
        let open: usize = self.open.iter().map(OpenQuestion::bytes).sum();
        let artifacts: usize = self.artifacts.iter().map(size).sum();
        let said = self.said.as_ref().map_or(0, String::len);
        let outcome = self.outcome.as_ref().map_or(0, TaskOutcome::bytes);
        request + size(&self.extra) + open + artifacts + said + outcome
    }

    /// Refuses bodies that are larger than [`TASK_BYTES_MAX_DEFAULT`] together.
    ///
    /// # Errors
    /// [`TaskError::TooLarge`].
    pub fn check_bytes(bytes: usize) -> Result<(), TaskError> {
        match bytes > TASK_BYTES_MAX_DEFAULT {
            true => Err(TaskError::TooLarge { bytes, bytes_max: TASK_BYTES_MAX_DEFAULT }),
            false => Ok(()),
        }
    }

    /// Whether `lease` is the right to its steps.
    pub fn is_held_by(&self, lease: &Lease) -> bool {
        self.lease.as_ref().is_some_and(|has| has.epoch == lease.epoch && has.by == lease.by)
    }

    /// Whether `by` may take `steps`.
    ///
    /// # Errors
    /// [`TaskError::NotFound`], [`TaskError::LostLease`], or [`TaskError::Illegal`] where others than the worker want more than
    /// to answer and to cancel.
    pub fn allows(&self, by: By<'_>, steps: &[TaskStep]) -> Result<(), TaskError> {
        match by {
            By::Owner(owner) if self.owner != *owner => return Err(TaskError::NotFound),
            // An ended task is nobody's work: that it has ended says more than that the lease is gone.
            By::Worker(lease) if self.is_held_by(lease) || self.state.is_terminal() => return Ok(()),
            By::Worker(_) => return Err(TaskError::LostLease),
            By::Owner(_) | By::Operator => {}
        }
        match steps.iter().find(|step| !step.is_for_others()) {
            Some(step) => Err(TaskError::Illegal { from: self.state, step: step.name() }),
            None => Ok(()),
        }
    }

    /// Whether `by` may want it ended.
    ///
    /// # Errors
    /// As [`Self::allows`]; [`TaskError::HasEnded`].
    pub fn allows_cancel(&self, by: By<'_>) -> Result<(), TaskError> {
        self.allows(by, &[])?;
        if self.state.is_terminal() { Err(TaskError::HasEnded(self.state)) } else { Ok(()) }
    }

    /// Whether a worker may take it at `now`: it has not ended, nobody works on it, and it waits for no other task.
    pub fn is_ready(&self, now: SystemTime) -> bool {
        let free = self.lease.as_ref().is_none_or(|lease| lease.until <= now);
        free && !self.state.is_terminal() && self.waiting == 0 && self.children_open == 0
    }
}

// Bodies may be anybody's data: only sizes are printed.
impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task")
            .field("id", &self.id)
            .field("number", &self.number)
            .field("scope", &self.scope)
            .field("agent", &self.agent)
            .field("message", &self.message)
            .field("state", &self.state)
            .field("last_event", &self.last_event)
            .field("waiting", &self.waiting)
            .field("children_open", &self.children_open)
            .field("cancel_wanted", &self.cancel_wanted)
            .field("lease", &self.lease)
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

/// A question that waits for its answer.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenQuestion {
    /// Used once in the life of a task.
    pub key: String,
    /// What is asked.
    pub question: Arc<Question>,
}

impl OpenQuestion {
    pub(super) fn bytes(&self) -> usize {
        self.key.len() + size(self.question.body())
    }
}

impl fmt::Debug for OpenQuestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenQuestion({}, {} bytes)", self.key, self.bytes())
    }
}

/// What a task came to.
#[derive(Clone, Serialize, Deserialize)]
#[serde(tag = "kind", content = "body", rename_all = "snake_case")]
pub enum TaskOutcome {
    /// The callee's reply, as it came.
    Reply(Box<RawValue>),
    /// Why there is none.
    Failed(Failure),
    /// It is of [`DataClass::Clinical`] and was held in memory only, by a process that is no more.
    NotKept,
}

impl TaskOutcome {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Reply(reply) => reply.get().len(),
            Self::Failed(failure) => size_of_failure(failure),
            Self::NotKept => 0,
        }
    }
}

impl fmt::Debug for TaskOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reply(reply) => write!(f, "Reply({} bytes)", reply.get().len()),
            Self::Failed(failure) => write!(f, "Failed({})", failure.kind),
            Self::NotKept => f.write_str("NotKept"),
        }
    }
}

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

/// Whose work a task is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseView {
    /// The worker: [`super::Tasks::worker`].
    pub by: String,
    /// Grows each time that somebody takes the task.
    pub epoch: u64,
    /// Until when nobody else may take it.
    pub until: SystemTime,
}

/// The size of an object, about: its names and values, in bytes.
pub(super) fn size(object: &RawObject) -> usize {
    object.iter().map(|(name, value)| name.len() + value.get().len() + 4).sum()
}

pub(super) fn size_of_failure(failure: &Failure) -> usize {
    failure.message.len() + failure.data.as_ref().map_or(0, |data| data.to_string().len())
}
