//! Names of the orchestrator's built-in tools.

/// Name of the tool that writes a text with the decider for answers, usually a language model.
pub const LLM: &str = "llm";
/// Name of the tool that lists known peer agents.
pub const LIST_AGENTS: &str = "list_agents";
/// Name of the tool that adds an agent to the peer registry.
pub const REMEMBER_AGENT: &str = "remember_agent";
/// Name of the tool that asks the user behind the call a question.
pub const HUMAN_INPUT: &str = "human_input";
/// Name of the tool that runs an allowed program.
pub const EXECUTE_COMMAND: &str = "execute_command";

/// Names of all built-in tools, in the order of their declaration.
pub const TOOL_NAMES: [&str; 7] = [
    "echo",
    LLM,
    "summarize",
    LIST_AGENTS,
    REMEMBER_AGENT,
    HUMAN_INPUT,
    EXECUTE_COMMAND,
];

/// Built-in tool of the orchestrator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BuiltinTool {
    Echo,
    Llm,
    Summarize,
    ListAgents,
    RememberAgent,
    HumanInput,
    ExecuteCommand,
}

impl BuiltinTool {
    /// All built-in tools, in the order of [`TOOL_NAMES`].
    pub(crate) const ALL: [Self; 7] = [
        Self::Echo,
        Self::Llm,
        Self::Summarize,
        Self::ListAgents,
        Self::RememberAgent,
        Self::HumanInput,
        Self::ExecuteCommand,
    ];

    /// Returns the tool with exactly this name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    pub(crate) fn name(self) -> &'static str {
        TOOL_NAMES[self as usize]
    }
}
