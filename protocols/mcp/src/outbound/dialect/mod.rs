//! How a server words its questions, and wants them answered.

use serde::Deserialize;

/// How a server words its questions, and wants them answered. What is asked of it is MCP in all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Dialect {
    /// As MCP says.
    #[default]
    Mcp,
    /// As MagicTunnel's external servers do: text as bare strings, names in snake_case, `elicitation/request`.
    MagicTunnel,
}
