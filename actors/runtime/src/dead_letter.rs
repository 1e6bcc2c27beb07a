use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::Serialize;

use crate::ids::AgentId;
use crate::sync::Mutex;

/// Dead letters kept for people to look at; older ones are only counted.
pub const DEAD_LETTERS_KEPT_MAX: usize = 1_000;

/// An accepted message that no handler got.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeadLetter {
    /// The agent that it was for.
    pub to: AgentId,
    /// The message's name; never its content.
    pub message: &'static str,
    /// Why it wasn't delivered.
    pub why: &'static str,
}

/// What could not be delivered: counted, and the latest kept.
#[derive(Default)]
pub struct DeadLetters {
    count: AtomicU64,
    latest: Mutex<VecDeque<DeadLetter>>,
}

impl DeadLetters {
    /// How many there have been.
    pub fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    /// The latest, oldest first; at most [`DEAD_LETTERS_KEPT_MAX`].
    pub fn latest(&self) -> Vec<DeadLetter> {
        self.latest.lock().iter().cloned().collect()
    }

    pub(crate) fn record(&self, to: AgentId, message: &'static str, why: &'static str) {
        self.count.fetch_add(1, Relaxed);
        callboard_message::log::debug!(%to, message, why, "dead letter");
        let mut latest = self.latest.lock();
        if latest.len() == DEAD_LETTERS_KEPT_MAX {
            latest.pop_front();
        }
        latest.push_back(DeadLetter { to, message, why });
    }
}
