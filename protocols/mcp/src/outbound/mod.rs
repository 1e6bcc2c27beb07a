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

pub use self::agent::McpClient;
pub(crate) use self::connect::{Server, Wiring};
pub use self::dialect::Dialect;
pub(crate) use self::errand::Errand;
pub(crate) use self::link::{LinkError, lock};
pub(crate) use self::news::News;
pub use self::options::{
    ANSWERS_AT_ONCE_MAX, AUTH_REFUSALS_MAX, CALL_TIMEOUT_DEFAULT, CALLS_IN_FLIGHT_MAX, ChildCommand, ClientError,
    ClientOptions, ENVIRONMENT_DEFAULT, Endpoint, EraChoice, PAGES_MAX_DEFAULT, QUESTIONS_AT_ONCE_MAX,
    RECONNECTS_MAX_DEFAULT, SUBSCRIPTIONS_MAX,
};
pub(crate) use self::session::Session;
pub(crate) use self::tool_book::{Hints, ToolBook};
pub(crate) use self::unwrap::plain_value;
pub(crate) use self::upstream::Upstream;
pub use crate::wire::{Era, Revision};

mod agent;
pub mod auth;
mod connect;
mod conversation;
mod dialect;
mod ear;
mod errand;
mod legacy;
mod link;
mod listen;
mod mirror;
mod modern;
mod news;
mod options;
mod questions;
mod roots;
mod session;
mod tool_book;
mod unwrap;
mod upstream;
