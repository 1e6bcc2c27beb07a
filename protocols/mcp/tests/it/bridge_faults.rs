//! Servers and clients that crash, hang, return, or are slow; limits.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use callboard_mcp::bridge::{BridgeOptions, StartMode};
use callboard_mcp::inbound::McpServerOptions;
use callboard_mcp::outbound::{Era, McpClientOptions, ServerEndpoint};
use callboard_message::capabilities::{CallTool, DescribeAgent};
use callboard_message::{CallerCapabilities, FailureKind};
use callboard_runtime::testkit::{Probe, eventually};
use callboard_runtime::{AgentChanged, AgentRef, Backoff};
use serde_json::{Value, json};

use crate::bridge_kit::{Asker, Person, Site, ask_as, child, of, text};
use crate::client_kit::Played;
use crate::kit::{SOON, soon};

/// Pauses that a test can wait for.
const SHORT: Backoff = Backoff {
    first: Duration::from_millis(20),
    max: Duration::from_millis(20),
    jitter: 0.0,
};

fn is_gone(pid: &str) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid).join("stat"));
    // A zombie process has ended, too.
    stat.map_or(true, |stat| stat.contains(") Z "))
}

async fn seen(bridge: &AgentRef) -> Value {
    soon(bridge.observe()).await
}

/// Waits until the observed state of a bridge is as wanted.
async fn until(bridge: &AgentRef, what: &str, wanted: impl Fn(&Value) -> bool) {
    soon(async {
        while !wanted(&bridge.observe().await) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(wanted(&seen(bridge).await), "{what}");
}

/// Goal: a server that dies fails the running calls by name, drops its open questions, and is
/// started again for the next call. Method: a child that ends during a call, and with a question
/// open.
#[tokio::test]
async fn servers_die() {
    let script = r#"
        initialize
        while hear; do case "$line" in *die*) exit 1;; *question*) ask who; exit 1;; esac; text "$id" alive; done
    "#;
    let site = Site::new();
    let bridge = site.bridge(child(script), of(Era::Legacy));
    let person = Person::thinker("a");
    for arguments in [json!({ "die": 1 }), json!({ "question": 1 })] {
        let failed = ask_as(&bridge, person.call(), arguments).await.unwrap_err();
        assert_eq!(failed.kind, FailureKind::Unavailable);
        assert!(failed.message.starts_with("far: "), "{failed}");
        eventually("the question is taken back", SOON, || {
            person.open.load(SeqCst) == 0
        })
        .await;
    }
    let said = ask_as(&bridge, person.call(), json!({})).await.unwrap();
    assert_eq!(text(&said), "alive");
    site.end().await;
}

/// Goal: a client that disconnects while its question is open leaves nothing behind, at the server
/// neither. Method: cancel a call whose user never answers; over HTTP and over pipes.
#[tokio::test]
async fn clients_die() {
    let mut site = Site::new();
    let (far, running) = site.asker();
    let script =
        r#"initialize; hear; ask who; hear; told=$(part method); hear; text "$id" "$told""#;
    for (endpoint, is_http) in [(far, true), (child(script), false)] {
        let bridge = site.bridge(endpoint, of(Era::Legacy));
        let person = Person::thinker("a");
        let call = person.call();
        let cancel = call.cancel.clone();
        let asked = tokio::spawn({
            let bridge = bridge.clone();
            async move { ask_as(&bridge, call, json!({ "secret": "s" })).await }
        });
        eventually("it is asked", SOON, || person.open.load(SeqCst) == 1).await;
        cancel.cancel();
        assert_eq!(
            soon(asked).await.unwrap().unwrap_err().kind,
            FailureKind::Cancelled
        );
        eventually("nothing runs", SOON, || {
            running.load(SeqCst) == 0 && person.open.load(SeqCst) == 0
        })
        .await;
        let now = seen(&bridge).await;
        assert_eq!(
            (&now["calls"], &now["connections"]["in_use"]),
            (&json!(0), &json!(0))
        );
        if !is_http {
            let said = ask_as(&bridge, person.call(), json!({})).await.unwrap();
            assert_eq!(text(&said), "notifications/cancelled");
        }
    }
    site.end().await;
}

