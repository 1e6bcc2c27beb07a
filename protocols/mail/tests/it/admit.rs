//! Authentication and source checks of requests.

use std::net::TcpListener;

use callboard_mail::inbound::{ListenOptions, MailServer, MailServerOptions, ServeError, serve};
use callboard_rpc::{AccessControl, AllowedHosts, AllowedOrigins, UnauthenticatedAccess};
use reqwest::Method;
use serde_json::json;

use crate::kit::{Reply, Served};

const MESSAGE: &str = r#"{"message":"x"}"#;
/// Every kind of GET request.
const GETS: [&str; 4] = [
    "/api/agents",
    "/api/messages",
    "/api/agent_logs",
    "/api/events",
];

fn is_refused(reply: &Reply, status: u16) {
    assert_eq!(reply.status, status, "{}", reply.text);
    assert!(!reply.detail().is_empty());
    assert_eq!(reply.header("www-authenticate").is_some(), status == 401);
    assert_eq!(reply.header("cache-control"), Some("no-store"));
}

/// Goal: nobody sends or reads without a key and the matching id, and existing ids aren't
/// disclosed. Method: rows of headers, for each route; none reaches the mailroom.
/// Rows: P-10, P-40, X-20.
#[tokio::test]
async fn keys_and_claims() {
    let served = Served::start().await;
    let nobody = served.nobody();
    let key = |key: &str| nobody.with("Authorization", &format!("Bearer {key}"));
    for (peer, status) in [
        (nobody.clone(), 401),
        (nobody.with("X-Agent-ID", "alice"), 401),
        (key("alice"), 401),
        (key("alice").with("X-Agent-ID", ""), 401),
        (key("alice").with("X-Agent-ID", " "), 401),
        (
            key("alice")
                .with("X-Agent-ID", "alice")
                .with("X-Agent-ID", "alice"),
            401,
        ),
        (
            key("alice")
                .with("X-Agent-ID", "alice")
                .with("X-Agent-ID", "bob"),
            401,
        ),
        (key("wrong").with("X-Agent-ID", "alice"), 401),
        (
            nobody
                .with("Authorization", "Basic alice")
                .with("X-Agent-ID", "alice"),
            401,
        ),
        (
            key("alice")
                .with("Authorization", "Bearer bob")
                .with("X-Agent-ID", "alice"),
            401,
        ),
        (key("alice").with("X-Agent-ID", "bob"), 403),
        (key("alice").with("X-Agent-ID", "nobody-knows"), 403),
        (key("alice").with("X-Agent-ID", "ALICE"), 403),
        (key("alice").with("X-Agent-ID", "alice,bob"), 403),
        (key("alice").with("X-Agent-ID", "guardian"), 403),
        (key("guide").with("X-Agent-ID", "guide"), 403),
    ] {
        is_refused(&peer.post("/api/broadcast_message", MESSAGE).await, status);
        for path in GETS {
            is_refused(&peer.get(path).await, status);
        }
    }
    assert!(
        served.room.asked().is_empty(),
        "the mailroom heard of none of it"
    );
    let told = key("alice")
        .with("X-Agent-ID", "bob")
        .get("/api/agents")
        .await;
    let unknown = key("alice")
        .with("X-Agent-ID", "nobody-knows")
        .get("/api/agents")
        .await;
    assert_eq!((told.status, told.text), (unknown.status, unknown.text));
    // Only the mailroom knows which agents are terminated.
    is_refused(
        &served
            .agent("gone")
            .post("/api/broadcast_message", MESSAGE)
            .await,
        403,
    );
    served.room.asked();
    assert_eq!(
        key("alice")
            .with("X-Agent-ID", " alice ")
            .get("/api/agents")
            .await
            .status,
        200
    );
    assert_eq!(
        key("guide")
            .with("X-Agent-ID", "guardian")
            .get("/api/agents")
            .await
            .status,
        200
    );
    let ids: Vec<_> = served
        .room
        .asked()
        .into_iter()
        .map(|(_, _, id)| id)
        .collect();
    assert_eq!(ids, ["alice", "guide"]);
    served.stop().await;
}

