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
pub(crate) mod surface;
pub(crate) mod tasks;
#[cfg(test)]
mod tests;
pub(crate) mod tools;

pub use options::{CALL_DEADLINE_DEFAULT, InboundOptions, Info, PAGE_ITEMS_MAX_DEFAULT};
