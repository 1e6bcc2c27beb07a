//! Writes a process's chain: each entry's hash holds those of all before it, and a signed checkpoint now and then vouches
//! for the whole.

pub(crate) mod checkpoint;
pub(crate) mod line;
pub(crate) mod verify;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use callboard_message::log;
use callboard_runtime::AuditEntry;

use crate::sql::{Db, ManyRows, args};
use crate::tx::take_numbers;
use checkpoint::{AuditKey, Checkpoint, Hash, NO_HASH, chained};
use line::{Spot, fitted, line};

/// Entries after which a checkpoint is signed.
/// At the limit: it is signed. Changed by `StoreOptions::sign_every`.
pub const CHECKPOINT_ENTRIES: u64 = 256;
/// The anchor gets a line at most so often, unless a checkpoint was asked for: it is synced apart from the store.
const ANCHOR_EVERY: Duration = Duration::from_secs(1);

static INSERT: ManyRows = ManyRows::new(
    "INSERT INTO audit (chain, number, at_ms, event, agent, principal, call_id, class, line, hash) VALUES",
    10,
    "",
);

/// The writer's chain.
pub(crate) struct Chain {
    name: String,
    /// The chain's name among the store's counters.
    counter: String,
    run: Arc<str>,
    key: Arc<AuditKey>,
    anchor: PathBuf,
    head: Option<Head>,
    /// The newest checkpoint that the anchor doesn't have.
    newest: Option<Checkpoint>,
    anchored: Option<Instant>,
    /// Somebody asked for a checkpoint in this transaction.
    asked: bool,
    /// There is something to sign or to anchor.
    owes: Arc<AtomicBool>,
}

/// Where the chain is, as of the last commit; within a transaction, as of its last entry.
struct Head {
    number: u64,
    hash: Hash,
    /// The last entry with a checkpoint.
    signed: u64,
}

impl Chain {
    pub(crate) fn new(
        name: &str,
        run: Arc<str>,
        key: Arc<AuditKey>,
        anchor: PathBuf,
        owes: Arc<AtomicBool>,
    ) -> Self {
        let (name, counter) = (name.to_owned(), counter_of(name));
        Self {
            name,
            counter,
            run,
            key,
            anchor,
            head: None,
            newest: None,
            anchored: None,
            asked: false,
            owes,
        }
    }

    /// The number of the chain's last entry, 0 where it has none. Called at the start of each transaction.
    pub(crate) async fn head(&mut self, db: &mut Db) -> sqlx::Result<u64> {
        if let Some(head) = &self.head {
            return Ok(head.number);
        }
        let head = self.read_head(db).await?;
        Ok(self.head.insert(head).number)
    }

    /// Writes all entries that a transaction collected, just before its commit; also called without any, for a checkpoint
    /// may be due. `sign`: one is wanted now, where there is something new.
    pub(crate) async fn write(
        &mut self,
        db: &mut Db,
        entries: Vec<AuditEntry>,
        now_ms: i64,
        sign: bool,
    ) -> sqlx::Result<()> {
        self.asked = sign;
        if !entries.is_empty() {
            self.insert(db, entries).await?;
        }
        let unsigned = self
            .head
            .as_ref()
            .map_or(0, |head| head.number.saturating_sub(head.signed));
        if unsigned >= CHECKPOINT_ENTRIES || (sign && unsigned > 0) {
            self.sign(db, now_ms).await?;
        }
        Ok(())
    }

    /// What the last [`Self::write`] wrote is in the store: the place for the anchor's line.
    pub(crate) async fn committed(&mut self) {
        self.tell_anchor().await;
        let unsigned = self
            .head
            .as_ref()
            .is_some_and(|head| head.number > head.signed);
        self.owes.store(unsigned || self.newest.is_some(), Relaxed);
    }

    /// It is not, or nobody knows: forget the head.
    pub(crate) fn undone(&mut self) {
        self.head = None;
        // If it was committed after all, the next checkpoint vouches for it too; if not, nobody may hear of it.
        self.newest = None;
        self.owes.store(true, Relaxed);
    }

