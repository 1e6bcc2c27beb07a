//! Which task, and whose.

use callboard_message::{Principal, PrincipalKind};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::journal::{JournalError, JournalResult};

/// Longest id of a task, in bytes.
const TASK_ID_BYTES_MAX: usize = 128;
/// Longest idempotency key of a task, in bytes.
pub(crate) const TASK_KEY_BYTES_MAX: usize = 128;

/// A task's name: random, or what a protocol's client chose.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, derive_more::Display,
)]
#[serde(transparent)]
pub struct TaskId(String);

impl TaskId {
    /// A new one, which can't be guessed (UUID version 4, RFC 9562).
    pub fn fresh() -> Self {
        Self(Uuid::new_v4().to_string())
    }

    /// One that somebody chose.
    ///
    /// # Errors
    /// [`JournalError::Invalid`] where it is empty, longer than `TASK_ID_BYTES_MAX` or has a control character.
    pub fn new(id: impl Into<String>) -> JournalResult<Self> {
        let id = id.into();
        if id.is_empty() || id.len() > TASK_ID_BYTES_MAX || id.chars().any(char::is_control) {
            return Err(JournalError::Invalid(
                "a task's id is empty, too long, or has control characters",
            ));
        }
        Ok(Self(id))
    }

    /// The id.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whose a task is: to anybody else it doesn't exist.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, derive_more::Display,
)]
#[serde(transparent)]
pub struct TaskOwner(String);

impl TaskOwner {
    /// The principal; where that is nobody in particular, its `session` (unique over runs: `{run}:{session}`), as far as it
    /// has one. (Without one the task's id, which can't be guessed, is all that keeps strangers away.)
    pub fn of(principal: &Principal, session: Option<&str>) -> Self {
        match session.filter(|_| principal.kind == PrincipalKind::Anonymous) {
            Some(session) => Self(["session:", session].concat()),
            None => Self([principal.kind.as_str(), ":", &principal.id].concat()),
        }
    }

    /// An owner as [`TaskOwner::as_str`] tells it, for those who look for its tasks.
    pub fn named(owner: impl Into<String>) -> Self {
        Self(owner.into())
    }

    /// For example `api_key:alice`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
