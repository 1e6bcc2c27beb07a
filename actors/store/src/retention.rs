//! Removing what has ended and is old enough, a little at a time, so that others' writes get between.

use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use callboard_message::log;
use callboard_runtime::{AuditEntry, JournalResult};
use tokio::task::AbortHandle;

use crate::audit;
use crate::chain::line::CUT;
use crate::mail::clean;
use crate::parts::Core;
use crate::sql::{Db, args, duration_ms, ms};
use crate::tasks::of_ids;
use crate::tx::{CLEAN_ROWS_MAX, Tx, Write};

/// Free pages that one cleaning gives back to the disk at most.
const VACUUM_PAGES: u32 = 1024;

/// What a cleaning removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cleaned {
    /// Ended tasks, with their events.
    pub tasks: u64,
    /// Bodies of letters; their rows stay.
    pub letter_bodies: u64,
    /// Letters whose body had gone before, and their copies: rows.
    pub letters: u64,
    /// Audit entries before a checkpoint.
    pub audit: u64,
    /// Records of streams. A key that is gone is new again.
    pub records: u64,
}

impl Cleaned {
    /// Nothing was old enough.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// Removes all that is past its retention.
pub(crate) async fn clean(core: &Core) -> JournalResult<Cleaned> {
    let keep = core.options.retention;
    // A cut is on record itself: a time that went on would find something to cut for ever.
    let cut_before = before(ms(SystemTime::now()), keep.audit);
    let cleaned = Cleaned {
        tasks: all(core, What::Tasks(keep.tasks)).await?,
        letter_bodies: all(core, What::LetterBodies(keep.inbox)).await?,
        letters: all(core, What::Letters(keep.audit)).await?,
        audit: all(core, What::Audit { before: cut_before }).await?,
        records: all(core, What::Records(keep.streams)).await?,
    };
    if !cleaned.is_nothing() {
        core.writer.submit(Told(cleaned.clone())).await?;
    }
    Ok(cleaned)
}

/// Until nothing is left.
async fn all(core: &Core, what: What) -> JournalResult<u64> {
    let mut removed = 0;
    loop {
        match core.writer.submit(what).await? {
            0 => return Ok(removed),
            n => removed += n,
        }
    }
}

/// Cleans now and then, for as long as the store is open.
pub(crate) fn keep_cleaning(core: &Arc<Core>, every: Duration) -> AbortHandle {
    let core: Weak<Core> = Arc::downgrade(core);
    let cleaning = tokio::spawn(async move {
        let mut due = tokio::time::interval(every.max(Duration::from_secs(1)));
        loop {
            due.tick().await;
            let Some(core) = core.upgrade() else { return };
            match clean(&core).await {
                Ok(cleaned) if cleaned.is_nothing() => {}
                Ok(cleaned) => log::info!(?cleaned, "removed what is past its retention"),
                Err(error) => log::warn!(%error, "what is past its retention stays for now"),
            }
        }
    });
    cleaning.abort_handle()
}

/// Until when something must have been that is removed now; nothing was that early where all is kept.
fn before(now_ms: i64, keep: Option<Duration>) -> i64 {
    keep.map_or(i64::MIN, |keep| now_ms.saturating_sub(duration_ms(keep)))
}

/// What one transaction removes a part of, and for how long it stays; `None`: until it expires by itself.
#[derive(Clone, Copy)]
enum What {
    Tasks(Option<Duration>),
    LetterBodies(Option<Duration>),
    Letters(Option<Duration>),
    Audit { before: i64 },
    Records(Option<Duration>),
}

impl Write for What {
    type Output = u64;
    const NAME: &'static str = "clean";
    const MAKES_ROOM: bool = true;

    async fn run(&mut self, tx: &mut Tx) -> sqlx::Result<u64> {
        let now = tx.now_ms;
        match *self {
            Self::Tasks(keep) => remove_tasks(&mut tx.db, before(now, keep), now).await,
            Self::LetterBodies(keep) => clean::bodies(&mut tx.db, before(now, keep), now).await,
            Self::Letters(keep) => clean::letters(&mut tx.db, before(now, keep)).await,
            Self::Audit { before } => remove_audit(tx, before).await,
            Self::Records(keep) => remove_records(&mut tx.db, before(now, keep)).await,
        }
    }
}

/// Ended tasks, but none that a running parent or a waiting dependent may still look at.
async fn remove_tasks(db: &mut Db, before: i64, now: i64) -> sqlx::Result<u64> {
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
        of_ids!("DELETE FROM task_event WHERE task"),
        of_ids!("DELETE FROM task_need WHERE task"),
        of_ids!("DELETE FROM task WHERE id"),
    ] {
        removed = db.execute(sql, &args![ids.as_str()]).await?;
    }
    Ok(removed)
}

async fn remove_records(db: &mut Db, before: i64) -> sqlx::Result<u64> {
    db.execute(
        "DELETE FROM record WHERE (stream, number) IN (SELECT stream, number FROM record WHERE at_ms < $1 LIMIT 500)",
        &args![before],
    )
    .await
}

/// A chain begins at its first entry or after a checkpoint: it is cut at a checkpoint that is old enough, which stays, and
/// never at the last entry. The cut is signed with it: a removal that isn't is somebody else's.
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
    // As far as one transaction should go, or to the next checkpoint where that is farther.
    let far = db
        .number(
            "SELECT max(number) FROM audit_checkpoint WHERE chain = $1 AND at_ms < $2 AND number < $3 \
             AND number < (SELECT max(number) FROM audit WHERE chain = $1)",
            &args![chain, before, first + CLEAN_ROWS_MAX as i64],
        )
        .await?;
    let to = far.max(next);
    // What goes may tell of other chains' cuts, and nothing else does.
    let told = db
        .rows(
            "SELECT line FROM audit WHERE chain = $1 AND number <= $2 AND event = $3 ORDER BY number",
            &args![chain, to, CUT],
        )
        .await?;
    let mut cuts = audit::cuts_in(
        told.iter()
            .map(|row| row.get(0))
            .collect::<Result<Vec<&str>, _>>()?,
    );
    cuts.insert(chain.to_owned(), to.unsigned_abs());
    let removed = db
        .execute(
            "DELETE FROM audit WHERE chain = $1 AND number <= $2",
            &args![chain, to],
        )
        .await?;
    db.execute(
        "DELETE FROM audit_checkpoint WHERE chain = $1 AND number < $2",
        &args![chain, to],
    )
    .await?;
    for (chain, up_to) in cuts {
        tx.audit(audit::cut(&chain, up_to));
    }
    tx.sign_audit();
    Ok(removed)
}

/// Puts on record what was removed, and gives room back to the disk.
struct Told(Cleaned);

impl Write for Told {
    type Output = ();
    const NAME: &'static str = "cleaned";
    const MAKES_ROOM: bool = true;

    async fn run(&mut self, tx: &mut Tx) -> sqlx::Result<()> {
        let Cleaned {
            tasks,
            letter_bodies,
            letters,
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
            .fold(entry, |entry, (name, n)| entry.with(name, n));
        tx.audit(entry);
        if tx.db.is_sqlite() {
            tx.db
                .run_text(format!("PRAGMA incremental_vacuum({VACUUM_PAGES})"))
                .await?;
        }
        Ok(())
    }
}
