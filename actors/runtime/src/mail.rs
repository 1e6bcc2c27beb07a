//! Mail: letters, each kept once, and how far each has come with its recipients.

mod event;
mod letter;
mod memory;

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use callboard_message::mail::AgentLogRow;
pub use callboard_message::mail::EntryState;

use crate::journal::JournalError;

pub use event::StoredEvent;
pub use letter::{Letter, LetterFilter, MailCopy, NewLetter};
pub use memory::MemoryMail;

/// Recipients whose copies [`Mail::post`] makes at once; those of more are [`Mail::spread`].
pub const COPIES_AT_ONCE_MAX: usize = 16;
/// Most copies that one [`Mail::spread`] makes.
pub const SPREAD_MAX: usize = 128;
/// Most copies that one [`Mail::mark`] moves.
pub const MARKS_AT_ONCE_MAX: usize = 256;
/// Most letters, copies, events or rows that one look answers.
pub const MAIL_PAGE_MAX: usize = 1_000;
/// Most letters that one [`Mail::history`] looks at.
pub const MAIL_LOOKED_MAX: u64 = 10_000;
/// Numbers that a letter has for its rows of [`Mail::logs`]: more than it can have recipients. Stores' views have it, too.
pub const MAIL_LOG_ROWS_A_LETTER: u64 = 16_384;
/// The stream of the journal that [`Mail::events`] are kept in.
pub const MAIL_EVENTS_STREAM: &str = "mail/events";

/// A letter with one of its copies.
pub type LetterOpen = (Arc<Letter>, MailCopy);
/// A page of letters, and the number below which to go on.
pub type LetterPage = (Vec<LetterAndCopy>, Option<u64>);
/// A letter with its copy for whoever asks; none where that is its sender only.
pub type LetterAndCopy = (Arc<Letter>, Option<MailCopy>);

/// How far a recipient has come with a letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// It got it.
    Delivered,
    /// It has read it.
    Read,
}

/// Where letters are kept. A letter is accepted when [`Self::post`] ends; its recipients are fixed then.
///
/// A copy that isn't spread yet is as one that is accepted, for whoever looks.
#[async_trait]
pub trait Mail: Send + Sync + 'static {
    /// Keeps a letter, with one line in the audit and one event. The same sender's same key again is the first letter, and
    /// nothing is kept (`is_new`). Copies of up to [`COPIES_AT_ONCE_MAX`] recipients are made with it.
    ///
    /// # Errors
    /// As [`NewLetter::check`]. How much a recipient has not read isn't looked at.
    async fn post(&self, new: NewLetter) -> Result<Arc<Letter>, JournalError>;

    /// Makes the copies of a letter's recipients from where it has come to up to the one at index `to`, at most
    /// [`SPREAD_MAX`]; the recipients in `delivered` have it, with one event for all that moved. Again does no harm.
    ///
    /// # Errors
    /// [`JournalError::Invalid`]: too many.
    async fn spread(&self, letter: u64, to: u32, delivered: Vec<String>) -> Result<(), JournalError>;

    /// Letters whose copies aren't all made, oldest first, at most [`MAIL_PAGE_MAX`].
    async fn unspread(&self, letters_max: usize) -> Result<Vec<Arc<Letter>>, JournalError>;

    /// Notes how far recipients have come with letters, by number; answers those that moved. What is read was delivered. A
    /// copy that isn't made yet is made; one of somebody who isn't a recipient is not. One event a letter that moved.
    ///
    /// # Errors
    /// [`JournalError::Invalid`]: more than [`MARKS_AT_ONCE_MAX`].
    async fn mark(&self, marks: Vec<(String, u64)>, mark: Mark) -> Result<Vec<(String, u64)>, JournalError>;

    /// Counts an attempt to deliver; answers how many there were, 0 where there is no such copy. One that isn't made is made.
    async fn tried(&self, recipient: &str, letter: u64) -> Result<u32, JournalError>;

    /// What a recipient has not read (or, `undelivered`, not got) and may still get: urgent first, then by number; what comes
    /// in that order after (urgent, number); at most [`MAIL_PAGE_MAX`].
    async fn open(
        &self,
        recipient: &str,
        after: Option<(bool, u64)>,
        undelivered: bool,
        letters_max: usize,
    ) -> Result<Vec<LetterOpen>, JournalError>;

    /// How many letters each recipient has not read and may still get; nobody who has none.
    async fn waiting(&self) -> Result<HashMap<String, u64>, JournalError>;

    /// The letter of that id.
    async fn letter(&self, id: &str) -> Result<Option<Arc<Letter>>, JournalError>;

    /// How far a letter has come with each recipient, by name, of those after `after`; at most [`MAIL_PAGE_MAX`].
    async fn receipts(
        &self,
        letter: u64,
        after: Option<&str>,
        copies_max: usize,
    ) -> Result<Vec<MailCopy>, JournalError>;

    /// Letters that `filter` leaves, newest first, with numbers below `before` (0: from the newest on). It looks at no more
    /// than [`MAIL_LOOKED_MAX`]; answers the number below which to go on, `None` at the end.
    ///
    /// # Errors
    /// As [`LetterFilter::check`].
    async fn history(&self, filter: LetterFilter, before: u64, letters_max: usize) -> Result<LetterPage, JournalError>;

    /// Events after a number, in order, with their numbers: from 1, without gaps, but that the oldest go with time, and one of
    /// a letter that is gone. None: there are no more.
    async fn events(&self, after: u64, events_max: usize) -> Result<Vec<(u64, StoredEvent)>, JournalError>;

    /// The newest event's number, 0 where there was none.
    async fn last_event(&self) -> Result<u64, JournalError>;

    /// Keeps an event that no letter gives rise to; answers its number.
    ///
    /// # Errors
    /// [`JournalError::Invalid`]: it is one that a letter gives rise to.
    async fn tell(&self, event: StoredEvent) -> Result<u64, JournalError>;

    /// Rows of the log of who wrote to whom after a number, oldest first: of one recipient, or of all.
    async fn logs(&self, agent: Option<&str>, after: u64, rows_max: usize) -> Result<Vec<AgentLogRow>, JournalError>;

    /// Whether other nodes may write there too.
    fn is_shared(&self) -> bool {
        false
    }
}
