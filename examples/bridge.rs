//! A server of 2025-06-18 that asks for a model in mid-call, a client of 2026-07-28 that has none, and callboard in between
//! (bridge/bridge.toml). The server (bridge/server.rs) is this program once more, as a child.

use std::error::Error;
use std::path::Path;

use callboard::Node;
use callboard::config::Topology;
use callboard::mcp::outbound::{ClientOptions, Endpoint, Era, EraChoice, McpClient};
use callboard::message::surface::CallTool;
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

    let options = ClientOptions { era: EraChoice::Only(Era::Modern), ..ClientOptions::default() };
    let client = node.system().spawn(McpClient::new(Endpoint::url(&url)?, options)?);
    println!("1 the client calls complex_analysis_tool at {url}\n2 callboard finds the server that has it");
    let result = client.ask(CallTool::new("complex_analysis_tool", json!({ "data": "complex dataset" }))).await??;
    println!("{}\n8 the tool's result is with the client", result.texts());
    node.shutdown().await;
    Ok(())
}
