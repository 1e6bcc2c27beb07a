use std::time::Duration;

use callboard_mcp::inbound::{ListenOptions, McpServerOptions, ServeError, serve};
use callboard_rpc::{AllowedHosts, AllowedOrigins};
use callboard_runtime::{NodeEvent, NodeEventOptions, System};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::kit::{header, soon};
use crate::lingering::Seen;
use crate::mcp_client::{BOTH, initialize};
use crate::mcp_kit::Served;

fn hello() -> String {
    initialize("2025-11-25", &json!({})).to_string()
}

/// Returns a POST with these lines instead of the usual ones.
fn request(lines: &str, body: &str) -> String {
    format!(
        "POST /mcp HTTP/1.1\r\nContent-Length: {}\r\n{lines}\r\n{body}",
        body.len()
    )
}

const JSON: &str = "Content-Type: application/json\r\n";

/// Goal: foreign pages and host names are rejected, with each method; configured ones are accepted.
/// Method: rows, with the default and with one more host and page.
#[tokio::test]
async fn origin_and_host() {
    let options = McpServerOptions {
        hosts: AllowedHosts::default().with_host("clinic.example").unwrap(),
        origins: AllowedOrigins::default()
            .with_origin("https://app.example")
            .unwrap(),
        ..McpServerOptions::default()
    };
    let (server, open) = (Served::start().await, Served::with(options).await);
    for (lines, status, open_status) in [
        ("Host: localhost\r\n", 200, 200),
        (
            "Host: 127.0.0.1:8080\r\nOrigin: http://127.0.0.1:8080\r\n",
            200,
            200,
        ),
        (
            "Host: localhost\r\nOrigin: http://evil.example\r\n",
            403,
            403,
        ),
        ("Host: localhost\r\nOrigin: null\r\n", 403, 403),
        (
            "Host: localhost\r\nOrigin: http://localhost.evil.example\r\n",
            403,
            403,
        ),
        ("Host: evil.example\r\n", 403, 403),
        (
            "Host: evil.example\r\nX-Forwarded-Host: localhost\r\n",
            403,
            403,
        ),
        (
            "Host: clinic.example\r\nOrigin: https://app.example\r\n",
            403,
            200,
        ),
        (
            "Host: localhost\r\nOrigin: http://app.example\r\n",
            403,
            403,
        ),
        (
            "Host: localhost\r\nAuthorization: Bearer s3cret\r\n",
            401,
            401,
        ),
    ] {
        for (server, status) in [(&server, status), (&open, open_status)] {
            let client = server.client("", "");
            let reply = client
                .send(&request(&format!("{BOTH}{JSON}{lines}"), &hello()))
                .await;
            assert_eq!(reply.status, status, "{lines}");
            assert!(!reply.rest().await.contains("s3cret"));
            if status != 200 {
                for method in ["GET", "DELETE", "PUT"] {
                    let reply = client
                        .send(&format!("{method} /mcp HTTP/1.1\r\n{BOTH}{lines}\r\n"))
                        .await;
                    assert_eq!(reply.status, status, "{method} {lines}");
                }
            }
        }
    }
    server.stop().await;
    open.stop().await;
}

