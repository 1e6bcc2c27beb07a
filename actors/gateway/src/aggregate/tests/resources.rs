//! Tests of resources, subscriptions and samples.

use callboard_message::SamplingAnswer;
use callboard_message::capabilities::{CreateMessage, SubscribeResource, UnsubscribeResource};
use callboard_runtime::{Caller, PeerSession};
use tokio::time::Instant;

use super::upstream::{Mode, Upstream};
use super::*;
use crate::aggregate::{
    AGGREGATE_CACHE_ENTRIES_MAX, AGGREGATE_READ_GRACE, AGGREGATE_SUBSCRIPTIONS_MAX,
    AGGREGATE_URI_BYTES_MAX,
};

const SECOND: Duration = Duration::from_secs(1);

fn bundle_of<const N: usize>(system: &System, upstreams: [&Upstream; N]) -> AgentRef {
    let agents = upstreams.map(|upstream| system.spawn(upstream.clone()));
    system.spawn(
        AggregateAgent::new(["a", "b", "c"].map(str::to_owned).into_iter().zip(agents)).unwrap(),
    )
}

async fn read(bundle: &AgentRef, uri: &str) -> Result<String, FailureKind> {
    let read = ask(bundle, "resources.read", json!({ "uri": uri }))
        .await
        .map_err(|failure| failure.kind)?;
    Ok(read["contents"][0]["text"].as_str().unwrap().to_owned())
}

/// Goal: a slow member doesn't delay another's resource, and the owner is asked first afterwards.
/// Method: one that hangs before one that has it; by the clock, and by the requests received.
#[test]
fn a_slow_member_delays_no_resource() {
    paused(async |system| {
        let [hangs, has] = [
            Upstream::new("a", &[]),
            Upstream::new("b", &[]).with_resources(&["x:1", "x:2"]),
        ];
        hangs.set(Mode::Hangs);
        let bundle = bundle_of(system, [&hangs, &has]);
        let began = Instant::now();
        assert_eq!(read(&bundle, "x:1").await, Ok("b".into()));
        assert!(began.elapsed() <= AGGREGATE_READ_GRACE + Duration::from_millis(5));
        assert_eq!(hangs.asked::<ReadResource>(), 1);
        let began = Instant::now();
        assert_eq!(read(&bundle, "x:1").await, Ok("b".into()));
        // The owner of a listed resource is known too.
        ask(&bundle, "resources.list", json!({})).await.unwrap();
        assert_eq!(read(&bundle, "x:2").await, Ok("b".into()));
        assert_eq!(
            (hangs.asked::<ReadResource>(), has.asked::<ReadResource>()),
            (1, 3)
        );
        assert!(began.elapsed() <= SECOND * 5 + Duration::from_millis(5));
    });
}

/// Goal: of two owners the first in order counts, unless it is much later. Method: the first late
/// by less than the grace period, and by more.
#[test]
fn the_first_in_order_counts() {
    paused(async |system| {
        for (late, who) in [
            (AGGREGATE_READ_GRACE / 2, "a"),
            (AGGREGATE_READ_GRACE * 2, "b"),
        ] {
            let [a, b] = ["a", "b"].map(|name| Upstream::new(name, &[]).with_resources(&["x:1"]));
            a.set(Mode::Late(late));
            let bundle = bundle_of(system, [&a, &b]);
            assert_eq!(read(&bundle, "x:1").await, Ok(who.into()));
        }
        let [a, b] = ["a", "b"].map(|name| Upstream::new(name, &[]).with_resources(&["x:1"]));
        let bundle = bundle_of(system, [&a, &b]);
        ask(&bundle, "resources.list", json!({})).await.unwrap();
        assert_eq!(read(&bundle, "x:1").await, Ok("a".into()));
        assert_eq!(b.asked::<ReadResource>(), 0);
    });
}

