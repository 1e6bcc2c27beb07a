//! Writer task of a store: its queue, its transactions (writes queued during one fsync form the
//! next batch), and its metrics.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use callboard_message::log;
use callboard_runtime::{JournalError, JournalResult};
use futures::FutureExt;
use parking_lot::Mutex;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::time::timeout;

use crate::append_records::AppendRecords;
use crate::backend::{Backend, WriteRoom};
use crate::chain::AuditChain;
use crate::error::{
    DbErrorClass, StoreError, classify_error, error_message, journal_error, with_place,
};
use crate::options::{QueueLimits, StoreOptions};
use crate::sql::{DbConnection, to_unix_ms};
use crate::tx::{QueuedWrite, Tx, WriteOp};

/// Maximum wait for a slot in the write queue. After it, the write fails with `Overloaded`.
pub const WRITE_WAIT_MAX: Duration = Duration::from_secs(5);
/// Maximum writes in one transaction; further writes go into the next one.
pub const BATCH_WRITES_MAX: usize = 256;
/// Maximum bytes in one transaction; further writes go into the next one. A single larger write
/// gets a transaction of its own.
pub const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Size from which a write is large, in bytes. Fixed.
pub const LARGE_WRITE_BYTES_MIN: usize = 32 * 1024;
/// Bytes of large writes that fit into one transaction, or a sixteenth of the bytes that wait if that is
/// more. Further large writes are overtaken by smaller ones, so that those don't wait for many large
/// ones. Fixed.
pub const BATCH_LARGE_BYTES_MIN: usize = 256 * 1024;
/// Divisor of the bytes that wait, for the bytes of large writes in one transaction.
const LARGE_BYTES_DIVISOR: usize = 16;

/// Handle for submitting writes to the writer task. When the last handle is dropped, the task
/// commits the queued writes and ends.
#[derive(Clone)]
pub(crate) struct WriterHandle {
    /// Queue of writes; `None` ends the writer task after the writes before it.
    queue: mpsc::Sender<Option<QueuedWrite>>,
    writes: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    limits: QueueLimits,
    pub(crate) metrics: Arc<MetricsRecorder>,
    /// Receiver that is notified whenever this process has committed a change of tasks.
    pub(crate) tasks_changed: watch::Receiver<u64>,
}

impl WriterHandle {
    /// Spawns the writer task. The returned receiver completes when all writes are committed and
    /// the connection is closed.
    pub(crate) fn start(
        batches: BatchWriter,
        limits: QueueLimits,
    ) -> (Self, oneshot::Receiver<()>) {
        let writes_max = limits.writes_max.max(1);
        // One more place for the message that ends the task.
        let (queue, queued) = mpsc::channel(writes_max + 1);
        let (ended, end) = oneshot::channel();
        let writer = Self {
            queue,
            writes: Arc::new(Semaphore::new(writes_max)),
            bytes: Arc::new(Semaphore::new(limits.bytes_max.clamp(1, u32::MAX as usize))),
            limits: QueueLimits {
                writes_max,
                bytes_max: limits.bytes_max.clamp(1, u32::MAX as usize),
            },
            metrics: batches.metrics.clone(),
            tasks_changed: batches.tasks_changed.subscribe(),
        };
        tokio::spawn(async move {
            batches.run(queued).await;
            let _ = ended.send(());
        });
        (writer, end)
    }

    /// Waits for a slot in the queue, then for the commit. Returns the output of the write.
    ///
    /// # Errors
    /// After [`JournalError::Unknown`], the write may or may not be committed; after any other
    /// error it isn't.
    pub(crate) async fn submit<W: WriteOp>(&self, write: W) -> JournalResult<W::Output> {
        let places = self.acquire_permits(write.bytes()).await?;
        let (reply, answer) = oneshot::channel();
        let queued = QueuedWrite::new(write, reply, places);
        self.metrics.record_queued();
        self.queue
            .send(Some(queued))
            .await
            .map_err(|_| closed_error())?;
        answer
            .await
            .unwrap_or_else(|_| Err(JournalError::Unknown("the store's writer ended".to_owned())))
    }