/// Goal: content types are MCP's, accepting one of the two suffices, and the response respects
/// `Accept`. Method: rows.
#[tokio::test]
async fn content_and_accept() {
    let server = Served::start().await;
    let client = server.client("", "");
    let json = "application/json";
    let events = "text/event-stream";
    for (lines, status, answered) in [
        (
            "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n",
            200,
            json,
        ),
        ("Accept: */*\r\n", 200, json),
        ("Accept: application/json\r\n", 200, json),
        ("Accept: text/event-stream\r\n", 200, events),
        ("", 406, json),
        ("Accept: text/html\r\n", 406, json),
        ("Accept: */*\r\nContent-Type: text/plain\r\n", 415, json),
        (
            "Accept: text/html\r\nContent-Type: text/plain\r\n",
            415,
            json,
        ),
        (
            "Accept: */*\r\nContent-Type: application/json; charset=latin1\r\n",
            415,
            json,
        ),
        ("Accept: */*\r\nContent-Encoding: gzip\r\n", 415, json),
        // A page's script could send it without asking first.
        (
            "Accept: */*\r\nOrigin: http://localhost:3000\r\n",
            415,
            json,
        ),
    ] {
        let reply = client
            .send(&request(&format!("Host: localhost\r\n{lines}"), &hello()))
            .await;
        assert_eq!(
            (reply.status, header(&reply.head, "content-type")),
            (status, Some(answered)),
            "{lines}"
        );
        assert_eq!(
            header(&reply.head, "mcp-session-id").is_some(),
            status == 200
        );
        let body = reply.rest().await;
        assert_eq!(body.starts_with("data: {"), answered == events, "{body}");
    }
    let session = server.session("2025-11-25", json!({})).await;
    for (accept, status) in [
        ("text/event-stream", 200),
        ("*/*", 200),
        ("application/json", 406),
    ] {
        let request = format!(
            "GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n{}\r\n",
            session.headers()
        );
        assert_eq!(session.send(&request).await.status, status, "{accept}");
    }
    server.stop().await;
}

/// Goal: a client that accepts no streams gets no questions and notifications, and gets its
/// response. Method: `Accept: application/json`.
#[tokio::test]
async fn a_client_without_streams() {
    let server = Served::start().await;
    let mut client = server.session("2025-11-25", json!({ "roots": {} })).await;
    for (tool, arguments, has_failed) in [
        ("count", json!({ "steps": 3 }), false),
        ("inquire", json!({ "what": "roots" }), true),
    ] {
        let call = client.request(
            "tools/call",
            json!({ "name": tool, "arguments": arguments }),
        );
        let lines = format!(
            "Host: localhost\r\nAccept: application/json\r\n{}",
            client.headers()
        );
        let reply = client.send(&request(&lines, &call)).await;
        assert_eq!(
            header(&reply.head, "content-type"),
            Some("application/json")
        );
        let answer: serde_json::Value = serde_json::from_str(&reply.rest().await).unwrap();
        assert_eq!(
            answer["result"]["isError"] == json!(true),
            has_failed,
            "{answer}"
        );
    }
    server.stop().await;
}

/// Goal: sessions and versions are checked before a call. Method: rows of headers and messages.
#[tokio::test]
async fn session_and_version_headers() {
    let server = Served::start().await;
    let session = server.session("2025-11-25", json!({})).await;
    let ping = r#"{"jsonrpc":"2.0","id":5,"method":"ping"}"#;
    let note = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let own = format!("Mcp-Session-Id: {}\r\n", session.session);
    let with = |more: &str| format!("{own}{more}");
    for (lines, body, status, code) in [
        (with(""), ping, 200, None),
        (
            with("MCP-Protocol-Version: 2025-06-18\r\n"),
            ping,
            200,
            None,
        ),
        (
            with("MCP-Protocol-Version: 2025-11-25\r\n"),
            note,
            202,
            None,
        ),
        (
            with("MCP-Protocol-Version: 1999-01-01\r\n"),
            ping,
            400,
            Some(-32022),
        ),
        (with("MCP-Protocol-Version: \r\n"), note, 400, Some(-32022)),
        (String::new(), ping, 400, Some(-32600)),
        (String::new(), note, 400, Some(-32600)),
        (
            String::new(),
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
            400,
            Some(-32600),
        ),
        (
            "Mcp-Session-Id: nonsense\r\n".to_owned(),
            ping,
            404,
            Some(-32600),
        ),
        ("Mcp-Session-Id: \r\n".to_owned(), ping, 404, Some(-32600)),
        (
            "Mcp-Session-Id: nonsense\r\n".to_owned(),
            &hello(),
            404,
            Some(-32600),
        ),
    ] {
        let client = server.client("", "");
        let reply = client
            .send(&request(&format!("Host: localhost\r\n{BOTH}{lines}"), body))
            .await;
        assert_eq!(reply.status, status, "{lines} {body}");
        let body = reply.rest().await;
        let found: Option<serde_json::Value> = serde_json::from_str(&body).ok();
        assert_eq!(
            found.and_then(|b| b["error"]["code"].as_i64()),
            code,
            "{lines} {body}"
        );
    }
    let plain = server.client("", "");
    for (method, lines, status) in [
        ("GET", "", 400),
        ("DELETE", "", 400),
        ("GET", "MCP-Protocol-Version: 2026-07-28\r\n", 405),
        ("DELETE", "MCP-Protocol-Version: 2026-07-28\r\n", 405),
        ("GET", "MCP-Protocol-Version: x\r\n", 400),
        ("PUT", "", 405),
        ("OPTIONS", "", 405),
    ] {
        let reply = plain
            .send(&format!(
                "{method} /mcp HTTP/1.1\r\nHost: localhost\r\n{BOTH}{lines}\r\n"
            ))
            .await;
        assert_eq!(reply.status, status, "{method} {lines}");
        assert_eq!(header(&reply.head, "allow").is_some(), status == 405);
    }
    server.stop().await;
}

