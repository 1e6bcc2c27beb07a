//! Mail store: messages, each stored once, and the delivery state of each recipient's copy.

mod memory;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use callboard_message::mail::{
    AgentLogRow, MAIL_BODY_BYTES_MAX, MAIL_KEY_BYTES_MAX, MAIL_LISTED_RECIPIENTS_MAX,
    MAIL_LOG_CHARS, MAIL_RECIPIENTS_MAX, MAIL_SEARCH_CHARS_MAX, MAIL_TOPIC_CHARS_MAX,
    MailMessageKind, MemberId,
};
use callboard_message::{DataClass, encode_hex};
use sha2::{Digest, Sha256};

pub use callboard_message::mail::DeliveryState;
pub use memory::MemoryMailStore;

use crate::audit::{AuditEntry, BodyDigest};
use crate::journal::{JournalError, JournalResult, check_storable};

/// Maximum number of recipients for which [`MailStore::post`] creates all copies at once. With more
/// recipients, [`MailStore::fan_out`] creates all copies.
pub const INLINE_COPIES_MAX: usize = 16;
/// Maximum number of copies that one [`MailStore::fan_out`] creates.
pub const FAN_OUT_BATCH_MAX: usize = 128;
/// Maximum number of (recipient, message) pairs that one [`MailStore::update_receipts`] accepts.
pub const RECEIPT_BATCH_MAX: usize = 256;
/// Maximum number of messages, copies, events or log rows in one result of a [`MailStore`].
pub const MAIL_PAGE_MAX: usize = 1_000;
/// Maximum number of messages that one [`MailStore::history`] examines.
pub const MAIL_SCAN_MAX: u64 = 10_000;
/// Range of row numbers reserved for each message in [`MailStore::log_rows`], larger than the
/// maximum number of recipients. The database views of stores use the same value.
pub const MAIL_LOG_ROWS_PER_MESSAGE: u64 = 16_384;
/// Journal stream that holds [`MailStore::events`].
pub const MAIL_EVENTS_STREAM: &str = "mail/events";

/// Message with the copy of one recipient.
pub type MailMessageWithCopy = (Arc<MailMessage>, MailCopy);
/// Page of messages, and the message number below which the next page starts; `None` on the last
/// page.
pub type MailHistoryPage = (Vec<MailHistoryEntry>, Option<u64>);
/// Message with the requesting member's copy; `None` if that member isn't a recipient, or the
/// filter names none.
pub type MailHistoryEntry = (Arc<MailMessage>, Option<MailCopy>);

/// New delivery state that a recipient reports for a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiptUpdate {
    /// The message was delivered.
    Delivered,
    /// The message was read.
    Read,
}

