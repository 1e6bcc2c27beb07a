//! Verification of an audit chain, without I/O. Rows are passed in by pages, in order. Memory use
//! is constant except for the anchor's lines.

use std::collections::BTreeMap;
use std::fmt;

use callboard_message::encode_hex;
use callboard_message::time::format_rfc3339;

use super::checkpoint::{
    Anchor, ChainHash, Checkpoint, CheckpointFault, GENESIS_HASH, PublicKeys, chain_hash,
};
use super::entry_line::{CUT_EVENT, ParsedCut, ParsedLine};
use crate::sql::from_unix_ms;

/// Audit row as read from the store.
#[derive(Debug, Clone)]
pub(crate) struct AuditRow {
    pub(crate) number: u64,
    pub(crate) at_ms: i64,
    pub(crate) event: String,
    pub(crate) agent: Option<String>,
    pub(crate) principal: Option<String>,
    pub(crate) call_id: Option<String>,
    pub(crate) class: String,
    pub(crate) line: String,
    pub(crate) hash: Vec<u8>,
}

/// First defect found in an audit chain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuditFault {
    /// One or more entries are missing.
    #[error("entry {number}: it is missing, though later entries or checkpoints exist")]
    Missing {
        /// Number of the first missing entry.
        number: u64,
    },
    /// The text of an entry, its hash, or a column of its row was changed.
    #[error("entry {number}: {what}")]
    Changed {
        /// Number of the entry.
        number: u64,
        /// Part of the entry that was changed.
        what: &'static str,
    },
    /// The text of an entry states another chain or number than its row.
    #[error("entry {number}: it holds the text of entry {says}")]
    Moved {
        /// Number of the row that holds the entry.
        number: u64,
        /// Position according to the entry's own text: `CHAIN:NUMBER`.
        says: String,
    },
    /// The signature or hash of a checkpoint is wrong. Entries up to it may have been rewritten.
    #[error("entry {number}: its checkpoint has a wrong signature or hash")]
    BadCheckpoint {
        /// Number of the checkpoint's entry.
        number: u64,
    },
    /// A checkpoint was signed with a key that isn't among the known public keys.
    #[error(
        "entry {number}: its checkpoint was signed with the key {key_id}, which isn't in the file of public keys"
    )]
    UnknownKey {
        /// Number of the checkpoint's entry.
        number: u64,
        /// Id of the signing key.
        key_id: String,
    },
    /// The chain differs from a checkpoint in the anchor file: it was rewritten, including its
    /// checkpoints, or an older store was restored and continued, and hasn't signed this entry again.
    #[error(
        "entry {number}: it differs from the checkpoint in the anchor file: either an older store was restored and \
         continued, or the chain was rewritten; if no restore is known, treat it as the latter. After a restore, keep the \
         store that was replaced, and put the anchor file from the time of the backup in place of this one"
    )]
    NotAnchored {
        /// Number of the entry that the anchor's checkpoint covers.
        number: u64,
    },
    /// The anchor file has two signed checkpoints of one entry with different hashes: an older store was
    /// restored beside a newer anchor and continued, or the chain was rewritten with the key.
    #[error(
        "entry {number}: the anchor file has two checkpoints of it, {} and {}: either an older store was restored and \
         continued, or the chain was rewritten with the key; if no restore is known, treat it as the latter. After a \
         restore, keep the store that was replaced, and put the anchor file from the time of the backup in place of this one",
        .anchors[0], .anchors[1]
    )]
    Forked {
        /// Number of the first entry with two checkpoints.
        number: u64,
        /// Both checkpoints, in the order of the file: hash in hexadecimal, ` of `, and the time of
        /// the signature (RFC 3339).
        anchors: [String; 2],
    },
    /// Entries at the end of the chain are missing.
    #[error("entry {}: it and all others up to {expected} are missing at the end of the chain", .last.saturating_add(1))]
    Truncated {
        /// Number of the last entry that exists.
        last: u64,
        /// Minimum number of the last entry, as the store's counter or a checkpoint shows.
        expected: u64,
    },
    /// An entry has a number above the store's own counter, so it wasn't written by the store.
    #[error("entry {number}: it is beyond the store's counter, so the store didn't write it")]
    Uncounted {
        /// Number of the first entry above the counter.
        number: u64,
    },
}