/// Number of abandoned calls. They are spread over users, because a session of our server has at
/// most 64 questions open.
const ABANDONED: usize = 1_000;
const PEOPLE: usize = 20;
/// Time limit of starting a thousand calls while all tests run, and the polling interval; polling
/// all the time would leave them no processor.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Waits until `condition` holds, polling at intervals.
async fn patiently(what: &str, condition: impl Fn() -> bool) {
    let mut looks = tokio::time::interval(LOOK_EVERY);
    let waiting = async {
        while !condition() {
            looks.tick().await;
        }
    };
    assert!(
        tokio::time::timeout(PATIENCE, waiting).await.is_ok(),
        "{what}"
    );
}

/// Goal: a thousand abandoned calls that wait for answers leave nothing behind. Method: users who
/// never answer, each era of the server; a call's resources are counted by its references to them.
#[tokio::test]
async fn abandoned_calls_are_forgotten() {
    for era in [Era::Legacy, Era::Modern] {
        let mut site = Site::new();
        let (far, running) = site.asker();
        let options = BridgeOptions {
            calls_max: ABANDONED as u32,
            ..of(era)
        };
        let bridge = site.bridge(far, options);
        let people: Vec<_> = (0..PEOPLE)
            .map(|at| Person::thinker(&format!("p{at}")))
            .collect();
        let held = || people.iter().map(Arc::strong_count).sum::<usize>();
        let thinking = || {
            people
                .iter()
                .map(|person| person.open.load(SeqCst))
                .sum::<usize>()
        };
        let before = held();
        let calls: Vec<_> = (0..ABANDONED)
            .map(|at| {
                let (bridge, call) = (bridge.clone(), people[at % PEOPLE].call());
                tokio::spawn(async move {
                    let params = serde_json::value::to_raw_value(
                        &json!({ "name": "ask", "arguments": { "secret": "s" } }),
                    );
                    bridge
                        .ask_named(
                            "callboard.tools.call".to_owned(),
                            params.unwrap(),
                            Some(Arc::new(call)),
                        )
                        .await
                })
            })
            .collect();
        patiently("all think", || thinking() == ABANDONED).await;
        let now = seen(&bridge).await;
        assert_eq!(
            (&now["calls"], &now["calls_parked"]),
            (&json!(0), &json!(ABANDONED))
        );
        calls.iter().for_each(tokio::task::JoinHandle::abort);
        patiently("nobody thinks", || thinking() == 0).await;
        until(&bridge, "no calls", |now| {
            now["calls"] == 0 && now["calls_parked"] == 0 && now["connections"]["in_use"] == 0
        })
        .await;
        patiently("nothing is held", || held() == before).await;
        if era == Era::Legacy {
            patiently("nothing runs at the server", || running.load(SeqCst) == 0).await;
        }
        site.end().await;
    }
}

/// Goal: a slow or dead server delays no other's calls, and a dead one's fail at once. Method: fill
/// a principal's part of one bridge with calls that never end, try another in vain, and call a third meanwhile.
#[tokio::test]
async fn slow_servers_harm_no_other() {
    const SLOW: u32 = 8;
    let mut site = Site::new();
    let ((slow, slow_running), (quick, _)) = (site.asker(), site.asker());
    let slow = site.bridge(
        slow,
        BridgeOptions {
            calls_max: SLOW,
            principal_share_percent: 100,
            ..of(Era::Legacy)
        },
    );
    let dead = site.bridge(
        ServerEndpoint::from_url("http://127.0.0.1:9/mcp").unwrap(),
        of(Era::Legacy),
    );
    let quick = site.bridge(quick, of(Era::Legacy));
    let person = Person::new("a", "{}");
    let hanging: Vec<_> = (0..2 * SLOW)
        .map(|_| {
            let (slow, call) = (slow.clone(), person.call());
            tokio::spawn(async move { ask_as(&slow, call, json!({ "silent": 1 })).await })
        })
        .collect();
    eventually("it is full", SOON, || {
        slow_running.load(SeqCst) == SLOW as usize
    })
    .await;
    for _ in 0..3 {
        let failed = ask_as(&dead, person.call(), json!({})).await.unwrap_err();
        assert_eq!(
            (failed.kind, &failed.message[..5]),
            (FailureKind::Unavailable, "far: ")
        );
    }
    for _ in 0..50 {
        assert_eq!(
            text(
                &ask_as(&quick, person.call(), json!({ "quick": 1 }))
                    .await
                    .unwrap()
            ),
            "quick"
        );
        let failed = ask_as(&dead, person.call(), json!({})).await.unwrap_err();
        assert_eq!(failed.kind, FailureKind::Unavailable);
    }
    assert_eq!(slow_running.load(SeqCst), SLOW as usize);
    hanging.iter().for_each(tokio::task::JoinHandle::abort);
    site.end().await;
}

