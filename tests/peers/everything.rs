//! Every tool of the reference server, over each of its transports.

use callboard::message::RawObject;
use callboard::message::capabilities::{CallTool, ForwardRequest, ListTools};
use callboard::{AgentRef, System};
use serde_json::{Value, json};

use crate::client::{Seen, ask, connect};
use crate::kit::{Peers, Served, peers, with};
use crate::round::{CAPITAL, FOLDER, NAME};
use callboard::mcp::outbound::{ChildCommand, ServerEndpoint};

/// Each tool with arguments, what it asks on the way, and what its result must hold.
fn tools() -> Vec<(&'static str, Value, Option<&'static str>, &'static str)> {
    let data = "data:text/plain;base64,aGVsbG8=";
    vec![
        ("echo", json!({ "message": "tschüß" }), None, "Echo: tschüß"),
        (
            "get-annotated-message",
            json!({ "messageType": "error", "includeImage": true }),
            None,
            r#""priority":1"#,
        ),
        ("get-env", json!({}), None, "PATH"),
        (
            "get-resource-links",
            json!({ "count": 2 }),
            None,
            r#""type":"resource_link""#,
        ),
        (
            "get-resource-reference",
            json!({ "resourceType": "Text", "resourceId": 1 }),
            None,
            "demo://resource",
        ),
        ("get-roots-list", json!({}), None, FOLDER),
        (
            "get-structured-content",
            json!({ "location": "New York" }),
            None,
            r#""structuredContent":{"temperature":33"#,
        ),
        (
            "get-sum",
            json!({ "a": 2, "b": 3 }),
            None,
            "The sum of 2 and 3 is 5.",
        ),
        (
            "get-tiny-image",
            json!({}),
            None,
            r#""mimeType":"image/png""#,
        ),
        (
            "gzip-file-as-resource",
            json!({ "name": "a.gz", "data": data, "outputType": "resource" }),
            None,
            "H4sI",
        ),
        (
            "simulate-research-query",
            json!({ "topic": "actors" }),
            None,
            "actors",
        ),
        (
            "toggle-simulated-logging",
            json!({}),
            None,
            "Started simulated",
        ),
        (
            "toggle-subscriber-updates",
            json!({}),
            None,
            "Started simulated",
        ),
        (
            "trigger-elicitation-request",
            json!({}),
            Some("Please provide inputs"),
            NAME,
        ),
        (
            "trigger-long-running-operation",
            json!({ "duration": 1, "steps": 2 }),
            None,
            "operation completed",
        ),
        (
            "trigger-sampling-request",
            json!({ "prompt": "Which?" }),
            Some("context: Which?"),
            CAPITAL,
        ),
        (
            "trigger-url-elicitation",
            json!({ "url": "https://example.test/" }),
            Some("Please open the link"),
            "accept",
        ),
    ]
}

async fn every_tool(server: &AgentRef) {
    let rows = tools();
    let mut seen = Seen::default();
    // The server shows the tools that ask back once it knows, by a notification of ours, that it may.
    let mut listed = Vec::new();
    for _ in 0..100 {
        let tools: Vec<RawObject> = ask(server, ListTools::default(), &mut seen)
            .await
            .unwrap()
            .read("tools")
            .unwrap();
        listed = tools
            .iter()
            .map(|tool| tool.text("name").unwrap())
            .collect();
        if listed.len() >= rows.len() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    listed.sort();
    let mut known: Vec<&str> = rows.iter().map(|(name, ..)| *name).collect();
    known.sort_unstable();
    assert_eq!(listed, known);
    for (name, arguments, asks, holds) in rows {
        let mut seen = Seen::default();
        let result = match name {
            "simulate-research-query" => researched(server, arguments, &mut seen).await,
            _ => {
                ask(server, CallTool::new(name, arguments), &mut seen)
                    .await
                    .unwrap()
                    .0
            }
        };
        let text = result.to_raw().get().replace(r#"\""#, "\"");
        assert!(
            text.contains(holds) && !text.contains(r#""isError":true"#),
            "{name}: {text}"
        );
        if let Some(asked) = asks {
            assert!(
                seen.step.asked.iter().any(|a| a.contains(asked)),
                "{name} asked {:?}",
                seen.step.asked
            );
        }
        if name == "trigger-long-running-operation" {
            assert_eq!(seen.step.progress, [(1.0, 2.0), (2.0, 2.0)]);
        }
    }
}

/// The tool that runs as a task only (2025-11-25): what the client doesn't know it forwards.
async fn researched(server: &AgentRef, arguments: Value, seen: &mut Seen) -> RawObject {
    let mut call = CallTool::new("simulate-research-query", arguments);
    call.0.set("task", json!({ "ttl": 60_000 }));
    let begun = ask(server, call, seen).await.unwrap();
    let id = begun
        .0
        .object("task")
        .and_then(|task| task.text("taskId"))
        .expect("a task");
    let params = RawObject::new().with("taskId", id);
    let wait = ForwardRequest(
        RawObject::new()
            .with("method", "tasks/result")
            .with("params", params),
    );
    ask(server, wait, seen).await.unwrap()
}

async fn over(endpoint: ServerEndpoint) {
    let system = System::start(1).unwrap();
    every_tool(&connect(&system, endpoint, None)).await;
}

fn command(peers: &Peers) -> (std::path::PathBuf, std::path::PathBuf) {
    (
        peers.node(),
        peers.package("@modelcontextprotocol/server-everything/dist/index.js"),
    )
}

async fn served(peers: &Peers, transport: &str) -> Served {
    let (node, script) = command(peers);
    Served::start(|port| {
        let mut command = with(
            peers.command(&node),
            [script.as_os_str(), transport.as_ref()],
        );
        command.env("PORT", port.to_string());
        command
    })
    .await
}

/// Goal: nothing is lost over a pipe. Method: every tool of a child process.
/// Rows: M-8.
#[actix_web::test]
async fn every_tool_over_stdio() {
    let Some(peers) = peers() else { return };
    let (node, script) = command(&peers);
    over(ServerEndpoint::Child(ChildCommand::new(
        node,
        [script.as_os_str(), "stdio".as_ref()],
    )))
    .await;
}

/// Goal: nor over streamable HTTP. Method: every tool, its questions on the call's own stream.
#[actix_web::test]
async fn every_tool_over_streamable_http() {
    let Some(peers) = peers() else { return };
    let server = served(&peers, "streamableHttp").await;
    over(ServerEndpoint::from_url(&server.url("http", "/mcp")).unwrap()).await;
}

/// Goal: nor over HTTP+SSE. Method: every tool.
/// Rows: H-16, M-32.
#[actix_web::test]
async fn every_tool_over_sse() {
    let Some(peers) = peers() else { return };
    let server = served(&peers, "sse").await;
    over(ServerEndpoint::sse(&server.url("http", "/sse")).unwrap()).await;
}
