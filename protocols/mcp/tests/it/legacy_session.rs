use callboard_message::FailureKind;
use serde_json::{Value, json};

use crate::kit::header;
use crate::lingering::Seen;
use crate::mcp_client::{BOTH, Client, initialize};
use crate::mcp_kit::{Served, failure_kind};

const REVISIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// Goal: each revision gets its own handshake. Method: the answer's bytes, by snapshot.
/// Rows: H-1.
#[tokio::test]
async fn initialize_in_each_revision() {
    let server = Served::start().await;
    for revision in REVISIONS.into_iter().chain(["2026-07-28", "1999-01-01"]) {
        let mut connection = server.connect().await;
        let body = initialize(revision, &json!({ "roots": {} })).to_string();
        let reply = connection.post_with(BOTH, body).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        let session = header(&reply.head, "mcp-session-id").unwrap();
        assert!(
            session.len() >= 32 && session.bytes().all(|b| b.is_ascii_hexdigit()),
            "{session}"
        );
        insta::assert_snapshot!(format!("initialize_{revision}"), reply.body);
    }
    server.stop().await;
}

/// Goal: an invalid handshake is rejected with a reason, and leaves no session. Method: rows.
#[tokio::test]
async fn broken_handshakes() {
    let server = Served::start().await;
    let mut connection = server.connect().await;
    for (code, params) in [
        (-32602, json!(null)),
        (-32602, json!({})),
        (-32602, json!({ "protocolVersion": 7 })),
        (
            -32602,
            json!({ "protocolVersion": "2025-11-25", "capabilities": [] }),
        ),
        (
            -32602,
            json!({ "protocolVersion": "2025-11-25", "clientInfo": "me" }),
        ),
    ] {
        let mut body = json!({ "jsonrpc": "2.0", "id": "i", "method": "initialize" });
        if !params.is_null() {
            body["params"] = params;
        }
        let reply = connection.post_with(BOTH, body.to_string()).await;
        assert_eq!(
            (reply.status, reply.code(), &reply.json()["id"]),
            (200, code, &json!("i")),
            "{body}"
        );
        assert_eq!(header(&reply.head, "mcp-session-id"), None);
    }
    server.stop().await;
}

/// Goal: a session has its requests, and only once it is initialized. Method: each of them.
/// Rows: H-18.
#[tokio::test]
async fn requests_of_a_session() {
    let server = Served::start().await;
    for revision in REVISIONS {
        let mut client = server.session(revision, json!({})).await;
        let again = client
            .post(&initialize(revision, &json!({})).to_string())
            .await;
        assert_eq!(again.code(), -32600);
        for (method, params) in [
            ("ping", json!({})),
            ("logging/setLevel", json!({ "level": "warning" })),
            ("resources/subscribe", json!({ "uri": "test://a" })),
            ("resources/unsubscribe", json!({ "uri": "test://a" })),
        ] {
            assert_eq!(
                client.ask(method, params).await["result"],
                json!({}),
                "{method}"
            );
        }
        assert_eq!(
            client.ask("tools/list", json!({})).await["result"]["tools"][0]["name"],
            "echo"
        );
        let echoed = client
            .ask(
                "tools/call",
                json!({ "name": "echo", "arguments": { "text": "hi" } }),
            )
            .await;
        assert_eq!(echoed["result"]["content"][0]["text"], "hi");
        for (code, method, params) in [
            (-32601, "no/such", json!({})),
            (-32601, "server/discover", json!({})),
            (-32602, "logging/setLevel", json!({ "level": "loud" })),
            (-32602, "logging/setLevel", json!({})),
            (-32602, "resources/subscribe", json!({})),
            (-32602, "tools/call", json!({ "name": 7 })),
            (-32002, "resources/read", json!({ "uri": "test://none" })),
        ] {
            assert_eq!(
                client.ask(method, params).await["error"]["code"],
                code,
                "{method}"
            );
        }
    }
    server.stop().await;
}

