use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use callboard_mcp::inbound::{CompatOptions, ListenOptions, McpServerOptions, serve};
use callboard_message::mail::{AgentView, JoinMailroom};
use callboard_message::{Failure, Principal, PrincipalKind};
use callboard_rpc::{
    AUTH_FAILURE_DELAY_MIN, AccessControl, BearerVerifier, CredentialError,
    UNDELAYED_AUTH_FAILURES_MAX,
};
use callboard_runtime::{Agent, Context, Handlers, SyncHandler, System};
use serde_json::json;

use crate::http_compat::Socket;
use crate::kit::header;
use crate::mcp_client::{BOTH, Client, initialize};
use crate::mcp_kit::Served;

const KEY: &str = "Authorization: Bearer alice\r\n";
const OTHER: &str = "`X-Agent-ID` must be the name of the key that the request has";
const NEEDED: &str = "send `X-Agent-ID` exactly once, with the name of your key";

/// Verifier of one key, until it is revoked.
#[derive(Clone, Default)]
struct Alice(Arc<AtomicBool>);

impl BearerVerifier for Alice {
    fn verify(&self, token: &[u8]) -> Option<Result<Principal, CredentialError>> {
        let is_good = token == b"alice" && !self.0.load(SeqCst);
        let alice = Principal {
            kind: PrincipalKind::ApiKey,
            ..Principal::agent("alice")
        };
        Some(is_good.then_some(alice).ok_or(CredentialError::Wrong))
    }
}

fn options(alice: &Alice, claims_must_match: bool) -> McpServerOptions {
    McpServerOptions {
        access: AccessControl::Bearer(Arc::new([Box::new(alice.clone())])),
        compat: CompatOptions {
            websocket: true,
            sse: true,
            ..CompatOptions::default()
        },
        agent_id_must_match: claims_must_match,
        ..McpServerOptions::default()
    }
}

/// Goal: guesses from one address are slowed down after the fifth, and a request with the right key from
/// there isn't. Method: six wrong keys one after the other; then the right one, while a seventh waits.
#[tokio::test]
async fn guesses_are_slowed_down() {
    let server = Served::with(options(&Alice::default(), false)).await;
    let body = initialize("2025-11-25", &json!({})).to_string();
    let guess = posted("", &body).replace("alice", "mallory");
    let client = server.client("", "");
    let took = async |request: &str, status: u16| {
        let begun = Instant::now();
        assert_eq!(client.send(request).await.status, status);
        begun.elapsed()
    };
    for _ in 0..UNDELAYED_AUTH_FAILURES_MAX {
        took(&guess, 401).await;
    }
    assert!(took(&guess, 401).await >= AUTH_FAILURE_DELAY_MIN);
    let right = posted("", &body);
    let waits = took(&guess, 401);
    tokio::pin!(waits);
    tokio::select! {
        biased;
        _ = &mut waits => panic!("the guess wasn't delayed"),
        _ = took(&right, 200) => {}
    }
    assert!(waits.await >= 2 * AUTH_FAILURE_DELAY_MIN);
    server.stop().await;
}

fn posted(lines: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n{BOTH}{KEY}{lines}\r\n{body}"
    )
}

/// Returns a request of the modern era.
fn modern(lines: &str, method: &str, mut params: serde_json::Value) -> String {
    let name = params["name"]
        .as_str()
        .map(|name| format!("Mcp-Name: {name}\r\n"))
        .unwrap_or_default();
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2026-07-28".into();
    params["_meta"]["io.modelcontextprotocol/clientInfo"] =
        json!({ "name": "test", "version": "1" });
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
    posted(
        &format!("MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\n{name}{lines}"),
        &body,
    )
}

/// Returns the first request of each transport, and the status of an accepted one.
fn begun(lines: &str) -> [(String, u16); 4] {
    let hello = initialize("2025-11-25", &json!({})).to_string();
    let get = |path: &str, more: &str| {
        format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n{KEY}{more}{lines}\r\n"
        )
    };
    [
        (posted(lines, &hello), 200),
        (modern(lines, "tools/list", json!({})), 200),
        (get("/sse", ""), 200),
        (get("/mcp", Socket::HANDSHAKE), 101),
    ]
}