/// Goal: a session that the server has lost is opened again for that client, with the same
/// capabilities. Method: 404 to a call of a session.
#[tokio::test]
async fn expired_sessions_begin_again() {
    let mut peer = Played::start().await;
    let site = Site::new();
    let mut options = of(Era::Legacy);
    options.client.listen = false;
    let bridge = site.bridge(ServerEndpoint::from_url(&peer.url).unwrap(), options);
    let person = Person::new("a", r#"{"sampling":{}}"#);
    let session = person.session();
    let asked =
        tokio::spawn(async move { ask_as(&bridge, person.call_in(&session), json!({})).await });
    let offered = peer.initialize("2025-11-25", Some("one")).await["capabilities"].clone();
    let call = peer.expect("tools/call").await;
    assert_eq!(call.header("mcp-session-id"), Some("one"));
    call.empty(404).await;
    // The session is ended concurrently with the call.
    peer.skips = |hit| hit.method == "DELETE";
    assert_eq!(
        peer.initialize("2025-11-25", Some("two")).await["capabilities"],
        offered
    );
    let call = peer.expect("tools/call").await;
    assert_eq!(call.header("mcp-session-id"), Some("two"));
    call.result(json!({ "content": [] })).await;
    soon(asked).await.unwrap().unwrap();
    site.end().await;
}

/// Goal: after the limit of failures the breaker opens, callers learn the time of the next attempt,
/// and the server is found again. Method: an address without listener, and later with one.
#[tokio::test]
async fn breakers_open_and_close() {
    let mut site = Site::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let pause = Duration::from_millis(300);
    let backoff = Backoff {
        first: pause,
        max: pause,
        jitter: 0.0,
    };
    let endpoint = ServerEndpoint::from_url(&format!("http://{address}/mcp")).unwrap();
    let bridge = site.bridge(
        endpoint,
        BridgeOptions {
            failures_max: 2,
            backoff,
            ..of(Era::Legacy)
        },
    );
    let person = Person::new("a", "{}");
    let quick = || ask_as(&bridge, person.call(), json!({ "quick": 1 }));
    for _ in 0..2 {
        assert_eq!(
            quick().await.unwrap_err().message,
            "far: can't connect to the server: connection refused"
        );
    }
    let refused = quick().await.unwrap_err();
    assert_eq!(
        refused.message,
        "far is unavailable (can't connect to the server: connection refused); next attempt in 1 s"
    );
    let now = seen(&bridge).await;
    assert_eq!(
        (&now["state"], &now["failures"]),
        (&json!("away"), &json!(2))
    );
    let agent = site.system.spawn(Asker {
        running: Arc::default(),
    });
    site.serve_on(
        TcpListener::bind(address).unwrap(),
        agent,
        McpServerOptions::default(),
    );
    soon(async {
        while quick().await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let now = seen(&bridge).await;
    assert_eq!(
        (&now["failures"], now.get("next_try_ms")),
        (&json!(0), None)
    );
    site.end().await;
}

/// Goal: a server that hangs doesn't block the clients' handshake. Method: a silent socket, behind
/// a bridge behind a server of ours.
#[tokio::test]
async fn hanging_servers_are_described() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", silent.local_addr().unwrap());
    let mut site = Site::new();
    let bridge = site.bridge(ServerEndpoint::from_url(&url).unwrap(), of(Era::Legacy));
    let url = site.serve(bridge, McpServerOptions::default());
    let client = site.client(&url, Era::Legacy, CallerCapabilities::default());
    soon(client.ask(DescribeAgent::default()))
        .await
        .unwrap()
        .unwrap();
    site.end().await;
}

/// Goal: one call above the limit is rejected, and the others continue. Method: the limit, and one
/// more.
#[tokio::test]
async fn calls_are_bounded() {
    let mut site = Site::new();
    let (far, running) = site.asker();
    let options = BridgeOptions {
        calls_max: 2,
        call_slot_timeout: Duration::from_millis(20),
        ..of(Era::Legacy)
    };
    let bridge = site.bridge(far, options);
    let person = Person::new("a", "{}");
    let spawn = |arguments: Value| {
        let (bridge, call) = (bridge.clone(), person.call());
        tokio::spawn(async move { ask_as(&bridge, call, arguments).await })
    };
    let hanging = [(); 2].map(|()| spawn(json!({ "silent": 1 })));
    eventually("it is full", SOON, || running.load(SeqCst) == 2).await;
    let refused = soon(spawn(json!({ "quick": 1 })))
        .await
        .unwrap()
        .unwrap_err();
    assert_eq!(
        (refused.kind, &*refused.message),
        (
            FailureKind::Overloaded,
            "far: its limit of 2 concurrent calls is reached (`calls_max`): try again later"
        )
    );
    hanging[0].abort();
    until(&bridge, "a place is free", |now| now["calls"] == 1).await;
    soon(spawn(json!({ "quick": 1 }))).await.unwrap().unwrap();
    hanging[1].abort();
    site.end().await;
}

/// Goal: calls whose user doesn't answer keep nobody from a server, and go on once they are answered.
/// Method: a user who never answers leaves more calls open than there are slots, over HTTP and in a
/// session over pipes; another user calls; then the open calls are abandoned.
#[tokio::test]
async fn parked_calls_hold_no_slot() {
    const SLOTS: u32 = 4;
    let mut site = Site::new();
    let (far, running) = site.asker();
    let script = r#"
        initialize
        while hear; do case "$line" in
            *secret*) printf '{"jsonrpc":"2.0","id":"q%s","method":"elicitation/create","params":{"message":"m","requestedSchema":{}}}\n' "$id";;
            *tools/call*) text "$id" quick;;
        esac; done
    "#;
    for (endpoint, in_session) in [(far, false), (child(script), true)] {
        let options = BridgeOptions {
            calls_max: SLOTS,
            ..of(Era::Legacy)
        };
        let bridge = site.bridge(endpoint, options);
        let (thinker, other) = (Person::thinker("a"), Person::new("b", "{}"));
        let session = thinker.session();
        let asking: Vec<_> = (0..2 * SLOTS)
            .map(|_| {
                let call = match in_session {
                    true => thinker.call_in(&session),
                    false => thinker.call(),
                };
                let bridge = bridge.clone();
                tokio::spawn(async move { ask_as(&bridge, call, json!({ "secret": "s" })).await })
            })
            .collect();
        let all = 2 * SLOTS as usize;
        eventually("all are asked", SOON, || thinker.open.load(SeqCst) == all).await;
        until(&bridge, "all are parked", |now| now["calls_parked"] == all).await;
        assert_eq!(seen(&bridge).await["calls"], 0);
        for _ in 0..2 * SLOTS {
            let quick = ask_as(&bridge, other.call(), json!({ "quick": 1 })).await;
            assert_eq!(text(&quick.unwrap()), "quick");
        }
        asking.iter().for_each(tokio::task::JoinHandle::abort);
        until(&bridge, "nothing is left", |now| {
            now["calls"] == 0 && now["calls_parked"] == 0
        })
        .await;
    }
    eventually("nothing runs", SOON, || running.load(SeqCst) == 0).await;
    site.end().await;
}

