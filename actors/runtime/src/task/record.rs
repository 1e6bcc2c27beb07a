//! A task as it begins, and as it is kept. How it goes on: [`super::step`].

use std::collections::HashSet;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::SystemTime;

use callboard_message::{DataClass, Failure, OnRestart, Principal, Question, RawObject, TaskState};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::id::TASK_KEY_BYTES_MAX;
use super::{Lease, TASK_BYTES_MAX_DEFAULT, TaskError, TaskId, TaskOwner, TaskResult};
use crate::journal::{JournalError, storable};

/// A task that begins.
// Bodies may be anybody's data: only sizes are printed.
#[derive(Clone, derive_more::Debug)]
#[debug("NewTask({id} of {scope}: {message} of {agent}, {} bytes)", self.bytes())]
pub struct NewTask {
    /// New: of all tasks.
    pub id: TaskId,
    /// Who works on it: `mcp:NAME`, `a2a:NAME` or `agent`.
    pub scope: String,
    /// Whose it is.
    pub owner: TaskOwner,
    /// On whose behalf it works.
    pub principal: Principal,
    /// The same key twice of a scope and owner is the same task, as long as that is kept.
    pub key: Option<String>,
    /// The agent that does it, by its name in the directory.
    pub agent: String,
    /// The message that it is asked.
    pub message: String,
    /// What the message says, or the params that it was asked with.
    pub request: Option<Box<RawValue>>,
    /// What request, history and outcome may hold.
    pub class: DataClass,
    /// What becomes of it where its process ends in the midst of it.
    pub on_restart: OnRestart,
    /// The task that it is a part of: that one can't complete before.
    pub parent: Option<TaskId>,
    /// Tasks that have to complete before it begins; where one ends otherwise it is cancelled.
    pub needs: Vec<TaskId>,
    /// When the result is of no use any more.
    pub deadline: Option<SystemTime>,
    /// Until when it is kept.
    pub expires: SystemTime,
    /// The protocol's own.
    pub extra: RawObject,
    /// Most tasks of the scope that are kept, with this one. Not kept itself.
    pub scope_tasks_max: Option<usize>,
    /// Most tasks of the owner in the scope that are kept, with this one. Not kept itself.
    pub owner_tasks_max: Option<usize>,
}

impl NewTask {
    /// A task of nobody's scope in particular (`agent`), internal, that fails on a restart.
    pub fn new(
        principal: Principal,
        agent: impl Into<String>,
        message: impl Into<String>,
        expires: SystemTime,
    ) -> Self {
        Self {
            id: TaskId::fresh(),
            scope: "agent".to_owned(),
            owner: TaskOwner::of(&principal, None),
            principal,
            key: None,
            agent: agent.into(),
            message: message.into(),
            request: None,
            class: DataClass::default(),
            on_restart: OnRestart::Fail,
            parent: None,
            needs: Vec::new(),
            deadline: None,
            expires,
            extra: RawObject::new(),
            scope_tasks_max: None,
            owner_tasks_max: None,
        }
    }

    /// What a key stands for: the same key with another is [`TaskError::KeyReused`]. To be kept as a mark only.
    pub fn asked(&self) -> Vec<u8> {
        let request = self.request.as_ref().map_or("", |request| request.get());
        [
            self.agent.as_bytes(),
            &[0],
            self.message.as_bytes(),
            &[0],
            request.as_bytes(),
        ]
        .concat()
    }

    /// How large its bodies are, in bytes.
    pub fn bytes(&self) -> usize {
        self.request
            .as_ref()
            .map_or(0, |request| request.get().len())
            + self.extra.bytes()
    }

    /// Refuses what not every store can hold, and what is too large for any.
    ///
    /// # Errors
    /// [`JournalError::Invalid`], [`TaskError::TooLarge`].
    pub fn check(&self) -> TaskResult<()> {
        let ids = [&self.id]
            .into_iter()
            .chain(&self.needs)
            .chain(&self.parent);
        ids.map(TaskId::as_str).try_for_each(storable)?;
        let names = [
            &*self.scope,
            self.owner.as_str(),
            &self.agent,
            &self.message,
            &self.principal.id,
        ];
        names.into_iter().try_for_each(storable)?;
        let key = self.key.as_deref().unwrap_or("key");
        storable(key)?;
        if key.is_empty() || key.len() > TASK_KEY_BYTES_MAX {
            return Err(JournalError::Invalid("a task's key is empty or too long").into());
        }
        if self.needs.len() > super::TASK_NEEDS_MAX {
            return Err(JournalError::Invalid("a task needs too many others").into());
        }
        Task::check_bytes(self.bytes())
    }

