//! Tasks: work that outlives the request that started it and the process that runs it.

mod graph;
mod id;
mod memory;
mod record;
pub mod running;
mod step;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use callboard_message::{Failure, FailureKind, TaskState};
use futures::stream::{BoxStream, StreamExt, try_unfold};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

pub use callboard_message::OnRestart;
pub use graph::{TaskGraph, topological_order};
pub use id::{TaskId, TaskOwner};
pub use memory::MemoryTaskStore;
pub use record::{LeaseView, NewTask, OpenQuestion, Task, TaskOutcome};
pub use step::{CANCEL_REASON_DEFAULT, TaskEvent, TaskStep};

use crate::journal::{JournalError, JournalResult};
use crate::node_events::{NodeEvent, NodeEvents, TaskStateChange};

/// Maximum number of tasks in one [`TaskStore::create_all`].
pub const TASK_BATCH_MAX: usize = 64;
/// Maximum number of tasks that one task may need ([`NewTask::needs`]).
const TASK_NEEDS_MAX: usize = 64;
/// Maximum nesting depth of child tasks.
pub const TASK_DEPTH_MAX: usize = 8;
/// Default maximum number of events of a task. The final event always fits.
const TASK_EVENTS_MAX_DEFAULT: u64 = 10_000;
/// Number of events of a task after which further status messages ([`TaskStep::Said`]) are dropped.
const TASK_STATUS_EVENTS_MAX: u64 = 9_000;
/// Default maximum total size of a task's bodies (request, history, artifacts, outcome), in bytes.
pub const TASK_BYTES_MAX_DEFAULT: usize = 4 * 1024 * 1024;
/// Default maximum number of times that a task is run again because its worker was lost: the
/// process ended without releasing it, or couldn't renew its lease in time. Then the task fails,
/// because it may be what ends the processes. Fixed.
pub const TASK_RERUNS_MAX_DEFAULT: u32 = 10;
/// Duration of a worker's lease on a task. The worker has to renew it before.
pub const TASK_LEASE: Duration = Duration::from_secs(30);
/// Interval at which a worker renews its leases.
pub(crate) const TASK_RENEW_INTERVAL: Duration = Duration::from_secs(10);
/// Interval at which a worker polls for cancellation requests.
pub(crate) const TASK_CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Actor that changes a task. It determines which steps are allowed.
#[derive(Debug, Clone, Copy)]
pub enum TaskActor<'a> {
    /// Worker with a lease. Rejected with [`TaskError::LostLease`] once another worker has claimed
    /// the task.
    Worker(&'a Lease),
    /// Owner of the task. May answer questions and cancel the task. A principal that isn't the
    /// owner gets [`TaskError::NotFound`].
    Owner(&'a TaskOwner),
    /// Operator of this node; may answer questions and cancel any task.
    Operator,
}

/// Lease: a worker's exclusive right to change a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Id of the task.
    pub task: TaskId,
    /// Id of the worker, from [`TaskStore::worker_id`].
    pub worker: String,
    /// Fencing token: number of the task's leases so far. A worker with a smaller number is
    /// rejected.
    pub epoch: u64,
}

/// Request of a worker for tasks to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimRequest {
    /// Scope of the tasks to claim.
    pub scope: String,
    /// Id of the worker, from [`TaskStore::worker_id`].
    pub worker: String,
    /// Maximum number of tasks to claim.
    pub tasks_max: usize,
    /// Owners whose tasks are left to a later claim.
    pub except_owners: Vec<TaskOwner>,
    /// Duration of the leases. The worker has to renew them before.
    pub lease: Duration,
}

/// Filter for tasks. Criteria that are `None` or empty match everything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TaskFilter {
    /// Scope of the task.
    pub scope: Option<String>,
    /// Owner of the task.
    pub owner: Option<TaskOwner>,
    /// Name of the agent that runs the task.
    pub agent: Option<String>,
    /// Name of the message that started the task.
    pub message: Option<String>,
    /// Id of the parent task.
    pub parent: Option<TaskId>,
    /// Accepted states; empty for all.
    pub states: Vec<TaskState>,
    /// Time of the latest step of the task: at this time or later.
    pub since: Option<SystemTime>,
}

impl TaskFilter {
    /// Returns true if `task` meets all criteria.
    pub fn matches(&self, task: &Task) -> bool {
        fn is<T: PartialEq>(wanted: &Option<T>, has: &T) -> bool {
            wanted.as_ref().is_none_or(|wanted| wanted == has)
        }
        is(&self.scope, &task.scope)
            && is(&self.owner, &task.owner)
            && is(&self.agent, &task.agent)
            && is(&self.message, &task.message)
            && (self.parent.is_none() || self.parent == task.parent)
            && (self.states.is_empty() || self.states.contains(&task.state))
            && self.since.is_none_or(|since| task.updated >= since)
    }
}

