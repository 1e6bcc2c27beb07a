use std::time::Duration;

use callboard_mcp::inbound::{ListenOptions, McpServerOptions, ServeError, serve};
use callboard_rpc::{AccessControl, UnauthenticatedAccess};
use serde_json::json;

use crate::kit::{Event, Server, call, header, operator, patient_for};

fn good() -> String {
    call("1", "get_patient", r#"{"patient_id":"CARD-001"}"#)
}

/// Goal: requests from foreign pages, and for foreign host names, are rejected. Method: each
/// header, before any call.
#[tokio::test]
async fn origin_and_host_are_checked() {
    let server = Server::with(operator(), &ListenOptions::default()).await;
    let mut connection = server.connect().await;
    for (origin, status) in [
        ("http://localhost:3000", 200),
        ("http://127.0.0.1", 200),
        ("http://evil.example", 403),
        ("http://localhost.evil.example", 403),
        ("null", 403),
        ("http://localhost\r\nOrigin: http://evil.example", 403),
    ] {
        let reply = connection
            .post_with(
                &format!("Origin: {origin}\r\nContent-Type: application/json\r\n"),
                good(),
            )
            .await;
        assert_eq!(reply.status, status, "{origin}");
        if status == 403 {
            assert_eq!(reply.code(), -32600);
            connection = server.connect().await;
        }
    }
    for (host, status) in [
        ("localhost", 200),
        ("127.0.0.1:9999", 200),
        ("[::1]", 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example:80", 403),
        ("localhost\r\nX-Forwarded-Host: localhost", 403),
        ("evil.example\r\nX-Forwarded-Host: localhost", 403),
    ] {
        let body = good();
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: {host}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let mut connection = server.connect().await;
        connection.send(format!("{head}{body}").as_bytes()).await;
        assert_eq!(connection.reply().await.status, status, "{host}");
    }
    server.stop().await;
}

/// Goal: the content type is JSON, or missing where no web page asks, and never compressed. Method: rows of headers.
#[tokio::test]
async fn content_is_checked() {
    let server = Server::start().await;
    for (headers, status) in [
        ("", 200),
        ("Content-Type: application/json\r\n", 200),
        (
            "Content-Type: application/json; charset=utf-8\r\nAccept: text/html\r\n",
            200,
        ),
        ("Content-Type: text/plain\r\n", 415),
        ("Content-Type: application/x-www-form-urlencoded\r\n", 415),
        ("Content-Type: application/json; charset=utf-16\r\n", 415),
        ("Content-Encoding: gzip\r\n", 415),
        ("Origin: http://localhost:3000\r\n", 415),
        ("Authorization: Bearer s3cret\r\n", 401),
    ] {
        let reply = server.connect().await.post_with(headers, good()).await;
        assert_eq!(reply.status, status, "{headers}");
        assert_eq!(reply.json()["error"].is_null(), status == 200, "{headers}");
        assert!(!reply.body.contains("s3cret"));
        assert_eq!(header(&reply.head, "cache-control"), Some("no-store"));
        assert_eq!(
            header(&reply.head, "www-authenticate").is_some(),
            status == 401
        );
    }
    server.stop().await;
}

/// Goal: only POST calls. Method: each other method.
#[tokio::test]
async fn other_methods_are_405() {
    let server = Server::start().await;
    for method in ["GET", "DELETE", "PUT", "OPTIONS"] {
        let mut connection = server.connect().await;
        connection
            .send(format!("{method} /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes())
            .await;
        let reply = connection.reply().await;
        assert_eq!((reply.status, reply.code()), (405, -32600), "{method}");
        assert_eq!(header(&reply.head, "allow"), Some("POST"), "{method}");
    }
    let mut connection = server.connect().await;
    connection
        .send(b"GET /mcp HTTP/1.1\r\nHost: evil.example\r\n\r\n")
        .await;
    assert_eq!(connection.reply().await.status, 403);
    server.stop().await;
}

/// Returns options without time for idle connections; zero doesn't disable the time limit.
fn impatient() -> ListenOptions {
    ListenOptions {
        headers_timeout: Duration::ZERO,
        keep_alive: Duration::from_millis(10),
        ..ListenOptions::default()
    }
}

/// Goal: a slow client doesn't occupy a connection for long. Method: half a head at first and after
/// a good request, half a body, and nothing more; all are closed.
#[tokio::test]
async fn slow_heads_and_bodies_are_closed() {
    let options = McpServerOptions {
        body_timeout: Duration::from_millis(100),
        ..McpServerOptions::bare()
    };
    let server = Server::with(options, &impatient()).await;
    let half_a_head = b"POST /mcp HTTP/1.1\r\nHost: local";
    let mut first = server.connect().await;
    first.send(half_a_head).await;
    let mut second = server.connect().await;
    assert_eq!(second.post(good()).await.status, 200);
    second.send(half_a_head).await;
    for connection in [&mut first, &mut second] {
        let answer = connection.rest().await;
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 408"),
            "{answer}"
        );
    }

    let mut body = server.connect().await;
    body.send(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{\"json")
        .await;
    let reply = body.reply().await;
    assert_eq!((reply.status, reply.code()), (408, -32600));
    assert_eq!(body.rest().await, "");
    assert_eq!(server.post(good()).await.status, 200);
    server.stop().await;
}

/// Goal: a client that disconnects cancels its call. Method: a tool that hangs; the connection
/// dropped, then half-closed.
#[tokio::test]
async fn going_away_cancels_the_call() {
    let mut server = Server::start().await;
    for half in [false, true] {
        let mut connection = server.connect().await;
        let body = call("1", "hang", "{}");
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        connection.send(format!("{head}{body}").as_bytes()).await;
        assert_eq!(server.event().await, Event::Began);
        if half {
            tokio::io::AsyncWriteExt::shutdown(&mut connection.0)
                .await
                .unwrap();
        } else {
            drop(connection);
        }
        assert_eq!(server.event().await, Event::Cancelled);
    }
    server.stop().await;
}

/// Goal: no call takes longer than its deadline, the server's or the caller's. Method: a tool that hangs.
#[tokio::test]
async fn deadlines_end_the_call() {
    let mut server = Server::with(
        patient_for(Duration::from_millis(100)),
        &ListenOptions::default(),
    )
    .await;
    let reply = server.post(call("1", "hang", "{}")).await;
    assert_eq!((reply.status, reply.code()), (200, -32000));
    assert_eq!(reply.json()["error"]["data"], json!({"kind": "timed_out"}));
    assert_eq!(
        (server.event().await, server.event().await),
        (Event::Began, Event::Cancelled)
    );
    server.stop().await;

    let mut server = Server::start().await;
    let body = concat!(
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","#,
        r#""params":{"name":"hang","_meta":{"callboard/deadline-ms":50}}}"#,
    );
    assert_eq!(
        server.post(body).await.json()["error"]["data"],
        json!({"kind": "timed_out"})
    );
    assert_eq!(
        (server.event().await, server.event().await),
        (Event::Began, Event::Cancelled)
    );
    server.stop().await;
}

/// Goal: only this machine is served, because the dialect has no credentials. Method: every
/// address, whatever the access.
#[tokio::test]
async fn no_listener_beyond_loopback() {
    let server = Server::start().await;
    let client = server.client();
    for access in [
        UnauthenticatedAccess::LoopbackOperator.into(),
        UnauthenticatedAccess::Anonymous.into(),
        AccessControl::Anyone,
        AccessControl::Bearer([].into()),
    ] {
        let bind = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
        let options = McpServerOptions {
            access,
            ..McpServerOptions::bare()
        };
        let refused = serve(
            bind,
            client.agent.clone(),
            options,
            &ListenOptions::default(),
        );
        assert!(matches!(
            refused,
            Err(ServeError::UnauthenticatedListener { .. })
        ));
    }
    client.stop().await;
    server.stop().await;
}

/// Goal: the time limit of idle connections doesn't apply to a running call. Method: a call that
/// outlives it.
#[tokio::test]
async fn long_calls_are_not_idle() {
    let server = Server::with(patient_for(Duration::from_millis(1_600)), &impatient()).await;
    let reply = server.post(call("1", "hang", "{}")).await;
    assert_eq!(reply.json()["error"]["data"], json!({"kind": "timed_out"}));
    server.stop().await;
}

/// Goal: invalid HTTP is rejected without a call. Method: broken heads, each on a new connection.
#[tokio::test]
async fn broken_heads_are_refused() {
    let server = Server::start().await;
    let headers = |count: usize| {
        (0..count)
            .map(|n| format!("X-{n}: 1\r\n"))
            .collect::<String>()
    };
    let body = good();
    let length = body.len();
    for head in [
        "\0\0\0\r\n\r\n".to_owned(),
        "POST /mcp HTTP/9.9\r\nHost: localhost\r\n\r\n".to_owned(),
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n".to_owned(),
        format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\nContent-Length: 7\r\n\r\n{body}"
        ),
        format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\
             Transfer-Encoding: chunked\r\n\r\n{body}"
        ),
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
            .to_owned(),
        format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\n{}\r\n",
            headers(200)
        ),
        format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n",
            "x".repeat(200_000)
        ),
        "POST /mcp HTTP/1.0\r\n\r\n".to_owned(),
    ] {
        let mut connection = server.connect().await;
        connection.send(head.as_bytes()).await;
        let reply = connection.reply().await;
        assert!(
            (400..500).contains(&reply.status),
            "{} to {:?}",
            reply.status,
            head.get(..120).unwrap_or(&head)
        );
    }
    assert_eq!(server.post(good()).await.status, 200);
    server.stop().await;
}
