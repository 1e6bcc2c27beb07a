//! Is a chain what was written? Pure: rows go in by pages, in order; memory is constant but for the anchor's lines.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use super::checkpoint::{Anchor, Checkpoint, Fault, Hash, NO_HASH, PublicKeys, chained};
use super::line::{CUT, Said, SaidCut};

/// A row of the audit as it was found.
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

/// The first thing that is wrong with a chain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuditFault {
    /// Entries are missing from this number on.
    #[error("entry {number}: it is missing")]
    Missing {
        /// The first that is missing.
        number: u64,
    },
    /// What an entry says, or what is kept beside it, isn't what was written.
    #[error("entry {number}: {what}")]
    Changed {
        /// The entry.
        number: u64,
        /// What of it.
        what: &'static str,
    },
    /// An entry is in another's place.
    #[error("entry {number}: its text is that of {says}")]
    Moved {
        /// The place.
        number: u64,
        /// Whose it is by its own words, `CHAIN:NUMBER`.
        says: String,
    },
    /// A checkpoint isn't of this chain, or was not signed by its key: what is before it may have been written anew.
    #[error("entry {number}: its checkpoint doesn't hold")]
    BadCheckpoint {
        /// The entry that it is of.
        number: u64,
    },
    /// A checkpoint was signed by a key that isn't among the public ones.
    #[error("entry {number}: its checkpoint was signed with {key_id}, which is no known key")]
    UnknownKey {
        /// The entry that it is of.
        number: u64,
        /// The key's name.
        key_id: String,
    },
    /// The chain isn't the one that the anchor tells of: it was written anew, checkpoints and all.
    #[error("entry {number}: it isn't what the anchor tells of")]
    NotAnchored {
        /// The entry that the anchor tells of.
        number: u64,
    },
    /// The end is missing.
    #[error("entry {}: the chain ends before it, though it went to {expected}", .last.saturating_add(1))]
    Truncated {
        /// The last entry that is there.
        last: u64,
        /// The one that was last, at the least.
        expected: u64,
    },
    /// An entry was added that the store never counted.
    #[error("entry {number}: it was added past the store")]
    Uncounted {
        /// The first of them.
        number: u64,
    },
}

impl AuditFault {
    /// The number of the entry that is named: the first that is bad, or that is missing.
    pub fn number(&self) -> u64 {
        match self {
            Self::Missing { number }
            | Self::Changed { number, .. }
            | Self::Moved { number, .. }
            | Self::BadCheckpoint { number }
            | Self::UnknownKey { number, .. }
            | Self::NotAnchored { number }
            | Self::Uncounted { number } => *number,
            Self::Truncated { last, .. } => last.saturating_add(1),
        }
    }
}

/// What became of one chain.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChainReport {
    /// Its name: the writer's.
    pub chain: String,
    /// The first entry that is there; those before it are past their retention. 0: there is none.
    pub first: u64,
    /// The last that was looked at, where all are good.
    pub last: u64,
    /// Checkpoints that hold.
    pub checkpoints: u64,
    /// The last entry that a checkpoint vouches for. Nothing proves that those after it are all that there were.
    pub signed_up_to: u64,
    /// The first thing that is wrong; what is behind it wasn't looked at.
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

/// Where a chain begins and ends by the store's own account, as of one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ends {
    /// What the store counted.
    pub(crate) counted: u64,
    /// The first and the last row, 0 where there are none. No store writes a row 0.
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// The oldest checkpoint: where entries before it were removed, the chain begins after it.
    pub(crate) base: Option<Checkpoint>,
    pub(crate) last_checkpoint: u64,
}

/// Goes along one chain.
pub(crate) struct ChainCheck<'a> {
    keys: &'a PublicKeys,
    anchored: HashMap<u64, &'a Checkpoint>,
    ends: Ends,
    last: u64,
    hash: Hash,
    /// Up to where chains were cut, by this one's word; and by entries that no checkpoint vouches for yet.
    cuts: Cuts,
    cuts_unsigned: Cuts,
    report: ChainReport,
}

/// The last entry of each chain that was removed on purpose.
pub(crate) type Cuts = BTreeMap<String, u64>;

