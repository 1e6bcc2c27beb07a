//! What a store counts.

use std::time::{Duration, Instant};

use callboard_runtime::JournalError;
use parking_lot::Mutex;

/// A refused write is logged at most this often.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// What an open store has done so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreMeasures {
    /// Writes that wait for their commit now.
    pub queued: u64,
    /// Writes that were committed.
    pub writes: u64,
    /// Transactions that were committed: each is one fsync.
    pub batches: u64,
    /// Bytes of the database, as of the last look; 0 before it.
    pub bytes: u64,
    /// Why the last write that was refused was; `None` after one that was kept.
    pub last_error: Option<String>,
}

#[derive(Default)]
pub(crate) struct Measures(Mutex<Counted>);

#[derive(Default)]
struct Counted {
    now: StoreMeasures,
    /// When an error was last logged.
    told: Option<Instant>,
}

impl Measures {
    pub(crate) fn queued(&self) {
        self.0.lock().now.queued += 1;
    }

    pub(crate) fn answered(&self, writes: u64) {
        self.0.lock().now.queued -= writes;
    }

    pub(crate) fn kept(&self, writes: u64) {
        let now = &mut self.0.lock().now;
        now.writes += writes;
        now.batches += 1;
        now.last_error = None;
    }

    pub(crate) fn size(&self, bytes: u64) {
        self.0.lock().now.bytes = bytes;
    }

    pub(crate) fn refused(&self, error: &JournalError) {
        let mut counted = self.0.lock();
        counted.now.last_error = Some(error.to_string());
        let is_due = counted.told.is_none_or(|told| told.elapsed() >= TOLD_EVERY);
        if is_due {
            counted.told = Some(Instant::now());
        }
        // A subscriber may be slow, or read the measures.
        drop(counted);
        if is_due {
            callboard_message::log::error!(%error, "the store refuses writes");
        }
    }

    pub(crate) fn read(&self) -> StoreMeasures {
        self.0.lock().now.clone()
    }
}
