use std::sync::Arc;
use std::time::Duration;

use callboard_mcp::inbound::{
    McpServerOptions, STREAM_EVENTS_MAX_DEFAULT, SessionOptions, StreamLimits, StreamOptions,
};
use callboard_message::Principal;
use callboard_rpc::{AccessControl, BearerVerifier, CredentialError};
use serde_json::{Value, json};

use crate::kit::{header, soon};
use crate::lingering::Seen;
use crate::mcp_client::{BOTH, Event, initialize};
use crate::mcp_kit::Served;

fn streams(streams: StreamOptions) -> McpServerOptions {
    McpServerOptions {
        streams,
        ..McpServerOptions::default()
    }
}

/// Goal: a stream begins with a position to resume from, in the revisions that have it. Method: a
/// call with progress, by revision.
#[tokio::test]
async fn priming_event() {
    let server = Served::start().await;
    let mut client = server.session("2025-11-25", json!({})).await;
    let mut stream = client.call("count", json!({ "steps": 1 })).await;
    assert_eq!(
        header(&stream.head, "content-type"),
        Some("text/event-stream")
    );
    assert_eq!(header(&stream.head, "cache-control"), Some("no-store"));
    let first = stream.event().await.unwrap();
    assert_eq!(
        first,
        Event {
            id: Some("1-0".into()),
            retry: Some(1_000),
            ..Event::default()
        }
    );
    for id in ["1-1", "1-2", "1-3"] {
        assert_eq!(stream.event().await.unwrap().id.as_deref(), Some(id));
    }
    assert_eq!(stream.event().await, None);
    let mut older = server.session("2025-06-18", json!({})).await;
    let mut stream = older.call("count", json!({ "steps": 0 })).await;
    assert_eq!(stream.event().await.unwrap().id.as_deref(), Some("1-1"));
    server.stop().await;
}

/// Goal: missed events are replayed once, and the rest follows live. Method: a reader that
/// disconnects after each event of a running call and reconnects, while the call ends in between.
#[tokio::test]
async fn resumed_without_loss_or_duplicates() {
    let mut server = Served::start().await;
    let mut client = server.session("2025-11-25", json!({})).await;
    let mut stream = client.call("linger", json!({ "progress": true })).await;
    assert_eq!(server.watch.event().await, Seen::Began);
    let primed = stream.event().await.unwrap().id.unwrap();
    let progress = stream.event().await.unwrap();
    drop(stream);
    let mut again = client.get(Some(&primed)).await;
    assert_eq!(again.event().await.unwrap(), progress);
    drop(again);
    // A call survives its connection.
    server.watch.go_on.send(true).unwrap();
    assert_eq!(server.watch.event().await, Seen::Finished);
    let rest = client.get(progress.id.as_deref()).await.messages().await;
    assert_eq!(rest.len(), 1);
    assert_eq!(rest[0]["result"]["content"][0]["text"], "went on");
    // All of it once more, and nothing of other streams.
    let mut other = client.call("count", json!({ "steps": 0 })).await;
    while other.event().await.is_some() {}
    let whole = client.get(Some(&primed)).await.messages().await;
    assert_eq!(whole.len(), 2);
    assert_eq!((&whole[0], &whole[1]), (&progress.json(), &rest[0]));
    server.stop().await;
}

/// Goal: a stream has one reader: a later one takes it over, and no event comes twice. Method: two
/// readers.
#[tokio::test]
async fn a_later_reader_takes_over() {
    let server = Served::start().await;
    let mut client = server.session("2025-11-25", json!({})).await;
    let mut first = client.get(None).await;
    first.event().await.unwrap();
    client
        .ask(
            "tools/call",
            json!({ "name": "announce", "arguments": { "what": "tools" } }),
        )
        .await;
    let told = first.event().await.unwrap();
    let mut second = client.get(None).await;
    assert_eq!(first.event().await, None);
    client
        .ask(
            "tools/call",
            json!({ "name": "announce", "arguments": { "what": "prompts" } }),
        )
        .await;
    second.event().await.unwrap();
    assert_eq!(
        second.event().await.unwrap().json()["method"],
        "notifications/prompts/list_changed"
    );
    // Messages sent without a reader aren't lost.
    drop(second);
    client
        .ask(
            "tools/call",
            json!({ "name": "announce", "arguments": { "what": "resources" } }),
        )
        .await;
    let mut third = client.get(told.id.as_deref()).await;
    for name in ["prompts", "resources"] {
        let wanted = format!("notifications/{name}/list_changed");
        assert_eq!(third.message().await["method"], wanted);
    }
    server.stop().await;
}

