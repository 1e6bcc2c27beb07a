//! Counters of quotas in memory, and their relation to the store's.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use callboard_message::{PrincipalKind, encode_hex};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::window::{QuotaWindow, WindowSpan};

/// Maximum number of counters in memory, of all quotas and principals. While there are as many that can't be
/// dropped, further principals share one counter of each quota.
pub const QUOTA_COUNTERS_MAX: usize = 65_536;
/// Time for which an idle counter counts as the store's before it is read again.
const COUNTER_AGE_MAX: Duration = Duration::from_secs(1);
/// Interval at which counters that the store has too are dropped while there are [`QUOTA_COUNTERS_MAX`].
const COUNTER_EVICTION_INTERVAL: Duration = Duration::from_secs(1);
/// Interval at which counters that the store has no room for are written again.
const FULL_SPACE_RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// Calls, tokens, and money in millionths of a US dollar.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Usage {
    pub calls: u64,
    pub tokens: u64,
    pub micro_usd: u64,
}

/// Change of a usage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct UsageChange {
    pub calls: i64,
    pub tokens: i64,
    pub micro_usd: i64,
}

impl Usage {
    fn with(self, change: UsageChange) -> Self {
        Self {
            calls: self.calls.saturating_add_signed(change.calls),
            tokens: self.tokens.saturating_add_signed(change.tokens),
            micro_usd: self.micro_usd.saturating_add_signed(change.micro_usd),
        }
    }
}

impl UsageChange {
    /// Change by calls alone.
    pub fn of_calls(calls: i64) -> Self {
        Self {
            calls,
            ..Self::default()
        }
    }

    pub fn is_none(self) -> bool {
        self == Self::default()
    }

    fn plus(self, other: Self) -> Self {
        Self {
            calls: self.calls.saturating_add(other.calls),
            tokens: self.tokens.saturating_add(other.tokens),
            micro_usd: self.micro_usd.saturating_add(other.micro_usd),
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            calls: self.calls.saturating_sub(other.calls),
            tokens: self.tokens.saturating_sub(other.tokens),
            micro_usd: self.micro_usd.saturating_sub(other.micro_usd),
        }
    }
}

/// Owner of a counter.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum CounterOwner {
    /// All principals to which the quota applies.
    All,
    /// One principal, by kind and id.
    Principal(PrincipalKind, String),
    /// Principals without a counter of their own, because there are too many.
    Others,
}

impl CounterOwner {
    /// Returns the name in the store's entry: kind and id, or a word that is none.
    pub fn name(&self) -> String {
        match self {
            Self::All => "all".to_owned(),
            Self::Principal(kind, id) => format!("{kind}:{id}"),
            Self::Others => "others".to_owned(),
        }
    }

    /// Returns the key of the store's entry: a hash, because ids may be longer than keys.
    pub fn store_key(&self) -> String {
        match self {
            Self::Principal(..) => encode_hex(&Sha256::digest(self.name())[..16]),
            Self::All | Self::Others => self.name(),
        }
    }
}

/// Key of a counter.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct CounterKey {
    /// Id of the quota.
    pub quota: Arc<str>,
    pub window: QuotaWindow,
    pub owner: CounterOwner,
}

/// Counter as the store has it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StoredUsage {
    /// Version of the entry; 0 if there is none.
    pub version: u64,
    /// Beginning of the window that the usage is of, in seconds since the Unix epoch.
    pub start_s: u64,
    pub usage: Usage,
}

/// Counter of the current window.
#[derive(Debug)]
pub(super) struct Counter {
    pub span: WindowSpan,
    /// Usage that the store had last.
    stored: Usage,
    /// Version of the store's entry; 0 if there is none.
    version: u64,
    /// Time at which the store's entry was read or written; `None` if it is unknown.
    synced: Option<Instant>,
    /// Usage that isn't stored yet.
    pending: UsageChange,
    /// Entry of the last write of which it is unknown whether it was made.
    unconfirmed: Option<CounterDraft>,
}

impl Counter {
    fn new(span: WindowSpan) -> Self {
        Self {
            span,
            stored: Usage::default(),
            version: 0,
            synced: None,
            pending: UsageChange::default(),
            unconfirmed: None,
        }
    }

