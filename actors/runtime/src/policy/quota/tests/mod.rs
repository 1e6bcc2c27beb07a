//! Tests of quotas.

mod bounds;
mod models;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use async_trait::async_trait;
use callboard_message::capabilities::{
    CallTool, DescribeAgent, GetPrompt, ListTools, ReadResource, UnsubscribeResource,
};
use callboard_message::mail::RETRY_AFTER_DATA_KEY;
use callboard_message::time::{UNIX_SECOND_MAX, format_rfc3339, parse_rfc3339};
use callboard_message::{CallId, FailureKind, PrincipalKind, RawObject};
use futures::future::join_all;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use super::window::to_time;
use super::*;
use crate::journal::JournalResult;
use crate::kv_store::{KvEntry, MemoryKvStore};
use crate::policy::Direction;

/// Time at which the clocks of the tests begin.
const BEGIN: &str = "2026-11-27T11:06:30Z";

fn seconds(time: &str) -> u64 {
    unix_s(parse_rfc3339(time).unwrap())
}

fn key(id: &str) -> Principal {
    Principal {
        kind: PrincipalKind::ApiKey,
        ..Principal::agent(id)
    }
}

fn parsed(written: &Value) -> Vec<Quota> {
    serde_json::from_value(written.clone()).unwrap()
}

/// Store that can fail, and that takes its time.
#[derive(Default)]
struct TestStore {
    inner: MemoryKvStore,
    fails: AtomicBool,
    /// Time that each operation takes.
    delay_ms: AtomicU64,
    reads_hang: AtomicBool,
    /// Whether a write is answered ten seconds after it was made.
    answers_late: AtomicBool,
    /// Whether the result of a write is unknown, although it was made.
    is_unsure: AtomicBool,
    /// Spaces and keys that were to be written, in order.
    writes: Mutex<Vec<(String, String)>>,
}

