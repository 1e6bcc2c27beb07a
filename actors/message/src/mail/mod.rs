//! Agent mail: what agents say to each other, ask about it, and are told of it.
//!
//! Each message here is asked of a mailroom. Those whose names don't begin with `callboard.` are its tools, by those names.
//! Who asks is its principal; `sender_agent_id` is a claim that must match. Times are RFC 3339 in UTC with milliseconds.

mod agents;
mod event;
mod read;
mod send;
mod wire;

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::words::words;

pub use agents::{
    AgentStatus, AgentView, Done, EndAgent, GetAgentStatus, GroupView, Groups, Join, Leave,
    ListGroups, MailPreferences, MemberState, MemberWay, Preferences, SaveMemory, Saved,
};
pub use event::{Events, MailEvent, MailHappened, Numbered, ReadEvents};
pub use read::{
    AgentLogRow, AgentLogs, CheckInbox, Direction, FetchMail, Fetched, History, Inbox, LogDetails,
    Logs, MailView, MarkRead, MessageHistory, ReadMessage, Receipt,
};
pub use send::{BroadcastMessage, Deliver, Displayed, Reach, ReplyMessage, SendMessage, Sent};

/// Bytes of a message's body.
pub const MAIL_BODY_BYTES_MAX: usize = 64 * 1024;
/// Recipients of one message.
pub const MAIL_RECIPIENTS_MAX: usize = 10_000;
/// Messages that a recipient has not read, before its box is full.
pub const MAIL_UNREAD_MAX: usize = 10_000;
/// Characters of a topic.
pub const MAIL_TOPIC_CHARS_MAX: usize = 64;
/// Bytes of an idempotency key.
pub const MAIL_KEY_BYTES_MAX: usize = 128;
/// How long a message is handed out, unless it says otherwise.
pub const MAIL_EXPIRES_DEFAULT: Duration = Duration::from_secs(7 * 86_400);
/// The longest that a message may ask to be handed out.
pub const MAIL_EXPIRES_MAX: Duration = Duration::from_secs(30 * 86_400);
/// Members of a mailroom.
pub const MAIL_MEMBERS_MAX: usize = 10_000;
/// Characters that a search in texts may have.
pub const MAIL_SEARCH_CHARS_MAX: usize = 128;
/// Names in each list of what a member doesn't want.
pub const MAIL_MUTED_MAX: usize = 256;
/// Groups that a member is in.
pub const MAIL_GROUPS_MAX: usize = 32;
/// Recipients that a view of a message names: of more, it tells how many there are.
pub const MAIL_NAMED_MAX: usize = 16;
/// Messages that one look into an inbox shows, and how many it shows unless it is told.
pub const MAIL_INBOX_MAX: u32 = 50;
/// See [`MAIL_INBOX_MAX`].
pub const MAIL_INBOX_DEFAULT: u32 = 20;
/// Messages of one page of history, and how many it has unless it is told.
pub const MAIL_HISTORY_MAX: u32 = 100;
/// See [`MAIL_HISTORY_MAX`].
pub const MAIL_HISTORY_DEFAULT: u32 = 50;
/// Events of one page.
pub const MAIL_EVENTS_MAX: u32 = 256;
/// Characters of a text that an event shows.
pub const MAIL_PREVIEW_CHARS: usize = 100;
/// Characters of a text that a row of the log shows.
pub const MAIL_LOG_CHARS: usize = 200;
/// Bytes of what [`SaveMemory`] keeps.
pub const MAIL_MEMORY_BYTES_MAX: usize = 16 * 1024;
/// The topic of the system's events under which [`MailHappened`] is published.
pub const MAIL_TOPIC: &str = "mail";
/// The id of whoever guides the agents.
pub const GUARDIAN: &str = "guardian";
/// The id of whoever sits at the machine and has no key.
pub const OPERATOR: &str = "operator";
/// The id of the node itself.
pub const SYSTEM: &str = "system";
/// The scope of whoever speaks as the Guardian.
pub const GUARDIAN_SCOPE: &str = "mail.guardian";
/// The scope of whoever sees every event.
pub const WATCH_SCOPE: &str = "mail.watch";
/// The header, in lower case, of the id that a request claims to come from. It is no credential.
pub const AGENT_ID_HEADER: &str = "x-agent-id";
/// Member of a failure's data: after how many seconds the same may pass.
pub const RETRY_AFTER_S: &str = "retry_after_s";
/// Member of a failure's data: the scope that would have done.
pub const NEEDED_SCOPE: &str = "needed_scope";

/// The id of an agent that has mail: 1 to 64 characters of `A-Za-z0-9._-`. What names a group has a `:`, and so is none.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MailId(String);

/// Use 1 to 64 characters of `A-Za-z0-9._-`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "an agent's id is 1 to {} characters of A-Z a-z 0-9 . _ -",
    MailId::CHARS_MAX
)]
pub struct MailIdError;

impl MailId {
    /// Its length, at most.
    pub const CHARS_MAX: usize = 64;

    /// Takes `text` as an id.
    ///
    /// # Errors
    /// It can't be one.
    pub fn parse(text: impl Into<String>) -> Result<Self, MailIdError> {
        let text = text.into();
        let fits = text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
        match fits && (1..=Self::CHARS_MAX).contains(&text.len()) {
            true => Ok(Self(text)),
            false => Err(MailIdError),
        }
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MailId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for MailId {
    type Error = MailIdError;

    fn try_from(text: String) -> Result<Self, MailIdError> {
        Self::parse(text)
    }
}

impl From<MailId> for String {
    fn from(id: MailId) -> Self {
        id.0
    }
}

impl AsRef<str> for MailId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

words! {
    /// Whether a message goes before others.
    Priority {
        /// In its turn.
        Normal = "normal",
        /// Before all that isn't urgent.
        Urgent = "urgent",
    }
    /// How a message was sent.
    LetterKind {
        /// To one agent, or to a list.
        Direct = "direct",
        /// To all that its sender sees.
        Broadcast = "broadcast",
        /// To a group.
        Group = "group",
        /// By the Guardian.
        Guidance = "guidance",
    }
    /// How far a message has come with a recipient. It never goes back.
    EntryState {
        /// It is kept.
        Accepted = "accepted",
        /// Its recipient got it.
        Delivered = "delivered",
        /// Its recipient has read it.
        Read = "read",
    }
}

/// Says nothing of what somebody wrote.
macro_rules! without_text {
    ($($name:ident: $text:ident;)*) => {$(
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!(stringify!($name), "({} bytes)"), self.$text.len())
            }
        }
    )*};
}
pub(crate) use without_text;

/// Says nothing of its members: some are somebody's words.
macro_rules! only_named {
    ($($name:ident)*) => {$(
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(stringify!($name))
            }
        }
    )*};
}
pub(crate) use only_named;

#[cfg(test)]
mod tests;
