use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use callboard_message::DataClass;
use callboard_runtime::live::LiveScopes;
use callboard_runtime::{MemoryTasks, Store, Tasks};
use uuid::Uuid;

/// How long a task is kept from its beginning, by default, where its client doesn't say.
pub const TASK_TTL_DEFAULT: Duration = Duration::from_secs(600);
/// Longest that a task is kept, by default, whatever its client says.
pub const TASK_TTL_MAX_DEFAULT: Duration = Duration::from_secs(24 * 3_600);
/// Shortest that a task is kept: whoever began it must be able to see it.
pub const TASK_TTL_MIN: Duration = Duration::from_secs(1);
/// How long clients are asked to wait between two looks, by default.
pub const TASK_POLL_INTERVAL_DEFAULT: Duration = Duration::from_secs(1);
/// Most tasks of one endpoint that are kept, ended ones included, by default.
pub const TASKS_MAX_DEFAULT: usize = 1_024;
/// Most of them that belong to one owner, by default.
pub const TASKS_OF_OWNER_MAX_DEFAULT: usize = 128;

/// How calls run as tasks.
#[derive(Debug, Clone)]
pub struct TaskOptions {
    /// How long a task is kept from its beginning where its client doesn't say. It is also its deadline.
    pub ttl: Duration,
    /// Longest that a client can have.
    pub ttl_max: Duration,
    /// How long clients are asked to wait between two looks.
    pub poll_interval: Duration,
    /// Most tasks that are kept, ended ones included.
    pub tasks_max: usize,
    /// Most of them that belong to one owner.
    pub of_owner_max: usize,
    /// Where they are kept. `None`: in memory, as long as the endpoint.
    pub store: Option<TaskStore>,
    /// What the requests and outcomes of this endpoint's agent may hold.
    pub class: DataClass,
}

impl Default for TaskOptions {
    fn default() -> Self {
        Self {
            ttl: TASK_TTL_DEFAULT,
            ttl_max: TASK_TTL_MAX_DEFAULT,
            poll_interval: TASK_POLL_INTERVAL_DEFAULT,
            tasks_max: TASKS_MAX_DEFAULT,
            of_owner_max: TASKS_OF_OWNER_MAX_DEFAULT,
            store: None,
            class: DataClass::default(),
        }
    }
}

/// Where tasks are kept, and by which run of the process.
#[derive(Clone)]
pub struct TaskStore {
    pub(super) tasks: Arc<dyn Tasks>,
    /// Sessions are counted anew in each run: this tells those of one from those of another.
    pub(super) run: Arc<str>,
    /// Whose the tasks are that run; `None`: each endpoint's that they began at.
    pub(super) live: Option<LiveScopes>,
}

impl TaskStore {
    /// `run` is another one at each start of the process. The work on a task ends with the endpoint where it began.
    pub fn new(tasks: Arc<dyn Tasks>, run: impl Into<Arc<str>>) -> Self {
        Self { tasks, run: run.into(), live: None }
    }

    /// Tasks that last as long as this value.
    pub(super) fn in_memory(tasks_max: usize) -> Self {
        Self::new(Arc::new(MemoryTasks::with_capacity(tasks_max)), Uuid::new_v4().to_string())
    }
}

impl From<&Store> for TaskStore {
    /// Tasks go on when the endpoint ends where they began, until [`LiveScopes::stop`] of the store.
    fn from(store: &Store) -> Self {
        Self { tasks: store.tasks.clone(), run: store.run.clone(), live: Some(store.live.clone()) }
    }
}

impl fmt::Debug for TaskStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskStore({})", self.tasks.worker())
    }
}
