//! Chain of the lines about calls. It is apart from the writer's chain and bounded, so that many calls neither
//! displace other entries nor fill the store.

use std::cmp::Reverse;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::SystemTime;

use callboard_runtime::{AuditEntry, CALLS_EVENT, JournalResult, call_line_name};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::remove_chain_start;
use crate::chain::AuditChain;
use crate::chain::checkpoint::AuditKey;
use crate::sql::{DbConnection, Row, args, from_unix_ms, to_unix_ms};
use crate::store_core::StoreCore;
use crate::tx::{CLEANUP_ROWS_MAX, Tx, WriteOp};
use crate::writer::WriterHandle;

/// End of the name of a writer's chain of calls.
const CHAIN_SUFFIX: &str = ".calls";
/// Number of entries that are read at once.
const PAGE_ENTRIES: usize = 64;
/// Size of an entry beside its lines, in bytes: columns, indexes and its share of a checkpoint.
const ENTRY_OVERHEAD_BYTES: usize = 512;
/// Name of the detail with the size of all entries up to this one, in bytes, also of removed ones.
const TOTAL_DETAIL: &str = "total";

/// Returns the name of a writer's chain of calls.
pub(super) fn chain_name(writer: &str) -> String {
    format!("{writer}{CHAIN_SUFFIX}")
}

/// Returns whether a chain is one of calls.
pub(super) fn is_call_chain(chain: &str) -> bool {
    chain.ends_with(CHAIN_SUFFIX)
}

/// Name, key and limit of a writer's chain of calls.
#[derive(Clone)]
pub(super) struct CallChain {
    name: String,
    run: Arc<str>,
    key: Arc<AuditKey>,
    anchor: PathBuf,
    bytes_max: u64,
    /// Whether there may be entries without a checkpoint.
    has_unsigned: Arc<AtomicBool>,
}

impl CallChain {
    pub(super) fn new(
        core: &StoreCore,
        key: Arc<AuditKey>,
        anchor: PathBuf,
        has_unsigned: bool,
    ) -> Self {
        Self {
            name: chain_name(&core.options.writer),
            run: Arc::clone(&core.run_id),
            key,
            anchor,
            bytes_max: core.options.calls_bytes_max(),
            has_unsigned: Arc::new(AtomicBool::new(has_unsigned)),
        }
    }

    /// Appends entries, with a checkpoint after them if `is_signed`.
    pub(super) async fn append(
        &self,
        writer: &WriterHandle,
        entries: Vec<AuditEntry>,
        is_signed: bool,
    ) -> JournalResult<()> {
        let append = AppendCalls {
            chain: self.clone(),
            entries,
            is_signed,
        };
        match writer.submit(append).await {
            Ok(mut chain) => {
                chain.on_commit().await;
                Ok(())
            }
            Err(error) => {
                // The write may have been rolled back, with its checkpoint.
                self.has_unsigned.store(true, Relaxed);
                Err(error)
            }
        }
    }

    /// Signs the entries without a checkpoint. Writes nothing if there are none.
    pub(super) async fn sign(&self, writer: &WriterHandle) -> JournalResult<()> {
        match self.has_unsigned.load(Relaxed) {
            true => self.append(writer, Vec::new(), true).await,
            false => Ok(()),
        }
    }

