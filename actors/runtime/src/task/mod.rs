//! Tasks: work that outlives the request that asked for it, and the process that did it.

mod graph;
mod id;
pub mod live;
mod memory;
mod record;
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
pub use graph::{TaskGraph, in_dependency_order};
pub use id::{TaskId, TaskOwner};
pub use memory::MemoryTasks;
pub use record::{LeaseView, NewTask, OpenQuestion, Task, TaskOutcome};
pub use step::{CANCELLED_WHY, TaskEvent, TaskStep};

use crate::journal::{JournalError, JournalResult};

/// Most tasks that [`Tasks::begin_all`] takes at once.
pub const TASKS_AT_ONCE_MAX: usize = 64;
/// Most tasks that one needs.
const TASK_NEEDS_MAX: usize = 64;
/// How deep parts of parts go.
pub const TASK_DEPTH_MAX: usize = 8;
/// Most events of a task, by default; its end always fits.
const TASK_EVENTS_MAX_DEFAULT: u64 = 10_000;
/// After so many events what a task says ([`TaskStep::Said`]) is left out.
const TASK_SAID_EVENTS_MAX: u64 = 9_000;
/// Largest bodies of a task, together, in bytes, by default.
pub const TASK_BYTES_MAX_DEFAULT: usize = 4 * 1024 * 1024;
/// How long a worker has a task unless it renews its lease.
pub const TASK_LEASE: Duration = Duration::from_secs(30);
/// How often a worker renews its leases.
pub(crate) const TASK_RENEW_EVERY: Duration = Duration::from_secs(10);
/// How often a worker asks which of its tasks somebody wants ended.
pub(crate) const TASK_CANCELS_EVERY: Duration = Duration::from_millis(500);

/// Who takes a step.
#[derive(Debug, Clone, Copy)]
pub enum By<'a> {
    /// Whoever works on it. Refused with [`TaskError::LostLease`] once another does.
    Worker(&'a Lease),
    /// Whose it is: may answer and cancel. To another the task doesn't exist.
    Owner(&'a TaskOwner),
    /// Whoever runs this node: may answer and cancel.
    Operator,
}

/// A worker's right to a task's steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Which task.
    pub task: TaskId,
    /// Whose right it is: [`Tasks::worker`].
    pub by: String,
    /// Grows each time that somebody takes the task.
    pub epoch: u64,
}

/// A wish for work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Of which scope.
    pub scope: String,
    /// Whose work it will be: [`Tasks::worker`].
    pub by: String,
    /// At most so many.
    pub tasks_max: usize,
    /// For how long, unless renewed.
    pub lease: Duration,
}

/// Which tasks. What is `None` leaves all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TaskFilter {
    /// Of this scope.
    pub scope: Option<String>,
    /// Of this owner.
    pub owner: Option<TaskOwner>,
    /// Of this agent.
    pub agent: Option<String>,
    /// Asked by this message.
    pub message: Option<String>,
    /// Parts of this task.
    pub parent: Option<TaskId>,
    /// In one of these states; none: in any.
    pub states: Vec<TaskState>,
    /// Whose last step was at that time, or later.
    pub since: Option<SystemTime>,
}

impl TaskFilter {
    /// Whether it leaves `task`.
    pub fn leaves(&self, task: &Task) -> bool {
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

/// What [`Tasks::begin`] came to.
#[derive(Debug, Clone)]
pub enum Begun {
    /// It works, and whoever began it is its worker, for [`TASK_LEASE`] at first.
    New(Arc<Task>, Lease),
    /// Its key was there: this is that task, as it is now.
    Again(Arc<Task>),
}

/// Tasks in order, and whether there are more.
pub type TaskPage = (Vec<Arc<Task>>, bool);

/// A task that a worker took, and its right to it.
pub type Claimed = (Arc<Task>, Lease);

/// Why a worker lets go of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// There is nothing to do now: its parts have to end, or somebody else shall go on. It is nobody's work then.
    Waits,
    /// In the midst of it: [`OnRestart`] decides when somebody takes it again ([`Task::recovery`]).
    Interrupted,
}

/// Where tasks are kept. What a future answers is kept when it ends, as the implementation says; dropped before, it may be.
#[async_trait]
pub trait Tasks: Send + Sync + 'static {
    /// Keeps a task and makes it work ([`TaskStep::Start`] is its first event), leased to [`Tasks::worker`]. Where its key is
    /// there, or its id with the same owner and request, the answer is that task.
    ///
    /// With needs that have not completed it is submitted instead and nobody's work; the lease then is of no use.
    ///
    /// # Errors
    /// [`TaskError::KeyReused`], [`TaskError::TooMany`], [`TaskError::TooLarge`], [`TaskError::UnknownNeed`], or the store's.
    async fn begin(&self, new: NewTask) -> TaskResult<Begun>;

