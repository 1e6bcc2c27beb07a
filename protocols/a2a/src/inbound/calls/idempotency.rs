//! Keys by which repeated messages are recognised.

use std::time::{Duration, SystemTime};

use callboard_message::TaskState;
use callboard_runtime::{AuditStore, Task};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::RequestContext;
use crate::inbound::options::A2aOptions;
use crate::wire::A2aMessage;
use crate::{A2aError, Dialect, ErrorKind};

/// Key in a message's metadata for an idempotency key assigned by the client: a string of 1 to 128
/// bytes. While a task is stored, further messages of its owner with the same key belong to it.
const IDEMPOTENCY_KEY_METADATA: &str = "callboard/key";
/// Prefix of idempotency keys that the server derives. Keys assigned by clients can't begin with
/// it.
const DERIVED_KEY_PREFIX: &str = "callboard/again:";
/// Number of hexadecimal digits of the message's hash in a derived idempotency key.
const DIGEST_DIGITS: usize = 32;
/// Maximum number of tasks that one message may begin by being repeated, each after the earlier
/// task became stale.
/// At the limit: repetitions aren't recognised until those tasks have been deleted. Changed by
/// `A2aTaskOptions::idempotency_window`.
const DERIVED_KEY_ATTEMPTS_MAX: u32 = 64;

/// Idempotency key of a message, by which repetitions of the message are recognised.
#[derive(Debug, PartialEq)]
pub(super) enum IdempotencyKey {
    /// No key: repetitions of the message aren't recognised and begin new tasks.
    Absent,
    /// Key assigned by the client in the message's metadata.
    Explicit(String),
    /// Key derived from the message's content. A task answers repetitions for `window` after its
    /// beginning. `attempt` is the number of earlier tasks of the message, which no longer answer
    /// it.
    Derived {
        digest: String,
        attempt: u32,
        window: Duration,
    },
}

impl IdempotencyKey {
    /// Determines the idempotency key of a message: the client's, else a key derived from `asked`
    /// (skill, stored request and push configuration). `audit` computes a keyed hash of these,
    /// because their content may be confidential. No key is derived ([`Self::Absent`]) in 0.1, if
    /// the idempotency window is zero, or for an anonymous caller that can't be told from others
    /// and whose message id is no UUID.
    ///
    /// # Errors
    /// `InvalidParams` if the client's key isn't a string or has the prefix of derived keys. Its
    /// length isn't checked here, but by `NewTask::check`.
    pub(super) fn for_message(
        who: &RequestContext,
        message: &A2aMessage,
        options: &A2aOptions,
        audit: &dyn AuditStore,
        asked: [&str; 3],
    ) -> Result<Self, A2aError> {
        if let Some(key) = message
            .metadata
            .as_ref()
            .and_then(|metadata| metadata.get(IDEMPOTENCY_KEY_METADATA))
        {
            let invalid = |why: String| {
                ErrorKind::InvalidParams
                    .error(format!("`metadata[\"{IDEMPOTENCY_KEY_METADATA}\"]` {why}"))
            };
            let key: String = serde_json::from_str(key.get())
                .map_err(|_| invalid("must be a string".to_owned()))?;
            return match key.starts_with(DERIVED_KEY_PREFIX) {
                true => Err(invalid(format!("can't begin with `{DERIVED_KEY_PREFIX}`"))),
                false => Ok(Self::Explicit(key)),
            };
        }
        // Messages of 0.1 have no ids, tasks have. Anonymous callers that can't be distinguished
        // may use the same id, unless it is a UUID.
        let within = options.tasks.idempotency_window;
        let is_whose = options.shares_anonymous_tasks
            || !who.is_anonymous()
            || Uuid::try_parse(&message.message_id).is_ok();
        if who.dialect == Dialect::V01 || within.is_zero() || !is_whose {
            return Ok(Self::Absent);
        }
        let digest = asked
            .into_iter()
            .fold(Sha256::new(), |hash, part| {
                hash.chain_update(part).chain_update([0])
            })
            .finalize();
        let hash = audit.digest(options.tasks.data_class, &digest).hash;
        let digits = hash.rsplit(':').next().unwrap_or_default();
        let mark = digits.get(..DIGEST_DIGITS).unwrap_or(digits).to_owned();
        Ok(Self::Derived {
            digest: mark,
            attempt: 0,
            window: within,
        })
    }

