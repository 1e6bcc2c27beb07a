//! Audit log of a store: its key, its signing and its queries.

mod calls;
mod follow;
mod query;

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use callboard_message::{DataClass, log};
use callboard_runtime::{AuditEntry, AuditStore, BodyDigest, JournalError, JournalResult};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use self::calls::{CallChain, chain_name};
use crate::chain::checkpoint::{Anchor, AuditFiles, AuditKey, PublicKeys};
use crate::chain::entry_line::{self, CUT_EVENT};
use crate::chain::verify::ChainCuts;
use crate::chain::{self, AuditChain};
use crate::error::StoreError;
use crate::files::read_if_exists;
use crate::options::StoreOptions;
use crate::sql::{DbConnection, args};
use crate::store_core::StoreCore;
use crate::tx::{Tx, WriteOp};

pub use calls::{CallFilter, CallLine};
pub use follow::{AuditCursor, AuditFollowError, AuditPage};
pub use query::{
    AUDIT_LINES_DEFAULT, AuditFilter, AuditLine, AuditVerifyOptions, ExportError, verify_export,
};

/// Creates the audit entry that records the removal of a chain's entries up to number `up_to`.
/// Verification accepts a removal only if such an entry is signed.
pub(crate) fn cut_entry(chain: &str, up_to: u64) -> AuditEntry {
    AuditEntry::new(CUT_EVENT)
        .with_detail("chain", chain)
        .with_detail("up_to", up_to)
}

