//! Every key that a topology may have, found by writing one that there isn't: the message lists those that there are.

use std::path::Path;

use serde_json::{Value, json};

use crate::config::{Problem, parse};

/// No key or name is like it, so none is suggested in place of the list.
const UNKNOWN: &str = "~~~~~~~~";
/// Deepest table that is looked into.
const DEPTH_MAX: usize = 8;

/// The names in the help of a problem whose message says that `UNKNOWN` isn't one.
fn known(whole: &Value) -> Option<Vec<String>> {
    let problems: Vec<Problem> = parse(&whole.to_string(), true, Path::new("/nowhere"), false).1;
    let unknown = problems
        .into_iter()
        .find(|problem| problem.message.contains(UNKNOWN))?;
    let list = unknown.help?;
    let list = list.strip_prefix("there are ")?;
    Some(
        list.split(", ")
            .map(|name| name.trim_matches('`').to_owned())
            .collect(),
    )
}

/// Puts a value into a list, a table or both.
type Wrapper = fn(Value) -> Value;

/// Notes what may stand at `place`, where `whole` puts a value in a topology.
fn look(place: &str, depth: usize, whole: &dyn Fn(Value) -> Value, lines: &mut Vec<String>) {
    let kinds: [(&str, Wrapper); 4] = [
        ("", |value| value),
        ("[]", |value| json!([value])),
        ("{}", |value| json!({"any": value})),
        ("{}[]", |value| json!({"any": [value]})),
    ];
    if depth == DEPTH_MAX {
        return lines.push(format!("{place} …"));
    }
    for (step, within) in kinds {
        let place = format!("{place}{step}");
        let at = |value: Value| whole(within(value));
        for variant in known(&at(json!(UNKNOWN))).unwrap_or_default() {
            lines.push(format!("{place} = {variant}"));
        }
        let Some(keys) = known(&at(json!({ UNKNOWN: 1 }))) else {
            continue;
        };
        for key in keys {
            let member = format!("{place}.{key}");
            lines.push(member.clone());
            look(
                &member,
                depth + 1,
                &|value| at(json!({ &key: value })),
                lines,
            );
        }
        return;
    }
}

fn merged(mut into: Value, from: Value) -> Value {
    match (into.as_object_mut(), from) {
        (Some(members), Value::Object(more)) => {
            members.extend(more);
            into
        }
        (_, other) => other,
    }
}

/// Goal: a topology that is read today is read by every later version: no key goes, none changes its name. Method: each
/// section, and each kind of agent, with a key that there isn't.
#[test]
fn keys() {
    let mut lines = Vec::new();
    let sections = known(&json!({ UNKNOWN: 1 })).unwrap();
    for section in &sections {
        lines.push(section.clone());
        match section.as_str() {
            "agent" => {}
            "upstream" | "server" | "listener" | "clinic" => {
                look(
                    &format!("{section}[]"),
                    0,
                    &|value| json!({ section: [value] }),
                    &mut lines,
                );
            }
            _ => look(section, 0, &|value| json!({ section: value }), &mut lines),
        }
    }
    for kind in known(&json!({"agent": [{"kind": UNKNOWN}]})).unwrap() {
        let agent = json!({"id": "a", "kind": kind});
        let providers =
            known(&json!({"agent": [merged(agent.clone(), json!({"provider": UNKNOWN}))]}))
                .unwrap_or_default();
        let agents = match kind.as_str() {
            "model" => providers
                .iter()
                .map(|of| merged(agent.clone(), json!({"provider": of})))
                .collect(),
            _ => vec![agent],
        };
        for agent in agents {
            let provider = agent
                .get("provider")
                .and_then(Value::as_str)
                .unwrap_or_default();
            let place = format!("agent[{kind} {provider}]").replace(" ]", "]");
            look(
                &place,
                0,
                &|value| json!({"agent": [merged(agent.clone(), value)]}),
                &mut lines,
            );
        }
    }
    lines.sort_unstable();
    lines.dedup();
    insta::assert_snapshot!("keys", lines.join("\n"));
}
