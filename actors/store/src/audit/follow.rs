//! Reading the audit onward from a position, for a continuous export.

use std::collections::BTreeMap;
use std::time::SystemTime;

use callboard_runtime::{JournalError, JournalResult};
use serde::{Deserialize, Serialize};

use super::calls::is_call_chain;
use super::query::{AuditLine, audit_line};
use crate::backend::PAGE_ROWS_MAX;
use crate::read_only_store::ReadOnlyStore;
use crate::sql::args;
use crate::store_core::StoreCore;

/// Position of a reader in the audit: for each chain the number of the last entry that was read. A
/// chain without a number is read from its first entry. In JSON, an object with a member for each
/// chain.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AuditCursor(BTreeMap<String, u64>);

/// Entries that follow an [`AuditCursor`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuditPage {
    /// Entries, one chain after another, those of a chain in order. At most [`PAGE_ROWS_MAX`], or
    /// one of each chain if there are more chains.
    pub entries: Vec<AuditLine>,
    /// Number of entries that retention removed before they were read.
    pub removed: u64,
    /// Position after these entries.
    pub cursor: AuditCursor,
    /// Whether there are more entries than the page has room for.
    pub has_more: bool,
}

/// Error of reading the audit onward.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuditFollowError {
    /// The store can't be read.
    #[error(transparent)]
    Store(#[from] JournalError),
    /// The position is after the end of a chain, so entries could be missed.
    #[error(
        "the position in the audit chain {chain:?} is entry {position}, but the chain ends at entry {last}: \
         the position is of another store, or the store was restored from a backup"
    )]
    Ahead {
        /// Name of the chain.
        chain: String,
        /// Number of the entry that was read last.
        position: u64,
        /// Number of the chain's last entry; 0 if there is no such chain.
        last: u64,
    },
}

impl AuditCursor {
    /// Returns the position after the last entry of each chain.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn at_end(store: &ReadOnlyStore) -> JournalResult<Self> {
        Ok(Self(chain_ends(&store.core).await?))
    }

    /// Returns the position before the first entry of each chain that isn't older than `since`.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn since(store: &ReadOnlyStore, since: SystemTime) -> JournalResult<Self> {
        const FIRST: &str = "SELECT min(number) FROM audit WHERE chain = $1 AND at_ms >= $2";
        let core = &*store.core;
        let mut position = chain_ends(core).await?;
        for (chain, last) in &mut position {
            let first = core
                .readers
                .read(FIRST, &args![chain, since], |row| row.get::<Option<i64>>(0))
                .await?;
            if let Some(first) = first.into_iter().flatten().next() {
                *last = first.max(1).unsigned_abs() - 1;
            }
        }
        Ok(Self(position))
    }

    /// Reads the entries that follow this position, also those of chains that are new since.
    /// Entries with lines about calls are left out unless `with_calls`.
    ///
    /// # Errors
    /// [`AuditFollowError::Ahead`] if the position isn't one of this store; errors of the store.
    pub async fn read_next(
        &self,
        store: &ReadOnlyStore,
        with_calls: bool,
    ) -> Result<AuditPage, AuditFollowError> {
        const NEXT: &str = "SELECT chain, number, at_ms, line FROM audit \
            WHERE chain = $1 AND number > $2 AND number <= $3 ORDER BY number LIMIT $4";
        let core = &*store.core;
        let mut ends = chain_ends(core).await?;
        for chain in self.0.keys() {
            ends.entry(chain.clone()).or_default();
        }
        ends.retain(|chain, _| with_calls || !is_call_chain(chain));
        // Each chain has the same share, so that a busy one doesn't delay the others.
        let share = (PAGE_ROWS_MAX / ends.len().max(1)).max(1);
        let mut page = AuditPage {
            entries: Vec::new(),
            removed: 0,
            cursor: self.clone(),
            has_more: false,
        };
        for (chain, last) in ends {
            let position = self.0.get(&chain).copied().unwrap_or_default();
            if position > last {
                return Err(AuditFollowError::Ahead {
                    chain,
                    position,
                    last,
                });
            }
            if position < last {
                let rows = args![&chain, position, last, share];
                let entries = core.readers.read(NEXT, &rows, audit_line).await?;
                let is_full = entries.len() >= share;
                page.add(chain, position, last, entries, is_full);
            }
        }
        Ok(page)
    }
}

impl AuditPage {
    /// Adds the entries of a chain with numbers above `position` up to `last`: all that there are,
    /// or the first of them if `is_full`.
    fn add(
        &mut self,
        chain: String,
        position: u64,
        last: u64,
        entries: Vec<AuditLine>,
        is_full: bool,
    ) {
        let read = match entries.last() {
            Some(entry) if is_full => entry.number,
            // Numbers have no gaps, so further entries were removed.
            _ => last,
        };
        let numbers = read.saturating_sub(position);
        self.removed += numbers.saturating_sub(entries.len() as u64);
        self.has_more |= read < last;
        self.cursor.0.insert(chain, read);
        self.entries.extend(entries);
    }
}

/// Returns the number of the last entry of each chain, whether or not it was removed.
async fn chain_ends(core: &StoreCore) -> JournalResult<BTreeMap<String, u64>> {
    const ENDS: &str = "SELECT substr(name, 3), last FROM stream WHERE name LIKE 'a/%'";
    let ends = core
        .readers
        .read(ENDS, &[], |row| {
            Ok((row.get::<String>(0)?, row.get::<u64>(1)?))
        })
        .await?;
    Ok(ends.into_iter().collect())
}
