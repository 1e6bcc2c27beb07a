//! Mail: letters, each kept once, and how far each has come with its recipients.

mod memory;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use callboard_message::mail::{
    AgentLogRow, LetterKind, MAIL_BODY_BYTES_MAX, MAIL_KEY_BYTES_MAX, MAIL_LOG_CHARS,
    MAIL_NAMED_MAX, MAIL_RECIPIENTS_MAX, MAIL_SEARCH_CHARS_MAX, MAIL_TOPIC_CHARS_MAX, MailId,
};
use callboard_message::{DataClass, hex};
use sha2::{Digest, Sha256};

pub use callboard_message::mail::EntryState;
pub use memory::MemoryMail;

use crate::audit::{AuditEntry, BodyMark};
use crate::journal::{JournalError, JournalResult, storable};

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
    async fn post(&self, new: NewLetter) -> JournalResult<Arc<Letter>>;

    /// Makes the copies of a letter's recipients from where it has come to up to the one at index `to`, at most
    /// [`SPREAD_MAX`]; the recipients in `delivered` have it, with one event for all that moved. Again does no harm.
    ///
    /// # Errors
    /// [`JournalError::Invalid`]: too many.
    async fn spread(&self, letter: u64, to: u32, delivered: Vec<String>) -> JournalResult<()>;

    /// Letters whose copies aren't all made, oldest first, at most [`MAIL_PAGE_MAX`].
    async fn unspread(&self, letters_max: usize) -> JournalResult<Vec<Arc<Letter>>>;

    /// Notes how far recipients have come with letters, by number; answers those that moved. What is read was delivered. A
    /// copy that isn't made yet is made; one of somebody who isn't a recipient is not. One event a letter that moved.
    ///
    /// # Errors
    /// [`JournalError::Invalid`]: more than [`MARKS_AT_ONCE_MAX`].
    async fn mark(
        &self,
        marks: Vec<(String, u64)>,
        mark: Mark,
    ) -> JournalResult<Vec<(String, u64)>>;

    /// Counts an attempt to deliver; answers how many there were, 0 where there is no such copy. One that isn't made is made.
    async fn tried(&self, recipient: &str, letter: u64) -> JournalResult<u32>;

    /// What a recipient has not read (or, `undelivered`, not got) and may still get: urgent first, then by number; what comes
    /// in that order after (urgent, number); at most [`MAIL_PAGE_MAX`].
    async fn open(
        &self,
        recipient: &str,
        after: Option<(bool, u64)>,
        undelivered: bool,
        letters_max: usize,
    ) -> JournalResult<Vec<LetterOpen>>;

    /// How many letters each recipient has not read and may still get; nobody who has none.
    async fn waiting(&self) -> JournalResult<HashMap<String, u64>>;

    /// The letter of that id.
    async fn letter(&self, id: &str) -> JournalResult<Option<Arc<Letter>>>;

    /// How far a letter has come with each recipient, by name, of those after `after`; at most [`MAIL_PAGE_MAX`].
    async fn receipts(
        &self,
        letter: u64,
        after: Option<&str>,
        copies_max: usize,
    ) -> JournalResult<Vec<MailCopy>>;

    /// Letters that `filter` leaves, newest first, with numbers below `before` (0: from the newest on). It looks at no more
    /// than [`MAIL_LOOKED_MAX`]; answers the number below which to go on, `None` at the end.
    ///
    /// # Errors
    /// As [`LetterFilter::check`].
    async fn history(
        &self,
        filter: LetterFilter,
        before: u64,
        letters_max: usize,
    ) -> JournalResult<LetterPage>;

    /// Events after a number, in order, with their numbers: from 1, without gaps, but that the oldest go with time, and one of
    /// a letter that is gone. None: there are no more.
    async fn events(&self, after: u64, events_max: usize)
    -> JournalResult<Vec<(u64, StoredEvent)>>;

    /// The newest event's number, 0 where there was none.
    async fn last_event(&self) -> JournalResult<u64>;

    /// Keeps an event that no letter gives rise to; answers its number.
    ///
    /// # Errors
    /// [`JournalError::Invalid`]: it is one that a letter gives rise to.
    async fn tell(&self, event: StoredEvent) -> JournalResult<u64>;

    /// Rows of the log of who wrote to whom after a number, oldest first: of one recipient, or of all.
    async fn logs(
        &self,
        agent: Option<&str>,
        after: u64,
        rows_max: usize,
    ) -> JournalResult<Vec<AgentLogRow>>;

    /// Whether other nodes may write there too.
    fn is_shared(&self) -> bool {
        false
    }
}

