use std::time::Duration;

use callboard_mcp::inbound::{InboundOptions, StdioOptions};
use callboard_rpc::DecodeLimits;
use callboard_runtime::testkit::run_with_paused_time;
use serde_json::{Value, json};

use crate::kit::Event;
use crate::pipe::{Pipe, meta, with_legacy, with_options, with_pipe};

/// Goal: a pipe serves the legacy era to its operator, with concurrent requests. Method: a call
/// that hangs, then another that doesn't.
#[test]
fn requests_run_beside_each_other() {
    with_pipe(async |pipe| {
        let welcome = pipe.initialize("2025-06-18").await;
        assert_eq!(welcome["protocolVersion"], "2025-06-18");
        let working = pipe
            .request("tools/call", json!({ "name": "work", "arguments": {} }))
            .await;
        assert_eq!(pipe.event().await, Event::Began);
        let who = pipe.call("who_asks", json!({})).await;
        assert_eq!(who["result"]["content"][0]["text"], "operator");
        pipe.go();
        assert_eq!(
            pipe.response(working).await["result"]["content"][0]["text"],
            "done"
        );
    });
}

/// Goal: an invalid line affects no other line. Method: rows of bad lines, each followed by a good
/// one.
#[test]
fn bad_lines_are_answered_and_the_next_is_read() {
    with_legacy(async |pipe| {
        for (line, code, id) in [
            (&b"{\"jsonrpc\":\"2.0\",\"id\":1,"[..], -32700, Value::Null),
            (b"hello", -32700, Value::Null),
            (b"\"\xff\"", -32700, Value::Null),
            (
                b"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]",
                -32600,
                Value::Null,
            ),
            (
                b"{\"jsonrpc\":\"1.0\",\"id\":\"a\",\"method\":\"ping\"}",
                -32600,
                json!("a"),
            ),
            (
                b"{\"jsonrpc\":\"2.0\",\"id\":8,\"method\":\"ping\",\"params\":1}",
                -32602,
                json!(8),
            ),
            (
                b"{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"no/such\"}",
                -32601,
                json!(9),
            ),
        ] {
            pipe.send_raw(&[line, b"\r\n"].concat()).await;
            let answer = pipe.next().await;
            assert_eq!(
                (&answer["error"]["code"], &answer["id"]),
                (&json!(code), &id),
                "{answer}"
            );
            assert_eq!(pipe.ask("ping", json!({})).await["result"], json!({}));
        }
        // A response without a question is dropped.
        pipe.send(&json!({ "jsonrpc": "2.0", "id": 77, "result": {} }))
            .await;
        pipe.send(&json!({ "jsonrpc": "2.0", "method": "notifications/whatever" }))
            .await;
        assert_eq!(pipe.ask("ping", json!({})).await["result"], json!({}));
    });
}

/// Goal: a line at the limit passes, one more byte is dropped with an error, and the next line is
/// read. Method: both.
#[test]
fn lines_over_the_limit_are_dropped_and_told() {
    const BYTES_MAX: usize = 20_000;
    let limits = DecodeLimits {
        body_bytes_max: BYTES_MAX,
        ..DecodeLimits::default()
    };
    let inbound = InboundOptions {
        limits,
        ..InboundOptions::default()
    };
    with_options(
        StdioOptions {
            inbound,
            ..StdioOptions::default()
        },
        async |pipe| {
            pipe.initialize("2025-11-25").await;
            let line = |bytes: usize| {
                let empty = r#"{"jsonrpc":"2.0","id":"x","method":"ping","params":{"pad":""}}"#;
                empty.replace(
                    "\"pad\":\"\"",
                    &format!("\"pad\":\"{}\"", "x".repeat(bytes - empty.len())),
                ) + "\n"
            };
            pipe.send_raw(line(BYTES_MAX).as_bytes()).await;
            assert_eq!(pipe.next().await["result"], json!({}));
            pipe.send_raw(line(BYTES_MAX + 1).as_bytes()).await;
            let told = pipe.next().await;
            assert_eq!(
                (&told["error"]["code"], &told["id"]),
                (&json!(-32600), &Value::Null),
                "{told}"
            );
            assert_eq!(pipe.ask("ping", json!({})).await["result"], json!({}));
        },
    );
}

/// Goal: one request above the limit is rejected, and one that ends makes room. Method: a limit of
/// two.
#[test]
fn requests_are_bounded() {
    with_options(
        StdioOptions {
            requests_max: 2,
            ..StdioOptions::default()
        },
        async |pipe| {
            pipe.initialize("2025-11-25").await;
            let work = json!({ "name": "work", "arguments": {} });
            let first = pipe.request("tools/call", work.clone()).await;
            let second = pipe.request("tools/call", work).await;
            assert_eq!(
                (pipe.event().await, pipe.event().await),
                (Event::Began, Event::Began)
            );
            assert_eq!(pipe.ask("ping", json!({})).await["error"]["code"], -3);
            pipe.go();
            let ended = pipe.next().await;
            assert_eq!(ended["result"]["content"][0]["text"], "done");
            assert_eq!(pipe.ask("ping", json!({})).await["result"], json!({}));
            pipe.go();
            pipe.response(if ended["id"] == first { second } else { first })
                .await;
        },
    );
}

