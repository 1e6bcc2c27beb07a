//! Bad input over A2A: envelopes, bodies, headers, connections, and messages that a policy forbids.

use std::time::Duration;

use callboard_message::{Failure, FailureKind, HOPS_MAX_DEFAULT};
use callboard_rpc::{
    AllowedHosts, AllowedOrigins, DEPTH_MAX_DEFAULT, DIGITS_MAX_DEFAULT, KEYS_MAX_DEFAULT,
    UnauthenticatedAccess,
};
use callboard_runtime::{Policy, PolicyRequest};
use futures::future::BoxFuture;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::kit::{Peer, Seen, Served, given, said, serving, soon};

async fn answer(peer: &Peer, body: impl Into<reqwest::Body>) -> (u16, Value) {
    let response = peer.post("", body).await;
    let status = response.status().as_u16();
    (
        status,
        serde_json::from_slice(&soon(response.bytes()).await.unwrap()).unwrap_or_default(),
    )
}

/// Goal: an invalid JSON-RPC request gets an error that says why, under its id if that can be read,
/// and the connection stays usable (A1, A2, A4 … A6, A8 … A11). Method: rows; after each, a good
/// request.
#[tokio::test]
async fn envelopes() {
    let (served, peer) = serving(|_| {}).await;
    let params = r#"{"id":"none"}"#;
    let get =
        |more: &str| format!(r#"{{"jsonrpc":"2.0",{more}"method":"GetTask","params":{params}}}"#);
    let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
    let with = |value: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{{"id":"none","x":{value}}}}}"#
        )
    };
    let keys = |n: usize| {
        format!(
            "{{{}}}",
            (0..n)
                .map(|n| format!("\"k{n}\":0"))
                .collect::<Vec<_>>()
                .join(",")
        )
    };
    for (body, id, code) in [
        // A1, A2
        (
            "{\"jsonrpc\":\"2.0\",\"id\":1".to_owned(),
            Value::Null,
            -32_700,
        ),
        ("not JSON".into(), Value::Null, -32_700),
        (String::new(), Value::Null, -32_700),
        ("\u{feff}{}".into(), Value::Null, -32_700),
        (with("\"\u{0}\""), Value::Null, -32_700),
        // A4
        (deep(100_000), Value::Null, -32_600),
        // The message and its params are two levels.
        (with(&deep(DEPTH_MAX_DEFAULT - 2)), json!(1), -32_001),
        (with(&deep(DEPTH_MAX_DEFAULT - 1)), Value::Null, -32_600),
        (with(&keys(KEYS_MAX_DEFAULT)), json!(1), -32_001),
        (with(&keys(KEYS_MAX_DEFAULT + 1)), Value::Null, -32_600),
        (
            with(&format!("0.{}", "9".repeat(DIGITS_MAX_DEFAULT - 1))),
            json!(1),
            -32_001,
        ),
        (
            with(&format!("0.{}", "9".repeat(DIGITS_MAX_DEFAULT))),
            Value::Null,
            -32_700,
        ),
        (with("1e400"), Value::Null, -32_700),
        (get(r#""id":1,"method":"ListTasks","#), Value::Null, -32_600),
        (with(r#"{"a":1,"\u0061":2}"#), Value::Null, -32_600),
        // A6
        // JSON-RPC 2.0, section 4: discouraged, but a request.
        (get(r#""id":null,"#), Value::Null, -32_001),
        (get(r#""id":1.5,"#), Value::Null, -32_600),
        (get(r#""id":{},"#), Value::Null, -32_600),
        (get(r#""id":true,"#), Value::Null, -32_600),
        (get(""), Value::Null, -32_600),
        (
            r#"{"jsonrpc":"2.0","method":"message/send","params":{}}"#.into(),
            Value::Null,
            -32_602,
        ),
        (get(r#""id":"a","#), json!("a"), -32_001),
        (get(r#""id":-1,"#), json!(-1), -32_001),
        // A8, A10
        (
            r#"{"jsonrpc":"2.0","id":7,"result":{}}"#.into(),
            Value::Null,
            -32_600,
        ),
        (
            r#"{"jsonrpc":"2.0","id":7,"result":{},"error":{"code":1,"message":""}}"#.into(),
            json!(7),
            -32_600,
        ),
        (r#"{"jsonrpc":"2.0","id":7}"#.into(), json!(7), -32_600),
        // A9
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}"#.into(),
            json!(1),
            -32_601,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"sendmessage","params":{}}"#.into(),
            json!(1),
            -32_601,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":5,"params":{}}"#.into(),
            json!(1),
            -32_600,
        ),
        // A11
        (
            format!(r#"{{"jsonrpc":"1.0","id":1,"method":"GetTask","params":{params}}}"#),
            json!(1),
            -32_600,
        ),
        (
            format!(r#"{{"id":1,"method":"GetTask","params":{params}}}"#),
            json!(1),
            -32_600,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"GetTask","params":"none"}"#.into(),
            json!(1),
            -32_602,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"GetTask","params":["none"]}"#.into(),
            json!(1),
            -32_602,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"GetTask"}"#.into(),
            json!(1),
            -32_602,
        ),
        ("5".into(), Value::Null, -32_600),
        ("null".into(), Value::Null, -32_600),
    ] {
        let shown: String = body.chars().take(90).collect();
        let (status, answer) = answer(&peer, body).await;
        assert_eq!(
            (status, &answer["id"], &answer["error"]["code"]),
            (200, &id, &json!(code)),
            "{shown}: {answer}"
        );
        assert!(answer.get("result").is_none());
    }
    // A5: no batches; A9: an unknown notification gets no response.
    for (body, status, code) in [
        (format!("[{}]", get(r#""id":1,"#)), 400, json!(-32_600)),
        (format!("[{0},{0}]", get(r#""id":1,"#)), 400, json!(-32_600)),
        ("[]".into(), 400, json!(-32_600)),
        (
            r#"{"jsonrpc":"2.0","method":"message/ssend","params":{}}"#.into(),
            202,
            Value::Null,
        ),
        (
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#.into(),
            202,
            Value::Null,
        ),
    ] {
        let (found, answer) = answer(&peer, body.clone()).await;
        assert_eq!(
            (found, &answer["error"]["code"]),
            (status, &code),
            "{body}: {answer}"
        );
        assert_eq!(answer.is_null(), status == 202, "{body}: {answer}");
    }
    for bytes in [
        &b"{\"jsonrpc\":\"2.0\",\"id\":\"\xff\"}"[..],
        b"{\"jsonrpc\":\"2.0\",\"id\":\"\\ud800\"}",
        b"\0",
    ] {
        assert_eq!(
            answer(&peer, bytes.to_vec()).await.1["error"]["code"],
            -32_700
        );
    }
    peer.result(
        "SendMessage",
        json!({ "message": said("m", "still here", "echo") }),
    )
    .await;
    served.stop().await;
}

/// Goal: an invalid message is rejected with the name of the field, in all dialects, and begins
/// nothing. Method: rows, over JSON-RPC and HTTP+JSON.
#[tokio::test]
async fn messages() {
    let (served, peer) = serving(|_| {}).await;
    let without = |name: &str| {
        let mut message = said("m-1", "x", "echo");
        message.as_object_mut().unwrap().remove(name);
        json!({ "message": message })
    };
    let with = |name: &str, value: Value| {
        let mut message = said("m-1", "x", "echo");
        message[name] = value;
        json!({ "message": message })
    };
    for (params, field) in [
        (json!({}), "message"),
        (json!({ "message": null }), "message"),
        (json!({ "message": "hello" }), "message"),
        (without("messageId"), "message.messageId"),
        (without("role"), "message.role"),
        (without("parts"), "message.parts"),
        (with("messageId", json!("")), "message.messageId"),
        (
            with("messageId", json!("x".repeat(129))),
            "message.messageId",
        ),
        (with("role", json!("ROLE_UNSPECIFIED")), "message.role"),
        // H4: a message in the agent's name.
        (with("role", json!("ROLE_AGENT")), "message.role"),
        (with("parts", json!([])), "message.parts"),
        (with("parts", json!(null)), "message.parts"),
        (with("parts", json!([{}])), "message.parts[0]"),
        (
            with(
                "parts",
                json!([{ "text": "a", "url": "https://x.example" }]),
            ),
            "message.parts[0]",
        ),
        (
            with("parts", json!([{ "raw": "***" }])),
            "message.parts[0].raw",
        ),
        (
            with("parts", json!([{ "text": 5, "data": {} }])),
            "message.parts[0]",
        ),
        (
            with("parts", json!(vec![json!({ "text": "a" }); 257])),
            "message.parts",
        ),
        (
            with("referenceTaskIds", json!(vec!["t"; 65])),
            "message.referenceTaskIds",
        ),
        (
            with("extensions", json!(vec!["https://x.example"; 33])),
            "message.extensions",
        ),
        (
            with("contextId", json!("x".repeat(129))),
            "message.contextId",
        ),
        (with("taskId", json!("a\nb")), "message.taskId"),
        (
            json!({ "message": said("m", "x", "echo"), "configuration": { "historyLength": -1 } }),
            "configuration.historyLength",
        ),
    ] {
        let answer = peer.rpc("SendMessage", params.clone()).await;
        assert_eq!(answer["error"]["code"], -32_602, "{field}: {answer}");
        let violation = &answer["error"]["data"][0]["fieldViolations"][0]["field"];
        assert_eq!(violation, field, "{answer}");
        for (tail, path) in [("", "/message:send"), ("", "/message:stream")] {
            let (status, answer) = peer
                .rest(Method::POST, &format!("{tail}{path}"), Some(params.clone()))
                .await;
            assert_eq!(
                (status, &answer["error"]["status"]),
                (400, &json!("INVALID_ARGUMENT")),
                "{field}: {answer}"
            );
        }
    }
    for (method, params) in [
        (
            "message/send",
            json!({ "message": { "kind": "message", "role": "user", "parts": [{ "kind": "text", "text": "x" }] } }),
        ),
        (
            "message/send",
            json!({ "message": { "messageId": "m", "role": "user", "parts": [] } }),
        ),
        (
            "message/send",
            json!({ "message": { "messageId": "m", "role": "agent", "parts": [{ "kind": "text", "text": "x" }] } }),
        ),
        (
            "tasks/send",
            json!({ "id": "t", "message": { "role": "user", "parts": [] } }),
        ),
        (
            "tasks/send",
            json!({ "id": "t", "message": { "role": "agent", "parts": [{ "type": "text", "text": "x" }] } }),
        ),
        ("tasks/send", json!({ "id": "t" })),
        ("tasks/get", json!({})),
    ] {
        assert_eq!(
            peer.code(method, params.clone()).await,
            -32_602,
            "{method} {params}"
        );
    }
    assert_eq!(
        peer.result("ListTasks", json!({})).await["totalSize"],
        0,
        "nothing has begun"
    );
    served.stop().await;
}

/// Goal: arguments that don't fit a skill never reach its handler, and an ambiguous skill is never
/// guessed (E7). Method: rows.
#[tokio::test]
async fn arguments() {
    let (served, peer) = serving(|_| {}).await;
    for message in [
        given("m", json!({ "a": 1 }), "add"),
        given("m", json!({ "a": 1, "b": "2" }), "add"),
        given("m", json!({ "a": 1, "b": 2, "c": 3 }), "add"),
        said("m", "one and two", "add"),
        said("m", "hello", "no such skill"),
        given("m", json!({ "kind": "../../etc/passwd" }), "fail"),
        json!({ "messageId": "m", "role": "ROLE_USER", "parts": [{ "data": { "a": 1, "b": 2 } }] }),
    ] {
        let answer = peer.rpc("SendMessage", json!({ "message": message })).await;
        let state = answer["result"]["task"]["status"]["state"]
            .as_str()
            .unwrap_or_default();
        let refused = answer["error"]["code"] == -32_602
            || ["TASK_STATE_FAILED", "TASK_STATE_REJECTED"].contains(&state);
        assert!(refused, "{message}: {answer}");
    }
    let answer = peer
        .result(
            "SendMessage",
            json!({ "message": given("m", json!({ "a": 1, "b": 2 }), "add") }),
        )
        .await;
    assert_eq!(
        answer["task"]["artifacts"][0]["parts"][0]["data"],
        json!({ "sum": 3 }),
        "{answer}"
    );
    served.stop().await;
}

/// Sends one request on a new connection and returns the status and head of the response.
async fn raw(served: &Served, request: &[u8]) -> (u16, String) {
    let mut connection = soon(TcpStream::connect(served.address)).await.unwrap();
    soon(connection.write_all(request)).await.unwrap();
    let mut reply = Vec::new();
    // A server that didn't read the whole request need not close at once.
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

/// Goal: foreign origins and hosts get nothing, cards included; configured ones are accepted (B1,
/// B2). Method: rows.
#[tokio::test]
async fn origin_and_host() {
    let served = Served::with(|options| {
        options.hosts = AllowedHosts::default().with_host("agents.example").unwrap();
        options.origins = AllowedOrigins::default()
            .with_origin("https://app.example")
            .unwrap();
    })
    .await;
    let body =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {} }).to_string();
    for (lines, status) in [
        ("Host: localhost\r\n", 200),
        (
            "Host: agents.example\r\nOrigin: https://app.example\r\n",
            200,
        ),
        ("Host: localhost\r\nOrigin: http://evil.example\r\n", 403),
        ("Host: localhost\r\nOrigin: null\r\n", 403),
        ("Host: evil.example\r\n", 403),
        ("Host: evil.example\r\nX-Forwarded-Host: localhost\r\n", 403),
    ] {
        let lines = format!("Connection: close\r\n{lines}");
        let length = body.len();
        let post = format!(
            "POST /a2a HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n{lines}\r\n{body}"
        );
        let gets = [
            "/a2a/tasks",
            "/v1/tasks",
            "/.well-known/agent-card.json",
            "/.well-known/ai-catalog.json",
        ];
        let gets = gets.map(|path| format!("GET {path} HTTP/1.1\r\n{lines}\r\n"));
        for request in [post].into_iter().chain(gets) {
            assert_eq!(
                raw(&served, request.as_bytes()).await.0,
                status,
                "{request}"
            );
        }
    }
    served.stop().await;
}

/// Goal: requests through a proxy don't count as this machine's operator or callers; cards are
/// public. Method: headers of proxies, over both bindings.
#[tokio::test]
async fn forwarded_requests() {
    for trust in [
        UnauthenticatedAccess::LoopbackOperator,
        UnauthenticatedAccess::Anonymous,
    ] {
        let served = Served::with(|options| options.access = trust.into()).await;
        let body =
            json!({ "jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {} }).to_string();
        for header in [
            "X-Forwarded-For: 203.0.113.9",
            "Forwarded: for=203.0.113.9",
            "X-Real-IP: 203.0.113.9",
            "Via: 1.1 x",
        ] {
            let lines = format!("Connection: close\r\nHost: localhost\r\n{header}\r\n");
            let post = format!(
                "POST /a2a HTTP/1.1\r\nContent-Length: {}\r\n{lines}\r\n{body}",
                body.len()
            );
            let get = |path: &str| format!("GET {path} HTTP/1.1\r\n{lines}\r\n");
            for (request, status) in [
                (post, 403),
                (get("/a2a/tasks"), 403),
                (get("/v1/tasks"), 403),
                (get("/.well-known/agent-card.json"), 200),
            ] {
                assert_eq!(
                    raw(&served, request.as_bytes()).await.0,
                    status,
                    "{request}"
                );
            }
        }
        served.stop().await;
    }
}

/// Goal: a body is read up to the limit, whatever length it states, and no longer than its timeout
/// (B7 … B9, A3). Method: at the limit and over it, by length and in chunks; compressed; late; cut.
#[tokio::test]
async fn bodies() {
    const BYTES_MAX: usize = 4_096;
    let served = Served::with(|options| {
        options.limits.body_bytes_max = BYTES_MAX;
        options.body_timeout = Duration::from_millis(200);
    })
    .await;
    let peer = served.client();
    let padded = |bytes: usize| {
        let body = |pad: &str| {
            json!({ "jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": { "pad": pad } })
                .to_string()
        };
        body(&"x".repeat(bytes - body("").len()))
    };
    assert_eq!(peer.post("", padded(BYTES_MAX)).await.status(), 200);
    assert_eq!(peer.post("", padded(BYTES_MAX + 1)).await.status(), 413);
    assert_eq!(
        peer.post("/message:send", padded(BYTES_MAX + 1))
            .await
            .status(),
        413
    );
    let head = "POST /a2a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
    let chunk = format!("1000\r\n{}\r\n", "x".repeat(4_096));
    for (request, status) in [
        (format!("{head}Content-Length: 99999999999\r\n\r\n"), 413),
        (
            format!(
                "{head}Transfer-Encoding: chunked\r\n\r\n{}",
                chunk.repeat(4)
            ),
            413,
        ),
        (
            format!("{head}Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{{}}"),
            415,
        ),
        // The body never arrives.
        (format!("{head}Content-Length: 100\r\n\r\n{{"), 408),
    ] {
        let (found, reply) = raw(&served, request.as_bytes()).await;
        assert_eq!(found, status, "{reply}");
    }
    served.stop().await;
}

/// Goal: text with line breaks can't forge an event (B11), and a client that disconnects ends its
/// stream, not the call (B12, as A2A defines it). Method: an echo with breaks and a false event in
/// it; a stream that is dropped, then the task.
#[tokio::test]
async fn streams() {
    let (mut served, peer) = serving(|_| {}).await;
    let text = "a\r\n\r\nid: 99\r\nevent: forged\r\ndata: {\"result\":1}\n\n\u{2028}";
    let mut stream = peer
        .stream(
            "SendStreamingMessage",
            json!({ "message": said("m-1", text, "echo") }),
        )
        .await;
    let mut shown = String::new();
    while let Some(event) = stream.next().await {
        assert_eq!(event.kind(), "message");
        assert_ne!(event.id.as_deref(), Some("99"));
        let event: Value = serde_json::from_slice(&event.data).unwrap();
        assert!(event["result"].is_object(), "{event}");
        shown.push_str(&event.to_string());
    }
    assert!(
        shown.contains(&serde_json::to_string(text).unwrap()),
        "{shown}"
    );
    let mut stream = peer
        .stream(
            "SendStreamingMessage",
            json!({ "message": said("m-2", "x", "linger") }),
        )
        .await;
    let task = stream.event().await.unwrap()["result"]["task"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(served.watched.watch.event().await, Seen::Began);
    drop(stream);
    let now = peer.result("GetTask", json!({ "id": task })).await;
    assert_eq!(now["status"]["state"], "TASK_STATE_WORKING");
    served.watched.watch.go_on.send(true).unwrap();
    assert_eq!(served.watched.watch.event().await, Seen::Finished);
    served.stop().await;
}

/// Policy that rejects every payload containing a certain word.
struct NoSecrets;

impl Policy for NoSecrets {
    fn check<'a>(&'a self, crossing: PolicyRequest<'a>) -> BoxFuture<'a, Result<(), Failure>> {
        let found = crossing.payload.get().contains("xyzzy");
        let blocked = || Failure::new(FailureKind::Blocked, "blocked by guardrails");
        Box::pin(std::future::ready(if found {
            Err(blocked())
        } else {
            Ok(())
        }))
    }
}

/// Goal: a message that a policy forbids begins nothing; if a reply is forbidden, the task fails
/// and the reply isn't shown (F1, F2). Method: a word in a message, and in an answer only.
#[tokio::test]
async fn policies() {
    let served = Served::start().await;
    served.system.policy().push(NoSecrets);
    let peer = served.client();
    for (method, params) in [
        (
            "SendMessage",
            json!({ "message": said("m", "say xyzzy", "echo") }),
        ),
        (
            "tasks/send",
            json!({ "id": "t", "message": {
            "role": "user", "parts": [{ "type": "text", "text": "say xyzzy" }], "metadata": { "skill": "echo" } } }),
        ),
    ] {
        let answer = peer.rpc(method, params).await;
        let error = &answer["error"];
        assert_eq!(
            (&error["code"], &error["message"]),
            (&json!(-1), &json!("blocked by guardrails")),
            "{answer}"
        );
        assert!(!answer.to_string().contains("xyzzy"));
    }
    let (status, answer) = peer
        .rest(
            Method::POST,
            "/message:send",
            Some(json!({ "message": said("m", "say xyzzy", "echo") })),
        )
        .await;
    assert_eq!(
        (status, &answer["error"]["status"]),
        (403, &json!("PERMISSION_DENIED")),
        "{answer}"
    );
    assert_eq!(peer.result("ListTasks", json!({})).await["totalSize"], 0);
    served.stop().await;
}

/// Goal: a call that goes in circles ends (H2). Method: a message with the maximum number of hops,
/// and one with one more.
#[tokio::test]
async fn circles() {
    let (served, peer) = serving(|_| {}).await;
    let passed = |hops: u64| {
        let mut message = said("m", "round", "echo");
        message["metadata"]["callboard/hops"] = json!(hops);
        json!({ "message": message })
    };
    peer.result("SendMessage", passed(u64::from(HOPS_MAX_DEFAULT) - 1))
        .await;
    for hops in [u64::from(HOPS_MAX_DEFAULT) + 1, 65_536, u64::MAX] {
        assert!(
            peer.rpc("SendMessage", passed(hops)).await["error"]["code"].is_i64(),
            "{hops}"
        );
    }
    assert_eq!(peer.result("ListTasks", json!({})).await["totalSize"], 1);
    served.stop().await;
}