/// Something that happened to mail, as it is kept: with the letter, never with a word of it.
#[derive(Debug, Clone, PartialEq)]
pub enum StoredEvent {
    /// A letter was accepted. Its body is empty once its retention is over.
    Posted(Arc<Letter>),
    /// Recipients came so far with a letter.
    Marked {
        /// Its number.
        letter: u64,
        /// Its id.
        id: String,
        /// Who sent it.
        sender: String,
        /// Delivered or read.
        state: EntryState,
        /// Which recipients, by name.
        recipients: Vec<String>,
    },
    /// An agent has mail from now on: its id, and how mail comes to it.
    Joined(String, String),
    /// An agent is gone, and why.
    Left(String, String),
}

impl StoredEvent {
    /// Refuses what isn't told: what letters give rise to is kept with them.
    ///
    /// # Errors
    /// [`JournalError::Invalid`].
    pub fn check_told(&self) -> JournalResult<()> {
        match self {
            Self::Joined(agent, how) | Self::Left(agent, how) => {
                storable(agent).and_then(|()| storable(how))
            }
            Self::Posted(_) | Self::Marked { .. } => {
                Err(JournalError::Invalid("such an event comes with its letter"))
            }
        }
    }
}

/// A letter that comes in.
#[derive(Clone, PartialEq, derive_more::Debug)]
#[debug("NewLetter({id}, {} of {sender} for {}, {} bytes)", kind.as_str(), recipients.len(), body.len())]
pub struct NewLetter {
    /// Its id: a UUID version 7.
    pub id: String,
    /// Who sent it.
    pub sender: String,
    /// How it was sent.
    pub kind: LetterKind,
    /// What the Guardian's guidance is called.
    pub label: Option<String>,
    /// Whom it was sent to, in a word: `one`, `list`, `all`, `group:x`.
    pub audience: String,
    /// Who gets it: by name, each once, at least one.
    pub recipients: Vec<String>,
    /// What it belongs to.
    pub topic: Option<String>,
    /// The id of the letter that its thread began with; `None`: its own.
    pub thread: Option<String>,
    /// The id of the letter that it answers.
    pub reply_to: Option<String>,
    /// It goes before what isn't urgent.
    pub urgent: bool,
    /// The same sender's same key is the same letter.
    pub key: Option<String>,
    /// What the body may hold. [`DataClass::Clinical`] is refused.
    pub class: DataClass,
    /// What is said.
    pub body: String,
    /// After that it is handed out no more.
    pub expires: SystemTime,
}

impl NewLetter {
    /// Refuses what no store takes.
    ///
    /// # Errors
    /// [`JournalError::Invalid`], [`JournalError::TooLarge`].
    pub fn check(&self) -> JournalResult<()> {
        let texts = [&self.id, &self.sender, &self.audience, &self.body];
        let more = [
            &self.label,
            &self.topic,
            &self.thread,
            &self.reply_to,
            &self.key,
        ];
        texts
            .into_iter()
            .chain(more.into_iter().flatten())
            .try_for_each(|text| storable(text))?;
        let is_id = |id: &str| MailId::parse(id).is_ok();
        let has_key = |key: &String| (1..=MAIL_KEY_BYTES_MAX).contains(&key.len());
        let why = if self.class == DataClass::Clinical {
            "mail keeps no clinical bodies"
        } else if self.recipients.is_empty() {
            "a letter has no recipient"
        } else if self.recipients.len() > MAIL_RECIPIENTS_MAX {
            "a letter has too many recipients"
        } else if !self.recipients.is_sorted_by(|one, next| one < next) {
            "a letter's recipients aren't in order, each once"
        } else if !is_id(&self.id)
            || !is_id(&self.sender)
            || !self.recipients.iter().all(|id| is_id(id))
        {
            "a letter's ids aren't ids"
        } else if !self.key.iter().all(has_key) {
            "a letter's key is empty or too long"
        } else if self
            .topic
            .as_ref()
            .is_some_and(|topic| topic.chars().count() > MAIL_TOPIC_CHARS_MAX)
        {
            "a letter's topic is too long"
        } else if self.body.len() > MAIL_BODY_BYTES_MAX {
            return Err(JournalError::TooLarge {
                bytes: self.body.len(),
                bytes_max: MAIL_BODY_BYTES_MAX,
            });
        } else {
            return Ok(());
        };
        Err(JournalError::Invalid(why))
    }