impl AuditFault {
    /// Returns the number of the entry at which the defect was found.
    pub fn number(&self) -> u64 {
        match self {
            Self::Missing { number }
            | Self::Changed { number, .. }
            | Self::Moved { number, .. }
            | Self::BadCheckpoint { number }
            | Self::UnknownKey { number, .. }
            | Self::NotAnchored { number }
            | Self::Forked { number, .. }
            | Self::Uncounted { number } => *number,
            Self::Truncated { last, .. } => last.saturating_add(1),
        }
    }
}

/// Result of the verification of one audit chain.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChainReport {
    /// Name of the chain: the writer name.
    pub chain: String,
    /// Number of the first existing entry, 0 if there is none. Entries before it were removed after
    /// their retention.
    pub first: u64,
    /// Number of the last entry that was verified.
    pub last: u64,
    /// Number of valid checkpoints.
    pub checkpoints: u64,
    /// Number of the last entry covered by a valid checkpoint. A removal of later entries may stay
    /// undetected.
    pub signed_up_to: u64,
    /// First defect, at which verification stopped; `None` if the chain is intact.
    pub fault: Option<AuditFault>,
}

impl fmt::Display for ChainReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            chain,
            first,
            last,
            checkpoints,
            signed_up_to,
            fault,
        } = self;
        match fault {
            Some(fault) => write!(f, "bad {chain} {fault}"),
            None => {
                write!(
                    f,
                    "ok {chain} {first}..{last} entries, {checkpoints} checkpoints, signed up to {signed_up_to}"
                )
            }
        }
    }
}

/// Bounds of an audit chain as the store states them, all read in one snapshot.
#[derive(Debug, Clone, Default)]
pub(crate) struct ChainBounds {
    /// Last number of the chain's counter in the store.
    pub(crate) counted: u64,
    /// Number of the first row, 0 if there is none. The store writes no row 0.
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// Oldest checkpoint. If old entries were removed, the remaining ones are verified from it.
    pub(crate) base: Option<Checkpoint>,
    pub(crate) last_checkpoint: u64,
}

/// Verification of one audit chain in progress.
pub(crate) struct ChainVerifier<'a> {
    keys: &'a PublicKeys,
    anchored: BTreeMap<u64, &'a Checkpoint>,
    fork: Option<AnchorFork<'a>>,
    ends: ChainBounds,
    last: u64,
    hash: ChainHash,
    /// Recorded removals of old entries, by chain, that a checkpoint of this chain covers. The next
    /// field has those not yet covered.
    cuts: ChainCuts,
    cuts_unsigned: ChainCuts,
    report: ChainReport,
}

/// Number of the last removed entry of each audit chain.
pub(crate) type ChainCuts = BTreeMap<String, u64>;

impl<'a> ChainVerifier<'a> {
    pub(crate) fn begin(
        chain: &'a str,
        ends: ChainBounds,
        keys: &'a PublicKeys,
        anchor: &'a Anchor,
    ) -> Self {
        let (anchored, fork) = read_anchored(anchor.of(chain));
        let report = ChainReport {
            chain: chain.to_owned(),
            first: ends.first,
            last: 0,
            checkpoints: 0,
            signed_up_to: 0,
            fault: None,
        };
        let (cuts, cuts_unsigned) = (ChainCuts::new(), ChainCuts::new());
        let mut check = Self {
            keys,
            anchored,
            fork,
            last: 0,
            hash: GENESIS_HASH,
            cuts,
            cuts_unsigned,
            report,
            ends,
        };
        let base = check
            .ends
            .base
            .take()
            .filter(|base| base.number < check.ends.first || check.ends.first == 0);
        if let Some(base) = base {
            check.begin_after(&base);
        }
        if check.ends.first == 0 && check.ends.last > 0 {
            check.report.fault = Some(AuditFault::Uncounted { number: 0 });
        }
        check
    }

