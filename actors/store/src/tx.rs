//! Writes and their transactions.

use std::any::Any;
use std::sync::Arc;

use callboard_runtime::{AuditEntry, JournalError, JournalResult};
use futures::future::BoxFuture;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::sql::{Db, args};

/// Most rows that one transaction removes.
/// At the limit: the rest is the next one's.
pub const CLEAN_ROWS_MAX: usize = 500;

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
    fn run(&mut self, tx: &mut Tx) -> impl Future<Output = sqlx::Result<Self::Output>> + Send {
        async {
            let output = Self::run_all(vec![self], tx).await?.pop();
            output.ok_or_else(|| sqlx::Error::Protocol("a write without an output".to_owned()))
        }
    }

    /// The same for several, in the order in which they came: their outputs, in that order.
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

/// A transaction that is open, as a [`Write`] sees it.
pub(crate) struct Tx {
    pub(crate) db: Db,
    pub(super) audit: Vec<AuditEntry>,
    /// The chain's last number before this transaction.
    pub(super) audit_head: u64,
    pub(super) audit_sign: bool,
    /// The transaction's time: never before that of the one before, also when the clock was set back.
    pub(crate) now_ms: i64,
    /// This process's name in leases, `NAME#EPOCH`.
    pub(crate) worker: Arc<str>,
}

impl Tx {
    pub(super) fn new(db: Db, worker: Arc<str>) -> Self {
        Self {
            db,
            audit: Vec::new(),
            audit_head: 0,
            audit_sign: false,
            now_ms: 0,
            worker,
        }
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

    /// As [`take_numbers`].
    pub(crate) async fn numbers(&mut self, counter: &str, n: u64) -> sqlx::Result<u64> {
        take_numbers(&mut self.db, counter, n).await
    }
}

/// Takes `n` numbers of a counter, from 1, without gaps, and answers the first. The counter is locked to the commit, so
/// numbers appear in order.
pub(crate) async fn take_numbers(db: &mut Db, counter: &str, n: u64) -> sqlx::Result<u64> {
    let n = i64::try_from(n).unwrap_or(i64::MAX);
    let sql = "INSERT INTO stream (name, last) VALUES ($1, $2) \
               ON CONFLICT (name) DO UPDATE SET last = stream.last + excluded.last RETURNING last";
    Ok((db.number(sql, &args![counter, n]).await? - n + 1).unsigned_abs())
}

/// A write whose output's type is forgotten.
pub(super) trait Job: Any + Send {
    /// Runs it and, after it, those `more` of its kind.
    fn run<'a>(
        &'a mut self,
        more: Vec<&'a mut dyn Job>,
        tx: &'a mut Tx,
    ) -> BoxFuture<'a, sqlx::Result<()>>;
    fn answer(self: Box<Self>, kept: JournalResult<()>);
}

struct Waiting<W: Write> {
    write: W,
    output: Option<W::Output>,
    reply: oneshot::Sender<JournalResult<W::Output>>,
}

impl<W: Write> Job for Waiting<W> {
    fn run<'a>(
        &'a mut self,
        more: Vec<&'a mut dyn Job>,
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

    fn answer(self: Box<Self>, kept: JournalResult<()>) {
        let Self { output, reply, .. } = *self;
        let never_ran = || JournalError::Store(format!("{} was never run", W::NAME));
        // Whoever no longer waits doesn't want to know.
        let _ = reply.send(kept.and_then(|()| output.ok_or_else(never_ran)));
    }
}

/// A write in the queue, with what its type says of it.
pub(super) struct Queued {
    pub(super) job: Box<dyn Job>,
    pub(super) bytes: usize,
    pub(super) name: &'static str,
    pub(super) makes_room: bool,
    pub(super) changes_tasks: bool,
    pub(super) is_together: bool,
    /// Its place and those of its bytes, given back when the write was answered.
    pub(super) places: [OwnedSemaphorePermit; 2],
}

impl Queued {
    pub(super) fn new<W: Write>(
        write: W,
        reply: oneshot::Sender<JournalResult<W::Output>>,
        places: [OwnedSemaphorePermit; 2],
    ) -> Self {
        Self {
            bytes: write.bytes(),
            job: Box::new(Waiting {
                write,
                output: None,
                reply,
            }),
            name: W::NAME,
            makes_room: W::MAKES_ROOM,
            changes_tasks: W::CHANGES_TASKS,
            is_together: W::TOGETHER,
            places,
        }
    }
}