/// Goal: foreign origins and hosts are rejected; configured ones pass (B1, B2). Method: rows, for
/// several routes.
#[tokio::test]
async fn origin_and_host() {
    let served = Served::with(|options| {
        options.hosts = AllowedHosts::default().with_host("agents.example").unwrap();
        options.origins = AllowedOrigins::default()
            .with_origin("https://app.example")
            .unwrap();
    })
    .await;
    for (host, origin, status) in [
        ("localhost", None, 200),
        ("agents.example", Some("https://app.example"), 200),
        ("localhost", Some("http://evil.example"), 403),
        ("localhost", Some("null"), 403),
        ("evil.example", None, 403),
    ] {
        let peer = served.agent("alice").with("Host", host);
        let peer = origin.map_or(peer.clone(), |origin| peer.with("Origin", origin));
        for path in ["/api/agents", "/api/messages", "/api/openapi.json"] {
            assert_eq!(
                peer.get(path).await.status,
                status,
                "{host} {origin:?} {path}"
            );
        }
        assert_eq!(
            peer.post("/api/broadcast_message", MESSAGE).await.status,
            status
        );
        assert_eq!(
            peer.listen("").await.map(drop).err(),
            (status != 200).then_some(status)
        );
    }
    served.stop().await;
}

/// Goal: with a trusted local operator the caller is the operator only; without one, nobody passes.
/// Method: both, with rows of claims.
#[tokio::test]
async fn without_keys() {
    let trusting =
        Served::with(|options| options.access = UnauthenticatedAccess::LoopbackOperator.into())
            .await;
    for (claim, status) in [("operator", 200), ("alice", 403), ("guardian", 403)] {
        assert_eq!(
            trusting
                .nobody()
                .with("X-Agent-ID", claim)
                .get("/api/agents")
                .await
                .status,
            status,
            "{claim}"
        );
    }
    assert_eq!(
        trusting.agent("operator").get("/api/agents").await.status,
        401,
        "nobody here knows keys"
    );
    let proxied = trusting
        .nobody()
        .with("X-Agent-ID", "operator")
        .with("X-Forwarded-For", "203.0.113.9");
    for path in GETS {
        is_refused(&proxied.get(path).await, 403);
    }
    trusting.stop().await;
    for access in [AccessControl::default(), AccessControl::Anyone] {
        let open = Served::with(|options| options.access = access).await;
        for claim in ["operator", "anonymous", "alice"] {
            is_refused(
                &open
                    .nobody()
                    .with("X-Agent-ID", claim)
                    .get("/api/agents")
                    .await,
                401,
            );
        }
        open.stop().await;
    }
}

/// Goal: without keys, only loopback addresses can be bound. Method: an address of every interface.
#[tokio::test]
async fn beyond_loopback() {
    let served = Served::start().await;
    let agent = served.system.spawn_with(crate::room::Room::default);
    let options = MailServerOptions {
        access: UnauthenticatedAccess::LoopbackOperator.into(),
        ..MailServerOptions::default()
    };
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let refused = serve(
        listener,
        MailServer::new(agent, options),
        &ListenOptions::default(),
    );
    assert!(matches!(
        refused,
        Err(ServeError::UnauthenticatedListener { .. })
    ));
    served.stop().await;
}

/// Goal: the description is public, and any other request without a key discloses nothing. Method:
/// known and unknown paths and methods, without a key.
#[tokio::test]
async fn what_is_open() {
    let served = Served::start().await;
    assert_eq!(served.nobody().get("/api/openapi.json").await.status, 200);
    let nowhere = served.nobody().get("/api/nowhere").await;
    assert_eq!((nowhere.status, nowhere.detail().is_empty()), (404, false));
    let known = served.nobody().get("/api/messages/m-1").await;
    let unknown = served.nobody().get("/api/messages/nowhere").await;
    assert_eq!((known.status, known.text), (401, unknown.text));
    let put = served
        .agent("alice")
        .request(Method::PUT, "/api/messages")
        .body(json!({}).to_string());
    let put = put.send().await.unwrap();
    assert_eq!(
        (
            put.status().as_u16(),
            put.headers()["allow"].to_str().unwrap()
        ),
        (405, "GET")
    );
    served.stop().await;
}
