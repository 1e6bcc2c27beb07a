//! A task as it begins.

use std::collections::HashSet;
use std::fmt;
use std::time::SystemTime;

use callboard_message::{DataClass, MessageSpec, Principal, RawObject};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::TaskError;
use super::id::{TASK_KEY_BYTES_MAX, TaskId, TaskOwner};
use super::record::{Task, size};
use crate::journal::{JournalError, storable};

/// What becomes of a task whose process ended in the midst of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnRestart {
    /// It is done again from its beginning: doing it twice does no harm.
    Resume,
    /// It has failed: whether the agent acted is unknown.
    Fail,
}

impl OnRestart {
    /// [`OnRestart::Resume`] for a message whose `annotations` say that it only reads, or may be repeated.
    pub fn of(spec: &MessageSpec) -> Self {
        let annotations = spec.more.object("annotations").unwrap_or_default();
        let says = |hint| annotations.read::<bool>(hint).unwrap_or_default();
        if says("readOnlyHint") || says("idempotentHint") { Self::Resume } else { Self::Fail }
    }

    /// Its name as it is written in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Resume => "resume",
            Self::Fail => "fail",
        }
    }

    /// The policy of that name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Resume, Self::Fail].into_iter().find(|policy| policy.as_str() == name)
    }
}

/// A task that begins.
#[derive(Clone)]
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
        [self.agent.as_bytes(), &[0], self.message.as_bytes(), &[0], request.as_bytes()].concat()
    }

    /// How large its bodies are, in bytes.
    pub fn bytes(&self) -> usize {
        self.request.as_ref().map_or(0, |request| request.get().len()) + size(&self.extra)
    }

    /// Refuses what not every store can hold, and what is too large for any.
    ///
    /// # Errors
    /// [`JournalError::Invalid`], [`TaskError::TooLarge`].
    pub fn check(&self) -> Result<(), TaskError> {
        let ids = [&self.id].into_iter().chain(&self.needs).chain(&self.parent);
        ids.map(TaskId::as_str).try_for_each(storable)?;
        let names = [&*self.scope, self.owner.as_str(), &self.agent, &self.message, &self.principal.id];
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
    pub fn check_distinct(new: &[Self]) -> Result<(), TaskError> {
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

// Bodies may be anybody's data: only sizes are printed.
impl fmt::Debug for NewTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, scope, agent, message, .. } = self;
        write!(f, "NewTask({id} of {scope}: {message} of {agent}, {} bytes)", self.bytes())
    }
}
