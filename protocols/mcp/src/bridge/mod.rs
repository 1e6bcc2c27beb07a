//! One upstream MCP server as one agent.

mod cache;
#[cfg_attr(not(test), expect(dead_code, reason = "the agent is written beside it"))]
mod retry;
#[cfg_attr(not(test), expect(dead_code, reason = "the agent is written beside it"))]
mod tools;

pub use cache::{CACHE_ARGUMENTS_BYTES_MAX, CACHE_BYTES_MAX_DEFAULT, CACHE_ENTRIES_MAX_DEFAULT, CACHE_ENTRY_BYTES_MAX};
pub use retry::{RETRIES_AT_ONCE_MAX, RETRIES_MAX_DEFAULT, RETRY_PAUSE_DEFAULT, RETRY_PAUSE_MAX};
pub use tools::ToolOptions;
