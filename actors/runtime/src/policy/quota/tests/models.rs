//! Tests of what models use.

use callboard_message::Principal;
use serde_json::json;

use super::{TestNode, key, row};

/// Goal: tokens and money of models count for their principal, as far as they were recorded last, until one is
/// used up. Method: requests whose use is recorded twice, lower and higher; other models and principals.
#[tokio::test(start_paused = true)]
async fn models_use_tokens_and_money() {
    let written =
        json!({ "id": "q", "window": "day", "models": ["gpt-*"], "tokens": 100, "usd": 0.01 });
    let node = TestNode::new(json!([written]));
    let (alice, bob) = (key("alice"), key("bob"));
    let first = node.ask(&alice, "gpt-5").await.unwrap();
    first.record(60, 4_000);
    node.quotas.flush(&node.store).await;
    first.record(30, 1_000);
    drop(first);
    let second = node.ask(&alice, "gpt-6").await.unwrap();
    second.record(69, 0);
    let third = node.ask(&alice, "gpt-6").await.unwrap();
    third.record(1, 0);
    let refused = node.ask(&alice, "gpt-5").await.err().unwrap();
    assert!(
        refused.message.contains("`q` of 100 tokens per day"),
        "{refused}"
    );
    assert!(node.ask(&alice, "claude").await.is_ok());
    let of_bob = node.ask(&bob, "gpt-5").await.unwrap();
    of_bob.record(1, 9_999);
    node.ask(&bob, "gpt-5").await.unwrap().record(0, 1);
    let refused = node.ask(&bob, "gpt-5").await.err().unwrap();
    assert!(
        refused.message.contains("of 0.01 US dollars per day"),
        "{refused}"
    );
    assert!(
        node.ask(&Principal::local_operator(), "gpt-5")
            .await
            .is_ok()
    );
    node.quotas.flush(&node.store).await;
    let stored = node.stored(&written).await;
    let expected = [
        row("api_key:alice", 3, 100, 1_000),
        row("api_key:bob", 2, 1, 10_000),
    ];
    assert_eq!(stored, expected);
}

/// Goal: a request that goes on into the next window counts there by what it uses there; one that isn't made
/// counts nowhere; a quota that is gone counts nothing. Method: a request around the end of a minute; a withdrawn
/// one; a reload.
#[tokio::test(start_paused = true)]
async fn requests_over_the_end_of_a_window() {
    let written = json!({ "id": "q", "window": "minute", "models": ["m"], "calls": 1 });
    let node = TestNode::new(json!([written]));
    let alice = key("alice");
    node.ask(&alice, "m").await.unwrap().withdraw();
    let request = node.ask(&alice, "m").await.unwrap();
    assert!(node.ask(&alice, "m").await.is_err());
    request.record(10, 100);
    node.set_time("2026-11-27T11:07:00Z");
    request.record(25, 130);
    request.record(20, 120);
    request.withdraw();
    node.quotas.flush(&node.store).await;
    assert_eq!(
        node.stored(&written).await,
        [row("api_key:alice", 0, 10, 20)]
    );
    node.set(json!([]));
    request.record(1_000, 1_000);
    node.set(json!([written]));
    node.quotas.flush(&node.store).await;
    assert_eq!(
        node.stored(&written).await,
        [row("api_key:alice", 0, 10, 20)]
    );
}