/// Parses the texts of entries of the event [`CUT_EVENT`]. Returns the number of the last removed
/// entry of each chain.
pub(crate) fn parse_cuts(lines: Vec<&str>) -> ChainCuts {
    let said = lines
        .into_iter()
        .filter_map(|line| serde_json::from_str::<entry_line::ParsedCut<'_>>(line).ok());
    said.map(|said| (said.more.chain.into_owned(), said.more.up_to))
        .collect()
}

/// Removes the entries of a chain up to the checkpoint at the number `to`. Returns the number of removed entries.
pub(crate) async fn remove_chain_start(tx: &mut Tx, chain: &str, to: i64) -> sqlx::Result<u64> {
    let db = &mut tx.db;
    // The removed entries may be the only record of removals in other chains, so those are recorded
    // again.
    let told = db
        .rows(
            "SELECT line FROM audit WHERE chain = $1 AND number <= $2 AND event = $3 ORDER BY number",
            &args![chain, to, CUT_EVENT],
        )
        .await?;
    let mut cuts = parse_cuts(
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
        tx.audit(cut_entry(&chain, up_to));
    }
    tx.sign_audit();
    Ok(removed)
}

/// Rejects a store file of zero bytes although its audit's anchor has signed entries of this
/// writer: a new store would hide that the entries are lost. Passes if a new audit key is allowed,
/// and if the file doesn't exist: another file in the same folder begins a new store.
pub(crate) fn check_not_lost(path: &Path, options: &StoreOptions) -> Result<(), StoreError> {
    let is_empty = fs::metadata(path).is_ok_and(|found| found.len() == 0);
    let Some(files) = AuditFiles::of(options).filter(|_| is_empty && !options.audit_key_new) else {
        return Ok(());
    };
    let unreadable = |path: &Path| {
        let path = path.to_owned();
        move |source| StoreError::NotCreated { path, source }
    };
    let keys = read_if_exists(&files.public_keys).map_err(unreadable(&files.public_keys))?;
    let keys = PublicKeys::parse(&keys.unwrap_or_default());
    let anchor = Anchor::read(&files.anchor, &keys).map_err(unreadable(&files.anchor))?;
    match anchor.of(&options.writer).next() {
        None => Ok(()),
        Some(_) => Err(StoreError::Lost {
            path: path.to_owned(),
            anchor: files.anchor,
        }),
    }
}

/// State of the audit chain before the store writes to it.
pub(crate) struct AuditSetup {
    files: AuditFiles,
    key: Arc<AuditKey>,
    /// Id of the key that signed the newest checkpoint, if the current key is a different one.
    replaced: Option<String>,
    /// Number of unsigned entries left by the previous run: more than 0 after a crash or tampering.
    unsigned_entries: u64,
    has_unsigned: Arc<AtomicBool>,
    /// Whether the previous run left unsigned entries in the chain of calls.
    has_unsigned_calls: bool,
    sign_every: Option<Duration>,
}

impl AuditSetup {
    /// Reads or creates the audit key and reads the state of the chain. Changes nothing in the
    /// database.
    pub(crate) async fn read(
        options: &StoreOptions,
        db: &mut DbConnection,
    ) -> Result<Self, StoreError> {
        let files = AuditFiles::of(options).ok_or_else(|| StoreError::Key {
            path: "audit.key".into(),
            why: "set `audit_key`: a store in a database has no folder for it".to_owned(),
        })?;
        let counted = db
            .number(
                "SELECT last FROM stream WHERE name = $1",
                &args![&chain::counter_name(&options.writer)],
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
        let calls = chain_name(&options.writer);
        let unsigned_calls = db
            .number(
                "SELECT (SELECT last FROM stream WHERE name = $1) \
                 - coalesce((SELECT max(number) FROM audit_checkpoint WHERE chain = $2), 0)",
                &args![&chain::counter_name(&calls), &calls],
            )
            .await?;
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
            unsigned_entries: unsigned,
            has_unsigned: Arc::default(),
            has_unsigned_calls: unsigned_calls > 0,
            sign_every: options.sign_interval,
        })
    }

    /// Creates the audit chain of this writer. `run` is the random id of this opening of the store.
    pub(crate) fn chain(&self, options: &StoreOptions, run: &Arc<str>) -> AuditChain {
        let (key, owes) = (self.key.clone(), self.has_unsigned.clone());
        AuditChain::new(
            &options.writer,
            Arc::clone(run),
            key,
            self.files.anchor.clone(),
            owes,
        )
    }

    /// Appends an audit entry for the start of the run, with a signed checkpoint. If the store is
    /// full, the failure is only logged: the store must open so that its cleanup can free space.
    ///
    /// # Errors
    /// Errors of the store other than a full one.
    pub(crate) async fn record_start(self, core: &Arc<StoreCore>) -> Result<SqlAudit, StoreError> {
        let new_key = self.replaced.map(|replaced| {
            AuditEntry::new("audit.key")
                .with_detail("key", self.key.id())
                .with_detail("replaces", replaced)
        });
        let began = AuditEntry::new("run.started")
            .with_detail("worker", &*core.worker)
            .with_detail("unsigned", self.unsigned_entries);
        let began = began.with_detail("key", self.key.id());
        let entries: Vec<_> = new_key.into_iter().chain([began]).collect();
        match core.writer.submit(AppendSigned(entries)).await {
            Ok(_) => {}
            Err(error @ (JournalError::NoSpace | JournalError::SizeLimit { .. })) => {
                log::error!(%error, "failed to record the start of this run in the audit");
            }
            Err(error) => return Err(error.into()),
        }
        let calls = CallChain::new(
            core,
            self.key.clone(),
            self.files.anchor,
            self.has_unsigned_calls,
        );
        let signing = self
            .sign_every
            .map(|every| spawn_signing(core, self.has_unsigned, calls.clone(), every));
        Ok(SqlAudit {
            core: Arc::clone(core),
            key: self.key,
            signing,
            calls,
        })
    }
}

/// Audit log of an open store.
pub(crate) struct SqlAudit {
    core: Arc<StoreCore>,
    key: Arc<AuditKey>,
    signing: Option<AbortHandle>,
    calls: CallChain,
}

