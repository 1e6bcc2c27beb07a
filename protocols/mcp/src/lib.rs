//! MCP: inbound server and outbound client over callboard calls.

pub mod bare;
pub mod outbound;