    /// The id of the letter that its thread began with.
    pub fn thread(&self) -> &str {
        self.thread.as_deref().unwrap_or(&self.id)
    }

    /// Whether it is for `agent`.
    pub fn is_for(&self, agent: &str) -> bool {
        self.recipients
            .binary_search_by(|recipient| recipient.as_str().cmp(agent))
            .is_ok()
    }

    /// Whether it is to `agent` or from it: nobody else may know of it.
    pub fn concerns(&self, agent: &str) -> bool {
        self.sender == agent || self.is_for(agent)
    }
}

// What is said, and what about, may be anybody's data.
/// A letter as it is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct Letter {
    /// Its place among all letters, from 1, without gaps.
    pub number: u64,
    /// What came in. Its body is empty once its retention is over, in a store that has one.
    pub new: NewLetter,
    /// The size and hash of the body.
    pub mark: BodyMark,
    /// When it was accepted.
    pub accepted: SystemTime,
    /// How many of its recipients' copies are made, in their order.
    pub spread: u32,
    /// It was kept just now: `false` where its key was there.
    pub is_new: bool,
}

impl Letter {
    /// As it is when it has come in: `mark` stands for its body.
    pub fn accepted(number: u64, new: NewLetter, mark: BodyMark, accepted: SystemTime) -> Self {
        let spread = if new.recipients.len() <= COPIES_AT_ONCE_MAX {
            new.recipients.len()
        } else {
            0
        };
        let spread = u32::try_from(spread).unwrap_or_default();
        Self {
            number,
            new,
            mark,
            accepted,
            spread,
            is_new: true,
        }
    }

    /// Whether all copies are made.
    pub fn is_spread(&self) -> bool {
        self.spread as usize >= self.new.recipients.len()
    }

    /// The copy of a recipient for whom none is made yet.
    pub fn fresh_copy(&self, recipient: impl Into<String>) -> MailCopy {
        MailCopy {
            recipient: recipient.into(),
            letter: self.number,
            state: EntryState::Accepted,
            accepted: self.accepted,
            delivered: None,
            read: None,
            attempts: 0,
        }
    }

    /// Its first characters, at most so many.
    pub fn preview(&self, chars: usize) -> String {
        self.new.body.chars().take(chars).collect()
    }

    /// What the log says of it, in a few words.
    pub fn summary(&self) -> String {
        let how = match self.new.kind {
            LetterKind::Direct => "Direct message",
            LetterKind::Broadcast => "Broadcast message",
            LetterKind::Group => "Group message",
            LetterKind::Guidance => "Guidance",
        };
        format!(
            "{how} from agent {}",
            self.new.sender.chars().take(8).collect::<String>()
        )
    }

    /// What the log shows of what it says.
    pub fn logged(&self) -> String {
        self.preview(MAIL_LOG_CHARS)
    }

