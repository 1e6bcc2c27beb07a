//! Write operations and the transaction they run in.

use std::any::Any;
use std::sync::Arc;

use callboard_runtime::{AuditEntry, JournalError, JournalResult};
use futures::future::BoxFuture;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::sql::{DbConnection, args};

/// Maximum rows that one cleanup transaction removes. The next transaction removes further rows.
pub const CLEANUP_ROWS_MAX: usize = 500;

/// Write operation that shares its transaction with others.
///
/// It may run a second time: alone, after another write made the shared transaction fail, or after
/// a conflict with another transaction. Therefore it must not `take()` its fields.
pub(crate) trait WriteOp: Sized + Send + 'static {
    /// Result sent to the caller after the commit. A refusal for a reason other than the database
    /// is part of it.
    type Output: Send + 'static;
    /// Name of the operation in metrics and error messages.
    const NAME: &'static str;
    /// Whether the write frees space. Such a write may exceed the size limit of a full store by a
    /// reserve, and gets a transaction of its own.
    const MAKES_ROOM: bool = false;
    /// Whether this write may use the reserve beyond the size limit of a full store, with others in
    /// one transaction. For small writes by which running work ends and is recorded.
    fn uses_reserve(&self) -> bool {
        Self::MAKES_ROOM
    }
    /// Whether smaller writes may overtake it if it is large. Not if everybody waits for it, or for the
    /// room that it makes.
    const MAY_BE_OVERTAKEN: bool = !Self::MAKES_ROOM;
    /// Whether watchers of tasks are notified after the commit.
    const CHANGES_TASKS: bool = false;
    /// Whether all writes of this type in a transaction run together by one [`Self::run_all`], at
    /// the position of the first. Merged statements save round trips to the database's thread.
    const IS_MERGED: bool = false;

    /// Approximate size of the write, in bytes; 256 by default.
    fn bytes(&self) -> usize {
        256
    }

    /// Runs the write in an open transaction. A refusal is returned as `Ok`, before the first
    /// statement that writes. An `Err` is a database error and rolls back the whole transaction.
    fn run(&mut self, tx: &mut Tx) -> impl Future<Output = sqlx::Result<Self::Output>> + Send {
        async {
            let output = Self::run_all(vec![self], tx).await?.pop();
            output.ok_or_else(|| sqlx::Error::Protocol("a write without an output".to_owned()))
        }
    }

    /// Runs several writes in order and returns their outputs in the same order.
    fn run_all(
        all: Vec<&mut Self>,
        tx: &mut Tx,
    ) -> impl Future<Output = sqlx::Result<Vec<Self::Output>>> + Send {
        async move {
            let mut outputs = Vec::with_capacity(all.len());
            for write in all {
                outputs.push(write.run(tx).await?);
            }
            Ok(outputs)
        }
    }
}

/// Open transaction, as seen by a [`WriteOp`].
pub(crate) struct Tx {
    pub(crate) db: DbConnection,
    pub(super) audit: Vec<AuditEntry>,
    /// Number of the last audit entry before this transaction.
    pub(super) audit_head: u64,
    pub(super) audit_sign: bool,
    /// Time of the transaction in Unix milliseconds. It never goes back, even if the clock does.
    pub(crate) now_ms: i64,
    /// Name of this process in task leases: `NAME#EPOCH`.
    pub(crate) worker: Arc<str>,
}

impl Tx {
    pub(super) fn new(db: DbConnection, worker: Arc<str>) -> Self {
        Self {
            db,
            audit: Vec::new(),
            audit_head: 0,
            audit_sign: false,
            now_ms: 0,
            worker,
        }
    }

    /// Adds an entry to this writer's audit chain, in this transaction. Returns its number in the
    /// chain.
    pub(crate) fn audit(&mut self, entry: AuditEntry) -> u64 {
        self.audit.push(entry);
        self.audit_head + self.audit.len() as u64
    }

    /// Requests that this transaction ends with a signed checkpoint of the audit chain.
    pub(crate) fn sign_audit(&mut self) {
        self.audit_sign = true;
    }

