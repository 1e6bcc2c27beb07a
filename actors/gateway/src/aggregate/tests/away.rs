//! Tests with unavailable and slow members, which must not affect others.

use tokio::time::Instant;
use tracing::level_filters::LevelFilter;

use super::upstream::{Mode, Upstream};
use super::*;
use crate::aggregate::{
    AGGREGATE_LIST_TIMEOUT_DEFAULT, AGGREGATE_MEMBER_PAGES_MAX, AGGREGATE_PAGE_ITEMS_MAX,
    AGGREGATE_PROBE_PAUSE_MAX, AGGREGATE_PROBE_PAUSE_MIN, AGGREGATE_SLOW_TIMEOUT, MISSING_META_KEY,
};
use crate::recording::Recording;

const LATE: Duration = Duration::from_secs(1);

fn bundle_of<const N: usize>(
    system: &System,
    upstreams: [&Upstream; N],
) -> (AgentRef, Vec<AgentRef>) {
    let agents: Vec<_> = upstreams
        .iter()
        .map(|upstream| system.spawn((*upstream).clone()))
        .collect();
    let names = ["a", "b", "c", "d", "e"].map(str::to_owned);
    (
        system.spawn(AggregateAgent::new(names.into_iter().zip(agents.iter().cloned())).unwrap()),
        agents,
    )
}