/// Goal: an id can't be used twice at once; a cancelled request gets no response. Method: the same
/// id again, then cancelled, in each era.
#[test]
fn duplicate_ids_and_cancelling() {
    for params in [
        json!({ "name": "work" }),
        json!({ "name": "work", "_meta": meta(json!({})) }),
    ] {
        with_legacy(async |pipe| {
            let call =
                json!({ "jsonrpc": "2.0", "id": "w", "method": "tools/call", "params": params });
            pipe.send(&call).await;
            assert_eq!(pipe.event().await, Event::Began);
            pipe.send(&call).await;
            let refused = pipe.next().await;
            assert_eq!(
                (&refused["id"], &refused["error"]["code"]),
                (&json!("w"), &json!(-32600)),
                "{params}"
            );
            let cancelled = json!({ "requestId": "w", "reason": "no more" });
            pipe.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled })).await;
            assert_eq!(pipe.event().await, Event::Cancelled);
            // Unknown and finished ids belong to no request.
            for id in [json!("w"), json!(12_345), json!(null)] {
                let params = json!({ "requestId": id });
                pipe.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params })).await;
            }
            assert_eq!(pipe.ask("ping", json!({})).await["result"], json!({}));
            let who = pipe
                .modern("tools/call", json!({ "name": "who_asks" }), json!({}))
                .await;
            assert_eq!(who["result"]["content"][0]["text"], "operator");
            assert!(pipe.aside.is_empty(), "{params} {:?}", pipe.aside);
        });
    }
}

/// Goal: when the peer closes its side, running calls are cancelled and the server ends. Method: a
/// call that hangs, alone and as a task.
#[test]
fn the_end_of_the_pipe_cancels_what_runs() {
    run_with_paused_time(async |system| {
        let mut pipe = Pipe::with(system, StdioOptions::default());
        pipe.initialize("2025-11-25").await;
        pipe.request("tools/call", json!({ "name": "work" })).await;
        assert_eq!(pipe.event().await, Event::Began);
        let created = pipe
            .ask("tools/call", json!({ "name": "work", "task": {} }))
            .await;
        assert_eq!(created["result"]["task"]["status"], "working", "{created}");
        assert_eq!(pipe.event().await, Event::Began);
        let mut events = pipe.close().await;
        assert_eq!(
            (events.recv().await, events.recv().await),
            (Some(Event::Cancelled), Some(Event::Cancelled))
        );
        system.shutdown(Duration::from_secs(5)).await;
    });
}

/// Goal: a peer that doesn't read blocks only itself, within limits, and loses no response. Method:
/// more responses than fit into pipe and queue, read late.
#[test]
fn a_peer_that_does_not_read_waits_for_itself() {
    run_with_paused_time(async |system| {
        const ANSWERS: i64 = 60;
        let options = StdioOptions {
            queue_bytes_max: 16 * 1024,
            ..StdioOptions::default()
        };
        let mut pipe = Pipe::with(system, options);
        pipe.initialize("2025-11-25").await;
        let text = "x".repeat(4 * 1024);
        let mut ids = Vec::new();
        for _ in 0..ANSWERS {
            let call = json!({ "name": "echo", "arguments": { "text": text } });
            let sent =
                tokio::time::timeout(Duration::from_secs(1), pipe.request("tools/call", call))
                    .await;
            match sent {
                Ok(id) => ids.push(id),
                // The pipe is full in both directions: now the client reads.
                Err(_) => break,
            }
        }
        assert!(ids.len() > 10, "{}", ids.len());
        for id in ids {
            let answer = pipe.response(id).await;
            assert_eq!(answer["result"]["content"][0]["text"], text);
        }
        drop(pipe);
        system.shutdown(Duration::from_secs(5)).await;
    });
}

/// Goal: the revision with batches has them on pipes too. Method: a batch of requests and a
/// notification.
#[test]
fn batches_of_2025_03_26() {
    with_pipe(async |pipe| {
        pipe.initialize("2025-03-26").await;
        let ping = |id: i64| json!({ "jsonrpc": "2.0", "id": id, "method": "ping" });
        let batch =
            json!([ping(101), { "jsonrpc": "2.0", "method": "notifications/x" }, ping(102), 7]);
        pipe.send(&batch).await;
        let answer = pipe.next().await;
        let ids: Vec<_> = answer
            .as_array()
            .unwrap()
            .iter()
            .map(|a| a["id"].clone())
            .collect();
        assert_eq!(ids, [json!(101), json!(102), Value::Null]);
        assert_eq!(answer[2]["error"]["code"], -32600);
    });
}

/// Goal: both eras are served on one pipe. Method: requests of each, mixed.
#[test]
fn both_eras_on_one_pipe() {
    with_pipe(async |pipe| {
        let discovered = pipe.modern("server/discover", json!({}), json!({})).await;
        assert_eq!(
            discovered["result"]["supportedVersions"],
            json!(["2026-07-28"]),
            "{discovered}"
        );
        // Without `initialize` only the modern era is served.
        assert_eq!(
            pipe.call("who_asks", json!({})).await["error"]["code"],
            -32600
        );
        pipe.initialize("2025-11-25").await;
        assert_eq!(
            pipe.call("who_asks", json!({})).await["result"]["content"][0]["text"],
            "operator"
        );
        let who = pipe
            .modern("tools/call", json!({ "name": "who_asks" }), json!({}))
            .await;
        assert_eq!(
            (
                &who["result"]["resultType"],
                &who["result"]["content"][0]["text"]
            ),
            (&json!("complete"), &json!("operator"))
        );
    });
}
