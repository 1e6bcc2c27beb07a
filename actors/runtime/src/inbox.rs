//! Inboxes: what was accepted for a recipient, until it has read it.

mod memory;

use std::fmt;
use std::time::{Duration, SystemTime};

use callboard_message::DataClass;
pub use callboard_message::mail::EntryState;
use futures::future::BoxFuture;

use crate::audit::BodyMark;
use crate::journal::{JournalError, storable};

pub use memory::MemoryInboxes;

/// Most entries that [`Inboxes::accept`] takes at once.
pub const ENTRIES_AT_ONCE_MAX: usize = 256;
/// Most entries of a recipient that it hasn't read, by default.
pub const INBOX_ENTRIES_MAX_DEFAULT: usize = 10_000;
/// Largest body of an entry, in bytes, by default.
pub const ENTRY_BYTES_MAX_DEFAULT: usize = 256 * 1024;

/// An entry that comes in.
#[derive(Clone, PartialEq)]
pub struct NewEntry {
    /// Whose inbox.
    pub recipient: String,
    /// Who sent it.
    pub sender: String,
    /// How it was sent, for example `direct` or `broadcast`.
    pub kind: String,
    /// What it belongs to.
    pub topic: Option<String>,
    /// The entry in the sender's inbox that it answers, by number.
    pub reply_to: Option<u64>,
    /// The same key twice in an inbox is the same entry: the second isn't kept.
    pub key: Option<String>,
    /// What the body may hold. [`DataClass::Clinical`] is refused.
    pub class: DataClass,
    /// What is said.
    pub body: String,
    /// After that it is handed out no more.
    pub expires: SystemTime,
}

impl NewEntry {
    /// Refuses what no store takes at once.
    ///
    /// # Errors
    /// [`JournalError::Invalid`], [`JournalError::TooLarge`].
    pub fn check_all(entries: &[Self]) -> Result<(), JournalError> {
        if entries.len() > ENTRIES_AT_ONCE_MAX {
            return Err(JournalError::Invalid("too many entries at once"));
        }
        entries.iter().try_for_each(Self::check)
    }

    /// Refuses what no store takes.
    ///
    /// # Errors
    /// [`JournalError::Invalid`], [`JournalError::TooLarge`].
    pub fn check(&self) -> Result<(), JournalError> {
        let texts = [&self.recipient, &self.sender, &self.kind, &self.body];
        texts.into_iter().chain(&self.topic).chain(&self.key).try_for_each(|text| storable(text))?;
        if self.class == DataClass::Clinical {
            return Err(JournalError::Invalid("an inbox keeps no clinical bodies"));
        }
        if self.recipient.is_empty() {
            return Err(JournalError::Invalid("an entry has no recipient"));
        }
        match self.body.len() > ENTRY_BYTES_MAX_DEFAULT {
            true => Err(JournalError::TooLarge { bytes: self.body.len(), bytes_max: ENTRY_BYTES_MAX_DEFAULT }),
            false => Ok(()),
        }
    }
}

// What is said may be anybody's data.
impl fmt::Debug for NewEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { recipient, sender, kind, .. } = self;
        write!(f, "NewEntry({kind} of {sender} for {recipient}, {} bytes)", self.body.len())
    }
}

/// An entry as it is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Its place in its recipient's inbox, from 1, without gaps.
    pub number: u64,
    /// What came in. Its body is empty once its time is over.
    pub new: NewEntry,
    /// The size and hash of the body.
    pub mark: BodyMark,
    /// How far it has come.
    pub state: EntryState,
    /// When it came in.
    pub accepted: SystemTime,
    /// When its recipient first said that it got it.
    pub delivered: Option<SystemTime>,
    /// When its recipient said that it has read it.
    pub read: Option<SystemTime>,
    /// How often it was handed out.
    pub attempts: u32,
    /// It was kept just now: `false` where its key was there.
    pub is_new: bool,
}

/// How far a recipient has come with an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// It got it.
    Delivered,
    /// It has read it.
    Read,
}

/// Which entries. What is `None` leaves all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EntryFilter {
    /// In this inbox.
    pub recipient: Option<String>,
    /// From this sender.
    pub sender: Option<String>,
    /// Of this topic.
    pub topic: Option<String>,
    /// Sent so.
    pub kind: Option<String>,
    /// In one of these states; none: in any.
    pub states: Vec<EntryState>,
}

impl EntryFilter {
    /// Whether it leaves `entry`.
    pub fn leaves(&self, entry: &Entry) -> bool {
        let is = |wanted: &Option<String>, has: &str| wanted.as_ref().is_none_or(|wanted| wanted == has);
        is(&self.recipient, &entry.new.recipient)
            && is(&self.sender, &entry.new.sender)
            && is(&self.kind, &entry.new.kind)
            && (self.topic.is_none() || self.topic == entry.new.topic)
            && (self.states.is_empty() || self.states.contains(&entry.state))
    }
}

/// Where inboxes are kept.
pub trait Inboxes: Send + Sync + 'static {
    /// Keeps entries, all or none, at most [`ENTRIES_AT_ONCE_MAX`]: a broadcast is one call. Each new one is on record in the
    /// audit (`agent_communication`) when this ends. In their order.
    ///
    /// # Errors
    /// [`JournalError::Full`] where a recipient has [`INBOX_ENTRIES_MAX_DEFAULT`] unread; as [`NewEntry::check`].
    fn accept(&self, new: Vec<NewEntry>) -> BoxFuture<'_, Result<Vec<Entry>, JournalError>>;

    /// Hands out the oldest accepted entries of a recipient. One that isn't marked within `again_after` is handed out again.
    fn deliver<'a>(
        &'a self,
        recipient: &'a str,
        entries_max: usize,
        again_after: Duration,
    ) -> BoxFuture<'a, Result<Vec<Entry>, JournalError>>;

    /// Notes how far a recipient has come with entries, and answers how many moved. What is read was delivered.
    fn mark<'a>(
        &'a self,
        recipient: &'a str,
        numbers: &'a [u64],
        mark: Mark,
    ) -> BoxFuture<'a, Result<u64, JournalError>>;

    /// The first `entries_max` entries that `filter` leaves, oldest first: of one recipient those with a number over `after`;
    /// of all of them, those that came in later than `after` milliseconds after 1970.
    fn history(
        &self,
        filter: EntryFilter,
        after: u64,
        entries_max: usize,
    ) -> BoxFuture<'_, Result<Vec<Entry>, JournalError>>;

    /// How many entries of a recipient it has not read, and could still get.
    fn waiting<'a>(&'a self, recipient: &'a str) -> BoxFuture<'a, Result<u64, JournalError>>;
}