/// Goal: an agent that reports a change without end floods no session, and other changes come
/// through. Method: three sessions that listen to 200 reports of one change, then one of another.
#[tokio::test]
async fn floods_of_an_agent_are_combined() {
    let server = Served::start().await;
    let mut streams = Vec::new();
    let mut client = server.session("2025-11-25", json!({})).await;
    for _ in 0..3 {
        let listening = server.session("2025-11-25", json!({})).await;
        let mut stream = listening.get(None).await;
        stream.event().await.unwrap();
        streams.push(stream);
    }
    for what in ["flood", "prompts"] {
        let params = json!({ "name": "announce", "arguments": { "what": what } });
        client.ask("tools/call", params).await;
    }
    for stream in &mut streams {
        let mut told = 0;
        while stream.message().await["method"] != "notifications/prompts/list_changed" {
            told += 1;
        }
        assert!((1..=20).contains(&told), "{told}");
    }
    server.stop().await;
}

/// Goal: the connection of a long call is closed, its stream isn't. Method: close after 50 ms; the
/// client reconnects for each part (2025-11-25 only).
#[tokio::test]
async fn polling() {
    let close_after = Some(Duration::from_millis(50));
    let options = StreamOptions {
        close_after,
        stream_after: Duration::from_millis(10),
        ..StreamOptions::default()
    };
    let server = Served::with(streams(options)).await;
    let mut client = server.session("2025-11-25", json!({})).await;
    let mut stream = client.call("linger", json!({})).await;
    let primed = stream.event().await.unwrap();
    assert!(primed.retry.is_some() && primed.data.is_empty());
    assert_eq!(stream.event().await, None);
    let mut again = client.get(primed.id.as_deref()).await;
    assert_eq!(again.event().await, None);
    server.watch.go_on.send(true).unwrap();
    let rest = client.get(primed.id.as_deref()).await.messages().await;
    assert_eq!(rest.len(), 1, "{rest:?}");
    assert_eq!(rest[0]["id"], 1);
    server.stop().await;
}

/// Goal: a late response comes on a stream with keep-alive comments. Method: a call that waits,
/// keep-alive every 20 ms.
#[tokio::test]
async fn idle_streams_show_that_they_live() {
    let options = StreamOptions {
        stream_after: Duration::from_millis(1),
        keep_alive: Duration::from_millis(20),
        ..StreamOptions::default()
    };
    let server = Served::with(streams(options)).await;
    let mut client = server.session("2025-06-18", json!({})).await;
    let request = client.request("tools/call", json!({ "name": "linger", "arguments": {} }));
    let mut stream = client.stream(&request).await;
    let mut alive = String::new();
    while alive.len() < 6 {
        alive.push_str(&stream.chunk().await);
    }
    assert_eq!(alive.replace(":\n\n", ""), "");
    server.watch.go_on.send(true).unwrap();
    assert_eq!(
        stream.message().await["result"]["content"][0]["text"],
        "went on"
    );
    server.stop().await;
}

