//! Agents that stand between other agents: [`bundle`] shows the tools, resources and prompts of several agents as one
//! agent's, and [`answering`] answers the questions that servers ask in mid-call.

pub mod answering;
pub mod bundle;
#[cfg(test)]
#[path = "../../../tests/kit/recording.rs"]
mod recording;