/// Result of [`TaskStore::create`].
#[derive(Debug, Clone)]
pub enum CreateOutcome {
    /// The task was created. If all its needs have completed, it was started: the caller is its
    /// worker and has this lease for [`TASK_LEASE`]. Otherwise the lease is void.
    Created(Arc<Task>, Lease),
    /// A task with the same idempotency key or id exists. Holds its current state.
    Existing(Arc<Task>),
}

/// Page of tasks in the order of their numbers, and true if there are more.
pub type TaskPage = (Vec<Arc<Task>>, bool);

/// Claimed task with its lease.
pub type ClaimedTask = (Arc<Task>, Lease);

/// Reason for which a worker releases a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseReason {
    /// The task can't continue now: it waits for other tasks, or for another worker. The lease is
    /// removed.
    Waiting,
    /// The work was interrupted. The task's [`OnRestart`] decides what happens when it is claimed
    /// again ([`Task::recovery_steps`]).
    Interrupted,
}

/// Store of tasks. A change is made once the method returns, and is durable as far as the
/// implementation provides it. If the method's future is dropped earlier, the change may or may not
/// be made. Every method may fail with the store's error. Lists may be shorter than asked for.
#[async_trait]
pub trait TaskStore: Send + Sync + 'static {
    /// Stores a task and starts it, leased to [`TaskStore::worker_id`]. [`TaskStep::Start`] is its
    /// first event. If a task with the same idempotency key exists, or one with the same id, owner
    /// and request, that task is returned instead.
    ///
    /// A task whose needs haven't all completed isn't started and gets no worker. The returned
    /// lease is void then.
    ///
    /// # Errors
    /// [`TaskError::KeyReused`], [`TaskError::TooMany`], [`TaskError::UnknownNeed`],
    /// [`TaskError::HasEnded`] if the parent has ended, [`TaskError::Cycle`], those of
    /// [`NewTask::check`], [`JournalError::Invalid`] below [`TASK_DEPTH_MAX`] levels, or the
    /// store's error.
    async fn create(&self, new: NewTask) -> TaskResult<CreateOutcome>;

    /// Stores up to [`TASK_BATCH_MAX`] tasks, all or none. They may be children and needs of one
    /// another. They aren't started and get no worker. For a task whose idempotency key is known,
    /// the existing task is returned.
    ///
    /// # Errors
    /// Those of [`TaskStore::create`], and [`JournalError::Invalid`] for too many tasks.
    async fn create_all(&self, new: Vec<NewTask>) -> TaskResult<Vec<Arc<Task>>>;

    /// Applies steps to a task, all or none, and returns the task afterwards.
    ///
    /// The end of a task affects others. Those that need it become ready if it completed, and are
    /// cancelled otherwise. Its parent has one open child less.
    ///
    /// # Errors
    /// - [`TaskError::NotFound`]
    /// - [`TaskError::LostLease`]
    /// - [`TaskError::Illegal`] for a step that the state or the actor doesn't allow (actors other
    ///   than the worker may only answer and cancel)
    /// - [`TaskError::HasEnded`]
    /// - [`TaskError::ChildrenRunning`] for completing a task with open children
    /// - [`TaskError::TooLarge`]
    /// - [`TaskError::TooManyEvents`]
    /// - the store's error
    async fn apply(
        &self,
        id: &TaskId,
        by: TaskActor<'_>,
        steps: Vec<TaskStep>,
    ) -> TaskResult<Arc<Task>>;

    /// Returns the current state of a task; `None` if there is no such task.
    async fn get(&self, id: &TaskId) -> JournalResult<Option<Arc<Task>>>;

    /// Returns up to `tasks_max` tasks that match `filter` and have a number above `after`, in
    /// order of number. Also returns true if there are more.
    async fn list(
        &self,
        filter: TaskFilter,
        after: u64,
        tasks_max: usize,
    ) -> JournalResult<TaskPage>;

    /// Returns up to `events_max` events of a task with a number above `after`, in order; empty if
    /// there is no such task.
    async fn events(
        &self,
        id: &TaskId,
        after: u64,
        events_max: usize,
    ) -> JournalResult<Vec<TaskEvent>>;

    /// Claims tasks that are ready ([`Task::is_ready`]), oldest first. The steps of
    /// [`Task::recovery_steps`] are applied first to a task with an expired lease or a cancellation
    /// request.
    async fn claim(&self, claim: ClaimRequest) -> JournalResult<Vec<ClaimedTask>>;

    /// Renews all leases of the worker `by` that no other worker has taken over. Each lasts for
    /// `lease` from now. Returns their number.
    async fn renew(&self, by: &str, lease: Duration) -> JournalResult<u64>;

    /// Releases a task that the worker with this lease doesn't continue. A task with a cancellation
    /// request ends as cancelled. Does nothing if another worker has claimed the task, or the task
    /// has ended.
    async fn release(&self, lease: &Lease, why: ReleaseReason) -> JournalResult<()>;

    /// Requests the cancellation of a task and its children. Tasks without a worker end at once.
    /// The worker of any other task learns of the request by [`TaskStore::cancel_requests`].
    ///
    /// # Errors
    /// [`TaskError::NotFound`], [`TaskError::HasEnded`], or the store's error.
    async fn request_cancel(&self, id: &TaskId, by: TaskActor<'_>) -> TaskResult<Arc<Task>>;

    /// Deletes a task with its events. An open task is cancelled first. Does nothing if there is no
    /// such task.
    async fn delete(&self, id: &TaskId) -> JournalResult<()>;

    /// Deletes an owner's ended tasks from a scope with their events, the oldest first, at most
    /// `tasks_max`. Returns their number.
    async fn delete_ended(
        &self,
        scope: &str,
        owner: &TaskOwner,
        tasks_max: usize,
    ) -> JournalResult<usize>;

    /// Returns the ids of the tasks leased to worker `by` that have a cancellation request. Workers
    /// poll it every 500 ms.
    async fn cancel_requests(&self, by: &str) -> JournalResult<Vec<TaskId>>;

    /// Returns a counter of changes that grows with each write by this process, so that readers can
    /// wait for one.
    fn changes(&self) -> watch::Receiver<u64>;

    /// Returns the worker id under which this process holds leases: `NAME#EPOCH`.
    fn worker_id(&self) -> &str;
}

