//! The client over streamable HTTP in the legacy era.

use callboard_macros::Message;
use callboard_mcp::outbound::Era;
use callboard_message::{Answer, ElicitationAnswer, FailureKind, Question};
use callboard_runtime::CallEvent;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::client_kit::{Client, Played, joined, only, tool};
use crate::kit::soon;

pub const CALL: &str = "callboard.tools.call";

/// Adds two numbers.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = u32)]
struct Add {
    a: u32,
    b: u32,
}

pub async fn connected(session: Option<&str>) -> (Played, Client) {
    let mut peer = Played::start().await;
    let client = Client::at(&peer.url, only(Era::Legacy));
    let first = client.ask(CALL, tool("first", json!({})));
    peer.initialize("2025-11-25", session).await;
    peer.expect("tools/call")
        .await
        .result(json!({ "content": [] }))
        .await;
    joined(first).await.unwrap();
    (peer, client)
}

/// Goal: the handshake offers the configured options, and each request after it has the negotiated
/// values. Method: check every header and param.
/// Rows: H-18.
#[tokio::test]
async fn handshake_then_session_and_version() {
    let mut peer = Played::start().await;
    let client = Client::at(&peer.url, only(Era::Legacy));
    let sent =
        r#"{"name":"t","arguments":{"x":1.0,"\u00e9":1e2},"odd":[null],"_meta":{"a.b/c":1}}"#;
    let asked = client.ask_raw(CALL, sent);
    let params = peer.initialize("2025-06-18", Some("s-1")).await;
    assert_eq!(params["protocolVersion"], "2025-11-25");
    assert_eq!(params["clientInfo"]["name"], "callboard");
    assert!(
        params["capabilities"]["elicitation"]["form"].is_object(),
        "{params}"
    );
    let hit = peer.expect("tools/call").await;
    assert_eq!(hit.header("mcp-session-id"), Some("s-1"));
    assert_eq!(hit.header("mcp-protocol-version"), Some("2025-06-18"));
    assert_eq!(
        hit.header("accept"),
        Some("application/json, text/event-stream")
    );
    assert_eq!(hit.header("mcp-method"), None);
    assert!(
        hit.text.contains(&format!("\"params\":{sent}")),
        "{}",
        hit.text
    );
    let result =
        r#"{"odd":{"z":1,"a":12345678901234567890},"content":[{"type":"hologram","x":1.0}]}"#;
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#,
        hit.body["id"]
    );
    hit.write(200, "", "application/json", &body).await;
    assert_eq!(joined(asked).await.unwrap().get(), result);
    client.stop().await;
}

/// Goal: older revisions don't get that header. Method: a server of 2025-03-26, which may answer
/// with a batch.
#[tokio::test]
async fn older_revisions_and_batches() {
    let mut peer = Played::start().await;
    let client = Client::at(&peer.url, only(Era::Legacy));
    let asked = client.ask(CALL, tool("t", json!({})));
    peer.initialize("2025-03-26", None).await;
    let hit = peer.expect("tools/call").await;
    assert_eq!(hit.header("mcp-protocol-version"), None);
    let told = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info", "data": 1 } });
    let batch = json!([told, hit.response(Ok(json!({ "content": [] })))]);
    hit.write(200, "", "application/json", &batch.to_string())
        .await;
    assert_eq!(joined(asked).await.unwrap(), json!({ "content": [] }));
    client.stop().await;
}

/// Goal: an unsupported revision ends the handshake. Method: one from the future, and the modern
/// one.
#[tokio::test]
async fn unknown_revisions_are_refused() {
    for revision in ["2031-01-01", "2026-07-28"] {
        let mut peer = Played::start().await;
        let client = Client::at(&peer.url, only(Era::Legacy));
        let asked = client.ask(CALL, tool("t", json!({})));
        let result = json!({ "protocolVersion": revision, "capabilities": {}, "serverInfo": { "name": "p", "version": "1" } });
        peer.expect("initialize").await.result(result).await;
        assert_eq!(
            joined(asked).await.unwrap_err().kind,
            FailureKind::Unavailable
        );
        client.stop().await;
    }
}

