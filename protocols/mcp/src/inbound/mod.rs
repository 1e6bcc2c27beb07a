//! MCP server: any agent as an MCP server, both eras on one endpoint.
//!
//! A transport (`http`, `stdio`) reads messages and passes them to the code of their era (`legacy`,
//! `modern`). Both eras use the same `AgentAdapter`, which is independent of connections.

pub use callboard_rpc::serve::{BoundServer, ListenOptions, ServeError};

#[cfg(feature = "tower")]
pub use http::mcp_service;
pub use http::{McpServer, NAMED_PATH, NamedServers, routes, serve, serve_named};
pub use modern::pending_elicitations::{URL_ELICITATION_ROUNDS_MAX, URL_ELICITATIONS_MAX};
pub use options::*;
pub use request::method_names;
pub use stdio::serve_stdio;

mod agent_adapter;
mod client_messages;
mod endpoint;
mod http;
mod legacy;
mod list_items;
mod modern;
mod options;
mod request;
mod response;
mod stdio;
mod tasks;
#[cfg(test)]
mod tests;
mod tools;
