//! Broken streams, cancelled calls, oversized responses: legacy HTTP under strain.

use callboard_mcp::outbound::{
    CONCURRENT_ANSWERS_MAX, CONCURRENT_QUESTIONS_MAX, Era, McpClientOptions,
    RECONNECTS_MAX_DEFAULT, SUBSCRIPTIONS_MAX,
};
use callboard_message::FailureKind;
use callboard_runtime::CallContext;
use serde_json::json;

use crate::client_kit::{Client, Played, joined, only, tool};
use crate::client_legacy::{CALL, connected};
use crate::kit::soon;

/// Goal: a question on the GET stream during the first call is received. Method: a handshake; the
/// stream is requested before the call comes.
/// Rows: M-16.
#[tokio::test]
async fn the_stream_is_there_before_the_first_call() {
    let mut peer = Played::start().await;
    let client = Client::at(
        &peer.url,
        McpClientOptions {
            listen: true,
            ..only(Era::Legacy)
        },
    );
    let first = client.ask(CALL, tool("first", json!({})));
    peer.initialize("2025-11-25", Some("s-1")).await;
    let stream = peer.hit().await;
    assert_eq!(stream.method, "GET", "{}", stream.text);
    let _open = stream.stream().await;
    peer.expect("tools/call")
        .await
        .result(json!({ "content": [] }))
        .await;
    joined(first).await.unwrap();
    client.stop().await;
}

/// Goal: a broken stream is resumed at its position, after the delay that the server requires.
/// Method: an event with an id and a delay, the end, and the rest on a GET stream.
/// Rows: M-16, M-57.
#[tokio::test]
async fn broken_streams_are_resumed() {
    let (mut peer, client) = connected(Some("s")).await;
    let asked = client.ask(CALL, tool("t", json!({})));
    let mut events = peer.expect("tools/call").await.stream().await;
    let began = std::time::Instant::now();
    events.raw("id: e-1\nretry: 150\ndata:\n\n").await;
    let id = events.request["id"].clone();
    drop(events);
    let again = peer.hit().await;
    assert!(began.elapsed().as_millis() >= 150);
    assert_eq!(
        (again.method.as_str(), again.header("last-event-id")),
        ("GET", Some("e-1"))
    );
    assert_eq!(again.header("mcp-session-id"), Some("s"));
    let mut events = again.stream().await;
    events
        .say(json!({ "jsonrpc": "2.0", "id": id, "result": { "content": [], "late": true } }))
        .await;
    assert_eq!(joined(asked).await.unwrap()["late"], true);
    client.stop().await;
}

/// Goal: a stream that can't be resumed ends the call. Method: one without an event id; one whose
/// server refuses.
#[tokio::test]
async fn streams_without_a_place_fail() {
    let (mut peer, client) = connected(None).await;
    let asked = client.ask(CALL, tool("t", json!({})));
    drop(peer.expect("tools/call").await.stream().await);
    assert_eq!(
        joined(asked).await.unwrap_err().kind,
        FailureKind::Unavailable
    );
    let asked = client.ask(CALL, tool("t", json!({})));
    let mut events = peer.expect("tools/call").await.stream().await;
    events.raw("id: e-1\nretry: 1\ndata:\n\n").await;
    drop(events);
    peer.hit().await.empty(405).await;
    assert_eq!(
        joined(asked).await.unwrap_err().kind,
        FailureKind::Unavailable
    );
    client.stop().await;
}

/// Goal: attempts to resume a stream are limited. Method: a server that drops every attempt.
#[tokio::test]
async fn reconnects_are_bounded() {
    let (mut peer, client) = connected(None).await;
    let asked = client.ask(CALL, tool("t", json!({})));
    let mut events = peer.expect("tools/call").await.stream().await;
    events.raw("id: e-1\nretry: 1\ndata:\n\n").await;
    drop(events);
    for _ in 0..=RECONNECTS_MAX_DEFAULT {
        drop(peer.hit().await);
    }
    assert_eq!(
        joined(asked).await.unwrap_err().kind,
        FailureKind::Unavailable
    );
    assert!(peer.is_quiet());
    client.stop().await;
}

/// Goal: the server is notified of a cancelled call. Method: cancel the running call.
#[tokio::test]
async fn cancelled_calls_are_told() {
    let (mut peer, client) = connected(Some("s")).await;
    let meta = CallContext::new(std::sync::Arc::new(
        callboard_message::Principal::local_operator(),
    ));
    let cancel = meta.cancel.clone();
    let asked = client.ask_in(CALL, tool("t", json!({})), meta);
    let hit = peer.expect("tools/call").await;
    cancel.cancel();
    let told = peer.expect("notifications/cancelled").await;
    assert_eq!(told.body["params"]["requestId"], hit.body["id"]);
    told.empty(202).await;
    assert_eq!(
        joined(asked).await.unwrap_err().kind,
        FailureKind::Cancelled
    );
    client.stop().await;
}

