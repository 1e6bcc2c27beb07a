//! The server: any agent as an MCP server, both eras on one endpoint.
//!
//! A transport (`http/`, `stdio`) reads messages and hands them to the era that they belong to (`legacy/`, `modern/`);
//! both ask the same [`surface`], which knows the agent and no connection.

pub(crate) mod changes;
pub(crate) mod endpoint;
pub(crate) mod http;
pub(crate) mod legacy;
pub(crate) mod link;
pub(crate) mod modern;
pub(crate) mod options;
pub(crate) mod outcome;
mod reports;
pub(crate) mod stdio;
pub(crate) mod surface;
pub(crate) mod tasks;
#[cfg(test)]
mod tests;
pub(crate) mod tools;

pub use http::{
    BODY_TIMEOUT_DEFAULT, Compat, KEEP_ALIVE_COMMENT_DEFAULT, McpServer, McpServerOptions, NAMED_PATH, NamedServers,
    PATH_DEFAULT, REPLAY_BYTES_MAX_DEFAULT, REPLAY_STREAMS_MAX_DEFAULT, RETRY_DEFAULT, SESSION_IDLE_DEFAULT,
    SESSION_STREAMS_MAX_DEFAULT, SESSIONS_MAX_DEFAULT, SESSIONS_OF_PRINCIPAL_MAX_DEFAULT, STREAM_AFTER_DEFAULT,
    STREAM_BYTES_MAX_DEFAULT, STREAM_EVENTS_MAX_DEFAULT, STREAMS_MAX_DEFAULT, SessionOptions, StreamLimits,
    StreamOptions, serve, serve_named,
};
pub use legacy::{QUESTIONS_PENDING_MAX, REQUESTS_IN_FLIGHT_MAX, SUBSCRIPTION_URI_BYTES_MAX, SUBSCRIPTIONS_MAX};
pub use modern::options::{
    CacheHint, CacheScope, DISCOVER_TTL_DEFAULT, LIST_TTL_DEFAULT, ModernOptions, PARKED_CALLS_MAX_DEFAULT,
    PARKED_CALLS_OF_PRINCIPAL_MAX_DEFAULT, PARKED_FOR_DEFAULT, SUBSCRIPTION_URIS_MAX_DEFAULT,
    SUBSCRIPTIONS_MAX_DEFAULT,
};
pub use modern::visits::{VISITS_AT_ONCE_MAX, VISITS_MAX};
pub use options::{CALL_DEADLINE_DEFAULT, InboundOptions, Info, PAGE_ITEMS_MAX_DEFAULT};

pub use callboard_rpc::serve::{ListenOptions, ServeError, Serving};
pub use stdio::{
    STDIO_DRAIN_DEFAULT, STDIO_QUEUE_BYTES_MAX_DEFAULT, STDIO_REQUESTS_MAX_DEFAULT, StdioOptions, serve_stdio,
};
pub use tasks::{
    TASK_POLL_INTERVAL_DEFAULT, TASK_TTL_DEFAULT, TASK_TTL_MAX_DEFAULT, TASK_TTL_MIN, TASKS_MAX_DEFAULT,
    TASKS_OF_OWNER_MAX_DEFAULT, TaskOptions, TaskStore,
};