impl TestStore {
    async fn work(&self) -> JournalResult<()> {
        let delay_ms = self.delay_ms.load(Relaxed);
        if delay_ms > 0 {
            tokio::time::sleep(Duration::from_millis(delay_ms)).await;
        }
        match self.fails.load(Relaxed) {
            true => Err(JournalError::Unavailable("it is away".to_owned())),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl KvStore for TestStore {
    async fn get(&self, space: &str, key: &str) -> JournalResult<Option<KvEntry>> {
        self.work().await?;
        if self.reads_hang.load(Relaxed) {
            std::future::pending::<()>().await;
        }
        self.inner.get(space, key).await
    }

    async fn put(
        &self,
        space: &str,
        key: &str,
        body: RawObject,
        expected: Option<u64>,
    ) -> Result<u64, KvError> {
        let written = (space.to_owned(), key.to_owned());
        self.writes.lock().push(written);
        self.work().await?;
        let written = self.inner.put(space, key, body, expected).await;
        if self.answers_late.load(Relaxed) {
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        match self.is_unsure.load(Relaxed) {
            true => Err(JournalError::Unknown("it says nothing".to_owned()).into()),
            false => written,
        }
    }

    async fn remove(&self, space: &str, key: &str) -> JournalResult<bool> {
        self.work().await?;
        self.inner.remove(space, key).await
    }

    async fn list(
        &self,
        space: &str,
        after: Option<&str>,
        entries_max: usize,
    ) -> JournalResult<Vec<KvEntry>> {
        self.work().await?;
        self.inner.list(space, after, entries_max).await
    }

    async fn clear(&self, space: &str) -> JournalResult<u64> {
        self.inner.clear(space).await
    }
}

/// Quotas of a node, with its store and clock.
struct TestNode {
    quotas: Quotas,
    test_store: Arc<TestStore>,
    store: Arc<dyn KvStore>,
    now_s: Arc<AtomicU64>,
}

impl TestNode {
    fn new(written: Value) -> Self {
        let now_s = Arc::new(AtomicU64::new(seconds(BEGIN)));
        Self::with(Arc::default(), now_s, written)
    }

    fn with(test_store: Arc<TestStore>, now_s: Arc<AtomicU64>, written: Value) -> Self {
        let clock = now_s.clone();
        let quotas = Quotas::with_clock(Arc::new(move || to_time(clock.load(Relaxed))));
        let store: Arc<dyn KvStore> = test_store.clone();
        let node = Self {
            quotas,
            test_store,
            store,
            now_s,
        };
        node.set(written);
        node
    }

    /// Returns another node, or the next process, on the same store.
    fn beside(&self, written: Value) -> Self {
        Self::with(self.test_store.clone(), self.now_s.clone(), written)
    }

    fn set(&self, written: Value) {
        let quotas = parsed(&written);
        assert_eq!(Quota::validate_all(&quotas), Ok(()), "{written}");
        self.quotas.set(quotas);
    }

    fn set_time(&self, time: &str) {
        self.now_s.store(seconds(time), Relaxed);
    }

    async fn send(
        &self,
        principal: &Principal,
        agent: &str,
        message: &str,
        payload: Value,
    ) -> Result<(), Failure> {
        let payload = to_raw_value(&payload).unwrap();
        let request = PolicyRequest {
            direction: Direction::Inbound,
            principal,
            call: CallId::generate(),
            agent,
            message,
            payload: &payload,
        };
        self.quotas.count_call(&self.store, request).await
    }

    async fn call(&self, principal: &Principal, agent: &str, tool: &str) -> Result<(), Failure> {
        let payload = json!({ "name": tool, "arguments": {} });
        self.send(principal, agent, CallTool::NAME, payload).await
    }

    /// Returns the number of calls that pass, of so many.
    async fn calls(&self, principal: &Principal, count: usize) -> usize {
        let mut passed = 0;
        for _ in 0..count {
            passed += usize::from(self.call(principal, "files", "read").await.is_ok());
        }
        passed
    }

    async fn ask(&self, principal: &Principal, model: &str) -> Result<ModelUse, Failure> {
        self.quotas.reserve(&self.store, principal, model).await
    }

    /// Returns principal, calls, tokens and millionths of a dollar that are stored for the current window.
    async fn stored(&self, written: &Value) -> Vec<(String, u64, u64, u64)> {
        let quota: Quota = serde_json::from_value(written.clone()).unwrap();
        let now = to_time(self.now_s.load(Relaxed));
        let used = quota_usage(&*self.store, &quota, now).await.unwrap();
        let used = used.into_iter();
        used.map(|used| (used.principal, used.calls, used.tokens, used.micro_usd))
            .collect()
    }
}

/// Runs `work` on a runtime of its own, with paused time.
fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(work)
}

fn row(principal: &str, calls: u64, tokens: u64, micro_usd: u64) -> (String, u64, u64, u64) {
    (principal.to_owned(), calls, tokens, micro_usd)
}

/// Goal: windows begin and end by the calendar of UTC. Method: rows around the ends of minutes, days, months,
/// years and a February with a leap day, and the end of time.
#[test]
fn windows_by_the_calendar() {
    use QuotaWindow::{Day, Minute, Month};
    for (window, time, start, end) in [
        (
            Minute,
            "2026-11-27T11:06:59Z",
            "2026-11-27T11:06:00Z",
            "2026-11-27T11:07:00Z",
        ),
        (
            Minute,
            "2026-11-27T11:07:00Z",
            "2026-11-27T11:07:00Z",
            "2026-11-27T11:08:00Z",
        ),
        (
            Day,
            "2026-12-31T23:59:59Z",
            "2026-12-31T00:00:00Z",
            "2027-01-01T00:00:00Z",
        ),
        (
            Day,
            "2028-02-28T00:00:00Z",
            "2028-02-28T00:00:00Z",
            "2028-02-29T00:00:00Z",
        ),
        (
            Month,
            "2026-12-31T23:59:59Z",
            "2026-12-01T00:00:00Z",
            "2027-01-01T00:00:00Z",
        ),
        (
            Month,
            "2027-01-01T00:00:00Z",
            "2027-01-01T00:00:00Z",
            "2027-02-01T00:00:00Z",
        ),
        (
            Month,
            "2027-02-28T12:00:00Z",
            "2027-02-01T00:00:00Z",
            "2027-03-01T00:00:00Z",
        ),
        (
            Month,
            "2028-02-29T23:59:59Z",
            "2028-02-01T00:00:00Z",
            "2028-03-01T00:00:00Z",
        ),
        (
            Month,
            "2028-03-01T00:00:00Z",
            "2028-03-01T00:00:00Z",
            "2028-04-01T00:00:00Z",
        ),
        (
            Month,
            "1970-01-01T00:00:00Z",
            "1970-01-01T00:00:00Z",
            "1970-02-01T00:00:00Z",
        ),
    ] {
        let span = window.span_at(seconds(time));
        assert_eq!(
            (span.start_s, span.end_s),
            (seconds(start), seconds(end)),
            "{window:?} {time}"
        );
    }
    for window in [Minute, Day, Month] {
        assert_eq!(window.span_at(u64::MAX).end_s, UNIX_SECOND_MAX + 1);
    }
}

/// Goal: a counter goes on if the clock is set back a little or another node's is ahead, and not if one is wrong by
/// far: by more than half a minute for minutes, and five for others. Method: beginnings of known windows around the
/// present one.
#[test]
fn clocks_that_differ() {
    use QuotaWindow::{Day, Minute, Month};
    let (minute, day, month) = (
        "2026-11-27T11:06:00Z",
        "2026-11-27T00:00:00Z",
        "2026-11-01T00:00:00Z",
    );
    for (window, now, known, expected) in [
        (
            Minute,
            "2026-11-27T11:06:30Z",
            "2026-11-27T11:05:00Z",
            minute,
        ),
        (Minute, "2026-11-27T11:06:30Z", minute, minute),
        (
            Minute,
            "2026-11-27T11:06:30Z",
            "2026-11-27T11:07:00Z",
            "2026-11-27T11:07:00Z",
        ),
        (
            Minute,
            "2026-11-27T11:06:29Z",
            "2026-11-27T11:07:00Z",
            minute,
        ),
        (
            Day,
            "2026-11-27T23:55:00Z",
            "2026-11-28T00:00:00Z",
            "2026-11-28T00:00:00Z",
        ),
        (Day, "2026-11-27T23:54:59Z", "2026-11-28T00:00:00Z", day),
        (
            Month,
            "2026-11-30T23:55:00Z",
            "2026-12-01T00:00:00Z",
            "2026-12-01T00:00:00Z",
        ),
        (Month, "2026-11-30T23:54:59Z", "2026-12-01T00:00:00Z", month),
    ] {
        let known_span = window.span_at(seconds(known));
        let span = window.span_from(seconds(now), known_span);
        assert_eq!(span, window.span_at(seconds(expected)), "{now} {known}");
    }
}

/// Goal: the call after the last of a window is refused with limit and reset time, and the next window begins at
/// zero. Method: a limit of two in each window; the last second of it and the first of the next.
#[tokio::test(start_paused = true)]
async fn refusals_until_the_reset() {
    for (window, last, next, retry_s) in [
        ("minute", "2026-11-27T11:06:59Z", "2026-11-27T11:07:00Z", 30),
        (
            "day",
            "2026-11-27T23:59:59Z",
            "2026-11-28T00:00:00Z",
            46_410,
        ),
        (
            "month",
            "2026-11-30T23:59:59Z",
            "2026-12-01T00:00:00Z",
            305_610,
        ),
    ] {
        let node = TestNode::new(json!([{ "id": "q", "window": window, "calls": 2 }]));
        let alice = key("alice");
        assert_eq!(node.calls(&alice, 2).await, 2);
        let refused = node.call(&alice, "files", "read").await.unwrap_err();
        let resets_at = format_rfc3339(to_time(seconds(next)));
        let why =
            format!("the quota `q` of 2 calls per {window} is used up: it resets at {resets_at}");
        assert_eq!(
            (refused.kind, refused.message),
            (FailureKind::Overloaded, why)
        );
        let data = json!({ "reason": "quota", "quota": "q", "resets_at": resets_at, RETRY_AFTER_DATA_KEY: retry_s });
        assert_eq!(refused.data, Some(data));
        assert_eq!(node.calls(&key("bob"), 1).await, 1);
        node.set_time(last);
        assert_eq!(node.calls(&alice, 1).await, 0);
        node.set_time(next);
        assert_eq!(node.calls(&alice, 3).await, 2, "{window}");
    }
}

/// Goal: counts outlive the process, whether it ends in order or not. Method: a flush, or two seconds; another node
/// on the store; then another month.
#[tokio::test(start_paused = true)]
async fn counts_are_kept() {
    let written = json!([{ "id": "q", "window": "month", "calls": 4 }]);
    let alice = key("alice");
    let first = TestNode::new(written.clone());
    assert_eq!(first.calls(&alice, 2).await, 2);
    first.quotas.flush(&first.store).await;
    let second = first.beside(written.clone());
    assert_eq!(second.calls(&alice, 1).await, 1);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let third = first.beside(written.clone());
    assert_eq!(third.calls(&alice, 3).await, 1);
    third.quotas.flush(&third.store).await;
    assert_eq!(
        third.stored(&written[0]).await,
        [row("api_key:alice", 4, 0, 0)]
    );
    third.set_time("2026-12-01T00:00:00Z");
    assert!(third.stored(&written[0]).await.is_empty());
    let fourth = first.beside(written);
    assert_eq!(fourth.calls(&alice, 5).await, 4);
}

/// Goal: nodes on one store add up, and each knows within a second. Method: two that count at once, and write one
/// after the other.
#[tokio::test(start_paused = true)]
async fn nodes_add_up() {
    let written = json!([{ "id": "q", "window": "day", "calls": 5 }]);
    let alice = key("alice");
    let one = TestNode::new(written.clone());
    let other = one.beside(written.clone());
    assert_eq!(one.calls(&alice, 3).await, 3);
    assert_eq!(other.calls(&alice, 3).await, 3);
    one.quotas.flush(&one.store).await;
    other.quotas.flush(&other.store).await;
    assert_eq!(
        one.stored(&written[0]).await,
        [row("api_key:alice", 6, 0, 0)]
    );
    assert_eq!(other.calls(&alice, 1).await, 0);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(one.calls(&alice, 1).await, 0);
}

/// Goal: what was counted in one window doesn't count in the next, which a node may reach before others. Method: two
/// nodes around the end of a minute; the one that is behind writes after the other.
#[tokio::test(start_paused = true)]
async fn windows_do_not_mix() {
    let written = json!({ "id": "q", "window": "minute", "calls": 9 });
    let ahead = TestNode::new(json!([written]));
    ahead.set_time("2026-11-27T11:07:00Z");
    let now_s = Arc::new(AtomicU64::new(seconds("2026-11-27T11:06:59Z")));
    let behind = TestNode::with(ahead.test_store.clone(), now_s, json!([written]));
    let alice = key("alice");
    for expected in [1, 2] {
        assert_eq!(behind.calls(&alice, 1).await, 1);
        if expected == 1 {
            assert_eq!(ahead.calls(&alice, 1).await, 1);
            ahead.quotas.flush(&ahead.store).await;
        }
        behind.quotas.flush(&behind.store).await;
        let stored = ahead.stored(&written).await;
        assert_eq!(stored, [row("api_key:alice", expected, 0, 0)]);
    }
}

/// Goal: a changed limit counts what was used before; another window doesn't. Method: reloads with other limits,
/// without the quota, and with it again.
#[tokio::test(start_paused = true)]
async fn reloads_keep_counts() {
    let written =
        |window: &str, calls: u64| json!([{ "id": "q", "window": window, "calls": calls }]);
    let alice = key("alice");
    let node = TestNode::new(written("day", 2));
    assert_eq!(node.calls(&alice, 3).await, 2);
    node.set(written("day", 4));
    assert_eq!(node.calls(&alice, 3).await, 2);
    node.quotas.flush(&node.store).await;
    node.set(json!([]));
    assert_eq!(node.calls(&alice, 9).await, 9);
    node.set(written("day", 5));
    assert_eq!(node.calls(&alice, 3).await, 1);
    node.set(written("month", 2));
    assert_eq!(node.calls(&alice, 3).await, 2);
    node.quotas.flush(&node.store).await;
    let stored = node.stored(&written("month", 2)[0]).await;
    assert_eq!(stored, [row("api_key:alice", 2, 0, 0)]);
}

/// Goal: a quota of each doesn't bind the operator and agents, and one of all counts everybody together. Method:
/// each kind of principal at both.
#[tokio::test(start_paused = true)]
async fn shares() {
    let everybody = [
        key("a"),
        Principal {
            kind: PrincipalKind::Token,
            ..key("a")
        },
        Principal::anonymous(),
        Principal::local_operator(),
        Principal::agent("planner"),
    ];
    let node = TestNode::new(json!([{ "id": "q", "window": "day", "calls": 1 }]));
    for (principal, passed) in everybody.iter().zip([1, 1, 1, 3, 3]) {
        assert_eq!(node.calls(principal, 3).await, passed, "{principal:?}");
    }
    let written = json!({ "id": "q", "window": "day", "share": "all", "calls": 4 });
    let node = TestNode::new(json!([written]));
    for (principal, passed) in everybody.iter().zip([1, 1, 1, 1, 0]) {
        assert_eq!(node.calls(principal, 1).await, passed, "{principal:?}");
    }
    let refused = node.call(&key("b"), "files", "read").await.unwrap_err();
    assert!(refused.message.contains("several principals share"));
    node.quotas.flush(&node.store).await;
    assert_eq!(node.stored(&written).await, [row("all", 4, 0, 0)]);
}

/// Goal: a call that one quota refuses counts at none; of several that are used up the last to reset is named.
/// Method: a quota of a tool beside one of all tools.
#[tokio::test(start_paused = true)]
async fn all_quotas_or_none() {
    let node = TestNode::new(json!([
        { "id": "all", "window": "minute", "calls": 3 },
        { "id": "pay", "window": "month", "calls": 1, "tools": ["pay"] },
    ]));
    let alice = key("alice");
    let refused = async |tool: &str| node.call(&alice, "files", tool).await.err();
    assert_eq!(refused("pay").await, None);
    for _ in 0..5 {
        assert!(refused("pay").await.unwrap().message.contains("`pay`"));
    }
    assert_eq!((refused("read").await, refused("read").await), (None, None));
    assert!(refused("read").await.unwrap().message.contains("`all`"));
    assert!(refused("pay").await.unwrap().message.contains("`pay`"));
}

/// Goal: a quota counts the calls that its fields name, by the agent's own names of tools. Method: a quota a field,
/// of one call; messages that use it up, and others.
#[tokio::test(start_paused = true)]
async fn quotas_apply_by_their_fields() {
    let call = |tool: &str| (CallTool::NAME, json!({ "name": tool }));
    let robot = Principal {
        scopes: vec!["role:robot".to_owned()],
        ..key("robot")
    };
    for (fields, agent, (message, payload), is_counted) in [
        (json!({}), "files", call("read"), true),
        (json!({}), "files", ("read", json!({ "any": 1 })), true),
        (
            json!({}),
            "files",
            (GetPrompt::NAME, json!({ "name": "greet" })),
            true,
        ),
        (json!({}), "files", (ListTools::NAME, json!({})), false),
        (json!({}), "files", (DescribeAgent::NAME, json!({})), false),
        (
            json!({}),
            "files",
            (UnsubscribeResource::NAME, json!({ "uri": "a:b" })),
            false,
        ),
        (
            json!({ "principals": ["api_key:ro*"] }),
            "files",
            call("read"),
            true,
        ),
        (
            json!({ "principals": ["token:*", "alice"] }),
            "files",
            call("read"),
            false,
        ),
        (json!({ "scopes": ["role:*"] }), "files", call("read"), true),
        (json!({ "scopes": ["robot"] }), "files", call("read"), false),
        (json!({ "agents": ["f*"] }), "files", call("read"), true),
        (json!({ "agents": ["mail"] }), "files", call("read"), false),
        (json!({ "tools": ["re?d"] }), "files", call("read"), true),
        (
            json!({ "tools": ["files.read"] }),
            "files",
            call("read"),
            true,
        ),
        (
            json!({ "tools": ["files.read"] }),
            "mail",
            call("read"),
            false,
        ),
        (
            json!({ "tools": ["read"] }),
            "files",
            (ReadResource::NAME, json!({ "uri": "read" })),
            false,
        ),
        // It could be any tool.
        (
            json!({ "tools": ["pay"] }),
            "files",
            (CallTool::NAME, json!({ "name": "a", "NAME": "pay" })),
            true,
        ),
        (json!({ "models": ["*"] }), "files", call("read"), false),
    ] {
        let mut written = json!({ "id": "q", "window": "day", "calls": 1 });
        let fields = fields.as_object().unwrap().clone();
        written.as_object_mut().unwrap().extend(fields);
        let node = TestNode::new(json!([written]));
        for passes in [true, !is_counted] {
            let sent = node.send(&robot, agent, message, payload.clone()).await;
            assert_eq!(sent.is_ok(), passes, "{written} {message} {payload}");
        }
    }
}

/// Goal: of calls at once, exactly as many as the limit pass. Method: futures that wait for a slow store.
#[tokio::test(start_paused = true)]
async fn calls_at_once() {
    let written = json!([{ "id": "q", "window": "day", "calls": 20 }]);
    let node = TestNode::new(written);
    node.test_store.delay_ms.store(1, Relaxed);
    let alice = key("alice");
    let passed = join_all((0..50).map(|_| node.calls(&alice, 1))).await;
    assert_eq!(passed.iter().sum::<usize>(), 20);
}

/// Goal: as in `calls_at_once`, with threads, whose runtimes end before their changes are written. Method: eight
/// threads of a hundred calls; then a call of another runtime, which writes all changes.
#[test]
fn calls_of_threads() {
    let written = json!([{ "id": "q", "window": "day", "calls": 300 }]);
    let node = TestNode::new(written.clone());
    let (alice, bob) = (key("alice"), key("bob"));
    let passed: usize = std::thread::scope(|scope| {
        let run = || block_on(node.calls(&alice, 100));
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(run)).collect();
        let passed = threads.into_iter().map(|thread| thread.join().unwrap());
        passed.sum()
    });
    assert_eq!(passed, 300);
    block_on(async {
        assert_eq!(node.calls(&bob, 1).await, 1);
        tokio::time::sleep(Duration::from_secs(2)).await;
        let stored = node.stored(&written[0]).await;
        let expected = [row("api_key:alice", 300, 0, 0), row("api_key:bob", 1, 0, 0)];
        assert_eq!(stored, expected);
    });
}
