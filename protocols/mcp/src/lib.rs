//! Adapters between agents and the Model Context Protocol (MCP): a server that exposes agents to
//! MCP clients, and a client and a bridge through which agents call remote MCP servers.

pub mod bare;
pub mod bridge;
mod change_damper;
pub mod inbound;
pub mod outbound;
pub mod wire;
