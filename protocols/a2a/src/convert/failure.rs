//! Why something isn't done, in A2A's words.

use callboard_message::{Failure, FailureKind};
use callboard_runtime::{JournalError, TaskError};

use crate::{A2aError, ErrorKind};

/// Why a message isn't taken. Once there is a task, a failure is its state instead.
pub(crate) fn of_failure(failure: Failure) -> A2aError {
    let kind = match failure.kind {
        FailureKind::InvalidInput | FailureKind::NotFound => ErrorKind::InvalidParams,
        FailureKind::Denied => ErrorKind::Denied,
        FailureKind::Blocked | FailureKind::Rejected => ErrorKind::Blocked,
        FailureKind::Overloaded | FailureKind::Unavailable | FailureKind::TimedOut => ErrorKind::Overloaded,
        _ => return A2aError::internal(),
    };
    A2aError::new(kind, failure.message)
}

/// Why the store didn't do it.
pub(crate) fn of_store(error: &JournalError) -> A2aError {
    match error {
        JournalError::Invalid(why) => A2aError::new(ErrorKind::InvalidParams, *why),
        JournalError::Fenced { .. } | JournalError::Damaged(_) | JournalError::Store(_) => {
            callboard_message::log::error!(%error, "the store of tasks failed");
            A2aError::internal()
        }
        other => A2aError::new(ErrorKind::Overloaded, other.to_string()),
    }
}

/// Why a task isn't begun, or doesn't take a step.
pub(crate) fn of_tasks(error: &TaskError) -> A2aError {
    let kind = match error {
        TaskError::Journal(error) => return of_store(error),
        TaskError::NotFound => ErrorKind::TaskNotFound,
        TaskError::HasEnded(_) | TaskError::Illegal { .. } => ErrorKind::UnsupportedOperation,
        TaskError::KeyReused | TaskError::TooLarge { .. } => ErrorKind::InvalidParams,
        TaskError::TooMany { .. } | TaskError::TooManyEvents { .. } | TaskError::LostLease => ErrorKind::Overloaded,
        _ => return A2aError::internal(),
    };
    A2aError::new(kind, error.to_string())
}