/// Error of a task operation. Nothing was changed, except possibly after [`JournalError::Unknown`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TaskError {
    /// The task doesn't exist or belongs to another owner. The two cases are deliberately
    /// indistinguishable.
    #[error("there is no task with this id, or it isn't yours")]
    NotFound,
    /// The task has ended and can't change any more. Holds its final state.
    #[error("the task has ended ({0}) and can't change any more")]
    HasEnded(TaskState),
    /// The task hasn't ended, but no longer runs in this process: another worker may have it, or
    /// continue it later. Read the task again.
    #[error("the task no longer runs here: read its state again, and try again")]
    NotRunning,
    /// The task's current state, or the actor, doesn't allow the step. Read the task again.
    #[error("a task that is {from} can't take the step `{step}`: read its state again")]
    Illegal {
        /// Current state of the task.
        from: TaskState,
        /// Name of the rejected step.
        step: &'static str,
    },
    /// Another worker has claimed the task. Stop working on it.
    #[error("another worker has claimed the task: this one must stop working on it")]
    LostLease,
    /// The idempotency key was used for a different request. Use a new key.
    #[error("the idempotency key was used for another request: use a new key")]
    KeyReused,
    /// The task can't complete before its open children have ended. Holds their number.
    #[error("the task can't complete yet: {0} of its child tasks still run")]
    ChildrenRunning(u32),
    /// A task that the new task needs, or its parent, doesn't exist. Holds that task's id.
    #[error(
        "the new task needs `{0}` or has it as its parent, but there is no such task: create it first"
    )]
    UnknownNeed(TaskId),
    /// The tasks' dependencies form a cycle.
    #[error("the dependencies of the tasks form a cycle: remove one of them")]
    Cycle,
    /// Too many tasks are stored. Retry after some have ended and expired.
    #[error("too many tasks are kept (at most {tasks_max}): try again later")]
    TooMany {
        /// Maximum number of stored tasks.
        tasks_max: usize,
    },
    /// The task's bodies would become too large in total. Send less.
    #[error("{bytes} bytes are too many for a task (at most {bytes_max})")]
    TooLarge {
        /// Total size that the task's bodies would have, in bytes.
        bytes: usize,
        /// Maximum total size of a task's bodies, in bytes.
        bytes_max: usize,
    },
    /// The task has too many events. Only a step that ends it is accepted.
    #[error("the task has too many events (at most {events_max}): it can only be ended")]
    TooManyEvents {
        /// Maximum number of events of a task.
        events_max: u64,
    },
    /// The call of the task has ended, but the store has no room for its result. The worker tries
    /// again for a while; whether the result is stored is unknown.
    #[error("the call has run, but its result can't be stored: {0}")]
    ResultNotStored(JournalError),
    /// The store failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl TaskError {
    /// Returns the error for a task that doesn't run in this process, and was last in `state`.
    pub fn not_running(state: TaskState) -> Self {
        match state.is_terminal() {
            true => Self::HasEnded(state),
            false => Self::NotRunning,
        }
    }
}

