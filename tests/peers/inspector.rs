//! The inspector's command line: a client that connects for one request, in either era.

use std::path::Path;

use serde_json::{Value, json};

use crate::gateway::{Gateway, Topology};
use crate::kit::{Peers, peers, soon, with};
use crate::round::ECHOED;

const ERAS: [&str; 2] = ["legacy", "modern"];

/// Result of one request.
async fn inspect(peers: &Peers, home: &Path, target: &[String], request: &[&str]) -> Value {
    let program = peers.package("@modelcontextprotocol/inspector/clients/launcher/build/index.js");
    let mut command = with(peers.command(&peers.node()), [program]);
    // Where it would keep a catalogue of servers, and secrets.
    command
        .env("HOME", home)
        .arg("--cli")
        .args(target)
        .args(["--format", "json", "--quiet", "--method"])
        .args(request);
    let output = soon("the inspector's answer", command.output())
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{target:?} {request:?}: {output:?}"
    );
    let answer: Value = serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e} in {said}"));
    answer["result"].clone()
}

async fn lists_and_calls(peers: &Peers, target: &[String]) {
    let home = tempfile::tempdir().unwrap();
    let message = format!("message={ECHOED}");
    for era in ERAS {
        let listed = ["tools/list", "--protocol-era", era];
        let listed = inspect(peers, home.path(), target, &listed).await;
        let tools = listed["tools"].as_array().unwrap();
        assert!(tools.iter().any(|tool| tool["name"] == "echo"), "{listed}");

        let call = ["tools/call", "--tool-name", "echo", "--tool-arg", &message];
        let call = [&call[..], &["--protocol-era", era]].concat();
        let result = inspect(peers, home.path(), target, &call).await;
        let wanted = json!([{ "type": "text", "text": format!("Echo: {ECHOED}") }]);
        assert_eq!(result["content"], wanted, "{era}");
    }
}

fn topology(peers: &Peers) -> Topology {
    let script = peers.package("@modelcontextprotocol/server-everything/dist/index.js");
    let command = json!([peers.node(), script, "stdio"]);
    Topology::new(&format!(
        "[[upstream]]\nid = \"everything\"\ncommand = {command}\n"
    ))
}

/// Goal: the inspector lists and calls the tools of a server behind `/mcp`. Method: its command line, in both eras.
#[actix_web::test]
async fn inspector_over_http() {
    let Some(peers) = peers() else { return };
    let gateway = Gateway::start(&peers, topology(&peers)).await;
    lists_and_calls(&peers, &[gateway.mcp("everything")]).await;
    gateway.end().await;
}

/// Goal: and behind `callboard stdio`. Method: the same; it starts that program for each request.
#[actix_web::test]
async fn inspector_over_a_pipe() {
    let Some(peers) = peers() else { return };
    let topology = topology(&peers);
    lists_and_calls(&peers, &topology.stdio_of_all()).await;
}