impl SqlAudit {
    /// Signs the chain of calls, and appends an audit entry for the end of the run, with a signed
    /// checkpoint. If that fails, the next start reports the number of unsigned entries.
    pub(crate) async fn record_end(&self) {
        if let Some(signing) = &self.signing {
            signing.abort();
        }
        if let Err(error) = self.calls.sign(&self.core.writer).await
            && !matches!(error, JournalError::Unavailable(_))
        {
            log::warn!(%error, "failed to sign the audit's lines about calls");
        }
        if let Err(error) = self
            .core
            .writer
            .submit(AppendSigned(vec![AuditEntry::new("run.ended")]))
            .await
            && !matches!(error, JournalError::Unavailable(_))
        {
            log::warn!(%error, "failed to record the end of this run in the audit");
        }
    }
}

#[async_trait]
impl AuditStore for SqlAudit {
    async fn append(&self, entries: Vec<AuditEntry>) -> JournalResult<u64> {
        if entries.is_empty() {
            return Err(JournalError::Invalid(
                "at least one audit entry must be appended",
            ));
        }
        self.core.writer.submit(AppendEntries(entries)).await
    }

    async fn append_calls(&self, entries: Vec<AuditEntry>) -> JournalResult<()> {
        self.calls.append(&self.core.writer, entries, false).await
    }

    fn digest(&self, class: DataClass, body: &[u8]) -> BodyDigest {
        self.key.mark(class, body)
    }
}

fn append_entries(tx: &mut Tx, entries: &[AuditEntry]) -> u64 {
    entries.iter().fold(0, |_, entry| tx.audit(entry.clone()))
}

/// Write operation that appends audit entries.
struct AppendEntries(Vec<AuditEntry>);

impl WriteOp for AppendEntries {
    type Output = u64;
    const NAME: &'static str = "audit";
    const MAY_BE_OVERTAKEN: bool = false;

    fn uses_reserve(&self) -> bool {
        true
    }

    fn bytes(&self) -> usize {
        self.0.iter().map(entry_bytes).sum()
    }

    async fn run(&mut self, tx: &mut Tx) -> sqlx::Result<u64> {
        Ok(append_entries(tx, &self.0))
    }
}

/// Returns the approximate size of an audit entry, in bytes.
fn entry_bytes(entry: &AuditEntry) -> usize {
    let texts = [&entry.agent, &entry.message, &entry.peer];
    let more = entry.details.len() * 64;
    512 + more + texts.into_iter().flatten().map(String::len).sum::<usize>()
}

/// Write operation that appends audit entries and a signed checkpoint. It may exceed the size limit
/// by the reserve, because the end of a run must be recorded also in a full store.
struct AppendSigned(Vec<AuditEntry>);

impl WriteOp for AppendSigned {
    type Output = u64;
    const NAME: &'static str = "audit.sign";
    const MAKES_ROOM: bool = true;

    fn bytes(&self) -> usize {
        self.0.iter().map(entry_bytes).sum()
    }

    async fn run(&mut self, tx: &mut Tx) -> sqlx::Result<u64> {
        tx.sign_audit();
        Ok(append_entries(tx, &self.0))
    }
}

/// Minimum interval of the task that signs audit entries.
const SIGN_INTERVAL_MIN: Duration = Duration::from_millis(1);

/// Spawns a task that signs the unsigned audit entries at the interval `every`, until the store is
/// closed.
fn spawn_signing(
    core: &Arc<StoreCore>,
    owes: Arc<AtomicBool>,
    calls: CallChain,
    every: Duration,
) -> AbortHandle {
    let core: Weak<StoreCore> = Arc::downgrade(core);
    let signing = tokio::spawn(async move {
        let every = every.max(SIGN_INTERVAL_MIN);
        // The start of the run was signed just now.
        let mut due = tokio::time::interval_at(Instant::now() + every, every);
        loop {
            due.tick().await;
            let Some(core) = core.upgrade() else { return };
            let own = match owes.load(Relaxed) {
                true => core.writer.submit(AppendSigned(Vec::new())).await.map(drop),
                false => Ok(()),
            };
            if let Err(error) = own.and(calls.sign(&core.writer).await) {
                log::warn!(%error, "failed to sign the audit; the next signing tries again");
            }
        }
    });
    signing.abort_handle()
}