/// Goal: invalid positions can't be resumed. Method: ids that were never sent, of another session,
/// and older than the buffer.
#[tokio::test]
async fn nothing_to_resume() {
    let limits = StreamLimits {
        events_max: 2,
        ..StreamLimits::default()
    };
    let server = Served::with(streams(StreamOptions {
        limits,
        ..StreamOptions::default()
    }))
    .await;
    let mut client = server.session("2025-11-25", json!({})).await;
    let mut stream = client.call("count", json!({ "steps": 0 })).await;
    while stream.event().await.is_some() {}
    let other = server.session("2025-11-25", json!({})).await;
    for id in [
        "",
        "x",
        "1",
        "1-",
        "-1",
        "9-0",
        "1-9",
        "1-0-0",
        "18446744073709551616-0",
        "1-99999999999999999999",
    ] {
        assert_eq!(client.get(Some(id)).await.status, 400, "{id}");
    }
    assert_eq!(other.get(Some("1-0")).await.status, 400);
    assert_eq!(client.get(Some("1-0")).await.status, 200);
    // Notified after the first session, the other one shows when the first has been notified.
    let mut told = other.get(None).await;
    for what in ["tools", "prompts", "resources"] {
        client
            .ask(
                "tools/call",
                json!({ "name": "announce", "arguments": { "what": what } }),
            )
            .await;
        told.message().await;
    }
    // Of three changes two are kept: the gap is an error.
    assert_eq!(client.get(Some("0-0")).await.status, 400);
    assert_eq!(client.get(Some("0-1")).await.status, 200);
    server.stop().await;
}

/// Goal: only the latest finished streams are kept. Method: the limit, and one more.
#[tokio::test]
async fn finished_streams_kept() {
    let sessions = SessionOptions {
        replay_streams_max: 2,
        ..SessionOptions::default()
    };
    let server = Served::with(McpServerOptions {
        sessions,
        ..McpServerOptions::default()
    })
    .await;
    let mut client = server.session("2025-11-25", json!({})).await;
    for _ in 0..4 {
        let mut stream = client.call("count", json!({ "steps": 0 })).await;
        while stream.event().await.is_some() {}
    }
    // The one that makes room is kept besides the two that were finished when it began.
    assert_eq!(client.get(Some("1-0")).await.status, 400);
    for kept in ["2-0", "3-0", "4-0"] {
        assert_eq!(client.get(Some(kept)).await.status, 200, "{kept}");
    }
    server.stop().await;
}

/// Goal: a reader that doesn't read is disconnected, and uses no more than its stream's limit.
/// Method: calls whose responses overflow it, read late.
#[tokio::test]
async fn slow_readers_are_cut() {
    let limits = StreamLimits {
        bytes_max: 64 * 1024,
        replay_bytes_max: 1024,
        ..StreamLimits::default()
    };
    let server = Served::with(streams(StreamOptions {
        limits,
        ..StreamOptions::default()
    }))
    .await;
    let mut client = server.session("2025-11-25", json!({})).await;
    let stream = client.get(None).await;
    // More than the socket's buffers and the stream's limit together hold.
    let uri = |number: usize| format!("test://{number:04}{}", "u".repeat(7_000));
    for number in 0..500 {
        let params = json!({ "uri": uri(number) });
        client.ask("resources/subscribe", params).await;
    }
    for number in (0..500).cycle().take(1_500) {
        let params = json!({ "name": "announce", "arguments": { "what": uri(number) } });
        client.ask("tools/call", params).await;
    }
    let body = soon(stream.rest()).await;
    assert!(body.len() < 1_500 * uri(0).len(), "{} bytes", body.len());
    // The session itself continues.
    assert_eq!(client.ask("ping", json!({})).await["result"], json!({}));
    server.stop().await;
}

