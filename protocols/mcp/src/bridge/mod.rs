//! The bridge: one MCP server elsewhere as one agent, for any number of clients at once.
//!
//! [`Bridge`] is the agent. Its messages are those of [`McpClient`](crate::outbound::McpClient); beside what that does, it
//! holds as many connections as it takes for every question to have one possible owner:
//!
//! - *shared*: lists, what the server is, changes of resources; and every call to a modern server, where each request says
//!   what its caller can answer, and questions are results. To a legacy server there is one for each set of abilities
//!   that `initialize` may offer, for it shows and asks only what was offered.
//! - *a session's own*: the calls of one client's session to a legacy server. Questions that name no call are the
//!   session's.
//! - *leased*: the calls of clients without a session to a legacy server, by principal and abilities. Where all requests
//!   share a channel, one that can be asked has it alone while it runs.
//!
//! Connections are made when they are needed, or at boot. While the server is away its breaker is open, and whatever is
//! asked of it fails at once with a sentence that says when it is tried again.

pub use self::agent::Bridge;
pub use self::options::{BridgeOptions, CONNECTIONS_MAX_AT_ADDRESS_DEFAULT, Start};
pub use self::tools::ToolOptions;

mod agent;
mod breaker;
mod cache;
mod hub;
mod keeper;
mod offer;
mod options;
mod pool;
mod relay;
mod retry;
mod tools;
