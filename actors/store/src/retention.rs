//! Cleanup of data past its retention, in small transactions so that other writes run in between.

use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use callboard_message::log;
use callboard_runtime::{AuditEntry, JournalResult};
use tokio::task::AbortHandle;

use crate::audit;
use crate::mail::clean;
use crate::retention_clock::SaveTrustedTime;
use crate::sql::{DbConnection, args, duration_ms, to_unix_ms};
use crate::store_core::StoreCore;
use crate::tasks::of_ids;
use crate::tx::{CLEANUP_ROWS_MAX, Tx, WriteOp};

/// Maximum free pages that one cleanup of a SQLite store returns to the file system.
const VACUUM_PAGES: u32 = 1024;

/// Number of items that a cleanup removed, by kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CleanupReport {
    /// Number of terminal tasks removed, with their events.
    pub tasks: u64,
    /// Number of mail message bodies removed. The messages' rows stay.
    pub message_bodies: u64,
    /// Number of rows removed of mail messages without a body, and of their copies for recipients.
    pub messages: u64,
    /// Number of audit entries removed.
    pub audit: u64,
    /// Number of journal records removed. The key of a removed record can be used again.
    pub records: u64,
}

impl CleanupReport {
    /// Returns whether the cleanup removed nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Runs one cleanup: removes all data past its retention and records the counts in the audit.
pub(crate) async fn clean(core: &StoreCore) -> JournalResult<CleanupReport> {
    let keep = core.options.retention;
    let now = trusted_now(core).await?;
    // The time is fixed at the start: each removal of audit entries is itself recorded, so a moving
    // one would never be done.
    let remove = async |kind, keep| {
        let before = cutoff_ms(now, keep);
        remove_all(core, CleanupStep { kind, before, now }).await
    };
    let cleaned = CleanupReport {
        tasks: remove(ExpiredKind::Tasks, keep.tasks).await?,
        message_bodies: remove(ExpiredKind::MessageBodies, keep.mail_bodies).await?,
        messages: remove(ExpiredKind::Messages, keep.audit).await?,
        audit: remove(ExpiredKind::Audit, keep.audit).await?,
        records: remove(ExpiredKind::Records, keep.streams).await?,
    };
    if !cleaned.is_empty() {
        core.writer.submit(RecordCleanup(cleaned.clone())).await?;
    }
    Ok(cleaned)
}

/// Returns the time from which retention is counted, in Unix milliseconds. A jump of the system
/// clock is logged and recorded in the audit once; a trusted time is stored.
async fn trusted_now(core: &StoreCore) -> JournalResult<i64> {
    let clock_ms = to_unix_ms(SystemTime::now());
    let Some(clock) = &core.retention_clock else {
        return Ok(clock_ms);
    };
    let time = clock.now(clock_ms);
    if let Some(jump) = time.new_jump {
        let days = jump.as_secs() / (24 * 60 * 60);
        log::error!(
            days,
            "the system clock is too far ahead of the last trusted time: the cleanup doesn't use it; \
             correct the clock, or raise `clock_jump_max_days` for one start"
        );
        core.writer.submit(RecordClockJump { days }).await?;
    }
    if !time.is_suspended {
        core.writer.submit(SaveTrustedTime(time.trusted_ms)).await?;
    }
    Ok(time.ms)
}

/// Write operation that records a jump of the system clock in the audit.
struct RecordClockJump {
    days: u64,
}

impl WriteOp for RecordClockJump {
    type Output = ();
    const NAME: &'static str = "clock.jump";
    // Part of the cleanup, which must run in a full store.
    const MAKES_ROOM: bool = true;

    async fn run(&mut self, tx: &mut Tx) -> sqlx::Result<()> {
        tx.audit(AuditEntry::new("store.clock_jump").with_detail("days", self.days));
        Ok(())
    }
}

/// Repeats one cleanup step until it removes nothing. Returns the total number of removed items.
async fn remove_all(core: &StoreCore, what: CleanupStep) -> JournalResult<u64> {
    let mut removed = 0;
    loop {
        match core.writer.submit(what).await? {
            0 => return Ok(removed),
            n => removed += n,
        }
    }
}

/// Spawns a task that runs a cleanup at the interval `every`, at least 1 s, until the store is
/// closed.
pub(crate) fn spawn_cleanup(core: &Arc<StoreCore>, every: Duration) -> AbortHandle {
    let core: Weak<StoreCore> = Arc::downgrade(core);
    let cleaning = tokio::spawn(async move {
        let mut due = tokio::time::interval(every.max(Duration::from_secs(1)));
        loop {
            due.tick().await;
            let Some(core) = core.upgrade() else { return };
            match clean(&core).await {
                Ok(cleaned) if cleaned.is_empty() => {}
                Ok(cleaned) => log::info!(?cleaned, "removed data past its retention"),
                Err(error) => {
                    log::warn!(%error, "failed to remove data past its retention; the next cleanup tries again")
                }
            }
        }
    });
    cleaning.abort_handle()
}

/// Returns the time before which data is removed, in Unix milliseconds. Without a retention it is
/// `i64::MIN`, so nothing is removed.
fn cutoff_ms(now_ms: i64, keep: Option<Duration>) -> i64 {
    keep.map_or(i64::MIN, |keep| now_ms.saturating_sub(duration_ms(keep)))
}

/// Kind of data that one cleanup transaction removes.
#[derive(Clone, Copy)]
enum ExpiredKind {
    Tasks,
    MessageBodies,
    Messages,
    Audit,
    Records,
}

/// Cleanup step: one transaction that removes data of a kind.
#[derive(Clone, Copy)]
struct CleanupStep {
    kind: ExpiredKind,
    /// End of the retention, in Unix milliseconds: older data is removed.
    before: i64,
    /// Time of the cleanup, in Unix milliseconds. Data with an earlier expiry of its own is
    /// removed.
    now: i64,
}

impl WriteOp for CleanupStep {
    type Output = u64;
    const NAME: &'static str = "clean";
    const MAKES_ROOM: bool = true;

