//! Reading the audit: is it whole, what does it say. Also beside a node that writes to it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use callboard_runtime::{Audit, JournalError};

use super::anchor::Anchor;
use super::chain::counter_of;
use super::checkpoint::{Checkpoint, PublicKeys};
use super::key::AuditFiles;
use super::verify::{AuditRow, ChainCheck, ChainReport, Cuts, Ends, settle};
use crate::clock::{ms, time};
use crate::error::{StoreError, journal_error};
use crate::open::{Core, SqlStore, Visitor};
use crate::readers::PAGE_MAX;
use crate::sql::{Arg, Row};

/// Entries that are shown, by default.
pub const AUDIT_SHOWN_DEFAULT: usize = 100;
/// How often a store is looked at whose chains' beginnings are removed meanwhile.
const LOOKS_MAX: usize = 3;

/// What a chain is verified with.
#[derive(Debug, Clone, Default)]
pub struct VerifyOptions {
    /// Only this chain. `None`: each.
    pub chain: Option<String>,
    /// The public keys, a line `KEY_ID BASE64` each: best a copy from elsewhere. `None`: `audit.pub` beside the store's key.
    pub public_keys: Option<PathBuf>,
    /// The anchor: best a copy from elsewhere. `None`: `audit.anchor` beside the store's key.
    pub anchor: Option<PathBuf>,
}

/// Which entries are read.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    /// Of this chain.
    pub chain: Option<String>,
    /// Of this name.
    pub event: Option<String>,
    /// About this agent.
    pub agent: Option<String>,
    /// With this principal behind them.
    pub principal: Option<String>,
    /// Of this call.
    pub call: Option<String>,
    /// Not older.
    pub since: Option<SystemTime>,
    /// The newest so many; at most [`PAGE_MAX`]. `None`: [`AUDIT_SHOWN_DEFAULT`].
    pub entries_max: Option<usize>,
}

/// An entry as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuditLine {
    /// Whose chain.
    pub chain: String,
    /// Its number there.
    pub number: u64,
    /// When it happened.
    pub at: SystemTime,
    /// The entry: JSON, members sorted.
    pub line: String,
}

impl SqlStore {
    /// Its audit.
    pub fn audit(&self) -> Arc<dyn Audit> {
        self.audit.clone()
    }

    /// Checks every entry of its chains: what was changed, removed, moved or added since it was written.
    ///
    /// # Errors
    /// The store, the keys or the anchor can't be read. What is wrong with a chain is in its report.
    pub async fn verify_audit(&self, options: &VerifyOptions) -> Result<Vec<ChainReport>, StoreError> {
        verify(&self.core, options).await
    }

    /// Entries, oldest first.
    ///
    /// # Errors
    /// The store's.
    pub async fn audit_lines(&self, filter: &AuditFilter) -> Result<Vec<AuditLine>, JournalError> {
        lines(&self.core, filter).await
    }
}

impl Visitor {
    /// As [`SqlStore::verify_audit`].
    ///
    /// # Errors
    /// As there.
    pub async fn verify_audit(&self, options: &VerifyOptions) -> Result<Vec<ChainReport>, StoreError> {
        verify(&self.core, options).await
    }

    /// As [`SqlStore::audit_lines`].
    ///
    /// # Errors
    /// As there.
    pub async fn audit_lines(&self, filter: &AuditFilter) -> Result<Vec<AuditLine>, JournalError> {
        lines(&self.core, filter).await
    }
}

impl VerifyOptions {
    /// Public keys and anchor. The anchor is read before the store is: it is never ahead of it.
    pub(super) fn read(&self, files: Option<&AuditFiles>) -> Result<(PublicKeys, Anchor), StoreError> {
        let refused = |path: &PathBuf, why: String| StoreError::Key { path: path.clone(), why };
        let public = self.public_keys.as_ref().or(files.map(|files| &files.public));
        let public = public.ok_or_else(|| refused(&"audit.pub".into(), "say where the public keys are".to_owned()))?;
        let text = std::fs::read_to_string(public)
            .map_err(|e| refused(public, format!("failed to read the public keys: {e}")))?;
        let keys = PublicKeys::parse(&text);
        let anchor = match self.anchor.as_ref().or(files.map(|files| &files.anchor)) {
            // One that was named must be there.
            Some(path) if self.anchor.is_none() || path.exists() => {
                Anchor::read(path, &keys).map_err(|e| refused(path, format!("failed to read the anchor: {e}")))?
            }
            Some(path) => return Err(refused(path, "there is no such anchor".to_owned())),
            None => Anchor::default(),
        };
        Ok((keys, anchor))
    }
}

