//! Callboard: an actor runtime for AI agents.
//!
//! Every agent (in this process, behind MCP, behind A2A, a language model, a person) is one actor
//! behind one [`AgentRef`]. Every call may pause and ask a question back. This crate is the facade
//! for embedding callboard in a service. The binary `callboard` is built on it too. See
//! `examples/embed.rs`.

#[cfg(feature = "cli")]
pub mod cli;
#[cfg(feature = "host")]
mod client_config;
#[cfg(feature = "host")]
pub mod clinics;
#[cfg(feature = "host")]
pub mod config;
#[cfg(feature = "host")]
mod console;
#[cfg(feature = "host")]
mod examples;
#[cfg(feature = "cli")]
mod form;
#[cfg(feature = "host")]
mod monitor;
#[cfg(feature = "host")]
mod node;
#[cfg(feature = "cli")]
mod repl;
#[cfg(feature = "cli")]
mod telemetry;
#[cfg(feature = "cli")]
mod text;

/// Agents that are part of callboard.
pub mod agents {
    #[cfg(feature = "guardrail")]
    pub use ::callboard_guardrail as guardrail;
    #[cfg(feature = "mail")]
    pub use ::callboard_mailroom as mailroom;
    #[cfg(feature = "models")]
    pub use ::callboard_models as model;
    #[cfg(feature = "person")]
    pub use ::callboard_person as person;
    #[cfg(feature = "clinics")]
    pub use callboard_clinics::{
        access, clinic, hmcp, orchestrator, plan, planner, router, verifier,
    };
    #[cfg(feature = "gateway")]
    pub use callboard_gateway::{aggregate, question_router};
    #[cfg(feature = "orchestration")]
    pub use callboard_orchestration::{decide, memory, peer_registry, task, tools};
}

#[cfg(feature = "a2a")]
pub use ::callboard_a2a as a2a;
#[cfg(feature = "mail")]
pub use ::callboard_mail as mail;
#[cfg(feature = "mcp")]
pub use ::callboard_mcp as mcp;
pub use ::callboard_message as message;
#[cfg(any(feature = "a2a", feature = "mail", feature = "mcp"))]
pub use ::callboard_rpc as rpc;
#[cfg(feature = "store-sqlite")]
pub use ::callboard_store as store;
pub use callboard_macros::Message;
#[cfg(feature = "testkit")]
pub use callboard_macros::test;
pub use callboard_message::{Failure, FailureKind, Message, MessageSpec, Principal};
pub use callboard_runtime::*;
#[cfg(feature = "host")]
pub use clinics::{Clinics, ClinicsError};
#[cfg(feature = "host")]
pub use node::{
    AgentAddress, Node, NodeError, RELOAD_DRAIN_MAX, RELOAD_GRACE, ReloadReport,
    RunningOrchestrator,
};
