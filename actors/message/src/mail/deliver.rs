//! Handing a message to its recipient.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::wire::mail_message;
use super::{LetterKind, without_text};

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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// What it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