/// Goal: while the owner is unavailable, no other is asked; a moved resource is found; if a member
/// is unavailable, the failure isn't "not found". Method: each.
#[test]
fn owners() {
    paused(async |system| {
        let [a, b] = [
            Upstream::new("a", &[]).with_resources(&["x:1"]),
            Upstream::new("b", &[]),
        ];
        let bundle = bundle_of(system, [&a, &b]);
        assert_eq!(read(&bundle, "x:1").await, Ok("a".into()));
        a.set(Mode::Away);
        let asked = b.asked::<ReadResource>();
        assert_eq!(read(&bundle, "x:1").await, Err(FailureKind::Unavailable));
        assert_eq!(b.asked::<ReadResource>(), asked);
        assert_eq!(read(&bundle, "x:9").await, Err(FailureKind::Unavailable));
        a.set(Mode::Up);
        assert_eq!(read(&bundle, "x:9").await, Err(FailureKind::NotFound));
        a.resources.lock().unwrap().clear();
        b.resources.lock().unwrap().push("x:1");
        assert_eq!(read(&bundle, "x:1").await, Ok("b".into()));
        let asked = a.asked::<ReadResource>();
        assert_eq!(read(&bundle, "x:1").await, Ok("b".into()));
        assert_eq!(a.asked::<ReadResource>(), asked);
    });
}

/// Goal: the cache of owners is bounded. Method: one resource more than the limit, and one URI at
/// its limit and one past it.
#[test]
fn owners_are_bounded() {
    paused(async |system| {
        let bundle =
            AggregateAgent::new([("a".to_owned(), system.spawn(Upstream::new("a", &[])))]).unwrap();
        for n in 0..=AGGREGATE_CACHE_ENTRIES_MAX {
            bundle.parts.remember_owner(&format!("x:{n}"), 0);
        }
        assert!(bundle.parts.owners.len() <= AGGREGATE_CACHE_ENTRIES_MAX);
        let (at, past) = (
            "x".repeat(AGGREGATE_URI_BYTES_MAX),
            "x".repeat(AGGREGATE_URI_BYTES_MAX + 1),
        );
        [&at, &past]
            .into_iter()
            .for_each(|uri| bundle.parts.remember_owner(uri, 0));
        assert_eq!(
            (bundle.parts.owners.get(&at), bundle.parts.owners.get(&past)),
            (Some(0), None)
        );
    });
}

/// Goal: members receive the first subscription and the last unsubscription of a resource; their
/// number is bounded. Method: subscribed twice and unsubscribed twice; one more than the limit; an
/// unknown resource.
#[test]
fn subscriptions() {
    paused(async |system| {
        let [a, b] = [
            Upstream::new("a", &[]),
            Upstream::new("b", &[]).with_resources(&["x:1", "x:2"]),
        ];
        let bundle = bundle_of(system, [&a, &b]);
        let say =
            async |message: &str, uri: &str| ask(&bundle, message, json!({ "uri": uri })).await;
        let told = || {
            (
                b.asked::<SubscribeResource>(),
                b.asked::<UnsubscribeResource>(),
            )
        };
        read(&bundle, "x:1").await.unwrap();
        for (message, times) in [
            ("subscribe", (1, 0)),
            ("subscribe", (1, 0)),
            ("unsubscribe", (1, 0)),
        ] {
            say(&format!("resources.{message}"), "x:1").await.unwrap();
            assert_eq!(told(), times);
        }
        say("resources.unsubscribe", "x:1").await.unwrap();
        say("resources.unsubscribe", "x:1").await.unwrap();
        assert_eq!((told(), a.asked::<SubscribeResource>()), ((1, 1), 0));
        // Not listed yet: any member may take it.
        say("resources.subscribe", "x:2").await.unwrap();
        say("resources.unsubscribe", "x:2").await.unwrap();
        assert_eq!(
            (
                told(),
                a.asked::<SubscribeResource>(),
                a.asked::<UnsubscribeResource>()
            ),
            ((2, 2), 1, 0)
        );
        assert_eq!(
            say("resources.subscribe", "x:9").await.unwrap_err().kind,
            FailureKind::NotFound
        );
    });
}