async fn verify(core: &Core, options: &VerifyOptions) -> Result<Vec<ChainReport>, StoreError> {
    let files = AuditFiles::of(&core.options);
    let wanted = options.clone();
    let read = tokio::task::spawn_blocking(move || wanted.read(files.as_ref()));
    let (keys, anchor) = read.await.map_err(|e| JournalError::Store(e.to_string()))??;
    let mut look = 1;
    let reports = loop {
        let mut chains = chains(core).await?;
        let own = core.options.writer.as_str();
        let named = options.chain.as_deref();
        chains.extend(named.map(str::to_owned));
        if anchor.of(own).next().is_some() {
            chains.insert(own.to_owned());
        }
        let mut checked = Vec::with_capacity(chains.len());
        for chain in &chains {
            checked.push(verify_one(core, chain, &keys, &anchor).await?);
        }
        let reports = settle(checked);
        // Retention may remove entries while they are looked at, which looks like the work of somebody else.
        if look >= LOOKS_MAX || reports.iter().all(|report| report.fault.is_none()) || !is_cut(core, &reports).await? {
            break reports;
        }
        look += 1;
    };
    let is_wanted = |report: &ChainReport| options.chain.as_ref().is_none_or(|wanted| *wanted == report.chain);
    Ok(reports.into_iter().filter(is_wanted).collect())
}

