use std::time::Duration;

use callboard_orchestration::decide::RoutingContext;
use callboard_orchestration::decide::intake::RoutingDecision;
use serde_json::{Value, json};

use super::cases::{EvalCase, EvalDataset, RoutingResult, parse_cases};
use super::{ConstantRoute, RouteClass, SetReport, is_correct, set_json, set_text};
use crate::cli::eval::metrics::Proportion;
use crate::cli::eval::sets::EvalCaseError;

fn case(value: Value) -> EvalCase {
    serde_json::from_value(value).unwrap()
}

fn world() -> RoutingContext {
    (*EvalDataset::read(None).unwrap().context).clone()
}

/// Goal: the interval is Wilson's. Method: the examples of Newcombe, Statistics in Medicine 17 (1998), table I, method 3.
/// Rows: C-40.
#[test]
fn intervals_are_those_published() {
    for (right, all, low, high) in [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ] {
        let [from, to] = Proportion {
            correct: right,
            all,
        }
        .interval();
        assert!(
            (from - low).abs() < 5e-5 && (to - high).abs() < 5e-5,
            "{right} of {all}: {from} to {to}"
        );
    }
    assert_eq!(Proportion::default().interval(), [0.0, 1.0]);
}

/// Goal: what counts as right. Method: rows of label, decision, verdict.
#[test]
fn right_is_class_and_target_or_one_of_also() {
    let label = |expect: &str, target: Value, also: Value| {
        case(
            json!({"id": "a", "text": "t", "lang": "en", "expect": expect, "target": target, "also": also}),
        )
    };
    for (case, class, target, expect) in [
        (
            label("local", json!("echo"), json!([])),
            RouteClass::Local,
            Some("echo"),
            true,
        ),
        (
            label("local", json!("echo"), json!([])),
            RouteClass::Local,
            Some("llm"),
            false,
        ),
        (
            label("local", json!("echo"), json!(["llm"])),
            RouteClass::Local,
            Some("llm"),
            true,
        ),
        (
            label("local", json!("llm"), json!(["weather"])),
            RouteClass::Remote,
            Some("weather"),
            true,
        ),
        (
            label("local", json!("llm"), json!(["weather"])),
            RouteClass::Remote,
            Some("travel"),
            false,
        ),
        (
            label("clarify", json!(null), json!(["local"])),
            RouteClass::Local,
            Some("echo"),
            true,
        ),
        (
            label("reject", json!(null), json!([])),
            RouteClass::Reject,
            None,
            true,
        ),
        (
            label("reject", json!(null), json!([])),
            RouteClass::Clarify,
            None,
            false,
        ),
    ] {
        assert_eq!(
            is_correct(&case, class, target),
            expect,
            "{case:?} as {class:?} {target:?}"
        );
    }
}

/// Goal: a mistake in a file is named with its line. Method: a file of one good line and a bad one, each way.
#[test]
fn mistakes_are_named_with_their_line() {
    const GOOD: &str =
        r#"{"id":"a","text":"t","lang":"en","expect":"reject","target":null,"from":"x"}"#;
    for (bad, expect) in [
        ("{", "EOF"),
        (
            r#"{"id":"b","text":"t","lang":"en","expect":"perhaps"}"#,
            "unknown variant",
        ),
        (
            r#"{"id":"b","text":"t","lang":"en","expect":"remote","target":"nobody"}"#,
            "no agent has the id nobody",
        ),
        (
            r#"{"id":"b","text":"t","lang":"en","expect":"local"}"#,
            "`target` is missing",
        ),
        (
            r#"{"id":"b","text":"t","lang":"en","expect":"reject","target":"echo"}"#,
            "`reject` takes no `target`",
        ),
        (
            r#"{"id":"b","text":"t","lang":"en","expect":"reject","also":["what"]}"#,
            "`also` names what",
        ),
        (
            r#"{"id":"b","text":"t","lang":"en","expect":"reject","more":1}"#,
            "unknown field",
        ),
    ] {
        let error = parse_cases("f.jsonl", &format!("{GOOD}\n\n{bad}\n"), &world()).unwrap_err();
        let EvalCaseError::Line { file, line, why } = &error else {
            panic!("{error}")
        };
        assert_eq!((file.as_str(), *line), ("f.jsonl", 3), "{error}");
        assert!(why.contains(expect), "{why}");
    }
    let twice = parse_cases("f.jsonl", &format!("{GOOD}\n{GOOD}\n"), &world()).unwrap_err();
    assert_eq!(
        twice.to_string(),
        "f.jsonl, line 2: a is the id of another request"
    );
    assert!(parse_cases("f.jsonl", "\n", &world()).unwrap().is_empty());
}

/// Goal: the requests that come with callboard are whole. Method: read them; every class is there.
#[test]
fn the_requests_that_come_with_it_are_whole() {
    let read = EvalDataset::read(None).unwrap();
    assert!(read.dev.len() >= 100);
    for class in RouteClass::NAMES {
        assert!(
            read.dev
                .iter()
                .any(|case| Some(case.expect) == RouteClass::parse(class)),
            "{class}"
        );
    }
}

/// Goal: a decider that isn't surely better than the best constant route is told to be no better than
/// chance. Method: twelve requests, eight of them for one tool, with all right, and with that tool
/// for each.
#[test]
fn no_better_than_chance() {
    let world = world();
    let (tool, agent) = (&world.tools[0].name, &world.agents[0].id);
    let label = |at: usize| match at < 8 {
        true => {
            json!({ "id": at.to_string(), "text": "t", "lang": "en", "expect": "local", "target": tool })
        }
        false => {
            json!({ "id": at.to_string(), "text": "t", "lang": "en", "expect": "remote", "target": agent })
        }
    };
    let cases: Vec<EvalCase> = (0..12).map(|at| case(label(at))).collect();
    let local = || RoutingDecision::Local {
        tool_name: tool.clone(),
        params: Default::default(),
    };
    let right = |at: usize| match at < 8 {
        true => local(),
        false => RoutingDecision::Remote {
            agent_id: agent.clone(),
        },
    };
    let report = |decide: &dyn Fn(usize) -> RoutingDecision| {
        let routed = |at| RoutingResult {
            decision: decide(at),
            decisions: 1,
            fallbacks: 0,
            micro_usd: 0,
        };
        let routed = (0..12).map(routed).collect();
        SetReport::measure(
            "dev".to_owned(),
            cases.clone(),
            routed,
            &world,
            Duration::ZERO,
        )
    };
    let constant = ConstantRoute::best(&cases).unwrap();
    assert_eq!(constant.route, format!("local {tool}"));
    assert_eq!((constant.accuracy.correct, constant.accuracy.all), (8, 12));
    let always = report(&|_| local());
    assert!(!always.is_better_than_chance());
    assert!(set_text(&always, false).contains("the decider is no better than chance"));
    assert_eq!(
        set_json(&always, false)["chance"]["is_beaten"],
        json!(false)
    );
    let good = report(&right);
    assert!(good.is_better_than_chance());
    assert!(!set_text(&good, false).contains("no better than chance"));
    assert_eq!(ConstantRoute::best(&[]), None);
}
