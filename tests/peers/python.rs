use callboard::System;
use callboard::mcp::outbound::{ChildCommand, Era, ServerEndpoint};
use serde_json::json;

use crate::client::{self, connect};
use crate::gateway::Topology;
use crate::kit::{Peers, Served, Target, peers, script, with};
use crate::round::{self, Plan, steps};
use crate::server;

/// How that server says that a tool failed.
pub const FAILED: &str = "error: Error executing tool fail";
/// And the older one.
pub const FAILED_OLD: &str = "error: Error executing tool fail: on purpose";

/// Tools of both servers.
pub const TOOLS: [&str; 9] = [
    "ask_all",
    "ask_model",
    "ask_name",
    "ask_twice",
    "count",
    "echo",
    "fail",
    "folders",
    "wait",
];

/// Plan of this server, without `wait`.
pub fn plan(failed: &str) -> Plan {
    [
        vec![round::tools(&TOOLS)],
        round::plain(failed),
        round::asking(),
    ]
    .concat()
}

async fn client_round(era: &str) {
    let Some(peers) = peers() else { return };
    let (ours, plan) = (server::start(), server::plan());
    let target = Target::Url(ours.url.clone());
    let mut client = peers.client(&peers.python("python"), &[&script("client.py"), era]);
    client
        .round(&target, steps(&plan))
        .await
        .assert_whole(&plan);
}

/// Goal: the Python client loses nothing in a session. Method: every tool, and its questions answered live.
#[actix_web::test]
async fn python_client_with_a_session() {
    client_round("legacy").await;
}

/// Goal: nor without one. Method: the same tools, their questions answered by calling again.
#[actix_web::test]
async fn python_client_without_session() {
    client_round("2026-07-28").await;
}

async fn server_round(endpoint: ServerEndpoint, era: Option<Era>, failed: &str) {
    let system = System::start(1).unwrap();
    let plan = plan(failed);
    let round = client::round(&connect(&system, endpoint, era), steps(&plan)).await;
    round.assert_whole(&plan);
}

async fn over_http(era: Era) {
    let Some(peers) = peers() else { return };
    let python = peers.python("python");
    let arguments = |port: u16| {
        [
            script("server.py"),
            "streamable-http".to_owned(),
            port.to_string(),
        ]
    };
    let server = Served::start(|port| with(peers.command(&python), arguments(port))).await;
    server_round(
        ServerEndpoint::from_url(&server.url("http", "/mcp")).unwrap(),
        Some(era),
        FAILED,
    )
    .await;
}

/// Goal: our client loses nothing of a Python server in a session. Method: every tool over streamable HTTP.
#[actix_web::test]
async fn python_server_with_a_session() {
    over_http(Era::Legacy).await;
}

/// Goal: nor without one. Method: the same; its questions come as `input_required`.
#[actix_web::test]
async fn python_server_without_session() {
    over_http(Era::Modern).await;
}

/// Goal: nor over a pipe. Method: the server as a child; which era, the client finds out.
#[actix_web::test]
async fn python_server_over_stdio() {
    let Some(peers) = peers() else { return };
    let child = ChildCommand::new(
        peers.python("python"),
        [script("server.py"), "stdio".to_owned()],
    );
    server_round(ServerEndpoint::Child(child), None, FAILED).await;
}

/// Goal: nor over HTTP+SSE. Method: every tool of the same server.
#[actix_web::test]
async fn python_server_over_sse() {
    let Some(peers) = peers() else { return };
    let python = peers.python("python");
    let arguments = |port: u16| [script("server.py"), "sse".to_owned(), port.to_string()];
    let server = Served::start(|port| with(peers.command(&python), arguments(port))).await;
    server_round(
        ServerEndpoint::sse(&server.url("http", "/sse")).unwrap(),
        Some(Era::Legacy),
        FAILED,
    )
    .await;
}

/// Goal: nor over a WebSocket. Method: the last version of the SDK that has one.
/// Rows: M-17, M-32.
#[actix_web::test]
async fn python_server_over_websocket() {
    let Some(peers) = peers() else { return };
    let python = peers.python("python-old");
    let server = Served::start(|port| {
        with(
            peers.command(&python),
            [
                script("server_old.py"),
                "websocket".to_owned(),
                port.to_string(),
            ],
        )
    })
    .await;
    server_round(
        ServerEndpoint::from_url(&server.url("ws", "/ws")).unwrap(),
        Some(Era::Legacy),
        FAILED_OLD,
    )
    .await;
}

/// Plan of the server of the SDK 1.6, which has no forms; without `count` for its client, which has no progress.
fn plan_1_6(counts: bool) -> Plan {
    let mut plan = vec![round::tools(&[
        "ask_model",
        "count",
        "echo",
        "fail",
        "folders",
    ])];
    plan.extend(round::plain(FAILED_OLD));
    let missing = if counts {
        &["ask_name"][..]
    } else {
        &["ask_name", "count"]
    };
    plan.retain(|(step, _)| !missing.contains(&step.label));
    plan
}

fn command_1_6(peers: &Peers) -> [String; 2] {
    let python = peers.python("python-mcp-1-6").display().to_string();
    [python, script("server_1_6.py")]
}

/// Goal: a server that the first request of the newer era puts out of action, while its process stays, is met in the older one.
/// Method: every tool of one of the SDK 1.6, over a pipe; which era, the client finds out.
#[actix_web::test]
async fn python_server_1_6() {
    let Some(peers) = peers() else { return };
    let [python, file] = command_1_6(&peers);
    let endpoint = ServerEndpoint::Child(ChildCommand::new(python, [file]));
    let system = System::start(1).unwrap();
    let plan = plan_1_6(true);
    let round = client::round(&connect(&system, endpoint, None), steps(&plan)).await;
    round.assert_whole(&plan);
}

/// Goal: nor does the client of that SDK lose anything. Method: a round through `callboard stdio` to the same server.
#[actix_web::test]
async fn python_client_1_6() {
    let Some(peers) = peers() else { return };
    let command = json!(command_1_6(&peers));
    let topology = Topology::new(&format!(
        "[[upstream]]\nid = \"peer\"\ncommand = {command}\nsupports_sampling = true\nsupports_roots = true\n"
    ));
    let mut client = peers.client(&peers.python("python-mcp-1-6"), &[&script("client_1_6.py")]);
    let plan = plan_1_6(false);
    client
        .round(&topology.stdio("peer"), steps(&plan))
        .await
        .assert_whole(&plan);
}