    /// Starts the verification at a checkpoint, because the entries before it were removed.
    fn begin_after(&mut self, base: &Checkpoint) {
        match <ChainHash>::try_from(base.hash.as_slice()) {
            Ok(hash) => (self.last, self.hash) = (base.number, hash),
            Err(_) => {
                self.report.fault = Some(AuditFault::BadCheckpoint {
                    number: base.number,
                })
            }
        }
        self.check_checkpoint(base);
        self.check_anchor();
    }

    /// Returns the number of the last verified entry; the next page begins after it.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Verifies the next rows in the order of their numbers. `checkpoints` are those of these rows,
    /// by number. Returns `false` once a defect was found.
    pub(crate) fn check_page(
        &mut self,
        rows: &[AuditRow],
        checkpoints: &BTreeMap<u64, Checkpoint>,
    ) -> bool {
        for row in rows {
            if self.report.fault.is_some() || row.number > self.ends.last {
                break;
            }
            match self.check_entry(row) {
                Ok(hash) => (self.last, self.hash) = (row.number, hash),
                Err(fault) => {
                    self.report.fault = Some(fault);
                    break;
                }
            }
            if let Some(checkpoint) = checkpoints.get(&row.number) {
                self.check_checkpoint(checkpoint);
            }
            self.check_anchor();
        }
        self.report.fault.is_none()
    }

    fn check_entry(&mut self, row: &AuditRow) -> Result<ChainHash, AuditFault> {
        let number = row.number;
        if number != self.last + 1 {
            return Err(AuditFault::Missing {
                number: self.last + 1,
            });
        }
        let changed = |what| Err(AuditFault::Changed { number, what });
        let hash = chain_hash(&self.hash, &row.line);
        let Ok(said) = serde_json::from_str::<ParsedLine<'_>>(&row.line) else {
            return changed("its text isn't an entry");
        };
        if said.chain != self.report.chain || said.number != number {
            return Err(AuditFault::Moved {
                number,
                says: format!("{}:{}", said.chain, said.number),
            });
        }
        if hash != row.hash.as_slice() {
            return changed("its hash doesn't match its text");
        }
        let beside = [
            (said.agent.as_deref(), row.agent.as_deref()),
            (
                said.principal.as_ref().map(|who| &*who.id),
                row.principal.as_deref(),
            ),
            (said.call.as_deref(), row.call_id.as_deref()),
            (Some(&*said.class), Some(row.class.as_str())),
            (Some(&*said.event), Some(row.event.as_str())),
        ];
        if said.at_ms != row.at_ms || beside.iter().any(|(said, kept)| said != kept) {
            return changed("its columns don't match its text");
        }
        if said.event == CUT_EVENT
            && let Ok(ParsedCut { more }) = serde_json::from_str(&row.line)
        {
            self.cuts_unsigned
                .insert(more.chain.into_owned(), more.up_to);
        }
        Ok(hash)
    }

    /// Verifies a checkpoint that covers the chain up to the last verified entry.
    fn check_checkpoint(&mut self, checkpoint: &Checkpoint) {
        let number = checkpoint.number;
        let fault = match checkpoint.check(self.keys) {
            _ if self.report.fault.is_some() => return,
            Err(CheckpointFault::UnknownKey) => Some(AuditFault::UnknownKey {
                number,
                key_id: checkpoint.key_id.clone(),
            }),
            Ok(()) if checkpoint.hash == self.hash && checkpoint.chain == self.report.chain => None,
            Ok(()) | Err(CheckpointFault::Signature) => Some(AuditFault::BadCheckpoint { number }),
        };
        if fault.is_none() {
            self.report.checkpoints += 1;
            self.report.signed_up_to = number;
            self.cuts.append(&mut self.cuts_unsigned);
        }
        self.report.fault = fault;
    }

    /// Compares the last verified entry with the anchor. If the anchor has two histories, an entry that
    /// both signed is a fork, and one that only the other signed isn't anchored. A fork is also reported
    /// if its entry was removed after its retention.
    fn check_anchor(&mut self) {
        if self.report.fault.is_some() {
            return;
        }
        let fork = self.fork.filter(|[first, _]| first.number <= self.last);
        let told = self.anchored.get(&self.last);
        self.report.fault = match (fork, told) {
            (Some([first, second]), _) => Some(AuditFault::Forked {
                number: first.number,
                anchors: [first, second].map(anchor_text),
            }),
            (None, Some(told)) if told.hash != self.hash => {
                Some(AuditFault::NotAnchored { number: self.last })
            }
            (None, _) => None,
        };
    }

    /// Ends the verification after the last page. Returns the report, and the removals that this
    /// chain records under a valid checkpoint, which [`verify_cuts`] needs. Unsigned ones don't
    /// count.
    pub(crate) fn finish(mut self) -> (ChainReport, ChainCuts) {
        let ChainBounds {
            counted,
            last,
            last_checkpoint,
            ..
        } = self.ends;
        self.report.last = self.last;
        if self.report.fault.is_none() {
            let anchored = self
                .anchored
                .last_key_value()
                .map_or(0, |(number, _)| *number);
            let expected = counted.max(last).max(last_checkpoint).max(anchored);
            if expected > self.last {
                self.report.fault = Some(AuditFault::Truncated {
                    last: self.last,
                    expected,
                });
            } else if self.last > counted {
                self.report.fault = Some(AuditFault::Uncounted {
                    number: counted + 1,
                });
            }
        }
        (self.report, self.cuts)
    }
}

