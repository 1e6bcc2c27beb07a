use callboard_message::{Failure, FailureKind, TaskState};

use super::TaskId;
use crate::journal::JournalError;

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
