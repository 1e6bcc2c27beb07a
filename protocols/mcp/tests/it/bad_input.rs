use std::sync::Arc;

use callboard_mcp::inbound::{InboundOptions, ListenOptions, McpServerOptions};
use callboard_rpc::DecodeLimits;
use serde_json::{Value, json};

use crate::kit::{Server, call, soon};

const GOOD: &str = r#"{"patient_id":"CARD-001"}"#;

/// Goal: each broken body has its code, and the connection answers the next request. Method: rows on one connection.
#[tokio::test]
async fn each_has_its_code() {
    let deep = "[".repeat(100_000);
    let deep_params = call(
        "1",
        "get_patient",
        &format!("{{\"a\":{}{}}}", "[".repeat(99), "]".repeat(99)),
    );
    let digits = call(
        "1",
        "get_patient",
        &format!("{{\"n\":{}}}", "9".repeat(1_000_000)),
    );
    let rows: Vec<(i64, Value, Vec<u8>)> = [
        (-32700, json!(null), ""),
        (-32700, json!(null), "{"),
        (-32700, json!(null), "not json"),
        (-32700, json!(null), "\u{feff}{}"),
        (
            -32700,
            json!(null),
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"\ud800"}}"#,
        ),
        (
            -32700,
            json!(null),
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","x":1e400}}"#,
        ),
        (-32700, json!(null), "{\"a\":\"\0\"}"),
        (-32700, json!(null), &digits),
        (-32600, json!(null), &deep),
        (-32600, json!(null), &deep_params),
        (-32600, json!(null), "[]"),
        (-32600, json!(null), "[{},{}]"),
        (-32600, json!(null), "7"),
        (-32600, json!(null), "{}"),
        (
            -32600,
            json!(null),
            r#"{"jsonrpc":"2.0","id":1,"method":"a","method":"tools/call"}"#,
        ),
        (-32600, json!(null), &call("null", "get_patient", GOOD)),
        (-32600, json!(null), &call("1.5", "get_patient", GOOD)),
        (-32600, json!(null), &call("{}", "get_patient", GOOD)),
        (-32600, json!(null), &call("true", "get_patient", GOOD)),
        (
            -32600,
            json!(null),
            r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"get_patient"}}"#,
        ),
        (
            -32600,
            json!(null),
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        ),
        (
            -32600,
            json!(7),
            r#"{"jsonrpc":"1.0","id":7,"method":"tools/call"}"#,
        ),
        (-32600, json!(7), r#"{"id":7,"method":"tools/call"}"#),
        (
            -32600,
            json!("a"),
            r#"{"jsonrpc":"2.0","id":"a","method":1}"#,
        ),
        (
            -32601,
            json!("a"),
            r#"{"jsonrpc":"2.0","id":"a","method":"initialize"}"#,
        ),
        (
            -32602,
            json!("a"),
            r#"{"jsonrpc":"2.0","id":"a","method":"tools/call","params":7}"#,
        ),
        (
            -32602,
            json!("a"),
            r#"{"jsonrpc":"2.0","id":"a","method":"tools/call","params":[]}"#,
        ),
        (
            -32602,
            json!("a"),
            r#"{"jsonrpc":"2.0","id":"a","method":"tools/call"}"#,
        ),
        (
            -32602,
            json!("a"),
            r#"{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":1}}"#,
        ),
        (-32602, json!("a"), &call("\"a\"", "get_patient", "[]")),
        (
            -32602,
            json!("a"),
            &call("\"a\"", "get_patient", r#"{"patient_id":7}"#),
        ),
    ]
    .into_iter()
    .map(|(code, id, body)| (code, id, body.as_bytes().to_vec()))
    .chain([
        (-32700, json!(null), b"{\"a\":\"\xC3".to_vec()),
        (-32700, json!(null), b"\xFF\xFE".to_vec()),
    ])
    .collect();

    let server = Server::start().await;
    let mut connection = server.connect().await;
    for (code, id, body) in rows {
        let reply = connection.post(&body).await;
        let shown = String::from_utf8_lossy(&body[..body.len().min(80)]).into_owned();
        let json = reply.json();
        assert_eq!(
            (reply.status, reply.code(), &json["id"]),
            (200, code, &id),
            "{shown}"
        );
        assert_eq!(
            (&json["jsonrpc"], &json["result"]),
            (&json!("2.0"), &json!(null)),
            "{shown}"
        );
        let next = connection.post(call("1", "get_patient", GOOD)).await;
        assert_eq!(next.json()["error"], json!(null), "after {shown}");
    }
    server.stop().await;
}

