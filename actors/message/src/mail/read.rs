//! Reading what was said.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::wire::{READ_ONLY, mail_message};
use super::{EntryState, LetterKind, Priority, only_named, without_text};
use crate::words::words;

/// What have I not read? What is shown whole is read by that.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckInbox {
    /// Your own id; may be left out; any other is refused.
    pub sender_agent_id: Option<String>,
    /// At most so many, 1 to 50 (20).
    pub limit: Option<u32>,
    /// Look only: nothing counts as read.
    #[serde(default)]
    pub peek: bool,
    /// From this agent only.
    pub from: Option<String>,
    /// Of this topic only.
    pub topic: Option<String>,
    /// Of this thread only.
    pub thread: Option<String>,
    /// Urgent ones only.
    #[serde(default)]
    pub urgent_only: bool,
}

/// A message whole; it is read by that.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadMessage {
    /// Which.
    pub message_id: String,
    /// Your own id; may be left out; any other is refused.
    pub sender_agent_id: Option<String>,
    /// Also how far it has come with each recipient: to its sender only.
    #[serde(default)]
    pub receipts: bool,
}

words! {
    /// Which way a message went.
    Direction {
        /// To whoever asks.
        In = "in",
        /// From whoever asks.
        Out = "out",
        /// Both.
        All = "all",
    }
}

/// What was said to me and by me, newest first.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MessageHistory {
    /// Your own id; may be left out; any other is refused.
    pub sender_agent_id: Option<String>,
    /// Between you and this agent, both ways.
    pub with: Option<String>,
    /// From this agent only.
    pub from: Option<String>,
    /// Of this topic only.
    pub topic: Option<String>,
    /// Of this thread only.
    pub thread: Option<String>,
    /// With these words in it, in any case; at most 128 characters.
    pub text: Option<String>,
    /// Not before this time (RFC 3339).
    pub since: Option<String>,
    /// Before this time (RFC 3339).
    pub until: Option<String>,
    /// `in`, `out` or `all` (all).
    pub direction: Option<Direction>,
    /// Only those in this state: what you got, with you; what you sent, with its last recipient.
    pub state: Option<EntryState>,
    /// Go on where a page ended: its `next`.
    pub after: Option<u64>,
    /// At most so many, 1 to 100 (50).
    pub limit: Option<u32>,
}

/// A page of what was not read: urgent first, then as it came.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Inbox {
    /// How many there are.
    pub unread: u64,
    /// The first of them.
    pub messages: Vec<MailView>,
    /// Whether there are more that were asked for.
    pub more: bool,
}

/// A page of history.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct History {
    /// Newest first.
    pub messages: Vec<MailView>,
    /// Where to go on (`after`); none at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// A message as one of those sees it whom it concerns.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MailView {
    /// Its id.
    pub message_id: String,
    /// Its place among all messages; messages of one sender to one recipient come in this order.
    pub number: u64,
    /// How it was sent.
    pub kind: LetterKind,
    /// Who sent it.
    pub from: String,
    /// Whom it is for; of more than 16 only how many there are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<String>,
    /// How many it is for.
    pub to_count: u64,
    /// The id of the message that its thread began with.
    pub thread: String,
    /// The id of the message that it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// What it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// Whether it goes before others.
    pub priority: Priority,
    /// When it was accepted.
    pub sent: String,
    /// When it is handed out no more.
    pub expires: String,
    /// How far it has come with whoever asks; with its last recipient, where the sender asks.
    pub state: EntryState,
    /// Who says it and what, as it is shown in a terminal.
    pub text: String,
    /// Whether there is more of it: read_message shows it whole.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
    /// What was sent, letter by letter: for programs, never for a model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// How far it has come with each recipient.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipts: Option<Vec<Receipt>>,
}

/// How far a message has come with a recipient, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Receipt {
    /// The recipient.
    pub agent_id: String,
    /// How far.
    pub state: EntryState,
    /// When it was kept for it.
    pub accepted: String,
    /// When it had it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivered: Option<String>,
    /// When it had read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<String>,
}

/// I have it, or have read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MarkRead {
    /// Which.
    pub message_id: String,
    /// `read` or `delivered` (read).
    pub state: Option<EntryState>,
}

/// Rows of the log of who wrote to whom, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentLogs {
    /// Of this recipient only.
    pub agent_id: Option<String>,
    /// Those after this number.
    pub after: Option<u64>,
    /// At most so many, 1 to 1,000 (100).
    pub limit: Option<u32>,
}

/// A page of the log.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Logs {
    /// Oldest first.
    pub logs: Vec<AgentLogRow>,
}

/// A row of the log: a message and one of its recipients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentLogRow {
    /// Its place in the log: it grows, with gaps.
    pub number: u64,
    /// `agent_communication`.
    pub log_type: String,
    /// The recipient.
    pub agent_id: String,
    /// In a few words; no word of what was said.
    pub message: String,
    /// The rest.
    pub details: LogDetails,
}

/// What a row of the log holds. Ids are whole.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogDetails {
    /// Who sent it.
    pub sender_id: String,
    /// Who gets it.
    pub recipient_id: String,
    /// How it was sent.
    pub message_type: LetterKind,
    /// The first 200 characters; none once its retention is over.
    pub message_content: String,
    /// When it was accepted.
    pub timestamp: String,
}

mail_message! {
    CheckInbox = "check_inbox" -> Inbox,
        "Read the messages that you haven't read, urgent first. Do it when you are told of mail and between steps of your \
         work. You needn't answer broadcasts.",
        more: [];
    ReadMessage = "read_message" -> MailView,
        "Read one message whole, by its id. Of your own messages, receipts tells who has it and who has read it.",
        more: [];
    MessageHistory = "message_history" -> History,
        "Look up earlier messages to you and from you, newest first: by agent, topic, thread, time or words. Look here \
         before you ask again.",
        more: [READ_ONLY];
    MarkRead = "callboard.mail.mark" -> super::Done, "", more: [];
    AgentLogs = "callboard.mail.logs" -> Logs, "", more: [READ_ONLY];
}

without_text! {
    MailView: text;
    LogDetails: message_content;
}
only_named!(CheckInbox MessageHistory);

/// Give me these as they were sent, letter by letter; I have them by that.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FetchMail {
    /// Which: at most [`MAIL_HISTORY_MAX`](super::MAIL_HISTORY_MAX). Those that whoever asks may not see are left out.
    pub message_ids: Vec<String>,
    /// Also how far each has come with each recipient: to its sender only.
    #[serde(default)]
    pub receipts: bool,
}

/// What was asked for, as far as it is there.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fetched {
    /// In the order that they were asked for, whole, with `message`.
    pub messages: Vec<MailView>,
}

mail_message! {
    FetchMail = "callboard.mail.fetch" -> Fetched, "", more: [];
}
