//! Snapshot of all keys of a topology. They are found by an unknown key: its error message lists
//! the known ones.

use std::path::Path;

use serde_json::{Value, json};

use crate::config::{ConfigProblem, parse_topology};

/// Similar to no key, so that the help lists all keys in place of a suggestion.
const UNKNOWN: &str = "~~~~~~~~";
/// Maximum nesting depth of the search.
const DEPTH_MAX: usize = 8;

/// Returns the names listed in the help of the problem about [`UNKNOWN`].
fn known(whole: &Value) -> Option<Vec<String>> {
    let problems: Vec<ConfigProblem> =
        parse_topology(&whole.to_string(), true, Path::new("/nowhere"), false).1;
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

/// Wraps a value in a list, a table or both.
type Wrapper = fn(Value) -> Value;

/// Adds all keys below `place`. `whole` builds a topology with a value at that place.
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

/// Goal: a key that is read today is read by every later version. Method: an unknown key in each
/// section and in each kind of agent.
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
            let without = lines.len();
            look(
                &place,
                0,
                &|value| json!({"agent": [merged(agent.clone(), value)]}),
                &mut lines,
            );
            assert!(
                lines.len() > without,
                "{place} refuses no unknown key: `deny_unknown_fields` is missing"
            );
        }
    }
    lines.sort_unstable();
    lines.dedup();
    insta::assert_snapshot!("keys", lines.join("\n"));
}
