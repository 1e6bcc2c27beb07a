//! General orchestrator: takes any request to its answer, with tools, known agents and plans whose steps are stored tasks.
//!
//! [`task`] is the agent. [`decide`] makes each decision on the way, [`tools`] are the tools of its own, [`peer_registry`]
//! has the agents that it knows, and [`memory`] the requests that it sent to them.

pub mod decide;
pub mod memory;
pub mod peer_registry;
#[cfg(test)]
#[path = "../../../tests/kit/recording.rs"]
mod recording;
#[cfg(test)]
#[path = "../../../tests/kit/shape.rs"]
mod shape;
pub mod task;
mod tool_name;
pub mod tools;