impl<'a> ChainCheck<'a> {
    pub(crate) fn begin(
        chain: &'a str,
        ends: Ends,
        keys: &'a PublicKeys,
        anchor: &'a Anchor,
    ) -> Self {
        let anchored = anchor.of(chain).map(|line| (line.number, line)).collect();
        let report = ChainReport {
            chain: chain.to_owned(),
            first: ends.first,
            last: 0,
            checkpoints: 0,
            signed_up_to: 0,
            fault: None,
        };
        let (cuts, cuts_unsigned) = (Cuts::new(), Cuts::new());
        let mut check = Self {
            keys,
            anchored,
            last: 0,
            hash: NO_HASH,
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

    /// Entries up to a signed checkpoint were removed: it stands for them.
    fn begin_after(&mut self, base: &Checkpoint) {
        match <Hash>::try_from(base.hash.as_slice()) {
            Ok(hash) => (self.last, self.hash) = (base.number, hash),
            Err(_) => {
                self.report.fault = Some(AuditFault::BadCheckpoint {
                    number: base.number,
                })
            }
        }
        self.checkpoint(base);
        self.anchor();
    }

    /// The last number that was looked at: the next page begins after it.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Looks at rows in the order of their numbers, and the checkpoints of those numbers; `false` once something is wrong.
    pub(crate) fn page(
        &mut self,
        rows: &[AuditRow],
        checkpoints: &BTreeMap<u64, Checkpoint>,
    ) -> bool {
        for row in rows {
            if self.report.fault.is_some() || row.number > self.ends.last {
                break;
            }
            match self.entry(row) {
                Ok(hash) => (self.last, self.hash) = (row.number, hash),
                Err(fault) => {
                    self.report.fault = Some(fault);
                    break;
                }
            }
            if let Some(checkpoint) = checkpoints.get(&row.number) {
                self.checkpoint(checkpoint);
            }
            self.anchor();
        }
        self.report.fault.is_none()
    }

    fn entry(&mut self, row: &AuditRow) -> Result<Hash, AuditFault> {
        let number = row.number;
        if number != self.last + 1 {
            return Err(AuditFault::Missing {
                number: self.last + 1,
            });
        }
        let changed = |what| Err(AuditFault::Changed { number, what });
        let hash = chained(&self.hash, &row.line);
        let Ok(said) = serde_json::from_str::<Said<'_>>(&row.line) else {
            return changed("its text isn't an entry");
        };
        if said.chain != self.report.chain || said.number != number {
            return Err(AuditFault::Moved {
                number,
                says: format!("{}:{}", said.chain, said.number),
            });
        }
        if hash != row.hash.as_slice() {
            return changed("its text isn't what was hashed");
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
            return changed("what it is found by isn't what it says");
        }
        if said.event == CUT
            && let Ok(SaidCut { more }) = serde_json::from_str(&row.line)
        {
            self.cuts_unsigned
                .insert(more.chain.into_owned(), more.up_to);
        }
        Ok(hash)
    }

    /// A checkpoint of the entry that was looked at last.
    fn checkpoint(&mut self, checkpoint: &Checkpoint) {
        let number = checkpoint.number;
        let fault = match checkpoint.check(self.keys) {
            _ if self.report.fault.is_some() => return,
            Err(Fault::UnknownKey) => Some(AuditFault::UnknownKey {
                number,
                key_id: checkpoint.key_id.clone(),
            }),
            Ok(()) if checkpoint.hash == self.hash && checkpoint.chain == self.report.chain => None,
            Ok(()) | Err(Fault::Signature) => Some(AuditFault::BadCheckpoint { number }),
        };
        if fault.is_none() {
            self.report.checkpoints += 1;
            self.report.signed_up_to = number;
            self.cuts.append(&mut self.cuts_unsigned);
        }
        self.report.fault = fault;
    }

    fn anchor(&mut self) {
        let told = self.anchored.get(&self.last);
        if self.report.fault.is_none() && told.is_some_and(|told| told.hash != self.hash) {
            self.report.fault = Some(AuditFault::NotAnchored { number: self.last });
        }
    }

    /// After the last page. What the chain says of cuts is for [`settle`].
    pub(crate) fn end(mut self) -> (ChainReport, Cuts) {
        let Ends {
            counted,
            last,
            last_checkpoint,
            ..
        } = self.ends;
        self.report.last = self.last;
        if self.report.fault.is_none() {
            let anchored = self.anchored.keys().copied().max().unwrap_or_default();
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

/// The reports of all chains of a store, or of the wanted one. Where one begins after its first entry, somebody must have signed
/// for the cut.
pub(crate) fn settle(checked: Vec<(ChainReport, Cuts)>, wanted: Option<&str>) -> Vec<ChainReport> {
    let mut cuts = Cuts::new();
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
        // Of one without entries, a checkpoint alone may be left.
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