    /// Removes the oldest entries, up to a checkpoint, if the size has reached the maximum. `last` is the number of
    /// the last entry so far, and `total` the size with the entries that follow it. A removal makes room for many
    /// appends. Returns `false` if there is no checkpoint that is late enough.
    async fn remove_oldest(&self, tx: &mut Tx, last: u64, total: u64) -> sqlx::Result<bool> {
        let first = tx
            .db
            .number(
                "SELECT min(number) FROM audit WHERE chain = $1",
                &args![&self.name],
            )
            .await?
            .unsigned_abs();
        let before = self.total_up_to(&mut tx.db, first).await?;
        if first == 0 || total.saturating_sub(before) < self.bytes_max {
            return Ok(true);
        }
        let kept_max = self.bytes_max / 8 * 7;
        // Number of the last entry to remove, by a binary search: numbers have no gaps.
        let (mut low, mut high) = (first, last.min(first + CLEANUP_ROWS_MAX as u64));
        while low < high {
            let middle = low + (high - low) / 2;
            let before = self.total_up_to(&mut tx.db, middle).await?;
            if total.saturating_sub(before) <= kept_max {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        let to = tx
            .db
            .number(
                "SELECT min(number) FROM audit_checkpoint WHERE chain = $1 AND number >= $2",
                &args![&self.name, low],
            )
            .await?;
        if to > 0 {
            remove_chain_start(tx, &self.name, to).await?;
        }
        Ok(to > 0)
    }

    /// Returns the size of all entries up to a number, in bytes, also of removed ones.
    async fn total_up_to(&self, db: &mut DbConnection, number: u64) -> sqlx::Result<u64> {
        let row = db
            .row(
                "SELECT line FROM audit WHERE chain = $1 AND number <= $2 ORDER BY number DESC LIMIT 1",
                &args![&self.name, number],
            )
            .await?;
        Ok(match row {
            Some(row) => parse_details::<ParsedTotal>(row.get(0)?).total,
            None => 0,
        })
    }
}

/// Text of an entry with lines about calls, and those of its details that `T` has.
#[derive(Deserialize)]
struct ParsedCalls<T> {
    more: T,
}

#[derive(Default, Deserialize)]
struct ParsedLines {
    lines: Option<Vec<String>>,
    /// Number of lines that were lost before these.
    #[serde(default)]
    lost: u64,
}

#[derive(Default, Deserialize)]
struct ParsedTotal {
    #[serde(default)]
    total: u64,
}

fn parse_details<T: Default + DeserializeOwned>(line: &str) -> T {
    let parsed = serde_json::from_str::<ParsedCalls<T>>(line);
    parsed.map(|parsed| parsed.more).unwrap_or_default()
}

/// Parses the text of an entry. Returns its calls, and the number of calls that have no readable line; `None` if the
/// entry is damaged, or was cut.
pub(super) fn parse_calls(text: &str) -> Option<(Vec<CallLine>, u64)> {
    let ParsedLines { lines, lost } = parse_details(text);
    let lines = lines?;
    let calls: Vec<_> = lines
        .iter()
        .filter_map(|line| CallLine::parse(line))
        .collect();
    let damaged = lines.len() - calls.len();
    Some((calls, lost.saturating_add(damaged as u64)))
}

/// Returns the size of an entry, in bytes.
fn entry_bytes(entry: &AuditEntry) -> usize {
    let lines = entry.call_lines().iter().map(String::len);
    ENTRY_OVERHEAD_BYTES + lines.sum::<usize>()
}

/// Write operation that appends entries to the chain of calls. Its output is the chain, whose checkpoint the anchor
/// file gets after the commit.
struct AppendCalls {
    chain: CallChain,
    entries: Vec<AuditEntry>,
    is_signed: bool,
}

impl WriteOp for AppendCalls {
    type Output = AuditChain;
    const NAME: &'static str = "audit.calls";

    fn uses_reserve(&self) -> bool {
        self.is_signed
    }

    fn bytes(&self) -> usize {
        self.entries.iter().map(entry_bytes).sum()
    }

    async fn run(&mut self, tx: &mut Tx) -> sqlx::Result<AuditChain> {
        let of = &self.chain;
        // Its state is read from the database each time, so that a rollback leaves nothing behind.
        let mut chain = AuditChain::new(
            &of.name,
            Arc::clone(&of.run),
            Arc::clone(&of.key),
            of.anchor.clone(),
            Arc::default(),
        );
        let last = chain.head(&mut tx.db).await?;
        let mut entries = self.entries.clone();
        let mut is_signed = self.is_signed;
        if !entries.is_empty() {
            let mut total = of.total_up_to(&mut tx.db, last).await?;
            for entry in &mut entries {
                total += entry_bytes(entry) as u64;
                entry.details.insert(TOTAL_DETAIL, total.into());
            }
            // Without a checkpoint to remove up to, the next append gets one.
            is_signed |= !of.remove_oldest(tx, last, total).await?;
        }
        chain
            .write(&mut tx.db, entries, tx.now_ms, is_signed)
            .await?;
        // Writes run one after another, so the flag is about the latest one.
        of.has_unsigned.store(!is_signed, Relaxed);
        Ok(chain)
    }
}

/// Filter for lines about calls. A line must match every field that is set. Names are matched in full, or as lines
/// have them ([`call_line_name`]).
#[derive(Debug, Clone, Default)]
pub struct CallFilter {
    /// Id of the principal, or its kind and id with `:` in between.
    pub principal: Option<String>,
    /// Name of the agent.
    pub agent: Option<String>,
    /// Name of the tool.
    pub tool: Option<String>,
    /// Id of the call.
    pub call: Option<String>,
    /// Earliest time at which a call ended, inclusive.
    pub since: Option<SystemTime>,
    /// Maximum number of lines; the newest are returned.
    pub lines_max: usize,
}

/// Call that ended, as the audit has it; its names are as [`call_line_name`] returns them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallLine {
    /// Time at which it ended, in Unix milliseconds.
    pub at_ms: i64,
    /// Kind and id of the principal, with `:` in between.
    pub principal: String,
    /// Name of the agent.
    pub agent: String,
    /// Name of the tool.
    pub tool: String,
    /// Outcome: `answered`, or the kind of the failure.
    pub outcome: String,
    /// Duration, in milliseconds.
    pub ms: u64,
    /// Id of the call.
    pub call: String,
}

impl CallLine {
    /// Returns the time at which the call ended.
    pub fn at(&self) -> SystemTime {
        from_unix_ms(self.at_ms)
    }

