use callboard_message::{RawObject, Speaker};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Tag of a skill that may destroy something; the hints of an MCP tool say the same.
pub(crate) const TAG_DESTRUCTIVE: &str = "destructive";

/// Something that was said before: the newest turn is the last.
#[derive(derive_more::Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[debug("Turn({:?}, {} bytes)", by, text.len())]
#[serde(deny_unknown_fields)]
pub struct Turn {
    /// By whom.
    pub by: Speaker,
    /// What.
    pub text: String,
}

impl Turn {
    /// Said by whoever asks.
    pub fn user(text: impl Into<String>) -> Self {
        Self {
            by: Speaker::User,
            text: text.into(),
        }
    }

    /// Said by us.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self {
            by: Speaker::Assistant,
            text: text.into(),
        }
    }
}

/// What may come of using a tool.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    /// It only looks.
    #[default]
    Reads,
    /// It changes what this system keeps.
    Writes,
    /// It changes the world.
    Acts,
}

impl Risk {
    /// As a number from 0 to 1, comparable with a threshold.
    pub const fn score(self) -> f32 {
        match self {
            Self::Reads => 0.0,
            Self::Writes => 0.3,
            Self::Acts => 0.9,
        }
    }
}

/// A tool of ours, as deciders see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolView {
    /// Its exact name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// Words that belong to it.
    #[serde(default)]
    pub tags: Vec<String>,
    /// Requests that it is for.
    #[serde(default)]
    pub examples: Vec<String>,
    /// JSON Schema of its parameters.
    pub params: Value,
    /// What may come of it.
    #[serde(default)]
    pub risk: Risk,
}

/// Something that another agent can do.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SkillView {
    /// Its id.
    pub id: String,
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// What it does.
    #[serde(default)]
    pub description: String,
    /// Words that belong to it.
    #[serde(default)]
    pub tags: Vec<String>,
    /// Requests that it is for.
    #[serde(default)]
    pub examples: Vec<String>,
    /// Media types that it takes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub input_modes: Vec<String>,
    /// Media types that it makes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub output_modes: Vec<String>,
    /// Names of the security schemes that it needs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub security: Vec<String>,
}

impl SkillView {
    /// Whether it is tagged [`TAG_DESTRUCTIVE`].
    pub(crate) fn is_destructive(&self) -> bool {
        self.tags
            .iter()
            .any(|tag| tag.eq_ignore_ascii_case(TAG_DESTRUCTIVE))
    }
}

/// Another agent, as deciders see it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentView {
    /// Its exact id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// What it is.
    #[serde(default)]
    pub description: String,
    /// What it can do.
    #[serde(default)]
    pub skills: Vec<SkillView>,
    /// Whether it answers, as far as is known.
    pub is_up: bool,
}

/// Who can do what: what a request is matched against. Shared by every message of one request.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct World {
    /// Our own tools, at most [`WORLD_TOOLS_MAX`](super::limits::WORLD_TOOLS_MAX).
    pub tools: Vec<ToolView>,
    /// Other agents, at most [`WORLD_AGENTS_MAX`](super::limits::WORLD_AGENTS_MAX).
    pub agents: Vec<AgentView>,
}

impl World {
    /// The tool of exactly that name.
    pub fn tool(&self, name: &str) -> Option<&ToolView> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// Adds to the text that a tool takes, if it takes one.
    pub(crate) fn append_text(&self, tool: &str, params: &mut RawObject, more: &str) {
        if let Some(member) = self.tool(tool).and_then(|tool| text_member(&tool.params)) {
            let before = params.text(&member).unwrap_or_default();
            params.set(&member, format!("{before}{more}"));
        }
    }

    /// The agent of exactly that id.
    pub fn agent(&self, id: &str) -> Option<&AgentView> {
        self.agents.iter().find(|agent| agent.id == id)
    }
}

/// What is done for one step.
// What is said is anybody's.
#[derive(derive_more::Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Action {
    /// One of our tools is used.
    #[debug("Local({tool})")]
    Local {
        /// Its name.
        tool: String,
        /// Its parameters.
        params: RawObject,
    },
    /// Another agent is asked.
    #[debug("Remote({agent})")]
    Remote {
        /// Its id.
        agent: String,
        /// What it is told.
        text: String,
    },
}

impl Action {
    /// The tool's name or the agent's id.
    pub fn target(&self) -> &str {
        match self {
            Self::Local { tool, .. } => tool,
            Self::Remote { agent, .. } => agent,
        }
    }
}

/// The only required member of a schema, if it is a string.
pub(crate) fn text_member(schema: &Value) -> Option<String> {
    let required = schema.get("required")?.as_array()?;
    let [only] = &**required else { return None };
    let name = only.as_str()?;
    (schema.get("properties")?.get(name)?.get("type")? == "string").then(|| name.to_owned())
}