    /// Waits for a queue slot and for `bytes` of the queue's byte limit.
    async fn acquire_permits(&self, bytes: usize) -> JournalResult<[OwnedSemaphorePermit; 2]> {
        // A write larger than the whole queue takes all of its bytes.
        let wanted = u32::try_from(bytes.clamp(1, self.limits.bytes_max)).unwrap_or(u32::MAX);
        let places = async {
            let write = self.writes.clone().acquire_owned().await?;
            Ok([write, self.bytes.clone().acquire_many_owned(wanted).await?])
        };
        let overloaded = JournalError::Overloaded {
            writes_max: self.limits.writes_max,
        };
        let places: Result<_, AcquireError> = timeout(WRITE_WAIT_MAX, places)
            .await
            .map_err(|_| overloaded)?;
        places.map_err(|_| closed_error())
    }

    /// Rejects new writes; queued ones are still committed.
    pub(crate) async fn close(&self) {
        self.writes.close();
        self.bytes.close();
        // Fails if the task has already ended.
        let _ = self.queue.send(None).await;
    }
}

fn closed_error() -> JournalError {
    JournalError::Unavailable("the store is closed".to_owned())
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;

/// Maximum attempts of a transaction that conflicts with another.
const CONFLICT_ATTEMPTS_MAX: usize = 3;

/// Margin below the size limit, in bytes: a failure within it is attributed to the limit, because
/// the rollback has made the file smaller again.
const LIMIT_MARGIN_BYTES: u64 = 64 * 1024;
/// Minimum interval between two maintenance runs, which also measure the size of the store.
const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(10);

/// Failure of a transaction, classified by the reaction that it needs.
enum BatchError {
    /// One of the writes failed, and the connection is usable.
    SingleWrite(JournalError),
    /// Every write of the batch would fail, and the connection is usable.
    EveryWrite(JournalError),
    /// Conflict with another transaction: retry.
    Conflict(JournalError),
    /// The connection must be reopened.
    ConnectionLost(JournalError),
    /// No further write is possible.
    Fatal(JournalError),
}

/// State of the writer task: its connection, audit chain and metrics.
pub(crate) struct BatchWriter {
    place: Box<dyn Backend>,
    options: StoreOptions,
    chain: Option<AuditChain>,
    tx: Option<Tx>,
    worker: Arc<str>,
    /// Time of the latest transaction, in Unix milliseconds. Transaction times never go back, even
    /// if the clock does.
    last_ms: i64,
    /// Once set, every write is rejected with this error.
    fatal_error: Option<JournalError>,
    maintained_at: Option<Instant>,
    metrics: Arc<MetricsRecorder>,
    tasks_changed: watch::Sender<u64>,
}

impl BatchWriter {
    /// Creates the state. Without a connection, one is opened for the first write.
    pub(crate) fn new(
        place: Box<dyn Backend>,
        options: &StoreOptions,
        chain: Option<AuditChain>,
        db: Option<DbConnection>,
        worker: Arc<str>,
        now_ms: i64,
    ) -> Self {
        Self {
            place,
            options: options.clone(),
            chain,
            tx: db.map(|db| Tx::new(db, worker.clone())),
            worker,
            last_ms: now_ms,
            fatal_error: None,
            maintained_at: None,
            metrics: Arc::default(),
            tasks_changed: watch::Sender::new(0),
        }
    }

    /// Commits batches until the queue is closed and empty.
    async fn run(mut self, mut queue: mpsc::Receiver<Option<QueuedWrite>>) {
        let mut came = Vec::new();
        let mut waiting = VecDeque::new();
        while queue.recv_many(&mut came, BATCH_WRITES_MAX).await > 0 {
            loop {
                // Callers that were just answered may have their next write ready.
                tokio::task::yield_now().await;
                let more = std::iter::from_fn(|| queue.try_recv().ok())
                    .take(BATCH_WRITES_MAX.saturating_sub(came.len()));
                came.extend(more);
                for queued in came.drain(..) {
                    match queued {
                        Some(queued) => waiting.push_back(queued),
                        // Writes that already have a slot are still received.
                        None => queue.close(),
                    }
                }
                if waiting.is_empty() {
                    break;
                }
                let batch = next_batch(&mut waiting);
                self.commit_batch(batch).await;
                self.maintain().await;
            }
        }
        self.close().await;
    }

    /// Updates the size metric and runs the backend's maintenance, at most once in
    /// [`MAINTENANCE_INTERVAL`].
    async fn maintain(&mut self) {
        if self
            .maintained_at
            .is_some_and(|looked| looked.elapsed() < MAINTENANCE_INTERVAL)
        {
            return;
        }
        let Some(tx) = &mut self.tx else { return };
        self.maintained_at = Some(Instant::now());
        let looked = match self.place.size_bytes(&mut tx.db).await {
            Ok(bytes) => {
                self.metrics.record_size(bytes);
                self.place.maintain(&mut tx.db).await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = looked {
            // A persistent error will fail the next write, which reports it to its caller.
            log::debug!(
                error = error_message(&error),
                "failed to measure the store's size"
            );
        }
    }

    async fn close(self) {
        if let Err(error) = self.place.close(self.tx.map(|tx| tx.db)).await {
            log::warn!(
                error = error_message(&error),
                "the store's connection didn't close cleanly; it will recover"
            );
        }
    }

    /// Commits a batch and answers its writes. If one write makes the batch fail, each is committed
    /// alone. At the size limit, writes with a right to the reserve are committed with it, and the
    /// others are rejected.
    async fn commit_batch(&mut self, mut batch: Vec<QueuedWrite>) {
        let mut tries = 1;
        let mut room = match batch.iter().any(|queued| queued.makes_room) {
            true => WriteRoom::Cleanup,
            false => WriteRoom::Limit,
        };
        let failed = loop {
            match self.try_batch(&mut batch, room).await {
                Ok(()) => return self.on_committed(batch),
                Err(BatchError::EveryWrite(error @ JournalError::SizeLimit { .. }))
                    if room == WriteRoom::Limit
                        && batch.iter().any(|queued| queued.uses_reserve) =>
                {
                    let rejected: Vec<_>;
                    (batch, rejected) = batch.into_iter().partition(|queued| queued.uses_reserve);
                    room = WriteRoom::Reserve;
                    self.metrics.record_rejected(&error);
                    self.reply_all(rejected, &Err(error));
                }
                Err(BatchError::Conflict(_)) if tries < CONFLICT_ATTEMPTS_MAX => tries += 1,
                Err(BatchError::SingleWrite(_)) if batch.len() > 1 => {
                    for one in batch {
                        Box::pin(self.commit_batch(vec![one])).await;
                    }
                    return;
                }
                Err(failed) => break failed,
            }
        };
        let error = match failed {
            BatchError::SingleWrite(error)
            | BatchError::EveryWrite(error)
            | BatchError::Conflict(error) => error,
            BatchError::ConnectionLost(error) => {
                self.tx = None;
                error
            }
            BatchError::Fatal(error) => {
                self.tx = None;
                self.fatal_error = Some(error.clone());
                error
            }
        };
        self.metrics.record_rejected(&error);
        self.reply_all(batch, &Err(error));
    }

    fn on_committed(&mut self, batch: Vec<QueuedWrite>) {
        let bytes = batch.iter().map(|queued| queued.bytes as u64).sum();
        let writes = batch.len() as u64;
        self.metrics.record_committed(writes, bytes);
        self.place.on_committed(writes, bytes);
        if batch.iter().any(|queued| queued.changes_tasks) {
            self.tasks_changed.send_modify(|changes| *changes += 1);
        }
        self.reply_all(batch, &Ok(()));
    }

    fn reply_all(&self, batch: Vec<QueuedWrite>, kept: &JournalResult<()>) {
        self.metrics.record_answered(batch.len() as u64);
        for QueuedWrite {
            job,
            permits: places,
            ..
        } in batch
        {
            // The slot is released first, so that an answered caller finds it free.
            drop(places);
            job.complete(kept.clone());
        }
    }

    /// Runs one transaction. After an error it is rolled back.
    async fn try_batch(
        &mut self,
        batch: &mut [QueuedWrite],
        room: WriteRoom,
    ) -> Result<(), BatchError> {
        if let Some(error) = &self.fatal_error {
            return Err(BatchError::Fatal(error.clone()));
        }
        let mut tx = match self.tx.take() {
            Some(tx) => tx,
            None => self.reopen().await?,
        };
        let done = self.run_transaction(&mut tx, batch, room).await;
        // Kept, unless the caller drops it because of the failure.
        self.tx = Some(tx);
        if let Some(chain) = &mut self.chain {
            match &done {
                Ok(()) => chain.on_commit().await,
                Err(_) => chain.on_rollback(),
            }
        }
        done
    }

    async fn reopen(&self) -> Result<Tx, BatchError> {
        let error = match self.place.reopen().await {
            Ok(db) => return Ok(Tx::new(db, self.worker.clone())),
            Err(StoreError::Database { source, .. }) => self.error_with_place(source),
            Err(StoreError::Journal(error)) => error,
            Err(error) => JournalError::Unavailable(error.to_string()),
        };
        match error {
            JournalError::Fenced { .. } | JournalError::Damaged(_) => Err(BatchError::Fatal(error)),
            error => Err(BatchError::ConnectionLost(error)),
        }
    }

    fn error_with_place(&self, error: sqlx::Error) -> JournalError {
        with_place(journal_error(error), &self.options.place())
    }

    fn at_size_limit(&self) -> BatchError {
        BatchError::EveryWrite(JournalError::SizeLimit {
            bytes_max: self.options.size_max,
        })
    }

    /// Returns whether a failed transaction with `bytes` of data would have exceeded the size
    /// limit. Otherwise the disk is full.
    async fn is_at_limit(&self, db: &mut DbConnection, bytes: u64) -> sqlx::Result<bool> {
        // Pages hold more than the bound values: indexes and split pages.
        let wanted = bytes.saturating_mul(3).saturating_add(LIMIT_MARGIN_BYTES);
        Ok(self.place.size_bytes(db).await?.saturating_add(wanted) >= self.options.size_max)
    }

    async fn run_transaction(
        &mut self,
        tx: &mut Tx,
        batch: &mut [QueuedWrite],
        room: WriteRoom,
    ) -> Result<(), BatchError> {
        self.last_ms = self.last_ms.max(to_unix_ms(SystemTime::now()));
        tx.now_ms = self.last_ms;
        let bytes = batch.iter().map(|queued| queued.bytes as u64).sum();
        if self.place.is_over_limit(room) {
            return Err(self.at_size_limit());
        }
        if room != WriteRoom::Limit
            && let Err(error) = self.place.open_reserve(&mut tx.db, room).await
        {
            return Err(self.roll_back(tx, error, bytes, false).await);
        }
        let done = match write_batch(tx, &*self.place, self.chain.as_mut(), batch).await {
            Ok(true) => match tx.db.run("COMMIT").await {
                Ok(()) => Ok(()),
                Err(error) => Err(self.roll_back(tx, error, bytes, true).await),
            },
            Ok(false) => Err(BatchError::Fatal(JournalError::Fenced {
                writer: self.options.writer.clone(),
            })),
            Err(error) => Err(self.roll_back(tx, error, bytes, false).await),
        };
        if room != WriteRoom::Limit
            && !matches!(
                done,
                Err(BatchError::ConnectionLost(_) | BatchError::Fatal(_))
            )
        {
            // If the limit can't be restored, the connection is dropped: reopening sets it again.
            self.place
                .close_reserve(&mut tx.db)
                .await
                .map_err(|error| BatchError::ConnectionLost(journal_error(error)))?;
        }
        done
    }

    /// Rolls back a failed transaction and classifies its error. The result of ROLLBACK is ignored,
    /// because SQLite has rolled back by itself after some errors. A lost connection needs no
    /// ROLLBACK.
    async fn roll_back(
        &self,
        tx: &mut Tx,
        error: sqlx::Error,
        bytes: u64,
        at_commit: bool,
    ) -> BatchError {
        let (trouble, said) = (classify_error(&error), error_message(&error));
        let told = || self.error_with_place(error);
        if trouble != DbErrorClass::ConnectionLost {
            let _ = tx.db.run("ROLLBACK").await;
        }
        match trouble {
            DbErrorClass::Statement => BatchError::SingleWrite(told()),
            DbErrorClass::Full => match self.is_at_limit(&mut tx.db, bytes).await {
                Ok(true) => self.at_size_limit(),
                Ok(false) => BatchError::EveryWrite(JournalError::NoSpace),
                Err(_) => BatchError::ConnectionLost(JournalError::NoSpace),
            },
            DbErrorClass::Conflict => BatchError::Conflict(told()),
            DbErrorClass::Damaged => BatchError::Fatal(told()),
            DbErrorClass::Busy | DbErrorClass::ReadOnly => BatchError::EveryWrite(told()),
            DbErrorClass::NoSpace | DbErrorClass::Io | DbErrorClass::ConnectionLost
                if at_commit =>
            {
                BatchError::ConnectionLost(JournalError::Unknown(said))
            }
            DbErrorClass::NoSpace => BatchError::ConnectionLost(JournalError::NoSpace),
            DbErrorClass::Io | DbErrorClass::ConnectionLost => {
                BatchError::ConnectionLost(JournalError::Unavailable(said))
            }
        }
    }
}

/// Runs the batch up to the commit. Returns `false` if another process has taken over this writer's
/// name.
async fn write_batch(
    tx: &mut Tx,
    place: &dyn Backend,
    mut chain: Option<&mut AuditChain>,
    batch: &mut [QueuedWrite],
) -> sqlx::Result<bool> {
    if !place.begin(&mut tx.db).await? {
        return Ok(false);
    }
    tx.audit.clear();
    tx.audit_sign = false;
    if let Some(chain) = &mut chain {
        tx.audit_head = chain.head(&mut tx.db).await?;
    }
    // Appends run first, so that two nodes lock counters in the same order and can't deadlock.
    batch.sort_by_key(|queued| queued.name != AppendRecords::NAME);
    let mut batch: VecDeque<&mut QueuedWrite> = batch.iter_mut().collect();
    while let Some(QueuedWrite {
        job,
        name,
        is_merged: is_together,
        ..
    }) = batch.pop_front()
    {
        let mut more = Vec::new();
        if *is_together {
            // Merged writes overtake others. A caller that awaits one write before its next has
            // them in different transactions.
            let others: Vec<_>;
            (more, others) = batch.into_iter().partition(|other| other.name == *name);
            batch = others.into();
        }
        let more = more.into_iter().map(|other| other.job.as_mut()).collect();
        // A write that panics fails like one that the database rejects; the store goes on.
        match AssertUnwindSafe(job.run(more, tx)).catch_unwind().await {
            Ok(ran) => ran?,
            Err(_) => return Err(sqlx::Error::Protocol(format!("{name} panicked"))),
        }
    }
    if let Some(chain) = chain {
        let entries = std::mem::take(&mut tx.audit);
        chain
            .write(&mut tx.db, entries, tx.now_ms, tx.audit_sign)
            .await?;
    }
    Ok(true)
}

/// Takes as many writes as fit into one transaction, at least one. Those that follow large ones
/// beyond [`BATCH_LARGE_BYTES_MIN`] overtake them. A write that frees space is a batch of its own, and
/// isn't overtaken.
fn next_batch(waiting: &mut VecDeque<QueuedWrite>) -> Vec<QueuedWrite> {
    let mut batch: Vec<QueuedWrite> = Vec::new();
    let mut overtaken = Vec::new();
    let waiting_bytes: usize = waiting.iter().map(|write| write.bytes).sum();
    let large_bytes_max = BATCH_LARGE_BYTES_MIN.max(waiting_bytes / LARGE_BYTES_DIVISOR);
    let (mut bytes, mut large_bytes) = (0, 0);
    while let Some(next) = waiting.front() {
        if next.bytes >= LARGE_WRITE_BYTES_MIN && next.may_be_overtaken {
            if large_bytes > 0 && large_bytes + next.bytes > large_bytes_max {
                overtaken.extend(waiting.pop_front());
                continue;
            }
            large_bytes += next.bytes;
        }
        bytes += next.bytes;
        let alone = next.makes_room;
        let is_full = batch.len() >= BATCH_WRITES_MAX || bytes > BATCH_BYTES_MAX || alone;
        if is_full && !batch.is_empty() {
            break;
        }
        batch.extend(waiting.pop_front());
        if alone {
            break;
        }
    }
    overtaken
        .into_iter()
        .rev()
        .for_each(|write| waiting.push_front(write));
    batch
}

/// Minimum interval between two log entries about rejected writes.
const ERROR_LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Counters and state of an open store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreMetrics {
    /// Number of writes in the queue, not yet committed.
    pub queued: u64,
    /// Number of committed writes since the store was opened.
    pub writes: u64,
    /// Number of committed transactions since the store was opened; each needs one fsync.
    pub batches: u64,
    /// Size of the database in bytes when it was last measured, plus the approximate bytes of the writes since;
    /// 0 before the first write.
    pub bytes: u64,
    /// Reason the latest write was rejected; `None` after a success.
    pub last_error: Option<String>,
}

#[derive(Default)]
pub(crate) struct MetricsRecorder(Mutex<MetricsState>);

#[derive(Default)]
struct MetricsState {
    now: StoreMetrics,
    error_logged_at: Option<Instant>,
}

impl MetricsRecorder {
    fn record_queued(&self) {
        self.0.lock().now.queued += 1;
    }

    fn record_answered(&self, writes: u64) {
        self.0.lock().now.queued -= writes;
    }

    /// Counts a batch. Its bytes count for the size of the store until that is measured again.
    fn record_committed(&self, writes: u64, bytes: u64) {
        let now = &mut self.0.lock().now;
        now.writes += writes;
        now.bytes += bytes;
        now.batches += 1;
        now.last_error = None;
    }

    fn record_size(&self, bytes: u64) {
        self.0.lock().now.bytes = bytes;
    }

    fn record_rejected(&self, error: &JournalError) {
        let mut counted = self.0.lock();
        counted.now.last_error = Some(error.to_string());
        let is_due = counted
            .error_logged_at
            .is_none_or(|told| told.elapsed() >= ERROR_LOG_INTERVAL);
        if is_due {
            counted.error_logged_at = Some(Instant::now());
        }
        // Logged outside the lock: a log subscriber may be slow, or read the metrics.
        drop(counted);
        if is_due {
            log::error!(%error, "the store rejects writes");
        }
    }

    /// Returns the size of the database in bytes when it was last measured, and the bytes of the
    /// writes since.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.0.lock().now.bytes
    }

    pub(crate) fn snapshot(&self) -> StoreMetrics {
        self.0.lock().now.clone()
    }
}
