//! Payloads pass through the client unchanged.

use callboard_mcp::outbound::Era;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

use crate::client_kit::{Client, Played, joined, only, tool};

/// Cases of one run; each is an exchange over a socket.
const CASES: u32 = 48;

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1e300..1e300f64).prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(".{0,6}", inner, 0..4)
                .prop_map(|map| map.into_iter().collect::<Value>()),
        ]
    })
}

/// Goal: params and results keep every unknown member, byte for byte. Method: any JSON in a tool
/// call's params, sent back as a result, in both eras.
#[tokio::test]
async fn calls_are_lossless() {
    for era in [Era::Legacy, Era::Modern] {
        let mut peer = Played::start().await;
        let client = Client::at(&peer.url, only(era));
        let listed = client.ask("callboard.tools.list", json!({}));
        match era {
            Era::Legacy => drop(peer.initialize("2025-11-25", None).await),
            Era::Modern => peer.discover(json!({})).await,
        }
        peer.expect("tools/list")
            .await
            .result(json!({ "tools": [] }))
            .await;
        joined(listed).await.unwrap();
        let mut cases = TestRunner::new_with_rng(
            Config::default(),
            proptest::test_runner::TestRng::deterministic_rng(
                proptest::test_runner::RngAlgorithm::ChaCha,
            ),
        );
        for _ in 0..CASES {
            let (odd, arguments) = (any_json(), any_json())
                .new_tree(&mut cases)
                .unwrap()
                .current();
            let sent = format!(r#"{{"odd":{odd},"name":"t","arguments":{{"x":{arguments}}}"#);
            let asked = client.ask_raw("callboard.tools.call", &format!("{sent}}}"));
            let hit = peer.expect("tools/call").await;
            assert!(
                hit.text.contains(&format!("\"params\":{sent}")),
                "{} lacks {sent}",
                hit.text
            );
            let result = format!(r#"{{"content":[],"odd":{odd},"_meta":{{"a":{arguments}}}}}"#);
            let body = format!(
                r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#,
                hit.body["id"]
            );
            hit.write(200, "", "application/json", &body).await;
            assert_eq!(joined(asked).await.unwrap().get(), result);
        }
        client.stop().await;
    }
}

/// Goal: a plain object with which a server answers a call becomes a tool result; the task that a call
/// becomes stays as it is, and so do results of other requests. Method: each, in the legacy era.
/// Rows: M-44, X-15.
#[tokio::test]
async fn plain_results_get_content() {
    let mut peer = Played::start().await;
    let client = Client::at(&peer.url, only(Era::Legacy));
    let plain = json!({ "analysis": "a", "metadata": { "n": 1 } });
    let mut task = tool("t", json!({}));
    task["task"] = json!({});
    let whole = json!({
        "content": [{ "type": "text", "text": plain.to_string() }],
        "structuredContent": plain,
    });
    let mut is_first = true;
    for (name, method, params, expected) in [
        ("tools.call", "tools/call", tool("t", json!({})), &whole),
        ("tools.call", "tools/call", task, &plain),
        ("prompts.get", "prompts/get", json!({ "name": "p" }), &plain),
    ] {
        let asked = client.ask(&format!("callboard.{name}"), params);
        if std::mem::take(&mut is_first) {
            peer.initialize("2025-11-25", None).await;
        }
        peer.expect(method).await.result(plain.clone()).await;
        assert_eq!(joined(asked).await.unwrap(), *expected, "{name}");
    }
    client.stop().await;
}