    /// Reads a line; `None` if it is damaged.
    fn parse(line: &str) -> Option<Self> {
        let mut parts = line.split(' ');
        let mut next = || parts.next().map(str::to_owned);
        Some(Self {
            at_ms: next()?.parse().ok()?,
            principal: next()?,
            agent: next()?,
            tool: next()?,
            outcome: next()?,
            ms: next()?.parse().ok()?,
            call: next()?,
        })
    }
}

/// Filter with the forms in which a line may have each name; `None` for any name.
struct LineFilter<'a> {
    filter: &'a CallFilter,
    principal: Option<Vec<String>>,
    agent: Option<Vec<String>>,
    tool: Option<Vec<String>>,
}

impl<'a> LineFilter<'a> {
    fn new(filter: &'a CallFilter) -> Self {
        let forms = |name: &String| vec![name.clone(), call_line_name(name).into_owned()];
        let principal = filter.principal.as_ref().map(|name| {
            let id = name.split_once(':');
            let with_kind = id.map(|(kind, id)| format!("{kind}:{}", call_line_name(id)));
            forms(name).into_iter().chain(with_kind).collect()
        });
        Self {
            filter,
            principal,
            agent: filter.agent.as_ref().map(forms),
            tool: filter.tool.as_ref().map(forms),
        }
    }

    fn matches(&self, line: &CallLine) -> bool {
        let CallFilter { call, since, .. } = self.filter;
        let is = |wanted: &Option<Vec<String>>, found: &str| {
            let forms = wanted.as_ref();
            forms.is_none_or(|forms| forms.iter().any(|name| name == found))
        };
        let id = line.principal.split_once(':').map_or("", |(_, id)| id);
        (is(&self.principal, &line.principal) || is(&self.principal, id))
            && is(&self.agent, &line.agent)
            && is(&self.tool, &line.tool)
            && call.as_ref().is_none_or(|call| *call == line.call)
            && since.is_none_or(|since| line.at_ms >= to_unix_ms(since))
    }
}