/// Goal: one principal can't have a server alone. Method: a user starts more calls that never end than
/// there are slots; the slots that are left and their refusals are exact, another user's call runs at
/// once, and a freed slot goes to the user without any.
#[tokio::test]
async fn one_caller_is_not_all() {
    const SLOTS: u32 = 8;
    let mut site = Site::new();
    let (far, running) = site.asker();
    let options = BridgeOptions {
        calls_max: SLOTS,
        call_slot_timeout: Duration::from_millis(50),
        ..of(Era::Legacy)
    };
    let bridge = site.bridge(far, options);
    let (greedy, other) = (Person::new("a", "{}"), Person::new("b", "{}"));
    let spawn = |person: &Arc<Person>, arguments: Value| {
        let (bridge, call) = (bridge.clone(), person.call());
        tokio::spawn(async move { ask_as(&bridge, call, arguments).await })
    };
    let hanging: Vec<_> = (0..6)
        .map(|_| spawn(&greedy, json!({ "silent": 1 })))
        .collect();
    eventually("the reserve is left", SOON, || running.load(SeqCst) == 6).await;
    let refused = soon(spawn(&greedy, json!({ "quick": 1 })))
        .await
        .unwrap()
        .unwrap_err();
    assert_eq!(
        refused.message,
        "far: its limit of 8 concurrent calls, 6 of one principal, is reached (`calls_max`): try again later"
    );
    for _ in 0..2 * SLOTS {
        soon(spawn(&other, json!({ "quick": 1 })))
            .await
            .unwrap()
            .unwrap();
    }
    let others: Vec<_> = (0..2)
        .map(|_| spawn(&other, json!({ "silent": 1 })))
        .collect();
    eventually("all slots are used", SOON, || running.load(SeqCst) == 8).await;
    let waiting = spawn(&other, json!({ "quick": 1 }));
    assert_eq!(
        soon(waiting).await.unwrap().unwrap_err().kind,
        FailureKind::Overloaded
    );
    hanging.iter().chain(&others).for_each(|call| call.abort());
    until(&bridge, "all slots are free", |now| now["calls"] == 0).await;
    site.end().await;
}