/// Mail store. A message is accepted when [`Self::post`] returns; its recipients are fixed from
/// then on.
///
/// Each recipient has a copy of each message, which holds the delivery state. A copy that hasn't
/// been created yet is returned as one in state `Accepted`. Every method may fail with the store's
/// error.
#[async_trait]
pub trait MailStore: Send + Sync + 'static {
    /// Stores a message with one audit entry and one event. If the sender has already used the
    /// message's idempotency key, nothing is stored and the first message is returned (`is_new` is
    /// false).
    ///
    /// Creates the recipients' copies if there are at most [`INLINE_COPIES_MAX`]; otherwise
    /// [`Self::fan_out`] has to create all of them.
    ///
    /// # Errors
    /// Those of [`NewMailMessage::check`], and those of the store. The store doesn't limit the
    /// recipients' unread mail.
    async fn post(&self, new: NewMailMessage) -> JournalResult<Arc<MailMessage>>;

    /// Creates the missing copies of the first `to` recipients of a message, in the order of
    /// [`NewMailMessage::recipients`]. Marks the copies of the recipients in `delivered` as
    /// delivered, with one event for all that changed. Idempotent.
    ///
    /// # Errors
    /// [`JournalError::Invalid`] for an unknown message, or for more than [`FAN_OUT_BATCH_MAX`] new
    /// copies or recipients in `delivered`.
    async fn fan_out(
        &self,
        message_number: u64,
        to: u32,
        delivered: Vec<String>,
    ) -> JournalResult<()>;

    /// Returns up to `messages_max` messages whose copies haven't all been created, oldest first.
    /// The maximum is [`MAIL_PAGE_MAX`].
    async fn pending_fan_out(&self, messages_max: usize) -> JournalResult<Vec<Arc<MailMessage>>>;

    /// Marks copies, given as (recipient, message number), as delivered or read. Returns those that
    /// changed. Read implies delivered. A missing copy is created; a pair whose member isn't a
    /// recipient of the message is ignored. Appends one event for each message that changed.
    ///
    /// # Errors
    /// [`JournalError::Invalid`] for more than [`RECEIPT_BATCH_MAX`] pairs.
    async fn update_receipts(
        &self,
        copies: Vec<(String, u64)>,
        update: ReceiptUpdate,
    ) -> JournalResult<Vec<(String, u64)>>;

    /// Counts an attempt to deliver a message to a recipient. Creates the copy if it is missing.
    /// Returns the number of attempts, or 0 if the message has no such recipient.
    async fn count_attempt(&self, recipient: &str, message_number: u64) -> JournalResult<u32>;

    /// Returns a recipient's unread and unexpired messages; with `undelivered`, only those not yet
    /// delivered. Urgent ones come first, then by number. Starts after the given position (urgent,
    /// number). Returns at most [`MAIL_PAGE_MAX`].
    async fn list_open(
        &self,
        recipient: &str,
        after: Option<(bool, u64)>,
        undelivered: bool,
        messages_max: usize,
    ) -> JournalResult<Vec<MailMessageWithCopy>>;

    /// Returns the number of unread and unexpired messages by recipient, without recipients that
    /// have none.
    async fn unread_counts(&self) -> JournalResult<HashMap<String, u64>>;

    /// Returns the message with this id; `None` if there is none.
    async fn message(&self, id: &str) -> JournalResult<Option<Arc<MailMessage>>>;

    /// Returns the copies of a message ordered by recipient name, starting after the name `after`.
    /// Returns at most [`MAIL_PAGE_MAX`].
    async fn receipts(
        &self,
        message_number: u64,
        after: Option<&str>,
        copies_max: usize,
    ) -> JournalResult<Vec<MailCopy>>;

    /// Returns messages that match `filter`, newest first, with numbers below `before` (0: from the
    /// newest). Examines at most [`MAIL_SCAN_MAX`] messages. If more remain, also returns the
    /// number to pass as `before` next.
    ///
    /// # Errors
    /// Those of [`MailMessageFilter::check`].
    async fn history(
        &self,
        filter: MailMessageFilter,
        before: u64,
        messages_max: usize,
    ) -> JournalResult<MailHistoryPage>;

    /// Returns up to `events_max` events with a number above `after`, in order; empty if there are
    /// none. Numbers start at 1. They have gaps only where an event has expired or its message was
    /// deleted.
    async fn events(
        &self,
        after: u64,
        events_max: usize,
    ) -> JournalResult<Vec<(u64, StoredMailEvent)>>;

    /// Returns the number of the newest event; 0 if there is none.
    async fn last_event(&self) -> JournalResult<u64>;

    /// Appends an event that doesn't belong to a message, such as an agent's joining, and returns
    /// its number.
    ///
    /// # Errors
    /// Those of [`StoredMailEvent::check_appendable`].
    async fn append_event(&self, event: StoredMailEvent) -> JournalResult<u64>;

    /// Returns up to `rows_max` rows of the communication log with a number above `after`, oldest
    /// first: those of the recipient `agent`, or of all recipients.
    async fn log_rows(
        &self,
        agent: Option<&str>,
        after: u64,
        rows_max: usize,
    ) -> JournalResult<Vec<AgentLogRow>>;

    /// Returns true if other nodes may write to the same store.
    fn is_shared(&self) -> bool {
        false
    }
}

