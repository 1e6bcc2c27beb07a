//! Tests of the names by which tools and prompts can be called.

use super::upstream::{Mode, Upstream};
use super::*;
use crate::aggregate::{AggregateMember, AggregateOptions, NameSeparator, PrefixMode};

async fn text(bundle: &AgentRef, tool: &str) -> Result<String, Failure> {
    let called = call(bundle, tool).await?;
    Ok(called["content"][0]["text"].as_str().unwrap().to_owned())
}

async fn shown(bundle: &AgentRef) -> Vec<String> {
    let listed = ask(bundle, "tools.list", json!({})).await.unwrap();
    let tools = listed["tools"].as_array().unwrap().iter();
    tools
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}

fn spawn(
    system: &System,
    members: impl IntoIterator<Item = AggregateMember>,
    options: AggregateOptions,
) -> AgentRef {
    system.spawn(AggregateAgent::with_options(members, options).unwrap())
}

/// Goal: a listed name has its member's prefix and fits the patterns of all models; the own name
/// stays callable while only one member has it. Method: two servers and a typed agent, with a
/// name of one, of two, and of all three.
#[test]
fn own_names_of_one_member() {
    paused(async |system| {
        let a = AggregateMember::new("a", system.spawn(Upstream::new("a", &["echo", "who", "x"])));
        let b = AggregateMember::new("b", system.spawn(Upstream::new("b", &["read", "x", LONG])));
        let typed = AggregateMember::new("typed", system.spawn(Typed(7)));
        let bundle = spawn(system, [a, b, typed], AggregateOptions::default());
        let names = shown(&bundle).await;
        assert_eq!(
            names[..7],
            [
                "count", "who", "a__echo", "a__who", "a__x", "b__read", "b__x"
            ]
        );
        for name in &names {
            let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
            assert!(name.len() <= 64 && name.chars().all(is_fine), "{name}");
        }
        for (name, text_of) in [
            ("echo", "a: echo"),
            ("read", "b: read"),
            ("a__x", "a: x"),
            ("count", "7"),
        ] {
            assert_eq!(text(&bundle, name).await.unwrap(), text_of);
        }
        assert_eq!(text(&bundle, LONG).await.unwrap(), format!("b: {LONG}"));
        let refused = text(&bundle, "x").await.unwrap_err();
        assert_eq!(refused.kind, FailureKind::InvalidInput);
        assert_eq!(
            refused.message,
            "several servers have this name: call a__x or b__x"
        );
        assert!(text(&bundle, "nothing").await.is_err());
    });
}

/// Goal: a call by own name never goes to another server because one is away. Method: a name of
/// one server while another is away; its prefixed name; then the other is back.
#[test]
fn own_names_while_a_member_is_away() {
    paused(async |system| {
        let other = Upstream::new("b", &["read"]);
        other.set(Mode::Away);
        let a = AggregateMember::new("a", system.spawn(Upstream::new("a", &["echo"])));
        let b = AggregateMember::new("b", system.spawn(other.clone()));
        let bundle = spawn(system, [a, b], AggregateOptions::default());
        let refused = text(&bundle, "echo").await.unwrap_err();
        assert_eq!(refused.kind, FailureKind::Unavailable);
        assert!(refused.message.ends_with("call a__echo"), "{refused:?}");
        assert_eq!(text(&bundle, "a__echo").await.unwrap(), "a: echo");
        other.set(Mode::Up);
        assert_eq!(text(&bundle, "echo").await.unwrap(), "a: echo");
    });
}

/// Goal: every dotted name of earlier releases is still accepted, also a truncated one and one of
/// a member that keeps its names now. Method: the lists with the separator `.`, called where it is
/// `__`; a tool whose own name looks like a dotted one.
#[test]
fn dotted_names() {
    paused(async |system| {
        let members = || {
            let tools = ["read", "count", LONG, "a.count"];
            let a = AggregateMember::new("a", system.spawn(Upstream::new("a", &tools)));
            let one = AggregateMember::new("one", system.spawn(Typed(1)));
            let two = AggregateMember::new("two", system.spawn(Typed(2)));
            [a, one, two]
        };
        let dotted = AggregateOptions {
            separator: NameSeparator::Dot,
            ..AggregateOptions::default()
        };
        let before = spawn(system, members(), dotted);
        let now = spawn(system, members(), AggregateOptions::default());
        let names = shown(&before).await;
        assert_eq!(names.len(), 8);
        for name in names {
            let (one, other) = (text(&before, &name).await, text(&now, &name).await);
            assert_eq!(one.unwrap(), other.unwrap(), "{name}");
        }
        let [a, one, two] = members();
        let kept = [a.with_kept_names(true), one, two];
        let kept = spawn(system, kept, AggregateOptions::default());
        assert_eq!(shown(&kept).await[4..6], ["read", "count"]);
        for (name, own) in [("a.read", "read"), ("a.count", "a.count"), ("read", "read")] {
            assert_eq!(text(&kept, name).await.unwrap(), format!("a: {own}"));
        }
        let prompt = AggregateMember::new("p", system.spawn(Listing));
        let prompts = spawn(system, [prompt], AggregateOptions::default());
        for name in ["p__greet", "p.greet", "greet"] {
            let got = ask(&prompts, "prompts.get", json!({ "name": name })).await;
            assert_eq!(got.unwrap()["messages"][0]["content"]["text"], "greet");
        }
    });
}

/// Goal: the names that a member keeps are called without reading a list, are prefixed only where
/// they would be another's, and two members can't keep theirs. Method: a server beside another and
/// a typed agent.
#[test]
fn kept_names() {
    paused(async |system| {
        let keeper = Upstream::new("a", &["read", "count", "b__x"]);
        let a = AggregateMember::new("a", system.spawn(keeper.clone())).with_kept_names(true);
        let b = AggregateMember::new("b", system.spawn(Upstream::new("b", &["x"])));
        let typed = AggregateMember::new("typed", system.spawn(Typed(7)));
        let members = [a.clone(), b.clone(), typed];
        let bundle = spawn(system, members, AggregateOptions::default());
        for (name, own) in [
            ("read", "a: read"),
            ("a__count", "a: count"),
            ("a__b__x", "a: b__x"),
            ("b__x", "b: x"),
            ("count", "7"),
        ] {
            assert_eq!(text(&bundle, name).await.unwrap(), own, "{name}");
        }
        assert_eq!(keeper.asked::<ListTools>(), 0);
        assert_eq!(
            shown(&bundle).await,
            ["count", "who", "read", "a__count", "a__b__x", "b__x"]
        );
        let always = AggregateOptions {
            prefix: PrefixMode::Always,
            ..AggregateOptions::default()
        };
        let always = spawn(system, [a.clone()], always);
        assert_eq!(shown(&always).await[0], "a__read");
        let two = [a, b.with_kept_names(true)];
        let two = AggregateAgent::with_options(two, AggregateOptions::default()).unwrap_err();
        assert_eq!(two, AggregateError::NeedsPrefix("a".into(), "b".into()));
    });
}