/// Two checkpoints of one number with different hashes.
type AnchorFork<'a> = [&'a Checkpoint; 2];

/// Returns the first checkpoint of each number, and the fork at the lowest number that has one.
fn read_anchored<'a>(
    lines: impl Iterator<Item = &'a Checkpoint>,
) -> (BTreeMap<u64, &'a Checkpoint>, Option<AnchorFork<'a>>) {
    let mut anchored = BTreeMap::new();
    let mut fork: Option<AnchorFork<'a>> = None;
    for line in lines {
        let first: &'a Checkpoint = anchored.entry(line.number).or_insert(line);
        let is_lowest = fork.is_none_or(|[forked, _]| line.number < forked.number);
        if first.hash != line.hash && is_lowest {
            fork = Some([first, line]);
        }
    }
    (anchored, fork)
}

/// Formats a checkpoint of the anchor for [`AuditFault::Forked`].
fn anchor_text(checkpoint: &Checkpoint) -> String {
    let at = format_rfc3339(from_unix_ms(checkpoint.at_ms));
    format!("{} of {at}", encode_hex(&checkpoint.hash))
}

/// Checks removals across chains and returns the reports: of all chains, or only of the `wanted`
/// one. A chain that doesn't begin with its first entry gets [`AuditFault::Missing`], unless a
/// signed entry of some chain records the removal.
pub(crate) fn verify_cuts(
    checked: Vec<(ChainReport, ChainCuts)>,
    wanted: Option<&str>,
) -> Vec<ChainReport> {
    let mut cuts = ChainCuts::new();
    let mut reports = Vec::with_capacity(checked.len());
    for (report, told) in checked {
        for (chain, up_to) in told {
            let cut = cuts.entry(chain).or_default();
            *cut = up_to.max(*cut);
        }
        if wanted.is_none_or(|wanted| report.chain == wanted) {
            reports.push(report);
        }
    }
    for report in &mut reports {
        let cut = cuts.get(&report.chain).copied().unwrap_or_default();
        // A chain without entries may have a checkpoint left.
        let first = if report.first == 0 {
            report.last + 1
        } else {
            report.first
        };
        if report.fault.is_none() && first > cut + 1 {
            report.fault = Some(AuditFault::Missing { number: cut + 1 });
        }
    }
    reports
}

#[cfg(test)]
#[path = "verify_tests.rs"]
mod tests;