/// Goal: connections are limited: an idle one makes room for another, one in use doesn't; unused
/// ones are closed. Method: two clients and room for one.
#[tokio::test]
async fn connections_are_bounded() {
    let script = r#"initialize; while hear; do case "$line" in *secret*) ask who; hear; esac; text "$id" $$; done"#;
    let options = BridgeOptions {
        connections_max: 1,
        call_slot_timeout: Duration::from_millis(20),
        idle_timeout: Duration::from_millis(400),
        ..of(Era::Legacy)
    };
    let site = Site::new();
    let bridge = site.bridge(child(script), options);
    let (a, b) = (Person::thinker("a"), Person::thinker("b"));
    let first = ask_as(&bridge, a.call(), json!({})).await.unwrap();
    let second = ask_as(&bridge, b.call(), json!({})).await.unwrap();
    eventually("the first has made room", SOON, || is_gone(text(&first))).await;
    assert!(!is_gone(text(&second)));
    let thinking = tokio::spawn({
        let (bridge, call) = (bridge.clone(), b.call());
        async move { ask_as(&bridge, call, json!({ "secret": "s" })).await }
    });
    eventually("it is asked", SOON, || b.open.load(SeqCst) == 1).await;
    let refused = ask_as(&bridge, a.call(), json!({})).await.unwrap_err();
    let expected = "far: all its connections are in use (`connections_max`): try again later";
    assert_eq!(
        (refused.kind, &*refused.message),
        (FailureKind::Overloaded, expected)
    );
    thinking.abort();
    eventually("what is idle has ended", SOON, || is_gone(text(&second))).await;
    until(&bridge, "no connection", |now| {
        now["connections"]["own"] == 0
    })
    .await;
    site.end().await;
}

