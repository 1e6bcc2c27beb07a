//! Agent mail: messages between agents, requests about them, and events.
//!
//! Requests are sent to a mailroom, except [`DeliverMessage`] and [`CheckDelivery`], which it sends
//! itself. Requests whose names don't begin with `callboard.` are tools of those names. The caller
//! is identified by its principal; `sender_agent_id` is a claim that must match it. Times are RFC
//! 3339 in UTC with milliseconds.

mod agents;
mod event;
mod read;
mod send;
mod wire;

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::text_enum::text_enum;

pub use agents::{
    AgentStatus, AgentView, DeliveryMethod, EndAgent, GetAgentStatus, GroupList, GroupView,
    JoinMailroom, LeaveMailroom, ListGroups, MailAck, MailPreferences, MemberState, MemoryEntry,
    MemoryPage, Preferences, ReadMemory, SaveMemory, SavedMemory,
};
pub use event::{MailEvent, MailEventPage, NewMailEvents, NumberedMailEvent, ReadEvents};
pub use read::{
    AgentLogPage, AgentLogRow, AgentLogs, CheckInbox, FetchMail, FetchedMail, Inbox, LogDetails,
    MailDirection, MailView, MarkRead, MessageHistory, MessageHistoryPage, ReadMessage, Receipt,
};
pub use send::{
    BroadcastMessage, CheckDelivery, DeliverMessage, DisplayIds, ReplyMessage, SendMessage,
    SendReceipt,
};

/// Maximum length of a message's text, in bytes. A longer one is rejected with `InvalidInput`.
pub const MAIL_BODY_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of recipients of one message. A message to a longer list is rejected with
/// `InvalidInput`; a broadcast or a message to a group leaves out further recipients.
pub const MAIL_RECIPIENTS_MAX: usize = 10_000;
/// Maximum number of messages that wait for one member. Beyond it, the member's mailbox is full and
/// further messages are refused.
pub const MAIL_UNREAD_MAX: usize = 10_000;
/// Maximum length of a topic, in characters. A longer one is rejected with `InvalidInput`.
pub const MAIL_TOPIC_CHARS_MAX: usize = 64;
/// Maximum length of an idempotency key, in bytes. A longer one is rejected with `InvalidInput`.
pub const MAIL_KEY_BYTES_MAX: usize = 128;
/// Default time until a message expires: 7 days.
pub const MAIL_EXPIRES_DEFAULT: Duration = Duration::from_secs(7 * 86_400);
/// Maximum time until a message expires: 30 days. A longer one is rejected with `InvalidInput`.
pub const MAIL_EXPIRES_MAX: Duration = Duration::from_secs(30 * 86_400);
/// Maximum number of members of a mailroom. Further ones are rejected with `Overloaded`.
pub const MAIL_MEMBERS_MAX: usize = 10_000;
/// Maximum length of the text in a search of the message history, in characters. A search for a
/// longer one is rejected.
pub const MAIL_SEARCH_CHARS_MAX: usize = 128;
/// Maximum number of entries in each list of a member's [`Preferences`]. A longer list is rejected
/// with `InvalidInput`.
pub const MAIL_MUTED_MAX: usize = 256;
/// Maximum number of groups of one member. A declaration with more is rejected; further groups of a
/// credential's scopes are ignored.
pub const MAIL_GROUPS_MAX: usize = 32;
/// Maximum number of recipients that are listed in a [`MailView`]. If a message has more, only
/// their number is given.
pub const MAIL_LISTED_RECIPIENTS_MAX: usize = 16;
/// Maximum number of messages that one [`CheckInbox`] returns. A higher `limit` is rejected with
/// `InvalidInput`.
pub const MAIL_INBOX_MAX: u32 = 50;
/// Default number of messages that one [`CheckInbox`] returns.
pub const MAIL_INBOX_DEFAULT: u32 = 20;
/// Maximum number of messages in one page of [`MessageHistory`]. A higher `limit` is rejected with
/// `InvalidInput`.
pub const MAIL_HISTORY_MAX: u32 = 100;
/// Default number of messages in one page of [`MessageHistory`].
pub const MAIL_HISTORY_DEFAULT: u32 = 50;
/// Maximum number of sequence numbers that one [`ReadEvents`] request scans. A higher `limit` is
/// rejected with `InvalidInput`.
pub const MAIL_EVENTS_MAX: u32 = 256;
/// Maximum length of the text preview in an event, in characters. A longer text is cut.
pub const MAIL_PREVIEW_CHARS: usize = 100;
/// Maximum length of the text in a row of [`AgentLogs`], in characters. A longer text is cut.
pub const MAIL_LOG_CHARS: usize = 200;
/// Maximum length of the content of [`SaveMemory`], in bytes. A longer one is rejected with
/// `InvalidInput`.
pub const MAIL_MEMORY_BYTES_MAX: usize = 16 * 1024;
/// Maximum number of entries that one [`ReadMemory`] returns. Further ones are on the next page.
pub const MAIL_MEMORY_PAGE_MAX: usize = 20;
/// Maximum length of an agent's [`trouble`](AgentView::trouble), in characters. A longer text is
/// cut.
pub const MAIL_TROUBLE_CHARS_MAX: usize = 200;
/// Topic of the system's event bus on which [`NewMailEvents`] is published.
pub const MAIL_EVENTS_TOPIC: &str = "mail";
/// Agent id of the Guardian, the principal that guides the agents.
pub const GUARDIAN_ID: &str = "guardian";
/// Agent id of the local operator, that is of a user on this machine without a key.
pub const OPERATOR_ID: &str = "operator";
/// Agent id of the node itself. No agent may use it.
pub const SYSTEM_ID: &str = "system";
/// Scope that permits to send messages as the Guardian.
pub const GUARDIAN_SCOPE: &str = "mail.guardian";
/// Scope that permits to read the events of all agents.
pub const WATCH_SCOPE: &str = "mail.watch";
/// Request header, in lower case, with the sender's agent id. It is a claim, not a credential: it
/// must match the credential.
pub const AGENT_ID_HEADER: &str = "x-agent-id";
/// Member of a failure's data: number of seconds after which the request may be repeated.
pub const RETRY_AFTER_DATA_KEY: &str = "retry_after_s";

