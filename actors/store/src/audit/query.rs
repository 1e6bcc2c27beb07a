//! Reading, verifying and exporting the audit, also beside a node that writes to it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead};
use std::path::PathBuf;
use std::time::SystemTime;

use callboard_message::hex;
use callboard_runtime::{JournalError, JournalResult};
use serde::{Deserialize, Serialize};

use crate::chain::checkpoint::{Anchor, AuditFiles, Checkpoint, PublicKeys, from_hex};
use crate::chain::counter_of;
use crate::chain::line::Said;
use crate::chain::verify::{AuditRow, ChainCheck, ChainReport, Cuts, Ends, settle};
use crate::error::StoreError;
use crate::parts::{Core, Visitor};
use crate::place::PAGE_MAX;
use crate::sql::{Row, args, ms};

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

impl Visitor {
    /// Checks every entry of its chains: what was changed, removed, moved or added since it was written.
    ///
    /// # Errors
    /// The store, the keys or the anchor can't be read. What is wrong with a chain is in its report.
    pub async fn verify_audit(
        &self,
        options: &VerifyOptions,
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
            let reports = settle(checked, named);
            // Retention may remove entries while they are looked at, which looks like the work of somebody else.
            if look >= LOOKS_MAX
                || reports.iter().all(|report| report.fault.is_none())
                || !is_cut(core, &reports).await?
            {
                break reports;
            }
            look += 1;
        };
        Ok(reports)
    }

    /// Entries, oldest first.
    ///
    /// # Errors
    /// The store's.
    pub async fn audit_lines(&self, filter: &AuditFilter) -> JournalResult<Vec<AuditLine>> {
        let entries_max = filter
            .entries_max
            .unwrap_or(AUDIT_SHOWN_DEFAULT)
            .min(PAGE_MAX);
        let args = args![
            filter.since.map_or(0, ms),
            filter.chain.as_deref(),
            filter.event.as_deref(),
            filter.agent.as_deref(),
            filter.principal.as_deref(),
            filter.call.as_deref(),
            entries_max
        ];
        let sql = "SELECT chain, number, at_ms, line FROM audit WHERE at_ms >= $1 \
             AND (CAST($2 AS TEXT) IS NULL OR chain = $2) AND (CAST($3 AS TEXT) IS NULL OR event = $3) \
             AND (CAST($4 AS TEXT) IS NULL OR agent = $4) AND (CAST($5 AS TEXT) IS NULL OR principal = $5) \
             AND (CAST($6 AS TEXT) IS NULL OR call_id = $6) ORDER BY at_ms DESC, chain DESC, number DESC LIMIT $7";
        let line = |row: &Row| {
            Ok(AuditLine {
                chain: row.get(0)?,
                number: row.get(1)?,
                at: row.get(2)?,
                line: row.get(3)?,
            })
        };
        let mut lines = self.core.readers.read(sql, &args, line).await?;
        lines.reverse();
        Ok(lines)
    }
}

impl VerifyOptions {
    /// Public keys and anchor. The anchor is read before the store is: it is never ahead of it.
    fn read(&self, files: Option<&AuditFiles>) -> Result<(PublicKeys, Anchor), StoreError> {
        let refused = |path: &PathBuf, why: String| StoreError::Key {
            path: path.clone(),
            why,
        };
        let public = self
            .public_keys
            .as_ref()
            .or(files.map(|files| &files.public));
        let public = public.ok_or_else(|| {
            refused(
                &"audit.pub".into(),
                "say where the public keys are".to_owned(),
            )
        })?;
        let text = std::fs::read_to_string(public)
            .map_err(|e| refused(public, format!("failed to read the public keys: {e}")))?;
        let keys = PublicKeys::parse(&text);
        let anchor = match self.anchor.as_ref().or(files.map(|files| &files.anchor)) {
            // One that was named must be there.
            Some(path) if self.anchor.is_none() || path.exists() => Anchor::read(path, &keys)
                .map_err(|e| refused(path, format!("failed to read the anchor: {e}")))?,
            Some(path) => return Err(refused(path, "there is no such anchor".to_owned())),
            None => Anchor::default(),
        };
        Ok((keys, anchor))
    }
}

