//! Entries on their way to the audit of the store.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use callboard_message::{DataClass, log};
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore, oneshot};

use super::{Store, StoreIsSet};
use crate::audit::{AUDIT_QUEUED_MAX, Audit, AuditEntry, AuditValue, BodyMark};
use crate::journal::{JournalError, JournalResult};
use crate::sync::Mutex;

/// Entries that are kept with one call of [`Audit::append`].
const APPENDED_MAX: usize = 256;
/// How long it waits to try again where the store can't keep them now.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The way into the audit: every entry is a line of the log (target `callboard::audit`) at once, and is kept soon.
///
/// Entries wait in a queue, in order, while the store can't keep them (no room, or away). Where the queue is full they are
/// lost to the store, and the next one that gets in is preceded by an `audit.gap` that says how many. Clones are the same log.
#[derive(Clone)]
pub struct AuditLog {
    inner: Arc<Inner>,
}

struct Inner {
    store: OnceLock<Store>,
    /// Where it keeps what waits; known with the store.
    home: OnceLock<Handle>,
    places: Semaphore,
    queue: Mutex<Queue>,
    /// Told when nothing waits any more.
    idle: Notify,
    lost: AtomicU64,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    /// How many were lost since the last one that got in.
    gap: u64,
    /// Somebody works it off.
    worked_off: bool,
}

struct Waiting {
    entry: AuditEntry,
    /// Who waits for it to be kept.
    kept: Option<oneshot::Sender<JournalResult<u64>>>,
    /// A gap's entry has no place of its own.
    has_place: bool,
}