    pub fn used(&self) -> Usage {
        self.stored.with(self.pending)
    }

    pub fn add(&mut self, change: UsageChange) {
        self.pending = self.pending.plus(change);
    }

    /// Returns whether the store's entry must be read before the usage is known to a call that began at `begun`;
    /// with `None`, any known usage will do. Changes that aren't written yet are written soon, which reads it too.
    pub fn needs_read(&self, begun: Option<Instant>) -> bool {
        let is_old = |at: Instant| {
            begun.is_some_and(|begun| begun.saturating_duration_since(at) >= COUNTER_AGE_MAX)
        };
        self.synced.is_none_or(|at| !self.is_dirty() && is_old(at))
    }

    fn is_dirty(&self) -> bool {
        !self.pending.is_none()
    }

    /// Takes over what was read from the store. What was counted in an earlier window doesn't count in the window
    /// of the entry.
    fn adopt(&mut self, window: QuotaWindow, read: StoredUsage, now_s: u64) {
        if let Some(draft) = self
            .unconfirmed
            .take()
            .filter(|draft| draft.is_stored(&read))
        {
            return self.settle(&draft, read.version);
        }
        let mut span = window.span_from(now_s, self.span);
        if read.start_s > span.start_s {
            let later = window.span_at(read.start_s);
            if window.may_be_current(later, now_s) {
                span = later;
            }
        }
        if span != self.span {
            *self = Self::new(span);
        }
        self.stored = match read.start_s == span.start_s {
            true => read.usage,
            false => Usage::default(),
        };
        self.version = read.version;
        self.synced = Some(Instant::now());
    }

    fn settle(&mut self, draft: &CounterDraft, version: u64) {
        self.pending = self.pending.minus(draft.change);
        self.stored = draft.usage;
        self.version = version;
        self.synced = Some(Instant::now());
        self.unconfirmed = None;
    }
}

/// Entry to be written for a counter.
#[derive(Debug, Clone, Copy)]
pub(super) struct CounterDraft {
    pub span: WindowSpan,
    pub usage: Usage,
    /// Version that the entry has.
    pub version: u64,
    /// Part of the usage that the store doesn't have.
    change: UsageChange,
}

impl CounterDraft {
    /// Returns whether this is what the store has.
    fn is_stored(&self, read: &StoredUsage) -> bool {
        (read.version, read.start_s, read.usage)
            == (self.version + 1, self.span.start_s, self.usage)
    }
}

/// Counters of all quotas.
#[derive(Debug, Default)]
pub(super) struct Counters {
    by_key: HashMap<CounterKey, Counter>,
    /// Time of the last eviction.
    evicted: Option<Instant>,
    /// Times at which the store had no room for more counters of a quota, by its id.
    full: HashMap<Arc<str>, Instant>,
    /// Whether a task writes changes to the store.
    pub has_writer: bool,
}

impl Counters {
    /// Returns the key under which an owner counts: its own, or the shared one if there is no room.
    pub fn place(&mut self, own: CounterKey, now_s: u64) -> CounterKey {
        let has_place = own.owner == CounterOwner::All
            || self.by_key.contains_key(&own)
            || self.has_room(now_s);
        match has_place {
            true => own,
            false => CounterKey {
                owner: CounterOwner::Others,
                ..own
            },
        }
    }

    fn has_room(&mut self, now_s: u64) -> bool {
        let is_due = || {
            let last = self.evicted;
            last.is_none_or(|at| at.elapsed() >= COUNTER_EVICTION_INTERVAL)
        };
        if self.by_key.len() >= QUOTA_COUNTERS_MAX && is_due() {
            let now = Some(Instant::now());
            self.evicted = now;
            // The store has the others, or nobody needs them any more.
            self.by_key.retain(|_, counter| {
                counter.span.end_s > now_s && (counter.is_dirty() || !counter.needs_read(now))
            });
        }
        self.by_key.len() < QUOTA_COUNTERS_MAX
    }

    /// Returns the counter with this key, for the current window.
    pub fn current(&mut self, key: &CounterKey, now_s: u64) -> &mut Counter {
        let new = || Counter::new(key.window.span_at(now_s));
        let counter = self.by_key.entry(key.clone()).or_insert_with(new);
        let span = key.window.span_from(now_s, counter.span);
        if span != counter.span {
            // That it is known stays: nothing is used of a new window but what this node counts, until it is read.
            let synced = counter.synced;
            *counter = Counter::new(span);
            counter.synced = synced;
        }
        counter
    }

