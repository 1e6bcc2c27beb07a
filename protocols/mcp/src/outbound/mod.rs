//! The client: MCP servers elsewhere, as agents of this system.

pub mod auth;