/// Goal: each client session's subscription reaches the members, which may have a session for it,
/// and one for everybody else. Method: two sessions, and two subscriptions without one; then all
/// end.
#[test]
fn sessions_subscribe_for_themselves() {
    struct Silent;
    impl Caller for Silent {}
    paused(async |system| {
        let member = Upstream::new("a", &[]).with_resources(&["x:1"]);
        let bundle = bundle_of(system, [&member]);
        let subscribe = async |session: Option<PeerSession>| {
            let mut call = CallContext::new(Arc::new(Principal::agent("somebody")));
            call.session = session.map(Arc::new);
            let body = to_raw_value(&json!({ "uri": "x:1" })).unwrap();
            let name = "callboard.resources.subscribe".to_owned();
            let asked = bundle.ask_named(name, body, Some(Arc::new(call))).await;
            asked.unwrap();
            member.asked::<SubscribeResource>()
        };
        let over = CallContext::new(Arc::new(Principal::agent("somebody"))).cancel;
        let session = || PeerSession::new(over.clone(), Arc::new(Silent));
        let told = [
            subscribe(Some(session())).await,
            subscribe(Some(session())).await,
            subscribe(None).await,
            subscribe(None).await,
        ];
        assert_eq!(told, [1, 2, 3, 3]);
        for told in [0, 0, 0, 1] {
            ask(&bundle, "resources.unsubscribe", json!({ "uri": "x:1" }))
                .await
                .unwrap();
            assert_eq!(member.asked::<UnsubscribeResource>(), told);
        }
    });
}

/// Goal: subscriptions of one aggregate are bounded. Method: one resource more than the limit, of a
/// typed agent that doesn't handle subscriptions.
#[test]
fn subscriptions_are_bounded() {
    paused(async |system| {
        let bundle =
            system.spawn(AggregateAgent::new([("a".to_owned(), system.spawn(Listing))]).unwrap());
        let say = async |message: &str, n: usize| {
            ask(&bundle, message, json!({ "uri": format!("x:{n}") })).await
        };
        for n in 0..AGGREGATE_SUBSCRIPTIONS_MAX {
            say("resources.subscribe", n).await.unwrap();
        }
        let refused = say("resources.subscribe", AGGREGATE_SUBSCRIPTIONS_MAX)
            .await
            .unwrap_err();
        assert_eq!(refused.kind, FailureKind::Overloaded);
        say("resources.unsubscribe", 0).await.unwrap();
        say("resources.subscribe", AGGREGATE_SUBSCRIPTIONS_MAX)
            .await
            .unwrap();
    });
}

struct Model(&'static str);

impl Agent for Model {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<CreateMessage>();
    }
}

impl SyncHandler<CreateMessage> for Model {
    fn handle(&mut self, _: CreateMessage, _: &mut Context) -> Result<SamplingAnswer, Failure> {
        Ok(SamplingAnswer(RawObject::single("model", self.0)))
    }
}

/// Goal: an aggregate answers samples if exactly one member does. Method: none, one and two of
/// them, a proxy beside one, and an aggregate in an aggregate.
#[test]
fn one_answers_like_a_model() {
    paused(async |system| {
        let model = |name: &'static str| (name.to_owned(), system.spawn(Model(name)));
        let server = || {
            (
                "server".to_owned(),
                system.spawn(Upstream::new("server", &[])),
            )
        };
        let spawn = |members: Vec<(String, AgentRef)>| {
            AggregateAgent::new(members)
                .unwrap()
                .spawn(system, "bundle")
        };
        let is_model = |bundle: &AgentRef| {
            bundle
                .specs()
                .iter()
                .any(|spec| spec.name == "callboard.sample")
        };
        let one = spawn(vec![server(), model("m")]);
        assert!(is_model(&one) && !is_model(&spawn(vec![server()])));
        assert!(!is_model(&spawn(vec![model("m"), model("n")])));
        let outer = spawn(vec![("inner".to_owned(), one), server()]);
        assert!(is_model(&outer));
        assert_eq!(
            ask(&outer, "sample", json!({ "messages": [] }))
                .await
                .unwrap(),
            json!({ "model": "m" })
        );
    });
}
