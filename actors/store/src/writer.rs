//! The one task that writes: what came during the last fsync is the next transaction.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use callboard_runtime::{AuditEntry, JournalError, Record};
use futures::future::BoxFuture;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::time::timeout;

use crate::append::Append;
use crate::batch::Batches;
use crate::measures::Measures;
use crate::sql::{Db, args};

/// Writes that wait, by default; further callers wait for a place.
const WRITES_QUEUED_MAX_DEFAULT: usize = 4096;
/// Bytes of writes that wait, by default.
const WRITES_QUEUED_BYTES_MAX_DEFAULT: usize = 64 * 1024 * 1024;
/// How long a caller waits for a place in the queue before it is told `Overloaded`.
pub const WRITE_WAIT_MAX: Duration = Duration::from_secs(5);
/// Most writes in one transaction.
pub const BATCH_WRITES_MAX: usize = 256;
/// Most bytes in one transaction, unless a single write has more.
pub const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Something to be written in a transaction, together with others.
///
/// It may run twice (alone, after a batch that one of its neighbours spoiled; or after a conflict): no `take()` of fields.
pub(crate) trait Write: Sized + Send + 'static {
    /// What the writer of it gets after the commit: refusals belong in here.
    type Output: Send + 'static;
    /// For measures and errors.
    const NAME: &'static str;
    /// Whether it makes room: it may use the reserve of a store that is full, and has a transaction of its own.
    const MAKES_ROOM: bool = false;
    /// Whether those who follow tasks look again after the commit.
    const CHANGES_TASKS: bool = false;
    /// Whether all of its kind in a transaction are one [`Self::run_all`], at the place of the first: a statement costs less than
    /// the way to the database's thread and back.
    const TOGETHER: bool = false;

    /// About how much it writes; by default a few names and numbers.
    fn bytes(&self) -> usize {
        256
    }

    /// Reads, decides, writes. A refusal is an `Ok` that is made before the first statement that writes; an error is the
    /// database's, and rolls back all that this transaction did.
    fn run(&mut self, tx: &mut Tx) -> impl Future<Output = Result<Self::Output, sqlx::Error>> + Send {
        async {
            let output = Self::run_all(vec![self], tx).await?.pop();
            output.ok_or_else(|| sqlx::Error::Protocol("a write without an output".to_owned()))
        }
    }

    /// The same for several, in the order in which they came: their outputs, in that order.
    fn run_all(
        all: Vec<&mut Self>,
        tx: &mut Tx,
    ) -> impl Future<Output = Result<Vec<Self::Output>, sqlx::Error>> + Send {
        async move {
            let mut outputs = Vec::with_capacity(all.len());
            for write in all {
                outputs.push(write.run(tx).await?);
            }
            Ok(outputs)
        }
    }
}

/// A transaction that is open, as a [`Write`] sees it.
pub(crate) struct Tx {
    pub(super) db: Db,
    pub(super) audit: Vec<AuditEntry>,
    /// The chain's last number before this transaction.
    pub(super) audit_head: u64,
    pub(super) audit_sign: bool,
    pub(super) now_ms: i64,
    pub(super) worker: Arc<str>,
}

impl Tx {
    pub(super) fn new(db: Db, worker: Arc<str>) -> Self {
        Self { db, audit: Vec::new(), audit_head: 0, audit_sign: false, now_ms: 0, worker }
    }

    pub(crate) fn db(&mut self) -> &mut Db {
        &mut self.db
    }

    /// The transaction's time: never before that of the one before, also when the clock was set back.
    pub(crate) fn now_ms(&self) -> i64 {
        self.now_ms
    }

    /// This process's name in leases, `NAME#EPOCH`.
    pub(crate) fn worker(&self) -> Arc<str> {
        Arc::clone(&self.worker)
    }

    /// Writes an entry into this writer's audit chain, in this transaction. Its number there.
    pub(crate) fn audit(&mut self, entry: AuditEntry) -> u64 {
        self.audit.push(entry);
        self.audit_head + self.audit.len() as u64
    }

    /// Has the chain signed at the end of this transaction.
    pub(crate) fn sign_audit(&mut self) {
        self.audit_sign = true;
    }

    /// Takes `n` numbers of a counter, from 1, without gaps, and answers the first. The counter is locked to the commit, so
    /// numbers appear in order.
    pub(crate) async fn numbers(&mut self, counter: &str, n: u64) -> Result<u64, sqlx::Error> {
        let n = i64::try_from(n).unwrap_or(i64::MAX);
        let last = self
            .db
            .number(
                "INSERT INTO stream (name, last) VALUES ($1, $2) \
                 ON CONFLICT (name) DO UPDATE SET last = stream.last + excluded.last RETURNING last",
                &args![counter, n],
            )
            .await?;
        Ok((last - n + 1).unsigned_abs())
    }
}

/// A write whose output's type is forgotten.
pub(super) trait Job: Any + Send {
    fn name(&self) -> &'static str;
    fn makes_room(&self) -> bool;
    fn changes_tasks(&self) -> bool;
    fn is_together(&self) -> bool;
    /// Runs it and, after it, those `more` of its kind.
    fn run<'a>(&'a mut self, more: Vec<&'a mut dyn Job>, tx: &'a mut Tx) -> BoxFuture<'a, Result<(), sqlx::Error>>;
    fn answer(self: Box<Self>, kept: Result<(), JournalError>);
}

struct Waiting<W: Write> {
    write: W,
    output: Option<W::Output>,
    reply: oneshot::Sender<Result<W::Output, JournalError>>,
}

