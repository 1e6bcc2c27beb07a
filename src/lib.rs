//! Callboard: an actor runtime for AI agents.
//!
//! Every agent (in this process, behind MCP, behind A2A, a language model, a person) is one actor behind one
//! [`AgentRef`]; every exchange may pause and ask back. This crate is the facade for those who embed it in a service of
//! their own; the binary `callboard` is built on it too. See `examples/embed.rs`.

pub mod cli;
pub mod clinics;
pub mod config;
mod examples;
mod form;
mod node;
mod repl;
mod telemetry;
mod text;

/// Agents that come with callboard.
pub mod agents {
    pub use ::{callboard_guardrail as guardrail, callboard_mailroom as mailroom, callboard_models as model};
    pub use callboard_clinics::{clinic, hmcp, orchestrator, plan, planner, router, verifier};
    pub use callboard_gateway::{answering, bundle};
    pub use callboard_orchestration::{decide, memory, peer_registry, task, tools};
}

pub use ::{
    callboard_a2a as a2a, callboard_mail as mail, callboard_mcp as mcp, callboard_message as message,
    callboard_rpc as rpc, callboard_store as store,
};
pub use callboard_macros::Message;
pub use callboard_message::{Failure, FailureKind, Message, MessageSpec, Principal};
pub use callboard_runtime::*;
pub use clinics::{Clinics, ClinicsError};
pub use node::{Listening, Node, NodeError, Orchestrated, RELOAD_DRAIN_MAX, RELOAD_GRACE, Reloaded};
