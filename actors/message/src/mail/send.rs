//! Saying something.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::wire::mail_message;
use super::{LetterKind, Priority, without_text};

/// To all that the sender sees, or to a group.
#[derive(Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BroadcastMessage {
    /// What is said: short, and complete without anything else. At most 64 KiB.
    pub message: String,
    /// Your own id; may be left out; any other is refused.
    pub sender_agent_id: Option<String>,
    /// To this group only: `group:NAME`, `role:NAME` or `phase:NAME`, as list_groups shows them.
    pub group: Option<String>,
    /// What it belongs to, in at most 64 characters.
    pub topic: Option<String>,
    /// `urgent` goes before all else.
    pub priority: Option<Priority>,
    /// The id of a message that it goes on with.
    pub reply_to: Option<String>,
    /// The same key again is the same message: it isn't sent twice.
    pub idempotency_key: Option<String>,
    /// After so many seconds it is handed out no more (7 days, at most 30).
    pub expires_in_s: Option<u64>,
}

/// To one agent, or to a list.
#[derive(Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SendMessage {
    /// What is said. At most 64 KiB.
    pub message: String,
    /// Your own id; may be left out; any other is refused.
    pub sender_agent_id: Option<String>,
    /// Whom it is for, by the id that get_agent_status shows.
    pub recipient_agent_id: Option<String>,
    /// Or several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recipient_agent_ids: Vec<String>,
    /// What it belongs to, in at most 64 characters.
    pub topic: Option<String>,
    /// `urgent` goes before all else.
    pub priority: Option<Priority>,
    /// The id of a message that it goes on with.
    pub reply_to: Option<String>,
    /// The same key again is the same message: it isn't sent twice.
    pub idempotency_key: Option<String>,
    /// After so many seconds it is handed out no more (7 days, at most 30).
    pub expires_in_s: Option<u64>,
    /// The Guardian's alone: what its guidance is called.
    pub guidance: Option<String>,
}

/// To the sender of a message, in its thread.
#[derive(Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplyMessage {
    /// Which message.
    pub message_id: String,
    /// What is said. At most 64 KiB.
    pub message: String,
    /// Your own id; may be left out; any other is refused.
    pub sender_agent_id: Option<String>,
    /// Its other recipients get it too.
    #[serde(default)]
    pub to_all: bool,
    /// `urgent` goes before all else.
    pub priority: Option<Priority>,
    /// The same key again is the same message: it isn't sent twice.
    pub idempotency_key: Option<String>,
}

/// What became of it. Kept for its recipients where it succeeded; whether they have it, receipts tell.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sent {
    /// Whether it is kept.
    pub success: bool,
    /// For how many: of broadcasts, groups and lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recipient_count: Option<u64>,
    /// For a person.
    pub message: String,
    /// Its id; none where nothing was kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// The id of the message that its thread began with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// Whose box is full: they don't get it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<String>,
}

mail_message! {
    BroadcastMessage = "broadcast_message" -> Sent,
        "Tell all active agents something that concerns them all, or ask when you don't know whom. Not for one agent \
         (send_message), routine status (save_memory) or replies (reply). Keep it short and self-contained; rarely.",
        more: [];
    SendMessage = "send_message" -> Sent,
        "Write to one agent (or a list) about its work: ask it, help it, tell it what it needs. Check get_agent_status \
         first. Say what it is about. Not for what all should know (broadcast_message) nor for agents that are terminated.",
        more: [];
    ReplyMessage = "reply" -> Sent,
        "Answer a message: its sender gets it, in the same thread. Answer where it helps; nobody has to. Only to_all tells \
         its other recipients too.",
        more: [];
}

without_text! {
    BroadcastMessage: message;
    SendMessage: message;
    ReplyMessage: message;
}

/// A message for one recipient: what a way out handles. It answers when the recipient has it, as far as this way can see;
/// the kind of its failure says whether to try again.
///
/// It may come more than once: whoever has effects goes by `message_id`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Deliver {
    /// Its id: the key by which it is the same again.
    pub message_id: String,
    /// Its place among all messages.
    pub number: u64,
    /// How it was sent.
    pub kind: LetterKind,
    /// Who sent it.
    pub from: String,
    /// Whom this one is for.
    pub to: String,
    /// The id of the message that its thread began with.
    pub thread: String,
    /// The id of the message that it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// What it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// Whether it goes before others.
    pub urgent: bool,
    /// When it was accepted.
    pub sent: String,
    /// How often it was tried before, with this one: from 1.
    pub attempt: u32,
    /// Who says it and what, made harmless: what a person, a model or a terminal is shown.
    pub text: String,
    /// What was sent, letter by letter.
    pub message: String,
    /// Their ids as terminals show them.
    pub display: Displayed,
}

/// Whether a message could be delivered now, as far as that can be told without one. Ways that can't tell don't handle it; the
/// failure says what is in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach;

impl crate::Message for Reach {
    type Reply = Result<(), crate::Failure>;
    const NAME: &'static str = "callboard.mail.reach";
}

/// Ids as terminals show them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Displayed {
    /// The sender's.
    pub from: String,
    /// The recipient's.
    pub to: String,
}

mail_message! {
    Deliver = "callboard.mail.deliver" -> (), "A message of agent mail for this agent.", more: [];
}

without_text! {
    Deliver: message;
}