/// Mail event in the store. It refers to the message by number and id, and never stores its text
/// again.
#[derive(Debug, Clone, PartialEq)]
pub enum StoredMailEvent {
    /// A message was accepted. Its body is empty once its retention has expired.
    Posted(Arc<MailMessage>),
    /// Copies of a message have been delivered or read.
    ReceiptsUpdated {
        /// Number of the message.
        message_number: u64,
        /// Id of the message.
        id: String,
        /// Member id of the sender.
        sender: String,
        /// New state of the copies: delivered or read.
        state: DeliveryState,
        /// Names of the recipients whose copies changed.
        recipients: Vec<String>,
    },
    /// An agent has joined: its member id and its delivery method.
    Joined(String, String),
    /// An agent has left: its member id and the reason.
    Left(String, String),
}

impl StoredMailEvent {
    /// Checks that the event may be appended by [`MailStore::append_event`].
    ///
    /// # Errors
    /// [`JournalError::Invalid`] for `Posted` and `ReceiptsUpdated`, which the store appends
    /// itself, and for a text with a NUL character.
    pub fn check_appendable(&self) -> JournalResult<()> {
        match self {
            Self::Joined(agent, how) | Self::Left(agent, how) => {
                check_storable(agent).and_then(|()| check_storable(how))
            }
            Self::Posted(_) | Self::ReceiptsUpdated { .. } => Err(JournalError::Invalid(
                "`append_event` takes only `Joined` and `Left`: other events are stored with their message",
            )),
        }
    }
}

/// Message to be posted.
#[derive(Clone, PartialEq, derive_more::Debug)]
#[debug("NewMailMessage({id}, {} of {sender} for {}, {} bytes)", kind.as_str(), recipients.len(), body.len())]
pub struct NewMailMessage {
    /// Message id, a UUID version 7.
    pub id: String,
    /// Member id of the sender.
    pub sender: String,
    /// Way of addressing: direct, broadcast, group or guidance.
    pub kind: MailMessageKind,
    /// Title of the Guardian's guidance; `None` for other messages.
    pub label: Option<String>,
    /// Audience as given by the sender: `one`, `list`, `all` or `group:x`.
    pub audience: String,
    /// Names of the recipients, sorted and unique, at least one.
    pub recipients: Vec<String>,
    /// Topic, if the sender gave one.
    pub topic: Option<String>,
    /// Id of the first message of the thread; `None` if this message starts one.
    pub thread: Option<String>,
    /// Id of the message that this one replies to.
    pub reply_to: Option<String>,
    /// True if the message is delivered before messages that aren't urgent.
    pub urgent: bool,
    /// Idempotency key, unique for each sender.
    pub key: Option<String>,
    /// Data class of the body. [`DataClass::Clinical`] is rejected.
    pub class: DataClass,
    /// Text of the message.
    pub body: String,
    /// Time after which the message is no longer delivered.
    pub expires: SystemTime,
}

