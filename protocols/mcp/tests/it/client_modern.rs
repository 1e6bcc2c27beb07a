//! The client over streamable HTTP in the modern era, and its detection of a server's era.

use std::sync::Arc;

use callboard_mcp::outbound::{Era, EraChoice, McpClient, McpClientOptions, ServerEndpoint};
use callboard_message::{
    Answer, CapabilityChange, ElicitationAnswer, FailureKind, Question, RootsAnswer,
};
use callboard_runtime::testkit::Probe;
use callboard_runtime::{AgentChanged, CallContext, CallEvent, System};
use serde_json::{Value, json};

use crate::client_kit::{Client, Played, auto, joined, only, tool};
use crate::kit::soon;

const CALL: &str = "callboard.tools.call";
const META: &str = "io.modelcontextprotocol/";

async fn connected(tools: Value) -> (Played, Client) {
    let mut peer = Played::start().await;
    let client = Client::at(&peer.url, only(Era::Modern));
    let asked = client.ask("callboard.tools.list", json!({}));
    peer.discover(json!({ "tools": {} })).await;
    peer.expect("tools/list")
        .await
        .result(json!({ "resultType": "complete", "tools": tools }))
        .await;
    joined(asked).await.unwrap();
    (peer, client)
}

fn done() -> Value {
    json!({ "resultType": "complete", "content": [] })
}

