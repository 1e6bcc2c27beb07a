use std::sync::Arc;

use callboard_mcp::inbound::{McpServerOptions, SessionOptions};
use callboard_message::Principal;
use callboard_rpc::{AccessControl, BearerVerifier, CredentialError};
use serde_json::json;

use crate::kit::{Reply, header, soon};
use crate::mcp_client::{Client, Streaming, initialize};
use crate::mcp_kit::Served;

/// Verifier that takes any token as the principal's id.
struct ByName;

impl BearerVerifier for ByName {
    fn verify(&self, token: &[u8]) -> Option<Result<Principal, CredentialError>> {
        Some(Ok(Principal::agent(String::from_utf8_lossy(token))))
    }
}

async fn served(change: impl FnOnce(&mut McpServerOptions)) -> Served {
    let mut options = McpServerOptions {
        access: AccessControl::Bearer(Arc::new([Box::new(ByName) as Box<dyn BearerVerifier>])),
        ..McpServerOptions::default()
    };
    change(&mut options);
    Served::with(options).await
}

fn client(server: &Served, name: &str) -> Client {
    let key = format!("Authorization: Bearer {name}\r\n");
    server.client("", &key)
}

/// Opens a session of the principal `name`, or returns the rejection.
async fn open(server: &Served, name: &str) -> Result<Client, Reply> {
    let mut client = client(server, name);
    let body = initialize("2025-11-25", &json!({})).to_string();
    let reply = client.post(&body).await;
    if reply.status != 200 {
        return Err(reply);
    }
    client.session = header(&reply.head, "mcp-session-id").unwrap().to_owned();
    Ok(client)
}

/// Opens a stream of `subscriptions/listen` for the principal `name`.
async fn listen(server: &Served, name: &str) -> Streaming {
    let more = "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: subscriptions/listen\r\n";
    let mut client = client(server, name);
    client.more.push_str(more);
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({ "notifications": { "toolsListChanged": true }, "_meta": meta });
    let request = client.request("subscriptions/listen", params);
    client.stream(&request).await
}

/// Checks a rejection: its status, `Retry-After`, and a part of its message.
fn assert_refused(status: u16, head: &str, body: &str, expected: (u16, &str)) {
    assert_eq!(status, expected.0, "{body}");
    assert!(header(head, "retry-after").is_some(), "{head}");
    assert!(body.contains(expected.1), "{body}");
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(body["error"]["code"], -3, "{body}");
}

const OWN_LIMIT: &str =
    "3 of 4 are in use, 3 by this principal; the last 1 are for others (`principal_share_percent`)";

/// Goal: one principal can't hold all sessions, and a session that ends makes room. Method: of
/// four, as many as one principal gets, one of another, one more of each; one ends, and a third
/// comes.
#[tokio::test]
async fn sessions_are_shared() {
    let server = served(|options| {
        options.sessions = SessionOptions {
            sessions_max: 4,
            ..SessionOptions::default()
        };
    })
    .await;
    let mut sessions = Vec::new();
    for _ in 0..3 {
        sessions.push(open(&server, "ana").await.ok().unwrap());
    }
    let refused = open(&server, "ana").await.err().unwrap();
    let expected = (429, OWN_LIMIT);
    assert_refused(refused.status, &refused.head, &refused.body, expected);
    assert!(open(&server, "bob").await.is_ok());
    let refused = open(&server, "bob").await.err().unwrap();
    let expected = (503, "too many sessions: all 4 are in use");
    assert_refused(refused.status, &refused.head, &refused.body, expected);
    assert_eq!(sessions.remove(0).delete().await.status, 204);
    assert!(open(&server, "carl").await.is_ok());
    server.stop().await;
}

/// Goal: one principal can't hold all GET streams, and a stream that ends makes room. Method: of
/// four, as many as one principal gets, each in a session of its own, one of another; two end.
#[tokio::test]
async fn get_streams_are_shared() {
    let server = served(|options| options.streams.streams_max = 4).await;
    let ana = open(&server, "ana").await.ok().unwrap();
    let bob = open(&server, "bob").await.ok().unwrap();
    let mut streams = Vec::new();
    let refused = loop {
        let stream = open(&server, "ana").await.ok().unwrap().get(None).await;
        match stream.status {
            200 => streams.push(stream),
            _ => break stream,
        }
    };
    assert_eq!(streams.len(), 3);
    let (status, head) = (refused.status, refused.head.clone());
    assert_refused(status, &head, &refused.rest().await, (429, OWN_LIMIT));
    assert_eq!(ana.get(None).await.status, 429);
    assert_eq!(bob.get(None).await.status, 200);
    streams.truncate(1);
    let again = async { while ana.get(None).await.status != 200 {} };
    soon(again).await;
    server.stop().await;
}

/// Goal: one principal can't hold all streams of subscriptions, nor all subscriptions, and one that
/// ends makes room. Method: either limit is four; as many as one principal gets, and one of
/// another.
#[tokio::test]
async fn subscriptions_are_shared() {
    for limits_streams in [true, false] {
        let server = served(|options| match limits_streams {
            true => options.streams.streams_max = 4,
            false => options.inbound.modern.subscriptions_max = 4,
        })
        .await;
        let is_open =
            |stream: &Streaming| header(&stream.head, "content-type") == Some("text/event-stream");
        let mut streams = Vec::new();
        let refused = loop {
            let stream = listen(&server, "ana").await;
            match is_open(&stream) {
                true => streams.push(stream),
                false => break stream,
            }
        };
        assert_eq!(streams.len(), 3);
        let body = refused.rest().await;
        assert!(body.contains(OWN_LIMIT), "{body}");
        let bob = listen(&server, "bob").await;
        assert!(is_open(&bob));
        streams.truncate(1);
        let again = async { while !is_open(&listen(&server, "ana").await) {} };
        soon(again).await;
        server.stop().await;
    }
}
