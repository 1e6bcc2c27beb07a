//! Reading the audit onward from a position, for a continuous export.

use std::collections::BTreeMap;
use std::time::SystemTime;

use callboard_message::encode_hex;
use callboard_runtime::{JournalError, JournalResult};
use serde::{Deserialize, Serialize};

use super::calls::is_call_chain;
use super::query::{AuditLine, audit_line};
use crate::backend::PAGE_ROWS_MAX;
use crate::read_only_store::ReadOnlyStore;
use crate::sql::{Row, args};
use crate::store_core::StoreCore;

/// Position of a reader in the audit: for each chain the number of the last entry that was read, and
/// its hash. A chain without a number is read from its first entry. In JSON, an object with a member
/// for each chain: `{"number": N, "hash": "…"}`, or the number alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AuditCursor(BTreeMap<String, ChainPosition>);

/// Position in one chain.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "WrittenPosition")]
struct ChainPosition {
    /// Number of the last entry that was read; 0 before the first.
    number: u64,
    /// Hash of that entry, in hexadecimal; `None` if it isn't known.
    #[serde(skip_serializing_if = "Option::is_none")]
    hash: Option<String>,
}

/// Position in one chain, as JSON has it.
#[derive(Deserialize)]
#[serde(untagged)]
enum WrittenPosition {
    Number(u64),
    WithHash {
        number: u64,
        #[serde(default)]
        hash: Option<String>,
    },
}

impl From<WrittenPosition> for ChainPosition {
    fn from(written: WrittenPosition) -> Self {
        match written {
            WrittenPosition::Number(number) => Self { number, hash: None },
            WrittenPosition::WithHash { number, hash } => Self { number, hash },
        }
    }
}

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
    /// The entry at the position is another one than the one that was read, so entries could be missed.
    #[error(
        "entry {position} of the audit chain {chain:?} isn't the one that was read last: \
         the position is of another store, or the store was restored from a backup"
    )]
    Changed {
        /// Name of the chain.
        chain: String,
        /// Number of the entry that was read last.
        position: u64,
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
                let number = first.max(1).unsigned_abs() - 1;
                let hash = entry_hash(core, chain, number).await?;
                *last = ChainPosition { number, hash };
            }
        }
        Ok(Self(position))
    }

    /// Reads the entries that follow this position, also those of chains that are new since.
    /// Entries with lines about calls are left out unless `with_calls`: the position moves past them.
    ///
    /// # Errors
    /// [`AuditFollowError::Ahead`] and [`AuditFollowError::Changed`] if the position isn't one of this
    /// store; errors of the store.
    pub async fn read_next(
        &self,
        store: &ReadOnlyStore,
        with_calls: bool,
    ) -> Result<AuditPage, AuditFollowError> {
        const NEXT: &str = "SELECT chain, number, at_ms, line, hash FROM audit \
            WHERE chain = $1 AND number > $2 AND number <= $3 ORDER BY number LIMIT $4";
        let core = &*store.core;
        let mut ends = chain_ends(core).await?;
        for chain in self.0.keys() {
            ends.entry(chain.clone()).or_default();
        }
        let mut page = AuditPage {
            entries: Vec::new(),
            removed: 0,
            cursor: self.clone(),
            has_more: false,
        };
        let mut unread = Vec::new();
        for (chain, last) in ends {
            let position = self.0.get(&chain).cloned().unwrap_or_default();
            position.check(core, &chain, last.number).await?;
            if position.number == last.number {
                continue;
            }
            match with_calls || !is_call_chain(&chain) {
                true => unread.push((chain, position.number, last)),
                false => drop(page.cursor.0.insert(chain, last)),
            }
        }
        // Each chain has the same share, so that a busy one doesn't delay the others.
        let share = (PAGE_ROWS_MAX / unread.len().max(1)).max(1);
        for (chain, position, last) in unread {
            let rows = args![&chain, position, last.number, share];
            let read = |row: &Row| Ok((audit_line(row)?, encode_hex(&row.get::<Vec<u8>>(4)?)));
            let entries = core.readers.read(NEXT, &rows, read).await?;
            let is_full = entries.len() >= share;
            page.add(chain, position, last, entries, is_full);
        }
        Ok(page)
    }
}

impl ChainPosition {
    /// Checks that the position is in a chain which ends at the number `last`: its entry has the hash
    /// that was read, unless it was removed.
    async fn check(
        &self,
        core: &StoreCore,
        chain: &str,
        last: u64,
    ) -> Result<(), AuditFollowError> {
        if self.number > last {
            return Err(AuditFollowError::Ahead {
                chain: chain.to_owned(),
                position: self.number,
                last,
            });
        }
        if self.hash.is_none() {
            return Ok(());
        }
        let found = entry_hash(core, chain, self.number).await?;
        match found.is_none() || found == self.hash {
            true => Ok(()),
            false => Err(AuditFollowError::Changed {
                chain: chain.to_owned(),
                position: self.number,
            }),
        }
    }
}

impl AuditPage {
    /// Adds the entries of a chain with numbers above `position` up to `last`, each with its hash: all
    /// that there are, or the first of them if `is_full`.
    fn add(
        &mut self,
        chain: String,
        position: u64,
        last: ChainPosition,
        entries: Vec<(AuditLine, String)>,
        is_full: bool,
    ) {
        let end = last.number;
        let read = match entries.last() {
            Some((entry, hash)) if is_full || entry.number == end => ChainPosition {
                number: entry.number,
                hash: Some(hash.clone()),
            },
            // Numbers have no gaps, so further entries were removed.
            _ => last,
        };
        let numbers = read.number.saturating_sub(position);
        self.removed += numbers.saturating_sub(entries.len() as u64);
        self.has_more |= read.number < end;
        self.cursor.0.insert(chain, read);
        self.entries
            .extend(entries.into_iter().map(|(entry, _)| entry));
    }
}

/// Returns the position after the last entry of each chain, whether or not the entry was removed.
async fn chain_ends(core: &StoreCore) -> JournalResult<BTreeMap<String, ChainPosition>> {
    const ENDS: &str = "SELECT substr(name, 3), last, (SELECT hash FROM audit WHERE chain = substr(stream.name, 3) \
        AND number = stream.last) FROM stream WHERE name LIKE 'a/%'";
    let ends = core
        .readers
        .read(ENDS, &[], |row| {
            let position = ChainPosition {
                number: row.get(1)?,
                hash: row.get::<Option<&[u8]>>(2)?.map(encode_hex),
            };
            Ok((row.get::<String>(0)?, position))
        })
        .await?;
    Ok(ends.into_iter().collect())
}

/// Returns the hash of an entry, in hexadecimal; `None` if there is no such entry.
async fn entry_hash(core: &StoreCore, chain: &str, number: u64) -> JournalResult<Option<String>> {
    const HASH: &str = "SELECT hash FROM audit WHERE chain = $1 AND number = $2";
    let found = core
        .readers
        .read(HASH, &args![chain, number], |row| row.get::<Vec<u8>>(0))
        .await?;
    Ok(found.first().map(|hash| encode_hex(hash)))
}
