//! The bridge between eras: an MCP server of 2025-06-18 requests sampling during a call, the client
//! of 2026-07-28 has no model, and callboard answers with its own (bridge/bridge.toml). The server
//! (bridge/server.rs) is this program as a child process.

use std::error::Error;
use std::path::Path;

use callboard::Node;
use callboard::config::Topology;
use callboard::mcp::outbound::{Era, EraChoice, McpClient, McpClientOptions, ServerEndpoint};
use callboard::message::capabilities::CallTool;
use serde_json::json;

#[path = "bridge/server.rs"]
mod server;

#[actix_web::main]
async fn main() -> Result<(), Box<dyn Error>> {
    if std::env::args().nth(1).as_deref() == Some("server") {
        return server::run();
    }
    let program = std::env::current_exe()?.display().to_string();
    let topology =
        Topology::parse(&include_str!("bridge/bridge.toml").replace("PROGRAM", &program), false, Path::new(""))?;
    let node = Node::start(&topology, Path::new(""), false).await?;
    let url = node.listeners().next().ok_or("nothing listens")?.url.clone();

    let options = McpClientOptions { era: EraChoice::Only(Era::Modern), ..McpClientOptions::default() };
    let client = node.system().spawn(McpClient::new(ServerEndpoint::from_url(&url)?, options)?);
    println!("1 the client calls complex_analysis_tool at {url}\n2 callboard finds the server that has it");
    let result = client.ask(CallTool::new("complex_analysis_tool", json!({ "data": "complex dataset" }))).await??;
    println!("{}\n8 the tool's result is with the client", result.texts());
    node.shutdown().await;
    Ok(())
}
