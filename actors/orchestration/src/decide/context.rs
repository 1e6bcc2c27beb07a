use callboard_message::{RawObject, Speaker};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Tag of a skill with destructive effects. MCP tools with a destructive hint get it too.
pub(crate) const DESTRUCTIVE_TAG: &str = "destructive";

/// Turn of a conversation. Histories are ordered from the oldest to the newest turn.
#[derive(derive_more::Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[debug("Turn({:?}, {} bytes)", by, text.len())]
#[serde(deny_unknown_fields)]
pub struct Turn {
    /// Speaker of the turn.
    pub by: Speaker,
    /// Text of the turn.
    pub text: String,
}

impl Turn {
    /// Creates a turn of the user who sent the request.
    pub fn user(text: impl Into<String>) -> Self {
        Self {
            by: Speaker::User,
            text: text.into(),
        }
    }

    /// Creates a turn of this orchestrator.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self {
            by: Speaker::Assistant,
            text: text.into(),
        }
    }
}

/// Risk class of a tool.
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
    /// Read-only.
    #[default]
    Reads,
    /// Changes only data of this system.
    Writes,
    /// Acts outside of this system.
    Acts,
}

impl Risk {
    /// Returns the risk as a number from 0 to 1. Above the orchestrator's risk threshold, an action
    /// needs confirmation.
    pub const fn score(self) -> f32 {
        match self {
            Self::Reads => 0.0,
            Self::Writes => 0.3,
            Self::Acts => 0.9,
        }
    }
}

/// Description of a local tool as deciders see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolView {
    /// Exact name of the tool.
    pub name: String,
    /// Description.
    pub description: String,
    /// Search terms that the rules match requests against.
    #[serde(default)]
    pub tags: Vec<String>,
    /// Example requests for this tool.
    #[serde(default)]
    pub examples: Vec<String>,
    /// JSON Schema of the parameters.
    pub params: Value,
    /// Risk class.
    #[serde(default)]
    pub risk: Risk,
}

/// Description of a peer agent's skill as deciders see it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SkillView {
    /// Exact id of the skill.
    pub id: String,
    /// Display name.
    #[serde(default)]
    pub name: String,
    /// Description.
    #[serde(default)]
    pub description: String,
    /// Search terms that the rules match requests against.
    #[serde(default)]
    pub tags: Vec<String>,
    /// Example requests for this skill.
    #[serde(default)]
    pub examples: Vec<String>,
    /// Accepted media types.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub input_modes: Vec<String>,
    /// Produced media types.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub output_modes: Vec<String>,
    /// Names of the required security schemes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub security: Vec<String>,
}

impl SkillView {
    /// Whether the skill is tagged [`DESTRUCTIVE_TAG`].
    pub(crate) fn is_destructive(&self) -> bool {
        self.tags
            .iter()
            .any(|tag| tag.eq_ignore_ascii_case(DESTRUCTIVE_TAG))
    }
}

/// Description of a peer agent as deciders see it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AgentView")]
pub struct PeerAgentView {
    /// Exact id.
    pub id: String,
    /// Display name.
    pub name: String,
    /// Description.
    #[serde(default)]
    pub description: String,
    /// Skills of the agent.
    #[serde(default)]
    pub skills: Vec<SkillView>,
    /// Whether the agent is reachable according to the latest health check.
    pub is_up: bool,
}

/// Tools and agents that a request is matched against. Shared by all messages of one request.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "World")]
pub struct RoutingContext {
    /// Local tools, at most [`CONTEXT_TOOLS_MAX`](super::limits::CONTEXT_TOOLS_MAX).
    pub tools: Vec<ToolView>,
    /// Peer agents, at most [`CONTEXT_AGENTS_MAX`](super::limits::CONTEXT_AGENTS_MAX).
    pub agents: Vec<PeerAgentView>,
}

impl RoutingContext {
    /// Returns the tool with exactly this name.
    pub fn tool(&self, name: &str) -> Option<&ToolView> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// Appends `more` to the tool's only required text parameter. Does nothing if the tool has no
    /// such parameter.
    pub(crate) fn append_text(&self, tool: &str, params: &mut RawObject, more: &str) {
        if let Some(member) = self
            .tool(tool)
            .and_then(|tool| only_text_param(&tool.params))
        {
            let before = params.text(&member).unwrap_or_default();
            params.set(&member, format!("{before}{more}"));
        }
    }

    /// Sets the tool's only required text parameter to `request` if it is absent, null or blank.
    /// Does nothing if the tool has no such parameter, or the parameter has any other value.
    pub(crate) fn fill_text(&self, tool: &str, params: &mut RawObject, request: &str) {
        let Some(member) = self
            .tool(tool)
            .and_then(|tool| only_text_param(&tool.params))
        else {
            return;
        };
        let is_missing = match params.read::<Value>(&member) {
            None | Some(Value::Null) => true,
            Some(Value::String(text)) => text.trim().is_empty(),
            Some(_) => false,
        };
        if is_missing {
            params.set(&member, request);
        }
    }

    /// Returns the agent with exactly this id.
    pub fn agent(&self, id: &str) -> Option<&PeerAgentView> {
        self.agents.iter().find(|agent| agent.id == id)
    }
}

/// Action that performs a request or a step.
// `Debug` omits parameters and texts: they may contain user text.
#[derive(derive_more::Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Action {
    /// Use of a local tool.
    #[debug("Local({tool})")]
    Local {
        /// Name of the tool.
        tool: String,
        /// Parameters of the tool.
        params: RawObject,
    },
    /// Request to another agent.
    #[debug("Remote({agent})")]
    Remote {
        /// Id of the agent.
        agent: String,
        /// Text of the request.
        text: String,
    },
}

impl Action {
    /// Returns the name of the tool or the id of the agent.
    pub fn target(&self) -> &str {
        match self {
            Self::Local { tool, .. } => tool,
            Self::Remote { agent, .. } => agent,
        }
    }
}

/// Returns the name of the schema's only required member if that is a string; `None` if it is of
/// another type, or the number of required members isn't one.
pub(crate) fn only_text_param(schema: &Value) -> Option<String> {
    let required = schema.get("required")?.as_array()?;
    let [only] = &**required else { return None };
    let name = only.as_str()?;
    (schema.get("properties")?.get(name)?.get("type")? == "string").then(|| name.to_owned())
}
