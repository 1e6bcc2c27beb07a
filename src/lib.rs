//! An actor runtime for AI agents.
//!
//! Every agent (in this process, behind MCP, behind A2A, a language model, a person) is one actor behind one [`AgentRef`].
//! Every call may pause and ask a question back. The [`guide`] has a program for each of: an actor, a question, a task,
//! a test, MCP and A2A.
//!
//! Items that an author of agents needs first:
//!
//! | item | what it is |
//! |---|---|
//! | [`Agent`] | state, and the list of the messages that it handles |
//! | [`Handlers`] | that list: `on.sync`, `on.exclusive`, `on.concurrent` |
//! | [`Message`](macro@Message) | the derive: a type with a reply, and with a JSON form unless it is `local` |
//! | [`SyncHandler`] | handles a message in a function |
//! | [`Handler`] | handles a message in an async function; the agent does nothing else meanwhile |
//! | [`ConcurrentHandler`] | handles a message in a future beside others |
//! | [`Context`] | what a handler knows of its call: caller, deadline, progress, questions |
//! | [`Failure`] | the error that callers and protocols see, with its kind |
//! | [`System`] | threads that run agents: `spawn`, `shutdown` |
//! | [`AgentRef`] | reference to an agent, local or remote: `tell`, `ask`, `call`, `observe` |
//! | [`RunningCall`] | a call that runs: its events, its reply, its cancellation |
//! | [`CallEvent`] | progress, or a question to be answered |
//! | [`SendError`] | a message that didn't reach its agent: full, stopped, too late, refused |
//! | [`Principal`] | who calls |
//! | [`test`] | the attribute of tests (feature `testkit`), with [`testkit::Probe`] |
//!
//! # Features
//!
//! | feature | adds | further crates |
//! |---|---|---|
//! | none | runtime, messages, macros | (110 in all) |
//! | `gateway` | several agents as one, and who answers what servers ask | 2 |
//! | `person` | people as agents, with a durable inbox | 1 |
//! | `guardrail` | rules against text that steers its reader | 12 |
//! | `store-sqlite` | durable tasks, mail and audit on SQLite | 58 |
//! | `clinics` | the pipeline of federated clinics, with its verifier | 65 |
//! | `models` | language models over HTTP as agents | 66 |
//! | `store-postgres` | durable tasks, mail and audit on Postgres; includes `store-sqlite` | 80 |
//! | `orchestration` | the orchestrator, with its decisions | 82 |
//! | `tower` | MCP and A2A servers in axum and other hosts on tower | 109 |
//! | `a2a` | A2A server and client | 111 |
//! | `mail` | mailrooms, and their ways over HTTP and terminals | 123 |
//! | `mcp` | MCP server and client, and the bridge | 157 |
//! | `host` | topology files and the node that runs them: all of the above but Postgres and `tower` | 201 |
//! | `otlp` | export of traces and metrics; includes `host` | 210 |
//! | `cli` | the binary; includes `host` | 231 |
//! | `acme` | certificates of ACME authorities; includes `host` | 231 |
//! | `grpc` | A2A over gRPC; includes `host` | 244 |
//! | `testkit` | systems, probes and paused time for tests | 0 |
//!
//! Default: `cli`, `otlp`, `store-postgres`. A library takes `default-features = false` and what it needs.

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
#[cfg(any(doc, doctest))]
pub mod guide;
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

/// Agents as services of axum and other hosts on tower.
#[cfg(feature = "tower")]
pub mod tower {
    #[cfg(feature = "a2a")]
    pub use ::callboard_a2a::inbound::a2a_service;
    #[cfg(feature = "mcp")]
    pub use ::callboard_mcp::inbound::mcp_service;
    pub use ::callboard_rpc::tower::{ClientAddress, MountOptions, MountedBody, MountedService};
}

#[cfg(feature = "a2a")]
pub use ::callboard_a2a as a2a;
#[cfg(feature = "mail")]
pub use ::callboard_mail as mail;
#[cfg(feature = "mcp")]
pub use ::callboard_mcp as mcp;
pub use ::callboard_message as message;
#[cfg(any(feature = "a2a", feature = "mail", feature = "mcp", feature = "tower"))]
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