/// Goal: one principal can't use all connections, and one beyond its share makes room first. Method: a
/// user whose open questions each hold a program, up to what is left for others; another user's call;
/// then idle connections of both, and a third user's call.
#[tokio::test]
async fn connections_are_shared() {
    let script = r#"initialize; while hear; do case "$line" in *secret*) ask who; hear; esac; text "$id" $$; done"#;
    let options = BridgeOptions {
        connections_max: 4,
        call_slot_timeout: Duration::from_millis(50),
        ..of(Era::Legacy)
    };
    let site = Site::new();
    let bridge = site.bridge(child(script), options);
    let (greedy, other) = (Person::thinker("a"), Person::new("b", "{}"));
    let ask = || {
        let (bridge, call) = (bridge.clone(), greedy.call());
        tokio::spawn(async move { ask_as(&bridge, call, json!({ "secret": "s" })).await })
    };
    let asking = [(); 3].map(|()| ask());
    eventually("all are asked", SOON, || greedy.open.load(SeqCst) == 3).await;
    let refused = soon(ask()).await.unwrap().unwrap_err();
    assert_eq!(refused.kind, FailureKind::Overloaded);
    let kept = ask_as(&bridge, other.call(), json!({})).await.unwrap();
    asking.iter().for_each(tokio::task::JoinHandle::abort);
    until(&bridge, "all are idle", |now| {
        now["connections"]["in_use"] == 0
    })
    .await;
    assert_eq!(seen(&bridge).await["connections"]["own"], 4);
    let third = Person::new("c", "{}");
    ask_as(&bridge, third.call(), json!({})).await.unwrap();
    assert!(!is_gone(text(&kept)));
    let again = ask_as(&bridge, other.call(), json!({})).await.unwrap();
    assert_eq!(text(&again), text(&kept));
    site.end().await;
}