    /// Returns the key as stored with the task; `None` if repetitions aren't recognised.
    pub(super) fn task_key(&self) -> Option<String> {
        match self {
            Self::Absent => None,
            Self::Explicit(key) => Some(key.clone()),
            Self::Derived {
                digest: mark,
                attempt: turn,
                ..
            } => Some(format!("{DERIVED_KEY_PREFIX}{mark}:{turn}")),
        }
    }

    /// Returns whether a repetition of a message begins a new task although `task` has the
    /// message's key. That is so for derived keys if the window is over, or if `task` ended without
    /// success.
    pub(super) fn is_stale(&self, task: &Task) -> bool {
        let came_to_nothing = task.state.is_terminal() && task.state != TaskState::Completed;
        let is_too_old = |within| !is_within_window(task.created, SystemTime::now(), within);
        matches!(self, Self::Derived { window, .. } if came_to_nothing || is_too_old(*window))
    }

    /// Returns the key for the next task that the message begins. After
    /// [`DERIVED_KEY_ATTEMPTS_MAX`] tasks it is [`Self::Absent`].
    pub(super) fn next_attempt(self) -> Self {
        match self {
            Self::Derived { attempt: turn, .. } if turn + 1 == DERIVED_KEY_ATTEMPTS_MAX => {
                Self::Absent
            }
            Self::Derived {
                digest: mark,
                attempt: turn,
                window: within,
            } => Self::Derived {
                digest: mark,
                attempt: turn + 1,
                window: within,
            },
            same => same,
        }
    }
}

/// Returns whether the time `now` is at most `within` after `begun`.
fn is_within_window(begun: SystemTime, now: SystemTime, within: Duration) -> bool {
    now.duration_since(begun).unwrap_or_default() <= within
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use callboard_message::{DataClass, Principal};
    use callboard_runtime::MemoryAuditStore;

    use super::*;

    /// Goal: a derived key doesn't reveal a message that could be guessed. Method: the keys that
    /// stores with other secrets derive from one message.
    #[test]
    fn marks_are_keyed() {
        let who = RequestContext::new(Arc::new(Principal::agent("ann")), Dialect::V10);
        let known = |class| {
            let mut options = A2aOptions::new("http://127.0.0.1:1".parse().unwrap());
            options.tasks.data_class = class;
            let asked = ["skill", "null", ""];
            IdempotencyKey::for_message(
                &who,
                &A2aMessage::default(),
                &options,
                &MemoryAuditStore::default(),
                asked,
            )
            .unwrap()
            .task_key()
            .unwrap()
        };
        assert_eq!(known(DataClass::Internal), known(DataClass::Internal));
        assert_ne!(known(DataClass::Clinical), known(DataClass::Clinical));
        assert_eq!(
            known(DataClass::Clinical).len(),
            DERIVED_KEY_PREFIX.len() + DIGEST_DIGITS + 2
        );
    }

    /// Goal: a message is recognised for its window and no longer, and only for a limited number of
    /// tasks. Method: the last moment and the one after; stale tasks up to the limit.
    #[test]
    fn for_a_time() {
        let (begun, within) = (SystemTime::UNIX_EPOCH, Duration::from_secs(600));
        for (after, is_known) in [(0, true), (600_000, true), (600_001, false)] {
            assert_eq!(
                is_within_window(begun, begun + Duration::from_millis(after), within),
                is_known,
                "{after}"
            );
        }
        assert!(
            is_within_window(begun + within, begun, within),
            "a clock that was put back"
        );

        let mut known = IdempotencyKey::Derived {
            digest: "mark".to_owned(),
            attempt: 0,
            window: within,
        };
        let mut keys = Vec::new();
        while let Some(key) = known.task_key() {
            keys.push(key);
            known = known.next_attempt();
        }
        assert_eq!(
            (keys.len(), &*keys[1]),
            (DERIVED_KEY_ATTEMPTS_MAX as usize, "callboard/again:mark:1")
        );
    }
}
