//! Resources, and who answers like a model.

use callboard_message::SampleAnswer;
use callboard_message::surface::{CreateMessage, Subscribe, Unsubscribe};
use tokio::time::Instant;

use super::upstream::{Mode, Upstream};
use super::*;
use crate::bundle::{
    BUNDLE_READ_GRACE, BUNDLE_REMEMBERED_MAX, BUNDLE_SUBSCRIPTIONS_MAX, BUNDLE_URI_BYTES_MAX,
};

const SECOND: Duration = Duration::from_secs(1);

fn bundle_of<const N: usize>(system: &System, upstreams: [&Upstream; N]) -> AgentRef {
    let agents = upstreams.map(|upstream| system.spawn(upstream.clone()));
    system.spawn(Bundle::new(["a", "b", "c"].map(str::to_owned).into_iter().zip(agents)).unwrap())
}

async fn read(bundle: &AgentRef, uri: &str) -> Result<String, FailureKind> {
    let read = ask(bundle, "resources.read", json!({ "uri": uri }))
        .await
        .map_err(|failure| failure.kind)?;
    Ok(read["contents"][0]["text"].as_str().unwrap().to_owned())
}

/// Goal: no slow member delays what another has, and whoever has it is asked first from then on. Method: one that hangs
/// before one that has it; by the clock, and by who is asked.
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
        assert!(began.elapsed() <= BUNDLE_READ_GRACE + Duration::from_millis(5));
        assert_eq!(hangs.asked::<ReadResource>(), 1);
        let began = Instant::now();
        assert_eq!(read(&bundle, "x:1").await, Ok("b".into()));
        // What was listed needn't be looked for either.
        ask(&bundle, "resources.list", json!({})).await.unwrap();
        assert_eq!(read(&bundle, "x:2").await, Ok("b".into()));
        assert_eq!(
            (hangs.asked::<ReadResource>(), has.asked::<ReadResource>()),
            (1, 3)
        );
        assert!(began.elapsed() <= SECOND * 5 + Duration::from_millis(5));
    });
}

/// Goal: of two that have it the first counts, unless it is much later. Method: the first late by less than the grace, and
/// by more.
#[test]
fn the_first_in_order_counts() {
    paused(async |system| {
        for (late, who) in [(BUNDLE_READ_GRACE / 2, "a"), (BUNDLE_READ_GRACE * 2, "b")] {
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

/// Goal: what its owner can't give now no other is asked for; what has moved is found; where one is away, nobody says that
/// the resource isn't there. Method: each.
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

/// Goal: what is remembered is bounded. Method: one resource more than the bound, and one URI at its own and one past it.
#[test]
fn owners_are_bounded() {
    paused(async |system| {
        let bundle =
            Bundle::new([("a".to_owned(), system.spawn(Upstream::new("a", &[])))]).unwrap();
        for n in 0..=BUNDLE_REMEMBERED_MAX {
            bundle.parts.learn_owner(&format!("x:{n}"), 0);
        }
        assert!(bundle.parts.owners.len() <= BUNDLE_REMEMBERED_MAX);
        let (at, past) = (
            "x".repeat(BUNDLE_URI_BYTES_MAX),
            "x".repeat(BUNDLE_URI_BYTES_MAX + 1),
        );
        [&at, &past]
            .into_iter()
            .for_each(|uri| bundle.parts.learn_owner(uri, 0));
        assert_eq!(
            (bundle.parts.owners.get(&at), bundle.parts.owners.get(&past)),
            (Some(0), None)
        );
    });
}

/// Goal: whoever has a resource is told that somebody follows it, once, and when nobody does any more; the number is
/// bounded. Method: followed twice and left twice; one more than the bound; one that nobody has.
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
        let told = || (b.asked::<Subscribe>(), b.asked::<Unsubscribe>());
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
        assert_eq!((told(), a.asked::<Subscribe>()), ((1, 1), 0));
        // Not listed by anyone yet: whoever takes it.
        say("resources.subscribe", "x:2").await.unwrap();
        say("resources.unsubscribe", "x:2").await.unwrap();
        assert_eq!(
            (told(), a.asked::<Subscribe>(), a.asked::<Unsubscribe>()),
            ((2, 2), 1, 0)
        );
        assert_eq!(
            say("resources.subscribe", "x:9").await.unwrap_err().kind,
            FailureKind::NotFound
        );
    });
}

/// Goal: what is followed through a bundle is bounded. Method: one resource more than the bound, of a typed agent that
/// needn't be told.
#[test]
fn subscriptions_are_bounded() {
    paused(async |system| {
        let bundle = system.spawn(Bundle::new([("a".to_owned(), system.spawn(Listing))]).unwrap());
        let say = async |message: &str, n: usize| {
            ask(&bundle, message, json!({ "uri": format!("x:{n}") })).await
        };
        for n in 0..BUNDLE_SUBSCRIPTIONS_MAX {
            say("resources.subscribe", n).await.unwrap();
        }
        let refused = say("resources.subscribe", BUNDLE_SUBSCRIPTIONS_MAX)
            .await
            .unwrap_err();
        assert_eq!(refused.kind, FailureKind::Overloaded);
        say("resources.unsubscribe", 0).await.unwrap();
        say("resources.subscribe", BUNDLE_SUBSCRIPTIONS_MAX)
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
    fn handle(&mut self, _: CreateMessage, _: &mut Cx) -> Result<SampleAnswer, Failure> {
        Ok(SampleAnswer(RawObject::of("model", self.0)))
    }
}

/// Goal: a bundle answers like a model where it is clear which of its members does. Method: none, one and two of them, a
/// server that takes anything beside one, and a bundle in a bundle.
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
            Bundle::new(members).unwrap().spawn(system, "bundle")
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
