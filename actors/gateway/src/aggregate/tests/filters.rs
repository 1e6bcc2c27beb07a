//! Tests of filters, new names and prefixes.

use std::collections::BTreeMap;

use super::upstream::Upstream;
use super::*;
use crate::aggregate::{AggregateMember, AggregateOptions, NameSeparator, PrefixMode, ToolFilter};

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn filter(allow: &[&str], deny: &[&str], rename: &[(&str, &str)]) -> ToolFilter {
    let rename: BTreeMap<_, _> = rename
        .iter()
        .map(|(own, to)| ((*own).to_owned(), (*to).to_owned()))
        .collect();
    ToolFilter {
        allow: owned(allow),
        deny: owned(deny),
        rename,
    }
}

async fn names(bundle: &AgentRef) -> Vec<String> {
    let listed = ask(bundle, "tools.list", json!({})).await.unwrap();
    listed["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}

async fn text(bundle: &AgentRef, tool: &str) -> Result<String, FailureKind> {
    let called = call(bundle, tool).await.map_err(|failure| failure.kind)?;
    Ok(called["content"][0]["text"].as_str().unwrap().to_owned())
}

/// Goal: a hidden tool can't be called under any name; a renamed one only under its new name.
/// Method: a server and a typed agent, filtered by original and by shown names.
#[test]
fn filters_and_renames() {
    paused(async |system| {
        let tools = ["read_file", "read", "read_secret", "write", "list"];
        let files = system.spawn(Upstream::new("files", &tools));
        let files = AggregateMember::new("files", files).with_filter(filter(
            &["read*", "list"],
            &["*_secret"],
            &[("read_file", "read")],
        ));
        let typed = system.spawn(Typed(7));
        let typed = AggregateMember::new("typed", typed).with_filter(filter(
            &[],
            &["who"],
            &[("count", "how_many")],
        ));
        let options = AggregateOptions {
            deny: owned(&["*__list"]),
            ..AggregateOptions::default()
        };
        let bundle = system.spawn(AggregateAgent::with_options([files, typed], options).unwrap());
        assert_eq!(names(&bundle).await, ["how_many", "files__read"]);
        assert_eq!(
            text(&bundle, "files__read").await,
            Ok("files: read_file".into())
        );
        assert_eq!(text(&bundle, "how_many").await, Ok("7".into()));
        assert_eq!(text(&bundle, "read").await, Ok("files: read_file".into()));
        for hidden in [
            "files__read_file",
            "files__read_secret",
            "files__write",
            "files__list",
            "list",
            "read_file",
            "count",
            "who",
        ] {
            assert_eq!(
                text(&bundle, hidden).await,
                Err(FailureKind::InvalidInput),
                "{hidden}"
            );
        }
    });
}

/// Goal: an aggregate can select from its members' tools, whatever the separator. Method: patterns of own names, and of names
/// with a prefix of either form, with each separator.
#[test]
fn selections() {
    paused(async |system| {
        let bundle_of = |patterns: &[&str], separator| {
            let [a, b] = ["a", "b"].map(|name| {
                AggregateMember::new(name, system.spawn(Upstream::new(name, &["x", "y"])))
            });
            let typed = AggregateMember::new("typed", system.spawn(Typed(7)));
            let options = AggregateOptions {
                allow: owned(patterns),
                separator,
                ..AggregateOptions::default()
            };
            system.spawn(AggregateAgent::with_options([a, b, typed], options).unwrap())
        };
        for (patterns, shown) in [
            (["a.*", "typed.count"], "count a__x a__y"),
            (["a__?", "b__y"], "a__x a__y b__y"),
            (["x", "wh?"], "who a__x b__x"),
        ] {
            for (separator, written) in [
                (NameSeparator::Underscores, "__"),
                (NameSeparator::Dot, "."),
            ] {
                let bundle = bundle_of(&patterns, separator);
                let found = names(&bundle).await.join(" ");
                assert_eq!(found, shown.replace("__", written), "{patterns:?}");
            }
        }
        let bundle = bundle_of(&["a__*", "b__y", "count"], NameSeparator::Underscores);
        assert_eq!(names(&bundle).await, ["count", "a__x", "a__y", "b__y"]);
        assert_eq!(text(&bundle, "b__x").await, Err(FailureKind::InvalidInput));
        assert_eq!(text(&bundle, "who").await, Err(FailureKind::InvalidInput));
        assert_eq!(text(&bundle, "b__y").await, Ok("b: y".into()));
    });
}

/// Goal: a message type never has a name that may appear in a member's list. Method: one renamed to
/// such a name.
#[test]
fn names_of_lists_are_theirs() {
    paused(async |system| {
        let rename = filter(&["count"], &[], &[("count", "a__count")]);
        let typed =
            || AggregateMember::new("typed", system.spawn(Typed(7))).with_filter(rename.clone());
        let listing = AggregateMember::new("a", system.spawn(Upstream::new("a", &["count"])));
        let bundle = system.spawn(
            AggregateAgent::with_options([typed(), listing], AggregateOptions::default()).unwrap(),
        );
        assert_eq!(names(&bundle).await, ["typed__a__count", "a__count"]);
        assert_eq!(text(&bundle, "a__count").await, Ok("a: count".into()));
        assert_eq!(text(&bundle, "typed__a__count").await, Ok("7".into()));
        let alone = system
            .spawn(AggregateAgent::with_options([typed()], AggregateOptions::default()).unwrap());
        assert_eq!(names(&alone).await, ["a__count"]);
    });
}

/// Goal: a single listing member can keep its names, and each stays unambiguous; two can't. Method:
/// a server with names that a typed agent has, that look joined, and that are too long; then one
/// more server; then every name joined.
#[test]
fn prefixes() {
    paused(async |system| {
        let tools = ["read", "count", "a__read", LONG];
        let server = |name: &'static str| {
            AggregateMember::new(name, system.spawn(Upstream::new(name, &tools)))
        };
        let typed = || AggregateMember::new("typed", system.spawn(Typed(7)));
        let with = |prefix| AggregateOptions {
            prefix,
            ..AggregateOptions::default()
        };
        let bundle = system.spawn(
            AggregateAgent::with_options([typed(), server("a")], with(PrefixMode::Never)).unwrap(),
        );
        let shown = names(&bundle).await;
        assert_eq!(
            shown[..5],
            ["count", "who", "read", "a__count", "a__a__read"]
        );
        for (shown, own) in [
            ("read", "read"),
            ("a__count", "count"),
            ("a__a__read", "a__read"),
            (&shown[5], LONG),
        ] {
            assert_eq!(
                text(&bundle, shown).await,
                Ok(format!("a: {own}")),
                "{shown}"
            );
        }
        assert_eq!(text(&bundle, "count").await, Ok("7".into()));
        assert_eq!(text(&bundle, "a__read").await, Ok("a: read".into()));
        assert_eq!(text(&bundle, LONG).await, Ok(format!("a: {LONG}")));
        let two = AggregateAgent::with_options([server("a"), server("b")], with(PrefixMode::Never))
            .unwrap_err();
        assert_eq!(two, AggregateError::NeedsPrefix("a".into(), "b".into()));
        let all = system.spawn(
            AggregateAgent::with_options([typed(), server("a")], with(PrefixMode::Always)).unwrap(),
        );
        assert_eq!(
            names(&all).await[..3],
            ["typed__count", "typed__who", "a__read"]
        );
    });
}

/// Goal: with underscores names mean the same, and ambiguous member names are rejected. Method: two
/// servers with a name in common and a long one, each called; members whose names have the
/// separator.
#[test]
fn separators() {
    paused(async |system| {
        let server = |name: &'static str| {
            AggregateMember::new(
                name,
                system.spawn(Upstream::new(name, &["read", "_x", LONG])),
            )
        };
        let options = || AggregateOptions {
            separator: NameSeparator::Underscores,
            ..AggregateOptions::default()
        };
        let bundle = system
            .spawn(AggregateAgent::with_options([server("a"), server("a_b")], options()).unwrap());
        let shown = names(&bundle).await;
        assert_eq!(shown[..2], ["a__read", "a___x"]);
        assert!(
            shown
                .iter()
                .flat_map(|name| name.bytes())
                .all(|b| b.is_ascii_alphanumeric() || b == b'_'),
            "{shown:?}"
        );
        let owns = [
            "a: read",
            "a: _x",
            &format!("a: {LONG}"),
            "a_b: read",
            "a_b: _x",
            &format!("a_b: {LONG}"),
        ];
        for (shown, own) in shown.iter().zip(owns) {
            assert_eq!(text(&bundle, shown).await, Ok(own.to_owned()), "{shown}");
        }
        for (name, prefix) in [("a__b", "a__b__"), ("a_", "a___"), ("a.", "a___")] {
            let alone = AggregateAgent::with_options([server(name)], options());
            assert!(alone.is_ok(), "{name}");
            let refused =
                AggregateAgent::with_options([server("a"), server(name)], options()).unwrap_err();
            assert_eq!(
                refused,
                AggregateError::Separator("a__".into(), prefix.into())
            );
        }
    });
}

/// Goal: invalid new names are rejected at start. Method: two of one name.
#[test]
fn renames_that_cannot_be() {
    paused(async |system| {
        let member = AggregateMember::new("a", system.spawn(Typed(1)));
        let member = member.with_filter(filter(&[], &[], &[("count", "x"), ("who", "x")]));
        let refused =
            AggregateAgent::with_options([member], AggregateOptions::default()).unwrap_err();
        assert_eq!(
            refused,
            AggregateError::Rename {
                member: "a".into(),
                name: "x".into()
            }
        );
    });
}