/// Goal: each request is self-contained, in body and headers, and other members are unchanged.
/// Method: check one without and one with a caller.
#[tokio::test]
async fn requests_say_everything() {
    let (mut peer, client) = connected(json!([])).await;
    let own = json!({ "a.b/c": 1, "progressToken": "theirs" });
    let asked = client.ask(
        CALL,
        json!({ "name": "Größe", "arguments": { "x": 1 }, "_meta": own, "odd": 1 }),
    );
    let hit = peer.expect("tools/call").await;
    assert_eq!(hit.header("mcp-protocol-version"), Some("2026-07-28"));
    assert_eq!(hit.header("mcp-method"), Some("tools/call"));
    assert_eq!(hit.header("mcp-name"), Some("=?base64?R3LDtsOfZQ==?="));
    assert_eq!(hit.header("mcp-session-id"), None);
    let params = &hit.body["params"];
    assert_eq!(
        (&params["odd"], &params["_meta"]["a.b/c"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(
        params["_meta"][format!("{META}protocolVersion")],
        "2026-07-28"
    );
    assert_eq!(
        params["_meta"][format!("{META}clientInfo")]["name"],
        "callboard"
    );
    assert_eq!(
        params["_meta"][format!("{META}clientCapabilities")],
        json!({})
    );
    hit.result(done()).await;
    assert_eq!(joined(asked).await.unwrap(), done());

    let _call = client.call(CALL, tool("t", json!({})));
    let mut call = _call;
    let next = tokio::spawn(async move { soon(call.next()).await.is_none() });
    let hit = peer.expect("tools/call").await;
    let can = &hit.body["params"]["_meta"][format!("{META}clientCapabilities")];
    assert!(
        can["elicitation"]["form"].is_object() && can["roots"].is_object(),
        "{can}"
    );
    assert_eq!(hit.body["params"]["_meta"]["progressToken"], hit.body["id"]);
    assert!(
        hit.body["params"]["_meta"]["traceparent"]
            .as_str()
            .unwrap()
            .starts_with("00-")
    );
    assert_eq!(hit.body["params"]["_meta"]["callboard/hops"], 1);
    hit.result(done()).await;
    assert!(joined(next).await);
    client.stop().await;
}

/// Goal: a server's questions are asked concurrently, and the retry has answers and state
/// unchanged, under a new id. Method: two questions and a state with odd bytes; then a round with
/// neither state nor answers of the first.
#[tokio::test]
async fn rounds_of_questions() {
    let (mut peer, client) = connected(json!([])).await;
    let mut call = client.call(CALL, tool("t", json!({ "x": 1 })));
    let answering = tokio::spawn(async move {
        let mut held = Vec::new();
        while let Some(event) = soon(call.next()).await {
            let CallEvent::Question(pending) = event else {
                continue;
            };
            held.push(pending);
            // Both are open before either is answered.
            if held.len() == 2 {
                for pending in held.drain(..) {
                    let answer = match &pending.question {
                        Question::Elicit(_) => {
                            Answer::Elicit(ElicitationAnswer::accept(json!({ "n": 1 })))
                        }
                        _ => Answer::Roots(RootsAnswer::from_roots(vec![])),
                    };
                    pending.answer(answer);
                }
            }
        }
        call.reply().await.unwrap()
    });
    let first = peer.expect("tools/call").await;
    let (id, params) = (first.body["id"].clone(), first.body["params"].clone());
    let questions = json!({
        "b": { "method": "elicitation/create", "params": { "message": "m", "requestedSchema": {} } },
        "a": { "method": "roots/list" },
    });
    let state = r#""\u00e9 opaque ""#;
    let result = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"input_required","inputRequests":{questions},"requestState":{state}}}}}"#
    );
    first.write(200, "", "application/json", &result).await;
    let second = peer.expect("tools/call").await;
    assert_ne!(second.body["id"], id);
    assert!(
        second.text.contains(&format!(r#""requestState":{state}"#)),
        "{}",
        second.text
    );
    let answers = &second.body["params"]["inputResponses"];
    assert_eq!(
        answers,
        &json!({ "b": { "action": "accept", "content": { "n": 1 } }, "a": { "roots": [] } })
    );
    assert_eq!(second.body["params"]["arguments"], params["arguments"]);
    second
        .result(json!({ "resultType": "input_required", "requestState": "only" }))
        .await;
    let third = peer.expect("tools/call").await;
    assert_eq!(third.body["params"]["requestState"], "only");
    assert!(third.body["params"].get("inputResponses").is_none());
    third.result(done()).await;
    joined(answering).await.unwrap();
    client.stop().await;
}

/// Goal: rounds of questions are limited, and invalid ones are rejected. Method: one round more
/// than the limit; a round without questions and state; a list that asks; an unknown type.
#[tokio::test]
async fn rounds_are_bounded() {
    let mut peer = Played::start().await;
    let options = McpClientOptions {
        rounds_max: 2,
        ..only(Era::Modern)
    };
    let client = Client::at(&peer.url, options);
    let state = json!({ "resultType": "input_required", "requestState": "s" });
    for (replies, kind) in [
        (vec![state.clone(), state.clone(), done()], None),
        (
            vec![state.clone(), state.clone(), state.clone()],
            Some(FailureKind::Overloaded),
        ),
        (
            vec![json!({ "resultType": "input_required" })],
            Some(FailureKind::Unavailable),
        ),
        (
            vec![json!({ "resultType": "odd" })],
            Some(FailureKind::Unavailable),
        ),
        (vec![json!({ "content": [] })], None),
    ] {
        let asked = client.ask(CALL, tool("t", json!({})));
        for reply in replies {
            let hit = loop {
                let hit = peer.hit().await;
                match hit.body["method"].as_str() {
                    Some("server/discover") => {
                        hit.result(
                            json!({ "supportedVersions": ["2026-07-28"], "capabilities": {} }),
                        )
                        .await;
                    }
                    Some("tools/list") => hit.result(json!({ "tools": [] })).await,
                    _ => break hit,
                }
            };
            hit.result(reply).await;
        }
        assert_eq!(joined(asked).await.err().map(|f| f.kind), kind);
    }
    let asked = client.ask("callboard.prompts.list", json!({}));
    peer.expect("prompts/list").await.result(state).await;
    assert_eq!(
        joined(asked).await.unwrap_err().kind,
        FailureKind::Unavailable
    );
    client.stop().await;
}

/// Goal: the questions of a round are limited. Method: one more than the limit.
#[tokio::test]
async fn questions_of_a_round_are_bounded() {
    let (mut peer, client) = connected(json!([])).await;
    let asked = client.ask(CALL, tool("t", json!({})));
    let one_more = 0..=callboard_mcp::outbound::CONCURRENT_QUESTIONS_MAX;
    let questions: Value = one_more
        .map(|n| (format!("q{n}"), json!({ "method": "roots/list" })))
        .collect();
    peer.expect("tools/call")
        .await
        .result(json!({ "resultType": "input_required", "inputRequests": questions }))
        .await;
    assert_eq!(
        joined(asked).await.unwrap_err().kind,
        FailureKind::Overloaded
    );
    client.stop().await;
}

/// Goal: a question that no caller can answer ends the call with the reason. Method: a question
/// without a caller.
#[tokio::test]
async fn nobody_to_ask() {
    let (mut peer, client) = connected(json!([])).await;
    let asked = client.ask(CALL, tool("t", json!({})));
    let question = json!({ "q": { "method": "roots/list" } });
    peer.expect("tools/call")
        .await
        .result(json!({ "resultType": "input_required", "inputRequests": question }))
        .await;
    assert_eq!(
        joined(asked).await.unwrap_err().kind,
        FailureKind::NoResponder
    );
    client.stop().await;
}

/// Goal: arguments that a tool's schema maps to headers are sent there, known before the first call
/// and updated when the server reports a mismatch; flawed tools are neither listed nor called.
/// Method: a server that changes its schema.
#[tokio::test]
async fn arguments_are_mirrored() {
    let mut peer = Played::start().await;
    let client = Client::at(&peer.url, only(Era::Modern));
    let listed = |header: &str| {
        let good = json!({ "name": "good", "inputSchema": { "properties": { "r": { "type": "string", "x-mcp-header": header } } } });
        let bad = json!({ "name": "bad", "inputSchema": { "properties": { "r": { "type": "number", "x-mcp-header": "R" } } } });
        json!({ "resultType": "complete", "tools": [good, bad] })
    };
    let asked = client.ask(CALL, tool("good", json!({ "r": "eu" })));
    peer.discover(json!({ "tools": {} })).await;
    peer.expect("tools/list").await.result(listed("Old")).await;
    let hit = peer.expect("tools/call").await;
    assert_eq!(hit.header("mcp-param-old"), Some("eu"));
    hit.error(400, json!({ "code": -32020, "message": "header mismatch" }))
        .await;
    peer.expect("tools/list").await.result(listed("New")).await;
    let hit = peer.expect("tools/call").await;
    assert_eq!(
        (hit.header("mcp-param-new"), hit.header("mcp-param-old")),
        (Some("eu"), None)
    );
    hit.result(done()).await;
    joined(asked).await.unwrap();

    let asked = client.ask("callboard.tools.list", json!({}));
    peer.expect("tools/list").await.result(listed("New")).await;
    let tools = joined(asked).await.unwrap()["tools"].clone();
    assert_eq!(tools.as_array().unwrap().len(), 1, "{tools}");
    let refused = joined(client.ask(CALL, tool("bad", json!({ "r": 1 }))))
        .await
        .unwrap_err();
    assert_eq!(refused.kind, FailureKind::Rejected);
    assert!(peer.is_quiet());
    client.stop().await;
}

/// Goal: a list without end is read up to the limit. Method: a cursor on every page.
#[tokio::test]
async fn pages_are_bounded() {
    let mut peer = Played::start().await;
    let client = Client::at(
        &peer.url,
        McpClientOptions {
            pages_max: 3,
            ..only(Era::Modern)
        },
    );
    let asked = client.ask(CALL, tool("t", json!({})));
    peer.discover(json!({})).await;
    for page in 0..3 {
        let hit = peer.expect("tools/list").await;
        assert_eq!(
            hit.body["params"]["cursor"],
            if page == 0 {
                Value::Null
            } else {
                json!("more")
            }
        );
        hit.result(json!({ "tools": [], "nextCursor": "more" }))
            .await;
    }
    peer.expect("tools/call").await.result(done()).await;
    joined(asked).await.unwrap();
    client.stop().await;
}

/// Goal: cancelling closes the connection, which a modern server takes as cancellation. Method:
/// cancel before and within the response's stream.
#[tokio::test]
async fn cancelling_closes_the_stream() {
    let (mut peer, client) = connected(json!([])).await;
    let meta = CallContext::new(Arc::new(callboard_message::Principal::local_operator()));
    let cancel = meta.cancel.clone();
    let asked = client.ask_in(CALL, tool("t", json!({})), meta);
    let mut events = peer.expect("tools/call").await.stream().await;
    cancel.cancel();
    events.closed().await;
    assert_eq!(
        joined(asked).await.unwrap_err().kind,
        FailureKind::Cancelled
    );
    assert!(peer.is_quiet());
    client.stop().await;
}

/// Goal: a server's era is detected once and remembered. Method: servers that answer the probe in
/// different ways; then a new incarnation of the client.
#[tokio::test]
async fn legacy_servers_are_found() {
    for (status, body) in [
        (404, ""),
        (
            400,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no session"}}"#,
        ),
        (
            200,
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"what?"}}"#,
        ),
        (200, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#),
        (
            400,
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":"v","data":{"supported":["2025-06-18"]}}}"#,
        ),
        (500, "oops"),
    ] {
        let mut peer = Played::start().await;
        let system = System::start(1).unwrap();
        let client = McpClient::new(ServerEndpoint::from_url(&peer.url).unwrap(), auto()).unwrap();
        let again = client.clone();
        let client = Client {
            agent: system.spawn(client),
            system,
        };
        let asked = client.ask(CALL, tool("t", json!({})));
        peer.expect("server/discover")
            .await
            .write(status, "", "application/json", body)
            .await;
        peer.initialize("2025-11-25", None).await;
        peer.expect("tools/call")
            .await
            .result(json!({ "content": [] }))
            .await;
        joined(asked).await.unwrap();
        let second = Client {
            agent: client.system.spawn(again),
            system: client.system.clone(),
        };
        let asked = second.ask(CALL, tool("t", json!({})));
        peer.initialize("2025-11-25", None).await;
        peer.expect("tools/call")
            .await
            .result(json!({ "content": [] }))
            .await;
        joined(asked).await.unwrap();
        client.stop().await;
    }
}

