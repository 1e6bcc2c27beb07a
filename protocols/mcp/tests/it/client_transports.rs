//! The client where a server has moved, frames its messages in another way, or is found by another
//! transport only.

use std::time::{Duration, Instant};

use callboard_mcp::outbound::{Era, McpClient, McpClientOptions, ServerEndpoint};
use callboard_message::{Answer, ElicitationAnswer, FailureKind};
use callboard_rpc::READS_PER_SECOND_MAX;
use callboard_runtime::{CallEvent, System};
use serde_json::{Value, json};

use crate::client_kit::{Client, Played, auto, joined, only, tool};
use crate::kit::soon;

const CALL: &str = "callboard.tools.call";
/// Media type of a body with one message per line.
const LINES: &str = "application/x-ndjson";

/// Goal: a server that has moved within its origin is followed once, with headers and body, and its
/// new URL is used from then on. Method: 307 or 308 to the handshake; then to a later request.
/// Rows: M-57.
#[tokio::test]
async fn moved_servers_are_followed_once() {
    for status in [307, 308] {
        let mut peer = Played::start().await;
        let options = only(Era::Legacy);
        let options = options
            .with_header("X-Key", &"key".to_owned().into())
            .unwrap();
        let client = Client::at(&peer.url, options);
        let asked = client.ask(CALL, tool("t", json!({})));
        let first = peer.expect("initialize").await;
        let sent = first.text.clone();
        first
            .write(status, "Location: /mcp/?to=1\r\n", "text/plain", "")
            .await;
        let second = peer.expect("initialize").await;
        assert_eq!(
            (&second.target, &second.text),
            (&"/mcp/?to=1".to_owned(), &sent)
        );
        assert_eq!(second.header("x-key"), Some("key"));
        let result = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": { "name": "p", "version": "1" } });
        second.result(result).await;
        let notified = peer.expect("notifications/initialized").await;
        assert_eq!(notified.target, "/mcp/?to=1");
        notified.empty(202).await;
        let call = peer.expect("tools/call").await;
        assert_eq!(call.target, "/mcp/?to=1");
        call.result(json!({ "content": [] })).await;
        joined(asked).await.unwrap();
        let asked = client.ask(CALL, tool("t", json!({})));
        peer.expect("tools/call")
            .await
            .write(status, "Location: /other\r\n", "text/plain", "")
            .await;
        let failed = joined(asked).await.unwrap_err();
        assert!(failed.message.contains("/other"), "{failed}");
        assert!(peer.is_quiet());
        client.stop().await;
    }
}

/// Goal: where the GET stream or a failed request is redirected doesn't decide where messages go.
/// Method: a redirect of the stream, which is followed; then one of a call to a URL that fails; a
/// call after each.
#[tokio::test]
async fn only_successful_posts_move_a_server() {
    let mut peer = Played::start().await;
    let options = McpClientOptions {
        listen: true,
        ..only(Era::Legacy)
    };
    let client = Client::at(&peer.url, options);
    let asked = client.ask(CALL, tool("t", json!({})));
    peer.initialize("2025-11-25", Some("s-1")).await;
    let stream = peer.hit().await;
    assert_eq!(stream.method, "GET", "{}", stream.text);
    stream
        .write(307, "Location: /stream\r\n", "text/plain", "")
        .await;
    let stream = peer.hit().await;
    assert_eq!(
        (&*stream.method, &*stream.target),
        ("GET", "/stream"),
        "{}",
        stream.text
    );
    let _open = stream.stream().await;
    let call = peer.expect("tools/call").await;
    assert_eq!(call.target, "/mcp");
    call.write(307, "Location: /down\r\n", "text/plain", "")
        .await;
    let call = peer.expect("tools/call").await;
    assert_eq!(call.target, "/down");
    call.empty(500).await;
    joined(asked).await.unwrap_err();
    let asked = client.ask(CALL, tool("t", json!({})));
    let call = peer.expect("tools/call").await;
    assert_eq!(call.target, "/mcp");
    call.result(json!({ "content": [] })).await;
    joined(asked).await.unwrap();
    client.stop().await;
}

