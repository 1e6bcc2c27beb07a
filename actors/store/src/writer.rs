//! The one task that writes: its queue, its transactions (what came during the last fsync is the next one), its measures.

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

use crate::append::Append;
use crate::chain::Chain;
use crate::error::{StoreError, Trouble, journal_error, located, trouble, words};
use crate::options::{QueueLimits, StoreOptions};
use crate::place::Place;
use crate::sql::{Db, ms};
use crate::tx::{Queued, Tx, Write};

/// How long a caller waits for a place in the queue before it is told `Overloaded`.
/// At the limit: `Unavailable`.
pub const WRITE_WAIT_MAX: Duration = Duration::from_secs(5);
/// Most writes in one transaction.
/// At the limit: the rest is the next one's.
pub const BATCH_WRITES_MAX: usize = 256;
/// Most bytes in one transaction, unless a single write has more.
/// At the limit: the rest is the next one's.
pub const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The way to the task that writes. Dropping the last one ends the task when the queue is worked off.
#[derive(Clone)]
pub(crate) struct Writer {
    /// `None` after the last.
    queue: mpsc::Sender<Option<Queued>>,
    writes: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    limits: QueueLimits,
    pub(crate) measures: Arc<Measures>,
    /// Another number: something about tasks was committed by this process.
    pub(crate) tasks_changed: watch::Receiver<u64>,
}

impl Writer {
    /// Starts the task on this thread's runtime. The second is the end of it: everything is written, the connection closed.
    pub(crate) fn start(batches: Batches, limits: QueueLimits) -> (Self, oneshot::Receiver<()>) {
        let writes_max = limits.writes_max.max(1);
        // One more place, for the word that ends it.
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
            measures: batches.measures.clone(),
            tasks_changed: batches.tasks_changed.subscribe(),
        };
        tokio::spawn(async move {
            batches.work_off(queued).await;
            let _ = ended.send(());
        });
        (writer, end)
    }

    /// Waits for a place in the queue, then for the commit.
    ///
    /// # Errors
    /// The write was not kept, unless it is [`JournalError::Unknown`].
    pub(crate) async fn submit<W: Write>(&self, write: W) -> JournalResult<W::Output> {
        let places = self.places_for(write.bytes()).await?;
        let (reply, answer) = oneshot::channel();
        let queued = Queued::new(write, reply, places);
        self.measures.queued();
        self.queue.send(Some(queued)).await.map_err(|_| closed())?;
        answer
            .await
            .unwrap_or_else(|_| Err(JournalError::Unknown("the store's writer ended".to_owned())))
    }

    /// Waits for a place in the queue, and for those of so many bytes.
    async fn places_for(&self, bytes: usize) -> JournalResult<[OwnedSemaphorePermit; 2]> {
        // A write that is larger than the whole queue goes through alone.
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
        places.map_err(|_| closed())
    }

    /// Takes nothing more; what is queued is still written.
    pub(crate) async fn close(&self) {
        self.writes.close();
        self.bytes.close();
        // Where the task has ended already there is nobody to tell.
        let _ = self.queue.send(None).await;
    }
}