/// Goal: a principal can't have programs started faster than its share of the connections a second. Method: a user
/// with three sets of abilities, each of which needs a program, and room for two; the third is refused at first.
#[tokio::test]
async fn programs_are_not_started_in_a_row() {
    let options = BridgeOptions {
        connections_max: 2,
        call_slot_timeout: Duration::from_millis(20),
        ..of(Era::Legacy)
    };
    let site = Site::new();
    let script = r#"initialize; while hear; do text "$id" $$; done"#;
    let bridge = site.bridge(child(script), options);
    let with = |abilities: &str| Person::new("a", abilities);
    for abilities in ["{}", r#"{"elicitation":{}}"#] {
        ask_as(&bridge, with(abilities).call(), json!({}))
            .await
            .unwrap();
    }
    let third = with(r#"{"sampling":{}}"#);
    let refused = ask_as(&bridge, third.call(), json!({})).await.unwrap_err();
    assert_eq!(refused.kind, FailureKind::Overloaded);
    // Another user doesn't wait.
    let other = Person::new("b", "{}");
    ask_as(&bridge, other.call(), json!({})).await.unwrap();
    let later = async { while ask_as(&bridge, third.call(), json!({})).await.is_err() {} };
    soon(later).await;
    site.end().await;
}

/// Goal: requests that wait for a connection are limited. Method: one connection, in use; of another user as many
/// requests as may wait, and one more, which is refused at once.
#[tokio::test]
async fn waiters_for_connections_are_bounded() {
    const WAITERS: u64 = 256;
    let script = r#"initialize; while hear; do case "$line" in *secret*) ask who; hear; esac; text "$id" $$; done"#;
    let options = BridgeOptions {
        connections_max: 1,
        calls_max: 2_000,
        call_slot_timeout: Duration::from_secs(300),
        ..of(Era::Legacy)
    };
    let site = Site::new();
    let bridge = site.bridge(child(script), options);
    let (thinker, other) = (Person::thinker("a"), Person::new("b", "{}"));
    let ask = |call, what| {
        let bridge = bridge.clone();
        tokio::spawn(async move { ask_as(&bridge, call, what).await })
    };
    let held = ask(thinker.call(), json!({ "secret": "s" }));
    eventually("it is asked", SOON, || thinker.open.load(SeqCst) == 1).await;
    let waiting: Vec<_> = (0..WAITERS).map(|_| ask(other.call(), json!({}))).collect();
    until(&bridge, "all wait", |now| {
        now["connections"]["waiting"] == WAITERS
    })
    .await;
    let refused = soon(ask(other.call(), json!({})))
        .await
        .unwrap()
        .unwrap_err();
    assert_eq!(refused.kind, FailureKind::Overloaded);
    waiting.iter().chain([&held]).for_each(|call| call.abort());
    site.end().await;
}

/// Goal: a server with start mode `Boot` is started before any request, is restarted when it ends,
/// and followers are notified that its lists may have changed. Method: a child that the test ends.
#[tokio::test]
async fn servers_of_the_boot_are_kept_up() {
    let script =
        r#"initialize; while hear; do case "$line" in *die*) exit 1;; esac; text "$id" $$; done"#;
    let site = Site::new();
    let bridge = site.bridge(
        child(script),
        BridgeOptions {
            start: StartMode::Boot,
            backoff: SHORT,
            ..of(Era::Legacy)
        },
    );
    let (follower, mut changes) = Probe::<AgentChanged>::spawn(&site.system, |_| ());
    bridge.follow(follower.recipient().unwrap());
    until(&bridge, "it is up", |now| now["state"] == "connected").await;
    // Without a call, a message uses the shared connection.
    let pid = || async {
        soon(bridge.ask(CallTool::new("t", json!({}))))
            .await
            .unwrap()
            .unwrap()
            .texts()
    };
    let first = pid().await;
    soon(bridge.ask(CallTool::new("t", json!({ "die": 1 }))))
        .await
        .unwrap()
        .unwrap_err();
    soon(changes.recv()).await.unwrap();
    until(&bridge, "it is up again", |now| now["state"] == "connected").await;
    assert_ne!(pid().await, first);
    site.end().await;
}

/// Goal: an unresponsive server is noticed without requests. Method: a child that answers only the
/// first ping.
#[tokio::test]
async fn silent_servers_are_noticed() {
    let script = r#"initialize; hear; say "$id" '{}'; exec 1>&-; while hear; do :; done"#;
    let site = Site::new();
    let options = BridgeOptions {
        start: StartMode::Boot,
        ping_interval: Some(Duration::from_millis(20)),
        backoff: SHORT,
        ..of(Era::Legacy)
    };
    let bridge = site.bridge(child(script), options);
    until(&bridge, "it is up", |now| now["state"] == "connected").await;
    until(&bridge, "it is down", |now| now["state"] != "connected").await;
    until(&bridge, "it is up again", |now| now["state"] == "connected").await;
    site.end().await;
}

/// Variable with the path at which [`holds_a_child`] writes its child's process id.
const PID_FILE: &str = "CALLBOARD_TEST_PID_FILE";

/// Goal: none of its own; it is the process that [`children_notice_a_killed_parent`] kills.
#[tokio::test]
#[ignore = "started by another test"]
async fn holds_a_child() {
    let Some(file) = std::env::var_os(PID_FILE) else {
        return;
    };
    let script = format!(
        r#"echo $$ > '{0}.new'; mv '{0}.new' '{0}'; initialize; while hear; do :; done"#,
        file.display()
    );
    let site = Site::new();
    let options = BridgeOptions {
        client: McpClientOptions::default(),
        start: StartMode::Boot,
        ..of(Era::Legacy)
    };
    let _bridge = site.bridge(child(&script), options);
    std::future::pending::<()>().await;
}

/// Goal: if this process is killed without cleanup, its children see their standard input close,
/// and end. Method: a second process with a bridge and its child; kill -9.
#[tokio::test]
async fn children_notice_a_killed_parent() {
    let folder = std::env::temp_dir().join(format!("callboard-killed-{}", std::process::id()));
    let mut parent = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "bridge_faults::holds_a_child", "--ignored"])
        .env(PID_FILE, &folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually("the child runs", SOON, || folder.exists()).await;
    let pid = std::fs::read_to_string(&folder).unwrap();
    assert!(!is_gone(pid.trim()));
    parent.kill().unwrap();
    parent.wait().unwrap();
    eventually("the child has ended", SOON, || is_gone(pid.trim())).await;
    std::fs::remove_file(&folder).unwrap();
}