impl NewMailMessage {
    /// Checks the limits that apply to every store.
    ///
    /// # Errors
    /// [`JournalError::TooLarge`] if the body is too large; [`JournalError::Invalid`] for any other
    /// violation.
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
            .try_for_each(|text| check_storable(text))?;
        let is_id = |id: &str| MemberId::parse(id).is_ok();
        let has_key = |key: &String| (1..=MAIL_KEY_BYTES_MAX).contains(&key.len());
        let why = if self.class == DataClass::Clinical {
            "mail must not contain clinical data"
        } else if self.recipients.is_empty() {
            "a message must have at least one recipient"
        } else if self.recipients.len() > MAIL_RECIPIENTS_MAX {
            "a message may have at most 10000 recipients"
        } else if !self.recipients.is_sorted_by(|one, next| one < next) {
            "a message's recipients must be sorted and unique"
        } else if !is_id(&self.id)
            || !is_id(&self.sender)
            || !self.recipients.iter().all(|id| is_id(id))
        {
            "the ids of a message, its sender and recipients must have 1 to 64 characters of A-Z a-z 0-9 . _ -"
        } else if !self.key.iter().all(has_key) {
            "a message's idempotency key must have 1 to 128 bytes"
        } else if self
            .topic
            .as_ref()
            .is_some_and(|topic| topic.chars().count() > MAIL_TOPIC_CHARS_MAX)
        {
            "a message's topic may have at most 64 characters"
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

    /// Returns the id of the first message of the thread: the message's own id if it starts one.
    pub fn thread(&self) -> &str {
        self.thread.as_deref().unwrap_or(&self.id)
    }

    /// Returns true if `agent` is a recipient.
    pub fn is_for(&self, agent: &str) -> bool {
        self.recipients
            .binary_search_by(|recipient| recipient.as_str().cmp(agent))
            .is_ok()
    }

    /// Returns true if `agent` is the sender or a recipient. Other members must not learn of the
    /// message.
    pub fn concerns(&self, agent: &str) -> bool {
        self.sender == agent || self.is_for(agent)
    }
}

// Body and topic may hold personal data, so the posted message's Debug output omits them.
/// Stored mail message.
#[derive(Debug, Clone, PartialEq)]
pub struct MailMessage {
    /// Number of the message among all messages, from 1, without gaps.
    pub number: u64,
    /// The message as posted. Its body is empty once its retention has expired.
    pub new: NewMailMessage,
    /// Size and hash of the message body.
    pub digest: BodyDigest,
    /// Time at which the store accepted the message.
    pub accepted: SystemTime,
    /// Number of recipients whose copies have been created: the first ones in the order of
    /// [`NewMailMessage::recipients`].
    pub copies_made: u32,
    /// True if this call of [`MailStore::post`] stored the message; false if its idempotency key
    /// was already known.
    pub is_new: bool,
}

impl MailMessage {
    /// Creates a stored message from a new one. Its count of created copies is that after
    /// [`MailStore::post`].
    pub fn new_accepted(
        number: u64,
        new: NewMailMessage,
        digest: BodyDigest,
        accepted: SystemTime,
    ) -> Self {
        let spread = if new.recipients.len() <= INLINE_COPIES_MAX {
            new.recipients.len()
        } else {
            0
        };
        let copies_made = u32::try_from(spread).unwrap_or_default();
        Self {
            number,
            new,
            digest,
            accepted,
            copies_made,
            is_new: true,
        }
    }

    /// Returns true if all copies have been created.
    pub fn is_fanned_out(&self) -> bool {
        self.copies_made as usize >= self.new.recipients.len()
    }

    /// Returns a fresh copy for a recipient, in state `Accepted`.
    pub fn new_copy(&self, recipient: impl Into<String>) -> MailCopy {
        MailCopy {
            recipient: recipient.into(),
            message_number: self.number,
            state: DeliveryState::Accepted,
            accepted: self.accepted,
            delivered: None,
            read: None,
            attempts: 0,
        }
    }

    /// Returns the first `chars` characters of the message body.
    pub fn preview(&self, chars: usize) -> String {
        self.new.body.chars().take(chars).collect()
    }

    /// Returns a one-line description of the message for the communication log.
    pub fn summary(&self) -> String {
        let how = match self.new.kind {
            MailMessageKind::Direct => "Direct message",
            MailMessageKind::Broadcast => "Broadcast message",
            MailMessageKind::Group => "Group message",
            MailMessageKind::Guidance => "Guidance",
        };
        format!(
            "{how} from agent {}",
            self.new.sender.chars().take(8).collect::<String>()
        )
    }

    /// Returns the excerpt of the body for the communication log, at most [`MAIL_LOG_CHARS`]
    /// characters.
    pub fn log_excerpt(&self) -> String {
        self.preview(MAIL_LOG_CHARS)
    }