fn closed() -> JournalError {
    JournalError::Unavailable("the store is closed".to_owned())
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;

/// How often a transaction that met another one is tried.
const CONFLICT_TRIES_MAX: usize = 3;

/// So near to the limit, it is the limit that was met: after a transaction is undone the file is smaller again.
const AROUND_LIMIT_BYTES: u64 = 64 * 1024;
/// How often the store's size is looked at, while it is written to.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Why a transaction was not committed, and what to do about it.
enum Failed {
    /// One of the writes is to blame; the connection is fine.
    Own(JournalError),
    /// It would be so for each of them; the connection is fine.
    All(JournalError),
    /// Another transaction came between: the same again.
    Again(JournalError),
    /// The connection is done with.
    Reopen(JournalError),
    /// Nothing may be written any more.
    Stop(JournalError),
}

/// The task that writes: its connection, and what it has to know between transactions.
pub(crate) struct Batches {
    place: Box<dyn Place>,
    options: StoreOptions,
    chain: Option<Chain>,
    tx: Option<Tx>,
    worker: Arc<str>,
    /// The newest time that was written: time never goes back in the store, also when the clock does.
    last_ms: i64,
    /// Once set, nothing is written any more.
    stopped: Option<JournalError>,
    looked: Option<Instant>,
    measures: Arc<Measures>,
    tasks_changed: watch::Sender<u64>,
}

impl Batches {
    /// Without a connection, one is made for the first write.
    pub(crate) fn new(
        place: Box<dyn Place>,
        options: &StoreOptions,
        chain: Option<Chain>,
        db: Option<Db>,
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
            stopped: None,
            looked: None,
            measures: Arc::default(),
            tasks_changed: watch::Sender::new(0),
        }
    }

    /// Until the queue is closed and empty.
    async fn work_off(mut self, mut queue: mpsc::Receiver<Option<Queued>>) {
        let mut came = Vec::new();
        let mut waiting = VecDeque::new();
        while queue.recv_many(&mut came, BATCH_WRITES_MAX).await > 0 {
            // Those who were just answered may have their next write ready.
            tokio::task::yield_now().await;
            let more = std::iter::from_fn(|| queue.try_recv().ok())
                .take(BATCH_WRITES_MAX.saturating_sub(came.len()));
            came.extend(more);
            for queued in came.drain(..) {
                match queued {
                    Some(queued) => waiting.push_back(queued),
                    // Those that had their place already are still taken.
                    None => queue.close(),
                }
            }
            while !waiting.is_empty() {
                let batch = next_batch(&mut waiting);
                self.keep(batch).await;
            }
            self.look_after().await;
        }
        self.close().await;
    }

    /// Between transactions, now and then: how large the store is, and whether its log has grown.
    async fn look_after(&mut self) {
        if self
            .looked
            .is_some_and(|looked| looked.elapsed() < LOOK_EVERY)
        {
            return;
        }
        let Some(tx) = &mut self.tx else { return };
        self.looked = Some(Instant::now());
        let looked = match self.place.bytes(&mut tx.db).await {
            Ok(bytes) => {
                self.measures.size(bytes);
                self.place.tidy(&mut tx.db).await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = looked {
            // The next write finds out what is wrong, and says it to somebody.
            log::debug!(error = words(&error), "the store's size is unknown");
        }
    }

    async fn close(self) {
        if let Err(error) = self.place.close(self.tx.map(|tx| tx.db)).await {
            log::warn!(
                error = words(&error),
                "the store's connection didn't close cleanly; it will recover"
            );
        }
    }

    /// Commits them together and answers; where one spoils it for the others, each alone.
    async fn keep(&mut self, mut batch: Vec<Queued>) {
        let mut tries = 1;
        let failed = loop {
            match self.attempt(&mut batch).await {
                Ok(()) => return self.kept(batch),
                Err(Failed::Again(_)) if tries < CONFLICT_TRIES_MAX => tries += 1,
                Err(Failed::Own(_)) if batch.len() > 1 => {
                    for one in batch {
                        Box::pin(self.keep(vec![one])).await;
                    }
                    return;
                }
                Err(failed) => break failed,
            }
        };
        let error = match failed {
            Failed::Own(error) | Failed::All(error) | Failed::Again(error) => error,
            Failed::Reopen(error) => {
                self.tx = None;
                error
            }
            Failed::Stop(error) => {
                self.tx = None;
                self.stopped = Some(error.clone());
                error
            }
        };
        self.measures.refused(&error);
        self.answer(batch, &Err(error));
    }

    fn kept(&mut self, batch: Vec<Queued>) {
        self.measures.kept(batch.len() as u64);
        if batch.iter().any(|queued| queued.changes_tasks) {
            self.tasks_changed.send_modify(|changes| *changes += 1);
        }
        self.answer(batch, &Ok(()));
    }

    fn answer(&self, batch: Vec<Queued>, kept: &JournalResult<()>) {
        self.measures.answered(batch.len() as u64);
        for Queued { job, places, .. } in batch {
            // First the place, so that whoever is answered finds it free.
            drop(places);
            job.answer(kept.clone());
        }
    }

    /// One transaction. After an error nothing of it is open.
    async fn attempt(&mut self, batch: &mut [Queued]) -> Result<(), Failed> {
        if let Some(error) = &self.stopped {
            return Err(Failed::Stop(error.clone()));
        }
        let mut tx = match self.tx.take() {
            Some(tx) => tx,
            None => self.reopen().await?,
        };
        let makes_room = batch.iter().any(|queued| queued.makes_room);
        let done = self.in_transaction(&mut tx, batch, makes_room).await;
        // Kept unless the failure says otherwise.
        self.tx = Some(tx);
        if let Some(chain) = &mut self.chain {
            match &done {
                Ok(()) => chain.committed().await,
                Err(_) => chain.undone(),
            }
        }
        done
    }

    async fn reopen(&self) -> Result<Tx, Failed> {
        let error = match self.place.reopen().await {
            Ok(db) => return Ok(Tx::new(db, self.worker.clone())),
            Err(StoreError::Database { source, .. }) => self.located(source),
            Err(StoreError::Journal(error)) => error,
            Err(error) => JournalError::Unavailable(error.to_string()),
        };
        match error {
            JournalError::Fenced { .. } | JournalError::Damaged(_) => Err(Failed::Stop(error)),
            error => Err(Failed::Reopen(error)),
        }
    }

    fn located(&self, error: sqlx::Error) -> JournalError {
        located(journal_error(error), &self.options.place())
    }

    fn at_size_limit(&self) -> Failed {
        Failed::All(JournalError::SizeLimit {
            bytes_max: self.options.size_max,
        })
    }

    /// Whether a transaction of `bytes` was refused by the limit, and not by a disk that is full.
    async fn is_at_limit(&self, db: &mut Db, bytes: u64) -> sqlx::Result<bool> {
        // Pages hold more than what was bound: indexes, and what is split.
        let wanted = bytes.saturating_mul(3).saturating_add(AROUND_LIMIT_BYTES);
        Ok(self.place.bytes(db).await?.saturating_add(wanted) >= self.options.size_max)
    }

    async fn in_transaction(
        &mut self,
        tx: &mut Tx,
        batch: &mut [Queued],
        makes_room: bool,
    ) -> Result<(), Failed> {
        self.last_ms = self.last_ms.max(ms(SystemTime::now()));
        tx.now_ms = self.last_ms;
        let bytes = batch.iter().map(|queued| queued.bytes as u64).sum();
        if !makes_room && self.place.is_too_large() {
            return Err(self.at_size_limit());
        }
        if makes_room && let Err(error) = self.place.open_reserve(&mut tx.db).await {
            return Err(self.failed(tx, error, bytes, false).await);
        }
        let done = match write(tx, &*self.place, self.chain.as_mut(), batch).await {
            Ok(true) => match tx.db.run("COMMIT").await {
                Ok(()) => Ok(()),
                Err(error) => Err(self.failed(tx, error, bytes, true).await),
            },
            Ok(false) => Err(Failed::Stop(JournalError::Fenced {
                writer: self.options.writer.clone(),
            })),
            Err(error) => Err(self.failed(tx, error, bytes, false).await),
        };
        if makes_room && !matches!(done, Err(Failed::Reopen(_) | Failed::Stop(_))) {
            // A limit that can't be put back is put back when the file is opened again.
            self.place
                .close_reserve(&mut tx.db)
                .await
                .map_err(|error| Failed::Reopen(journal_error(error)))?;
        }
        done
    }

    /// Ends the transaction and says what the error means. SQLite ends it by itself after some errors, so its answer to
    /// ROLLBACK says nothing; a server that is away needs none.
    async fn failed(&self, tx: &mut Tx, error: sqlx::Error, bytes: u64, at_commit: bool) -> Failed {
        let (trouble, said) = (trouble(&error), words(&error));
        let told = || self.located(error);
        if trouble != Trouble::Away {
            let _ = tx.db.run("ROLLBACK").await;
        }
        match trouble {
            Trouble::Own => Failed::Own(told()),
            Trouble::Full => match self.is_at_limit(&mut tx.db, bytes).await {
                Ok(true) => self.at_size_limit(),
                Ok(false) => Failed::All(JournalError::NoSpace),
                Err(_) => Failed::Reopen(JournalError::NoSpace),
            },
            Trouble::Again => Failed::Again(told()),
            Trouble::Damaged => Failed::Stop(told()),
            Trouble::Busy | Trouble::ReadOnly => Failed::All(told()),
            Trouble::NoSpace | Trouble::Io | Trouble::Away if at_commit => {
                Failed::Reopen(JournalError::Unknown(said))
            }
            Trouble::NoSpace => Failed::Reopen(JournalError::NoSpace),
            Trouble::Io | Trouble::Away => Failed::Reopen(JournalError::Unavailable(said)),
        }
    }
}

/// Everything up to the commit; `false` where another process goes by this writer's name.
async fn write(
    tx: &mut Tx,
    place: &dyn Place,
    mut chain: Option<&mut Chain>,
    batch: &mut [Queued],
) -> sqlx::Result<bool> {
    if !place.begin(&mut tx.db).await? {
        return Ok(false);
    }
    tx.audit.clear();
    tx.audit_sign = false;
    if let Some(chain) = &mut chain {
        tx.audit_head = chain.head(&mut tx.db).await?;
    }
    // Appends first, so that two nodes never wait for each other's counters.
    batch.sort_by_key(|queued| queued.name != Append::NAME);
    let mut batch: VecDeque<&mut Queued> = batch.iter_mut().collect();
    while let Some(Queued {
        job,
        name,
        is_together,
        ..
    }) = batch.pop_front()
    {
        let mut more = Vec::new();
        if *is_together {
            // They pass others: whoever waits for one write before its next has that in another transaction.
            let others: Vec<_>;
            (more, others) = batch.into_iter().partition(|other| other.name == *name);
            batch = others.into();
        }
        let more = more.into_iter().map(|other| other.job.as_mut()).collect();
        // A write that panics is refused like one that the database refuses: the store goes on.
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

/// As many as fit into one transaction, at least one. What makes room goes alone.
fn next_batch(waiting: &mut VecDeque<Queued>) -> Vec<Queued> {
    let mut batch: Vec<Queued> = Vec::new();
    let mut bytes = 0;
    while let Some(next) = waiting.front() {
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
    batch
}

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
    fn queued(&self) {
        self.0.lock().now.queued += 1;
    }

    fn answered(&self, writes: u64) {
        self.0.lock().now.queued -= writes;
    }

    fn kept(&self, writes: u64) {
        let now = &mut self.0.lock().now;
        now.writes += writes;
        now.batches += 1;
        now.last_error = None;
    }

    fn size(&self, bytes: u64) {
        self.0.lock().now.bytes = bytes;
    }

    fn refused(&self, error: &JournalError) {
        let mut counted = self.0.lock();
        counted.now.last_error = Some(error.to_string());
        let is_due = counted.told.is_none_or(|told| told.elapsed() >= TOLD_EVERY);
        if is_due {
            counted.told = Some(Instant::now());
        }
        // A subscriber may be slow, or read the measures.
        drop(counted);
        if is_due {
            log::error!(%error, "the store refuses writes");
        }
    }

    pub(crate) fn read(&self) -> StoreMeasures {
        self.0.lock().now.clone()
    }
}