/// Goal: a typed ask of a remote agent works like a local one. Method: a number, plain, then
/// wrapped by a server of ours, as its tool list declares.
#[tokio::test]
async fn typed_asks_read_plain_values() {
    let (mut peer, client) = connected(None).await;
    let agent = client.agent.clone();
    let plain = tokio::spawn(async move { agent.ask(Add { a: 2, b: 3 }).await.unwrap() });
    let hit = peer.expect("tools/call").await;
    assert_eq!(
        hit.body["params"],
        json!({ "name": Add::NAME_OF_TOOL, "arguments": { "a": 2, "b": 3 } })
    );
    hit.result(json!({ "content": [{ "type": "text", "text": "5" }] }))
        .await;
    assert_eq!(joined(plain).await, 5);

    let agent = client.agent.clone();
    let wrapped = tokio::spawn(async move { agent.ask(Add { a: 2, b: 3 }).await.unwrap() });
    peer.expect("tools/call")
        .await
        .result(json!({ "content": [], "structuredContent": { "result": 5 } }))
        .await;
    let schema = json!({ "type": "object", "x-callboard-wrapped": true });
    let listed = json!({ "name": Add::NAME_OF_TOOL, "inputSchema": {}, "outputSchema": schema });
    peer.expect("tools/list")
        .await
        .result(json!({ "tools": [listed] }))
        .await;
    assert_eq!(joined(wrapped).await, 5);
    client.stop().await;
}

impl Add {
    const NAME_OF_TOOL: &'static str = <Self as callboard_message::Message>::NAME;
}

/// Goal: a server's error is passed on whole, and a tool's error is a failure. Method: both, with
/// unknown data.
#[tokio::test]
async fn errors_are_failures() {
    let (mut peer, client) = connected(None).await;
    let asked = client.ask(CALL, tool("t", json!({})));
    let error = json!({ "code": -32602, "message": "no such tool", "data": { "x": [1] } });
    peer.expect("tools/call")
        .await
        .error(200, error.clone())
        .await;
    let failure = joined(asked).await.unwrap_err();
    assert_eq!(
        (failure.kind, failure.data),
        (FailureKind::InvalidInput, Some(json!({ "rpc": error })))
    );
    let asked = client.ask("add", json!({}));
    let result = json!({ "content": [{ "type": "text", "text": "no" }], "isError": true });
    peer.expect("tools/call").await.result(result).await;
    assert_eq!(joined(asked).await.unwrap_err().kind, FailureKind::Rejected);
    client.stop().await;
}

/// Goal: each question goes to the call on whose stream it came, and the answer goes back
/// unchanged. Method: two calls at once, each asked.
/// Rows: M-16, M-48, M-52.
#[tokio::test]
async fn questions_go_to_their_own_call() {
    let (mut peer, client) = connected(Some("s")).await;
    let mut calls = Vec::new();
    for name in ["one", "two"] {
        let call = client.call(CALL, tool(name, json!({})));
        let asking = tokio::spawn(async move {
            let mut call = call;
            while let Some(event) = soon(call.next()).await {
                if let CallEvent::Question(pending) = event {
                    let Question::Elicit(form) = &pending.question else {
                        panic!("{:?}", pending.question)
                    };
                    let answer = ElicitationAnswer::accept(
                        json!({ "said": format!("{name} to {}", form.message()) }),
                    );
                    pending.answer(Answer::Elicit(answer));
                }
            }
            call.reply().await.unwrap()
        });
        calls.push((name, peer.expect("tools/call").await.stream().await, asking));
    }
    for (name, events, _) in &mut calls {
        let params = json!({ "message": *name, "requestedSchema": { "odd": 1.0 } });
        events
            .ask(json!(format!("q-{name}")), "elicitation/create", params)
            .await;
    }
    for _ in 0..2 {
        let answer = peer.hit().await;
        let name = answer.body["id"].as_str().unwrap()[2..].to_owned();
        let expected =
            json!({ "action": "accept", "content": { "said": format!("{name} to {name}") } });
        assert_eq!(answer.body["result"], expected);
        assert_eq!(answer.header("mcp-session-id"), Some("s"));
        answer.empty(202).await;
    }
    for (name, events, asking) in calls {
        events.result(json!({ "content": [], "for": name })).await;
        assert!(joined(asking).await.unwrap().get().contains(name));
    }
    client.stop().await;
}

