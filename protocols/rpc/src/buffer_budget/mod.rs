//! Budget of the bytes that a node buffers for its clients: bodies that aren't complete or whose
//! request still runs, and responses and events that clients haven't read.
//!
//! A request that exceeds the budget is rejected. If a reader's buffer exceeds it, a reader of the
//! principal that has too much is closed: the oldest of its large ones.

mod limits;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
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
    /// Drops the buffered bytes. The reader's stream ends with an error if it misses any.
    fn close_buffer(&self);
}

/// Principal, or network of a client without a credential, that buffered bytes count for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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
    /// Buffers that can be closed, by their numbers.
    readers: HashMap<usize, CountedReader>,
    last_number: usize,
}

struct CountedReader {
    account: AccountKey,
    bytes: usize,
    buffer: Weak<dyn ClosableBuffer>,
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
            readers: HashMap::new(),
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
            bytes: AtomicUsize::new(0),
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

    /// Changes the reservation to `bytes`; up to [`UNCOUNTED_REQUEST_BYTES_MAX`] don't count.
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
        let key = self.account.key;
        let mut counts = self.account.budget.0.counts.lock();
        counts.change(key, self.bytes, bytes);
        if bytes > self.bytes && counts.excess(key).is_some() {
            counts.change(key, bytes, self.bytes);
            drop(counts);
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
    bytes: AtomicUsize,
}

impl ReaderReservation {
    /// Counts the bytes of the buffer after it has changed. `bytes` returns their number; it may
    /// lock the buffer, so the caller doesn't. If the budget or a share is exceeded, a large reader
    /// of the principal that has too much is closed, which may be this one.
    pub fn track(&self, bytes: impl Fn() -> usize) {
        let (now, counted) = (bytes(), self.bytes.load(Ordering::Relaxed));
        if now <= counted && counted - now < READER_SLACK_BYTES {
            return;
        }
        let mut counts = self.account.budget.0.counts.lock();
        // Once more under the lock, so that the latest change is the one that counts.
        let now = bytes().next_multiple_of(READER_STEP_BYTES);
        let number = self.number.load(Ordering::Relaxed);
        // A reader that was closed isn't counted any more, but may go on.
        let (number, counted) = match counts.readers.get(&number) {
            Some(reader) => (number, reader.bytes),
            None if now == 0 => return self.bytes.store(0, Ordering::Relaxed),
            None => {
                let buffer = self.buffer.clone();
                (counts.add_reader(self.account.key, buffer), 0)
            }
        };
        self.number.store(number, Ordering::Relaxed);
        self.bytes.store(now, Ordering::Relaxed);
        counts.resize_reader(number, now);
        let closed = match now > counted {
            true => counts.close_readers(self.account.key, now - counted),
            false => Vec::new(),
        };
        drop(counts);
        // Without the lock, because a buffer that is closed has its own.
        for buffer in closed {
            callboard_message::log::warn!(
                "closed the stream of a slow reader: the memory for messages is used up (`buffered_mib_max`)"
            );
            buffer.close_buffer();
        }
    }
}

impl Drop for ReaderReservation {
    fn drop(&mut self) {
        let number = *self.number.get_mut();
        if number > 0 {
            let mut counts = self.account.budget.0.counts.lock();
            drop(counts.remove_reader(number));
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

    fn add_reader(&mut self, account: AccountKey, buffer: Weak<dyn ClosableBuffer>) -> usize {
        self.last_number += 1;
        let reader = CountedReader {
            account,
            bytes: 0,
            buffer,
        };
        self.readers.insert(self.last_number, reader);
        self.last_number
    }

    fn resize_reader(&mut self, number: usize, bytes: usize) {
        if let Some(reader) = self.readers.get_mut(&number) {
            let before = std::mem::replace(&mut reader.bytes, bytes);
            let account = reader.account;
            self.change(account, before, bytes);
        }
    }

    fn remove_reader(&mut self, number: usize) -> Option<CountedReader> {
        let reader = self.readers.remove(&number)?;
        self.change(reader.account, reader.bytes, 0);
        Some(reader)
    }

    /// Removes readers until an account that has grown by `bytes` is within its limits, or as many
    /// bytes are free. Returns their buffers, which the caller closes.
    fn close_readers(&mut self, key: AccountKey, bytes: usize) -> Vec<Arc<dyn ClosableBuffer>> {
        let (mut closed, mut freed) = (Vec::new(), 0);
        while freed < bytes
            && let Some(excess) = self.excess(key)
            && let Some(number) = self.reader_to_close(key, excess)
            && let Some(reader) = self.remove_reader(number)
        {
            freed += reader.bytes;
            closed.extend(reader.buffer.upgrade());
        }
        closed
    }

    /// Returns the number of the reader to close for a limit that an account exceeds: of the
    /// account's owner if its share is exceeded, else of the owner that uses the most. Of the
    /// readers that hold at least half as much as the largest it is the oldest, because a new one
    /// had no time to read.
    fn reader_to_close(&self, key: AccountKey, excess: Excess) -> Option<usize> {
        let readers = || {
            self.readers.iter().filter(|(_, reader)| {
                excess != Excess::Listener || reader.account.listener == key.listener
            })
        };
        let used = |owner: BufferOwner| self.owners.get(&owner).copied();
        let (owner, bytes_min) = match excess {
            Excess::Owner => (key.owner, 1),
            Excess::Listener | Excess::Total => {
                let owners = readers().map(|(_, reader)| reader.account.owner);
                (
                    owners.max_by_key(|owner| used(*owner))?,
                    PROTECTED_READER_BYTES_MAX + 1,
                )
            }
        };
        let candidates = || {
            readers()
                .filter(|(_, reader)| reader.account.owner == owner && reader.bytes >= bytes_min)
        };
        let most = candidates().map(|(_, reader)| reader.bytes).max()?;
        let large = candidates().filter(|(_, reader)| 2 * reader.bytes >= most);
        large.map(|(number, _)| *number).min()
    }
}