    /// Takes over what was read from the store, unless more is known.
    pub fn refresh(&mut self, key: &CounterKey, read: StoredUsage, now_s: u64) {
        let Some(counter) = self.by_key.get_mut(key) else {
            return;
        };
        match counter.synced {
            Some(_) if counter.is_dirty() => {}
            // It was written since.
            Some(_) if read.version < counter.version => counter.synced = Some(Instant::now()),
            _ => counter.adopt(key.window, read, now_s),
        }
    }

    /// Takes over what the store has instead of the version that was known.
    pub fn replace(&mut self, key: &CounterKey, read: StoredUsage, now_s: u64) {
        if let Some(counter) = self.by_key.get_mut(key) {
            counter.adopt(key.window, read, now_s);
        }
    }

    /// Lets a counter count without the store, which can't be read. Returns false if its usage is unknown.
    pub fn keep_unread(&mut self, key: &CounterKey) -> bool {
        let known = self.by_key.get_mut(key);
        let Some(counter) = known.filter(|counter| counter.synced.is_some()) else {
            return false;
        };
        counter.synced = Some(Instant::now());
        true
    }

    /// Returns the keys of counters with changes that can be written.
    pub fn dirty(&self) -> Vec<CounterKey> {
        let counters = self.by_key.iter();
        let dirty = counters.filter(|(key, counter)| self.is_writable(key, counter));
        dirty.map(|(key, _)| key.clone()).collect()
    }

    /// Returns whether a counter has changes, and the store has or may have room for it.
    fn is_writable(&self, key: &CounterKey, counter: &Counter) -> bool {
        let full = self.full.get(&key.quota);
        let has_room = || full.is_none_or(|at| at.elapsed() >= FULL_SPACE_RETRY_INTERVAL);
        counter.is_dirty() && (counter.version > 0 || has_room())
    }

    pub fn has_dirty(&self) -> bool {
        self.by_key.values().any(Counter::is_dirty)
    }

    /// Returns the entry to be written for a counter; `None` if nothing is to be written. A counter whose window
    /// is over is dropped.
    pub fn draft(&mut self, key: &CounterKey, now_s: u64) -> Option<CounterDraft> {
        let counter = self.by_key.get(key)?;
        if counter.span.end_s <= now_s {
            self.by_key.remove(key);
            return None;
        }
        self.is_writable(key, counter).then(|| CounterDraft {
            span: counter.span,
            usage: counter.used(),
            version: counter.version,
            change: counter.pending,
        })
    }

    /// Notes that an entry was written, and is its version `version` now.
    pub fn settle(&mut self, key: &CounterKey, draft: &CounterDraft, version: u64) {
        if let Some(counter) = self.drafted(key, draft) {
            counter.settle(draft, version);
        }
    }

    /// Notes that an entry may have been written, or not.
    pub fn note_unconfirmed(&mut self, key: &CounterKey, draft: &CounterDraft) {
        if let Some(counter) = self.drafted(key, draft) {
            counter.unconfirmed = Some(*draft);
        }
    }

    /// Returns the counter of a draft; `None` if it has begun another window.
    fn drafted(&mut self, key: &CounterKey, draft: &CounterDraft) -> Option<&mut Counter> {
        let known = self.by_key.get_mut(key);
        known.filter(|counter| counter.span == draft.span)
    }

    /// Notes that the store has no room for more counters of a quota.
    pub fn note_full(&mut self, quota: &Arc<str>) {
        self.full.insert(quota.clone(), Instant::now());
    }

    /// Notes that the store may have room for more counters of a quota.
    pub fn note_room(&mut self, quota: &Arc<str>) {
        self.full.remove(quota);
    }

    /// Drops the counters of other quotas than these, by id and window.
    pub fn retain(&mut self, quotas: &HashSet<(Arc<str>, QuotaWindow)>) {
        self.by_key
            .retain(|key, _| quotas.contains(&(key.quota.clone(), key.window)));
        self.full
            .retain(|quota, _| quotas.iter().any(|(id, _)| id == quota));
    }
}