    /// Refuses tasks of which two have the same id, or the same key of a scope and owner.
    ///
    /// # Errors
    /// [`TaskError::KeyReused`].
    pub fn check_distinct(new: &[Self]) -> TaskResult<()> {
        let (mut ids, mut keys) = (HashSet::new(), HashSet::new());
        for task in new {
            let key = task.key.as_ref().map(|key| (&task.scope, &task.owner, key));
            if !ids.insert(&task.id) || !key.is_none_or(|key| keys.insert(key)) {
                return Err(TaskError::KeyReused);
            }
        }
        Ok(())
    }

    /// Leaves each task that it needs once.
    pub fn drop_repeated_needs(&mut self) {
        let mut once = HashSet::new();
        self.needs.retain(|need| once.insert(need.clone()));
    }
}

/// What is known of a task.
// Bodies may be anybody's data: only sizes are printed.
#[derive(Clone, derive_more::Debug)]
#[debug(
    "Task(#{number}, {new:?}: {state}, event {last_event}, waits for {waiting}, has {children_open} parts, \
     cancel_wanted {cancel_wanted}, {lease:?}, {} bytes)",
    self.bytes()
)]
pub struct Task {
    /// What it was begun as: its members are the task's own. Its `request` is `None` where that is no longer held
    /// ([`DataClass::Clinical`]).
    pub new: NewTask,
    /// Its place in the order in which tasks began.
    pub number: u64,
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

impl Deref for Task {
    type Target = NewTask;

    fn deref(&self) -> &NewTask {
        &self.new
    }
}

impl DerefMut for Task {
    fn deref_mut(&mut self) -> &mut NewTask {
        &mut self.new
    }
}

impl Task {
    /// `new` as it is kept first: submitted, nobody's work. It waits for `waiting` of the tasks that it needs.
    pub fn submitted(new: NewTask, number: u64, waiting: u32, now: SystemTime) -> Self {
        Self {
            new,
            number,
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
        let open: usize = self.open.iter().map(OpenQuestion::bytes).sum();
        let artifacts: usize = self.artifacts.iter().map(RawObject::bytes).sum();
        let said = self.said.as_ref().map_or(0, String::len);
        let outcome = self.outcome.as_ref().map_or(0, TaskOutcome::bytes);
        self.new.bytes() + open + artifacts + said + outcome
    }

    /// Refuses bodies that are larger than [`TASK_BYTES_MAX_DEFAULT`] together.
    ///
    /// # Errors
    /// [`TaskError::TooLarge`].
    pub fn check_bytes(bytes: usize) -> TaskResult<()> {
        match bytes > TASK_BYTES_MAX_DEFAULT {
            true => Err(TaskError::TooLarge {
                bytes,
                bytes_max: TASK_BYTES_MAX_DEFAULT,
            }),
            false => Ok(()),
        }
    }

    /// Whether `lease` is the right to its steps.
    pub fn is_held_by(&self, lease: &Lease) -> bool {
        self.lease
            .as_ref()
            .is_some_and(|has| has.epoch == lease.epoch && has.by == lease.by)
    }

    /// Whether a worker may take it at `now`: it has not ended, nobody works on it, and it waits for no other task.
    pub fn is_ready(&self, now: SystemTime) -> bool {
        let free = self.lease.as_ref().is_none_or(|lease| lease.until <= now);
        free && !self.state.is_terminal() && self.waiting == 0 && self.children_open == 0
    }
}

/// A question that waits for its answer.
#[derive(Clone, PartialEq, Serialize, Deserialize, derive_more::Debug)]
#[debug("OpenQuestion({key}, {} bytes)", self.bytes())]
pub struct OpenQuestion {
    /// Used once in the life of a task.
    pub key: String,
    /// What is asked.
    pub question: Arc<Question>,
}

impl OpenQuestion {
    pub(super) fn bytes(&self) -> usize {
        self.key.len() + self.question.body().bytes()
    }
}

/// What a task came to.
#[derive(Clone, Serialize, Deserialize, derive_more::Debug)]
#[serde(tag = "kind", content = "body", rename_all = "snake_case")]
pub enum TaskOutcome {
    /// The callee's reply, as it came.
    #[debug("Reply({} bytes)", _0.get().len())]
    Reply(Box<RawValue>),
    /// Why there is none.
    #[debug("Failed({})", _0.kind)]
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

pub(super) fn size_of_failure(failure: &Failure) -> usize {
    failure.message.len()
        + failure
            .data
            .as_ref()
            .map_or(0, |data| data.to_string().len())
}