/// Goal: a question is answered once, even if its call ends before the server has read the answer.
/// Method: a server that delays reading the answer, ends the call, and is called again.
#[tokio::test]
async fn questions_are_answered_once() {
    let (mut peer, client) = connected(Some("s")).await;
    let mut call = client.call(CALL, tool("t", json!({})));
    let asking = async {
        let mut events = peer.expect("tools/call").await.stream().await;
        events
            .ask(
                json!("q"),
                "elicitation/create",
                json!({ "message": "m", "requestedSchema": {} }),
            )
            .await;
        events
    };
    let (event, events) = tokio::join!(soon(call.next()), asking);
    let Some(CallEvent::Question(pending)) = event else {
        panic!("no question")
    };
    pending.answer(Answer::Elicit(ElicitationAnswer::accept(
        json!({ "said": "once" }),
    )));
    // The call continues as long as its future is polled.
    let answer = tokio::select! {
        answer = peer.hit() => answer,
        _ = call.next() => panic!("nothing more is told"),
    };
    assert_eq!(
        (
            &answer.body["id"],
            &answer.body["result"]["content"]["said"]
        ),
        (&json!("q"), &json!("once"))
    );
    events.result(json!({ "content": [] })).await;
    soon(call.reply()).await.unwrap().unwrap();
    let next = client.ask(CALL, tool("next", json!({})));
    peer.expect("tools/call")
        .await
        .result(json!({ "content": [] }))
        .await;
    joined(next).await.unwrap();
    assert!(peer.is_quiet());
    answer.empty(202).await;
    client.stop().await;
}

/// Goal: the server gets an error if no caller can answer or the method is unknown, and an answer
/// to a ping. Method: a question without a caller, a method that no client has, a ping.
#[tokio::test]
async fn what_nobody_answers_is_refused() {
    let (mut peer, client) = connected(None).await;
    let asked = client.ask(CALL, tool("t", json!({})));
    let mut events = peer.expect("tools/call").await.stream().await;
    for (method, code) in [("roots/list", -7), ("sampling/other", -32601), ("ping", 0)] {
        events.ask(json!(7), method, json!({})).await;
        let answer = peer.hit().await;
        assert_eq!(
            answer.body["error"]["code"].as_i64().unwrap_or(0),
            code,
            "{method}: {}",
            answer.text
        );
        assert_eq!(answer.body["id"], 7);
        answer.empty(202).await;
    }
    events.result(json!({ "content": [] })).await;
    joined(asked).await.unwrap();
    client.stop().await;
}

/// Goal: progress and log messages reach the caller, in order and before the result. Method: both
/// on one stream, and progress with a foreign token.
#[tokio::test]
async fn callers_are_told() {
    let (mut peer, client) = connected(None).await;
    let mut call = client.call(CALL, tool("t", json!({})));
    let next = tokio::spawn(async move {
        let mut seen = Vec::new();
        while let Some(event) = soon(call.next()).await {
            seen.push(match event {
                CallEvent::Progress(p) => format!("{} of {:?}: {:?}", p.done, p.total, p.message),
                CallEvent::Log(log) => format!("{:?} {}", log.level(), log.0.get("odd").unwrap()),
                _ => "asked".into(),
            });
        }
        seen
    });
    let mut events = peer.expect("tools/call").await.stream().await;
    let token = events.token().clone();
    events
        .notify(
            "notifications/progress",
            json!({ "progressToken": 99_999, "progress": 9 }),
        )
        .await;
    events
        .notify(
            "notifications/progress",
            json!({ "progressToken": token, "progress": 1, "total": 2.5, "message": "m" }),
        )
        .await;
    events
        .notify(
            "notifications/message",
            json!({ "level": "warning", "data": "d", "odd": 1 }),
        )
        .await;
    events.result(json!({ "content": [] })).await;
    assert_eq!(
        joined(next).await,
        ["1 of Some(2.5): Some(\"m\")", "Warning 1"]
    );
    client.stop().await;
}

/// Goal: after a lost session the client reconnects once and repeats the call; the second time is a
/// failure. Method: 404 once, then twice in a row.
#[tokio::test]
async fn lost_sessions_begin_again_once() {
    let (mut peer, client) = connected(Some("a")).await;
    let asked = client.ask(CALL, tool("t", json!({})));
    peer.expect("tools/call").await.empty(404).await;
    // The lost session is ended at the server; its answer is ignored.
    let next = peer.hit().await;
    let next = if next.method == "DELETE" {
        next.empty(404).await;
        peer.hit().await
    } else {
        next
    };
    assert_eq!(next.body["method"], "initialize");
    assert_eq!(next.header("mcp-session-id"), None);
    let result = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": { "name": "p", "version": "1" } });
    let body = next.response(Ok(result)).to_string();
    next.write(200, "Mcp-Session-Id: b\r\n", "application/json", &body)
        .await;
    let mut refused = 0;
    let mut lost_again = 0;
    while lost_again == 0 {
        let hit = peer.hit().await;
        match (hit.method.as_str(), hit.body["method"].as_str()) {
            (_, Some("tools/call")) => {
                assert_eq!(hit.header("mcp-session-id"), Some("b"));
                lost_again += 1;
                hit.empty(404).await;
            }
            (_, Some(_)) => hit.empty(202).await,
            _ => {
                refused += 1;
                hit.empty(405).await;
            }
        }
    }
    assert!(refused <= 1);
    assert_eq!(
        joined(asked).await.unwrap_err().kind,
        FailureKind::Unavailable
    );
    client.stop().await;
}

