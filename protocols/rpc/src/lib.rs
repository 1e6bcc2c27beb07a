//! The JSON-RPC 2.0 envelope, framing and limits. Knows neither MCP nor A2A