/// Goal: a rejection after the body was read has the id of the request, so that clients can match
/// it. Method: a request that can't be accepted, of a session that there isn't, without a session,
/// at HTTP+SSE, and with too many streams or sessions; notifications, responses and batches have
/// none.
#[tokio::test]
async fn rejections_have_the_id() {
    let mut options = McpServerOptions::default();
    options.compat.sse = true;
    options.streams.streams_max = 0;
    let server = Served::with(options).await;
    let session = server.session("2025-11-25", json!({})).await.session;
    let of_session = format!("{BOTH}Mcp-Session-Id: {session}\r\n");
    let unknown = format!("{BOTH}Mcp-Session-Id: nonsense\r\n");
    let ping = r#"{"jsonrpc":"2.0","id":"a","method":"ping"}"#;
    let modern = r#"{"jsonrpc":"2.0","id":"a","method":"ping","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
    let count = r#"{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"count","arguments":{"steps":1},"_meta":{"progressToken":1}}}"#;
    let note = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let answer = r#"{"jsonrpc":"2.0","id":"a","result":{}}"#;
    let batch = r#"[{"jsonrpc":"2.0","id":"a","method":"ping"}]"#;
    let (id, none) = (json!("a"), json!(null));
    for (path, lines, body, status, id) in [
        ("/mcp", "Accept: text/html\r\n", ping, 406, &id),
        ("/mcp", &unknown, ping, 404, &id),
        ("/mcp", BOTH, ping, 400, &id),
        ("/mcp", &of_session, count, 503, &id),
        (
            "/mcp",
            "Accept: text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: ping\r\n",
            modern,
            503,
            &id,
        ),
        ("/messages?session=nonsense", "", ping, 404, &id),
        ("/mcp", &unknown, note, 404, &none),
        ("/mcp", &unknown, answer, 404, &none),
        ("/mcp", &unknown, batch, 404, &none),
        ("/mcp", &unknown, "{", 404, &none),
    ] {
        let lines = format!("Host: localhost\r\n{lines}");
        let request = request(&lines, body).replacen("/mcp", path, 1);
        let reply = server.client("", "").send(&request).await;
        assert_eq!(reply.status, status, "{path} {lines} {body}");
        let error: serde_json::Value = serde_json::from_str(&reply.rest().await).unwrap();
        assert_eq!(&error["id"], id, "{path} {lines} {body}");
        assert!(error["error"]["code"].is_i64(), "{error}");
    }
    server.stop().await;
}