/// Goal: a modern server is never taken for a legacy one. Method: it rejects the first revision and
/// names the same; it has only revisions from the future.
#[tokio::test]
async fn modern_servers_are_found() {
    let mut peer = Played::start().await;
    let client = Client::at(&peer.url, auto());
    let asked = client.ask("callboard.describe", json!({}));
    let error = json!({ "code": -32022, "message": "v", "data": { "supported": ["2026-07-28"] } });
    peer.expect("server/discover").await.error(400, error).await;
    peer.discover(json!({ "tools": {} })).await;
    assert_eq!(
        joined(asked).await.unwrap()["protocolVersion"],
        "2026-07-28"
    );
    client.stop().await;

    let mut peer = Played::start().await;
    let client = Client::at(&peer.url, auto());
    let asked = client.ask("callboard.describe", json!({}));
    let error = json!({ "code": -32022, "message": "v", "data": { "supported": ["2031-01-01"] } });
    peer.expect("server/discover").await.error(400, error).await;
    assert_eq!(joined(asked).await.unwrap_err().kind, FailureKind::Rejected);
    assert!(peer.is_quiet());
    client.stop().await;
}

/// Goal: an unwanted era isn't used. Method: a legacy server, a client that wants the modern one.
#[tokio::test]
async fn unwanted_eras_are_refused() {
    let mut peer = Played::start().await;
    let client = Client::at(
        &peer.url,
        McpClientOptions {
            era: EraChoice::Only(Era::Modern),
            ..auto()
        },
    );
    let asked = client.ask("callboard.describe", json!({}));
    peer.expect("server/discover").await.empty(404).await;
    assert_eq!(
        joined(asked).await.unwrap_err().kind,
        FailureKind::Unavailable
    );
    client.stop().await;
}