    /// Returns the audit entry of the message, with event `agent_communication`.
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
            .with_body(self.digest.clone())
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
        .with_detail("kind", new.kind.as_str())
        .with_detail("number", self.number)
        .with_detail("recipients", new.recipients.len())
        .with_detail("recipients_sha256", encode_hex(&names.finalize()));
        match new.recipients.len() <= MAIL_LISTED_RECIPIENTS_MAX {
            true => told.with_detail("names", new.recipients.clone()),
            false => told,
        }
    }
}

/// Copy of a message for one recipient: its delivery state and times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailCopy {
    /// Name of the recipient.
    pub recipient: String,
    /// Number of the message.
    pub message_number: u64,
    /// Delivery state: accepted, delivered or read.
    pub state: DeliveryState,
    /// Time at which the store accepted the message.
    pub accepted: SystemTime,
    /// Time of first delivery; `None` if it hasn't been delivered.
    pub delivered: Option<SystemTime>,
    /// Time at which the recipient read the message; `None` if unread.
    pub read: Option<SystemTime>,
    /// Number of delivery attempts.
    pub attempts: u32,
}

/// Filter for messages. Criteria that are `None` match everything.
#[derive(Clone, PartialEq, Eq, Default, derive_more::Debug)]
#[debug("MailMessageFilter")]
pub struct MailMessageFilter {
    /// Member whose messages are wanted, those it sent and those it received.
    pub member: Option<String>,
    /// With `member`: only messages that it sent (`Some(true)`) or received (`Some(false)`).
    pub sent: Option<bool>,
    /// With `member`: only messages between that member and this one, in both directions.
    pub with: Option<String>,
    /// Member id of the sender.
    pub sender: Option<String>,
    /// Topic of the message.
    pub topic: Option<String>,
    /// Id of the first message of the thread.
    pub thread: Option<String>,
    /// Text that the message body contains, ignoring ASCII case. Messages whose body has expired
    /// don't match.
    pub text: Option<String>,
    /// Earliest time at which the message was accepted, inclusive.
    pub since: Option<SystemTime>,
    /// Latest time at which the message was accepted, exclusive.
    pub until: Option<SystemTime>,
    /// With `member`: delivery state of that member's copy. Messages that the member sent never
    /// match.
    pub state: Option<DeliveryState>,
}

impl MailMessageFilter {
    /// Checks that every store implementation can evaluate the filter.
    ///
    /// # Errors
    /// [`JournalError::Invalid`] for a NUL character or a search text that is too long.
    pub fn check(&self) -> JournalResult<()> {
        let texts = [
            &self.member,
            &self.with,
            &self.sender,
            &self.topic,
            &self.thread,
            &self.text,
        ];
        texts
            .into_iter()
            .flatten()
            .try_for_each(|text| check_storable(text))?;
        match self
            .text
            .as_ref()
            .is_some_and(|text| text.chars().count() > MAIL_SEARCH_CHARS_MAX)
        {
            true => Err(JournalError::Invalid(
                "the search text may have at most 128 characters",
            )),
            false => Ok(()),
        }
    }

    /// Returns true if the filter matches `message`, whose copy for [`Self::member`] is `copy`.
    pub fn matches(&self, message: &MailMessage, copy: Option<&MailCopy>) -> bool {
        let new = &message.new;
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
        self.member.as_deref().is_none_or(of)
            && is(&self.sender, Some(&new.sender))
            && is(&self.topic, new.topic.as_deref())
            && is(&self.thread, Some(new.thread()))
            && self.since.is_none_or(|since| message.accepted >= since)
            && self.until.is_none_or(|until| message.accepted < until)
            && self
                .state
                .is_none_or(|state| copy.is_some_and(|copy| copy.state == state))
            && self.text.as_deref().is_none_or(has)
    }
}

// Search texts and names may be personal data, so the filter has no Debug output.