/// Whether a chain begins later than it did when it was looked at.
async fn is_cut(core: &Core, reports: &[ChainReport]) -> Result<bool, JournalError> {
    for report in reports {
        if ends(core, &report.chain).await?.first != report.first {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Every chain that the store has.
pub(super) async fn chains(core: &Core) -> Result<BTreeSet<String>, JournalError> {
    let rows = core.readers.rows(
        "SELECT DISTINCT chain FROM audit UNION SELECT DISTINCT chain FROM audit_checkpoint \
         UNION SELECT substr(name, 3) FROM stream WHERE name LIKE 'a/%'",
        &[],
    );
    let name = |row: &Row| row.text(0).map(str::to_owned);
    rows.await?.iter().map(name).collect::<Result<_, _>>().map_err(|e| journal_error(&e))
}

async fn verify_one(
    core: &Core,
    chain: &str,
    keys: &PublicKeys,
    anchor: &Anchor,
) -> Result<(ChainReport, Cuts), JournalError> {
    let ends = ends(core, chain).await?;
    let last = ends.last;
    let mut check = ChainCheck::begin(chain, ends, keys, anchor);
    while check.last() < last {
        let (rows, checkpoints) = page(core, chain, check.last(), last).await?;
        if rows.is_empty() || !check.page(&rows, &checkpoints) {
            break;
        }
    }
    Ok(check.end())
}

pub(super) async fn ends(core: &Core, chain: &str) -> Result<Ends, JournalError> {
    let counter = counter_of(chain);
    let args = [Arg::from(chain), (&counter).into()];
    let rows = core.readers.rows(
        "SELECT (SELECT last FROM stream WHERE name = $2), (SELECT min(number) FROM audit WHERE chain = $1), \
         (SELECT max(number) FROM audit WHERE chain = $1), (SELECT max(number) FROM audit_checkpoint WHERE chain = $1)",
        &args,
    );
    let rows = rows.await?;
    let args = [Arg::from(chain)];
    let base = core.readers.rows(
        "SELECT number, at_ms, hash, key_id, signature FROM audit_checkpoint WHERE chain = $1 ORDER BY number LIMIT 1",
        &args,
    );
    let base = base.await?;
    let read = || {
        let Some(row) = rows.first() else { return Ok(Ends::default()) };
        let number = |column| Ok::<_, sqlx::Error>(row.int_or_null(column)?.unwrap_or_default().max(0).unsigned_abs());
        let base = base.first().map(|row| checkpoint(chain, row)).transpose()?;
        Ok(Ends { counted: number(0)?, first: number(1)?, last: number(2)?, last_checkpoint: number(3)?, base })
    };
    read().map_err(|e: sqlx::Error| journal_error(&e))
}

/// Entries after `after` and up to `last`, in order, and the checkpoints of their numbers.
pub(super) async fn page(
    core: &Core,
    chain: &str,
    after: u64,
    last: u64,
) -> Result<(Vec<AuditRow>, BTreeMap<u64, Checkpoint>), JournalError> {
    let number = |number: u64| Arg::from(i64::try_from(number).unwrap_or(i64::MAX));
    let rows_max = i64::try_from(PAGE_MAX).unwrap_or(i64::MAX);
    let args = [Arg::from(chain), number(after), number(last), rows_max.into()];
    let rows = core.readers.rows(
        "SELECT number, at_ms, event, agent, principal, call_id, class, line, hash FROM audit \
         WHERE chain = $1 AND number > $2 AND number <= $3 ORDER BY number LIMIT $4",
        &args,
    );
    let rows: Vec<_> = rows.await?.iter().map(row).collect::<Result<_, _>>().map_err(|e| journal_error(&e))?;
    let Some(to) = rows.last().map(|row| row.number) else { return Ok(Default::default()) };
    let args = [Arg::from(chain), number(after), number(to)];
    let checkpoints = core.readers.rows(
        "SELECT number, at_ms, hash, key_id, signature FROM audit_checkpoint \
         WHERE chain = $1 AND number > $2 AND number <= $3",
        &args,
    );
    let of_number = |row: &Row| checkpoint(chain, row).map(|checkpoint| (checkpoint.number, checkpoint));
    let checkpoints = checkpoints.await?.iter().map(of_number).collect::<Result<_, _>>();
    Ok((rows, checkpoints.map_err(|e| journal_error(&e))?))
}

fn row(row: &Row) -> Result<AuditRow, sqlx::Error> {
    let text = |column| Ok::<_, sqlx::Error>(row.text_or_null(column)?.map(str::to_owned));
    Ok(AuditRow {
        number: row.count(0)?,
        at_ms: row.int(1)?,
        event: row.text(2)?.to_owned(),
        agent: text(3)?,
        principal: text(4)?,
        call_id: text(5)?,
        class: row.text(6)?.to_owned(),
        line: row.text(7)?.to_owned(),
        hash: row.bytes(8)?.to_owned(),
    })
}

fn checkpoint(chain: &str, row: &Row) -> Result<Checkpoint, sqlx::Error> {
    Ok(Checkpoint {
        chain: chain.to_owned(),
        number: row.int(0)?.max(0).unsigned_abs(),
        at_ms: row.int(1)?,
        hash: row.bytes(2)?.to_owned(),
        key_id: row.text(3)?.to_owned(),
        signature: row.bytes(4)?.to_owned(),
    })
}

async fn lines(core: &Core, filter: &AuditFilter) -> Result<Vec<AuditLine>, JournalError> {
    let entries_max = filter.entries_max.unwrap_or(AUDIT_SHOWN_DEFAULT).min(PAGE_MAX);
    let args = [
        Arg::from(filter.since.map_or(0, ms)),
        filter.chain.as_deref().into(),
        filter.event.as_deref().into(),
        filter.agent.as_deref().into(),
        filter.principal.as_deref().into(),
        filter.call.as_deref().into(),
        i64::try_from(entries_max).unwrap_or(i64::MAX).into(),
    ];
    let rows = core.readers.rows(
        "SELECT chain, number, at_ms, line FROM audit WHERE at_ms >= $1 \
         AND (CAST($2 AS TEXT) IS NULL OR chain = $2) AND (CAST($3 AS TEXT) IS NULL OR event = $3) \
         AND (CAST($4 AS TEXT) IS NULL OR agent = $4) AND (CAST($5 AS TEXT) IS NULL OR principal = $5) \
         AND (CAST($6 AS TEXT) IS NULL OR call_id = $6) ORDER BY at_ms DESC, chain DESC, number DESC LIMIT $7",
        &args,
    );
    let line = |row: &Row| {
        let (chain, number) = (row.text(0)?.to_owned(), row.count(1)?);
        Ok(AuditLine { chain, number, at: time(row.int(2)?), line: row.text(3)?.to_owned() })
    };
    let rows: Result<Vec<_>, sqlx::Error> = rows.await?.iter().rev().map(line).collect();
    rows.map_err(|e| journal_error(&e))
}
