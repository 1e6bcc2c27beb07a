//! Events of agent mail.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::wire::{READ_ONLY, mail_message};
use super::{DeliveryMethod, Priority};
use crate::Message;

/// Event of a mailroom: mail was accepted, delivered or read, or its members changed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum MailEvent {
    /// A broadcast, or a message to a group or list, was accepted. It may have a single recipient.
    AgentBroadcast {
        /// Agent id of the sender.
        sender_agent_id: String,
        /// Number of recipients that the reader may see.
        recipient_count: u64,
        /// First 100 characters of the text; empty once the retention period has ended.
        message_preview: String,
    },
    /// A message addressed to one agent was accepted. A group or list of one counts as a broadcast.
    AgentDirectMessage {
        /// Agent id of the sender.
        sender_agent_id: String,
        /// Agent id of the recipient.
        recipient_agent_id: String,
        /// First 100 characters of the text; empty once the retention period has ended.
        message_preview: String,
    },
    /// A message was accepted.
    MessageAccepted {
        /// Id of the message.
        message_id: String,
        /// Id of the thread: that of its first message.
        thread: String,
        /// Agent id of the sender.
        sender_agent_id: String,
        /// Number of recipients that the reader may see.
        recipient_count: u64,
        /// Priority of the message.
        priority: Priority,
        /// Topic of the message.
        #[serde(skip_serializing_if = "Option::is_none")]
        topic: Option<String>,
    },
    /// A message was delivered to recipients.
    MessageDelivered {
        /// Id of the message.
        message_id: String,
        /// Agent id of the sender.
        sender_agent_id: String,
        /// Agent ids of the recipients that got it.
        recipient_agent_ids: Vec<String>,
    },
    /// A message was read by recipients.
    MessageRead {
        /// Id of the message.
        message_id: String,
        /// Agent id of the sender.
        sender_agent_id: String,
        /// Agent ids of the recipients that read it.
        recipient_agent_ids: Vec<String>,
    },
    /// An agent became a member of the mailroom.
    AgentJoined {
        /// Id of the agent.
        agent_id: String,
        /// Delivery method of its mail.
        way: DeliveryMethod,
    },
    /// An agent left the mailroom.
    AgentLeft {
        /// Id of the agent.
        agent_id: String,
        /// Reason for leaving.
        reason: String,
    },
    /// Events are missing, because they are no longer stored.
    Missed {
        /// Number of the first missing event.
        from: u64,
        /// Number of the last missing event.
        to: u64,
    },
}

impl MailEvent {
    /// All values of `type`, in order of declaration.
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

    /// Returns the `type` of the event.
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

// Previews are message text, which is never printed.
impl fmt::Debug for MailEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())
    }
}

/// Event with its sequence number. Events with the same cause share one. Numbers are missing for
/// events that the reader may not see or didn't ask for; lost events are reported as `missed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Numbered")]
pub struct NumberedMailEvent {
    /// Sequence number, from 1.
    pub sequence: u64,
    /// The event, without its number.
    pub event: MailEvent,
}

/// Request for events after a sequence number.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadEvents {
    /// Sequence number after which events are returned.
    pub after: u64,
    /// Maximum number of sequence numbers to scan, 1 to 256 (default 256).
    pub limit: Option<u32>,
    /// Types of events to return; empty for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<String>,
}

/// Page of events, limited to those the caller may see.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Events")]
pub struct MailEventPage {
    /// Events, oldest first.
    pub events: Vec<NumberedMailEvent>,
    /// Last sequence number scanned; `after` for the next page.
    pub last: u64,
    /// Number of the newest event.
    pub newest: u64,
}

mail_message! {
    ReadEvents = "callboard.mail.events" -> MailEventPage, "", more: [READ_ONLY];
}

/// Notification that there are new mail events. Published on the process's event bus under the
/// topic [`super::MAIL_EVENTS_TOPIC`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewMailEvents {
    /// Sequence number of the newest event.
    pub last: u64,
}

impl Message for NewMailEvents {
    type Reply = ();
    const NAME: &'static str = "callboard.mail.happened";
}