/// Goal: a response that can't be read fails its call at once, although its stream goes on. Method: an
/// event that isn't a message, and one that is nested too deeply.
#[tokio::test]
async fn unreadable_events_fail_their_call() {
    let mut peer = Played::start().await;
    let client = Client::at(&peer.url, only(Era::Legacy));
    let asked = client.ask(CALL, tool("t", json!({})));
    peer.initialize("2025-11-25", None).await;
    let hit = peer.expect("tools/call").await;
    let id = hit.body["id"].clone();
    let mut events = hit.stream().await;
    let deep = format!("{}{}", "[".repeat(70), "]".repeat(70));
    let answer = format!(r#"{{"jsonrpc":"2.0","result":{deep},"id":{id}}}"#);
    for event in [r#"{"half":"#, &answer] {
        assert!(events.raw(&format!("data: {event}\n\n")).await);
    }
    let failed = joined(asked).await.unwrap_err();
    assert!(failed.message.contains("64"), "{failed}");
    client.stop().await;
}

/// Goal: responses are limited while they arrive, with and without declared length. Method: one
/// byte more than the limit, as a body and as an event; the limit itself passes.
#[tokio::test]
async fn large_responses_are_refused() {
    let mut peer = Played::start().await;
    let limits = callboard_rpc::DecodeLimits {
        body_bytes_max: 1_000,
        ..Default::default()
    };
    let client = Client::at(
        &peer.url,
        McpClientOptions {
            limits,
            ..only(Era::Legacy)
        },
    );
    let result = |bytes: usize| json!({ "content": [], "fill": "x".repeat(bytes) });
    let mut first = true;
    for (more, as_stream, passes) in [
        (0, false, true),
        (1, false, false),
        (0, true, true),
        (1, true, false),
    ] {
        let asked = client.ask(CALL, tool("t", json!({})));
        if std::mem::take(&mut first) {
            peer.initialize("2025-11-25", None).await;
        }
        let hit = peer.expect("tools/call").await;
        let bare = hit.response(Ok(result(0))).to_string().len();
        let body = hit.response(Ok(result(1_000 - bare + more))).to_string();
        // An event may have some bytes besides its message.
        let body = if more == 1 && as_stream {
            format!("{body}{}", " ".repeat(1_024))
        } else {
            body
        };
        match as_stream {
            false => hit.write(200, "", "application/json", &body).await,
            true => {
                let mut events = hit.stream().await;
                events.raw(&format!("data: {body}\n\n")).await;
            }
        }
        let outcome = joined(asked).await;
        assert_eq!(outcome.is_ok(), passes, "{more} {as_stream} {outcome:?}");
        if let Err(failure) = outcome {
            assert_eq!(failure.kind, FailureKind::Overloaded);
        }
    }
    client.stop().await;
}

/// Goal: open questions of a server are limited. Method: one more than the limit, on one stream;
/// the last is rejected while the others wait.
#[tokio::test]
async fn open_questions_are_bounded() {
    let (mut peer, client) = connected(None).await;
    let mut call = client.call(CALL, tool("t", json!({})));
    let holding = tokio::spawn(async move {
        let mut held = Vec::new();
        while let Some(event) = soon(call.next()).await {
            held.push(event);
        }
        held.len()
    });
    let mut events = peer.expect("tools/call").await.stream().await;
    for n in 0..=CONCURRENT_QUESTIONS_MAX {
        events.ask(json!(n), "roots/list", json!({})).await;
    }
    let refused = peer.hit().await;
    assert_eq!(refused.body["id"], CONCURRENT_QUESTIONS_MAX);
    assert_eq!(refused.body["error"]["code"], -3);
    refused.empty(202).await;
    events.result(json!({ "content": [] })).await;
    assert_eq!(joined(holding).await, CONCURRENT_QUESTIONS_MAX);
    client.stop().await;
}

/// Goal: subscribed resources are limited. Method: one resource more than the limit, then one less.
#[tokio::test]
async fn subscriptions_are_bounded() {
    let (mut peer, client) = connected(None).await;
    let subscribe = |n: usize| {
        client.ask(
            "callboard.resources.subscribe",
            json!({ "uri": format!("a:{n}") }),
        )
    };
    for n in 0..SUBSCRIPTIONS_MAX {
        let asked = subscribe(n);
        peer.expect("resources/subscribe")
            .await
            .result(json!({}))
            .await;
        joined(asked).await.unwrap();
    }
    assert_eq!(
        joined(subscribe(SUBSCRIPTIONS_MAX)).await.unwrap_err().kind,
        FailureKind::Overloaded
    );
    let asked = client.ask("callboard.resources.unsubscribe", json!({ "uri": "a:0" }));
    peer.expect("resources/unsubscribe")
        .await
        .result(json!({}))
        .await;
    joined(asked).await.unwrap();
    let asked = subscribe(SUBSCRIPTIONS_MAX);
    peer.expect("resources/subscribe")
        .await
        .result(json!({}))
        .await;
    joined(asked).await.unwrap();
    client.stop().await;
}

/// Goal: a server that asks without end and reads no answer uses a limited number of connections.
/// Method: pings above the limit whose answers it leaves unread; another call shows that nothing
/// more was sent.
#[tokio::test]
async fn answers_on_their_way_are_bounded() {
    let (mut peer, client) = connected(None).await;
    let asked = client.ask(CALL, tool("t", json!({})));
    let mut events = peer.expect("tools/call").await.stream().await;
    for id in 0..2 * CONCURRENT_ANSWERS_MAX {
        events.ask(json!(id), "ping", json!({})).await;
    }
    let mut waiting = Vec::new();
    for _ in 0..CONCURRENT_ANSWERS_MAX {
        waiting.push(peer.hit().await);
    }
    let other = client.ask(CALL, tool("u", json!({})));
    peer.expect("tools/call")
        .await
        .result(json!({ "content": [] }))
        .await;
    assert!(joined(other).await.is_ok());
    assert!(peer.is_quiet());
    // Each answer that is read makes room for one.
    for answer in waiting {
        answer.empty(202).await;
        peer.hit().await.empty(202).await;
    }
    events.result(json!({ "content": [] })).await;
    assert!(joined(asked).await.is_ok());
    client.stop().await;
}
