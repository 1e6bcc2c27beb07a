//! The stateless era of MCP, as it is on the wire.

use reqwest::RequestBuilder;
use serde_json::{Value, json};

use super::soon;

/// A request of `method`, to which a credential may be added. `capabilities` are the client's.
pub fn request(url: &str, capabilities: &Value, method: &str, mut params: Value) -> RequestBuilder {
    let theirs = params["_meta"].as_object().cloned().unwrap_or_default();
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    });
    theirs.into_iter().for_each(|(name, value)| params["_meta"][name] = value);
    let name = params["name"].as_str().or(params["taskId"].as_str()).unwrap_or_default().to_owned();
    let request = reqwest::Client::new().post(url);
    let request = request.header("content-type", "application/json").header("mcp-method", method);
    let request = request.header("accept", "application/json, text/event-stream").header("mcp-name", name);
    let request = request.header("mcp-protocol-version", "2026-07-28");
    request.body(json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }).to_string())
}

/// The whole response.
pub async fn response(request: RequestBuilder) -> Value {
    let response = soon("an answer", request.send()).await.unwrap();
    let text = soon("a body", response.text()).await.unwrap();
    serde_json::from_str(&text).unwrap_or_else(|_| panic!("no answer: {text}"))
}
