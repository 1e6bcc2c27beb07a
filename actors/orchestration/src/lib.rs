//! General orchestrator: answers requests with built-in tools, peer agents, or plans whose steps
//! are stored tasks.
//!
//! [`task`] contains the orchestrator agent. [`decide`] makes its decisions, [`tools`] holds its
//! built-in tools, [`peer_registry`] the peer agents it can delegate to, and [`memory`] the log of
//! delegated requests.

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
