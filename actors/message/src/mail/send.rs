//! Requests that send mail, and its delivery to recipients.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::wire::mail_message;
use super::{MailMessageKind, Priority, debug_without_text};

/// Request to send a message to all agents that the sender can see, or to a group.
#[derive(Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BroadcastMessage {
    /// Text of the message: short and self-contained. At most 64 KiB.
    pub message: String,
    /// Your own agent id. Optional; any other id is rejected.
    pub sender_agent_id: Option<String>,
    /// Send to this group only: `group:NAME`, `role:NAME` or `phase:NAME`, as list_groups shows them.
    pub group: Option<String>,
    /// Topic, at most 64 characters.
    pub topic: Option<String>,
    /// Priority; `urgent` is delivered before all other mail.
    pub priority: Option<Priority>,
    /// Id of the message that this one replies to.
    pub reply_to: Option<String>,
    /// Idempotency key: a message with the same key is sent only once.
    pub idempotency_key: Option<String>,
    /// Time until the message expires, in seconds (default 7 days, at most 30 days).
    pub expires_in_s: Option<u64>,
}

/// Request to send a message to one agent or to a list of agents.
#[derive(Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SendMessage {
    /// Text of the message. At most 64 KiB.
    pub message: String,
    /// Your own agent id. Optional; any other id is rejected.
    pub sender_agent_id: Option<String>,
    /// Agent id of the recipient, as get_agent_status shows it. Absent with recipient_agent_ids.
    pub recipient_agent_id: Option<String>,
    /// Agent ids of several recipients, instead of recipient_agent_id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recipient_agent_ids: Vec<String>,
    /// Topic, at most 64 characters.
    pub topic: Option<String>,
    /// Priority; `urgent` is delivered before all other mail.
    pub priority: Option<Priority>,
    /// Id of the message that this one replies to.
    pub reply_to: Option<String>,
    /// Idempotency key: a message with the same key is sent only once.
    pub idempotency_key: Option<String>,
    /// Time until the message expires, in seconds (default 7 days, at most 30 days).
    pub expires_in_s: Option<u64>,
    /// Label of the guidance, shown before its text: at most 32 of `A-Z0-9_` and spaces. For the Guardian only.
    pub guidance: Option<String>,
}

/// Request to reply to the sender of a message, in its thread.
#[derive(Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplyMessage {
    /// Id of the message to reply to.
    pub message_id: String,
    /// Text of the reply. At most 64 KiB.
    pub message: String,
    /// Your own agent id. Optional; any other id is rejected.
    pub sender_agent_id: Option<String>,
    /// Whether the other recipients of the message get the reply too.
    #[serde(default)]
    pub to_all: bool,
    /// Priority; `urgent` is delivered before all other mail.
    pub priority: Option<Priority>,
    /// Idempotency key: a message with the same key is sent only once.
    pub idempotency_key: Option<String>,
}

/// Result of sending. On success the message is stored; receipts tell whether recipients have got it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Sent")]
pub struct SendReceipt {
    /// Whether the message is stored.
    pub success: bool,
    /// Number of recipients, for broadcasts, groups and lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recipient_count: Option<u64>,
    /// Explanation of the result, for a person.
    pub message: String,
    /// Id of the message; absent if it wasn't stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// Id of the thread: that of its first message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// Agent ids of recipients that don't get the message, because their mailboxes are full.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<String>,
}

mail_message! {
    BroadcastMessage = "broadcast_message" -> SendReceipt,
        "Tell all agents something that concerns them all, or ask when you don't know whom. Not for one agent \
         (send_message), routine status (save_memory) or replies (reply). Keep it short and self-contained; rarely.",
        more: [];
    SendMessage = "send_message" -> SendReceipt,
        "Write to one agent (or a list) about its work: ask it, help it, tell it what it needs. Check get_agent_status \
         first. Say what it is about. Not for what all should know (broadcast_message) nor for agents that are terminated.",
        more: [];
    ReplyMessage = "reply" -> SendReceipt,
        "Answer a message: its sender gets it, in the same thread. Answer where it helps; nobody has to. Only to_all tells \
         its other recipients too.",
        more: [];
}

debug_without_text! {
    BroadcastMessage: message;
    SendMessage: message;
    ReplyMessage: message;
}

/// Request to deliver a message to one recipient, handled by the agent that delivers the
/// recipient's mail. The reply is sent once the recipient has the message, as far as this can be
/// known. The kind of a failure decides whether delivery is retried.
///
/// A message may be delivered more than once. Handlers with side effects must ignore repetitions,
/// which have the same `message_id`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Deliver")]
pub struct DeliverMessage {
    /// Id of the message. It is the same for each attempt.
    pub message_id: String,
    /// Number of the message in the mailroom's order of acceptance.
    pub number: u64,
    /// Kind of message.
    pub kind: MailMessageKind,
    /// Agent id of the sender.
    pub from: String,
    /// Agent id of the recipient.
    pub to: String,
    /// Id of the thread: that of its first message.
    pub thread: String,
    /// Id of the message that this one replies to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// Topic of the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// Whether the message is urgent.
    pub urgent: bool,
    /// Time of acceptance (RFC 3339).
    pub sent: String,
    /// Number of this delivery attempt, from 1.
    pub attempt: u32,
    /// Sender and text, sanitised for a person, a model or a terminal.
    pub text: String,
    /// Text exactly as sent.
    pub message: String,
    /// Ids of sender and recipient, shortened for display.
    pub display: DisplayIds,
}

/// Request to check whether a message could be delivered now, without sending one. A failure names
/// the obstacle. Delivery agents that can't find out don't handle this message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckDelivery;

impl crate::Message for CheckDelivery {
    type Reply = Result<(), crate::Failure>;
    const NAME: &'static str = "callboard.mail.reach";
}

/// Agent ids of a message's sender and recipient, shortened for display.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Displayed")]
pub struct DisplayIds {
    /// Shortened id of the sender.
    pub from: String,
    /// Shortened id of the recipient.
    pub to: String,
}

mail_message! {
    DeliverMessage = "callboard.mail.deliver" -> (), "A message of agent mail for this agent.", more: [];
}

debug_without_text! {
    DeliverMessage: message;
}