/// Goal: a flood of lines in a response is read at the limited rate. Method: one line more than the
/// limit of a second, then the result.
#[tokio::test]
async fn lines_over_http_are_paced() {
    let mut peer = Played::start().await;
    let client = Client::at(&peer.url, only(Era::Legacy));
    let asked = client.ask(CALL, tool("t", json!({})));
    peer.initialize("2025-11-25", None).await;
    let hit = peer.expect("tools/call").await;
    let noise = "{}\n".repeat(READS_PER_SECOND_MAX as usize);
    let response = hit.response(Ok(json!({ "content": [] })));
    let begun = Instant::now();
    hit.write(200, "", LINES, &format!("{noise}{response}\n"))
        .await;
    joined(asked).await.unwrap();
    assert!(
        begun.elapsed() >= Duration::from_secs(1),
        "{:?}",
        begun.elapsed()
    );
    client.stop().await;
}

/// Goal: nothing is sent to another origin, and the error names it, without what may be secret.
/// Method: redirects to another host, to https, and with a status that changes the method; with each
/// detection of the era.
#[tokio::test]
async fn foreign_redirects_are_named() {
    for (status, to, named) in [
        (
            307,
            "https://elsewhere.example/mcp?key=s3cret",
            "https://elsewhere.example/mcp (HTTP status 307)",
        ),
        (308, "//elsewhere.example/x", "http://elsewhere.example/x"),
        (302, "/mcp/", "/mcp/ (HTTP status 302)"),
    ] {
        for options in [only(Era::Legacy), auto()] {
            let mut peer = Played::start().await;
            let client = Client::at(&peer.url, options.clone());
            let asked = client.ask(CALL, tool("t", json!({})));
            let redirect = format!("Location: {to}\r\n");
            let probes = if options.era == auto().era { 2 } else { 1 };
            for _ in 0..probes {
                peer.hit()
                    .await
                    .write(status, &redirect, "text/plain", "")
                    .await;
            }
            let failed = joined(asked).await.unwrap_err();
            assert_eq!(failed.kind, FailureKind::Unavailable);
            assert!(failed.message.contains(named), "{failed}");
            assert!(!failed.message.contains("s3cret"), "{failed}");
            assert!(peer.is_quiet());
            client.stop().await;
        }
    }
}

/// Goal: a response of several lines is read as they come: questions are asked in the course of the
/// call, and what can't be read is skipped. Method: log, noise and a question; after the answer a line
/// over the limit and the result; then bodies without a result.
/// Rows: M-16.
#[tokio::test]
async fn lines_over_http_are_messages() {
    let mut peer = Played::start().await;
    let limits = callboard_rpc::DecodeLimits {
        body_bytes_max: 1_000,
        ..Default::default()
    };
    let options = McpClientOptions {
        limits,
        ..only(Era::Legacy)
    };
    let client = Client::at(&peer.url, options);
    let mut call = client.call(CALL, tool("t", json!({})));
    let answering = tokio::spawn(async move {
        let mut logged = Vec::new();
        while let Some(event) = soon(call.next()).await {
            match event {
                CallEvent::Question(pending) => {
                    pending.answer(Answer::Elicit(ElicitationAnswer::decline()))
                }
                CallEvent::Log(line) => logged.extend(line.0.text("data")),
                _ => {}
            }
        }
        (call.reply().await.unwrap(), logged)
    });
    peer.initialize("2025-11-25", None).await;
    let hit = peer.expect("tools/call").await;
    let response = hit.response(Ok(json!({ "content": [], "n": 1 })));
    let mut lines = hit.begin(LINES).await;
    let log = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info", "data": "begun" } });
    let question = json!({ "jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": { "message": "m" } });
    assert!(lines.raw(&format!("{log}\r\n\nnoise\n{question}\n")).await);
    let answer = peer.hit().await;
    assert_eq!(
        answer.body,
        json!({ "jsonrpc": "2.0", "id": "q", "result": { "action": "decline" } })
    );
    answer.empty(202).await;
    let long = json!({ "jsonrpc": "2.0", "method": "m", "params": { "fill": "x".repeat(1_000) } });
    // The last line has no end.
    assert!(lines.raw(&format!("{long}\n{response}")).await);
    drop(lines);
    let (reply, logged) = joined(answering).await;
    let reply: Value = serde_json::from_str(reply.unwrap().get()).unwrap();
    assert_eq!(
        (&reply["n"], &*logged),
        (&json!(1), &["begun".to_owned()][..])
    );

    for (answers_it, kind) in [
        (false, FailureKind::Unavailable),
        (true, FailureKind::Overloaded),
    ] {
        let asked = client.ask(CALL, tool("t", json!({})));
        let hit = peer.expect("tools/call").await;
        let long = hit.response(Ok(json!({ "fill": "x".repeat(1_000) })));
        let body = if answers_it {
            format!("{log}\n{long}\n")
        } else {
            format!("{log}\n")
        };
        hit.write(200, "", LINES, &body).await;
        assert_eq!(joined(asked).await.unwrap_err().kind, kind);
    }
    client.stop().await;
}