/// Reads the newest lines about calls that match a filter, oldest first, and the number of lines that were lost as the
/// entries tell that were read for it.
pub(super) async fn read_calls(
    core: &StoreCore,
    filter: &CallFilter,
) -> JournalResult<(Vec<CallLine>, u64)> {
    const PAGE: &str = "SELECT chain, number, at_ms, line FROM audit WHERE event = $1 AND at_ms >= $2 \
        AND (at_ms, chain, number) < ($3, $4, $5) ORDER BY at_ms DESC, chain DESC, number DESC LIMIT $6";
    let since = filter.since.map_or(0, to_unix_ms);
    let entry = |row: &Row| {
        let position = (
            row.get::<i64>(2)?,
            row.get::<String>(0)?,
            row.get::<i64>(1)?,
        );
        Ok((position, row.get::<String>(3)?))
    };
    let (wanted, lines_max) = (LineFilter::new(filter), filter.lines_max);
    let (mut found, mut lost) = (Vec::<CallLine>::new(), 0);
    let mut before = (i64::MAX, String::new(), 0_i64);
    loop {
        let (at_ms, chain, number) = &before;
        let page = args![CALLS_EVENT, since, *at_ms, chain, *number, PAGE_ENTRIES];
        let entries = core.readers.read(PAGE, &page, entry).await?;
        let Some((last, _)) = entries.last() else {
            break;
        };
        before = last.clone();
        for (_, line) in &entries {
            let details: ParsedLines = parse_details(line);
            lost += details.lost;
            let lines = details.lines.unwrap_or_default();
            let lines = lines.iter().rev();
            let lines = lines.filter_map(|line| CallLine::parse(line));
            found.extend(lines.filter(|line| wanted.matches(line)));
        }
        // Entries of two nodes have lines of the same time, as have one that waited for the store and the next.
        found.sort_by_key(|line| Reverse(line.at_ms));
        found.truncate(lines_max);
        // No line is newer than its entry.
        let oldest = found.last().map_or(i64::MAX, |line| line.at_ms);
        if found.len() >= lines_max && oldest >= before.0 {
            break;
        }
    }
    found.reverse();
    Ok((found, lost))
}

#[cfg(test)]
mod tests {
    use callboard_runtime::CALLS_LINES_DETAIL;
    use tempfile::TempDir;

    use super::*;
    use crate::{AuditVerifyOptions, SqlStore, StoreOptions};

    /// Goal: the chain is bounded by few removals, however far apart checkpoints are. Method: a checkpoint after each
    /// entry, and none but those of the removal.
    #[tokio::test]
    async fn removals_are_few() {
        let entries_max = 32_i64;
        for is_signed in [true, false] {
            let folder = TempDir::new().unwrap();
            let entry = AuditEntry::new(CALLS_EVENT)
                .with_detail(CALLS_LINES_DETAIL, vec!["x".repeat(1_000)]);
            let bytes_max = entries_max as u64 * entry_bytes(&entry) as u64;
            let options = StoreOptions::sqlite(folder.path().join("store.sqlite"))
                .audit_calls_bytes_max(bytes_max)
                .cleanup_interval(None)
                .sign_interval(None);
            let store = SqlStore::open(&options).await.unwrap();
            let (core, calls) = (&store.audit.core, &store.audit.calls);
            let count = async |event: &str| {
                let sql = "SELECT count(*) FROM audit WHERE event = $1";
                let rows = core.readers.rows(sql, &args![event]).await.unwrap();
                rows[0].get::<i64>(0).unwrap()
            };
            for _ in 0..4 * entries_max {
                let entries = vec![entry.clone()];
                calls
                    .append(&core.writer, entries, is_signed)
                    .await
                    .unwrap();
                assert!(count(CALLS_EVENT).await <= entries_max + 1);
            }
            let removals = count("audit.cut").await;
            assert!((1..=entries_max).contains(&removals), "{removals}");
            let reports = store.verify_audit(&AuditVerifyOptions::default()).await;
            let reports = reports.unwrap();
            assert!(
                reports.iter().all(|report| report.fault.is_none()),
                "{reports:?}"
            );
            store.close().await;
        }
    }
}