/// Goal: followers of the agent receive changes of lists and of the subscribed resources. Method: a
/// server that offers them; a subscription that replaces the first; a change on each.
#[tokio::test]
async fn changes_are_told() {
    let mut peer = Played::start().await;
    let client = Client::at(
        &peer.url,
        McpClientOptions {
            listen: true,
            ..only(Era::Modern)
        },
    );
    let (follower, mut seen) = Probe::<AgentChanged>::spawn(&client.system, |_| ());
    client.agent.follow(follower.recipient().unwrap());
    let asked = client.ask("callboard.describe", json!({}));
    peer.discover(
        json!({ "tools": { "listChanged": true }, "resources": { "listChanged": false } }),
    )
    .await;
    joined(asked).await.unwrap();
    let hit = peer.expect("subscriptions/listen").await;
    assert_eq!(
        hit.body["params"]["notifications"],
        json!({ "toolsListChanged": true })
    );
    let mut first = hit.stream().await;
    first
        .notify(
            "notifications/subscriptions/acknowledged",
            json!({ "notifications": {} }),
        )
        .await;
    first
        .notify("notifications/tools/list_changed", json!({}))
        .await;
    assert_eq!(
        soon(seen.recv()).await.unwrap().change,
        CapabilityChange::Tools
    );

    let asked = client.ask("callboard.resources.subscribe", json!({ "uri": "a:b" }));
    let hit = peer.expect("subscriptions/listen").await;
    assert_eq!(
        hit.body["params"]["notifications"]["resourceSubscriptions"],
        json!(["a:b"])
    );
    let mut second = hit.stream().await;
    second
        .notify(
            "notifications/subscriptions/acknowledged",
            json!({ "notifications": {} }),
        )
        .await;
    joined(asked).await.unwrap();
    first.closed().await;
    second
        .notify("notifications/resources/updated", json!({ "uri": "a:b" }))
        .await;
    assert_eq!(
        soon(seen.recv()).await.unwrap().change,
        CapabilityChange::Resource("a:b".into())
    );
    client.stop().await;
}

