//! The client: MCP servers elsewhere, as agents of this system.
//!
//! [`McpClient`] is the agent. Below it, from the outside in: `upstream` (one server, connected when it is needed),
//! `session` (what both sides agreed on), the eras (`legacy`, `modern`), `conversation` (a request and all that comes
//! before its response), `link/` (the transports: streamable HTTP, a child's pipes, WebSocket, HTTP+SSE).
//!
//! # Whose question is it?
//!
//! A legacy server asks in mid-call. Over streamable HTTP its question comes on the response stream of the call that
//! caused it. Where all calls share one channel (a child, a WebSocket, HTTP+SSE, the GET stream) it is asked of the one
//! call that is under way; while several are, it is refused, for it could be anyone's. A [`Bridge`](crate::bridge::Bridge)
//! gives each caller a connection of its own where that matters.

pub use callboard_rpc::http1::RETRY_DEFAULT;

pub use crate::wire::{Era, Revision};
pub(crate) use client::ClientOperation;
pub use client::McpClient;
pub use dialect::Dialect;
pub(crate) use exchange::TransportError;
pub use options::{
    ANSWERS_AT_ONCE_MAX, AUTH_REFUSALS_MAX, CALL_TIMEOUT_DEFAULT, CALLS_IN_FLIGHT_MAX,
    ChildCommand, ClientError, ClientOptions, ENVIRONMENT_DEFAULT, Endpoint, EraChoice,
    PAGES_MAX_DEFAULT, QUESTIONS_AT_ONCE_MAX, RECONNECTS_MAX_DEFAULT, SUBSCRIPTIONS_MAX,
};
pub(crate) use session::Session;
pub(crate) use tool_cache::{Hints, ToolCache, plain_value};
pub(crate) use upstream::{Server, Upstream, Wiring};

pub mod auth;
pub(crate) mod client;
mod conversation;
mod dialect;
mod exchange;
mod listen;
mod modern;
mod options;
mod pending_requests;
mod server_messages;
mod session;
mod tool_cache;
mod transport;
mod upstream;