/// Id of an agent with a mailbox: 1 to 64 characters of `A-Za-z0-9._-`. Group names have a `:`, so
/// they are never valid ids.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MemberId(String);

/// Error for text that is not an agent id: 1 to 64 characters of `A-Za-z0-9._-`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "an agent's id is 1 to {} characters of A-Z a-z 0-9 . _ -",
    MemberId::CHARS_MAX
)]
pub struct MemberIdError;

impl MemberId {
    /// Maximum length of an id, in characters.
    pub const CHARS_MAX: usize = 64;

    /// Parses an agent id.
    ///
    /// # Errors
    /// Fails if `text` is empty, has more than 64 characters, or has any other than `A-Za-z0-9._-`.
    pub fn parse(text: impl Into<String>) -> Result<Self, MemberIdError> {
        let text = text.into();
        let fits = text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
        match fits && (1..=Self::CHARS_MAX).contains(&text.len()) {
            true => Ok(Self(text)),
            false => Err(MemberIdError),
        }
    }

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for MemberId {
    type Error = MemberIdError;

    fn try_from(text: String) -> Result<Self, MemberIdError> {
        Self::parse(text)
    }
}

impl From<MemberId> for String {
    fn from(id: MemberId) -> Self {
        id.0
    }
}

impl AsRef<str> for MemberId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

text_enum! {
    /// Priority of a message.
    Priority {
        /// Delivered in order of acceptance.
        Normal = "normal",
        /// Delivered before all messages that aren't urgent.
        Urgent = "urgent",
    }
    /// Kind of message, by its recipients or its sender.
    #[schemars(rename = "LetterKind")]
    MailMessageKind {
        /// Message to one agent or to a list of agents.
        Direct = "direct",
        /// Message to all agents that the sender can see.
        Broadcast = "broadcast",
        /// Message to a group.
        Group = "group",
        /// Message from the Guardian.
        Guidance = "guidance",
    }
    /// Delivery state of a message for one recipient. It only advances.
    #[schemars(rename = "EntryState")]
    DeliveryState {
        /// The message is stored.
        Accepted = "accepted",
        /// The recipient has got the message.
        Delivered = "delivered",
        /// The recipient has read the message.
        Read = "read",
    }
}

/// Implements `Debug` with the length of the text only, because it is confidential.
macro_rules! debug_without_text {
    ($($name:ident: $text:ident;)*) => {$(
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!(stringify!($name), "({} bytes)"), self.$text.len())
            }
        }
    )*};
}
pub(crate) use debug_without_text;

/// Implements `Debug` with the type's name only, because some fields hold confidential text.
macro_rules! debug_name_only {
    ($($name:ident)*) => {$(
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(stringify!($name))
            }
        }
    )*};
}
pub(crate) use debug_name_only;

/// Former name of [`DeliverMessage`].
#[deprecated(note = "renamed to `DeliverMessage`")]
pub type Deliver = DeliverMessage;

#[cfg(test)]
mod tests;