/// Goal: a server whose WebSocket can't be opened is found at the same URL over HTTP, unless its
/// transport is fixed. Method: a server that rejects the upgrade and answers POST.
/// Rows: M-54, M-57.
#[tokio::test]
async fn dead_websockets_are_replaced() {
    for is_transport_fixed in [false, true] {
        let mut peer = Played::start().await;
        let options = McpClientOptions {
            is_transport_fixed,
            ..only(Era::Legacy)
        };
        let client = Client::at(&peer.url.replace("http://", "ws://"), options);
        let asked = client.ask(CALL, tool("t", json!({})));
        let upgrade = peer.hit().await;
        assert_eq!(upgrade.header("upgrade"), Some("websocket"));
        upgrade.empty(404).await;
        if is_transport_fixed {
            let failed = joined(asked).await.unwrap_err();
            assert!(failed.message.contains("404"), "{failed}");
            assert!(peer.is_quiet());
        } else {
            peer.initialize("2025-11-25", None).await;
            peer.expect("tools/call")
                .await
                .result(json!({ "content": [] }))
                .await;
            joined(asked).await.unwrap();
        }
        client.stop().await;
    }
}

/// Goal: where neither transport works, the error names both; a server that rejects the credentials
/// isn't tried again. Method: a port without a listener; status 401 to the upgrade.
#[tokio::test]
async fn both_transports_are_named() {
    let client = Client::at("ws://127.0.0.1:9/mcp", auto());
    let failed = joined(client.ask(CALL, tool("t", json!({}))))
        .await
        .unwrap_err();
    assert_eq!(failed.kind, FailureKind::Unavailable);
    for part in ["over WebSocket: ", "over HTTP at the same URL: ", "refused"] {
        assert!(failed.message.contains(part), "{failed}");
    }
    client.stop().await;
    let mut peer = Played::start().await;
    let client = Client::at(&peer.url.replace("http://", "ws://"), auto());
    let asked = client.ask(CALL, tool("t", json!({})));
    peer.hit().await.empty(401).await;
    assert_eq!(joined(asked).await.unwrap_err().kind, FailureKind::Denied);
    assert!(peer.is_quiet());
    client.stop().await;
}

/// Goal: a server of both eras that is late once isn't taken for a legacy one forever. Method: hold the
/// probe and answer `initialize`; answer the probe of a new incarnation of the client.
#[tokio::test]
async fn late_servers_are_probed_again() {
    let mut peer = Played::start().await;
    let system = System::start(1).unwrap();
    let options = McpClientOptions {
        probe_timeout: Duration::from_millis(50),
        ..auto()
    };
    let client = McpClient::new(ServerEndpoint::from_url(&peer.url).unwrap(), options).unwrap();
    let again = client.clone();
    let client = Client {
        agent: system.spawn(client),
        system,
    };
    let asked = client.ask("callboard.describe", json!({}));
    let held = peer.expect("server/discover").await;
    peer.initialize("2025-11-25", None).await;
    assert_eq!(
        joined(asked).await.unwrap()["protocolVersion"],
        "2025-11-25"
    );
    drop(held);
    let second = Client {
        agent: client.system.spawn(again),
        system: client.system.clone(),
    };
    let asked = second.ask("callboard.describe", json!({}));
    peer.discover(json!({ "tools": {} })).await;
    assert_eq!(
        joined(asked).await.unwrap()["protocolVersion"],
        "2026-07-28"
    );
    client.stop().await;
}