/// Goal: a rejected request is sent again with the authorizer's new token, a limited number of
/// times. Method: an authorizer that counts, instead of the configured header; a server that
/// rejects twice, then always.
#[tokio::test]
async fn refusals_go_to_the_authorizer() {
    use callboard_mcp::outbound::auth::{AuthChallenge, AuthError, Authorizer};
    use futures::future::BoxFuture;
    use secrecy::SecretString;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    struct Counting(AtomicU32);
    impl Authorizer for Counting {
        fn authorization(&self) -> BoxFuture<'_, Result<Option<SecretString>, AuthError>> {
            Box::pin(async { Ok(Some(format!("Bearer t{}", self.0.load(SeqCst)).into())) })
        }
        fn handle_challenge<'a>(
            &'a self,
            challenge: AuthChallenge<'a>,
        ) -> BoxFuture<'a, Result<bool, AuthError>> {
            assert_eq!(challenge.www_authenticate, ["Bearer error=\"x\""]);
            self.0.fetch_add(1, SeqCst);
            Box::pin(async { Ok(true) })
        }
    }
    let mut peer = Played::start().await;
    let options = McpClientOptions {
        authorizer: Some(Arc::new(Counting(AtomicU32::new(0)))),
        ..only(Era::Modern)
    };
    let options = options
        .with_header("Authorization", &"Bearer fixed".to_owned().into())
        .unwrap();
    let client = Client::at(&peer.url, options);
    let asked = client.ask("callboard.describe", json!({}));
    let told = "WWW-Authenticate: Bearer error=\"x\"\r\n";
    for n in 0..2 {
        let hit = peer.expect("server/discover").await;
        assert_eq!(
            hit.header("authorization"),
            Some(format!("Bearer t{n}").as_str())
        );
        hit.write(401, told, "text/plain", "").await;
    }
    peer.discover(json!({})).await;
    joined(asked).await.unwrap();
    let asked = client.ask("callboard.prompts.list", json!({}));
    for _ in 0..=callboard_mcp::outbound::AUTH_REJECTIONS_MAX {
        peer.expect("prompts/list")
            .await
            .write(403, told, "text/plain", "")
            .await;
    }
    assert_eq!(joined(asked).await.unwrap_err().kind, FailureKind::Denied);
    client.stop().await;
}

/// Goal: a server of both eras over HTTP that may ask is met where it can: in the legacy era if it
/// has sessions there, otherwise in the modern one. Method: one that gives a session id, one that
/// gives none, and one that rejects `initialize`.
#[tokio::test]
async fn servers_are_met_where_they_can_ask() {
    for (session, is_legacy) in [(Some(Some("s")), true), (Some(None), false), (None, false)] {
        let mut peer = Played::start().await;
        let options = McpClientOptions {
            expects_questions: true,
            ..auto()
        };
        let client = Client::at(&peer.url, options);
        let asked = client.ask("callboard.prompts.get", json!({ "name": "p" }));
        peer.discover(json!({ "prompts": {} })).await;
        match session {
            Some(session) => drop(peer.initialize("2025-11-25", session).await),
            None => {
                let error = json!({ "code": -32601, "message": "no" });
                peer.expect("initialize").await.error(404, error).await;
            }
        }
        let hit = peer.expect("prompts/get").await;
        assert_eq!(hit.header("mcp-session-id").is_some(), is_legacy);
        assert_eq!(hit.header("mcp-method").is_none(), is_legacy);
        hit.result(json!({ "messages": [] })).await;
        joined(asked).await.unwrap();
        peer.skips = |hit| hit.method == "DELETE";
        client.stop().await;
    }
}
