//! Agents that mediate between other agents. [`aggregate`] presents the tools, resources and
//! prompts of several agents as those of one; [`question_router`] routes the questions that servers
//! ask during a call to a client, model or server; through [`approvals`] people approve uses of tools.

pub mod aggregate;
pub mod approvals;
pub mod question_router;
#[cfg(test)]
#[path = "../../../tests/kit/recording.rs"]
mod recording;
