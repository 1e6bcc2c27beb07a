//! Does what was decided: a tool of ours is used, another agent asked, and errors are recovered from (NP3).

mod confirm;
mod follow_up;
mod perform;
mod recover;
mod remote;
mod screen;

use callboard_message::{Failure, ToolResult};
use callboard_runtime::Cx;

use crate::decide::limits::cut_bytes;
use crate::decide::{Action, RunId, Turn, World};
use crate::orchestrator::task::{Asked, TaskOptions};

pub(crate) use confirm::{CONFIRM, Doubt, TAG_DESTRUCTIVE, confirm, is_destructive, risk_of};
pub(crate) use remote::text_member;
pub(crate) use screen::{passes, screened};

/// The tool that runs programs: it is never repeated by itself, and always confirmed.
pub(crate) const TOOL_COMMAND: &str = "execute_command";
/// How often one step is tried, in all.
pub const TRIES_MAX: u32 = 4;
/// How often another does it than who failed.
pub const REROUTES_MAX: u32 = 2;
/// How often a person is asked what to do about an error.
pub const ASKS_MAX: u32 = 1;

/// One thing to do, and what it takes to do it.
pub(crate) struct Errand<'a> {
    /// Whose it is.
    pub options: &'a TaskOptions,
    /// The call that it belongs to.
    pub cx: &'a Cx,
    /// What it asked before, if it is done once more.
    pub asked: &'a Asked,
    /// The run that it belongs to.
    pub run: &'a RunId,
    /// Names it among what the run does.
    pub step: &'a str,
    /// What the run is for.
    pub goal: &'a str,
    /// What is to be done, in words.
    pub text: &'a str,
    /// The conversation that the run belongs to; empty where it is in none.
    pub context: &'a str,
    /// What was said in it before.
    pub history: &'a [Turn],
    /// Who could do it.
    pub world: &'a World,
    /// Whether errors are recovered from.
    pub recovers: bool,
}

/// It is done.
pub(crate) struct Done {
    /// By whom: a tool's name or an agent's id.
    pub by: String,
    pub result: ToolResult,
    /// How often it was tried.
    pub attempts: u32,
}

/// What a result says, as others get to see it.
pub(crate) fn text_of(result: &ToolResult, bytes_max: usize) -> String {
    let texts = result.texts();
    let text = match result.structured_content() {
        Some(value) if texts.is_empty() => value.to_string(),
        _ => texts,
    };
    match text.len() > bytes_max {
        true => format!("{}…", cut_bytes(&text, bytes_max.saturating_sub('…'.len_utf8()))),
        false => text,
    }
}

impl Errand<'_> {
    /// Does it. What fails is tried again, by others or otherwise, as far as there is any use in it.
    ///
    /// # Errors
    /// What the last of them failed with, or why it was given up.
    pub(crate) async fn run(&self, action: Action) -> Result<Done, Failure> {
        recover::Trying::new(self, action).run().await
    }
}