/// Goal: a response to another request is no response. Method: another id, no response at all, no
/// JSON.
#[tokio::test]
async fn foreign_responses_are_no_answer() {
    let (mut peer, client) = connected(None).await;
    for body in [
        r#"{"jsonrpc":"2.0","id":"1","result":{}}"#,
        r#"{"jsonrpc":"2.0","id":9999,"result":{}}"#,
        "",
        "<html>",
    ] {
        let asked = client.ask(CALL, tool("t", json!({})));
        peer.expect("tools/call")
            .await
            .write(200, "", "application/json", body)
            .await;
        assert_eq!(
            joined(asked).await.unwrap_err().kind,
            FailureKind::Unavailable,
            "{body}"
        );
    }
    let seen = soon(client.agent.observe()).await;
    assert_eq!(seen["unknown_responses"], 2, "{seen}");
    client.stop().await;
}

/// Goal: the session ends with the client. Method: stop the agent, look for DELETE.
#[tokio::test]
async fn sessions_are_ended() {
    let (mut peer, client) = connected(Some("s")).await;
    client.agent.stop();
    let hit = peer.hit().await;
    assert_eq!(
        (hit.method.as_str(), hit.header("mcp-session-id")),
        ("DELETE", Some("s"))
    );
    hit.empty(200).await;
    client.stop().await;
}

/// Goal: HTTP errors have a kind that tells callers what to do. Method: a status of each kind.
#[tokio::test]
async fn statuses_are_failures() {
    let (mut peer, client) = connected(None).await;
    for (status, kind) in [
        (401, FailureKind::Denied),
        (403, FailureKind::Denied),
        (413, FailureKind::Overloaded),
        (429, FailureKind::Overloaded),
        (504, FailureKind::TimedOut),
        (500, FailureKind::Unavailable),
        // Redirects aren't followed: data would go to an unconfigured address.
        (307, FailureKind::Unavailable),
    ] {
        let asked = client.ask(CALL, tool("t", json!({})));
        let headers = "Location: http://127.0.0.1:9/elsewhere\r\n";
        peer.expect("tools/call")
            .await
            .write(status, headers, "text/plain", "no")
            .await;
        assert_eq!(joined(asked).await.unwrap_err().kind, kind, "{status}");
    }
    client.stop().await;
}

/// Goal: a server's description can be read, and unknown requests are forwarded, except those of
/// the connection. Method: describe; forward one of each.
#[tokio::test]
async fn the_rest_is_forwarded() {
    let (mut peer, client) = connected(None).await;
    let about = joined(client.ask("callboard.describe", json!({})))
        .await
        .unwrap();
    assert_eq!(about["serverInfo"]["name"], "p");
    for (name, payload, method, params) in [
        (
            "callboard.forward",
            json!({ "method": "odd/method", "params": { "x": 1 } }),
            "odd/method",
            json!({ "x": 1 }),
        ),
        (
            "callboard.resources.read",
            json!({ "uri": "a:b" }),
            "resources/read",
            json!({ "uri": "a:b" }),
        ),
        (
            "callboard.resources.templates.list",
            json!({}),
            "resources/templates/list",
            json!({}),
        ),
        (
            "callboard.complete",
            json!({ "ref": 1 }),
            "completion/complete",
            json!({ "ref": 1 }),
        ),
        (
            "callboard.resources.subscribe",
            json!({ "uri": "a:b" }),
            "resources/subscribe",
            json!({ "uri": "a:b" }),
        ),
    ] {
        let asked = client.ask(name, payload);
        let hit = peer.expect(method).await;
        assert_eq!(hit.body["params"], params);
        hit.result(json!({ "y": 2 })).await;
        assert_eq!(joined(asked).await.unwrap(), json!({ "y": 2 }));
    }
    let refused = joined(client.ask("callboard.forward", json!({ "method": "initialize" })))
        .await
        .unwrap_err();
    assert_eq!(refused.kind, FailureKind::Rejected);
    let unknown: Value = joined(client.ask("callboard.odd", json!({})))
        .await
        .unwrap_err()
        .message
        .into();
    assert_eq!(unknown, "MCP has no method for the message callboard.odd");
    client.stop().await;
}