    async fn read_head(&self, db: &mut Db) -> sqlx::Result<Head> {
        let name = args![&self.name];
        let number = db
            .number(
                "SELECT last FROM stream WHERE name = $1",
                &args![&self.counter],
            )
            .await?;
        let signed = db
            .number(
                "SELECT max(number) FROM audit_checkpoint WHERE chain = $1",
                &name,
            )
            .await?;
        let last = db
            .row(
                "SELECT number, hash FROM audit WHERE chain = $1 ORDER BY number DESC LIMIT 1",
                &name,
            )
            .await?;
        let (last, hash) = match &last {
            Some(row) => (row.get(0)?, row.get::<Vec<u8>>(1)?.try_into().ok()),
            None => (0, Some(NO_HASH)),
        };
        if last != number || hash.is_none() {
            // It goes on, so that what happens now is on record; the gap stays to be seen.
            log::error!(
                chain = self.name,
                last,
                counted = number,
                "the audit was changed: run `callboard audit verify`"
            );
        }
        Ok(Head {
            number: number.unsigned_abs(),
            hash: hash.unwrap_or(NO_HASH),
            signed: signed.unsigned_abs(),
        })
    }

    async fn insert(&mut self, db: &mut Db, entries: Vec<AuditEntry>) -> sqlx::Result<()> {
        let Some(head) = &mut self.head else {
            return Err(no_head());
        };
        let added = entries.len() as u64;
        if take_numbers(db, &self.counter, added).await? != head.number + 1 {
            return Err(sqlx::Error::Protocol(
                "another process wrote to this audit chain".to_owned(),
            ));
        }
        let mut rows = Vec::with_capacity(entries.len());
        for entry in entries {
            let entry = fitted(entry);
            let number = head.number + 1;
            let line = line(
                &entry,
                Spot {
                    chain: &self.name,
                    number,
                    run: &self.run,
                },
            );
            let line = line.map_err(|e| sqlx::Error::Encode(Box::new(e)))?;
            (head.number, head.hash) = (number, chained(&head.hash, &line));
            rows.push((entry, number, line, head.hash));
        }
        let calls: Vec<_> = rows
            .iter()
            .map(|(entry, ..)| entry.call.map(|call| call.to_string()))
            .collect();
        let mut values = Vec::with_capacity(rows.len() * 10);
        for ((entry, number, line, hash), call) in rows.iter().zip(&calls) {
            values.extend(args![
                &self.name,
                *number,
                entry.at,
                &*entry.event,
                entry.agent.as_deref(),
                entry.principal.as_ref().map(|(_, id)| id.as_str()),
                call.as_deref(),
                entry.class.as_str(),
                line,
                hash.as_slice()
            ]);
        }
        INSERT.execute(db, &values).await
    }

    async fn sign(&mut self, db: &mut Db, now_ms: i64) -> sqlx::Result<()> {
        let Some(head) = &mut self.head else {
            return Err(no_head());
        };
        let checkpoint = Checkpoint::sign(&self.name, head.number, &head.hash, now_ms, &self.key);
        db.execute(
            "INSERT INTO audit_checkpoint (chain, number, at_ms, hash, key_id, signature) VALUES ($1, $2, $3, $4, $5, $6)",
            &args![&self.name, head.number, now_ms, checkpoint.hash.as_slice(), &checkpoint.key_id, checkpoint.signature.as_slice()],
        )
        .await?;
        head.signed = head.number;
        self.newest = Some(checkpoint);
        Ok(())
    }

    /// Tells the anchor of the newest checkpoint, which is committed.
    async fn tell_anchor(&mut self) {
        let is_due = self.asked
            || self
                .anchored
                .is_none_or(|anchored| anchored.elapsed() >= ANCHOR_EVERY);
        let Some(checkpoint) = self.newest.take_if(|_| is_due) else {
            return;
        };
        let path = self.anchor.clone();
        let told = tokio::task::spawn_blocking(move || {
            checkpoint::append_to_anchor(&path, &checkpoint).map_err(|e| (e, checkpoint))
        });
        self.anchored = Some(Instant::now());
        if let Ok(Err((error, checkpoint))) = told.await {
            // A later line does as well; until then the store alone tells of it.
            log::error!(%error, path = %self.anchor.display(), "the audit's anchor can't be written");
            self.newest = Some(checkpoint);
        }
    }
}

/// The name of a chain's counter.
pub(super) fn counter_of(chain: &str) -> String {
    format!("a/{chain}")
}

fn no_head() -> sqlx::Error {
    sqlx::Error::Protocol("the audit chain's head wasn't read".to_owned())
}
