//! Reading, verifying and exporting the audit log, also beside the node that writes to it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead};
use std::path::PathBuf;
use std::time::SystemTime;

use callboard_message::encode_hex;
use callboard_runtime::{CALLS_EVENT, JournalError, JournalResult};
use serde::{Deserialize, Serialize};

use super::calls::{CallFilter, CallLine, chain_name, is_call_chain, parse_calls, read_calls};
use crate::backend::PAGE_ROWS_MAX;
use crate::chain::checkpoint::{Anchor, AuditFiles, Checkpoint, PublicKeys, from_hex};
use crate::chain::counter_name;
use crate::chain::entry_line::ParsedLine;
use crate::chain::verify::{
    AuditRow, ChainBounds, ChainCuts, ChainReport, ChainVerifier, verify_cuts,
};
use crate::error::StoreError;
use crate::read_only_store::ReadOnlyStore;
use crate::sql::{Row, args, to_unix_ms};
use crate::store_core::StoreCore;

/// Default number of entries that [`ReadOnlyStore::audit_lines`] returns.
pub const AUDIT_LINES_DEFAULT: usize = 100;
/// Maximum attempts of a verification. It is repeated if a cleanup removes entries of a chain
/// meanwhile.
const READ_ATTEMPTS_MAX: usize = 3;

/// Options for verifying audit chains: the chain, the public keys and the anchor file.
#[derive(Debug, Clone, Default)]
pub struct AuditVerifyOptions {
    /// Name of the only chain to verify; `None` for all chains.
    pub chain: Option<String>,
    /// Path of the public key file, with a line `KEY_ID BASE64` for each key. Name a copy kept
    /// apart from the store, if there is one. `None`: `audit.pub` beside the store's key.
    pub public_keys: Option<PathBuf>,
    /// Path of the anchor file. Name a copy kept apart from the store, if there is one. `None`:
    /// `audit.anchor` beside the store's key.
    pub anchor: Option<PathBuf>,
}

/// Filter for audit entries. An entry must match every field that is set.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    /// Name of the audit chain.
    pub chain: Option<String>,
    /// Name of the event.
    pub event: Option<String>,
    /// Id of the agent that the entry concerns.
    pub agent: Option<String>,
    /// Id of the principal on whose behalf the event happened.
    pub principal: Option<String>,
    /// Id of the call in which the event happened.
    pub call: Option<String>,
    /// Earliest time of the event, inclusive.
    pub since: Option<SystemTime>,
    /// Maximum number of entries; the newest are returned. By default [`AUDIT_LINES_DEFAULT`]. A
    /// number above [`PAGE_ROWS_MAX`] is lowered to it.
    pub entries_max: Option<usize>,
}

/// Audit entry as stored in its chain.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuditLine {
    /// Name of the entry's chain.
    pub chain: String,
    /// Number of the entry in its chain, from 1.
    pub number: u64,
    /// Time of the event.
    pub at: SystemTime,
    /// Text of the entry: JSON with sorted members.
    pub line: String,
}

impl AuditLine {
    /// Returns the calls of an entry with lines about calls, and the number of calls that have no
    /// readable line; `None` for another entry, and for one that is damaged or was cut.
    pub fn calls(&self) -> Option<(Vec<CallLine>, u64)> {
        let parsed: ParsedLine<'_> = serde_json::from_str(&self.line).ok()?;
        match parsed.event == CALLS_EVENT {
            true => parse_calls(&self.line),
            false => None,
        }
    }
}

/// Reads a row of the columns chain, number, at_ms and line.
pub(super) fn audit_line(row: &Row) -> sqlx::Result<AuditLine> {
    Ok(AuditLine {
        chain: row.get(0)?,
        number: row.get(1)?,
        at: row.get(2)?,
        line: row.get(3)?,
    })
}

