//! Being told of what happens.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::wire::{READ_ONLY, mail_message};
use super::{MemberWay, Priority};
use crate::Message;

/// Something happened to mail or to who has it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum MailEvent {
    /// A message to several was accepted.
    AgentBroadcast {
        /// Who sent it.
        sender_agent_id: String,
        /// For how many.
        recipient_count: u64,
        /// Its first 100 characters; none once its retention is over.
        message_preview: String,
    },
    /// A message to one was accepted.
    AgentDirectMessage {
        /// Who sent it.
        sender_agent_id: String,
        /// Whom it is for.
        recipient_agent_id: String,
        /// Its first 100 characters; none once its retention is over.
        message_preview: String,
    },
    /// A message was accepted.
    MessageAccepted {
        /// Its id.
        message_id: String,
        /// The id of the message that its thread began with.
        thread: String,
        /// Who sent it.
        sender_agent_id: String,
        /// For how many.
        recipient_count: u64,
        /// Whether it goes before others.
        priority: Priority,
        /// What it belongs to.
        #[serde(skip_serializing_if = "Option::is_none")]
        topic: Option<String>,
    },
    /// Recipients have it.
    MessageDelivered {
        /// Its id.
        message_id: String,
        /// Who sent it.
        sender_agent_id: String,
        /// Which recipients.
        recipient_agent_ids: Vec<String>,
    },
    /// Recipients have read it.
    MessageRead {
        /// Its id.
        message_id: String,
        /// Who sent it.
        sender_agent_id: String,
        /// Which recipients.
        recipient_agent_ids: Vec<String>,
    },
    /// An agent has mail from now on.
    AgentJoined {
        /// Which.
        agent_id: String,
        /// How mail comes to it.
        way: MemberWay,
    },
    /// An agent is gone.
    AgentLeft {
        /// Which.
        agent_id: String,
        /// Why.
        reason: String,
    },
    /// What happened in between is not kept any more.
    Missed {
        /// The first that is missing.
        from: u64,
        /// The last.
        to: u64,
    },
}

impl MailEvent {
    /// Every `type` there is.
    pub const KINDS: [&str; 8] = [
        "agent_broadcast",
        "agent_direct_message",
        "message_accepted",
        "message_delivered",
        "message_read",
        "agent_joined",
        "agent_left",
        "missed",
    ];

    /// Its `type`.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::AgentBroadcast { .. } => "agent_broadcast",
            Self::AgentDirectMessage { .. } => "agent_direct_message",
            Self::MessageAccepted { .. } => "message_accepted",
            Self::MessageDelivered { .. } => "message_delivered",
            Self::MessageRead { .. } => "message_read",
            Self::AgentJoined { .. } => "agent_joined",
            Self::AgentLeft { .. } => "agent_left",
            Self::Missed { .. } => "missed",
        }
    }
}

// A preview is somebody's words.
impl fmt::Debug for MailEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())
    }
}

/// An event with its number: without gaps, one number for all that one thing gave rise to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Numbered {
    /// Its number, from 1.
    pub sequence: u64,
    /// What happened.
    pub event: MailEvent,
}

/// What has happened since?
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadEvents {
    /// Those after this number.
    pub after: u64,
    /// Look at most at so many numbers, 1 to 256 (256).
    pub limit: Option<u32>,
    /// Of these types only; none: of all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<String>,
}

/// What has happened, as far as whoever asks may know it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Events {
    /// In order.
    pub events: Vec<Numbered>,
    /// Up to here it was looked: the next `after`.
    pub last: u64,
    /// The number of the newest event there is.
    pub newest: u64,
}

mail_message! {
    ReadEvents = "callboard.mail.events" -> Events, "", more: [READ_ONLY];
}

/// There are events up to this number. Published in the process, under [`super::MAIL_TOPIC`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MailHappened {
    /// The newest one's number.
    pub last: u64,
}

impl Message for MailHappened {
    type Reply = ();
    const NAME: &'static str = "callboard.mail.happened";
}