/// Goal: progress has the token unchanged, increases, and comes before the response; without a
/// token none comes. Method: tokens of both types, and a report that goes back.
#[tokio::test]
async fn progress_goes_with_its_call() {
    let server = Served::start().await;
    let mut client = server.session("2025-11-25", json!({})).await;
    for token in [json!("p-1"), json!(7), json!(-3)] {
        let params = json!({ "name": "count", "arguments": { "steps": 3 }, "_meta": { "progressToken": token } });
        let request = client.request("tools/call", params);
        let messages = client.stream(&request).await.messages().await;
        let told: Vec<&Value> = messages
            .iter()
            .filter(|m| m["method"] == "notifications/progress")
            .collect();
        assert!(
            told.iter()
                .all(|m| m["params"]["progressToken"] == token && m["params"]["total"] == 3),
            "{told:?}"
        );
        assert_eq!(
            told.iter()
                .map(|m| m["params"]["progress"].clone())
                .collect::<Vec<_>>(),
            [0, 1, 2, 3]
        );
        assert_eq!(
            messages.last().unwrap()["result"]["content"][0]["text"],
            "counted"
        );
        assert_eq!(messages.len(), 5);
    }
    let answer = client
        .ask(
            "tools/call",
            json!({ "name": "count", "arguments": { "steps": 3 } }),
        )
        .await;
    assert_eq!(answer["result"]["content"][0]["text"], "counted");
    server.stop().await;
}

/// Goal: a session gets the log messages of its level. Method: levels, in two sessions.
#[tokio::test]
async fn log_lines_by_level() {
    let server = Served::start().await;
    let mut quiet = server.session("2025-11-25", json!({})).await;
    let mut loud = server.session("2025-11-25", json!({})).await;
    quiet
        .ask("logging/setLevel", json!({ "level": "error" }))
        .await;
    loud.ask("logging/setLevel", json!({ "level": "debug" }))
        .await;
    for (client, levels) in [
        (&mut quiet, vec!["error", "emergency"]),
        (
            &mut loud,
            vec!["debug", "info", "warning", "error", "emergency"],
        ),
    ] {
        let messages = client.call("babble", json!({})).await.messages().await;
        let told = messages
            .iter()
            .filter(|m| m["method"] == "notifications/message");
        assert_eq!(
            told.map(|m| m["params"]["level"].clone())
                .collect::<Vec<_>>(),
            levels
        );
    }
    server.stop().await;
}

/// Goal: a question is sent with the call that asks, and its answer continues the call. Method:
/// each kind, in a session that can answer.
#[tokio::test]
async fn questions_are_answered() {
    let server = Served::start().await;
    let can = json!({ "sampling": { "tools": {} }, "elicitation": { "form": {}, "url": {} }, "roots": {} });
    let mut client = server.session("2025-11-25", can).await;
    let written =
        json!({ "role": "assistant", "content": { "type": "text", "text": "Hm." }, "model": "m" });
    for (what, method, result, text) in [
        ("sample", "sampling/createMessage", written.clone(), "Hm."),
        (
            "sample_with_tools",
            "sampling/createMessage",
            written,
            "Hm.",
        ),
        (
            "form",
            "elicitation/create",
            json!({ "action": "decline" }),
            "None",
        ),
        (
            "url",
            "elicitation/create",
            json!({ "action": "accept" }),
            "Accept",
        ),
        (
            "roots",
            "roots/list",
            json!({ "roots": [{ "uri": "file:///a" }] }),
            "1 roots",
        ),
    ] {
        let mut stream = client.call("inquire", json!({ "what": what })).await;
        let question = stream.message().await;
        assert_eq!(question["method"], method);
        client.answer(&question, result).await;
        let answer = stream.message().await;
        assert_eq!(answer["result"]["content"][0]["text"], text);
        assert_eq!(stream.event().await, None);
    }
    // The client's user declines, or the answer is invalid.
    for (member, value, kind) in [
        (
            "error",
            json!({ "code": -1, "message": "No." }),
            FailureKind::Rejected,
        ),
        (
            "error",
            json!({ "code": -32601, "message": "what?" }),
            FailureKind::NoResponder,
        ),
        ("result", json!({}), FailureKind::InvalidInput),
        (
            "result",
            json!({ "action": "submit" }),
            FailureKind::InvalidInput,
        ),
        (
            "result",
            json!({ "action": "accept", "content": { "name": 7 } }),
            FailureKind::InvalidInput,
        ),
        (
            "result",
            json!({ "action": "accept", "content": { "name": "Alexandra" } }),
            FailureKind::InvalidInput,
        ),
    ] {
        let mut stream = client.call("inquire", json!({ "what": "form" })).await;
        let question = stream.message().await;
        let mut response = json!({ "jsonrpc": "2.0", "id": question["id"] });
        response[member] = value;
        assert_eq!(client.post(&response.to_string()).await.status, 202);
        assert_eq!(failure_kind(&stream.message().await), Some(kind));
    }
    server.stop().await;
}

