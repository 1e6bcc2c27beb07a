//! Tests of limits and of stores that fail or are full.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use callboard_message::FailureKind;
use serde_json::{Value, json};

use super::super::{
    QUOTA_COUNTERS_MAX, QUOTA_ID_BYTES_MAX, QUOTA_USD_MAX, QUOTAS_MAX, Quota, QuotaError,
};
use super::{TestNode, key, row};
use crate::kv_store::KV_SPACE_ENTRIES_MAX_DEFAULT;

/// Goal: while the store is away, known counters go on and unknown ones refuse; changes are written later. Method: a
/// store that fails before the first call, and after it.
#[tokio::test(start_paused = true)]
async fn stores_that_fail() {
    let written = json!([{ "id": "q", "window": "day", "calls": 3 }]);
    let node = TestNode::new(written.clone());
    let alice = key("alice");
    node.test_store.fails.store(true, Relaxed);
    let refused = node.call(&alice, "files", "read").await.unwrap_err();
    assert_eq!(refused.kind, FailureKind::Unavailable);
    node.test_store.fails.store(false, Relaxed);
    assert_eq!(node.calls(&alice, 1).await, 1);
    tokio::time::sleep(Duration::from_secs(3)).await;
    node.test_store.fails.store(true, Relaxed);
    assert_eq!(node.calls(&alice, 5).await, 2);
    tokio::time::sleep(Duration::from_secs(3)).await;
    node.test_store.fails.store(false, Relaxed);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(
        node.stored(&written[0]).await,
        [row("api_key:alice", 3, 0, 0)]
    );
}

/// Goal: a store without room for another counter gets room from windows that are over, and until then the counter
/// counts in memory. Method: as many counters as a space has entries, and one more; the next minute.
#[tokio::test(start_paused = true)]
async fn a_full_space() {
    let written = json!({ "id": "q", "window": "minute", "calls": 2 });
    let node = TestNode::new(json!([written]));
    for at in 0..KV_SPACE_ENTRIES_MAX_DEFAULT {
        assert!(
            node.call(&key(&format!("k{at}")), "files", "read")
                .await
                .is_ok()
        );
    }
    node.quotas.flush(&node.store).await;
    assert_eq!(
        node.stored(&written).await.len(),
        KV_SPACE_ENTRIES_MAX_DEFAULT
    );
    let alice = key("alice");
    assert_eq!(node.calls(&alice, 1).await, 1);
    node.quotas.flush(&node.store).await;
    assert_eq!(
        node.stored(&written).await.len(),
        KV_SPACE_ENTRIES_MAX_DEFAULT
    );
    assert_eq!(node.calls(&alice, 3).await, 1);
    assert_eq!(node.calls(&key("k0"), 3).await, 1);
    node.set_time("2026-11-27T11:07:00Z");
    tokio::time::advance(Duration::from_secs(61)).await;
    assert_eq!(node.calls(&alice, 1).await, 1);
    node.quotas.flush(&node.store).await;
    assert_eq!(node.stored(&written).await, [row("api_key:alice", 1, 0, 0)]);
}

/// Goal: memory is bounded, whoever comes. Method: a principal for each counter, whose changes aren't written yet;
/// two more, which share one; the next month.
#[tokio::test(start_paused = true)]
async fn counters_are_bounded() {
    let node = TestNode::new(json!([{ "id": "q", "window": "month", "calls": 1 }]));
    for at in 0..QUOTA_COUNTERS_MAX {
        assert!(
            node.call(&key(&format!("k{at}")), "files", "read")
                .await
                .is_ok()
        );
    }
    assert_eq!(node.calls(&key("k0"), 1).await, 0);
    assert_eq!(node.calls(&key("alice"), 2).await, 1);
    assert_eq!(node.calls(&key("bob"), 2).await, 0);
    node.set_time("2026-12-01T00:00:00Z");
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(node.calls(&key("alice"), 2).await, 1);
    assert_eq!(node.calls(&key("bob"), 2).await, 1);
}

/// Goal: each mistake in a quota is found, and each limit is inclusive. Method: rows of fields of a quota without
/// one; the largest lists, ids and amounts, and one more.
#[test]
fn mistakes() {
    let parse = |fields: &Value| {
        let mut written = json!({ "id": "q", "window": "day", "calls": 1 });
        let fields = fields.as_object().unwrap().clone();
        written.as_object_mut().unwrap().extend(fields);
        serde_json::from_value::<Quota>(written)
    };
    let long = |bytes: usize| "x".repeat(bytes);
    for (fields, expected) in [
        (json!({}), Ok(())),
        (json!({ "id": "" }), Err(QuotaError::Id)),
        (json!({ "id": "a b" }), Err(QuotaError::Id)),
        (json!({ "id": "a/b" }), Err(QuotaError::Id)),
        (json!({ "id": long(QUOTA_ID_BYTES_MAX) }), Ok(())),
        (
            json!({ "id": long(QUOTA_ID_BYTES_MAX + 1) }),
            Err(QuotaError::Id),
        ),
        (json!({ "agents": vec!["a"; 1_000] }), Ok(())),
        (
            json!({ "tools": vec!["a"; 1_001] }),
            Err(QuotaError::Entries),
        ),
        (json!({ "principals": [""] }), Err(QuotaError::Entries)),
        (json!({ "scopes": [long(1_024)] }), Ok(())),
        (json!({ "models": [long(1_025)] }), Err(QuotaError::Entries)),
        (json!({ "calls": null }), Err(QuotaError::NoLimit)),
        (json!({ "calls": 0 }), Err(QuotaError::Limit)),
        (
            json!({ "models": ["m"], "tokens": 0 }),
            Err(QuotaError::Limit),
        ),
        (json!({ "models": ["m"], "usd": 0 }), Err(QuotaError::Limit)),
        (json!({ "models": ["m"], "usd": 0.000_001 }), Ok(())),
        (json!({ "models": ["m"], "usd": QUOTA_USD_MAX }), Ok(())),
        (
            json!({ "models": ["m"], "usd": QUOTA_USD_MAX + 1.0 }),
            Err(QuotaError::Limit),
        ),
        (json!({ "tokens": 1 }), Err(QuotaError::WithoutModels)),
        (json!({ "usd": 1 }), Err(QuotaError::WithoutModels)),
        (
            json!({ "models": ["m"], "tokens": 1, "calls": null }),
            Ok(()),
        ),
        (
            json!({ "models": ["m"], "agents": ["a"] }),
            Err(QuotaError::ModelsAndAgents),
        ),
        (
            json!({ "models": ["m"], "tools": ["a"] }),
            Err(QuotaError::ModelsAndAgents),
        ),
    ] {
        assert_eq!(parse(&fields).unwrap().validate(), expected, "{fields}");
    }
    for unreadable in [
        json!({ "window": "week" }),
        json!({ "share": "some" }),
        json!({ "token": 1 }),
        json!({ "calls": -1 }),
    ] {
        assert!(parse(&unreadable).is_err(), "{unreadable}");
    }
    let many = |count: usize| -> Vec<Quota> {
        let ids = (0..count).map(|at| json!({ "id": format!("q{at}") }));
        ids.map(|fields| parse(&fields).unwrap()).collect()
    };
    assert_eq!(Quota::validate_all(&many(QUOTAS_MAX)), Ok(()));
    let too_many = Quota::validate_all(&many(QUOTAS_MAX + 1));
    assert_eq!(too_many, Err((QUOTAS_MAX, QuotaError::TooMany)));
    let twice = [many(2), many(1)].concat();
    assert_eq!(Quota::validate_all(&twice), Err((2, QuotaError::Id)));
}
