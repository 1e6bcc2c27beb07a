//! Tests of limits and of stores that fail or are full.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use callboard_message::FailureKind;
use serde_json::{Value, json};

use super::super::store::{EXPIRED_REMOVALS_MAX, sweep};
use super::super::{
    COUNTER_WRITES_MAX, QUOTA_COUNTERS_MAX, QUOTA_ID_BYTES_MAX, QUOTA_USD_MAX, QUOTAS_MAX, Quota,
    QuotaError,
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

/// Goal: a call with several quotas goes on with counters that are known, however slow the store is, and one whose
/// counters aren't known doesn't wait for ever. Method: reads that take longer than what they read counts, fail, or
/// never end.
#[tokio::test(start_paused = true)]
async fn known_counters_go_on() {
    let quota = |id: &str| json!({ "id": id, "window": "day", "calls": 9 });
    let node = TestNode::new(json!([quota("a"), quota("b")]));
    let store = &node.test_store;
    let alice = key("alice");
    assert_eq!(node.calls(&alice, 1).await, 1);
    tokio::time::sleep(Duration::from_secs(10)).await;
    store.delay_ms.store(1_500, Relaxed);
    assert_eq!(node.calls(&alice, 1).await, 1);
    store.delay_ms.store(0, Relaxed);
    for trouble in [&store.fails, &store.reads_hang] {
        // All is written, and known counters are old.
        tokio::time::sleep(Duration::from_secs(10)).await;
        trouble.store(true, Relaxed);
        let begun = tokio::time::Instant::now();
        assert_eq!(node.calls(&alice, 2).await, 2);
        let refused = node.call(&key("bob"), "files", "read").await.unwrap_err();
        assert_eq!(refused.kind, FailureKind::Unavailable);
        assert!(begun.elapsed() < Duration::from_secs(10));
        trouble.store(false, Relaxed);
    }
    node.quotas.flush(&node.store).await;
    for id in ["a", "b"] {
        let stored = node.stored(&quota(id)).await;
        assert_eq!(stored, [row("api_key:alice", 6, 0, 0)]);
    }
}

/// Goal: known principals go on in a new window while the store is away. Method: a minute that ends meanwhile, and the
/// count once the store is back.
#[tokio::test(start_paused = true)]
async fn windows_that_begin_without_the_store() {
    let quota = json!({ "id": "q", "window": "minute", "calls": 2 });
    let node = TestNode::new(json!([quota]));
    let alice = key("alice");
    assert_eq!(node.calls(&alice, 3).await, 2);
    node.quotas.flush(&node.store).await;
    node.test_store.fails.store(true, Relaxed);
    tokio::time::sleep(Duration::from_secs(10)).await;
    node.set_time("2026-11-27T11:07:00Z");
    assert_eq!(node.calls(&alice, 3).await, 2);
    node.test_store.fails.store(false, Relaxed);
    node.quotas.flush(&node.store).await;
    let stored = node.stored(&quota).await;
    assert_eq!(stored, [row("api_key:alice", 2, 0, 0)]);
}

/// Goal: what was written counts once, also if the store's answer comes too late or not at all. Method: a flush that
/// isn't waited for; a write whose result is unknown, with calls after it.
#[tokio::test(start_paused = true)]
async fn answers_that_are_missed() {
    let written = json!({ "id": "q", "window": "day", "calls": 9 });
    let node = TestNode::new(json!([written]));
    let store = &node.test_store;
    let alice = key("alice");
    assert_eq!(node.calls(&alice, 1).await, 1);
    store.answers_late.store(true, Relaxed);
    let flush = node.quotas.flush(&node.store);
    let flushed = tokio::time::timeout(Duration::from_secs(1), flush).await;
    assert!(flushed.is_err());
    store.answers_late.store(false, Relaxed);
    node.quotas.flush(&node.store).await;
    let stored = node.stored(&written).await;
    assert_eq!(stored, [row("api_key:alice", 1, 0, 0)]);
    for is_unsure in [true, false] {
        store.is_unsure.store(is_unsure, Relaxed);
        assert_eq!(node.calls(&alice, 1).await, 1);
        node.quotas.flush(&node.store).await;
    }
    let stored = node.stored(&written).await;
    assert_eq!(stored, [row("api_key:alice", 3, 0, 0)]);
}

/// Goal: all nodes write entries in one order, so that their transactions can't wait for each other in a circle.
/// Method: many principals at two quotas.
#[tokio::test(start_paused = true)]
async fn entries_are_written_in_order() {
    let node = TestNode::new(json!([
        { "id": "b", "window": "day", "calls": 9 },
        { "id": "a", "window": "day", "calls": 9 },
    ]));
    for at in 0..50 {
        assert_eq!(node.calls(&key(&format!("k{at}")), 1).await, 1);
    }
    node.quotas.flush(&node.store).await;
    let writes = node.test_store.writes.lock();
    assert_eq!(writes.len(), 100);
    assert!(writes.is_sorted(), "{writes:?}");
}

/// Goal: an entry that a node has just written for a new window isn't removed as one of the old. Method: a write
/// while the entries are read.
#[tokio::test(start_paused = true)]
async fn renewed_entries_stay() {
    let written = json!({ "id": "q", "window": "minute", "calls": 2 });
    let node = TestNode::new(json!([written]));
    let alice = key("alice");
    assert_eq!(node.calls(&alice, 1).await, 1);
    node.quotas.flush(&node.store).await;
    node.set_time("2026-11-27T11:07:00Z");
    // The counter is read again before it counts.
    tokio::time::sleep(Duration::from_secs(2)).await;
    node.test_store.delay_ms.store(1, Relaxed);
    let now_s = node.now_s.load(Relaxed);
    let renewed = async {
        assert_eq!(node.calls(&alice, 1).await, 1);
        node.quotas.flush(&node.store).await;
    };
    let (swept, ()) = tokio::join!(sweep(&*node.store, "q", now_s), renewed);
    assert_eq!(swept, Ok(0));
    let stored = node.stored(&written).await;
    assert_eq!(stored, [row("api_key:alice", 1, 0, 0)]);
}

/// Goal: a store without room for other counters isn't tried for each of them, and gets room from windows that are
/// over, some at a time; until then they count in memory. Method: as many counters as a space has entries, and a
/// hundred more; the next minute.
#[tokio::test(start_paused = true)]
async fn a_full_space() {
    let written = json!({ "id": "q", "window": "minute", "calls": 2 });
    let node = TestNode::new(json!([written]));
    let call_all = async |name: &str, count: usize| {
        for at in 0..count {
            let principal = key(&format!("{name}{at}"));
            assert!(node.call(&principal, "files", "read").await.is_ok());
        }
    };
    call_all("k", KV_SPACE_ENTRIES_MAX_DEFAULT).await;
    node.quotas.flush(&node.store).await;
    let stored = node.stored(&written).await;
    assert_eq!(stored.len(), KV_SPACE_ENTRIES_MAX_DEFAULT);
    let alice = key("alice");
    assert_eq!(node.calls(&alice, 1).await, 1);
    call_all("x", 100).await;
    node.test_store.writes.lock().clear();
    node.quotas.flush(&node.store).await;
    assert!(node.test_store.writes.lock().len() <= COUNTER_WRITES_MAX);
    let stored = node.stored(&written).await;
    assert_eq!(stored.len(), KV_SPACE_ENTRIES_MAX_DEFAULT);
    assert_eq!(node.calls(&alice, 3).await, 1);
    assert_eq!(node.calls(&key("k0"), 3).await, 1);
    node.set_time("2026-11-27T11:07:00Z");
    tokio::time::advance(Duration::from_secs(61)).await;
    assert_eq!(node.calls(&alice, 1).await, 1);
    node.quotas.flush(&node.store).await;
    assert_eq!(node.stored(&written).await, [row("api_key:alice", 1, 0, 0)]);
    let entries = node.store.list("quotas/q", None, usize::MAX).await;
    let removed = KV_SPACE_ENTRIES_MAX_DEFAULT + 1 - entries.unwrap().len();
    assert_eq!(removed, EXPIRED_REMOVALS_MAX as usize);
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
