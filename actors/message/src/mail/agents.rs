//! Who is here, and what they want.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::wire::{READ_ONLY, mail_message};
use super::{only_named, without_text};
use crate::words::words;

/// Who is here?
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetAgentStatus {
    /// This agent only.
    pub agent_id: Option<String>,
}

words! {
    /// Whether an agent is there.
    MemberState {
        /// It is, and gets its mail at once.
        Active = "active",
        /// It isn't just now: its mail waits.
        Away = "away",
        /// It neither sends nor gets mail any more.
        Terminated = "terminated",
    }
    /// How mail comes to an agent.
    MemberWay {
        /// It asks for it by MCP, and is told of it there.
        Mcp = "mcp",
        /// By A2A.
        A2a = "a2a",
        /// By a request to its address.
        Webhook = "webhook",
        /// It is typed into its terminal.
        Tmux = "tmux",
        /// It is an agent of the same process.
        Agent = "agent",
        /// It has to ask for it.
        None = "none",
    }
}

/// Who is here.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentStatus {
    /// How many.
    pub count: u64,
    /// Those that whoever asks may see, by id.
    pub agents: Vec<AgentView>,
}

/// An agent that has mail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentView {
    /// Its id: what a message is sent to.
    pub agent_id: String,
    /// Its id as terminals show it.
    pub display_id: String,
    /// Whether it is there.
    pub state: MemberState,
    /// What it is called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The phase of the work that it is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Its groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// How mail comes to it.
    pub way: MemberWay,
    /// How much it has not read: told to itself and to the Guardian.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unread: Option<u64>,
    /// When it was last heard of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<String>,
}

/// Which groups are there?
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
// Some clients take no schema without.
#[schemars(extend("properties" = {}))]
pub struct ListGroups {}

/// The groups that whoever asks may write to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Groups {
    /// By name.
    pub groups: Vec<GroupView>,
}

/// A group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupView {
    /// `group:NAME`, `role:NAME` or `phase:NAME`.
    pub name: String,
    /// How many are in it that whoever asks may see.
    pub count: u64,
}

/// Keep this for me.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SaveMemory {
    /// What is kept: at most 16 KiB.
    pub content: String,
    /// Its name: the same again takes its place. One is made where there is none.
    pub key: Option<String>,
    /// Words to find it by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Your own id; may be left out; any other is refused.
    pub sender_agent_id: Option<String>,
}

/// It is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Saved {
    /// Its name.
    pub key: String,
    /// How often it was kept under that name.
    pub version: u64,
}

/// What I want to hear. What is left out stays as it was.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MailPreferences {
    /// Broadcasts of these agents don't reach you.
    pub mute_senders: Option<Vec<String>>,
    /// Broadcasts of these topics don't.
    pub mute_topics: Option<Vec<String>>,
    /// Broadcasts of these topics only; an empty list: of all.
    pub topics: Option<Vec<String>>,
    /// Urgent mail is put to you as a question, where your client can show one.
    pub ask_urgent: Option<bool>,
}

/// What an agent wants to hear.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Preferences {
    /// Whose broadcasts it doesn't get.
    pub mute_senders: Vec<String>,
    /// Of which topics it gets none.
    pub mute_topics: Vec<String>,
    /// Of which topics it gets them only; none: of all.
    pub topics: Vec<String>,
    /// Whether urgent mail is put to it as a question.
    pub ask_urgent: bool,
}

/// An agent has ended, or is back. For whoever may (`mail.admin`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EndAgent {
    /// Which.
    pub agent_id: String,
    /// It is back.
    #[serde(default)]
    pub back: bool,
}

/// I am here.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Join {}

/// I am away from now on; what comes waits for me.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Leave {}

/// It is done; the same again does no harm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Done {
    /// Always.
    pub success: bool,
}

mail_message! {
    GetAgentStatus = "get_agent_status" -> AgentStatus,
        "See which agents are here, who you are among them, what they do and whether they are active. Check it before you \
         write to one.",
        more: [READ_ONLY];
    ListGroups = "list_groups" -> Groups,
        "See the groups that you can write to with broadcast_message: those of a role, of a phase, or by name.",
        more: [READ_ONLY];
    SaveMemory = "save_memory" -> Saved,
        "Keep something for later under a name: results, routine status, what you found out. Use it instead of telling \
         everybody what nobody needs now.",
        more: [];
    MailPreferences = "mail_preferences" -> Preferences,
        "Say which broadcasts you don't want (by sender or topic), or want only. Direct, urgent and Guardian messages always \
         come. Without arguments it shows what is set.",
        more: [];
    EndAgent = "callboard.mail.end" -> Done, "", more: [];
    Join = "callboard.mail.join" -> AgentView, "", more: [];
    Leave = "callboard.mail.leave" -> Done, "", more: [];
}

without_text! {
    SaveMemory: content;
}
only_named!(MailPreferences Preferences);
