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
            bundle
                .parts
                .resource_index
                .remember_listed(&format!("x:{n}"), 0);
        }
        assert!(bundle.parts.resource_index.owners_len() <= AGGREGATE_CACHE_ENTRIES_MAX);
        let (at, past) = (
            "x".repeat(AGGREGATE_URI_BYTES_MAX),
            "x".repeat(AGGREGATE_URI_BYTES_MAX + 1),
        );
        [&at, &past]
            .into_iter()
            .for_each(|uri| bundle.parts.resource_index.remember_listed(uri, 0));
        assert_eq!(
            (
                bundle.parts.resource_index.owner(&at),
                bundle.parts.resource_index.owner(&past)
            ),
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

fn uris(listed: &Value) -> Vec<&str> {
    let items = listed["resources"].as_array().unwrap().iter();
    items.map(|item| item["uri"].as_str().unwrap()).collect()
}

/// Goal: a resource whose URI an earlier member has too is listed under another URI, by which it is
/// read. Method: three members with one URI; one that lists what looks like such a URI; a member
/// that no longer has it.
#[test]
fn duplicate_uris_are_told_apart() {
    paused(async |system| {
        let [a, b, c] = [
            Upstream::new("a", &[]).with_resources(&["x:1", "x:2#p"]),
            Upstream::new("b", &[]).with_resources(&["x:1", "x:2#p", "x:3"]),
            Upstream::new("c", &[]).with_resources(&["x:1", "y:1#callboard=b"]),
        ];
        let bundle = bundle_of(system, [&a, &b, &c]);
        let listed = ask(&bundle, "resources.list", json!({})).await.unwrap();
        let shown = [
            "x:1",
            "x:2#p",
            "x:1#callboard=b",
            "x:2#p&callboard=b",
            "x:3",
            "x:1#callboard=c",
            "y:1#callboard=b&callboard=c",
        ];
        assert_eq!(uris(&listed), shown);
        for (uri, who) in shown.iter().zip(["a", "a", "b", "b", "b", "c", "c"]) {
            let params = json!({ "uri": uri });
            let read = ask(&bundle, "resources.read", params).await.unwrap();
            assert_eq!(read["contents"], json!([{ "uri": uri, "text": who }]));
        }
        b.resources.lock().unwrap().clear();
        assert_eq!(
            read(&bundle, "x:1#callboard=b").await,
            Err(FailureKind::NotFound)
        );
        assert_eq!(read(&bundle, "x:1").await, Ok("a".into()));
    });
}

/// Goal: changes of a resource with a duplicate URI are told under the URI that was subscribed to,
/// inside of a session and outside. Method: two members with one URI that both tell a change;
/// subscriptions to the one, the other and both.
#[test]
fn changes_of_duplicates_are_told_apart() {
    #[derive(Default)]
    struct Hears(std::sync::Mutex<Vec<CapabilityChange>>);
    impl Caller for Hears {
        fn changed(&self, change: CapabilityChange) {
            self.0.lock().unwrap().push(change);
        }
    }
    const ALIAS: &str = "x:1#callboard=b";
    paused(async |system| {
        let [a, b] = ["a", "b"].map(|name| Upstream::new(name, &[]).with_resources(&["x:1"]));
        let bundle = bundle_of(system, [&a, &b]);
        let (sender, mut changes) = tokio::sync::mpsc::channel(16);
        let follower = system.spawn(Follower(sender));
        bundle.follow(follower.recipient().unwrap());
        let heard = Arc::new(Hears::default());
        let session = Arc::new(PeerSession::new(Default::default(), heard.clone()));
        let send = async |message: &str, uri: &str, session: Option<&Arc<PeerSession>>| {
            let mut call = CallContext::new(Arc::new(Principal::agent("somebody")));
            call.session = session.cloned();
            let body = to_raw_value(&json!({ "uri": uri })).unwrap();
            let name = format!("callboard.resources.{message}");
            let asked = bundle.ask_named(name, body, Some(Arc::new(call))).await;
            asked.unwrap();
        };
        // The server tells what it is asked to: in the session, or to all.
        let mut touched = async |session: Option<&Arc<PeerSession>>| {
            send("read", "x:1", session).await;
            send("read", ALIAS, session).await;
            let told: Vec<_> = match session {
                Some(_) => std::mem::take(&mut *heard.0.lock().unwrap()),
                None => {
                    let mut told = Vec::new();
                    while let Ok(Some(change)) =
                        tokio::time::timeout(Duration::from_millis(1), changes.recv()).await
                    {
                        told.push(change);
                    }
                    told
                }
            };
            let uri = |change: CapabilityChange| match change {
                CapabilityChange::Resource(uri) => uri,
                other => panic!("{other:?}"),
            };
            told.into_iter().map(uri).collect::<Vec<_>>()
        };
        ask(&bundle, "resources.list", json!({})).await.unwrap();
        for session in [None, Some(&session)] {
            send("subscribe", ALIAS, session).await;
            assert_eq!(touched(session).await, ["x:1", ALIAS]);
            send("subscribe", "x:1", session).await;
            assert_eq!(touched(session).await, ["x:1", ALIAS]);
            send("unsubscribe", ALIAS, session).await;
            assert_eq!(touched(session).await, ["x:1"]);
            send("unsubscribe", "x:1", session).await;
        }
        assert_eq!(
            [&a, &b].map(|member| (
                member.asked::<SubscribeResource>(),
                member.asked::<UnsubscribeResource>()
            )),
            [(2, 2), (2, 2)]
        );
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

/// Goal: an aggregate answers samples if a member does; of several, the one that the request names.
/// Method: none, one and two of them; requests with and without a name; a proxy beside one, and an
/// aggregate in an aggregate.
/// Rows: H-8.
#[test]
fn members_answer_like_models() {
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
        let two = spawn(vec![model("m"), server(), model("n")]);
        assert!(is_model(&two));
        let sample = async |hints: Value| {
            let params = json!({ "messages": [], "modelPreferences": { "hints": hints } });
            ask(&two, "sample", params).await
        };
        for (hints, name) in [
            (json!([{ "name": "n" }]), "n"),
            (
                json!([{ "name": "gpt" }, { "name": "m" }, { "name": "n" }]),
                "m",
            ),
        ] {
            assert_eq!(sample(hints).await.unwrap(), json!({ "model": name }));
        }
        for hints in [json!([]), json!([{ "name": "server" }])] {
            let refused = sample(hints).await.unwrap_err();
            assert_eq!(refused.kind, FailureKind::InvalidInput);
            assert!(
                refused.message.contains("one of m, n")
                    && refused.message.contains("/agents/ID/mcp"),
                "{}",
                refused.message
            );
        }
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
