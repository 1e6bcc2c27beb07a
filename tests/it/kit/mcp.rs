//! The stateless era of MCP, as it is on the wire.

use std::net::TcpListener;

use callboard::AgentRef;
use callboard::mcp::bridge::{Bridge, BridgeOptions, BridgeToolOptions};
use callboard::mcp::inbound::{self, ListenOptions, McpServerOptions};
use callboard::mcp::outbound::{ChildCommand, Era, EraChoice, McpClientOptions, ServerEndpoint};
use reqwest::RequestBuilder;
use rmcp::model::ProtocolVersion;
use rmcp::service::{RoleClient, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt};
use serde_json::{Value, json};

use super::{Listening, soon};

/// Serves an agent.
pub fn serve(agent: AgentRef, options: McpServerOptions) -> Listening {
    serve_with(agent, options, &ListenOptions::default())
}

/// Serves an agent, with these settings of connections.
pub fn serve_with(agent: AgentRef, options: McpServerOptions, listen: &ListenOptions) -> Listening {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let serving = inbound::serve(listener, agent, options, listen).unwrap();
    let (url, handle) = (
        format!("http://{}/mcp", serving.address),
        serving.server.handle(),
    );
    tokio::spawn(serving.server);
    Listening { url, handle }
}

/// A client of rmcp's, connected.
pub async fn connect<H: ClientHandler + Clone>(
    handler: &H,
    lifecycle: ClientLifecycleMode,
    url: &str,
) -> RunningService<RoleClient, H> {
    let config = StreamableHttpClientTransportConfig::with_uri(url);
    let transport = StreamableHttpClientTransport::from_config(config);
    soon(
        "a client",
        handler.clone().serve_with_lifecycle(transport, lifecycle),
    )
    .await
    .unwrap()
}

/// How a client of rmcp's speaks the stateless era.
pub fn stateless() -> ClientLifecycleMode {
    ClientLifecycleMode::Discover {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
    }
}

/// A bridge to a shell script of the legacy era, which finds what it asks in the variable `ASKS`.
pub fn bridge(name: &str, script: &str, asks: &str, options: BridgeOptions) -> Bridge {
    let mut command = ChildCommand::new("sh", ["-c", script]);
    command.env = vec![("ASKS".into(), asks.into())];
    let client = McpClientOptions {
        era: EraChoice::Only(Era::Legacy),
        ..options.client
    };
    // The scripts have no lists.
    let tools = BridgeToolOptions {
        checks_listed: false,
        ..options.tools
    };
    let options = BridgeOptions {
        client,
        tools,
        ..options
    };
    Bridge::new(name, ServerEndpoint::Child(command), options).unwrap()
}

/// A request of `method`, to which a credential may be added. `capabilities` are the client's.
pub fn request(url: &str, capabilities: &Value, method: &str, mut params: Value) -> RequestBuilder {
    let theirs = params["_meta"].as_object().cloned().unwrap_or_default();
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    });
    theirs
        .into_iter()
        .for_each(|(name, value)| params["_meta"][name] = value);
    let name = params["name"].as_str().or(params["taskId"].as_str());
    let request = reqwest::Client::new()
        .post(url)
        .header("content-type", "application/json");
    let request = request
        .header("accept", "application/json, text/event-stream")
        .header("mcp-method", method);
    let request = request.header("mcp-protocol-version", "2026-07-28");
    let request = name
        .into_iter()
        .fold(request, |request, name| request.header("mcp-name", name));
    request
        .body(json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }).to_string())
}

/// The whole response.
pub async fn response(request: RequestBuilder) -> Value {
    let response = soon("an answer", request.send()).await.unwrap();
    let text = soon("a body", response.text()).await.unwrap();
    serde_json::from_str(&text).unwrap_or_else(|_| panic!("no answer: {text}"))
}
