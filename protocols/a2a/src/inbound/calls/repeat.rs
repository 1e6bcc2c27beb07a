//! A message that comes again begins no second task (1.0, section 3.1.1: agents may know it by its `messageId`). The id alone
//! doesn't say, for some clients use one for several: all that a message says has to be the same.

use std::time::{Duration, SystemTime};

use callboard_message::TaskState;
use callboard_runtime::{Audit, Task};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::Who;
use crate::inbound::options::A2aOptions;
use crate::wire::{Message, TaskPushNotificationConfig, Wire as _};
use crate::{A2aError, Dialect, ErrorKind};

/// Member of a message's metadata: the same key of the same owner is the same task, as long as that is kept. A string of 1 to
/// 128 bytes.
const KEY: &str = "callboard/key";
/// What keys of ours begin with, and no client's.
const OURS: &str = "callboard/again:";
/// How much of a message's hash is its mark, in hexadecimal digits.
const MARK_DIGITS: usize = 32;
/// How often one message may begin a task anew, each time when the one before counts no more; after that it isn't known again
/// until those are forgotten.
const TURNS_MAX: u32 = 64;

/// What the same message is known by.
#[derive(Debug, PartialEq)]
pub(super) enum Known {
    /// Nothing.
    Not,
    /// The key that its client gave it.
    ByKey(String),
    /// Itself, for so long after its task began.
    ByItself { mark: String, turn: u32, within: Duration },
}

impl Known {
    /// What a message is known by that asks for `skill`, as it is kept: `request`. Its mark is made by `marks`, for it is kept where
    /// what was said may not be.
    ///
    /// # Errors
    /// `InvalidParams` for a key that isn't a text, or looks like one of ours.
    pub(super) fn of(
        who: &Who,
        message: &Message,
        options: &A2aOptions,
        marks: &dyn Audit,
        asks: Asks<'_>,
    ) -> Result<Self, A2aError> {
        if let Some(key) = message.metadata.as_ref().and_then(|metadata| metadata.get(KEY)) {
            let invalid = |why: String| A2aError::new(ErrorKind::InvalidParams, format!("`metadata[\"{KEY}\"]` {why}"));
            let key: String = serde_json::from_str(key.get()).map_err(|_| invalid("must be a string".to_owned()))?;
            return match key.starts_with(OURS) {
                true => Err(invalid(format!("can't begin with `{OURS}`"))),
                false => Ok(Self::ByKey(key)),
            };
        }
        // Messages of 0.1 have no ids, tasks have. Among people whom nobody tells apart an id may be two people's, unless it is one
        // that nobody has twice.
        let within = options.tasks.repeat_within;
        let is_whose = options.one_anonymous || !who.is_anonymous() || Uuid::try_parse(&message.message_id).is_ok();
        if who.dialect == Dialect::V01 || within.is_zero() || !is_whose {
            return Ok(Self::Not);
        }
        let push = asks.push.map(|push| push.to_raw());
        let said = [asks.skill, asks.request.get(), push.as_deref().map_or("", RawValue::get)];
        let digest =
            said.into_iter().fold(Sha256::new(), |hash, part| hash.chain_update(part).chain_update([0])).finalize();
        let hash = marks.mark(options.tasks.class, &digest).hash;
        let digits = hash.rsplit(':').next().unwrap_or_default();
        let mark = digits.get(..MARK_DIGITS).unwrap_or(digits).to_owned();
        Ok(Self::ByItself { mark, turn: 0, within })
    }

    /// The task's key.
    pub(super) fn key(&self) -> Option<String> {
        match self {
            Self::Not => None,
            Self::ByKey(key) => Some(key.clone()),
            Self::ByItself { mark, turn, .. } => Some(format!("{OURS}{mark}:{turn}")),
        }
    }

    /// Whether `task`, which the message began once, is its answer no more: its time is over, or it came to nothing, which another
    /// try may not.
    pub(super) fn is_over(&self, task: &Task) -> bool {
        let came_to_nothing = task.state.is_terminal() && task.state != TaskState::Completed;
        let is_too_old = |within| !counts(task.created, SystemTime::now(), within);
        matches!(self, Self::ByItself { within, .. } if came_to_nothing || is_too_old(*within))
    }

    /// What it is known by the next time that it begins a task.
    pub(super) fn next(self) -> Self {
        match self {
            Self::ByItself { turn, .. } if turn + 1 == TURNS_MAX => Self::Not,
            Self::ByItself { mark, turn, within } => Self::ByItself { mark, turn: turn + 1, within },
            same => same,
        }
    }
}

/// What a message asks for.
pub(super) struct Asks<'a> {
    pub(super) skill: &'a str,
    pub(super) request: &'a RawValue,
    pub(super) push: Option<&'a TaskPushNotificationConfig>,
}

/// Whether a task that was begun at `begun` is still the answer to its message.
fn counts(begun: SystemTime, now: SystemTime, within: Duration) -> bool {
    now.duration_since(begun).unwrap_or_default() <= within
}

#[cfg(test)]
mod tests {
    use callboard_message::{DataClass, Principal};
    use callboard_runtime::MemoryAudit;

    use super::*;

    /// Goal: nobody finds out by a mark what was said where that could be guessed. Method: the mark that stores of other keys make of
    /// one message.
    #[test]
    fn marks_are_keyed() {
        let who = Who::new(std::sync::Arc::new(Principal::agent("ann")), Dialect::V10);
        let known = |class| {
            let mut options = A2aOptions::at("http://127.0.0.1:1".parse().unwrap());
            options.tasks.class = class;
            let asks = Asks { skill: "skill", request: RawValue::NULL, push: None };
            Known::of(&who, &Message::default(), &options, &MemoryAudit::default(), asks).unwrap().key().unwrap()
        };
        assert_eq!(known(DataClass::Internal), known(DataClass::Internal));
        assert_ne!(known(DataClass::Clinical), known(DataClass::Clinical));
        assert_eq!(known(DataClass::Clinical).len(), OURS.len() + MARK_DIGITS + 2);
    }

    /// Goal: a message is known for its time and no longer, and never more often than there are turns. Method: the last moment and
    /// the one after; a task that counts no more, as often as there are turns.
    #[test]
    fn for_a_time() {
        let (begun, within) = (SystemTime::UNIX_EPOCH, Duration::from_secs(600));
        for (after, is_known) in [(0, true), (600_000, true), (600_001, false)] {
            assert_eq!(counts(begun, begun + Duration::from_millis(after), within), is_known, "{after}");
        }
        assert!(counts(begun + within, begun, within), "a clock that was put back");

        let mut known = Known::ByItself { mark: "mark".to_owned(), turn: 0, within };
        let mut keys = Vec::new();
        while let Some(key) = known.key() {
            keys.push(key);
            known = known.next();
        }
        assert_eq!((keys.len(), &*keys[1]), (TURNS_MAX as usize, "callboard/again:mark:1"));
    }
}