/// Goal: a client isn't asked questions beyond its capabilities or revision. Method: rows; the
/// response comes at once, as plain JSON.
#[tokio::test]
async fn nobody_to_ask() {
    let server = Served::start().await;
    let all = json!({ "sampling": { "tools": {} }, "elicitation": { "form": {}, "url": {} }, "roots": {} });
    for (revision, capabilities, what) in [
        (
            "2025-11-25",
            json!({}),
            vec!["sample", "form", "url", "roots"],
        ),
        (
            "2025-11-25",
            json!({ "sampling": {}, "elicitation": {} }),
            vec!["sample_with_tools", "url", "roots"],
        ),
        (
            "2025-11-25",
            json!({ "elicitation": { "url": {} } }),
            vec!["form"],
        ),
        ("2025-06-18", all.clone(), vec!["url", "sample_with_tools"]),
        ("2025-03-26", all.clone(), vec!["form", "url"]),
        ("2024-11-05", all.clone(), vec!["form", "url"]),
    ] {
        let mut client = server.session(revision, capabilities).await;
        for what in what {
            let answer = client
                .ask(
                    "tools/call",
                    json!({ "name": "inquire", "arguments": { "what": what } }),
                )
                .await;
            assert_eq!(
                failure_kind(&answer),
                Some(FailureKind::NoResponder),
                "{revision} {what} {answer}"
            );
        }
    }
    server.stop().await;
}

/// Goal: a cancelled request ends without response; cancelling anything else changes nothing.
/// Method: a call that waits, cancelled under its id as a number and under others.
#[tokio::test]
async fn cancellation() {
    let mut server = Served::start().await;
    let mut client = server.session("2025-11-25", json!({})).await;
    let mut stream = client.call("linger", json!({ "progress": true })).await;
    assert_eq!(server.watch.event().await, Seen::Began);
    assert_eq!(stream.message().await["method"], "notifications/progress");
    let cancel = |id: Value| json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } });
    for id in [json!("1"), json!(99), json!(null), json!({})] {
        assert_eq!(client.post(&cancel(id).to_string()).await.status, 202);
    }
    assert_eq!(client.ask("ping", json!({})).await["result"], json!({}));
    assert_eq!(client.post(&cancel(json!(1)).to_string()).await.status, 202);
    assert_eq!(server.watch.event().await, Seen::Cancelled);
    assert_eq!(stream.event().await, None);
    assert_eq!(client.post(&cancel(json!(1)).to_string()).await.status, 202);
    server.stop().await;
}