/// Goal: bodies are limited in size and time, and the limit is exact. Method: at the limit, one
/// over, a wrong length, and a body that never ends.
#[tokio::test]
async fn bodies_are_bounded() {
    let body_bytes_max = 1_000;
    let mut options = McpServerOptions {
        body_timeout: Duration::from_millis(100),
        ..McpServerOptions::default()
    };
    options.inbound.limits.body_bytes_max = body_bytes_max;
    let server = Served::with(options).await;
    let client = server.client("", "");
    let padded = |bytes: usize| format!("{}{}", hello(), " ".repeat(bytes - hello().len()));
    let lines = format!("Host: localhost\r\n{BOTH}");
    assert_eq!(
        client
            .send(&request(&lines, &padded(body_bytes_max)))
            .await
            .status,
        200
    );
    assert_eq!(
        client
            .send(&request(&lines, &padded(body_bytes_max + 1)))
            .await
            .status,
        413
    );
    let chunk = "x".repeat(body_bytes_max);
    let chunked = format!(
        "POST /mcp HTTP/1.1\r\n{lines}Transfer-Encoding: chunked\r\n\r\n{body_bytes_max:x}\r\n{chunk}\r\n1\r\nx\r\n"
    );
    assert_eq!(client.send(&chunked).await.status, 413);
    let lie = format!("POST /mcp HTTP/1.1\r\n{lines}Content-Length: 99999999999\r\n\r\n");
    assert_eq!(client.send(&lie).await.status, 413);
    let slow = format!("POST /mcp HTTP/1.1\r\n{lines}Content-Length: 10\r\n\r\n{{");
    assert_eq!(client.send(&slow).await.status, 408);
    server.stop().await;
}