    /// Reserves `n` numbers of a counter and returns the first, as the function [`take_numbers`].
    pub(crate) async fn take_numbers(&mut self, counter: &str, n: u64) -> sqlx::Result<u64> {
        take_numbers(&mut self.db, counter, n).await
    }
}

/// Reserves `n` numbers of a counter and returns the first. Numbers start at 1 and have no gaps.
/// The counter is locked until the commit, so that numbers become visible in order.
pub(crate) async fn take_numbers(
    db: &mut DbConnection,
    counter: &str,
    n: u64,
) -> sqlx::Result<u64> {
    let n = i64::try_from(n).unwrap_or(i64::MAX);
    let sql = "INSERT INTO stream (name, last) VALUES ($1, $2) \
               ON CONFLICT (name) DO UPDATE SET last = stream.last + excluded.last RETURNING last";
    Ok((db.number(sql, &args![counter, n]).await? - n + 1).unsigned_abs())
}

/// Write operation with its type erased.
pub(super) trait ErasedWrite: Any + Send {
    /// Runs this write and, after it, those in `more`, which have the same type.
    fn run<'a>(
        &'a mut self,
        more: Vec<&'a mut dyn ErasedWrite>,
        tx: &'a mut Tx,
    ) -> BoxFuture<'a, sqlx::Result<()>>;
    fn complete(self: Box<Self>, kept: JournalResult<()>);
}

struct PendingWrite<W: WriteOp> {
    write: W,
    output: Option<W::Output>,
    reply: oneshot::Sender<JournalResult<W::Output>>,
}

impl<W: WriteOp> ErasedWrite for PendingWrite<W> {
    fn run<'a>(
        &'a mut self,
        more: Vec<&'a mut dyn ErasedWrite>,
        tx: &'a mut Tx,
    ) -> BoxFuture<'a, sqlx::Result<()>> {
        let more = more
            .into_iter()
            .filter_map(|job| (job as &mut dyn Any).downcast_mut::<Self>());
        let all = std::iter::once(self).chain(more);
        let (writes, kept): (Vec<_>, Vec<_>) = all
            .map(|Self { write, output, .. }| (write, output))
            .unzip();
        Box::pin(async move {
            for (kept, output) in kept.into_iter().zip(W::run_all(writes, tx).await?) {
                *kept = Some(output);
            }
            Ok(())
        })
    }

    fn complete(self: Box<Self>, kept: JournalResult<()>) {
        let Self { output, reply, .. } = *self;
        let never_ran = || JournalError::Store(format!("{} was never run", W::NAME));
        // The caller may have stopped waiting.
        let _ = reply.send(kept.and_then(|()| output.ok_or_else(never_ran)));
    }
}

/// Write operation in the queue, with the constants of its type.
pub(super) struct QueuedWrite {
    pub(super) job: Box<dyn ErasedWrite>,
    pub(super) bytes: usize,
    pub(super) name: &'static str,
    pub(super) makes_room: bool,
    pub(super) may_be_overtaken: bool,
    pub(super) uses_reserve: bool,
    pub(super) changes_tasks: bool,
    pub(super) is_merged: bool,
    /// Semaphore permits for one slot and for the write's bytes in the queue, released when the
    /// write is answered.
    pub(super) permits: [OwnedSemaphorePermit; 2],
}

impl QueuedWrite {
    pub(super) fn new<W: WriteOp>(
        write: W,
        reply: oneshot::Sender<JournalResult<W::Output>>,
        permits: [OwnedSemaphorePermit; 2],
    ) -> Self {
        Self {
            bytes: write.bytes(),
            uses_reserve: write.uses_reserve(),
            job: Box::new(PendingWrite {
                write,
                output: None,
                reply,
            }),
            name: W::NAME,
            makes_room: W::MAKES_ROOM,
            may_be_overtaken: W::MAY_BE_OVERTAKEN,
            changes_tasks: W::CHANGES_TASKS,
            is_merged: W::IS_MERGED,
            permits,
        }
    }
}