/// Whether a chain begins later than it did when it was looked at.
async fn is_cut(core: &Core, reports: &[ChainReport]) -> JournalResult<bool> {
    for report in reports {
        if ends(core, &report.chain).await?.first != report.first {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Every chain that the store has.
async fn chains(core: &Core) -> JournalResult<BTreeSet<String>> {
    let sql = "SELECT DISTINCT chain FROM audit UNION SELECT DISTINCT chain FROM audit_checkpoint \
               UNION SELECT substr(name, 3) FROM stream WHERE name LIKE 'a/%'";
    Ok(core
        .readers
        .read(sql, &[], |row| row.get(0))
        .await?
        .into_iter()
        .collect())
}

async fn verify_one(
    core: &Core,
    chain: &str,
    keys: &PublicKeys,
    anchor: &Anchor,
) -> JournalResult<(ChainReport, Cuts)> {
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

async fn ends(core: &Core, chain: &str) -> JournalResult<Ends> {
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
        Ok(Ends {
            counted,
            first,
            last,
            last_checkpoint: number(3)?,
            base: None,
        })
    };
    let ends = core
        .readers
        .read(ENDS, &args![chain, &counter_of(chain)], read)
        .await?;
    let base = core
        .readers
        .read(BASE, &args![chain], |row| checkpoint(chain, row))
        .await?;
    Ok(Ends {
        base: base.into_iter().next(),
        ..ends.into_iter().next().unwrap_or_default()
    })
}

/// Entries after `after` and up to `last`, in order, and the checkpoints of their numbers.
async fn page(
    core: &Core,
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
        .read(ROWS, &args![chain, after, last, PAGE_MAX], row)
        .await?;
    let Some(to) = rows.last().map(|row| row.number) else {
        return Ok(Default::default());
    };
    let of_number =
        |row: &Row| checkpoint(chain, row).map(|checkpoint| (checkpoint.number, checkpoint));
    let checkpoints = core
        .readers
        .read(CHECKPOINTS, &args![chain, after, to], of_number)
        .await?;
    Ok((rows, checkpoints.into_iter().collect()))
}

fn row(row: &Row) -> sqlx::Result<AuditRow> {
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

fn checkpoint(chain: &str, row: &Row) -> sqlx::Result<Checkpoint> {
    Ok(Checkpoint {
        chain: chain.to_owned(),
        number: row.get::<i64>(0)?.max(0).unsigned_abs(),
        at_ms: row.get(1)?,
        hash: row.get(2)?,
        key_id: row.get(3)?,
        signature: row.get(4)?,
    })
}

/// A line of the file.
#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Exported {
    /// A chain begins: all up to the next one is of it.
    Chain {
        chain: String,
        counted: u64,
        first: u64,
        last: u64,
        last_checkpoint: u64,
    },
    /// Before the entry that it is of; the one that a cut chain begins after is before all.
    Checkpoint {
        number: u64,
        at_ms: i64,
        hash: String,
        key_id: String,
        signature: String,
    },
    /// What it is found by in the store is what it says.
    Entry {
        number: u64,
        line: String,
        hash: String,
    },
}

impl Exported {
    fn of(checkpoint: &Checkpoint) -> Self {
        let Checkpoint {
            number,
            at_ms,
            hash,
            key_id,
            signature,
            ..
        } = checkpoint;
        let (hash, signature) = (hex(hash), hex(signature));
        Self::Checkpoint {
            number: *number,
            at_ms: *at_ms,
            hash,
            key_id: key_id.clone(),
            signature,
        }
    }
}

/// Why an export wasn't written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The store, or a key.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file.
    #[error("failed to read or write the export: {0}")]
    Io(#[from] io::Error),
    /// It is none.
    #[error("line {line} isn't one of an audit export")]
    NotExported {
        /// From 1.
        line: usize,
    },
}

impl From<JournalError> for ExportError {
    fn from(error: JournalError) -> Self {
        Self::Store(error.into())
    }
}

impl Visitor {
    /// Writes all chains to `out`: JSON lines that [`verify_export`] reads back. How many entries there were.
    ///
    /// # Errors
    /// The store can't be read, or `out` not written.
    pub async fn export_audit(&self, out: &mut (dyn io::Write + Send)) -> Result<u64, ExportError> {
        let core = &*self.core;
        let mut entries = 0;
        for chain in &chains(core).await? {
            let Ends {
                counted,
                first,
                last,
                base,
                last_checkpoint,
            } = ends(core, chain).await?;
            put(
                out,
                &Exported::Chain {
                    chain: chain.clone(),
                    counted,
                    first,
                    last,
                    last_checkpoint,
                },
            )?;
            let base = base.filter(|base| base.number < first || first == 0);
            base.iter()
                .try_for_each(|base| put(out, &Exported::of(base)))?;
            let mut after = base.map_or(0, |base| base.number);
            loop {
                let (rows, checkpoints) = page(core, chain, after, last).await?;
                let Some(to) = rows.last().map(|row| row.number) else {
                    break;
                };
                after = to;
                checkpoints
                    .values()
                    .try_for_each(|checkpoint| put(out, &Exported::of(checkpoint)))?;
                entries += rows.len() as u64;
                for AuditRow {
                    number, line, hash, ..
                } in rows
                {
                    put(
                        out,
                        &Exported::Entry {
                            number,
                            line,
                            hash: hex(&hash),
                        },
                    )?;
                }
            }
        }
        out.flush()?;
        Ok(entries)
    }
}

fn put(out: &mut (dyn io::Write + Send), line: &Exported) -> io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    out.write_all(&text)
}

/// Checks an export as [`SqlStore::verify_audit`] checks a store. The public keys must be named; without an anchor a cut end
/// is found only where the export itself tells of it.
///
/// # Errors
/// The file, the keys or the anchor can't be read. What is wrong with a chain is in its report.
pub fn verify_export(
    from: impl BufRead,
    options: &VerifyOptions,
) -> Result<Vec<ChainReport>, ExportError> {
    let (keys, anchor) = options.read(None)?;
    let mut checked = Vec::new();
    let mut lines = (1..).zip(from.lines()).peekable();
    while let Some((at, line)) = lines.next() {
        let begun: Exported = parsed(at, &line?)?;
        let Exported::Chain {
            chain,
            counted,
            first,
            last,
            last_checkpoint,
        } = begun
        else {
            return Err(ExportError::NotExported { line: at });
        };
        let mut ends = Ends {
            counted,
            first,
            last,
            base: None,
            last_checkpoint,
        };
        let mut checkpoints = BTreeMap::new();
        let mut check: Option<ChainCheck<'_>> = None;
        while let Some((at, line)) = lines.next_if(|(_, line)| !is_chain(line)) {
            match parsed(at, &line?)? {
                Exported::Chain { .. } => return Err(ExportError::NotExported { line: at }),
                Exported::Checkpoint {
                    number,
                    at_ms,
                    hash,
                    key_id,
                    signature,
                } => {
                    let bytes =
                        |text: &str| from_hex(text).ok_or(ExportError::NotExported { line: at });
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
                Exported::Entry { number, line, hash } => {
                    let row = exported_row(number, line, &hash);
                    let check = check.get_or_insert_with(|| {
                        let base = ends.base.take();
                        ChainCheck::begin(
                            &chain,
                            Ends {
                                base,
                                ..ends.clone()
                            },
                            &keys,
                            &anchor,
                        )
                    });
                    check.page(&[row], &checkpoints);
                    checkpoints.retain(|of, _| *of > number);
                }
            }
        }
        let check = check.unwrap_or_else(|| ChainCheck::begin(&chain, ends, &keys, &anchor));
        checked.push(check.end());
    }
    Ok(settle(checked, options.chain.as_deref()))
}

fn parsed(at: usize, line: &str) -> Result<Exported, ExportError> {
    serde_json::from_str(line).map_err(|_| ExportError::NotExported { line: at })
}

fn is_chain(line: &io::Result<String>) -> bool {
    line.as_ref()
        .is_ok_and(|line| line.starts_with(r#"{"kind":"chain""#))
}

/// The entry as a store would hold it.
fn exported_row(number: u64, line: String, hash: &str) -> AuditRow {
    let hash = from_hex(hash).unwrap_or_default();
    let said = serde_json::from_str::<Said<'_>>(&line).ok();
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
        // The check says what is wrong with it.
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
