//! Budget of the bytes that a node buffers for its clients: bodies that aren't complete or whose
//! request still runs, and responses and events that clients haven't read.
//!
//! If a reader's buffer exceeds the budget, a reader of the principal that has too much is closed:
//! the oldest of its large ones. A request that exceeds it closes readers of principals that have
//! more than its own; if that isn't enough, it is rejected.

mod limits;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Arc, Weak};

use callboard_message::{Principal, PrincipalKind};
use derive_more::Debug;
use parking_lot::Mutex;

use crate::network_of;
pub use limits::{
    BUFFERED_BYTES_MIN, BUFFERED_BYTES_UNKNOWN_MEMORY, BUFFERED_PRINCIPAL_PERCENT, BufferLimits,
};

/// Share of a listener in the budget, in percent.
pub const BUFFERED_LISTENER_PERCENT: u8 = 75;
/// Maximum size of a request that doesn't count, in bytes. The number of connections limits such
/// requests, so they pass when the budget is used up.
pub const UNCOUNTED_REQUEST_BYTES_MAX: usize = 16 * 1024;
/// Maximum size of a reader's buffer that isn't closed for the memory of other principals, in
/// bytes.
pub const PROTECTED_READER_BYTES_MAX: usize = 64 * 1024;

/// Unit in which a reader's buffer counts, in bytes.
const READER_STEP_BYTES: usize = 4 * 1024;
/// Decrease of a reader's buffer after which it counts less, in bytes.
const READER_SLACK_BYTES: usize = 64 * 1024;

/// Reason why bytes can't be buffered: the budget, or a share of it, is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}", BUFFERS_FULL)]
pub struct BuffersFull;

/// Message to a client whose request exceeds the budget.
pub const BUFFERS_FULL: &str = "the node's memory for messages (`buffered_mib_max`) is used up: \
    send less at a time, or try again later";

/// Buffer of a reader, which a [`BufferBudget`] closes if its reader is too slow.
pub trait ClosableBuffer: Send + Sync {
    /// Returns the number of buffered bytes. It is called with the budget locked, so neither it nor
    /// a holder of the buffer's lock may reserve or release bytes.
    fn buffered_bytes(&self) -> usize;

    /// Drops the buffered bytes. The reader's stream ends with an error if it misses any.
    fn close_buffer(&self);
}

/// Principal, or network of a client without a credential, that buffered bytes count for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[debug("BufferOwner")]
pub struct BufferOwner(u64);

/// Number of bytes that a node buffers, with its limits. Clones share the number.
#[derive(Debug, Clone)]
#[debug("BufferBudget({} bytes)", _0.counts.lock().used)]
pub struct BufferBudget(Arc<BudgetShared>);

struct BudgetShared {
    counts: Mutex<BufferCounts>,
    /// Hasher of owners. Its key is random, so that nobody can choose an id that counts as another.
    hasher: RandomState,
}

struct BufferCounts {
    limits: BufferLimits,
    used: usize,
    /// Used bytes by listener number; those without any are left out.
    listeners: HashMap<u64, usize>,
    owners: HashMap<BufferOwner, usize>,
    /// Buffers that can be closed.
    readers: BTreeMap<ReaderKey, CountedReader>,
    last_number: usize,
}

/// Owner and number of a counted reader. Those of one owner are together, the oldest first.
type ReaderKey = (BufferOwner, usize);

struct CountedReader {
    listener: u64,
    /// Bytes that count, shared with the reservation. They change only with the budget locked.
    bytes: Arc<AtomicUsize>,
    buffer: Weak<dyn ClosableBuffer>,
}

impl CountedReader {
    fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// Buffers that were chosen to be closed. They are closed and dropped without the lock of the
/// budget, because both lock it.
#[derive(Default)]
struct ChosenReaders {
    closed: Vec<Arc<dyn ClosableBuffer>>,
    /// Buffers that turned out to hold less than was counted.
    kept: Vec<Arc<dyn ClosableBuffer>>,
}

impl ChosenReaders {
    fn close(self) {
        for buffer in self.closed {
            callboard_message::log::warn!(
                "closed the stream of a slow reader: the memory for messages is used up (`buffered_mib_max`)"
            );
            buffer.close_buffer();
        }
        drop(self.kept);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AccountKey {
    listener: u64,
    owner: BufferOwner,
}

/// Limit that is exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Excess {
    Owner,
    Listener,
    Total,
}

impl Default for BufferBudget {
    fn default() -> Self {
        Self::new(BufferLimits::default())
    }
}

impl BufferBudget {
    /// Creates a budget of which nothing is used.
    pub fn new(limits: BufferLimits) -> Self {
        let counts = BufferCounts {
            limits,
            used: 0,
            listeners: HashMap::new(),
            owners: HashMap::new(),
            readers: BTreeMap::new(),
            last_number: 0,
        };
        Self(Arc::new(BudgetShared {
            counts: Mutex::new(counts),
            hasher: RandomState::new(),
        }))
    }

