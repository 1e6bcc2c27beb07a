//! What a store counts.

use std::sync::atomic::{AtomicU64, Ordering};
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
pub(crate) struct Measures {
    queued: AtomicU64,
    writes: AtomicU64,
    batches: AtomicU64,
    bytes: AtomicU64,
    error: Mutex<LastError>,
}

#[derive(Default)]
struct LastError {
    now: Option<String>,
    told: Option<Instant>,
}

impl Measures {
    pub(crate) fn queued(&self) {
        self.queued.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn answered(&self, writes: u64) {
        self.queued.fetch_sub(writes, Ordering::Relaxed);
    }

    pub(crate) fn kept(&self, writes: u64) {
        self.writes.fetch_add(writes, Ordering::Relaxed);
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.error.lock().now = None;
    }

    pub(crate) fn size(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn refused(&self, error: &JournalError) {
        let mut last = self.error.lock();
        last.now = Some(error.to_string());
        if last.told.is_none_or(|told| told.elapsed() >= TOLD_EVERY) {
            last.told = Some(Instant::now());
            callboard_message::log::error!(%error, "the store refuses writes");
        }
    }

    pub(crate) fn read(&self) -> StoreMeasures {
        StoreMeasures {
            queued: self.queued.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            batches: self.batches.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            last_error: self.error.lock().now.clone(),
        }
    }
}