/// Result of a task operation.
pub type TaskResult<T> = Result<T, TaskError>;

impl From<TaskError> for Failure {
    fn from(error: TaskError) -> Self {
        let kind = match error {
            TaskError::Journal(error) => return error.into(),
            TaskError::NotFound => FailureKind::NotFound,
            TaskError::TooMany { .. }
            | TaskError::TooManyEvents { .. }
            | TaskError::ResultNotStored(_) => FailureKind::Overloaded,
            TaskError::NotRunning => FailureKind::Unavailable,
            TaskError::LostLease => FailureKind::Cancelled,
            TaskError::HasEnded(_)
            | TaskError::Illegal { .. }
            | TaskError::KeyReused
            | TaskError::ChildrenRunning(_)
            | TaskError::UnknownNeed(_)
            | TaskError::Cycle
            | TaskError::TooLarge { .. } => FailureKind::InvalidInput,
        };
        Self::new(kind, error.to_string())
    }
}

/// Interval at which [`follow_task`] polls the store, as writes of other nodes cause no
/// notification.
pub(crate) const TASK_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Delay of [`follow_task`] after a notification that brought no event of the task: each change
/// notifies all followers.
const UNCHANGED_POLL_PAUSE: Duration = Duration::from_millis(20);
/// Maximum number of events that [`follow_task`] reads from the store at once.
const EVENTS_READ_MAX: usize = 100;

struct TaskFollower {
    tasks: Arc<dyn TaskStore>,
    id: TaskId,
    after: u64,
    read: VecDeque<TaskEvent>,
    changes: watch::Receiver<u64>,
    /// True if the latest notification brought no new event of the task.
    was_unchanged: bool,
}

/// Returns a stream of a task's events with a number above `after`, each exactly once. The stream
/// ends after the task's last event, or if there is no such task. Errors of the store are items of
/// the stream.
pub fn follow_task(
    tasks: Arc<dyn TaskStore>,
    id: TaskId,
    after: u64,
) -> BoxStream<'static, JournalResult<TaskEvent>> {
    let changes = tasks.changes();
    let follower = TaskFollower {
        tasks,
        id,
        after,
        read: VecDeque::new(),
        changes,
        was_unchanged: false,
    };
    try_unfold(follower, |mut follower| async move {
        Ok(follower.next().await?.map(|event| (event, follower)))
    })
    .boxed()
}

impl TaskFollower {
    async fn next(&mut self) -> JournalResult<Option<TaskEvent>> {
        loop {
            if let Some(event) = self.read.pop_front() {
                self.after = event.number;
                self.was_unchanged = false;
                return Ok(Some(event));
            }
            // Marked as seen before reading, so that a later change wakes.
            self.changes.mark_unchanged();
            self.read_events().await?;
            if !self.read.is_empty() {
                continue;
            }
            match self.tasks.get(&self.id).await? {
                None => return Ok(None),
                Some(task) if task.state.is_terminal() => {
                    // The last events may have been stored between the two reads.
                    self.read_events().await?;
                    if self.read.is_empty() {
                        return Ok(None);
                    }
                }
                Some(_) => {
                    self.wait_for_change().await;
                    self.was_unchanged = true;
                }
            }
        }
    }

    async fn read_events(&mut self) -> JournalResult<()> {
        self.read = self
            .tasks
            .events(&self.id, self.after, EVENTS_READ_MAX)
            .await?
            .into();
        Ok(())
    }

    async fn wait_for_change(&mut self) {
        match timeout(TASK_POLL_INTERVAL, self.changes.changed()).await {
            Ok(Ok(())) if self.was_unchanged => sleep(UNCHANGED_POLL_PAUSE).await,
            // Without change notifications, poll.
            Ok(Err(_)) => sleep(TASK_POLL_INTERVAL).await,
            Ok(Ok(())) | Err(_) => {}
        }
    }
}

/// Tells readers of events about the state of a stored task.
pub(crate) fn emit_state(events: &NodeEvents, task: &Task) {
    events.emit(|| NodeEvent::Task {
        at: SystemTime::now(),
        change: Box::new(TaskStateChange {
            id: task.id.as_str().into(),
            agent: task.agent.as_str().into(),
            state: task.state,
        }),
    });
}
