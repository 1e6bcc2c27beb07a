//! Queue of audit entries in front of the audit store.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use callboard_message::{DataClass, log};
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore, oneshot};

use super::call_log::{CallQueue, EndedCall};
use super::{Store, StoreAlreadySet};
use crate::audit::{AUDIT_QUEUED_MAX, AuditEntry, AuditStore, AuditValue, BodyDigest};
use crate::journal::{JournalError, JournalResult};
use crate::sync::Mutex;

/// Maximum number of entries in one [`AuditStore::append`].
const APPEND_BATCH_MAX: usize = 256;
/// Delay before the next attempt to write entries while the store can't accept them.
const APPEND_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Audit log of a system. Each entry is written to the process log at once (target
/// `callboard::audit`) and to the store soon after.
///
/// While the store is unavailable, entries wait in order in a queue of [`AUDIT_QUEUED_MAX`].
/// Entries are lost if the queue is full ([`AuditLog::try_enqueue`] only), if the store refuses
/// them for good, or if it doesn't confirm them. Their number is stored in an `audit.gap` entry
/// before the next one. Clones share one queue.
#[derive(Clone)]
pub struct AuditLog {
    inner: Arc<AuditLogState>,
}

struct AuditLogState {
    store: OnceLock<Store>,
    /// Runtime that the queue's writer task runs on. Known once the store is set.
    runtime: OnceLock<Handle>,
    /// Lines about calls.
    calls: Arc<CallQueue>,
    places: Semaphore,
    queue: Mutex<EntryQueue>,
    /// Notified when a writer task ends: the queue is empty, or the runtime ends.
    idle: Notify,
    lost: AtomicU64,
}

#[derive(Default)]
struct EntryQueue {
    waiting: VecDeque<QueuedEntry>,
    /// Number of entries dropped since the last one that was queued.
    gap: u64,
    /// True while a writer task is running.
    has_writer: bool,
}

struct QueuedEntry {
    entry: AuditEntry,
    /// Channel for the result of the write, if a caller waits for it.
    confirmation: Option<oneshot::Sender<JournalResult<u64>>>,
    /// False for an `audit.gap` entry, which doesn't count against the queue's capacity.
    has_place: bool,
}

impl Default for AuditLog {
    fn default() -> Self {
        let inner = AuditLogState {
            store: OnceLock::new(),
            runtime: OnceLock::new(),
            calls: Arc::default(),
            places: Semaphore::new(AUDIT_QUEUED_MAX),
            queue: Mutex::default(),
            idle: Notify::new(),
            lost: AtomicU64::new(0),
        };
        Self {
            inner: Arc::new(inner),
        }
    }
}

impl AuditLog {
    /// Creates a separate log that writes to `audit`. The log of a system is
    /// [`crate::System::audit`].
    pub fn new(audit: Arc<dyn AuditStore>) -> Self {
        let log = Self::default();
        // A fresh log has no store yet, so this can't fail.
        let _ = log.set_store(Store {
            audit,
            ..Store::in_memory()
        });
        log
    }

    /// Logs an entry and queues it without waiting. If the queue is full, the entry isn't stored; it
    /// counts as lost ([`AuditLog::lost_count`]), which an `audit.gap` entry records later.
    pub fn try_enqueue(&self, entry: AuditEntry) {
        log_entry(&entry);
        match self.inner.places.try_acquire() {
            Ok(place) => {
                place.forget();
                self.push(entry, None);
            }
            Err(_) => self.count_lost(1),
        }
    }

    /// Queues an entry. Waits for room if the queue is full.
    pub async fn enqueue(&self, entry: AuditEntry) {
        log_entry(&entry);
        self.acquire_place().await;
        self.push(entry, None);
    }

    /// Queues an entry, waits until it is stored, and returns its number. For actions that must be
    /// on record before they take effect.
    ///
    /// # Errors
    /// The store's error. The action must not be taken then: the entry isn't on record, or after
    /// `JournalError::Unknown` may not be.
    pub async fn record(&self, entry: AuditEntry) -> JournalResult<u64> {
        log_entry(&entry);
        self.acquire_place().await;
        let (kept, is_kept) = oneshot::channel();
        self.push(entry, Some(kept));
        is_kept.await.map_err(|_| {
            JournalError::Unavailable("the audit's writer has ended, as at a shutdown".to_owned())
        })?
    }

    /// Waits until all queued entries are stored or lost, without a time limit while the store is
    /// unavailable.
    pub async fn flush(&self) {
        // Lines are queued only once there is a store.
        if !self.inner.calls.is_idle() {
            self.inner.calls.flush(&self.store().audit).await;
        }
        loop {
            let mut idle = std::pin::pin!(self.inner.idle.notified());
            idle.as_mut().enable();
            {
                let queue = self.inner.queue.lock();
                if queue.waiting.is_empty() && !queue.has_writer {
                    return;
                }
            }
            self.start_writer();
            idle.await;
        }
    }

    /// Turns lines about calls on or off: who called what, with its outcome. They are off by default.
    pub fn set_call_lines(&self, is_on: bool) {
        self.inner.calls.set_on(is_on);
    }

    /// Returns whether lines about calls are on.
    pub(crate) fn has_call_lines(&self) -> bool {
        self.inner.calls.is_on()
    }

    /// Queues the line about a call that ended, without waiting. Lines are lost if too many wait; a later entry
    /// tells how many.
    pub(crate) fn enqueue_call(&self, call: &EndedCall<'_>) {
        let runtime = self.inner.runtime.get().cloned();
        self.inner.calls.enqueue(call, &self.store().audit, runtime);
    }

    /// Returns the number of lost entries: the queue was full, or the store refused or didn't
    /// confirm them. Unconfirmed ones may have been stored.
    pub fn lost_count(&self) -> u64 {
        self.inner.lost.load(Relaxed)
    }

    /// Returns size and hash of a message body, as [`AuditStore::digest`].
    pub fn digest(&self, class: DataClass, body: &[u8]) -> BodyDigest {
        self.store().audit.digest(class, body)
    }

    pub(crate) fn store(&self) -> &Store {
        self.inner.store.get_or_init(Store::in_memory)
    }

    pub(crate) fn set_store(&self, store: Store) -> Result<(), StoreAlreadySet> {
        self.inner.store.set(store).map_err(|_| StoreAlreadySet)?;
        if let Ok(here) = Handle::try_current() {
            let _ = self.inner.runtime.set(here);
        }
        Ok(())
    }

    async fn acquire_place(&self) {
        // The semaphore is never closed.
        if let Ok(place) = self.inner.places.acquire().await {
            place.forget();
        }
    }

    fn push(&self, entry: AuditEntry, kept: Option<oneshot::Sender<JournalResult<u64>>>) {
        {
            let mut queue = self.inner.queue.lock();
            if queue.gap > 0 {
                let gap = AuditEntry::new("audit.gap")
                    .with_detail("lost", std::mem::take(&mut queue.gap));
                queue.waiting.push_back(QueuedEntry {
                    entry: gap,
                    confirmation: None,
                    has_place: false,
                });
            }
            queue.waiting.push_back(QueuedEntry {
                entry,
                confirmation: kept,
                has_place: true,
            });
        }
        self.start_writer();
    }

    fn requeue(&self, waiting: Vec<QueuedEntry>) {
        let mut queue = self.inner.queue.lock();
        waiting
            .into_iter()
            .rev()
            .for_each(|waiting| queue.waiting.push_front(waiting));
    }

    fn count_lost(&self, entries: u64) {
        self.inner.lost.fetch_add(entries, Relaxed);
        let mut queue = self.inner.queue.lock();
        if queue.gap == 0 {
            log::error!(target: "callboard::audit", entries, "lost audit entries: the audit's queue is full, or the store refused them; check the store");
        }
        queue.gap += entries;
    }

    /// Starts a writer task unless one is running.
    fn start_writer(&self) {
        // Without a runtime, the next entry tries again.
        let Some(runtime) = self
            .inner
            .runtime
            .get()
            .cloned()
            .or_else(|| Handle::try_current().ok())
        else {
            return;
        };
        {
            let mut queue = self.inner.queue.lock();
            if queue.has_writer || queue.waiting.is_empty() {
                return;
            }
            queue.has_writer = true;
        }
        // Created before the task, whose future is dropped unpolled if the runtime has ended.
        let working = QueueWriter {
            log: self.clone(),
            done: false,
        };
        runtime.spawn(async move { working.run().await });
    }
}

/// Task that writes queued entries until the queue is empty or the runtime ends.
struct QueueWriter {
    log: AuditLog,
    /// True if the queue was empty at the end. Another writer may be running by then.
    done: bool,
}

impl QueueWriter {
    async fn run(mut self) {
        let inner = self.log.inner.clone();
        loop {
            let batch: Vec<_> = {
                let mut queue = inner.queue.lock();
                let up_to = queue.waiting.len().min(APPEND_BATCH_MAX);
                queue.waiting.drain(..up_to).collect()
            };
            if batch.is_empty() {
                // Decided under the lock, so that no entry is missed.
                let mut queue = inner.queue.lock();
                if queue.waiting.is_empty() {
                    queue.has_writer = false;
                    self.done = true;
                    return;
                }
                continue;
            }
            self.append_batch(batch).await;
        }
    }

    async fn append_batch(&self, batch: Vec<QueuedEntry>) {
        let log = &self.log;
        // If the runtime ends during the write, its entries count as lost.
        let mut unknown = UnconfirmedEntries {
            log,
            entries: batch.len() as u64,
        };
        let entries: Vec<_> = batch.iter().map(|waiting| waiting.entry.clone()).collect();
        let kept = log.store().audit.append(entries).await;
        unknown.entries = 0;
        let places = batch.iter().filter(|waiting| waiting.has_place).count();
        match kept {
            Ok(last) => {
                let first = last.saturating_sub(batch.len() as u64 - 1);
                for (number, waiting) in (first..).zip(batch) {
                    waiting.confirmation.map(|kept| kept.send(Ok(number)));
                }
                log.inner.places.add_permits(places);
            }
            Err(error) => {
                log::error!(target: "callboard::audit", %error, entries = batch.len(), "failed to store audit entries");
                // Callers that wait get the error and must not act. Other entries are retried,
                // unless they may have been written or never can be.
                let again = error.is_transient() && !matches!(error, JournalError::Unknown(_));
                let (waited_for, others): (Vec<_>, Vec<_>) =
                    batch.into_iter().partition(|w| w.confirmation.is_some());
                log.inner.places.add_permits(waited_for.len());
                for waiting in waited_for {
                    waiting
                        .confirmation
                        .map(|kept| kept.send(Err(error.clone())));
                }
                if again {
                    log.requeue(others);
                    tokio::time::sleep(APPEND_RETRY_DELAY).await;
                } else {
                    log.inner
                        .places
                        .add_permits(others.iter().filter(|waiting| waiting.has_place).count());
                    log.count_lost(others.len() as u64);
                }
            }
        }
    }
}

impl Drop for QueueWriter {
    fn drop(&mut self) {
        if !self.done {
            self.log.inner.queue.lock().has_writer = false;
        }
        self.log.inner.idle.notify_waiters();
    }
}

/// Entries that are being written. On drop, those whose result isn't known are counted as lost.
struct UnconfirmedEntries<'a> {
    log: &'a AuditLog,
    entries: u64,
}

impl Drop for UnconfirmedEntries<'_> {
    fn drop(&mut self) {
        if self.entries > 0 {
            self.log.count_lost(self.entries);
        }
    }
}

/// Writes an audit entry to the process log.
fn log_entry(entry: &AuditEntry) {
    tracing::info!(
        target: "callboard::audit",
        event = &*entry.event,
        agent = entry.agent,
        message = entry.message,
        peer = entry.peer,
        call = entry.call.map(tracing::field::display),
        principal = entry.principal.as_ref().map(|(_, id)| id),
        kind = entry.principal.as_ref().map(|(kind, _)| kind.as_str()),
        class = entry.class.as_str(),
        bytes = entry.body.as_ref().map(|body| body.bytes),
        outcome = entry.outcome.as_deref(),
        more = %DetailFields(&entry.details),
    );
}

/// Details of an audit entry, displayed as `name="text" other=3`.
struct DetailFields<'a>(&'a BTreeMap<&'static str, AuditValue>);

impl fmt::Display for DetailFields<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, value)) in self.0.iter().enumerate() {
            let space = if at == 0 { "" } else { " " };
            write!(f, "{space}{name}={value}")?;
        }
        Ok(())
    }
}