/// Goal: open streams are limited, by session and by server, and the limit is exact. Method: calls
/// that wait.
#[tokio::test]
async fn open_streams_are_bounded() {
    let mut server = Served::with(McpServerOptions {
        sessions: SessionOptions {
            streams_max: 2,
            ..SessionOptions::default()
        },
        streams: StreamOptions {
            streams_max: 3,
            ..StreamOptions::default()
        },
        ..McpServerOptions::default()
    })
    .await;
    let mut first = server.session("2025-11-25", json!({})).await;
    let mut second = server.session("2025-11-25", json!({})).await;
    let a = first.call("linger", json!({ "progress": true })).await;
    let b = first.get(None).await;
    assert_eq!((a.status, b.status), (200, 200));
    let over = first.call("linger", json!({ "progress": true })).await;
    assert_eq!(
        (over.status, header(&over.head, "retry-after").is_some()),
        (429, true)
    );
    let c = second.get(None).await;
    assert_eq!(c.status, 200);
    let over = second.call("linger", json!({ "progress": true })).await;
    assert_eq!(over.status, 503);
    assert_eq!(second.ask("ping", json!({})).await["result"], json!({}));
    // A call without a stream doesn't continue.
    let mut seen = Vec::new();
    for _ in 0..5 {
        seen.push(server.watch.event().await);
    }
    assert_eq!(
        seen.iter().filter(|seen| **seen == Seen::Cancelled).count(),
        2,
        "{seen:?}"
    );
    drop((a, b));
    // Their permits are free once the server has noticed.
    let freed = async {
        loop {
            let again = second.get(None).await;
            if again.status == 200 {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    soon(freed).await;
    server.stop().await;
}

/// Goal: sessions are limited, expire when idle, and end by DELETE. Method: the limit and one more;
/// an idle time of zero.
#[tokio::test]
async fn sessions_come_to_an_end() {
    let sessions = SessionOptions {
        sessions_max: 2,
        ..SessionOptions::default()
    };
    let server = Served::with(McpServerOptions {
        sessions,
        ..McpServerOptions::default()
    })
    .await;
    let mut first = server.session("2025-11-25", json!({})).await;
    let _second = server.session("2025-11-25", json!({})).await;
    let full = server
        .connect()
        .await
        .post_with(BOTH, initialize("2025-11-25", &json!({})).to_string())
        .await;
    assert_eq!((full.status, full.code()), (503, -3));
    let mut stream = first.get(None).await;
    stream.event().await.unwrap();
    assert_eq!(first.delete().await.status, 204);
    assert_eq!(stream.event().await, None);
    for status in [first.get(None).await.status, first.delete().await.status] {
        assert_eq!(status, 404);
    }
    let ping = first.request("ping", json!({}));
    assert_eq!(first.post(&ping).await.status, 404);
    let _third = server.session("2025-11-25", json!({})).await;
    server.stop().await;

    let sessions = SessionOptions {
        idle_timeout: Duration::ZERO,
        ..SessionOptions::default()
    };
    let server = Served::with(McpServerOptions {
        sessions,
        ..McpServerOptions::default()
    })
    .await;
    let mut connection = server.connect().await;
    let body = initialize("2025-11-25", &json!({})).to_string();
    let reply = connection.post_with(BOTH, body).await;
    let session = header(&reply.head, "mcp-session-id").unwrap();
    let headers = format!("{}Mcp-Session-Id: {session}\r\n", BOTH);
    let late = connection
        .post_with(&headers, r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#)
        .await;
    assert_eq!(late.status, 404);
    server.stop().await;
}

/// Goal: a running call keeps its session from expiring. Method: a call that waits, until a session beside it has expired.
#[tokio::test]
async fn busy_sessions_do_not_expire() {
    let sessions = SessionOptions {
        idle_timeout: Duration::from_millis(200),
        ..SessionOptions::default()
    };
    let mut server = Served::with(McpServerOptions {
        sessions,
        ..McpServerOptions::default()
    })
    .await;
    let mut client = server.session("2025-11-25", json!({})).await;
    let mut stream = client.call("linger", json!({ "progress": true })).await;
    assert_eq!(server.watch.event().await, Seen::Began);
    let idle = server.session("2025-11-25", json!({})).await;
    let primed = stream.event().await.unwrap().id;
    drop(stream);
    // A request for an unknown stream doesn't count as use.
    let gone = async { while idle.get(Some("x")).await.status != 404 {} };
    soon(gone).await;
    let again = client.get(primed.as_deref()).await;
    assert_eq!(again.status, 200);
    server.watch.go_on.send(true).unwrap();
    assert_eq!(again.messages().await.len(), 2);
    server.stop().await;
}

/// Verifier that takes any token as the principal's id.
struct ByName;

impl BearerVerifier for ByName {
    fn verify(&self, token: &[u8]) -> Option<Result<Principal, CredentialError>> {
        Some(Ok(Principal::agent(String::from_utf8_lossy(token))))
    }
}

/// Goal: a session belongs to its principal: to any other its id is unknown. Method: every request
/// with another's token, a forged id, and none.
#[tokio::test]
async fn sessions_belong_to_their_principal() {
    let access = AccessControl::Bearer(Arc::new([Box::new(ByName) as Box<dyn BearerVerifier>]));
    let server = Served::with(McpServerOptions {
        access,
        ..McpServerOptions::default()
    })
    .await;
    let ana = "Authorization: Bearer ana\r\n";
    let body = initialize("2025-11-25", &json!({})).to_string();
    assert_eq!(
        server.connect().await.post_with(BOTH, &body).await.status,
        401
    );
    let reply = server
        .connect()
        .await
        .post_with(&format!("{BOTH}{ana}"), &body)
        .await;
    let session = header(&reply.head, "mcp-session-id").unwrap();
    let mut client = server.client(session, ana);
    assert_eq!(client.ask("ping", json!({})).await["result"], json!({}));
    let forged: String = session.chars().rev().collect();
    for (session, token) in [(session, "bob"), (&*forged, "ana")] {
        let mut other = server.client(session, &format!("Authorization: Bearer {token}\r\n"));
        let ping = other.request("ping", json!({}));
        let reply = other.post(&ping).await;
        let sent: Value = serde_json::from_str(&ping).unwrap();
        assert_eq!(
            (reply.status, reply.code(), reply.json()["id"].clone()),
            (404, -32600, sent["id"].clone())
        );
        assert_eq!(
            (other.get(None).await.status, other.delete().await.status),
            (404, 404)
        );
    }
    let mut nobody = server.client(
        session,
        "Authorization: Bearer ana\r\nAuthorization: Bearer bob\r\n",
    );
    let ping = nobody.request("ping", json!({}));
    assert_eq!(nobody.post(&ping).await.status, 400);
    assert_eq!(client.ask("ping", json!({})).await["result"], json!({}));
    server.stop().await;
}

/// Returns a call of the modern era, and the header lines that repeat it.
fn modern_call(tool: &str, arguments: Value) -> (String, String) {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "0" },
        "io.modelcontextprotocol/clientCapabilities": {},
        "progressToken": 1,
    });
    let params = json!({ "name": tool, "arguments": arguments, "_meta": meta });
    let body =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string();
    (
        body,
        format!(
            "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: {tool}\r\n"
        ),
    )
}

/// Goal: in the modern era the end of the connection cancels the call, and streams can't be
/// resumed. Method: disconnect before anything was streamed, and after.
#[tokio::test]
async fn hanging_up_cancels_in_the_stateless_era() {
    let mut server = Served::start().await;
    let (count, headers) = modern_call("count", json!({ "steps": 1 }));
    let mut stream = server.client("", &headers).stream(&count).await;
    for _ in 0..3 {
        assert_eq!(stream.event().await.unwrap().id, None);
    }
    assert_eq!(stream.event().await, None);

    let (call, headers) = modern_call("linger", json!({ "progress": true }));
    let client = server.client("", &headers);
    let mut stream = client.stream(&call).await;
    assert_eq!(stream.message().await["method"], "notifications/progress");
    assert_eq!(server.watch.event().await, Seen::Began);
    drop(stream);
    assert_eq!(server.watch.event().await, Seen::Cancelled);

    let (call, headers) = modern_call("linger", json!({}));
    let mut connection = server.connect().await;
    let lines = format!(
        "Host: localhost\r\n{BOTH}{headers}Content-Length: {}\r\n",
        call.len()
    );
    connection
        .send(format!("POST /mcp HTTP/1.1\r\n{lines}\r\n{call}").as_bytes())
        .await;
    assert_eq!(server.watch.event().await, Seen::Began);
    drop(connection);
    assert_eq!(server.watch.event().await, Seen::Cancelled);
    server.stop().await;
}

/// Goal: a call with a slow reader loses progress, not its response; in the modern era too. Method:
/// far more progress at once than a stream buffers.
#[tokio::test]
async fn reports_never_cost_the_answer_in_the_stateless_era() {
    let server = Served::start().await;
    let (count, headers) = modern_call("count", json!({ "steps": 4 * STREAM_EVENTS_MAX_DEFAULT }));
    let mut stream = server.client("", &headers).stream(&count).await;
    let mut last = Value::Null;
    while let Some(event) = stream.event().await {
        last = serde_json::from_str(&event.data).unwrap();
    }
    assert!(last["result"].is_object(), "{last}");
    server.stop().await;
}
