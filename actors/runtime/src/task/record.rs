//! Task specification and stored task record. State changes are in [`super::step`].

use std::collections::HashSet;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::SystemTime;

use callboard_message::{
    DataClass, Failure, OnRestart, PARENT_META_KEY, Principal, Question, RawObject, TaskState,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::id::TASK_KEY_BYTES_MAX;
use super::{Lease, TASK_BYTES_MAX_DEFAULT, TaskError, TaskId, TaskOwner, TaskResult};
use crate::journal::{JournalError, check_storable};

/// Specification of a task to be created.
// Bodies may hold personal data, so Debug prints only sizes.
#[derive(Clone, derive_more::Debug)]
#[debug("NewTask({id} of {scope}: {message} of {agent}, {} bytes)", self.bytes())]
pub struct NewTask {
    /// Id of the task, unique in the store.
    pub id: TaskId,
    /// Name of the server that runs the task, for example `mcp:NAME` or `a2a:NAME`; `agent` for
    /// [`TaskRunner`](crate::TaskRunner).
    pub scope: String,
    /// Owner of the task. Other principals can't see it.
    pub owner: TaskOwner,
    /// Principal on whose behalf the task runs.
    pub principal: Principal,
    /// Idempotency key. A second task with the same key, scope and owner isn't created; as long as
    /// the existing task is stored, it is returned, or [`TaskError::KeyReused`] for another
    /// request.
    pub key: Option<String>,
    /// Name, in the system's directory, of the agent that runs the task.
    pub agent: String,
    /// Name of the message that is sent to the agent.
    pub message: String,
    /// Payload of the message, or parameters of the protocol request that created the task.
    pub request: Option<Box<RawValue>>,
    /// Data class of request, history and outcome.
    pub class: DataClass,
    /// Behaviour after a restart if the process ends while the task runs.
    pub on_restart: OnRestart,
    /// Id of the parent task. The parent can't complete before this task has ended.
    pub parent: Option<TaskId>,
    /// Ids of the tasks that must complete before this one starts. If one of them ends otherwise,
    /// this task is cancelled.
    pub needs: Vec<TaskId>,
    /// Time after which the result of the task is no longer wanted.
    pub deadline: Option<SystemTime>,
    /// Time at which the task's call is ended at the latest. Afterwards the task may be deleted.
    pub expires: SystemTime,
    /// Protocol-specific data, not interpreted by the runtime.
    pub extra: RawObject,
    /// Maximum number of stored tasks in the scope, including this one. Checked at creation and not
    /// stored.
    pub scope_tasks_max: Option<usize>,
    /// Maximum number of stored tasks of the owner in the scope, including this one. Checked at
    /// creation and not stored.
    pub owner_tasks_max: Option<usize>,
}

impl NewTask {
    /// Creates a specification with a random id, scope `agent`, the principal as owner, the default
    /// data class, and [`OnRestart::Fail`].
    pub fn new(
        principal: Principal,
        agent: impl Into<String>,
        message: impl Into<String>,
        expires: SystemTime,
    ) -> Self {
        Self {
            id: TaskId::generate(),
            scope: "agent".to_owned(),
            owner: TaskOwner::from_principal(&principal, None),
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

    /// Returns the bytes that requests with the same idempotency key must have in common: agent,
    /// message and request. Reusing a key with other bytes is [`TaskError::KeyReused`]. Stores keep
    /// only a digest of them.
    pub fn idempotency_payload(&self) -> Vec<u8> {
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

    /// Returns the total size of the specification's bodies, in bytes.
    pub fn bytes(&self) -> usize {
        self.request
            .as_ref()
            .map_or(0, |request| request.get().len())
            + self.extra.bytes()
    }

    /// Checks the limits that apply to every store.
    ///
    /// # Errors
    /// [`JournalError::Invalid`] for a NUL character, an invalid key length or too many needs;
    /// [`TaskError::TooLarge`].
    pub fn check(&self) -> TaskResult<()> {
        let ids = [&self.id]
            .into_iter()
            .chain(&self.needs)
            .chain(&self.parent);
        ids.map(TaskId::as_str).try_for_each(check_storable)?;
        let names = [
            &*self.scope,
            self.owner.as_str(),
            &self.agent,
            &self.message,
            &self.principal.id,
        ];
        names.into_iter().try_for_each(check_storable)?;
        let key = self.key.as_deref().unwrap_or("key");
        check_storable(key)?;
        if key.is_empty() || key.len() > TASK_KEY_BYTES_MAX {
            return Err(
                JournalError::Invalid("a task's idempotency key must have 1 to 128 bytes").into(),
            );
        }
        if self.needs.len() > super::TASK_NEEDS_MAX {
            return Err(JournalError::Invalid("a task can need at most 64 other tasks").into());
        }
        Task::check_bytes(self.bytes())
    }

    /// Checks that no two of the new tasks have the same id, or the same idempotency key within
    /// scope and owner.
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

    /// Removes repeated ids from [`NewTask::needs`].
    pub fn drop_repeated_needs(&mut self) {
        let mut once = HashSet::new();
        self.needs.retain(|need| once.insert(need.clone()));
    }
}

/// Task as stored: its specification, state, results so far and lease.
// Bodies may hold personal data, so Debug prints only sizes.
#[derive(Clone, derive_more::Debug)]
#[debug(
    "Task(#{number}, {spec:?}: {state}, event {last_event}, waits for {pending_needs}, has {open_children} parts, \
     cancel_wanted {cancel_requested}, {lease:?}, {} bytes)",
    self.bytes()
)]
pub struct Task {
    /// Specification that the task was created with. Its fields are accessible by deref. `request`
    /// is `None` if the store no longer has it ([`DataClass::Clinical`]).
    pub spec: NewTask,
    /// Number of the task in the order of creation.
    pub number: u64,
    /// Current state of the task.
    pub state: TaskState,
    /// Time at which the task was created.
    pub created: SystemTime,
    /// Time of the task's latest step.
    pub updated: SystemTime,
    /// Status text for display: progress, or the reason for the end.
    pub status_message: Option<String>,
    /// Questions of the task that wait for an answer.
    pub open_questions: Vec<OpenQuestion>,
    /// Result of the task; `None` if it is open or was cancelled.
    pub outcome: Option<TaskOutcome>,
    /// Artifacts that the task has produced so far.
    pub artifacts: Vec<RawObject>,
    /// Number of the task's latest event; 0 before the first.
    pub last_event: u64,
    /// Number of tasks that this one needs and that haven't completed.
    pub pending_needs: u32,
    /// Number of child tasks that haven't ended.
    pub open_children: u32,
    /// True if a cancellation was requested and the worker hasn't applied it yet.
    pub cancel_requested: bool,
    /// Number of workers that were lost while they ran the task ([`Task::set_lease`]), since it
    /// last waited for an answer or a credential.
    pub lost_workers: u32,
    /// Current lease, which may have expired; `None` if no worker has the task.
    pub lease: Option<LeaseView>,
}

impl Deref for Task {
    type Target = NewTask;

    fn deref(&self) -> &NewTask {
        &self.spec
    }
}

impl DerefMut for Task {
    fn deref_mut(&mut self) -> &mut NewTask {
        &mut self.spec
    }
}

impl Task {
    /// Creates a task that hasn't been started and has no worker. `pending_needs` is the number of
    /// its needs that haven't completed.
    pub fn new_submitted(spec: NewTask, number: u64, pending_needs: u32, now: SystemTime) -> Self {
        Self {
            spec,
            number,
            state: TaskState::Submitted,
            created: now,
            updated: now,
            status_message: None,
            open_questions: Vec::new(),
            outcome: None,
            artifacts: Vec::new(),
            last_event: 0,
            pending_needs,
            open_children: 0,
            cancel_requested: false,
            lost_workers: 0,
            lease: None,
        }
    }

    /// Returns the id of the task that this one belongs to: its parent, or the task, possibly of
    /// another system, from which it was begun. The id comes from whoever began the task.
    pub fn parent_id(&self) -> Option<TaskId> {
        let begun_from = || TaskId::new(self.extra.text(PARENT_META_KEY)?).ok();
        self.parent.clone().or_else(begun_from)
    }

    /// Returns the total size of the task's bodies, in bytes.
    pub fn bytes(&self) -> usize {
        let open: usize = self.open_questions.iter().map(OpenQuestion::bytes).sum();
        let artifacts: usize = self.artifacts.iter().map(RawObject::bytes).sum();
        let said = self.status_message.as_ref().map_or(0, String::len);
        let outcome = self.outcome.as_ref().map_or(0, TaskOutcome::bytes);
        self.spec.bytes() + open + artifacts + said + outcome
    }

    /// Checks that the total size of a task's bodies, `bytes`, is at most
    /// [`TASK_BYTES_MAX_DEFAULT`].
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

    /// Returns true if `lease` is the task's current lease, even if it has expired.
    pub fn is_held_by(&self, lease: &Lease) -> bool {
        self.lease
            .as_ref()
            .is_some_and(|has| has.epoch == lease.epoch && has.worker == lease.worker)
    }

    /// Returns true if the task's worker was lost while it ran the task: its lease is still there
    /// and wasn't released ([`LeaseView::RELEASED`]). It may be the same process that couldn't renew
    /// the lease. To be asked only of a task that is ready.
    pub(super) fn has_lost_worker(&self) -> bool {
        let is_lost = |lease: &LeaseView| lease.until != LeaseView::RELEASED;
        self.state == TaskState::Working && self.lease.as_ref().is_some_and(is_lost)
    }

    /// Gives the task a new lease. If its former worker was lost while it ran the task, that is
    /// counted.
    pub fn set_lease(&mut self, lease: LeaseView) {
        if self.has_lost_worker() {
            self.lost_workers = self.lost_workers.saturating_add(1);
        }
        self.lease = Some(lease);
    }

    /// Returns true if a worker may claim the task at `now`: it hasn't ended, has no valid lease,
    /// all tasks that it needs have completed, and all its child tasks have ended.
    pub fn is_ready(&self, now: SystemTime) -> bool {
        let free = self.lease.as_ref().is_none_or(|lease| lease.until <= now);
        free && !self.state.is_terminal() && self.pending_needs == 0 && self.open_children == 0
    }
}

/// Question of a task that waits for an answer.
#[derive(Clone, PartialEq, Serialize, Deserialize, derive_more::Debug)]
#[debug("OpenQuestion({key}, {} bytes)", self.bytes())]
pub struct OpenQuestion {
    /// Key of the question, unique within the task.
    pub key: String,
    /// The question, for the clients of the task.
    pub question: Arc<Question>,
}

impl OpenQuestion {
    pub(super) fn bytes(&self) -> usize {
        self.key.len() + self.question.body().bytes()
    }
}

/// Result of a task that has ended without being cancelled.
#[derive(Clone, Serialize, Deserialize, derive_more::Debug)]
#[serde(tag = "kind", content = "body", rename_all = "snake_case")]
pub enum TaskOutcome {
    /// Reply of the agent.
    #[debug("Reply({} bytes)", _0.get().len())]
    Reply(Box<RawValue>),
    /// Failure of the agent or the task.
    #[debug("Failed({})", _0.kind)]
    Failed(Failure),
    /// The outcome isn't available. It is [`DataClass::Clinical`], so it was held only in the
    /// memory of a process that has ended.
    NotKept,
}

impl TaskOutcome {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Reply(reply) => reply.get().len(),
            Self::Failed(failure) => failure_bytes(failure),
            Self::NotKept => 0,
        }
    }
}

/// Current lease of a task, for display and checks. It doesn't permit changes as [`super::Lease`]
/// does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseView {
    /// Worker id ([`super::TaskStore::worker_id`]).
    pub worker: String,
    /// Fencing token: number of the task's leases so far. A worker with a smaller number is
    /// rejected.
    pub epoch: u64,
    /// Time at which the lease expires. Until then, other workers can't claim the task.
    pub until: SystemTime,
}

impl LeaseView {
    /// End of a lease that its worker has released
    /// ([`ReleaseReason::Interrupted`](super::ReleaseReason)): past by any clock.
    pub const RELEASED: SystemTime = SystemTime::UNIX_EPOCH;
}

pub(super) fn failure_bytes(failure: &Failure) -> usize {
    failure.message.len()
        + failure
            .data
            .as_ref()
            .map_or(0, |data| data.to_string().len())
}
