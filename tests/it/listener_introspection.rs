//! Opaque access tokens at the listeners of a node: their issuer is asked about them.

use std::fs;

use serde_json::json;
use tokio::io::AsyncReadExt;
use walkdir::WalkDir;

use crate::introspection_server::{CLIENT, IntrospectionServer};
use crate::issuer::TestIssuer;
use crate::kit::gateway::end;
use crate::kit::{Home, mcp, soon, until};
use crate::listener_tokens::{AUDIENCE, ENDED, Place, send, text};

const TOKEN: &str = "opaque-0123456789-abcdef";

/// A node whose issuer is asked about each token again after a second.
async fn start(issuer: &TestIssuer, endpoint: &IntrospectionServer) -> Place {
    let home = Home::new();
    let (client, secret) = CLIENT;
    let secret = home.write("secret", secret);
    let more = format!(
        "introspection = \"{}\"\nclient_id = \"{client}\"\nsecret_env = \"file:{secret}\"\nintrospection_age_max_s = 1\n",
        endpoint.url
    );
    Place::start_with(home, issuer, &more).await
}

/// Goal: one opaque token opens the listeners of all protocols; one that isn't active is refused, one that
/// lacks a scope too, and while the endpoint fails each listener asks to try again later; neither token nor
/// secret is logged or stored. Method: a request of each protocol with each; every file of the node.
/// Rows: H-17, H-37.
#[tokio::test]
async fn opaque_tokens_open_all_protocols() {
    let (issuer, endpoint) = (
        TestIssuer::start().await,
        IntrospectionServer::start().await,
    );
    let place = start(&issuer, &endpoint).await;
    let mut lacking = issuer.claims(AUDIENCE);
    lacking["scope"] = "other".into();
    endpoint.activate("lacking", &lacking);
    endpoint.activate(TOKEN, &issuer.claims(AUDIENCE));
    endpoint.set("failing", 500, "");
    for (path, request) in place.requests() {
        for (token, status) in [
            (TOKEN, 200),
            ("unknown", 401),
            ("lacking", 403),
            ("failing", 503),
        ] {
            let request = request.try_clone().unwrap().bearer_auth(token);
            let answer = send(request).await;
            assert_eq!(answer.status(), status, "{path} {token}");
            let is_later = answer.headers().contains_key("retry-after");
            assert_eq!(is_later, status == 503, "{path} {token}");
            let body = text(answer).await;
            assert!(
                status != 200 || !body.contains("\"error\""),
                "{path}: {body}"
            );
        }
    }
    end(place.running, &place.home).await;
    let files = WalkDir::new(place.home.path("")).into_iter();
    let files = files.map(|entry| entry.unwrap().into_path());
    for path in files.filter(|path| path.is_file() && !path.ends_with("secret")) {
        let kept = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
        let has = |secret: &str| kept.contains(secret);
        assert!(!has(TOKEN) && !has(CLIENT.1), "{}", path.display());
    }
}

/// Goal: streams end when their token is revoked, and stay while it is active. Method: a stream of server
/// messages and a socket of mail, over several introspections; then the revocation.
#[tokio::test]
async fn streams_end_with_revoked_tokens() {
    let (issuer, endpoint) = (
        TestIssuer::start().await,
        IntrospectionServer::start().await,
    );
    let place = start(&issuer, &endpoint).await;
    endpoint.activate(TOKEN, &issuer.claims(AUDIENCE));
    let listen = json!({ "notifications": { "toolsListChanged": true } });
    let request = mcp::request(&place.mcp, &json!({}), "subscriptions/listen", listen);
    let mut stream = send(request.bearer_auth(TOKEN)).await;
    assert_eq!(stream.status(), 200);
    let handshake = reqwest::Client::new()
        .get(format!("{}/api/events", place.mail))
        .header("X-Agent-ID", "corp.alice")
        .header("Connection", "Upgrade")
        .header("Upgrade", "websocket")
        .header("Sec-WebSocket-Version", "13")
        .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==");
    let socket = send(handshake.bearer_auth(TOKEN)).await;
    assert_eq!(socket.status(), 101);
    let mut socket = soon("a socket", socket.upgrade()).await.unwrap();
    let before = endpoint.requests();
    until("introspections of open streams", || {
        endpoint.requests() >= before + 4
    })
    .await;
    endpoint.revoke(TOKEN);
    let streamed = async {
        let mut read = Vec::new();
        while let Some(chunk) = stream.chunk().await.unwrap() {
            read.extend_from_slice(&chunk);
        }
        String::from_utf8(read).unwrap()
    };
    let streamed = soon("the end of the stream", streamed).await;
    assert!(streamed.ends_with(&format!(": {ENDED}\n\n")), "{streamed}");
    let closed = async {
        let mut read = Vec::new();
        while !String::from_utf8_lossy(&read).contains(ENDED) {
            assert_ne!(socket.read_buf(&mut read).await.unwrap(), 0);
        }
    };
    soon("the end of the socket", closed).await;
    end(place.running, &place.home).await;
}
