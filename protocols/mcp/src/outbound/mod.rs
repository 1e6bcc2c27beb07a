//! MCP client: remote MCP servers as agents of this system.
//!
//! [`McpClient`] is the agent. Its modules, from the outside in: `upstream` (one server, connected
//! on demand), `session` (an initialized connection), `modern` (requests of the modern era),
//! `call_exchange` (a request and all messages before its response), `transport` (streamable HTTP,
//! a child's pipes, WebSocket, HTTP+SSE).
//!
//! # Addressee of a question
//!
//! A legacy server asks questions during a call. Over streamable HTTP, its question comes on the
//! response stream of the call that caused it. On a channel shared by all calls (a child, a
//! WebSocket, HTTP+SSE, the GET stream), the question goes to the only pending call. While several
//! calls are pending it is rejected, because it could belong to any of them. A
//! [`Bridge`](crate::bridge::Bridge) gives each caller a connection of its own if necessary.

pub use callboard_rpc::http1::STREAM_RETRY_DEFAULT;

pub use crate::wire::{Era, Revision};
pub(crate) use change_route::SessionLink;
pub(crate) use client::ClientOperation;
pub use client::McpClient;
pub use dialect::ServerDialect;
pub(crate) use exchange::TransportError;
pub use options::{
    AUTH_REJECTIONS_MAX, CALL_TIMEOUT_DEFAULT, CHANGE_INTERVAL_DEFAULT, CONCURRENT_ANSWERS_MAX,
    CONCURRENT_QUESTIONS_MAX, ChildCommand, ENV_PASSTHROUGH_DEFAULT, EraChoice, McpClientError,
    McpClientOptions, PAGES_MAX_DEFAULT, PENDING_CALLS_MAX, RECONNECTS_MAX_DEFAULT,
    SUBSCRIPTIONS_MAX, ServerEndpoint,
};
pub(crate) use server_messages::{EXTENSION_CAPABILITIES, list_changes};
pub(crate) use session::UpstreamSession;
pub(crate) use tool_cache::{ToolCache, ToolHints};
pub(crate) use tool_result::plain_value;
pub(crate) use upstream::Upstream;
pub(crate) use upstream_server::{ConnectionParams, UpstreamServer};

pub mod auth;
mod call_exchange;
mod change_listener;
mod change_route;
pub(crate) mod client;
mod dialect;
mod exchange;
mod modern;
mod options;
mod pending_requests;
mod server_messages;
mod session;
mod tool_cache;
mod tool_result;
mod transport;
mod upstream;
mod upstream_server;
mod url_elicitation;

/// Former name of [`McpClientOptions`].
#[deprecated(note = "renamed to `McpClientOptions`")]
pub type ClientOptions = McpClientOptions;

/// Former name of [`ServerEndpoint`].
#[deprecated(note = "renamed to `ServerEndpoint`")]
pub type Endpoint = ServerEndpoint;