    /// Keeps tasks that may be parts of one another and need one another, at most [`TASKS_AT_ONCE_MAX`], all or none. They
    /// are submitted and nobody's work. One whose key is there is that task, as it is now.
    ///
    /// # Errors
    /// As [`Tasks::begin`]; [`TaskError::Cycle`].
    async fn begin_all(&self, new: Vec<NewTask>) -> TaskResult<Vec<Arc<Task>>>;

    /// Takes steps ([`Task::take`]), all or none. At an end, together with it: tasks that need this one go on, or are cancelled
    /// where it didn't complete; its parent has a part less to wait for.
    ///
    /// # Errors
    /// [`TaskError::NotFound`]; [`TaskError::LostLease`]; as [`Task::step`]; [`TaskError::Illegal`] where others than the
    /// worker want more than to answer and to cancel; [`TaskError::TooLarge`]; or the store's.
    async fn step(&self, id: &TaskId, by: By<'_>, steps: Vec<TaskStep>) -> TaskResult<Arc<Task>>;

    /// A task as it is now.
    async fn get(&self, id: &TaskId) -> JournalResult<Option<Arc<Task>>>;

    /// The first `tasks_max` tasks that `filter` leaves whose number is over `after`, in order, and whether there are more.
    async fn list(
        &self,
        filter: TaskFilter,
        after: u64,
        tasks_max: usize,
    ) -> JournalResult<TaskPage>;

    /// The first `events_max` events of a task whose number is over `after`, in order; none where there is no such task.
    async fn events(
        &self,
        id: &TaskId,
        after: u64,
        events_max: usize,
    ) -> JournalResult<Vec<TaskEvent>>;

    /// Takes work, oldest first: of tasks that are ready ([`Task::is_ready`]). One that still has a lease (run out: its worker
    /// was interrupted), or that somebody wants ended, takes the steps of [`Task::recovery`] first.
    async fn claim(&self, claim: Claim) -> JournalResult<Vec<Claimed>>;

    /// Renews every lease of `by`, as far as nobody else has the task by now, and answers how many those are.
    async fn renew(&self, by: &str, lease: Duration) -> JournalResult<u64>;

    /// Lets go of a task; nothing where another has it by now, or it has ended.
    async fn release(&self, lease: &Lease, why: Released) -> JournalResult<()>;

    /// Wants a task ended, and its parts: those that are nobody's work end at once, the workers of others are told by
    /// [`Tasks::cancels`].
    ///
    /// # Errors
    /// [`TaskError::NotFound`], [`TaskError::HasEnded`], or the store's.
    async fn want_cancel(&self, id: &TaskId, by: By<'_>) -> TaskResult<Arc<Task>>;

    /// Forgets a task with its events; nothing where it isn't there. One that runs is cancelled by it.
    async fn forget(&self, id: &TaskId) -> JournalResult<()>;

    /// Those of this worker's tasks that somebody wants ended. To be asked every `TASK_CANCELS_EVERY`.
    async fn cancels(&self, by: &str) -> JournalResult<Vec<TaskId>>;

    /// Another number each time that something was kept, in this process.
    fn changes(&self) -> watch::Receiver<u64>;

    /// This process's name in leases: `NAME#EPOCH`.
    fn worker(&self) -> &str;
}

/// Why a task didn't do it. Nothing was kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TaskError {
    /// There is no such task, or it is another's: the two aren't told apart.
    #[error("there is no such task")]
    NotFound,
    /// It has ended, and stays as it ended.
    #[error("the task has ended: {0}")]
    HasEnded(TaskState),
    /// Its state doesn't allow the step: look at it again.
    #[error("a task that is {from} can't take the step `{step}`")]
    Illegal {
        /// Where it stands.
        from: TaskState,
        /// What was wanted: [`super::TaskStep::name`].
        step: &'static str,
    },
    /// Another worker has it: stop working on it.
    #[error("another worker has the task")]
    LostLease,
    /// The key was used for another request: use a new one.
    #[error("the key was used for another request")]
    KeyReused,
    /// Its children have to end first.
    #[error("{0} children of the task still run")]
    ChildrenRunning(u32),
    /// It needs, or is a child of, a task that isn't there.
    #[error("it needs a task that isn't there: {0}")]
    UnknownNeed(TaskId),
    /// The tasks need one another in a circle.
    #[error("the tasks need one another in a circle")]
    Cycle,
    /// Wait until tasks have ended and their time is over.
    #[error("too many tasks are kept (at most {tasks_max}): try again later")]
    TooMany {
        /// The limit that was met.
        tasks_max: usize,
    },
    /// Send less.
    #[error("{bytes} bytes are too many for a task (at most {bytes_max})")]
    TooLarge {
        /// What it would have been.
        bytes: usize,
        /// The limit that was met.
        bytes_max: usize,
    },
    /// The task has been through too much: end it.
    #[error("the task has too many events (at most {events_max})")]
    TooManyEvents {
        /// The limit that was met.
        events_max: u64,
    },
    /// The store didn't do it.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// What a task answers to what is wanted of it.
pub type TaskResult<T> = Result<T, TaskError>;

impl From<TaskError> for Failure {
    fn from(error: TaskError) -> Self {
        let kind = match error {
            TaskError::Journal(error) => return error.into(),
            TaskError::NotFound => FailureKind::NotFound,
            TaskError::TooMany { .. } | TaskError::TooManyEvents { .. } => FailureKind::Overloaded,
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

/// How often [`follow`] looks where nothing in this process says that there is something new: another node may write.
pub(crate) const FOLLOW_LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long it waits between looks while others' tasks change, and its own doesn't: many follow, and each change wakes all.
const PAUSE_AFTER_VAIN_LOOK: Duration = Duration::from_millis(20);
/// Events that it reads at once.
const EVENTS_READ_MAX: usize = 100;

struct Follower {
    tasks: Arc<dyn Tasks>,
    id: TaskId,
    after: u64,
    read: VecDeque<TaskEvent>,
    changes: watch::Receiver<u64>,
    /// It was woken, and there was nothing new.
    in_vain: bool,
}

/// The events of a task whose number is over `after`: none is missed, and none comes twice. It ends after the task's end, and
/// where there is no such task (any more).
pub fn follow(
    tasks: Arc<dyn Tasks>,
    id: TaskId,
    after: u64,
) -> BoxStream<'static, JournalResult<TaskEvent>> {
    let changes = tasks.changes();
    let follower = Follower {
        tasks,
        id,
        after,
        read: VecDeque::new(),
        changes,
        in_vain: false,
    };
    try_unfold(follower, |mut follower| async move {
        Ok(follower.next().await?.map(|event| (event, follower)))
    })
    .boxed()
}

impl Follower {
    async fn next(&mut self) -> JournalResult<Option<TaskEvent>> {
        loop {
            if let Some(event) = self.read.pop_front() {
                self.after = event.number;
                self.in_vain = false;
                return Ok(Some(event));
            }
            // Marked as seen before the look: what comes after it wakes.
            self.changes.mark_unchanged();
            self.look().await?;
            if !self.read.is_empty() {
                continue;
            }
            match self.tasks.get(&self.id).await? {
                None => return Ok(None),
                Some(task) if task.state.is_terminal() => {
                    // Its last events may have been kept between the two looks.
                    self.look().await?;
                    if self.read.is_empty() {
                        return Ok(None);
                    }
                }
                Some(_) => {
                    self.wait().await;
                    self.in_vain = true;
                }
            }
        }
    }

    async fn look(&mut self) -> JournalResult<()> {
        self.read = self
            .tasks
            .events(&self.id, self.after, EVENTS_READ_MAX)
            .await?
            .into();
        Ok(())
    }

    async fn wait(&mut self) {
        match timeout(FOLLOW_LOOK_EVERY, self.changes.changed()).await {
            Ok(Ok(())) if self.in_vain => sleep(PAUSE_AFTER_VAIN_LOOK).await,
            // Nobody tells any more.
            Ok(Err(_)) => sleep(FOLLOW_LOOK_EVERY).await,
            Ok(Ok(())) | Err(_) => {}
        }
    }
}
