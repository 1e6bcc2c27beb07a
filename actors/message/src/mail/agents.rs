//! Members of the mailroom, their groups, preferences and saved memories.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::wire::{READ_ONLY, mail_message};
use super::{debug_name_only, debug_without_text};
use crate::text_enum::text_enum;

/// Request for the list of agents and their states.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetAgentStatus {
    /// Id of the only agent to return; absent for all visible agents.
    pub agent_id: Option<String>,
}

text_enum! {
    /// Presence of an agent: active, away or terminated.
    MemberState {
        /// Present; mail is delivered at once.
        Active = "active",
        /// Absent; mail waits.
        Away = "away",
        /// Ended; it neither sends nor receives mail.
        Terminated = "terminated",
    }
    /// Delivery method of an agent's mail.
    #[schemars(rename = "MemberWay")]
    DeliveryMethod {
        /// Fetched over MCP; the agent is notified there.
        Mcp = "mcp",
        /// Sent over A2A.
        A2a = "a2a",
        /// Posted to the agent's HTTP address.
        Webhook = "webhook",
        /// Typed into the agent's tmux terminal.
        Tmux = "tmux",
        /// Delivered to an agent in the same process.
        Agent = "agent",
        /// Fetched by the agent, without notification.
        None = "none",
    }
}

/// List of agents and their states.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentStatus {
    /// Number of agents in `agents`.
    pub count: u64,
    /// Agents that the caller may see, by id.
    pub agents: Vec<AgentView>,
}

/// An agent with a mailbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentView {
    /// Id of the agent, to which messages are addressed.
    pub agent_id: String,
    /// Id as displayed in message texts: shortened if long.
    pub display_id: String,
    /// Presence of the agent.
    pub state: MemberState,
    /// Display name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Role of the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Work phase that the agent is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Names of the agent's groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Delivery method of the agent's mail.
    pub way: DeliveryMethod,
    /// Number of unread messages; shown to the agent itself and to the Guardian only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unread: Option<u64>,
    /// Time of the last activity (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<String>,
    /// Reason that mail can't be delivered to the agent at the moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// Request for the list of groups.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
// Some clients reject an object schema without `properties`.
#[schemars(extend("properties" = {}))]
pub struct ListGroups {}

/// Groups that the caller may write to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Groups")]
pub struct GroupList {
    /// Groups, by name.
    pub groups: Vec<GroupView>,
}

/// A group of agents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupView {
    /// Full name: `group:NAME`, `role:NAME` or `phase:NAME`.
    pub name: String,
    /// Number of members that the caller can see.
    pub count: u64,
}

/// Request to save text for later.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SaveMemory {
    /// Text to save, at most 16 KiB.
    pub content: String,
    /// Name of the entry, 1 to 256 bytes; replaces an entry of this name. Generated if absent.
    pub key: Option<String>,
    /// Tags to find it by: at most 16, of at most 64 characters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Your own agent id. Optional; any other id is rejected.
    pub sender_agent_id: Option<String>,
}

/// Result of [`SaveMemory`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Saved")]
pub struct SavedMemory {
    /// Name of the entry.
    pub key: String,
    /// Number of times that an entry was saved under this name.
    pub version: u64,
}

/// Request for what the caller has saved with [`SaveMemory`], in order of names.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadMemory {
    /// Name of one entry. Without it, entries are listed.
    pub key: Option<String>,
    /// Only entries with this tag.
    pub tag: Option<String>,
    /// Continue after this entry: `next` of the previous page.
    pub after: Option<String>,
    /// Your own agent id. Optional; any other id is rejected.
    pub sender_agent_id: Option<String>,
}

/// Page of saved entries.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemoryPage {
    /// Saved entries, in order of names.
    pub entries: Vec<MemoryEntry>,
    /// Name to continue after; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Saved entry.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemoryEntry {
    /// Name of the entry.
    pub key: String,
    /// Saved text.
    pub content: String,
    /// Tags of the entry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Time when it was saved (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saved: Option<String>,
    /// Number of times that an entry was saved under this name.
    pub version: u64,
}

/// Request to change which mail the caller receives. Absent fields stay unchanged.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MailPreferences {
    /// Agent ids whose broadcasts you don't receive.
    pub mute_senders: Option<Vec<String>>,
    /// Topics whose broadcasts you don't receive.
    pub mute_topics: Option<Vec<String>>,
    /// Receive only broadcasts of these topics; an empty list means all.
    pub topics: Option<Vec<String>>,
    /// Whether urgent mail is shown to you as a question, if your client supports it.
    pub ask_urgent: Option<bool>,
}

/// An agent's preferences for receiving mail.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Preferences {
    /// Agent ids whose broadcasts it doesn't receive.
    pub mute_senders: Vec<String>,
    /// Topics whose broadcasts it doesn't receive.
    pub mute_topics: Vec<String>,
    /// Topics to which its broadcasts are limited; empty for all.
    pub topics: Vec<String>,
    /// Whether urgent mail is shown to it as a question.
    pub ask_urgent: bool,
}

/// Request to mark an agent as ended or as back. Requires the scope `mail.admin`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EndAgent {
    /// Id of the agent.
    pub agent_id: String,
    /// Whether the agent is back; else it has ended.
    #[serde(default)]
    pub back: bool,
}

/// Notification that the caller is present.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Join")]
pub struct JoinMailroom {}

/// Notification that the caller is absent. Its mail waits.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Leave")]
pub struct LeaveMailroom {}

/// Confirmation of a request. Repeating the request has no further effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Done")]
pub struct MailAck {
    /// Always `true`.
    pub success: bool,
}

mail_message! {
    GetAgentStatus = "get_agent_status" -> AgentStatus,
        "See which agents are here, who you are among them, what they do and whether they are active. Check it before you \
         write to one.",
        more: [READ_ONLY];
    ListGroups = "list_groups" -> GroupList,
        "See the groups that you can write to with broadcast_message: those of a role, of a phase, or by name.",
        more: [READ_ONLY];
    SaveMemory = "save_memory" -> SavedMemory,
        "Keep something for later under a name: results, routine status, what you found out. Use it instead of telling \
         everybody what nobody needs now.",
        more: [];
    ReadMemory = "read_memory" -> MemoryPage,
        "Read what you kept with save_memory: one entry by its name, or all, or those with a tag. Only you see your entries.",
        more: [READ_ONLY];
    MailPreferences = "mail_preferences" -> Preferences,
        "Say which broadcasts you don't want (by sender or topic), or want only. Direct, urgent and Guardian messages always \
         come. Without arguments it shows what is set.",
        more: [];
    EndAgent = "callboard.mail.end" -> MailAck, "", more: [];
    JoinMailroom = "callboard.mail.join" -> AgentView, "", more: [];
    LeaveMailroom = "callboard.mail.leave" -> MailAck, "", more: [];
}

debug_without_text! {
    SaveMemory: content;
}
debug_name_only!(MailPreferences Preferences ReadMemory MemoryPage MemoryEntry);