    /// Replaces the limits. Bytes that are buffered already stay.
    pub fn set_limits(&self, limits: BufferLimits) {
        self.0.counts.lock().limits = limits;
    }

    /// Returns the number of buffered bytes.
    pub fn used_bytes(&self) -> usize {
        self.0.counts.lock().used
    }

    /// Returns the budget of a new listener.
    pub fn listener(&self) -> ListenerBuffers {
        let mut counts = self.0.counts.lock();
        counts.last_number += 1;
        ListenerBuffers {
            budget: self.clone(),
            number: counts.last_number as u64,
        }
    }

    /// Returns the owner of the bytes of a client: its principal, or the network of its address if
    /// it has no credential.
    pub fn owner(&self, principal: Option<&Principal>, peer: Option<IpAddr>) -> BufferOwner {
        let known = principal.filter(|principal| principal.kind != PrincipalKind::Anonymous);
        let hasher = &self.0.hasher;
        BufferOwner(match known {
            Some(principal) => hasher.hash_one((principal.kind.as_str(), &*principal.id)),
            None => hasher.hash_one(peer.map(network_of)),
        })
    }
}

/// Part of a [`BufferBudget`] that one listener uses.
#[derive(Debug, Clone)]
pub struct ListenerBuffers {
    budget: BufferBudget,
    number: u64,
}

impl ListenerBuffers {
    /// Returns the budget of which this is a part.
    pub fn budget(&self) -> &BufferBudget {
        &self.budget
    }

    /// Returns the account of a client of this listener.
    pub fn account(&self, owner: BufferOwner) -> BufferAccount {
        BufferAccount {
            budget: self.budget.clone(),
            key: AccountKey {
                listener: self.number,
                owner,
            },
        }
    }
}

/// Account that buffered bytes of one client of one listener count for.
#[derive(Debug, Clone)]
pub struct BufferAccount {
    budget: BufferBudget,
    key: AccountKey,
}

impl BufferAccount {
    /// Creates a reservation of no bytes for a request.
    pub fn reservation(&self) -> BufferReservation {
        BufferReservation {
            account: self.clone(),
            bytes: 0,
        }
    }

    /// Reserves the bytes of a request.
    ///
    /// # Errors
    /// [`BuffersFull`] if the budget or a share is used up.
    pub fn reserve(&self, bytes: usize) -> Result<BufferReservation, BuffersFull> {
        let mut reservation = self.reservation();
        reservation.resize(bytes)?;
        Ok(reservation)
    }

