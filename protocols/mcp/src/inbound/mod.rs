//! The server: any agent as an MCP server, both eras on one endpoint.
//!
//! A transport (`http/`, `stdio`) reads messages and hands them to the era that they belong to (`legacy/`, `modern/`);
//! both ask the same [`surface`], which knows the agent and no connection.

pub(crate) mod endpoint;
pub(crate) mod http;
pub(crate) mod legacy;
pub(crate) mod link;
pub(crate) mod modern;
pub(crate) mod options;
pub(crate) mod outcome;
pub(crate) mod stdio;
pub(crate) mod surface;
pub(crate) mod tasks;
#[cfg(test)]
mod tests;
pub(crate) mod tools;

pub use options::{CALL_DEADLINE_DEFAULT, InboundOptions, Info, PAGE_ITEMS_MAX_DEFAULT};
pub use stdio::{
    STDIO_DRAIN_DEFAULT, STDIO_QUEUE_BYTES_MAX_DEFAULT, STDIO_REQUESTS_MAX_DEFAULT, StdioOptions, serve_stdio,
};
pub use tasks::{
    TASK_POLL_INTERVAL_DEFAULT, TASK_QUESTIONS_MAX, TASK_TTL_DEFAULT, TASK_TTL_MAX_DEFAULT, TASK_TTL_MIN,
    TASKS_MAX_DEFAULT, TASKS_OF_OWNER_MAX_DEFAULT, TaskOptions,
};