async fn are_refused(client: &Client, lines: &str, status: u16, why: &str) {
    for (request, _) in begun(lines) {
        let reply = client.send(&request).await;
        assert_eq!(reply.status, status, "{request}");
        assert!(reply.rest().await.contains(why), "{request}");
    }
}

/// Goal: a claim of another id than the credential's is rejected with an HTTP status, in each era
/// and transport; the claim is optional. Method: rows of claims, with and without the requirement.
/// Rows: X-20.
#[tokio::test]
async fn claims_match_credentials() {
    let alice = Alice::default();
    let (server, open) = (
        Served::with(options(&alice, true)).await,
        Served::with(options(&alice, false)).await,
    );
    let (client, free) = (server.client("", ""), open.client("", ""));
    for lines in ["", "X-Agent-ID: alice\r\n", "X-Agent-ID:  alice \r\n"] {
        for (request, status) in begun(lines) {
            assert_eq!(client.send(&request).await.status, status, "{request}");
        }
    }
    for (lines, status, why) in [
        ("X-Agent-ID: bob\r\n", 403, OTHER),
        ("X-Agent-ID: ALICE\r\n", 403, OTHER),
        ("X-Agent-ID: \r\n", 401, NEEDED),
        ("X-Agent-ID: alice\r\nX-Agent-ID: alice\r\n", 401, NEEDED),
        ("X-Agent-ID: alice\r\nX-Agent-ID: bob\r\n", 401, NEEDED),
    ] {
        are_refused(&client, lines, status, why).await;
        for (request, status) in begun(lines) {
            assert_eq!(
                free.send(&request).await.status,
                status,
                "what isn't mail knows no such header: {request}"
            );
        }
    }
    server.stop().await;
    open.stop().await;
}

/// An agent that accepts members, as a mailroom does.
struct Room;

impl Agent for Room {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<JoinMailroom>();
    }
}

impl SyncHandler<JoinMailroom> for Room {
    fn handle(&mut self, _: JoinMailroom, _: &mut Context) -> Result<AgentView, Failure> {
        Err(Failure::not_found("nobody"))
    }
}

/// Goal: in front of a mailroom claims must match, whatever the options. Method: an agent that
/// handles [`JoinMailroom`].
#[tokio::test]
async fn a_mailroom_is_known() {
    let system = System::start(1).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let room = system.spawn(Room);
    let serving = serve(
        listener,
        room,
        options(&Alice::default(), false),
        &ListenOptions::default(),
    )
    .unwrap();
    let handle = serving.server.handle();
    tokio::spawn(serving.server);
    are_refused(
        &Client::new(serving.address, "", ""),
        "X-Agent-ID: bob\r\n",
        403,
        OTHER,
    )
    .await;
    handle.stop(false).await;
    system.shutdown(Duration::ZERO).await;
}

/// Goal: streams and sockets end soon after their key is revoked, with the reason. Method: a stream
/// of each kind and a socket, all open when the key is revoked.
#[tokio::test]
async fn revoked_keys_end_streams() {
    const WHY: &str = "the credential was revoked or has expired";
    let alice = Alice::default();
    let server = Served::with(options(&alice, false)).await;
    let mut client = server.client("", KEY);
    let reply = client
        .post(&initialize("2025-11-25", &json!({})).to_string())
        .await;
    client.session = header(&reply.head, "mcp-session-id").unwrap().to_owned();
    client
        .post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
        .await;
    let call = json!({ "name": "linger", "arguments": { "progress": true }, "_meta": { "progressToken": "p" } });
    let mut streams = vec![
        client.get(None).await,
        client.call("linger", json!({ "progress": true })).await,
    ];
    streams.push(client.send(&modern("", "tools/call", call)).await);
    let sse =
        format!("GET /sse HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n{KEY}\r\n");
    streams.push(client.send(&sse).await);
    let mut socket = Socket::open_with(&server, KEY).await;
    alice.0.store(true, SeqCst);
    for stream in streams {
        assert_eq!(
            (stream.status, header(&stream.head, "content-type")),
            (200, Some("text/event-stream"))
        );
        assert!(stream.rest().await.ends_with(&format!(": {WHY}\n\n")));
    }
    let (_, closed) = socket.frame().await.unwrap();
    assert_eq!(
        (&closed[..2], &closed[2..]),
        (&1008_u16.to_be_bytes()[..], WHY.as_bytes())
    );
    server.stop().await;
}
