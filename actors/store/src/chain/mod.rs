//! Writer of an audit chain: each entry's hash covers all entries before it, and signed checkpoints
//! attest the chain up to their entry.

pub(crate) mod checkpoint;
pub(crate) mod entry_line;
pub(crate) mod verify;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use callboard_message::log;
use callboard_runtime::AuditEntry;

use crate::sql::{BulkStatement, DbConnection, args};
use crate::tx::take_numbers;
use checkpoint::{AuditKey, ChainHash, Checkpoint, GENESIS_HASH, chain_hash};
use entry_line::{EntryPosition, fit_entry, format_line};

/// Number of unsigned audit entries after which a checkpoint is signed. Fixed.
pub const CHECKPOINT_ENTRIES: u64 = 256;
/// Minimum interval between two lines in the anchor file, since each line costs an fsync. A
/// requested checkpoint is written at once.
const ANCHOR_INTERVAL: Duration = Duration::from_secs(1);

static INSERT: BulkStatement = BulkStatement::new(
    "INSERT INTO audit (chain, number, at_ms, event, agent, principal, call_id, class, line, hash) VALUES",
    10,
    "",
);

/// Audit chain of one writer: numbers, hashes and signs its entries.
pub(crate) struct AuditChain {
    name: String,
    /// Name of the store's counter that numbers the entries.
    counter: String,
    run: Arc<str>,
    key: Arc<AuditKey>,
    anchor: PathBuf,
    head: Option<ChainHead>,
    /// Newest checkpoint that isn't in the anchor file yet.
    unanchored: Option<Checkpoint>,
    anchored_at: Option<Instant>,
    /// Whether a checkpoint was requested in the current transaction.
    checkpoint_requested: bool,
    /// Whether there are entries without a checkpoint, or a checkpoint that isn't in the anchor
    /// file.
    has_unsigned: Arc<AtomicBool>,
}

/// End of an audit chain. Outside a transaction: after the last commit; within one: after its last
/// entry.
struct ChainHead {
    number: u64,
    hash: ChainHash,
    /// Number of the last entry with a checkpoint.
    signed: u64,
}

impl AuditChain {
    pub(crate) fn new(
        name: &str,
        run: Arc<str>,
        key: Arc<AuditKey>,
        anchor: PathBuf,
        has_unsigned: Arc<AtomicBool>,
    ) -> Self {
        let (name, counter) = (name.to_owned(), counter_name(name));
        Self {
            name,
            counter,
            run,
            key,
            anchor,
            head: None,
            unanchored: None,
            anchored_at: None,
            checkpoint_requested: false,
            has_unsigned,
        }
    }

    /// Returns the number of the last audit entry, 0 if there is none. Must be called at the start
    /// of each transaction, because [`Self::write`] needs the end of the chain. It is read from the
    /// database only after opening and after [`Self::on_rollback`].
    pub(crate) async fn head(&mut self, db: &mut DbConnection) -> sqlx::Result<u64> {
        if let Some(head) = &self.head {
            return Ok(head.number);
        }
        let head = self.read_head(db).await?;
        Ok(self.head.insert(head).number)
    }

