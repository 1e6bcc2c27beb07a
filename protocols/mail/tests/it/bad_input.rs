//! Invalid input over HTTP: bodies, queries, headers, connections.

use std::time::Duration;

use callboard_rpc::{DEPTH_MAX_DEFAULT, DIGITS_MAX_DEFAULT, KEYS_MAX_DEFAULT};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::kit::{Served, soon};

/// Goal: an invalid message is rejected with the name of the member, never its value, and nothing
/// is sent (A1, A2, A4 … A6, E7). Method: rows, each with a secret in it, for each sending route;
/// after them, a valid one.
#[tokio::test]
async fn bodies_that_do_not_fit() {
    let served = Served::start().await;
    let alice = served.agent("alice");
    let deep = |n: usize| format!("{}\"secret\"{}", "[".repeat(n), "]".repeat(n));
    let keys = |n: usize| {
        (0..n)
            .map(|n| format!("\"k{n}\":0"))
            .collect::<Vec<_>>()
            .join(",")
    };
    let with = |more: &str| format!(r#"{{"message":"secret",{more}}}"#);
    for (body, named) in [
        // A1, A2
        ("secret".to_owned(), "the body"),
        ("{\"message\":\"secret\"".into(), "the body"),
        (String::new(), "the body"),
        ("\u{feff}{\"message\":\"secret\"}".into(), "the body"),
        ("{\"message\":\"secret\u{0}\"}".into(), "the body"),
        (r#"{"message":"secret\ud800"}"#.into(), "the body"),
        (r#"{"message":"secret"} {}"#.into(), "the body"),
        // A4
        (with(&format!("\"topic\":{}", deep(100_000))), "the body"),
        (
            with(&format!("\"topic\":{}", deep(DEPTH_MAX_DEFAULT))),
            "the body",
        ),
        (with(&keys(KEYS_MAX_DEFAULT + 1)), "the body"),
        (
            with(&format!(
                "\"expires_in_s\":{}",
                "9".repeat(DIGITS_MAX_DEFAULT + 1)
            )),
            "the body",
        ),
        (with("\"expires_in_s\":1e400"), "the body"),
        (with("\"message\":\"x\""), "the body"),
        (with(r#""\u006dessage":"x""#), "the body"),
        // A5, A6
        (
            r#"[{"message":"secret"}]"#.into(),
            "the body must be a JSON object",
        ),
        ("[]".into(), "the body must be a JSON object"),
        ("null".into(), "the body must be a JSON object"),
        (r#"{"message":null}"#.into(), "`message`"),
        (r#"{"message":["secret"]}"#.into(), "`message`"),
        (r#"{"message":{"text":"secret"}}"#.into(), "`message`"),
        (r#"{"priority":"urgent"}"#.into(), "`message` is needed"),
        (with("\"expires_in_s\":-1"), "`expires_in_s`"),
        (with("\"expires_in_s\":1.5"), "`expires_in_s`"),
        (
            with("\"expires_in_s\":18446744073709551616"),
            "`expires_in_s`",
        ),
        (with("\"priority\":\"secret\""), "`priority`"),
        (with("\"topic\":7"), "`topic`"),
        (with("\"from\":\"secret\""), "`from` is not known here"),
        (
            with("\"message_id\":\"secret\""),
            "`message_id` is not known here",
        ),
    ] {
        for path in [
            "/api/broadcast_message",
            "/api/send_message",
            "/api/messages/m-1/reply",
        ] {
            // A reply has fewer members.
            let is_known =
                !path.ends_with("reply") || !(named.contains("expires") || named.contains("topic"));
            let reply = alice.post(path, body.clone()).await;
            let shown: String = body.chars().take(60).collect();
            assert_eq!(reply.status, 422, "{shown}: {}", reply.text);
            assert!(
                reply.detail().contains(named) || !is_known,
                "{shown}: {}",
                reply.text
            );
            assert!(
                !reply.text.contains("secret") && reply.text.len() < 300,
                "{}",
                reply.text
            );
        }
    }
    for bytes in [&b"{\"message\":\"\xff\"}"[..], b"\0"] {
        assert_eq!(
            alice
                .post("/api/broadcast_message", bytes.to_vec())
                .await
                .status,
            422
        );
    }
    for path in ["/api/messages/m-1/read", "/api/agents/bob/end"] {
        for body in [r#"{"state":"secret"}"#, "[]", "x"] {
            assert_eq!(alice.post(path, body).await.status, 422, "{path} {body}");
        }
    }
    assert!(served.room.asked().is_empty(), "nothing was sent");
    assert_eq!(
        alice
            .post("/api/broadcast_message", with("\"topic\":null"))
            .await
            .status,
        200
    );
    served.stop().await;
}

/// Goal: a query has the parameters of its route, once each, and of the right kind. Method: rows.
#[tokio::test]
async fn queries_that_do_not_fit() {
    let served = Served::start().await;
    let alice = served.agent("alice");
    for (path, named) in [
        ("/api/messages?limit=secret", "`limit`"),
        ("/api/messages?limit=-1", "`limit`"),
        ("/api/messages?after=4294967296000000000000", "`after`"),
        ("/api/messages?box=secret", "`box`"),
        ("/api/messages?state=secret", "`state`"),
        ("/api/messages?limit=1&limit=1", "`limit` is there twice"),
        (
            "/api/messages?sender_agent_id=secret",
            "`sender_agent_id` is not known here",
        ),
        ("/api/messages/m-1?receipts=secret", "`receipts`"),
        ("/api/messages/m-1?x=secret", "`x` is not known here"),
        ("/api/agents?state=secret", "`state`"),
        ("/api/agent_logs?box=in", "`box` is not known here"),
        ("/api/events?types=secret", "`types`"),
        ("/api/events?after=secret", "`after`"),
    ] {
        let peer = alice.with("Upgrade", "websocket");
        let reply = peer.get(path).await;
        assert_eq!(reply.status, 422, "{path}: {}", reply.text);
        assert!(
            reply.detail().contains(named) && !reply.text.contains("secret"),
            "{path}: {}",
            reply.text
        );
    }
    assert_eq!(
        alice
            .post("/api/send_message?detail=secret", r#"{"message":"x"}"#)
            .await
            .status,
        422
    );
    assert_eq!(
        alice
            .post("/api/send_message?x=1", r#"{"message":"x"}"#)
            .await
            .status,
        422
    );
    served.stop().await;
}

/// Sends one request on a connection of its own, and returns status and head of the response.
async fn raw(served: &Served, request: &str) -> (u16, String) {
    let mut connection = soon(TcpStream::connect(served.address)).await.unwrap();
    soon(connection.write_all(request.as_bytes()))
        .await
        .unwrap();
    let mut reply = Vec::new();
    // A server that didn't read the whole request may keep the connection open.
    while !reply.windows(4).any(|end| end == b"\r\n\r\n")
        && soon(connection.read_buf(&mut reply)).await.unwrap() > 0
    {}
    let reply = String::from_utf8_lossy(&reply).into_owned();
    (
        reply
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .unwrap_or_default(),
        reply,
    )
}

/// Goal: a body uses no more memory than the limit, whatever length it declares, and no more time
/// than its timeout; only JSON types are accepted (B7 … B9, A3). Method: at the limit and over it,
/// by length and in chunks; compressed; late; cut.
#[tokio::test]
async fn bodies() {
    const BYTES_MAX: usize = 4_096;
    let served = Served::with(|options| {
        options.limits.body_bytes_max = BYTES_MAX;
        options.body_timeout = Duration::from_millis(200);
    })
    .await;
    let alice = served.agent("alice");
    let padded = |bytes: usize| {
        let body = |text: &str| json!({ "message": text }).to_string();
        body(&"x".repeat(bytes - body("").len()))
    };
    assert_eq!(
        alice
            .post("/api/broadcast_message", padded(BYTES_MAX))
            .await
            .status,
        200
    );
    assert_eq!(
        alice
            .post("/api/broadcast_message", padded(BYTES_MAX + 1))
            .await
            .status,
        413
    );
    let who = "Authorization: Bearer alice\r\nX-Agent-ID: alice\r\n";
    let head =
        format!("POST /api/send_message HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{who}");
    let chunk = format!("1000\r\n{}\r\n", "x".repeat(4_096));
    for (request, status) in [
        (format!("{head}Content-Length: 99999999999\r\n\r\n"), 413),
        (format!("{head}Transfer-Encoding: chunked\r\n\r\n{}", chunk.repeat(4)), 413),
        (format!("{head}Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{{}}"), 415),
        (format!("{head}Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{{}}"), 415),
        (format!("{head}Content-Type: application/json; charset=utf-16\r\nContent-Length: 2\r\n\r\n{{}}"), 415),
        // The rest of this body never comes.
        (format!("{head}Content-Length: 100\r\n\r\n{{"), 408),
        // A request without a credential is rejected before its body is read.
        ("POST /api/send_message HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n".into(), 401),
    ] {
        let (found, reply) = raw(&served, &request).await;
        assert_eq!(found, status, "{reply}");
    }
    served.room.asked();
    assert_eq!(alice.get("/api/agents").await.status, 200);
    served.stop().await;
}

/// Goal: a mailroom that doesn't reply costs its caller no more than the deadline. Method: a
/// mailroom that has stopped.
#[tokio::test]
async fn a_mailroom_that_is_gone() {
    let served = Served::start().await;
    let stopped = served.system.spawn_with(crate::room::Room::default);
    stopped.stop();
    soon(stopped.wait_for_exit()).await;
    served.server.replace_agent(stopped);
    let reply = served.agent("alice").get("/api/agents").await;
    assert_eq!(reply.status, 500, "{}", reply.text);
    assert!(!reply.detail().is_empty());
    served.stop().await;
}