    /// Creates the counter of a reader's buffer, which holds no bytes yet.
    pub fn reader(&self, buffer: Weak<dyn ClosableBuffer>) -> ReaderReservation {
        ReaderReservation {
            account: self.clone(),
            buffer,
            number: AtomicUsize::new(0),
            bytes: Arc::default(),
        }
    }
}

/// Bytes of a request in a [`BufferBudget`]. Dropping it releases them.
#[derive(Debug)]
pub struct BufferReservation {
    account: BufferAccount,
    bytes: usize,
}

impl BufferReservation {
    /// Returns the number of reserved bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Changes the reservation to `bytes`; up to [`UNCOUNTED_REQUEST_BYTES_MAX`] don't count. If a
    /// listener's share or the budget is used up, large readers of principals that use more are
    /// closed first.
    ///
    /// # Errors
    /// [`BuffersFull`] if the budget or a share is used up. The reservation is unchanged.
    pub fn resize(&mut self, bytes: usize) -> Result<(), BuffersFull> {
        let bytes = match bytes {
            0..=UNCOUNTED_REQUEST_BYTES_MAX => 0,
            bytes => bytes,
        };
        if bytes == self.bytes {
            return Ok(());
        }
        let (key, grows) = (self.account.key, bytes > self.bytes);
        let mut counts = self.account.budget.0.counts.lock();
        counts.change(key, self.bytes, bytes);
        let chosen = match grows {
            true => counts.close_for_request(key),
            false => ChosenReaders::default(),
        };
        let is_full = grows && counts.excess(key).is_some();
        if is_full {
            counts.change(key, bytes, self.bytes);
        }
        drop(counts);
        chosen.close();
        if is_full {
            callboard_message::log::warn!(
                "rejected a request: the memory for messages is used up (`buffered_mib_max`)"
            );
            return Err(BuffersFull);
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for BufferReservation {
    fn drop(&mut self) {
        // Can't fail, because it is no more than before.
        let _ = self.resize(0);
    }
}

/// Bytes of a reader's buffer in a [`BufferBudget`]. Dropping it releases them.
#[derive(Debug)]
pub struct ReaderReservation {
    account: BufferAccount,
    #[debug(skip)]
    buffer: Weak<dyn ClosableBuffer>,
    /// Number of the counted reader; 0 before it has had any bytes, obsolete once it was closed.
    number: AtomicUsize,
    /// Bytes that count.
    bytes: Arc<AtomicUsize>,
}

impl ReaderReservation {
    /// Counts the bytes of the buffer after it has changed. `bytes` returns their number; it may
    /// lock the buffer, so the caller doesn't. If the budget or a share is exceeded, a large reader
    /// of the principal that has too much is closed, which may be this one.
    pub fn track(&self, bytes: impl Fn() -> usize) {
        loop {
            // If the buffer changes while another thread counts it, one of the two sees what the
            // other wrote, so the last change counts.
            fence(Ordering::SeqCst);
            let (now, counted) = (bytes(), self.bytes.load(Ordering::Relaxed));
            // An empty buffer doesn't count at all.
            let is_close = now > 0 && now < counted && counted - now < READER_SLACK_BYTES;
            if now == counted || is_close {
                return;
            }
            self.count(&bytes);
        }
    }

    /// Counts the bytes of the buffer, and closes readers if there are too many.
    fn count(&self, bytes: impl Fn() -> usize) {
        let account = self.account.key;
        let mut counts = self.account.budget.0.counts.lock();
        // Once more under the lock, so that the latest change is the one that counts.
        let now = bytes().next_multiple_of(READER_STEP_BYTES);
        let key = (account.owner, self.number.load(Ordering::Relaxed));
        if now == 0 {
            // With its next bytes it is a new one, which has time to read.
            drop(counts.remove_reader(key));
            return self.bytes.store(0, Ordering::Relaxed);
        }
        // A reader that was closed isn't counted any more, but may go on.
        let (key, counted) = match counts.readers.get(&key) {
            Some(reader) => (key, reader.bytes()),
            None => (counts.add_reader(self), 0),
        };
        counts.resize_reader(key, now);
        let chosen = match now > counted {
            true => counts.close_for_reader(account, now - counted),
            false => ChosenReaders::default(),
        };
        drop(counts);
        chosen.close();
    }
}

impl Drop for ReaderReservation {
    fn drop(&mut self) {
        let number = *self.number.get_mut();
        if number > 0 {
            let mut counts = self.account.budget.0.counts.lock();
            drop(counts.remove_reader((self.account.key.owner, number)));
        }
    }
}

impl BufferCounts {
    /// Changes the bytes of an account from `before` to `now`.
    fn change(&mut self, key: AccountKey, before: usize, now: usize) {
        fn set<K: std::hash::Hash + Eq>(
            counts: &mut HashMap<K, usize>,
            key: K,
            (before, now): (usize, usize),
        ) {
            let count = counts.get(&key).copied().unwrap_or_default();
            match (count + now).saturating_sub(before) {
                0 => drop(counts.remove(&key)),
                count => drop(counts.insert(key, count)),
            }
        }
        self.used = (self.used + now).saturating_sub(before);
        set(&mut self.owners, key.owner, (before, now));
        set(&mut self.listeners, key.listener, (before, now));
    }

    /// Returns the limit that an account exceeds. Its shares count while more than half of the
    /// budget is used.
    fn excess(&self, key: AccountKey) -> Option<Excess> {
        let BufferLimits {
            bytes_max,
            principal_percent,
        } = self.limits;
        let percent = |percent: u8| bytes_max / 100 * usize::from(percent);
        let used = |count: Option<&usize>| count.copied().unwrap_or_default();
        if self.used <= bytes_max / 2 {
            None
        } else if used(self.owners.get(&key.owner)) > percent(principal_percent) {
            Some(Excess::Owner)
        } else if used(self.listeners.get(&key.listener)) > percent(BUFFERED_LISTENER_PERCENT) {
            Some(Excess::Listener)
        } else {
            (self.used > bytes_max).then_some(Excess::Total)
        }
    }

    /// Adds a reader without bytes, and gives it a number.
    fn add_reader(&mut self, held: &ReaderReservation) -> ReaderKey {
        self.last_number += 1;
        let AccountKey { listener, owner } = held.account.key;
        let key = (owner, self.last_number);
        held.bytes.store(0, Ordering::Relaxed);
        held.number.store(self.last_number, Ordering::Relaxed);
        let reader = CountedReader {
            listener,
            bytes: held.bytes.clone(),
            buffer: held.buffer.clone(),
        };
        self.readers.insert(key, reader);
        key
    }

    fn resize_reader(&mut self, key: ReaderKey, bytes: usize) {
        if let Some(reader) = self.readers.get(&key) {
            let before = reader.bytes.swap(bytes, Ordering::Relaxed);
            let (owner, listener) = (key.0, reader.listener);
            self.change(AccountKey { listener, owner }, before, bytes);
        }
    }

    fn remove_reader(&mut self, key: ReaderKey) -> Option<CountedReader> {
        let reader = self.readers.remove(&key)?;
        let (owner, listener) = (key.0, reader.listener);
        self.change(AccountKey { listener, owner }, reader.bytes(), 0);
        Some(reader)
    }

    /// Removes readers until an account whose reader has grown by `bytes` is within its limits, or
    /// as many bytes are free. Of an account over its owner's share they are the owner's.
    fn close_for_reader(&mut self, account: AccountKey, bytes: usize) -> ChosenReaders {
        let (mut chosen, mut freed) = (ChosenReaders::default(), 0);
        while freed < bytes
            && let Some(excess) = self.excess(account)
            && let Some(key) = match excess {
                Excess::Owner => self.oldest_large_reader(account.owner, None, 1),
                Excess::Listener | Excess::Total => self.reader_of_the_most(account, excess, 0),
            }
        {
            freed += self.choose(key, &mut chosen);
        }
        chosen
    }

    /// Removes readers of owners that use more than an account's owner, until the account, which a
    /// request has grown, is within its limits. Removes none if its owner's share is exceeded.
    fn close_for_request(&mut self, account: AccountKey) -> ChosenReaders {
        let mut chosen = ChosenReaders::default();
        let used = self.owners.get(&account.owner).copied().unwrap_or_default();
        while let Some(excess) = self.excess(account)
            && excess != Excess::Owner
            && let Some(key) = self.reader_of_the_most(account, excess, used)
        {
            self.choose(key, &mut chosen);
        }
        chosen
    }

    /// Removes a reader that is to be closed, or corrects its count if its buffer holds less by
    /// now. Returns the number of bytes that count no more.
    fn choose(&mut self, key: ReaderKey, chosen: &mut ChosenReaders) -> usize {
        let Some(reader) = self.readers.get(&key) else {
            return 0;
        };
        let (counted, buffer) = (reader.bytes(), reader.buffer.upgrade());
        let Some(buffer) = buffer else {
            self.remove_reader(key);
            return counted;
        };
        let now = buffer.buffered_bytes().next_multiple_of(READER_STEP_BYTES);
        if now < counted {
            self.resize_reader(key, now);
            chosen.kept.push(buffer);
            return counted - now;
        }
        self.remove_reader(key);
        chosen.closed.push(buffer);
        counted
    }

    /// Returns the reader to close for a listener's share or the budget, which an account exceeds:
    /// of the owner that uses the most, and more than `used_min` bytes. Small readers are left
    /// alone.
    fn reader_of_the_most(
        &self,
        account: AccountKey,
        excess: Excess,
        used_min: usize,
    ) -> Option<ReaderKey> {
        let listener = (excess == Excess::Listener).then_some(account.listener);
        let used_min = used_min.max(PROTECTED_READER_BYTES_MAX);
        let owners = self.owners.iter().map(|(owner, used)| (*used, *owner));
        let mut owners: Vec<_> = owners.filter(|(used, _)| *used > used_min).collect();
        owners.sort_unstable_by_key(|owner| Reverse(*owner));
        let reader =
            |owner| self.oldest_large_reader(owner, listener, PROTECTED_READER_BYTES_MAX + 1);
        owners.into_iter().find_map(|(_, owner)| reader(owner))
    }

    /// Returns the oldest reader of an owner, at `listener` if that is given, with at least
    /// `bytes_min` bytes and half as many as the largest: a new one had no time to read.
    fn oldest_large_reader(
        &self,
        owner: BufferOwner,
        listener: Option<u64>,
        bytes_min: usize,
    ) -> Option<ReaderKey> {
        let candidates = || {
            let all = self.readers.range((owner, 0)..=(owner, usize::MAX));
            all.filter(|(_, reader)| {
                let is_at = listener.is_none_or(|listener| reader.listener == listener);
                is_at && reader.bytes() >= bytes_min
            })
        };
        let most = candidates().map(|(_, reader)| reader.bytes()).max()?;
        let oldest = candidates().find(|(_, reader)| 2 * reader.bytes() >= most);
        oldest.map(|(key, _)| *key)
    }
}