    /// Writes the audit entries of a transaction, just before its commit. Also called without
    /// entries, because a checkpoint may be due. `sign` requests a checkpoint in this transaction
    /// if there are unsigned entries.
    pub(crate) async fn write(
        &mut self,
        db: &mut DbConnection,
        entries: Vec<AuditEntry>,
        now_ms: i64,
        sign: bool,
    ) -> sqlx::Result<()> {
        self.checkpoint_requested = sign;
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

    /// Appends the newest checkpoint to the anchor file if one is due. Called after each commit.
    pub(crate) async fn on_commit(&mut self) {
        self.write_anchor().await;
        let unsigned = self
            .head
            .as_ref()
            .is_some_and(|head| head.number > head.signed);
        self.has_unsigned
            .store(unsigned || self.unanchored.is_some(), Relaxed);
    }

    /// Discards the cached end of the chain. Called after a transaction that was rolled back or
    /// whose outcome is unknown.
    pub(crate) fn on_rollback(&mut self) {
        self.head = None;
        // If the transaction was committed after all, the next checkpoint covers it too; if not,
        // its checkpoint must not be anchored.
        self.unanchored = None;
        self.has_unsigned.store(true, Relaxed);
    }

    async fn read_head(&self, db: &mut DbConnection) -> sqlx::Result<ChainHead> {
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
            None => (0, Some(GENESIS_HASH)),
        };
        if last != number || hash.is_none() {
            // The chain is continued, so that current events are recorded; the gap stays visible to
            // verification.
            log::error!(
                chain = self.name,
                last,
                counted = number,
                "the audit log was changed outside of this program: run `callboard audit verify`"
            );
        }
        Ok(ChainHead {
            number: number.unsigned_abs(),
            hash: hash.unwrap_or(GENESIS_HASH),
            signed: signed.unsigned_abs(),
        })
    }

    async fn insert(
        &mut self,
        db: &mut DbConnection,
        entries: Vec<AuditEntry>,
    ) -> sqlx::Result<()> {
        let Some(head) = &mut self.head else {
            return Err(missing_head_error());
        };
        let added = entries.len() as u64;
        if take_numbers(db, &self.counter, added).await? != head.number + 1 {
            return Err(sqlx::Error::Protocol(
                "another process wrote to this audit chain".to_owned(),
            ));
        }
        let mut rows = Vec::with_capacity(entries.len());
        for entry in entries {
            let entry = fit_entry(entry);
            let number = head.number + 1;
            let line = format_line(
                &entry,
                EntryPosition {
                    chain: &self.name,
                    number,
                    run: &self.run,
                },
            );
            let line = line.map_err(|e| sqlx::Error::Encode(Box::new(e)))?;
            (head.number, head.hash) = (number, chain_hash(&head.hash, &line));
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

    async fn sign(&mut self, db: &mut DbConnection, now_ms: i64) -> sqlx::Result<()> {
        let Some(head) = &mut self.head else {
            return Err(missing_head_error());
        };
        let checkpoint = Checkpoint::sign(&self.name, head.number, &head.hash, now_ms, &self.key);
        db.execute(
            "INSERT INTO audit_checkpoint (chain, number, at_ms, hash, key_id, signature) VALUES ($1, $2, $3, $4, $5, $6)",
            &args![&self.name, head.number, now_ms, checkpoint.hash.as_slice(), &checkpoint.key_id, checkpoint.signature.as_slice()],
        )
        .await?;
        head.signed = head.number;
        self.unanchored = Some(checkpoint);
        Ok(())
    }

    /// Appends the newest committed checkpoint to the anchor file, if one is due.
    async fn write_anchor(&mut self) {
        let is_due = self.checkpoint_requested
            || self
                .anchored_at
                .is_none_or(|anchored| anchored.elapsed() >= ANCHOR_INTERVAL);
        let Some(checkpoint) = self.unanchored.take_if(|_| is_due) else {
            return;
        };
        let path = self.anchor.clone();
        let told = tokio::task::spawn_blocking(move || {
            checkpoint::append_to_anchor(&path, &checkpoint).map_err(|e| (e, checkpoint))
        });
        self.anchored_at = Some(Instant::now());
        if let Ok(Err((error, checkpoint))) = told.await {
            // A later line does as well; until then only the store holds the checkpoint.
            log::error!(%error, path = %self.anchor.display(), "failed to write the audit anchor; the next checkpoint tries again");
            self.unanchored = Some(checkpoint);
        }
    }
}

/// Returns the name of the counter that numbers the entries of a chain.
pub(super) fn counter_name(chain: &str) -> String {
    format!("a/{chain}")
}

fn missing_head_error() -> sqlx::Error {
    sqlx::Error::Protocol("the audit chain's head wasn't read".to_owned())
}
