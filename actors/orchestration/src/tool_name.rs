//! Names of the tools that an orchestrator has of its own.

/// The tool that writes an answer.
pub const LLM: &str = "llm";
/// The tool that lists the agents that are known.
pub const LIST_AGENTS: &str = "list_agents";
/// The tool that takes an agent into the directory.
pub const REMEMBER_AGENT: &str = "remember_agent";
/// The tool that asks the person behind the call.
pub const HUMAN_INPUT: &str = "human_input";
/// The tool that runs programs.
pub const EXECUTE_COMMAND: &str = "execute_command";

/// The tools' names.
pub const TOOL_NAMES: [&str; 7] = [
    "echo",
    LLM,
    "summarize",
    LIST_AGENTS,
    REMEMBER_AGENT,
    HUMAN_INPUT,
    EXECUTE_COMMAND,
];

/// A tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tool {
    Echo,
    Llm,
    Summarize,
    ListAgents,
    RememberAgent,
    HumanInput,
    ExecuteCommand,
}

impl Tool {
    /// Every tool, in the order of [`TOOL_NAMES`].
    pub(crate) const ALL: [Self; 7] = [
        Self::Echo,
        Self::Llm,
        Self::Summarize,
        Self::ListAgents,
        Self::RememberAgent,
        Self::HumanInput,
        Self::ExecuteCommand,
    ];

    /// The tool of exactly that name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    pub(crate) fn name(self) -> &'static str {
        TOOL_NAMES[self as usize]
    }
}
