//! The tools that an orchestrator of the general kind has of its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use callboard_message::{Failure, RawObject, ToolResult};
use callboard_runtime::Cx;

use crate::decide::{Deciders, ToolView};
use crate::known::KnownAgents;

/// The tools' names.
pub const TOOL_NAMES: [&str; 7] =
    ["echo", "llm", "summarize", "list_agents", "remember_agent", "human_input", "execute_command"];

/// What programs may be run, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandOptions {
    /// Exact programs: names, or paths.
    pub allow: Vec<String>,
    /// Where they run; `None`: a folder of its own is needed, and nothing runs.
    pub directory: Option<PathBuf>,
    /// How long one may run.
    pub within: Duration,
    /// How much of what it writes is kept, in bytes.
    pub output_bytes_max: usize,
}

/// What tools work with.
#[derive(Debug, Clone)]
pub struct ToolDeps {
    /// `llm` and `summarize` ask them.
    pub deciders: Arc<Deciders>,
    /// `list_agents` and `remember_agent` are about them.
    pub known: KnownAgents,
    /// Said to the model before `llm`'s text.
    pub system_prompt: String,
    /// For `execute_command`; `None`: it is off.
    pub command: Option<CommandOptions>,
}

/// Tools by name. Clones are the same tools.
#[derive(Debug, Clone)]
pub struct Toolbox {
    _enabled: Arc<[String]>,
    _deps: ToolDeps,
}

impl Toolbox {
    /// The tools of these names.
    ///
    /// # Errors
    /// `InvalidInput` for a name that isn't a tool's, or a program that isn't there.
    pub fn new(enabled: &[String], deps: ToolDeps) -> Result<Self, Failure> {
        Ok(Self { _enabled: enabled.into(), _deps: deps })
    }

    /// The tools, as deciders see them.
    pub fn list(&self) -> Vec<ToolView> {
        Vec::new()
    }

    /// One of them.
    pub fn spec(&self, _name: &str) -> Option<ToolView> {
        None
    }

    /// Uses one.
    ///
    /// # Errors
    /// `NotFound` where it isn't there or not enabled, `InvalidInput` naming the parameter, and its own.
    pub async fn run(&self, _name: &str, _params: RawObject, _cx: &Cx) -> Result<ToolResult, Failure> {
        Err(Failure::internal("not built yet"))
    }
}
