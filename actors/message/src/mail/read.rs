//! Requests that read mail, history and logs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::wire::{READ_ONLY, mail_message};
use super::{DeliveryState, MailMessageKind, Priority, debug_name_only, debug_without_text};
use crate::text_enum::text_enum;

/// Request for unread messages. Those returned in full are marked as read.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckInbox {
    /// Your own agent id. Optional; any other id is rejected.
    pub sender_agent_id: Option<String>,
    /// Maximum number of messages, 1 to 50 (default 20).
    pub limit: Option<u32>,
    /// Don't mark messages as read.
    #[serde(default)]
    pub peek: bool,
    /// Only messages from this agent.
    pub from: Option<String>,
    /// Only messages with this topic.
    pub topic: Option<String>,
    /// Only messages of this thread.
    pub thread: Option<String>,
    /// Only urgent messages.
    #[serde(default)]
    pub urgent_only: bool,
}

/// Request for a whole message, which is marked as read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadMessage {
    /// Id of the message.
    pub message_id: String,
    /// Your own agent id. Optional; any other id is rejected.
    pub sender_agent_id: Option<String>,
    /// Include the delivery state for each recipient. For the sender only.
    #[serde(default)]
    pub receipts: bool,
}

text_enum! {
    /// Direction of a message, as seen by the caller.
    #[schemars(rename = "Direction")]
    MailDirection {
        /// Messages received by the caller.
        In = "in",
        /// Messages sent by the caller.
        Out = "out",
        /// Messages received or sent by the caller.
        All = "all",
    }
}

/// Request for messages to and from the caller, newest first.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MessageHistory {
    /// Your own agent id. Optional; any other id is rejected.
    pub sender_agent_id: Option<String>,
    /// Only messages between you and this agent, in both directions.
    pub with: Option<String>,
    /// Only messages from this agent.
    pub from: Option<String>,
    /// Only messages with this topic.
    pub topic: Option<String>,
    /// Only messages of this thread.
    pub thread: Option<String>,
    /// Only messages that contain this text, ignoring ASCII case; at most 128 characters.
    pub text: Option<String>,
    /// Only messages sent at or after this time (RFC 3339).
    pub since: Option<String>,
    /// Only messages sent before this time (RFC 3339).
    pub until: Option<String>,
    /// Direction: `in`, `out` or `all` (default `all`).
    pub direction: Option<MailDirection>,
    /// Only messages in this state: yours if received, the least advanced recipient's if sent.
    pub state: Option<DeliveryState>,
    /// Position to continue from: `next` of the previous page.
    pub after: Option<u64>,
    /// Maximum number of messages, 1 to 100 (default 50).
    pub limit: Option<u32>,
}

/// Page of unread messages: urgent ones first, then in order of arrival.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Inbox {
    /// Number of messages that are unread after this request, matching it or not.
    pub unread: u64,
    /// Unread messages that match the request, at most `limit`.
    pub messages: Vec<MailView>,
    /// Whether there are more messages that match the request.
    pub more: bool,
}

/// Page of message history.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "History")]
pub struct MessageHistoryPage {
    /// Messages, newest first.
    pub messages: Vec<MailView>,
    /// Position of the next page (`after`); absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// A message as its sender or one of its recipients sees it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MailView {
    /// Id of the message.
    pub message_id: String,
    /// Number of the message among all messages of the mailroom. Messages from one sender to one recipient arrive in this order.
    pub number: u64,
    /// Kind of message.
    pub kind: MailMessageKind,
    /// Agent id of the sender.
    pub from: String,
    /// Agent ids of the recipients; empty if there are more than 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<String>,
    /// Number of recipients that the reader may see.
    pub to_count: u64,
    /// Id of the thread: that of its first message.
    pub thread: String,
    /// Id of the message that this one replies to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// Topic of the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// Priority of the message.
    pub priority: Priority,
    /// Time of acceptance (RFC 3339).
    pub sent: String,
    /// Time of expiry (RFC 3339).
    pub expires: String,
    /// Delivery state: for a recipient its own, for the sender the least advanced of all recipients.
    pub state: DeliveryState,
    /// Sender and text, sanitised for display in a terminal.
    pub text: String,
    /// Whether the text is truncated; read_message returns it whole.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
    /// Text exactly as sent: for programs, never for a model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Delivery state for each recipient.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipts: Option<Vec<Receipt>>,
}

/// Delivery state of a message for one recipient, with times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Receipt {
    /// Agent id of the recipient.
    pub agent_id: String,
    /// Delivery state.
    pub state: DeliveryState,
    /// Time of acceptance (RFC 3339).
    pub accepted: String,
    /// Time of delivery (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivered: Option<String>,
    /// Time of reading (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<String>,
}

/// Request to mark a message as delivered or read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MarkRead {
    /// Id of the message.
    pub message_id: String,
    /// New state, `read` or `delivered` (default `read`).
    pub state: Option<DeliveryState>,
}

/// Request for rows of the communication log, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentLogs {
    /// Only rows of this recipient.
    pub agent_id: Option<String>,
    /// Row number after which rows are returned.
    pub after: Option<u64>,
    /// Maximum number of rows, 1 to 1,000 (default 100).
    pub limit: Option<u32>,
}

/// Page of the communication log.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Logs")]
pub struct AgentLogPage {
    /// Rows, oldest first.
    pub logs: Vec<AgentLogRow>,
}

/// Row of the communication log: a message and one of its recipients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentLogRow {
    /// Row number; numbers grow, with gaps.
    pub number: u64,
    /// Type of row, always `agent_communication`.
    pub log_type: String,
    /// Agent id of the recipient.
    pub agent_id: String,
    /// Summary without any text of the message.
    pub message: String,
    /// Details of the message.
    pub details: LogDetails,
}

/// Details of a row of the communication log. Ids are complete.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogDetails {
    /// Agent id of the sender.
    pub sender_id: String,
    /// Agent id of the recipient.
    pub recipient_id: String,
    /// Kind of message.
    pub message_type: MailMessageKind,
    /// First 200 characters of the text; empty once the retention period has ended.
    pub message_content: String,
    /// Time of acceptance (RFC 3339).
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
    MessageHistory = "message_history" -> MessageHistoryPage,
        "Look up earlier messages to you and from you, newest first: by agent, topic, thread, time or words. Look here \
         before you ask again.",
        more: [READ_ONLY];
    MarkRead = "callboard.mail.mark" -> super::MailAck, "", more: [];
    AgentLogs = "callboard.mail.logs" -> AgentLogPage, "", more: [READ_ONLY];
}

debug_without_text! {
    MailView: text;
    LogDetails: message_content;
}
debug_name_only!(CheckInbox MessageHistory);

/// Request for messages exactly as sent, which are marked as delivered.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FetchMail {
    /// Ids of the messages, at most [`MAIL_HISTORY_MAX`](super::MAIL_HISTORY_MAX). Those that the caller may not see are left out.
    pub message_ids: Vec<String>,
    /// Include the delivery state for each recipient. For the sender only.
    #[serde(default)]
    pub receipts: bool,
}

/// Messages found by [`FetchMail`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Fetched")]
pub struct FetchedMail {
    /// Messages in the order requested, whole, with `message`.
    pub messages: Vec<MailView>,
}

mail_message! {
    FetchMail = "callboard.mail.fetch" -> FetchedMail, "", more: [];
}