impl<W: Write> Job for Waiting<W> {
    fn name(&self) -> &'static str {
        W::NAME
    }

    fn makes_room(&self) -> bool {
        W::MAKES_ROOM
    }

    fn changes_tasks(&self) -> bool {
        W::CHANGES_TASKS
    }

    fn is_together(&self) -> bool {
        W::TOGETHER
    }

    fn run<'a>(&'a mut self, more: Vec<&'a mut dyn Job>, tx: &'a mut Tx) -> BoxFuture<'a, Result<(), sqlx::Error>> {
        let more = more.into_iter().filter_map(|job| (job as &mut dyn Any).downcast_mut::<Self>());
        let all = std::iter::once(self).chain(more);
        let (writes, kept): (Vec<_>, Vec<_>) = all.map(|Self { write, output, .. }| (write, output)).unzip();
        Box::pin(async move {
            for (kept, output) in kept.into_iter().zip(W::run_all(writes, tx).await?) {
                *kept = Some(output);
            }
            Ok(())
        })
    }

    fn answer(self: Box<Self>, kept: Result<(), JournalError>) {
        let Self { output, reply, .. } = *self;
        let never_ran = || JournalError::Store(format!("{} was never run", W::NAME));
        // Whoever no longer waits doesn't want to know.
        let _ = reply.send(kept.and_then(|()| output.ok_or_else(never_ran)));
    }
}

pub(super) enum Work {
    Append(Append),
    Write(Box<dyn Job>),
    /// Everything before it is worked off, then the writer ends.
    End,
}

pub(super) struct Queued {
    pub(super) work: Work,
    pub(super) bytes: usize,
    pub(super) places: Places,
}

/// Given back when the write was answered.
#[derive(Default)]
pub(super) struct Places {
    _write: Option<OwnedSemaphorePermit>,
    _bytes: Option<OwnedSemaphorePermit>,
}

/// The way to the task that writes. Dropping the last one ends the task when the queue is worked off.
#[derive(Clone)]
pub(crate) struct Writer {
    queue: mpsc::Sender<Queued>,
    writes: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    limits: QueueLimits,
    measures: Arc<Measures>,
    tasks_changed: watch::Receiver<u64>,
}

/// How much may wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueLimits {
    pub(crate) writes_max: usize,
    pub(crate) bytes_max: usize,
}

impl Default for QueueLimits {
    fn default() -> Self {
        Self { writes_max: WRITES_QUEUED_MAX_DEFAULT, bytes_max: WRITES_QUEUED_BYTES_MAX_DEFAULT }
    }
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
            limits: QueueLimits { writes_max, bytes_max: limits.bytes_max.clamp(1, u32::MAX as usize) },
            measures: Arc::clone(&batches.measures),
            tasks_changed: batches.tasks_changed.subscribe(),
        };
        tokio::spawn(async move {
            batches.work_off(queued).await;
            let _ = ended.send(());
        });
        (writer, end)
    }

    /// Another number: something about tasks was committed by this process.
    pub(crate) fn tasks_changed(&self) -> watch::Receiver<u64> {
        self.tasks_changed.clone()
    }

    pub(crate) fn measures(&self) -> &Arc<Measures> {
        &self.measures
    }

    /// Waits for a place in the queue, then for the commit.
    ///
    /// # Errors
    /// The write was not kept, unless it is [`JournalError::Unknown`].
    pub(crate) async fn submit<W: Write>(&self, write: W) -> Result<W::Output, JournalError> {
        let (reply, answer) = oneshot::channel();
        let bytes = write.bytes();
        self.place(bytes, Work::Write(Box::new(Waiting { write, output: None, reply }))).await?;
        answer.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Records of streams: all or none, with their numbers. They are merged with those of others.
    pub(crate) async fn append(&self, records: Vec<Record>) -> Result<Vec<u64>, JournalError> {
        if records.is_empty() {
            return Ok(Vec::new());
        }
        let (reply, answer) = oneshot::channel();
        let append = Append::new(records, reply)?;
        self.place(append.bytes(), Work::Append(append)).await?;
        answer.await.unwrap_or_else(|_| Err(ended()))
    }

    async fn place(&self, bytes: usize, work: Work) -> Result<(), JournalError> {
        let closed = |_| JournalError::Unavailable("the store is closed".to_owned());
        // A write that is larger than the whole queue goes through alone.
        let wanted = u32::try_from(bytes.clamp(1, self.limits.bytes_max)).unwrap_or(u32::MAX);
        let places = async {
            let write = Arc::clone(&self.writes).acquire_owned().await.map_err(closed)?;
            let bytes = Arc::clone(&self.bytes).acquire_many_owned(wanted).await.map_err(closed)?;
            Ok(Places { _write: Some(write), _bytes: Some(bytes) })
        };
        let overloaded = JournalError::Overloaded { writes_max: self.limits.writes_max };
        let places = timeout(WRITE_WAIT_MAX, places).await.map_err(|_| overloaded)??;
        self.measures.queued();
        let queued = Queued { work, bytes, places };
        self.queue.send(queued).await.map_err(|_| JournalError::Unavailable("the store is closed".to_owned()))
    }

    /// Takes nothing more; what is queued is still written.
    pub(crate) async fn close(&self) {
        self.writes.close();
        self.bytes.close();
        // Where the task has ended already there is nobody to tell.
        let _ = self.queue.send(Queued { work: Work::End, bytes: 0, places: Places::default() }).await;
    }
}

fn ended() -> JournalError {
    JournalError::Unknown("the store's writer ended".to_owned())
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
