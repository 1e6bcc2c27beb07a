//! The audit of a store: its key, its cleaning, its queries.

mod query;

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use callboard_message::{DataClass, log};
use callboard_runtime::{Audit, AuditEntry, BodyMark, JournalError, JournalResult};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::chain::checkpoint::{AuditFiles, AuditKey};
use crate::chain::line::{self, CUT};
use crate::chain::verify::Cuts;
use crate::chain::{self, Chain};
use crate::error::StoreError;
use crate::options::StoreOptions;
use crate::parts::Core;
use crate::sql::{Db, args};
use crate::tx::{Tx, Write};

pub use query::{
    AUDIT_SHOWN_DEFAULT, AuditFilter, AuditLine, ExportError, VerifyOptions, verify_export,
};

/// What is on record of a chain whose entries up to `up_to` are removed: with it and signed, it is no gap.
pub(crate) fn cut(chain: &str, up_to: u64) -> AuditEntry {
    AuditEntry::new(CUT)
        .with("chain", chain)
        .with("up_to", up_to)
}

/// The last of each chain that these lines tell of.
pub(crate) fn cuts_in(lines: Vec<&str>) -> Cuts {
    let said = lines
        .into_iter()
        .filter_map(|line| serde_json::from_str::<line::SaidCut<'_>>(line).ok());
    said.map(|said| (said.more.chain.into_owned(), said.more.up_to))
        .collect()
}

/// What a store knows of its own chain before it writes to it.
pub(crate) struct Prepared {
    files: AuditFiles,
    key: Arc<AuditKey>,
    /// Who signed the chain last, where that was another key.
    replaced: Option<String>,
    /// Entries that nobody signed before the last end: a crash, or somebody's.
    unsigned: u64,
    owes: Arc<AtomicBool>,
    sign_every: Option<Duration>,
}

impl Prepared {
    /// Reads or makes the key. Nothing in the store is changed.
    pub(crate) async fn read(options: &StoreOptions, db: &mut Db) -> Result<Self, StoreError> {
        let files = AuditFiles::of(options).ok_or_else(|| StoreError::Key {
            path: "audit.key".into(),
            why: "say where it is: a store in a database has no folder".to_owned(),
        })?;
        let counted = db
            .number(
                "SELECT last FROM stream WHERE name = $1",
                &args![&chain::counter_of(&options.writer)],
            )
            .await?;
        let newest = db
            .row(
                "SELECT number, key_id FROM audit_checkpoint WHERE chain = $1 ORDER BY number DESC LIMIT 1",
                &args![&options.writer],
            )
            .await?;
        let (signed, signed_by) = match newest {
            Some(row) => (row.get(0)?, Some(row.get::<String>(1)?)),
            None => (0, None),
        };
        let may_be_new = options.audit_key_new;
        let opened = {
            let (files, signed_by) = (files.clone(), signed_by.clone());
            tokio::task::spawn_blocking(move || {
                AuditKey::open(&files, signed_by.as_deref(), may_be_new)
            })
            .await
        };
        let key = opened.map_err(|e| StoreError::Journal(JournalError::Store(e.to_string())))??;
        let replaced = signed_by.filter(|id| id != key.id());
        let unsigned = counted.saturating_sub(signed).max(0).unsigned_abs();
        Ok(Self {
            files,
            key: Arc::new(key),
            replaced,
            unsigned,
            owes: Arc::default(),
            sign_every: options.sign_every,
        })
    }

    /// The chain, for the writer.
    pub(crate) fn chain(&self, options: &StoreOptions, run: &Arc<str>) -> Chain {
        let (key, owes) = (self.key.clone(), self.owes.clone());
        Chain::new(
            &options.writer,
            Arc::clone(run),
            key,
            self.files.anchor.clone(),
            owes,
        )
    }

    /// Puts the start of a run on record, signed.
    ///
    /// # Errors
    /// The store's, but for one that is full: it is open, and its retention makes room.
    pub(crate) async fn begin(self, core: &Arc<Core>) -> Result<SqlAudit, StoreError> {
        let new_key = self.replaced.map(|replaced| {
            AuditEntry::new("audit.key")
                .with("key", self.key.id())
                .with("replaces", replaced)
        });
        let began = AuditEntry::new("run.started")
            .with("worker", &*core.worker)
            .with("unsigned", self.unsigned);
        let began = began.with("key", self.key.id());
        let entries: Vec<_> = new_key.into_iter().chain([began]).collect();
        match core.writer.submit(Signed(entries)).await {
            Ok(_) => {}
            Err(error @ (JournalError::NoSpace | JournalError::SizeLimit { .. })) => {
                log::error!(%error, "the start of this run isn't on record");
            }
            Err(error) => return Err(error.into()),
        }
        let signing = self
            .sign_every
            .map(|every| keep_signing(core, self.owes, every));
        Ok(SqlAudit {
            core: Arc::clone(core),
            key: self.key,
            signing,
        })
    }
}

/// The audit of an open store.
pub(crate) struct SqlAudit {
    core: Arc<Core>,
    key: Arc<AuditKey>,
    signing: Option<AbortHandle>,
}

impl SqlAudit {
    /// Puts the end of the run on record, signed. Where it can't be, the next start tells how much was not.
    pub(crate) async fn end(&self) {
        if let Some(signing) = &self.signing {
            signing.abort();
        }
        if let Err(error) = self
            .core
            .writer
            .submit(Signed(vec![AuditEntry::new("run.ended")]))
            .await
            && !matches!(error, JournalError::Unavailable(_))
        {
            log::warn!(%error, "the end of this run isn't on record");
        }
    }
}

#[async_trait]
impl Audit for SqlAudit {
    async fn append(&self, entries: Vec<AuditEntry>) -> JournalResult<u64> {
        if entries.is_empty() {
            return Err(JournalError::Invalid("an audit without entries"));
        }
        self.core.writer.submit(Append(entries)).await
    }

    fn mark(&self, class: DataClass, body: &[u8]) -> BodyMark {
        self.key.mark(class, body)
    }
}

fn note(tx: &mut Tx, entries: &[AuditEntry]) -> u64 {
    entries.iter().fold(0, |_, entry| tx.audit(entry.clone()))
}

/// Entries, one after the other.
struct Append(Vec<AuditEntry>);

impl Write for Append {
    type Output = u64;
    const NAME: &'static str = "audit";

    fn bytes(&self) -> usize {
        self.0.iter().map(bytes).sum()
    }

    async fn run(&mut self, tx: &mut Tx) -> sqlx::Result<u64> {
        Ok(note(tx, &self.0))
    }
}

/// About how much an entry takes: its texts, and what stands around them.
fn bytes(entry: &AuditEntry) -> usize {
    let texts = [&entry.agent, &entry.message, &entry.peer];
    let more = entry.more.len() * 64;
    512 + more + texts.into_iter().flatten().map(String::len).sum::<usize>()
}

/// Entries, and a checkpoint after them. It may use the reserve of a full store: what ends there must be on record too.
struct Signed(Vec<AuditEntry>);

impl Write for Signed {
    type Output = u64;
    const NAME: &'static str = "audit.sign";
    const MAKES_ROOM: bool = true;

    fn bytes(&self) -> usize {
        self.0.iter().map(bytes).sum()
    }

    async fn run(&mut self, tx: &mut Tx) -> sqlx::Result<u64> {
        tx.sign_audit();
        Ok(note(tx, &self.0))
    }
}

/// Shortest time between two looks for entries to sign.
const SIGN_EVERY_MIN: Duration = Duration::from_millis(1);

/// Has the chain signed at the latest `every` after an entry, for as long as the store is open.
fn keep_signing(core: &Arc<Core>, owes: Arc<AtomicBool>, every: Duration) -> AbortHandle {
    let core: Weak<Core> = Arc::downgrade(core);
    let signing = tokio::spawn(async move {
        let every = every.max(SIGN_EVERY_MIN);
        // The start of the run was signed just now.
        let mut due = tokio::time::interval_at(Instant::now() + every, every);
        loop {
            due.tick().await;
            let Some(core) = core.upgrade() else { return };
            if owes.load(Relaxed)
                && let Err(error) = core.writer.submit(Signed(Vec::new())).await
            {
                log::warn!(%error, "the audit can't be signed now");
            }
        }
    });
    signing.abort_handle()
}