/// Goal: a server that ignores the probe costs a second, and a modern one that is only late is still
/// found. Method: hold the probe; answer `initialize` as a server of each era.
#[tokio::test]
async fn held_probes_cost_a_second() {
    for is_modern in [false, true] {
        let mut peer = Played::start().await;
        let client = Client::at(&peer.url, auto());
        let began = Instant::now();
        let asked = client.ask(CALL, tool("t", json!({})));
        let held = peer.expect("server/discover").await;
        if is_modern {
            let hit = peer.expect("initialize").await;
            let error =
                json!({ "code": -32022, "message": "v", "data": { "supported": ["2026-07-28"] } });
            hit.error(400, error).await;
            peer.discover(json!({ "tools": {} })).await;
            peer.expect("tools/list")
                .await
                .result(json!({ "tools": [] }))
                .await;
        } else {
            peer.initialize("2025-11-25", None).await;
        }
        let waited = began.elapsed();
        let second = Duration::from_secs(1);
        assert!((second..4 * second).contains(&waited), "{waited:?}");
        let call = peer.expect("tools/call").await;
        assert_eq!(call.header("mcp-method").is_some(), is_modern);
        call.result(json!({ "content": [] })).await;
        joined(asked).await.unwrap();
        drop(held);
        client.stop().await;
    }
}

/// Goal: one message over the limit fails the call that it answers and no other, and the channel goes
/// on. Method: HTTP+SSE; of two calls the first gets a result of one byte more than the limit, the
/// second one at the limit; then another call.
/// Rows: M-17.
#[tokio::test]
async fn oversized_events_fail_their_call() {
    const BYTES_MAX: usize = 1_000;
    let mut peer = Played::start().await;
    let limits = callboard_rpc::DecodeLimits {
        body_bytes_max: BYTES_MAX,
        ..Default::default()
    };
    let options = McpClientOptions {
        limits,
        ..only(Era::Legacy)
    };
    let endpoint = ServerEndpoint::sse(&peer.url).unwrap();
    let client = Client::of(endpoint, options);
    let first = client.ask(CALL, tool("t", json!({})));
    let mut events = peer.hit().await.stream().await;
    events.raw("event: endpoint\ndata: /messages\n\n").await;
    let hit = peer.expect("initialize").await;
    let result = json!({ "protocolVersion": "2024-11-05", "capabilities": {}, "serverInfo": { "name": "p", "version": "1" } });
    events.say(hit.response(Ok(result))).await;
    hit.empty(202).await;
    peer.expect("notifications/initialized")
        .await
        .empty(202)
        .await;
    let answer = |hit: &crate::played::Hit, bytes: usize| {
        let fill = |n: usize| hit.response(Ok(json!({ "content": [], "fill": "x".repeat(n) })));
        fill(bytes - fill(0).to_string().len())
    };
    let hit = peer.expect("tools/call").await;
    let one = answer(&hit, BYTES_MAX + 1);
    hit.empty(202).await;
    let second = client.ask(CALL, tool("t", json!({})));
    let hit = peer.expect("tools/call").await;
    let two = answer(&hit, BYTES_MAX);
    hit.empty(202).await;
    for message in [one, two] {
        events.say(message).await;
    }
    let failed = joined(first).await.unwrap_err();
    assert_eq!(failed.kind, FailureKind::Overloaded);
    assert!(failed.message.contains("1000"), "{failed}");
    joined(second).await.unwrap();
    let third = client.ask(CALL, tool("t", json!({})));
    let hit = peer.expect("tools/call").await;
    events.say(answer(&hit, BYTES_MAX)).await;
    hit.empty(202).await;
    joined(third).await.unwrap();
    client.stop().await;
}