impl Default for AuditLog {
    fn default() -> Self {
        let inner = Inner {
            store: OnceLock::new(),
            home: OnceLock::new(),
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
    /// A log of its own, kept in `audit`; a system's is [`crate::System::audit`].
    pub fn new(audit: Arc<dyn Audit>) -> Self {
        let log = Self::default();
        // It is new: nothing is set.
        let _ = log.keep_in(Store {
            audit,
            ..Store::in_memory()
        });
        log
    }

    /// Notes an entry. Never waits: where the queue is full the entry is lost, and counted.
    pub fn note(&self, entry: AuditEntry) {
        tell(&entry);
        match self.inner.places.try_acquire() {
            Ok(place) => {
                place.forget();
                self.push(entry, None);
            }
            Err(_) => self.lose(1),
        }
    }

    /// Notes an entry, and waits for a place in the queue: a flood slows down, and nothing is lost.
    pub async fn placed(&self, entry: AuditEntry) {
        tell(&entry);
        self.take_place().await;
        self.push(entry, None);
    }

    /// Notes an entry, waits until it is kept, and answers its number: for what must be on record before it takes effect.
    ///
    /// # Errors
    /// The store's: then it isn't on record, and what it says must not happen.
    pub async fn record(&self, entry: AuditEntry) -> JournalResult<u64> {
        tell(&entry);
        self.take_place().await;
        let (kept, is_kept) = oneshot::channel();
        self.push(entry, Some(kept));
        is_kept
            .await
            .map_err(|_| JournalError::Unavailable("the audit's queue ended".to_owned()))?
    }

    /// Ends when nothing waits to be kept; while the store is away it doesn't.
    pub async fn flush(&self) {
        loop {
            let mut idle = std::pin::pin!(self.inner.idle.notified());
            idle.as_mut().enable();
            {
                let queue = self.inner.queue.lock();
                if queue.waiting.is_empty() && !queue.worked_off {
                    return;
                }
            }
            self.work_off();
            idle.await;
        }
    }

    /// How many entries the store never got.
    pub fn lost(&self) -> u64 {
        self.inner.lost.load(Relaxed)
    }

    /// What stands for a body: see [`Audit::mark`].
    pub fn mark(&self, class: DataClass, body: &[u8]) -> BodyMark {
        self.store().audit.mark(class, body)
    }

    pub(crate) fn store(&self) -> &Store {
        self.inner.store.get_or_init(Store::in_memory)
    }

    pub(crate) fn keep_in(&self, store: Store) -> Result<(), StoreIsSet> {
        self.inner.store.set(store).map_err(|_| StoreIsSet)?;
        if let Ok(here) = Handle::try_current() {
            let _ = self.inner.home.set(here);
        }
        Ok(())
    }

    async fn take_place(&self) {
        // The semaphore is never closed.
        if let Ok(place) = self.inner.places.acquire().await {
            place.forget();
        }
    }

    fn push(&self, entry: AuditEntry, kept: Option<oneshot::Sender<JournalResult<u64>>>) {
        {
            let mut queue = self.inner.queue.lock();
            if queue.gap > 0 {
                let gap = AuditEntry::new("audit.gap").with("lost", std::mem::take(&mut queue.gap));
                queue.waiting.push_back(Waiting {
                    entry: gap,
                    kept: None,
                    has_place: false,
                });
            }
            queue.waiting.push_back(Waiting {
                entry,
                kept,
                has_place: true,
            });
        }
        self.work_off();
    }

    fn put_back(&self, waiting: Vec<Waiting>) {
        let mut queue = self.inner.queue.lock();
        waiting
            .into_iter()
            .rev()
            .for_each(|waiting| queue.waiting.push_front(waiting));
    }

    fn lose(&self, entries: u64) {
        self.inner.lost.fetch_add(entries, Relaxed);
        let mut queue = self.inner.queue.lock();
        if queue.gap == 0 {
            log::error!(target: "callboard::audit", entries, "entries of the audit are lost to the store");
        }
        queue.gap += entries;
    }

    /// Makes somebody work the queue off, unless somebody does.
    fn work_off(&self) {
        // Where there is no runtime yet, the next entry tries again.
        let Some(runtime) = self
            .inner
            .home
            .get()
            .cloned()
            .or_else(|| Handle::try_current().ok())
        else {
            return;
        };
        {
            let mut queue = self.inner.queue.lock();
            if queue.worked_off || queue.waiting.is_empty() {
                return;
            }
            queue.worked_off = true;
        }
        // Made before the task: where its runtime has ended, the task is dropped unpolled.
        let working = Working {
            log: self.clone(),
            done: false,
        };
        runtime.spawn(async move { working.run().await });
    }
}

/// Works the queue off, until it is empty or this is dropped with its runtime.
struct Working {
    log: AuditLog,
    /// It found the queue empty, and somebody else may work it off by now.
    done: bool,
}

impl Working {
    async fn run(mut self) {
        let inner = self.log.inner.clone();
        loop {
            let batch: Vec<_> = {
                let mut queue = inner.queue.lock();
                let up_to = queue.waiting.len().min(APPENDED_MAX);
                queue.waiting.drain(..up_to).collect()
            };
            if batch.is_empty() {
                // Decided under the lock, so that no entry slips in unseen.
                let mut queue = inner.queue.lock();
                if queue.waiting.is_empty() {
                    queue.worked_off = false;
                    self.done = true;
                    return;
                }
                continue;
            }
            self.keep(batch).await;
        }
    }

    async fn keep(&self, batch: Vec<Waiting>) {
        let log = &self.log;
        // Until it is known what became of them: where the runtime ends here, they are lost.
        let mut unknown = Unknown {
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
                    waiting.kept.map(|kept| kept.send(Ok(number)));
                }
                log.inner.places.add_permits(places);
            }
            Err(error) => {
                log::error!(target: "callboard::audit", %error, entries = batch.len(), "the audit isn't kept");
                // Those who wait must not act; what nobody waits for is tried again, unless it may be there or never will.
                let again = error.may_pass() && !matches!(error, JournalError::Unknown(_));
                let (waited_for, others): (Vec<_>, Vec<_>) =
                    batch.into_iter().partition(|w| w.kept.is_some());
                log.inner.places.add_permits(waited_for.len());
                for waiting in waited_for {
                    waiting.kept.map(|kept| kept.send(Err(error.clone())));
                }
                if again {
                    log.put_back(others);
                    tokio::time::sleep(AGAIN_AFTER).await;
                } else {
                    log.inner
                        .places
                        .add_permits(others.iter().filter(|waiting| waiting.has_place).count());
                    log.lose(others.len() as u64);
                }
            }
        }
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        if !self.done {
            self.log.inner.queue.lock().worked_off = false;
        }
        self.log.inner.idle.notify_waiters();
    }
}

/// Entries of which it isn't known whether they are kept.
struct Unknown<'a> {
    log: &'a AuditLog,
    entries: u64,
}

impl Drop for Unknown<'_> {
    fn drop(&mut self) {
        if self.entries > 0 {
            self.log.lose(self.entries);
        }
    }
}

/// The line of the log.
fn tell(entry: &AuditEntry) {
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
        more = %More(&entry.more),
    );
}

/// `name="text" other=3`.
struct More<'a>(&'a BTreeMap<&'static str, AuditValue>);

impl fmt::Display for More<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, value)) in self.0.iter().enumerate() {
            let space = if at == 0 { "" } else { " " };
            write!(f, "{space}{name}={value}")?;
        }
        Ok(())
    }
}
