//! The audit as a file that can be verified without the store: a JSON object a line.

use std::collections::BTreeMap;
use std::io::{self, BufRead};

use callboard_message::hex;
use callboard_runtime::JournalError;
use serde::{Deserialize, Serialize};

use super::checkpoint::{Checkpoint, from_hex};
use super::line::Said;
use super::look::{VerifyOptions, chains, ends, page};
use super::verify::{AuditRow, ChainCheck, ChainReport, Ends, settle};
use crate::error::StoreError;
use crate::open::Visitor;

/// A line of the file.
#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Exported {
    /// A chain begins: all up to the next one is of it.
    Chain { chain: String, counted: u64, first: u64, last: u64, last_checkpoint: u64 },
    /// Before the entry that it is of; the one that a cut chain begins after is before all.
    Checkpoint { number: u64, at_ms: i64, hash: String, key_id: String, signature: String },
    /// What it is found by in the store is what it says.
    Entry { number: u64, line: String, hash: String },
}

impl Exported {
    fn of(checkpoint: &Checkpoint) -> Self {
        let Checkpoint { number, at_ms, hash, key_id, signature, .. } = checkpoint;
        let (hash, signature) = (hex(hash), hex(signature));
        Self::Checkpoint { number: *number, at_ms: *at_ms, hash, key_id: key_id.clone(), signature }
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
            let Ends { counted, first, last, base, last_checkpoint } = ends(core, chain).await?;
            put(out, &Exported::Chain { chain: chain.clone(), counted, first, last, last_checkpoint })?;
            let base = base.filter(|base| base.number < first || first == 0);
            base.iter().try_for_each(|base| put(out, &Exported::of(base)))?;
            let mut after = base.map_or(0, |base| base.number);
            loop {
                let (rows, checkpoints) = page(core, chain, after, last).await?;
                let Some(to) = rows.last().map(|row| row.number) else { break };
                after = to;
                checkpoints.values().try_for_each(|checkpoint| put(out, &Exported::of(checkpoint)))?;
                entries += rows.len() as u64;
                for AuditRow { number, line, hash, .. } in rows {
                    put(out, &Exported::Entry { number, line, hash: hex(&hash) })?;
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
pub fn verify_export(from: impl BufRead, options: &VerifyOptions) -> Result<Vec<ChainReport>, ExportError> {
    let (keys, anchor) = options.read(None)?;
    let mut checked = Vec::new();
    let mut lines = (1..).zip(from.lines()).peekable();
    while let Some((at, line)) = lines.next() {
        let begun: Exported = parsed(at, &line?)?;
        let Exported::Chain { chain, counted, first, last, last_checkpoint } = begun else {
            return Err(ExportError::NotExported { line: at });
        };
        let mut ends = Ends { counted, first, last, base: None, last_checkpoint };
        let mut checkpoints = BTreeMap::new();
        let mut check: Option<ChainCheck<'_>> = None;
        while let Some((at, line)) = lines.next_if(|(_, line)| !is_chain(line)) {
            match parsed(at, &line?)? {
                Exported::Chain { .. } => return Err(ExportError::NotExported { line: at }),
                Exported::Checkpoint { number, at_ms, hash, key_id, signature } => {
                    let bytes = |text: &str| from_hex(text).ok_or(ExportError::NotExported { line: at });
                    let (hash, signature) = (bytes(&hash)?, bytes(&signature)?);
                    let checkpoint = Checkpoint { chain: chain.clone(), number, at_ms, hash, key_id, signature };
                    if check.is_none() && ends.base.is_none() {
                        ends.base = Some(checkpoint.clone());
                    }
                    checkpoints.insert(number, checkpoint);
                }
                Exported::Entry { number, line, hash } => {
                    let row = row(number, line, &hash);
                    let check = check.get_or_insert_with(|| {
                        let base = ends.base.take();
                        ChainCheck::begin(&chain, Ends { base, ..ends.clone() }, &keys, &anchor)
                    });
                    check.page(&[row], &checkpoints);
                    checkpoints.retain(|of, _| *of > number);
                }
            }
        }
        let check = check.unwrap_or_else(|| ChainCheck::begin(&chain, ends, &keys, &anchor));
        checked.push(check.end());
    }
    let is_wanted = |report: &ChainReport| options.chain.as_ref().is_none_or(|wanted| *wanted == report.chain);
    Ok(settle(checked).into_iter().filter(is_wanted).collect())
}

fn parsed(at: usize, line: &str) -> Result<Exported, ExportError> {
    serde_json::from_str(line).map_err(|_| ExportError::NotExported { line: at })
}

fn is_chain(line: &io::Result<String>) -> bool {
    line.as_ref().is_ok_and(|line| line.starts_with(r#"{"kind":"chain""#))
}

/// The entry as a store would hold it.
fn row(number: u64, line: String, hash: &str) -> AuditRow {
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
    AuditRow { number, at_ms, event, agent, principal, call_id, class, line, hash }
}