/// Goal: ids come back byte for byte. Method: ids that other servers turn into floats, strings or
/// null.
#[tokio::test]
async fn ids_are_echoed() {
    let server = Server::start().await;
    let mut connection = server.connect().await;
    for id in [
        "1",
        "\"1\"",
        "-9",
        "0",
        "9223372036854775808",
        "-9223372036854775809",
        "\"\\u00e9\"",
        "\"\"",
    ] {
        for (tool, member) in [
            ("get_patient", "\"result\""),
            ("no_such_tool", "\"error\":{"),
        ] {
            let reply = connection.post(call(id, tool, GOOD)).await;
            assert!(
                reply
                    .body
                    .starts_with(&format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},")),
                "{}",
                reply.body
            );
            assert!(reply.body.contains(member), "{}", reply.body);
        }
    }
    server.stop().await;
}

/// Goal: a notification has no response, whatever its content. Method: known and unknown ones, then
/// a call.
#[tokio::test]
async fn notifications_are_accepted_in_silence() {
    let server = Server::start().await;
    let mut connection = server.connect().await;
    for body in [
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#,
        r#"{"jsonrpc":"2.0","method":"foo","params":[1]}"#,
    ] {
        let reply = connection.post(body).await;
        assert_eq!((reply.status, reply.body.as_str()), (202, ""));
    }
    assert_eq!(
        connection.post(call("1", "get_patient", GOOD)).await.json()["error"],
        json!(null)
    );
    server.stop().await;
}

/// Goal: the body's limit is exact however its length is declared. Method: at the limit, one over,
/// chunked, and a wrong length.
#[tokio::test]
async fn bodies_over_the_limit_are_413() {
    const BYTES_MAX: usize = 2_000;
    let limits = DecodeLimits {
        body_bytes_max: BYTES_MAX,
        ..DecodeLimits::default()
    };
    let inbound = InboundOptions {
        limits,
        ..InboundOptions::default()
    };
    let options = McpServerOptions {
        inbound,
        ..McpServerOptions::bare()
    };
    let server = Server::with(options, &ListenOptions::default()).await;
    let padded = |bytes: usize| {
        let body = call("1", "get_patient", GOOD);
        format!("{body}{}", " ".repeat(bytes - body.len()))
    };
    assert_eq!(server.post(padded(BYTES_MAX)).await.status, 200);
    let over = server.post(padded(BYTES_MAX + 1)).await;
    assert_eq!((over.status, over.code()), (413, -32600));

    let chunk = "x".repeat(BYTES_MAX);
    let chunked = format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n\
         {BYTES_MAX:x}\r\n{chunk}\r\n1\r\nx\r\n"
    );
    let mut connection = server.connect().await;
    connection.send(chunked.as_bytes()).await;
    assert_eq!(connection.reply().await.status, 413);

    // Rejected by its declared length: nothing of it has to arrive.
    let mut connection = server.connect().await;
    connection
        .send(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n")
        .await;
    assert_eq!(connection.reply().await.status, 413);
    assert_eq!(
        server.post(call("1", "get_patient", GOOD)).await.status,
        200
    );
    server.stop().await;
}

/// Goal: ten clients at once each get their own answers. Method: 50 calls each on one connection, ids checked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_clients_at_once() {
    let server = Arc::new(Server::start().await);
    let clients = (0..10).map(|client| {
        let server = server.clone();
        tokio::spawn(async move {
            let mut connection = server.connect().await;
            for n in 0..50 {
                let id = format!("\"{client}-{n}\"");
                let (tool, wanted) = if n % 3 == 0 {
                    ("nothing", -32602)
                } else {
                    ("get_patient", 0)
                };
                let reply = connection.post(call(&id, tool, GOOD)).await.json();
                assert_eq!(reply["id"], json!(format!("{client}-{n}")));
                assert_eq!(reply["error"]["code"].as_i64().unwrap_or(0), wanted);
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        soon(client).await.unwrap();
    }
    Arc::into_inner(server).unwrap().stop().await;
}
