//! The server: any agent as an MCP server, both eras on one endpoint.
//!
//! A transport (`http/`, `stdio`) reads messages and hands them to the era that they belong to (`legacy/`, `modern/`);
//! both ask the same [`AgentAdapter`](agent_adapter::AgentAdapter), which knows the agent and no connection.

pub use callboard_rpc::serve::{ListenOptions, ServeError, Serving};

pub use http::{McpServer, NAMED_PATH, NamedServers, serve, serve_named};
pub use modern::pending_elicitations::{VISITS_AT_ONCE_MAX, VISITS_MAX};
pub use options::*;
pub use stdio::serve_stdio;

mod agent_adapter;
mod client;
mod endpoint;
mod http;
mod legacy;
mod modern;
mod options;
mod request;
mod response;
mod stdio;
mod tasks;
#[cfg(test)]
mod tests;
mod tools;