fn names(listed: &Value) -> Vec<&str> {
    listed["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect()
}

async fn list(bundle: &AgentRef) -> Value {
    ask(bundle, "tools.list", json!({})).await.unwrap()
}

/// Goal: a list omits unavailable members, reports them with the reason, and isn't late. Method: of
/// five members one hangs, one has ended, one can't be reached and one has a bug; by the clock,
/// twice.
#[test]
fn lists_say_what_is_missing() {
    paused(async |system| {
        let [hangs, ended, away, mut broken, up] =
            ["a", "b", "c", "d", "e"].map(|name| Upstream::new(name, &["t"]));
        broken.kept_for_ms = 5_000;
        let (bundle, agents) = bundle_of(system, [&hangs, &ended, &away, &broken, &up]);
        let whole = list(&bundle).await;
        assert_eq!(
            (names(&whole), &whole["ttlMs"]),
            (vec!["a__t", "b__t", "c__t", "d__t", "e__t"], &json!(5_000))
        );
        hangs.set(Mode::Hangs);
        away.set(Mode::Away);
        broken.set(Mode::Broken);
        agents[1].stop();
        agents[1].wait_for_exit().await;
        let missing = json!([
            { "server": "a", "why": "it doesn't answer in time" },
            { "server": "b", "why": "the agent has ended, or its system is stopping: the log tells why" },
            { "server": "c", "why": "the server can't be reached" },
            { "server": "d", "why": "internal error" },
        ]);
        for limit in [AGGREGATE_LIST_TIMEOUT_DEFAULT, AGGREGATE_SLOW_TIMEOUT] {
            let began = Instant::now();
            let listed = list(&bundle).await;
            assert!(
                began.elapsed() <= limit + Duration::from_millis(5),
                "{:?}",
                began.elapsed()
            );
            assert_eq!(
                (names(&listed), &listed["_meta"][MISSING_META_KEY]),
                (vec!["e__t"], &missing)
            );
            assert_eq!(
                listed["ttlMs"], 0,
                "nobody keeps a list that lacks something"
            );
        }
        let about = ask(&bundle, "describe", json!({})).await.unwrap();
        let instructions = about["instructions"].as_str().unwrap();
        assert_eq!(about["ttlMs"], 0);
        assert!(
            instructions.starts_with("e: I am e.\na isn't available now: it doesn't answer"),
            "{instructions}"
        );
        assert!(
            !instructions.contains("Souza") && instructions.lines().count() == 5,
            "{instructions}"
        );
    });
}

/// Goal: members are listed concurrently, and a call with little time left gets a partial list.
/// Method: three late members by the clock; then a call whose deadline is before they answer.
#[test]
fn members_are_listed_at_once() {
    paused(async |system| {
        let late = ["a", "b", "c"].map(|name| Upstream::new(name, &["t"]));
        for upstream in &late {
            upstream.set(Mode::Late(LATE));
        }
        let up = Upstream::new("d", &["t"]);
        let (bundle, _) = bundle_of(system, [&late[0], &late[1], &late[2], &up]);
        let began = Instant::now();
        assert_eq!(
            names(&list(&bundle).await),
            ["a__t", "b__t", "c__t", "d__t"]
        );
        assert!(began.elapsed() < LATE * 2);
        let call = CallContext::new(Arc::new(Principal::agent("somebody")))
            .with_deadline(Instant::now() + LATE);
        let empty = to_raw_value(&json!({})).unwrap();
        let listed = bundle
            .ask_named("callboard.tools.list", empty, Some(Arc::new(call)))
            .await
            .unwrap();
        let listed: Value = serde_json::from_str(listed.get()).unwrap();
        assert_eq!(
            (
                names(&listed),
                listed["_meta"][MISSING_META_KEY].as_array().unwrap().len()
            ),
            (vec!["d__t"], 3)
        );
    });
}

/// Goal: an only member is waited for, because there is nothing to show without it; a member that is
/// starting is named as such. Method: one that answers after the time limit of several; two, of which
/// one says that it is starting.
#[test]
fn starting_members() {
    paused(async |system| {
        let slow = Upstream::new("a", &["t"]);
        slow.set(Mode::Late(AGGREGATE_LIST_TIMEOUT_DEFAULT * 2));
        let (alone, _) = bundle_of(system, [&slow]);
        assert_eq!(names(&list(&alone).await), ["a__t"]);
        let [starting, up] = ["a", "b"].map(|name| Upstream::new(name, &["t"]));
        starting.set(Mode::Starting);
        let (bundle, _) = bundle_of(system, [&starting, &up]);
        let about = ask(&bundle, "describe", json!({})).await.unwrap();
        assert_eq!(
            about["instructions"],
            "b: I am b.\na is still starting: its lists are announced when it is there"
        );
    });
}

/// Goal: the log tells of an absence once until the member is back, and never of a start. Method: many lists without a
/// member that is starting, then away, back, and away again.
#[test]
fn absences_are_logged_once() {
    paused(async |system| {
        let recording = Recording::start(LevelFilter::WARN);
        // Lines are limited by the member's name, and other tests run beside this one.
        let member = Upstream::new("logged_once", &["t"]);
        let up = system.spawn(Upstream::new("b", &["t"]));
        let members = [
            ("logged_once".to_owned(), system.spawn(member.clone())),
            ("b".to_owned(), up),
        ];
        let bundle = system.spawn(AggregateAgent::new(members).unwrap());
        for (mode, lines) in [
            (Mode::Starting, 0),
            (Mode::Away, 1),
            (Mode::Up, 1),
            (Mode::Away, 2),
        ] {
            member.set(mode);
            if mode == Mode::Up {
                tokio::time::sleep(AGGREGATE_PROBE_PAUSE_MAX * 2).await;
            }
            for _ in 0..9 {
                ask(&bundle, "describe", json!({})).await.unwrap();
                list(&bundle).await;
            }
            let log = recording.text();
            assert_eq!(log.lines().count(), lines, "{log}");
        }
    });
}

/// Goal: a call to an unavailable member fails at once with its name; calls to others continue.
/// Method: one that can't be reached, one that has ended, one that hangs, and one that works, by
/// the clock.
#[test]
fn calls_fail_at_once() {
    paused(async |system| {
        let [away, ended, hangs, up] = ["a", "b", "c", "d"].map(|name| Upstream::new(name, &["t"]));
        let (bundle, agents) = bundle_of(system, [&away, &ended, &hangs, &up]);
        away.set(Mode::Away);
        hangs.set(Mode::Hangs);
        agents[1].stop();
        agents[1].wait_for_exit().await;
        let began = Instant::now();
        for (tool, message) in [
            ("a__t", "a: the server can't be reached"),
            (
                "b__t",
                "b: the agent has ended, or its system is stopping: the log tells why",
            ),
        ] {
            let failure = call(&bundle, tool).await.unwrap_err();
            assert_eq!(
                (failure.kind, &*failure.message),
                (FailureKind::Unavailable, message)
            );
        }
        let slow = call(&bundle, "c__t");
        let quick = call(&bundle, "d__t");
        tokio::select! {
            biased;
            _ = slow => panic!("it hangs"),
            result = quick => assert_eq!(result.unwrap()["content"][0]["text"], "d: t"),
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
    });
}

/// Goal: watchers are notified when a missing member is available again. Method: one that is
/// unavailable for two probes.
#[test]
fn return_is_told() {
    paused(async |system| {
        let [away, up] = ["a", "b"].map(|name| Upstream::new(name, &["t"]));
        let (bundle, _) = bundle_of(system, [&away, &up]);
        let (sender, mut changes) = tokio::sync::mpsc::channel(16);
        let follower = system.spawn(Follower(sender));
        bundle.follow(follower.recipient().unwrap());
        away.set(Mode::Away);
        list(&bundle).await;
        list(&bundle).await;
        assert_eq!(bundle.observe().await["missing"], json!(["a"]));
        let asked = away.asked::<ListTools>();
        tokio::time::sleep(AGGREGATE_PROBE_PAUSE_MIN + LATE).await;
        assert_eq!(
            away.asked::<ListTools>(),
            asked + 1,
            "one look, however many lists were short"
        );
        assert!(changes.try_recv().is_err());
        away.set(Mode::Up);
        let change = tokio::time::timeout(AGGREGATE_PROBE_PAUSE_MIN * 3, changes.recv())
            .await
            .unwrap();
        assert_eq!(change, Some(CapabilityChange::Tools));
        assert_eq!(names(&list(&bundle).await), ["a__t", "b__t"]);
        assert_eq!(bundle.observe().await["missing"], json!([]));
    });
}

/// Goal: a member without such a list isn't missing. Method: prompts of servers without prompts.
#[test]
fn what_a_member_does_not_have_is_not_missing() {
    paused(async |system| {
        let (bundle, _) = bundle_of(system, [&Upstream::new("a", &[])]);
        assert_eq!(
            ask(&bundle, "prompts.list", json!({})).await.unwrap(),
            json!({ "prompts": [] })
        );
    });
}

/// Goal: paging lists every tool once, in order, with pages close to the limit. Method: members
/// with fewer, just as many and more tools than a page holds, in pages of their own.
#[test]
fn pages_have_everything_once() {
    paused(async |system| {
        let many = |n: usize| (0..n).map(|n| format!("t{n:03}")).collect::<Vec<_>>();
        let mut upstreams = ["a", "b", "c", "d"].map(|name| Upstream::new(name, &[]));
        for (upstream, (n, page)) in
            upstreams
                .iter_mut()
                .zip([(50, 7), (AGGREGATE_PAGE_ITEMS_MAX, 100), (450, 90), (1, 1)])
        {
            (upstream.tools, upstream.page) = (many(n), page);
        }
        let [a, b, c, d] = &upstreams;
        let (bundle, _) = bundle_of(system, [a, b, c, d]);
        let (mut seen, mut cursor, mut pages) = (Vec::new(), Value::Null, 0);
        loop {
            let listed = ask(&bundle, "tools.list", json!({ "cursor": cursor }))
                .await
                .unwrap();
            let page = names(&listed);
            assert!(
                page.len() < AGGREGATE_PAGE_ITEMS_MAX + 100,
                "{}",
                page.len()
            );
            seen.extend(page.into_iter().map(str::to_owned));
            (cursor, pages) = (listed["nextCursor"].clone(), pages + 1);
            if cursor.is_null() {
                break;
            }
        }
        let expected: Vec<String> = [
            ("a", 50),
            ("b", AGGREGATE_PAGE_ITEMS_MAX),
            ("c", 450),
            ("d", 1),
        ]
        .iter()
        .flat_map(|(name, n)| {
            many(*n)
                .into_iter()
                .map(move |tool| format!("{name}__{tool}"))
        })
        .collect();
        assert_eq!(seen, expected);
        assert!((3..=5).contains(&pages), "{pages}");
    });
}

/// Goal: parts that a member reports as missing are passed on. Method: an aggregate in an
/// aggregate, of one unavailable and one working server; and a list of one server alone.
#[test]
fn bundles_in_bundles() {
    paused(async |system| {
        let [away, up] = ["a", "b"].map(|name| Upstream::new(name, &["t"]));
        let (inner, _) = bundle_of(system, [&away, &up]);
        let alone =
            system.spawn(AggregateAgent::new([("inner".to_owned(), inner.clone())]).unwrap());
        away.set(Mode::Away);
        let listed = list(&alone).await;
        let why = "the server can't be reached";
        assert_eq!(
            listed["_meta"][MISSING_META_KEY],
            json!([{ "server": "inner/a", "why": why }])
        );
        assert_eq!(names(&listed), ["inner__b__t"]);
        let same = system
            .spawn(AggregateAgent::new([("a".to_owned(), system.spawn(away.clone()))]).unwrap());
        let outer = system.spawn(AggregateAgent::new([("a".to_owned(), same)]).unwrap());
        assert_eq!(
            list(&outer).await["_meta"][MISSING_META_KEY],
            json!([{ "server": "a", "why": why }])
        );
        assert_eq!(
            call(&outer, "a__a__t").await.unwrap_err().message,
            "a: the server can't be reached"
        );
        let about = ask(&outer, "describe", json!({})).await.unwrap();
        assert_eq!(
            about["instructions"],
            "a isn't available now: the server can't be reached"
        );
    });
}

/// Goal: an aggregate has its members' capabilities, as far as reported. Method: a server that
/// reports tools only; then it is unavailable.
#[test]
fn capabilities_of_servers() {
    paused(async |system| {
        let upstream = Upstream::new("a", &["t"]);
        let (bundle, _) = bundle_of(system, [&upstream]);
        let can = async || {
            let about = ask(&bundle, "describe", json!({})).await.unwrap();
            about["capabilities"]
                .as_object()
                .unwrap()
                .keys()
                .cloned()
                .collect::<Vec<_>>()
        };
        assert_eq!(can().await, ["logging", "tools"]);
        upstream.set(Mode::Away);
        assert_eq!(
            can().await,
            ["completions", "logging", "prompts", "resources", "tools"]
        );
    });
}

/// Goal: a truncated name is resolved after it was listed; if its list is unavailable, the caller
/// gets that failure. Method: a call of such a name before and after the list, with the member
/// available and not.
#[test]
fn names_that_were_cut() {
    paused(async |system| {
        let [upstream, other] = [Upstream::new("a", &[LONG]), Upstream::new("b", &["t"])];
        let (bundle, _) = bundle_of(system, [&upstream, &other]);
        let (shown, never) = (
            crate::aggregate::names::joined_name(
                "a",
                crate::aggregate::NameSeparator::Underscores,
                LONG,
            ),
            format!("a__{}", "x".repeat(61)),
        );
        assert_eq!(shown.len(), 64);
        upstream.set(Mode::Away);
        assert_eq!(
            call(&bundle, &shown).await.unwrap_err().kind,
            FailureKind::Unavailable
        );
        upstream.set(Mode::Up);
        assert_eq!(
            call(&bundle, &shown).await.unwrap()["content"][0]["text"],
            format!("a: {LONG}")
        );
        let lists = upstream.asked::<ListTools>();
        assert!(call(&bundle, &shown).await.is_ok());
        assert_eq!(
            (upstream.asked::<ListTools>(), other.asked::<ListTools>()),
            (lists, 0)
        );
        assert_eq!(
            call(&bundle, &never).await.unwrap_err().kind,
            FailureKind::InvalidInput
        );
    });
}

/// Goal: an endless list doesn't keep other members from being listed, and omitted pages are
/// reported. Method: a list of exactly the maximum of pages, and one of a page more, before another
/// member's.
#[test]
fn a_list_without_end_ends() {
    paused(async |system| {
        for (pages, why) in [
            (AGGREGATE_MEMBER_PAGES_MAX, None),
            (
                AGGREGATE_MEMBER_PAGES_MAX + 1,
                Some("its list has more than 1000 pages; the rest isn't shown"),
            ),
        ] {
            let mut long = Upstream::new("a", &[]);
            (long.tools, long.page) = ((0..pages).map(|n| format!("t{n}")).collect(), 1);
            let (bundle, _) = bundle_of(system, [&long, &Upstream::new("b", &["last"])]);
            let (mut seen, mut cursor, mut told) = (Vec::new(), Value::Null, None);
            for _ in 0..pages {
                let listed = ask(&bundle, "tools.list", json!({ "cursor": cursor }))
                    .await
                    .unwrap();
                seen.extend(names(&listed).into_iter().map(str::to_owned));
                told = listed["_meta"]["callboard/away"][0]["why"]
                    .as_str()
                    .map(str::to_owned)
                    .or(told);
                cursor = listed["nextCursor"].clone();
                if cursor.is_null() {
                    break;
                }
            }
            assert!(
                cursor.is_null(),
                "{pages} pages: the list goes on at {cursor}"
            );
            assert_eq!(
                (seen.len(), &**seen.last().unwrap()),
                (AGGREGATE_MEMBER_PAGES_MAX + 1, "b__last")
            );
            assert_eq!(told.as_deref(), why);
        }
    });
}