/// Goal: a connection whose head never ends is closed. Method: half a head, and the server's time
/// limit.
#[tokio::test]
async fn slow_heads_end() {
    let listen = ListenOptions {
        headers_timeout: Duration::from_secs(1),
        ..ListenOptions::default()
    };
    let server = Served::on(McpServerOptions::default(), &listen).await;
    let mut connection = server.connect().await;
    connection
        .send(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        .await;
    let rest = connection.rest().await;
    assert!(
        rest.is_empty() || rest.starts_with("HTTP/1.1 408"),
        "{rest}"
    );
    server.stop().await;
}

/// Goal: one address gets its share of a listener's connections, the next one is told so and closed,
/// and a closed one makes room. Method: the default share of four connections, and one more.
#[tokio::test]
async fn connections_of_an_address_are_limited() {
    let listen = ListenOptions {
        connections_max: 4,
        ..ListenOptions::default()
    };
    let server = Served::on(McpServerOptions::default(), &listen).await;
    let ping = request(&format!("{BOTH}Host: localhost\r\n"), &hello());
    let mut open = Vec::new();
    for _ in 0..3 {
        let mut connection = server.connect().await;
        connection.send(ping.as_bytes()).await;
        assert_eq!(connection.reply().await.status, 200);
        open.push(connection);
    }
    let refused = server.connect().await.rest().await;
    assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
    assert!(refused.contains("Retry-After: 1\r\n"), "{refused}");
    open.pop();
    let has_room = async || {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        // A connection over the limit may be closed already.
        let _ = stream.write_all(ping.as_bytes()).await;
        let mut head = [0; 12];
        stream.read_exact(&mut head).await.is_ok() && head == *b"HTTP/1.1 200"
    };
    soon(async { while !has_room().await {} }).await;
    server.stop().await;
}

/// Goal: without keys only this machine is served. Method: a listener on every address.
#[tokio::test]
async fn no_open_listener_beyond_loopback() {
    let system = System::start(1).unwrap();
    let (agent, _) =
        callboard_runtime::testkit::Probe::<crate::mcp_kit::Echo>::spawn(&system, |_| {
            String::new()
        });
    let listener = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    let refused = serve(
        listener,
        agent,
        McpServerOptions::default(),
        &ListenOptions::default(),
    );
    assert!(matches!(
        refused,
        Err(ServeError::UnauthenticatedListener { .. })
    ));
    system.shutdown(Duration::ZERO).await;
}

/// Goal: an open stream outlives the time limit of idle connections. Method: a keep-alive of no
/// time, and a call that waits for it to pass.
#[tokio::test]
async fn open_streams_are_not_idle() {
    let listen = ListenOptions {
        keep_alive: Duration::from_millis(1),
        headers_timeout: Duration::from_secs(1),
        ..ListenOptions::default()
    };
    let mut server = Served::on(McpServerOptions::default(), &listen).await;
    let mut client = server.session("2025-11-25", json!({})).await;
    let mut stream = client.call("linger", json!({ "progress": true })).await;
    assert_eq!(server.watch.event().await, Seen::Began);
    // Connected after the call, an idle connection ends before the call would.
    let mut idle = server.connect().await;
    idle.rest().await;
    server.watch.go_on.send(true).unwrap();
    stream.message().await;
    assert_eq!(
        stream.message().await["result"]["content"][0]["text"],
        "went on"
    );
    server.stop().await;
}

/// Goal: invalid input of peers has its status and code, ids are echoed, and connection and session
/// stay usable. Method: rows on one connection, a ping after each.
#[tokio::test]
async fn bad_messages() {
    let server = Served::start().await;
    let deep = "[".repeat(100_000);
    let digits = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"n":{}}}}}"#,
        "9".repeat(100_000)
    );
    let keys = (0..1_001)
        .map(|n| format!("\"{n}\":0"))
        .collect::<Vec<_>>()
        .join(",");
    let keys = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{{keys}}}}}"#);
    for revision in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let client = server.session(revision, json!({})).await;
        let mut connection = server.connect().await;
        let headers = format!("{BOTH}{}", client.headers());
        let batches = revision == "2025-03-26";
        let rows: Vec<(u16, i64, serde_json::Value, &[u8])> = vec![
            (400, -32700, json!(null), b""),
            (400, -32700, json!(null), b"{"),
            (400, -32700, json!(null), b"not json"),
            (400, -32700, json!(null), b"\xef\xbb\xbf{}"),
            (400, -32700, json!(null), b"{\"a\":\"\xC3"),
            (400, -32700, json!(null), b"\xFF\xFE"),
            (400, -32700, json!(null), b"{\"a\":\"\0\"}"),
            (
                400,
                -32700,
                json!(null),
                br#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"\ud800"}}"#,
            ),
            (
                400,
                -32700,
                json!(null),
                br#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":1e400}}"#,
            ),
            (400, -32700, json!(null), digits.as_bytes()),
            (400, -32600, json!(null), deep.as_bytes()),
            (400, -32600, json!(null), keys.as_bytes()),
            (400, -32600, json!(null), b"[]"),
            (400, -32600, json!(null), b"7"),
            (400, -32600, json!(null), b"{}"),
            (
                400,
                -32600,
                json!(null),
                br#"{"jsonrpc":"2.0","id":1,"method":"a","method":"ping"}"#,
            ),
            (
                400,
                -32600,
                json!(null),
                br#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
            ),
            (
                400,
                -32600,
                json!(null),
                br#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#,
            ),
            (
                400,
                -32600,
                json!(null),
                br#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
            ),
            (
                400,
                -32600,
                json!(7),
                br#"{"jsonrpc":"1.0","id":7,"method":"ping"}"#,
            ),
            (400, -32600, json!("a"), br#"{"id":"a","method":"ping"}"#),
            (
                400,
                -32600,
                json!(7),
                br#"{"jsonrpc":"2.0","id":7,"method":1}"#,
            ),
            (
                400,
                -32602,
                json!(7),
                br#"{"jsonrpc":"2.0","id":7,"method":"ping","params":7}"#,
            ),
            (
                400,
                -32600,
                json!(7),
                br#"{"jsonrpc":"2.0","id":7,"result":{},"error":{"code":1,"message":""}}"#,
            ),
            (400, -32600, json!(7), br#"{"jsonrpc":"2.0","id":7}"#),
            (
                200,
                -32601,
                json!(7),
                br#"{"jsonrpc":"2.0","id":7,"method":"nothing"}"#,
            ),
            (
                200,
                -32602,
                json!(7),
                br#"{"jsonrpc":"2.0","id":7,"method":"tools/call"}"#,
            ),
            (
                200,
                -32602,
                json!(7),
                br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":[]}"#,
            ),
            (
                200,
                -32602,
                json!(7),
                br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"none"}}"#,
            ),
        ];
        for (status, code, id, body) in rows {
            let reply = connection.post_with(&headers, body).await;
            let shown = String::from_utf8_lossy(&body[..body.len().min(80)]).into_owned();
            assert_eq!(
                (reply.status, reply.code(), &reply.json()["id"]),
                (status, code, &id),
                "{revision} {shown}"
            );
            let next = connection
                .post_with(&headers, r#"{"jsonrpc":"2.0","id":"n","method":"ping"}"#)
                .await;
            assert_eq!(
                next.body, r#"{"jsonrpc":"2.0","id":"n","result":{}}"#,
                "after {shown}"
            );
        }
        if !batches {
            let reply = connection
                .post_with(&headers, r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#)
                .await;
            assert_eq!((reply.status, reply.code()), (400, -32600));
        }
        for body in [
            r#"{"jsonrpc":"2.0","method":"notifications/nothing"}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[]}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":[1]}"#,
            r#"{"jsonrpc":"2.0","id":99,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}"#,
        ] {
            let reply = connection.post_with(&headers, body).await;
            assert_eq!((reply.status, reply.body.as_str()), (202, ""), "{body}");
        }
    }
    server.stop().await;
}