    /// Its line in the audit: `agent_communication`.
    pub fn audit_entry(&self) -> AuditEntry {
        let new = &self.new;
        let agent = match new.recipients.as_slice() {
            [only] => only.clone(),
            more => format!("{} agents", more.len()),
        };
        let named = AuditEntry::new("agent_communication")
            .with_agent(agent)
            .with_peer(&new.sender);
        let marked = named
            .with_class(new.class)
            .with_body(self.mark.clone())
            .with_outcome("accepted");
        let mut names = Sha256::new();
        for recipient in &new.recipients {
            names.update(recipient);
            names.update("\n");
        }
        let told = AuditEntry {
            at: self.accepted,
            ..marked
        }
        .with("kind", new.kind.as_str())
        .with("number", self.number)
        .with("recipients", new.recipients.len())
        .with("recipients_sha256", hex(&names.finalize()));
        match new.recipients.len() <= MAIL_NAMED_MAX {
            true => told.with("names", new.recipients.clone()),
            false => told,
        }
    }
}

/// How far a letter has come with one of its recipients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailCopy {
    /// The recipient.
    pub recipient: String,
    /// The letter's number.
    pub letter: u64,
    /// How far.
    pub state: EntryState,
    /// When it was kept for it.
    pub accepted: SystemTime,
    /// When it first had it.
    pub delivered: Option<SystemTime>,
    /// When it had read it.
    pub read: Option<SystemTime>,
    /// How often its delivery was tried.
    pub attempts: u32,
}

/// Which letters. What is `None` leaves all.
#[derive(Clone, PartialEq, Eq, Default, derive_more::Debug)]
#[debug("LetterFilter")]
pub struct LetterFilter {
    /// Whose: letters to this agent or from it. `None`: anybody's.
    pub of: Option<String>,
    /// Of those, the ones that it sent (`Some(true)`) or got (`Some(false)`).
    pub sent: Option<bool>,
    /// Between it and this agent, both ways.
    pub with: Option<String>,
    /// From this sender.
    pub sender: Option<String>,
    /// Of this topic.
    pub topic: Option<String>,
    /// Of this thread.
    pub thread: Option<String>,
    /// With this in its body, whatever the case of ASCII letters. What has no body any more has nothing in it.
    pub text: Option<String>,
    /// Accepted then or later.
    pub since: Option<SystemTime>,
    /// Accepted before.
    pub until: Option<SystemTime>,
    /// Those that it got and that have come so far with it; what it sent never has.
    pub state: Option<EntryState>,
}

impl LetterFilter {
    /// Refuses what no store looks for.
    ///
    /// # Errors
    /// [`JournalError::Invalid`]: a NUL, or too long a text.
    pub fn check(&self) -> JournalResult<()> {
        let texts = [
            &self.of,
            &self.with,
            &self.sender,
            &self.topic,
            &self.thread,
            &self.text,
        ];
        texts
            .into_iter()
            .flatten()
            .try_for_each(|text| storable(text))?;
        match self
            .text
            .as_ref()
            .is_some_and(|text| text.chars().count() > MAIL_SEARCH_CHARS_MAX)
        {
            true => Err(JournalError::Invalid("a text to look for is too long")),
            false => Ok(()),
        }
    }

    /// Whether it leaves a letter whose copy for [`Self::of`] is `copy`.
    pub fn leaves(&self, letter: &Letter, copy: Option<&MailCopy>) -> bool {
        let new = &letter.new;
        let is = |wanted: &Option<String>, has: Option<&str>| {
            wanted.is_none() || wanted.as_deref() == has
        };
        let of = |of: &str| {
            let (sent, got) = (new.sender == of, new.is_for(of));
            let with = |with: &str| (sent && new.is_for(with)) || (got && new.sender == with);
            self.sent.map_or(
                sent || got,
                |wants_sent| if wants_sent { sent } else { got },
            ) && self.with.as_deref().is_none_or(with)
        };
        let has = |text: &str| {
            new.body
                .to_ascii_lowercase()
                .contains(&text.to_ascii_lowercase())
        };
        self.of.as_deref().is_none_or(of)
            && is(&self.sender, Some(&new.sender))
            && is(&self.topic, new.topic.as_deref())
            && is(&self.thread, Some(new.thread()))
            && self.since.is_none_or(|since| letter.accepted >= since)
            && self.until.is_none_or(|until| letter.accepted < until)
            && self
                .state
                .is_none_or(|state| copy.is_some_and(|copy| copy.state == state))
            && self.text.as_deref().is_none_or(has)
    }
}

// What is looked for may be anybody's data.