impl ReadOnlyStore {
    /// Verifies every entry of the audit chains. Detects entries that were changed, removed, moved
    /// or added. Defects are part of the reports, not errors.
    ///
    /// # Errors
    /// [`StoreError`], if the store, the public keys or the anchor can't be read.
    pub async fn verify_audit(
        &self,
        options: &AuditVerifyOptions,
    ) -> Result<Vec<ChainReport>, StoreError> {
        let core = &*self.core;
        let files = AuditFiles::of(&core.options);
        let wanted = options.clone();
        let read = tokio::task::spawn_blocking(move || wanted.read(files.as_ref()));
        let (keys, anchor) = read
            .await
            .map_err(|e| JournalError::Store(e.to_string()))??;
        let mut look = 1;
        let reports = loop {
            let mut chains = list_chains(core).await?;
            let own = core.options.writer.as_str();
            let named = options.chain.as_deref();
            chains.extend(named.map(str::to_owned));
            let own = [own.to_owned(), chain_name(own)];
            let is_anchored = |chain: &String| anchor.of(chain).next().is_some();
            chains.extend(own.into_iter().filter(is_anchored));
            let mut checked = Vec::with_capacity(chains.len());
            for chain in &in_reading_order(chains) {
                checked.push(verify_chain(core, chain, &keys, &anchor).await?);
            }
            let reports = sorted_reports(verify_cuts(checked, named));
            // Retention may remove entries during the verification, which looks like tampering.
            if look >= READ_ATTEMPTS_MAX
                || reports.iter().all(|report| report.fault.is_none())
                || !is_cut(core, &reports).await?
            {
                break reports;
            }
            look += 1;
        };
        Ok(reports)
    }

    /// Returns the newest entries that match a filter, oldest first. Those with lines about calls need their event
    /// as the filter; see [`Self::audit_calls`].
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn audit_lines(&self, filter: &AuditFilter) -> JournalResult<Vec<AuditLine>> {
        let entries_max = filter
            .entries_max
            .unwrap_or(AUDIT_LINES_DEFAULT)
            .min(PAGE_ROWS_MAX);
        let args = args![
            filter.since.map_or(0, to_unix_ms),
            filter.chain.as_deref(),
            filter.event.as_deref(),
            filter.agent.as_deref(),
            filter.principal.as_deref(),
            filter.call.as_deref(),
            entries_max
        ];
        let sql = "SELECT chain, number, at_ms, line FROM audit WHERE at_ms >= $1 \
             AND (CAST($2 AS TEXT) IS NULL OR chain = $2) AND (event = $3 OR CAST($3 AS TEXT) IS NULL AND event <> 'calls') \
             AND (CAST($4 AS TEXT) IS NULL OR agent = $4) AND (CAST($5 AS TEXT) IS NULL OR principal = $5) \
             AND (CAST($6 AS TEXT) IS NULL OR call_id = $6) ORDER BY at_ms DESC, chain DESC, number DESC LIMIT $7";
        let mut lines = self.core.readers.read(sql, &args, audit_line).await?;
        lines.reverse();
        Ok(lines)
    }

    /// Returns the newest lines about calls that match a filter, oldest first, and how many lines were lost in the
    /// time of the entries that were read for it, whether they match or not.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn audit_calls(&self, filter: &CallFilter) -> JournalResult<(Vec<CallLine>, u64)> {
        read_calls(&self.core, filter).await
    }
}

impl AuditVerifyOptions {
    /// Reads the public keys and the anchor file. The anchor is read before the store: checkpoints
    /// that are added meanwhile then can't look like missing entries.
    fn read(&self, files: Option<&AuditFiles>) -> Result<(PublicKeys, Anchor), StoreError> {
        let refused = |path: &PathBuf, why: String| StoreError::Key {
            path: path.clone(),
            why,
        };
        let public = self
            .public_keys
            .as_ref()
            .or(files.map(|files| &files.public_keys));
        let public = public.ok_or_else(|| {
            refused(
                &"audit.pub".into(),
                "the store is in a database and has no folder: name the file of public keys"
                    .to_owned(),
            )
        })?;
        let text = std::fs::read_to_string(public)
            .map_err(|e| refused(public, format!("failed to read the public keys: {e}")))?;
        let keys = PublicKeys::parse(&text);
        let anchor = match self.anchor.as_ref().or(files.map(|files| &files.anchor)) {
            // An anchor that was named explicitly must exist.
            Some(path) if self.anchor.is_none() || path.exists() => Anchor::read(path, &keys)
                .map_err(|e| refused(path, format!("failed to read the anchor: {e}")))?,
            Some(path) => {
                return Err(refused(
                    path,
                    "the anchor file doesn't exist: correct its path".to_owned(),
                ));
            }
            None => Anchor::default(),
        };
        Ok((keys, anchor))
    }
}