/// Goal: ids come back byte for byte. Method: ids that others turn into floats, strings or null.
#[tokio::test]
async fn ids_are_echoed() {
    let server = Served::start().await;
    let client = server.session("2025-11-25", json!({})).await;
    for id in [
        "1",
        "\"1\"",
        "-9",
        "0",
        "9223372036854775808",
        "\"\\u00e9\"",
        "\"\"",
    ] {
        let reply = client
            .post(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#))
            .await;
        assert_eq!(
            reply.body,
            format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
        );
    }
    server.stop().await;
}

/// Goal: a batch is answered by one batch, each message for itself, in the revision with batches.
/// Method: requests, broken ones, a notification and a question in one batch.
#[tokio::test]
async fn batches_of_the_one_revision() {
    let server = Served::start().await;
    let client = server.session("2025-03-26", json!({ "roots": {} })).await;
    let batch = json!([
        { "jsonrpc": "2.0", "id": 1, "method": "ping" },
        { "jsonrpc": "2.0", "method": "notifications/nothing" },
        { "jsonrpc": "2.0", "id": "two", "method": "nothing" },
        7,
        initialize("2025-03-26", &json!({})),
    ]);
    let reply = client.post(&batch.to_string()).await;
    let answers = reply.json();
    assert_eq!(reply.status, 200);
    assert_eq!(
        answers
            .as_array()
            .unwrap()
            .iter()
            .map(|a| a["error"]["code"].as_i64())
            .collect::<Vec<_>>(),
        [None, Some(-32601), Some(-32600), Some(-32600)]
    );
    let silent = client
        .post(r#"[{"jsonrpc":"2.0","method":"notifications/nothing"}]"#)
        .await;
    assert_eq!((silent.status, silent.body.as_str()), (202, ""));
    assert_eq!(client.post("[]").await.code(), -32600);
    let ask = json!([{ "jsonrpc": "2.0", "id": 9, "method": "tools/call",
        "params": { "name": "inquire", "arguments": { "what": "roots" } } }]);
    let mut stream = client.stream(&ask.to_string()).await;
    let question = stream.message().await;
    client.answer(&question, json!({ "roots": [] })).await;
    assert_eq!(
        stream.message().await[0]["result"]["content"][0]["text"],
        "0 roots"
    );
    server.stop().await;
}

/// Goal: requests in flight and subscriptions of a session are limited, and the limit is exact.
/// Method: the limit, and one more.
#[tokio::test]
async fn a_session_is_bounded() {
    use callboard_mcp::inbound::{PENDING_REQUESTS_MAX, SUBSCRIPTIONS_MAX};
    let mut options = McpServerOptions::default();
    options.sessions.streams_max = PENDING_REQUESTS_MAX + 1;
    options.streams.stream_after = Duration::from_secs(60);
    let mut server = Served::with(options).await;
    let mut client = server.session("2025-11-25", json!({})).await;
    for n in 0..SUBSCRIPTIONS_MAX {
        client
            .ask(
                "resources/subscribe",
                json!({ "uri": format!("test://{n}") }),
            )
            .await;
    }
    assert_eq!(
        client
            .ask("resources/subscribe", json!({ "uri": "test://0" }))
            .await["result"],
        json!({})
    );
    assert_eq!(
        client
            .ask("resources/subscribe", json!({ "uri": "test://x" }))
            .await["error"]["code"],
        -3
    );

    let mut waiting = Vec::new();
    for _ in 0..PENDING_REQUESTS_MAX {
        let call = client.request("tools/call", json!({ "name": "linger", "arguments": {} }));
        let mut connection = server.connect().await;
        let lines = format!("Host: localhost\r\n{BOTH}{}", client.headers());
        connection.send(request(&lines, &call).as_bytes()).await;
        waiting.push(connection);
        assert_eq!(server.watch.event().await, Seen::Began);
    }
    assert_eq!(
        client.ask("tools/list", json!({})).await["error"]["code"],
        -3
    );
    // A ping isn't counted as a request in flight.
    assert_eq!(client.ask("ping", json!({})).await["result"], json!({}));
    server.watch.go_on.send(true).unwrap();
    for mut connection in waiting {
        assert_eq!(soon(connection.reply()).await.status, 200);
    }
    assert!(client.ask("tools/list", json!({})).await["result"].is_object());
    server.stop().await;
}

/// Goal: a call continues the trace that its message names, else that of its header; unreadable ones begin a new trace.
/// Method: calls with each, and the events of the node.
#[tokio::test]
async fn traces_come_in_headers_too() {
    let server = Served::start().await;
    let events = server.system.node_events();
    let mut reader = events.subscribe(NodeEventOptions::default()).unwrap();
    let parent = |digit: &str| format!("00-{}-00f067aa0ba902b7-01", digit.repeat(32));
    for (in_message, in_header, continued) in [
        ("", parent("a"), Some("a")),
        (&*parent("b"), parent("a"), Some("b")),
        ("", "00-none".to_owned(), None),
        ("00-none", parent("a"), None),
    ] {
        let mut meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {}
        });
        if !in_message.is_empty() {
            meta["traceparent"] = in_message.into();
        }
        let params = json!({ "name": "echo", "arguments": { "text": "x" }, "_meta": meta });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let headers = format!(
            "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n\
             Mcp-Method: tools/call\r\nMcp-Name: echo\r\ntraceparent: {in_header}\r\n"
        );
        let mut connection = server.connect().await;
        let reply = connection.post_with(&headers, body.to_string()).await;
        assert_eq!(reply.status, 200);
        let began = std::iter::from_fn(|| reader.try_next()).find_map(|event| match event {
            NodeEvent::ExchangeBegan(exchange) => Some(exchange.trace),
            _ => None,
        });
        let trace = began.unwrap();
        assert_eq!(trace.parent_id().is_some(), continued.is_some());
        let id = format!("{:032x}", trace.trace_id());
        assert!(continued.is_none_or(|digit| id == digit.repeat(32)), "{id}");
    }
    server.stop().await;
}
