//! Chain of the lines about calls. It is apart from the writer's chain and bounded, so that many calls neither
//! displace other entries nor fill the store.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use callboard_runtime::{AuditEntry, CALLS_EVENT, JournalResult};
use serde::Deserialize;

use super::remove_chain_start;
use crate::chain::AuditChain;
use crate::chain::checkpoint::AuditKey;
use crate::options::StoreOptions;
use crate::sql::{DbConnection, Row, args, to_unix_ms};
use crate::store_core::StoreCore;
use crate::tx::{Tx, WriteOp};

/// End of the name of a writer's chain of calls.
const CHAIN_SUFFIX: &str = ".calls";
/// Interval after which new entries are signed, in milliseconds, if there aren't enough for a checkpoint before.
const SIGN_INTERVAL_MS: i64 = 60_000;
/// Number of entries that are read at once.
const PAGE_ENTRIES: usize = 64;
/// Name of the detail with the size of all lines up to an entry, in bytes, also of removed ones.
const TOTAL_DETAIL: &str = "total";

/// Returns the name of a writer's chain of calls.
pub(crate) fn chain_name(writer: &str) -> String {
    format!("{writer}{CHAIN_SUFFIX}")
}

/// Name, key and limit of a writer's chain of calls.
#[derive(Clone)]
pub(super) struct CallChain {
    name: String,
    run: Arc<str>,
    key: Arc<AuditKey>,
    anchor: PathBuf,
    bytes_max: u64,
}

impl CallChain {
    pub(super) fn new(
        options: &StoreOptions,
        run: &Arc<str>,
        key: Arc<AuditKey>,
        anchor: PathBuf,
    ) -> Self {
        Self {
            name: chain_name(&options.writer),
            run: Arc::clone(run),
            key,
            anchor,
            bytes_max: options.calls_bytes_max(),
        }
    }

    /// Returns the write that appends entries. `is_last` signs them, as no further ones come.
    pub(super) fn append(&self, entries: Vec<AuditEntry>, is_last: bool) -> AppendCalls {
        AppendCalls {
            chain: self.clone(),
            entries,
            is_last,
        }
    }

    /// Removes the oldest entries, up to a checkpoint, if the lines since then have reached the maximum. Each
    /// removal makes room for many appends.
    async fn remove_oldest(&self, tx: &mut Tx, total: u64) -> sqlx::Result<()> {
        let oldest = tx
            .db
            .row(
                "SELECT c.number, (SELECT line FROM audit AS a WHERE a.chain = c.chain AND a.number = c.number) \
                 FROM audit_checkpoint AS c WHERE c.chain = $1 \
                 AND c.number >= (SELECT min(number) FROM audit WHERE chain = $1) \
                 AND c.number < (SELECT max(number) FROM audit WHERE chain = $1) ORDER BY c.number LIMIT 1",
                &args![&self.name],
            )
            .await?;
        let Some(row) = oldest else { return Ok(()) };
        let (to, line): (i64, Option<String>) = (row.get(0)?, row.get(1)?);
        let before = line.map_or(0, |line| total_of(&line));
        if total.saturating_sub(before) >= self.bytes_max {
            remove_chain_start(tx, &self.name, to).await?;
        }
        Ok(())
    }

    /// Returns the size of all lines so far, and whether it is time for a checkpoint.
    async fn state(&self, db: &mut DbConnection, now_ms: i64) -> sqlx::Result<(u64, bool)> {
        let last = db
            .row(
                "SELECT line FROM audit WHERE chain = $1 ORDER BY number DESC LIMIT 1",
                &args![&self.name],
            )
            .await?;
        let total = match last {
            Some(row) => total_of(row.get(0)?),
            None => 0,
        };
        let signed_ms = db
            .number(
                "SELECT max(at_ms) FROM audit_checkpoint WHERE chain = $1",
                &args![&self.name],
            )
            .await?;
        Ok((total, now_ms.saturating_sub(signed_ms) >= SIGN_INTERVAL_MS))
    }
}

/// Text of an entry with lines about calls.
#[derive(Deserialize)]
struct ParsedCalls {
    #[serde(default)]
    more: ParsedDetails,
}

#[derive(Default, Deserialize)]
struct ParsedDetails {
    #[serde(default)]
    lines: Vec<String>,
    #[serde(default)]
    total: u64,
}

fn details_of(line: &str) -> ParsedDetails {
    let parsed = serde_json::from_str::<ParsedCalls>(line).ok();
    parsed.map(|parsed| parsed.more).unwrap_or_default()
}

fn total_of(line: &str) -> u64 {
    details_of(line).total
}

/// Write operation that appends entries to the chain of calls. Its output is the chain, whose checkpoint the anchor
/// file gets after the commit.
pub(super) struct AppendCalls {
    chain: CallChain,
    entries: Vec<AuditEntry>,
    is_last: bool,
}

impl WriteOp for AppendCalls {
    type Output = AuditChain;
    const NAME: &'static str = "audit.calls";
    const MAY_BE_OVERTAKEN: bool = false;

    fn bytes(&self) -> usize {
        let lines = self.entries.iter().flat_map(AuditEntry::call_lines);
        512 * self.entries.len() + lines.map(String::len).sum::<usize>()
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
        chain.head(&mut tx.db).await?;
        let (mut total, is_due) = of.state(&mut tx.db, tx.now_ms).await?;
        let entries = self.entries.iter().map(|entry| {
            let lines = entry.call_lines().iter();
            total += lines.map(|line| line.len() as u64).sum::<u64>();
            entry.clone().with_detail(TOTAL_DETAIL, total)
        });
        let entries: Vec<_> = entries.collect();
        let now_ms = tx.now_ms;
        chain
            .write(&mut tx.db, entries, now_ms, self.is_last || is_due)
            .await?;
        of.remove_oldest(tx, total).await?;
        Ok(chain)
    }
}

/// Filter for lines about calls. A line must match every field that is set.
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

/// Call that ended, as the audit has it.
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

    fn matches(&self, filter: &CallFilter) -> bool {
        let is = |wanted: &Option<String>, found: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted == found)
        };
        let id = self.principal.split_once(':').map_or("", |(_, id)| id);
        (is(&filter.principal, &self.principal) || is(&filter.principal, id))
            && is(&filter.agent, &self.agent)
            && is(&filter.tool, &self.tool)
            && is(&filter.call, &self.call)
            && filter
                .since
                .is_none_or(|since| self.at_ms >= to_unix_ms(since))
    }
}

/// Reads the newest lines about calls that match a filter, oldest first.
pub(super) async fn read_calls(
    core: &StoreCore,
    filter: &CallFilter,
) -> JournalResult<Vec<CallLine>> {
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
    let mut found = Vec::new();
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
            let lines = details_of(line).lines;
            let lines = lines.iter().rev().filter_map(|line| CallLine::parse(line));
            found.extend(lines.filter(|line| line.matches(filter)));
        }
        if found.len() >= filter.lines_max {
            break;
        }
    }
    found.truncate(filter.lines_max);
    found.reverse();
    Ok(found)
}