/// Returns whether cleanup has removed entries of a reported chain since it was verified: its first
/// entry now has another number.
async fn is_cut(core: &StoreCore, reports: &[ChainReport]) -> JournalResult<bool> {
    for report in reports {
        if read_chain_bounds(core, &report.chain).await?.first != report.first {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the names of all chains in the store.
async fn list_chains(core: &StoreCore) -> JournalResult<BTreeSet<String>> {
    let sql = "SELECT DISTINCT chain FROM audit UNION SELECT DISTINCT chain FROM audit_checkpoint \
               UNION SELECT substr(name, 3) FROM stream WHERE name LIKE 'a/%'";
    Ok(core
        .readers
        .read(sql, &[], |row| row.get(0))
        .await?
        .into_iter()
        .collect())
}

/// Returns chains in the order in which they are to be read: first those of calls. The others have the entries
/// about removals from them, which may be newer than the entries that were read before.
fn in_reading_order(chains: BTreeSet<String>) -> Vec<String> {
    let (mut first, others): (Vec<_>, Vec<_>) =
        chains.into_iter().partition(|chain| is_call_chain(chain));
    first.extend(others);
    first
}

fn sorted_reports(mut reports: Vec<ChainReport>) -> Vec<ChainReport> {
    reports.sort_by(|a, b| a.chain.cmp(&b.chain));
    reports
}

async fn verify_chain(
    core: &StoreCore,
    chain: &str,
    keys: &PublicKeys,
    anchor: &Anchor,
) -> JournalResult<(ChainReport, ChainCuts)> {
    let ends = read_chain_bounds(core, chain).await?;
    let last = ends.last;
    let mut check = ChainVerifier::begin(chain, ends, keys, anchor);
    while check.last() < last {
        let (rows, checkpoints) = read_page(core, chain, check.last(), last).await?;
        if rows.is_empty() || !check.check_page(&rows, &checkpoints) {
            break;
        }
    }
    Ok(check.finish())
}

async fn read_chain_bounds(core: &StoreCore, chain: &str) -> JournalResult<ChainBounds> {
    const ENDS: &str = "SELECT (SELECT last FROM stream WHERE name = $2), \
        (SELECT min(number) FROM audit WHERE chain = $1), (SELECT max(number) FROM audit WHERE chain = $1), \
        (SELECT max(number) FROM audit_checkpoint WHERE chain = $1)";
    const BASE: &str = "SELECT number, at_ms, hash, key_id, signature FROM audit_checkpoint WHERE chain = $1 \
        ORDER BY number LIMIT 1";
    let read = |row: &Row| {
        let number = |column| {
            Ok::<_, sqlx::Error>(
                row.get::<Option<i64>>(column)?
                    .unwrap_or_default()
                    .max(0)
                    .unsigned_abs(),
            )
        };
        let (counted, first, last) = (number(0)?, number(1)?, number(2)?);
        Ok(ChainBounds {
            counted,
            first,
            last,
            last_checkpoint: number(3)?,
            base: None,
        })
    };
    let ends = core
        .readers
        .read(ENDS, &args![chain, &counter_name(chain)], read)
        .await?;
    let base = core
        .readers
        .read(BASE, &args![chain], |row| read_checkpoint(chain, row))
        .await?;
    Ok(ChainBounds {
        base: base.into_iter().next(),
        ..ends.into_iter().next().unwrap_or_default()
    })
}

/// Reads a page of audit entries with numbers above `after` up to `last`, in order, and the
/// checkpoints of these entries by number.
async fn read_page(
    core: &StoreCore,
    chain: &str,
    after: u64,
    last: u64,
) -> JournalResult<(Vec<AuditRow>, BTreeMap<u64, Checkpoint>)> {
    const ROWS: &str = "SELECT number, at_ms, event, agent, principal, call_id, class, line, hash FROM audit \
        WHERE chain = $1 AND number > $2 AND number <= $3 ORDER BY number LIMIT $4";
    const CHECKPOINTS: &str = "SELECT number, at_ms, hash, key_id, signature FROM audit_checkpoint \
        WHERE chain = $1 AND number > $2 AND number <= $3";
    let rows = core
        .readers
        .read(ROWS, &args![chain, after, last, PAGE_ROWS_MAX], audit_row)
        .await?;
    let Some(to) = rows.last().map(|row| row.number) else {
        return Ok(Default::default());
    };
    let of_number =
        |row: &Row| read_checkpoint(chain, row).map(|checkpoint| (checkpoint.number, checkpoint));
    let checkpoints = core
        .readers
        .read(CHECKPOINTS, &args![chain, after, to], of_number)
        .await?;
    Ok((rows, checkpoints.into_iter().collect()))
}

fn audit_row(row: &Row) -> sqlx::Result<AuditRow> {
    Ok(AuditRow {
        number: row.get(0)?,
        at_ms: row.get(1)?,
        event: row.get(2)?,
        agent: row.get(3)?,
        principal: row.get(4)?,
        call_id: row.get(5)?,
        class: row.get(6)?,
        line: row.get(7)?,
        hash: row.get(8)?,
    })
}

fn read_checkpoint(chain: &str, row: &Row) -> sqlx::Result<Checkpoint> {
    Ok(Checkpoint {
        chain: chain.to_owned(),
        number: row.get::<i64>(0)?.max(0).unsigned_abs(),
        at_ms: row.get(1)?,
        hash: row.get(2)?,
        key_id: row.get(3)?,
        signature: row.get(4)?,
    })
}

/// Line of an audit export, as JSON.
#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum ExportLine {
    /// Begin of a chain. The lines up to the next `Chain` belong to it.
    Chain {
        chain: String,
        counted: u64,
        first: u64,
        last: u64,
        last_checkpoint: u64,
    },
    /// Checkpoint, written before the entry that it covers last. If old entries were removed, the
    /// checkpoint of the last removed entry comes before all entries.
    Checkpoint {
        number: u64,
        at_ms: i64,
        hash: String,
        key_id: String,
        signature: String,
    },
    /// Audit entry. The other columns of its row are rebuilt from its text.
    Entry {
        number: u64,
        line: String,
        hash: String,
    },
}

impl ExportLine {
    fn of(checkpoint: &Checkpoint) -> Self {
        let Checkpoint {
            number,
            at_ms,
            hash,
            key_id,
            signature,
            ..
        } = checkpoint;
        let (hash, signature) = (encode_hex(hash), encode_hex(signature));
        Self::Checkpoint {
            number: *number,
            at_ms: *at_ms,
            hash,
            key_id: key_id.clone(),
            signature,
        }
    }
}

/// Error of writing or reading an audit export.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The store or a key can't be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The export can't be read or written.
    #[error("failed to read or write the export: {0}")]
    Io(#[from] io::Error),
    /// A line isn't a valid line of an audit export.
    #[error("line {line} isn't one of an audit export: export the audit again")]
    InvalidLine {
        /// Number of the line, from 1.
        line: usize,
    },
}

impl From<JournalError> for ExportError {
    fn from(error: JournalError) -> Self {
        Self::Store(error.into())
    }
}

impl ReadOnlyStore {
    /// Writes all audit chains as JSON lines, which [`verify_export`] reads. Returns the number of
    /// entries.
    ///
    /// # Errors
    /// [`ExportError::Store`], if the store can't be read; [`ExportError::Io`], if writing to `out`
    /// fails.
    pub async fn export_audit(&self, out: &mut (dyn io::Write + Send)) -> Result<u64, ExportError> {
        let core = &*self.core;
        let mut entries = 0;
        for chain in &in_reading_order(list_chains(core).await?) {
            let ChainBounds {
                counted,
                first,
                last,
                base,
                last_checkpoint,
            } = read_chain_bounds(core, chain).await?;
            write_line(
                out,
                &ExportLine::Chain {
                    chain: chain.clone(),
                    counted,
                    first,
                    last,
                    last_checkpoint,
                },
            )?;
            let base = base.filter(|base| base.number < first || first == 0);
            base.iter()
                .try_for_each(|base| write_line(out, &ExportLine::of(base)))?;
            let mut after = base.map_or(0, |base| base.number);
            loop {
                let (rows, checkpoints) = read_page(core, chain, after, last).await?;
                let Some(to) = rows.last().map(|row| row.number) else {
                    break;
                };
                after = to;
                checkpoints
                    .values()
                    .try_for_each(|checkpoint| write_line(out, &ExportLine::of(checkpoint)))?;
                entries += rows.len() as u64;
                for AuditRow {
                    number, line, hash, ..
                } in rows
                {
                    write_line(
                        out,
                        &ExportLine::Entry {
                            number,
                            line,
                            hash: encode_hex(&hash),
                        },
                    )?;
                }
            }
        }
        out.flush()?;
        Ok(entries)
    }
}

fn write_line(out: &mut (dyn io::Write + Send), line: &ExportLine) -> io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    out.write_all(&text)
}

/// Verifies an audit export as [`ReadOnlyStore::verify_audit`] verifies a store. `options` must
/// name the public keys. Without an anchor file, missing entries at the end of a chain are detected
/// only if the export itself shows them. Defects are part of the reports, not errors.
///
/// # Errors
/// [`ExportError`], if the export, the keys or the anchor can't be read.
pub fn verify_export(
    from: impl BufRead,
    options: &AuditVerifyOptions,
) -> Result<Vec<ChainReport>, ExportError> {
    let (keys, anchor) = options.read(None)?;
    let mut checked = Vec::new();
    let mut lines = (1..).zip(from.lines()).peekable();
    while let Some((at, line)) = lines.next() {
        let begun: ExportLine = parse_line(at, &line?)?;
        let ExportLine::Chain {
            chain,
            counted,
            first,
            last,
            last_checkpoint,
        } = begun
        else {
            return Err(ExportError::InvalidLine { line: at });
        };
        let mut ends = ChainBounds {
            counted,
            first,
            last,
            base: None,
            last_checkpoint,
        };
        let mut checkpoints = BTreeMap::new();
        let mut check: Option<ChainVerifier<'_>> = None;
        while let Some((at, line)) = lines.next_if(|(_, line)| !is_chain(line)) {
            match parse_line(at, &line?)? {
                ExportLine::Chain { .. } => return Err(ExportError::InvalidLine { line: at }),
                ExportLine::Checkpoint {
                    number,
                    at_ms,
                    hash,
                    key_id,
                    signature,
                } => {
                    let bytes =
                        |text: &str| from_hex(text).ok_or(ExportError::InvalidLine { line: at });
                    let (hash, signature) = (bytes(&hash)?, bytes(&signature)?);
                    let checkpoint = Checkpoint {
                        chain: chain.clone(),
                        number,
                        at_ms,
                        hash,
                        key_id,
                        signature,
                    };
                    if check.is_none() && ends.base.is_none() {
                        ends.base = Some(checkpoint.clone());
                    }
                    checkpoints.insert(number, checkpoint);
                }
                ExportLine::Entry { number, line, hash } => {
                    let row = exported_row(number, line, &hash);
                    let check = check.get_or_insert_with(|| {
                        let base = ends.base.take();
                        ChainVerifier::begin(
                            &chain,
                            ChainBounds {
                                base,
                                ..ends.clone()
                            },
                            &keys,
                            &anchor,
                        )
                    });
                    check.check_page(&[row], &checkpoints);
                    checkpoints.retain(|of, _| *of > number);
                }
            }
        }
        let check = check.unwrap_or_else(|| ChainVerifier::begin(&chain, ends, &keys, &anchor));
        checked.push(check.finish());
    }
    let reports = verify_cuts(checked, options.chain.as_deref());
    Ok(sorted_reports(reports))
}

fn parse_line(at: usize, line: &str) -> Result<ExportLine, ExportError> {
    serde_json::from_str(line).map_err(|_| ExportError::InvalidLine { line: at })
}

fn is_chain(line: &io::Result<String>) -> bool {
    line.as_ref()
        .is_ok_and(|line| line.starts_with(r#"{"kind":"chain""#))
}

/// Rebuilds the database row of an exported entry.
fn exported_row(number: u64, line: String, hash: &str) -> AuditRow {
    let hash = from_hex(hash).unwrap_or_default();
    let said = serde_json::from_str::<ParsedLine<'_>>(&line).ok();
    let owned = |text: std::borrow::Cow<'_, str>| text.into_owned();
    let (at_ms, event, class, agent, principal, call_id) = match said {
        Some(said) => (
            said.at_ms,
            owned(said.event),
            owned(said.class),
            said.agent.map(owned),
            said.principal.map(|who| owned(who.id)),
            said.call.map(owned),
        ),
        // Verification reports the defect.
        None => Default::default(),
    };
    AuditRow {
        number,
        at_ms,
        event,
        agent,
        principal,
        call_id,
        class,
        line,
        hash,
    }
}