    async fn run(&mut self, tx: &mut Tx) -> sqlx::Result<u64> {
        let Self { kind, before, now } = *self;
        match kind {
            ExpiredKind::Tasks => remove_tasks(&mut tx.db, before, now).await,
            ExpiredKind::MessageBodies => clean::remove_bodies(&mut tx.db, before, now).await,
            ExpiredKind::Messages => clean::remove_messages(&mut tx.db, before).await,
            ExpiredKind::Audit => remove_audit(tx, before).await,
            ExpiredKind::Records => remove_records(&mut tx.db, before).await,
        }
    }
}

/// Removes terminal tasks that were last updated before `before` or expired before `now`, in Unix
/// milliseconds. Tasks that a running parent or a waiting dependent may still read are kept.
/// Returns the number of removed tasks.
async fn remove_tasks(db: &mut DbConnection, before: i64, now: i64) -> sqlx::Result<u64> {
    let ids = db
        .rows(
            "SELECT id FROM task WHERE state IN ('completed', 'failed', 'canceled', 'rejected') \
             AND (updated_ms < $1 OR expires_ms < $2) \
             AND NOT EXISTS (SELECT 1 FROM task AS p WHERE p.id = task.parent \
                 AND p.state NOT IN ('completed', 'failed', 'canceled', 'rejected')) \
             AND NOT EXISTS (SELECT 1 FROM task_need JOIN task AS d ON d.id = task_need.task \
                 WHERE task_need.needs = task.id AND d.state NOT IN ('completed', 'failed', 'canceled', 'rejected')) \
             LIMIT 500",
            &args![before, now],
        )
        .await?;
    let ids = ids
        .iter()
        .map(|row| row.get(0))
        .collect::<Result<Vec<&str>, _>>()?;
    if ids.is_empty() {
        return Ok(0);
    }
    let ids = serde_json::Value::from(ids).to_string();
    let mut removed = 0;
    for sql in [
        of_ids!(
            "DELETE FROM task_request WHERE number IN (SELECT number FROM task WHERE id",
            ")",
            ")"
        ),
        of_ids!("DELETE FROM task_event WHERE task"),
        of_ids!("DELETE FROM task_need WHERE task"),
        of_ids!("DELETE FROM task WHERE id"),
    ] {
        removed = db.execute(sql, &args![ids.as_str()]).await?;
    }
    Ok(removed)
}

async fn remove_records(db: &mut DbConnection, before: i64) -> sqlx::Result<u64> {
    db.execute(
        "DELETE FROM record WHERE (stream, number) IN (SELECT stream, number FROM record WHERE at_ms < $1 LIMIT 500)",
        &args![before],
    )
    .await
}

/// Removes audit entries of one chain up to a checkpoint from before `before`, in Unix
/// milliseconds. The last entry is never removed. The checkpoint is kept, because the remaining
/// chain is verified from it. The removal is recorded in a signed audit entry; verification reports
/// a removal without one as tampering. Returns the number of removed entries.
async fn remove_audit(tx: &mut Tx, before: i64) -> sqlx::Result<u64> {
    let db = &mut tx.db;
    let row = db
        .row(
            "SELECT c.chain, min(c.number), (SELECT min(number) FROM audit WHERE chain = c.chain) FROM audit_checkpoint AS c \
             WHERE c.at_ms < $1 AND c.number >= (SELECT min(number) FROM audit WHERE chain = c.chain) \
             AND c.number < (SELECT max(number) FROM audit WHERE chain = c.chain) GROUP BY c.chain LIMIT 1",
            &args![before],
        )
        .await?;
    let Some(row) = row else { return Ok(0) };
    let (chain, next, first): (&str, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
    // Up to the limit of one transaction, or to the next checkpoint if that is farther.
    let far = db
        .number(
            "SELECT max(number) FROM audit_checkpoint WHERE chain = $1 AND at_ms < $2 AND number < $3 \
             AND number < (SELECT max(number) FROM audit WHERE chain = $1)",
            &args![chain, before, first + CLEANUP_ROWS_MAX as i64],
        )
        .await?;
    let to = far.max(next);
    let chain = chain.to_owned();
    audit::remove_chain_start(tx, &chain, to).await
}

/// Write operation that ends a cleanup: records its counts in the audit and returns free pages to
/// the file system.
struct RecordCleanup(CleanupReport);

impl WriteOp for RecordCleanup {
    type Output = ();
    const NAME: &'static str = "cleaned";
    const MAKES_ROOM: bool = true;

    async fn run(&mut self, tx: &mut Tx) -> sqlx::Result<()> {
        let CleanupReport {
            tasks,
            message_bodies: letter_bodies,
            messages: letters,
            audit,
            records,
        } = self.0;
        let counts = [
            ("tasks", tasks),
            ("letter_bodies", letter_bodies),
            ("letters", letters),
            ("audit", audit),
            ("records", records),
        ];
        let entry = AuditEntry::new("store.cleaned");
        let entry = counts
            .into_iter()
            .fold(entry, |entry, (name, n)| entry.with_detail(name, n));
        tx.audit(entry);
        if tx.db.is_sqlite() {
            tx.db
                .run_text(format!("PRAGMA incremental_vacuum({VACUUM_PAGES})"))
                .await?;
        }
        Ok(())
    }
}