/// Goal: changes reach all listeners, those of resources only subscribers. Method: two sessions'
/// GET streams.
#[tokio::test]
async fn changes_are_told() {
    let server = Served::start().await;
    let mut subscribed = server.session("2025-11-25", json!({})).await;
    let other = server.session("2025-06-18", json!({})).await;
    subscribed
        .ask("resources/subscribe", json!({ "uri": "test://a" }))
        .await;
    let (mut first, mut second) = (subscribed.get(None).await, other.get(None).await);
    for what in ["tools", "test://b", "prompts", "test://a", "resources"] {
        subscribed
            .ask(
                "tools/call",
                json!({ "name": "announce", "arguments": { "what": what } }),
            )
            .await;
    }
    let updated = json!({ "jsonrpc": "2.0", "method": "notifications/resources/updated", "params": { "uri": "test://a" } });
    for (name, is_first) in [
        ("tools", true),
        ("prompts", true),
        ("", true),
        ("resources", true),
    ] {
        let wanted =
            json!({ "jsonrpc": "2.0", "method": format!("notifications/{name}/list_changed") });
        match name {
            "" => assert_eq!(first.message().await, updated),
            _ => {
                assert_eq!(first.message().await, wanted, "{is_first}");
                assert_eq!(second.message().await, wanted);
            }
        }
    }
    subscribed
        .ask("resources/unsubscribe", json!({ "uri": "test://a" }))
        .await;
    for what in ["test://a", "tools"] {
        subscribed
            .ask(
                "tools/call",
                json!({ "name": "announce", "arguments": { "what": what } }),
            )
            .await;
    }
    assert_eq!(
        first.message().await["method"],
        "notifications/tools/list_changed"
    );
    server.stop().await;
}

/// Goal: one id, one answer. Method: the id of a running call used again, alike and as another type.
#[tokio::test]
async fn duplicate_ids_in_flight() {
    let mut server = Served::start().await;
    let client = server.session("2025-11-25", json!({})).await;
    let call = |id: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"linger","arguments":{{}}}}}}"#
        )
    };
    let first = client.stream(&call("1")).await;
    assert_eq!(server.watch.event().await, Seen::Began);
    let again = client.post(&call("1")).await;
    assert_eq!(
        (again.status, again.code(), again.json()["id"].clone()),
        (200, -32600, json!(1))
    );
    let other = client.stream(&call("\"1\"")).await;
    assert_eq!(server.watch.event().await, Seen::Began);
    server.watch.go_on.send(true).unwrap();
    for (stream, id) in [(first, json!(1)), (other, json!("1"))] {
        let messages = stream.messages().await;
        assert_eq!((messages.len(), &messages[0]["id"]), (1, &id));
    }
    assert_eq!(
        client.post(&call("1")).await.json()["result"]["content"][0]["text"],
        "went on"
    );
    server.stop().await;
}

/// Goal: a response without a question is dropped and answers no other one. Method: unknown
/// responses before, during and after a question, which is answered once.
#[tokio::test]
async fn stray_answers() {
    let server = Served::start().await;
    let mut client: Client = server.session("2025-11-25", json!({ "roots": {} })).await;
    let mut stream = client.call("inquire", json!({ "what": "roots" })).await;
    let question = stream.message().await;
    for id in [json!("1"), json!(2), json!(-1), json!("x")] {
        client
            .answer(&json!({ "id": id }), json!({ "roots": [] }))
            .await;
    }
    client
        .answer(&question, json!({ "roots": [{ "uri": "file:///a" }] }))
        .await;
    client.answer(&question, json!({ "roots": [] })).await;
    assert_eq!(
        stream.message().await["result"]["content"][0]["text"],
        "1 roots"
    );
    assert_eq!(stream.event().await, None);
    // Another session can't answer it either.
    let other = server.session("2025-11-25", json!({ "roots": {} })).await;
    let mut stream = client.call("inquire", json!({ "what": "roots" })).await;
    let question = stream.message().await;
    other.answer(&question, json!({ "roots": [] })).await;
    client
        .answer(&question, json!({ "roots": [{ "uri": "file:///a" }] }))
        .await;
    assert_eq!(
        stream.message().await["result"]["content"][0]["text"],
        "1 roots"
    );
    server.stop().await;
}
