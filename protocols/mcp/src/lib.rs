//! MCP: inbound server and outbound client over callboard calls.

pub mod bare;
pub mod bridge;
pub mod inbound;
pub mod outbound;
pub mod wire;
