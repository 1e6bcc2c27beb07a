//! JSON for people: members in the order in which they came, two spaces a level, small objects of a list on one line.

use callboard_message::RawObject;
use serde_json::value::RawValue;

/// How deep it is laid out; what is deeper stands on one line.
const LEVELS_MAX: usize = 32;

/// Lays a value out.
pub(super) fn laid_out(value: &RawValue) -> String {
    let mut out = String::new();
    write(value, 0, &mut out);
    out
}

/// A text that is an object or a list, laid out; `None` for any other.
pub(super) fn of_text(text: &str) -> Option<String> {
    let text = text.trim();
    let value: Box<RawValue> = text.starts_with(['{', '[']).then(|| serde_json::from_str(text).ok())??;
    Some(laid_out(&value))
}

fn write(value: &RawValue, level: usize, out: &mut String) {
    let text = value.get();
    match text.as_bytes().first() {
        Some(b'{') if level < LEVELS_MAX => match serde_json::from_str::<RawObject>(text) {
            Ok(object) if !object.is_empty() => {
                let members = object.iter().map(|(name, value)| (Some(name), value));
                write_all(members, ['{', '}'], level, out);
            }
            Ok(_) => out.push_str("{}"),
            // A key stands twice in it: as it came.
            Err(_) => out.push_str(text),
        },
        Some(b'[') if level < LEVELS_MAX => match serde_json::from_str::<Vec<&RawValue>>(text) {
            Ok(items) if !items.is_empty() => {
                write_all(items.into_iter().map(|item| (None, item)), ['[', ']'], level, out);
            }
            _ => out.push_str("[]"),
        },
        _ => out.push_str(text),
    }
}

fn write_all<'a>(
    values: impl Iterator<Item = (Option<&'a str>, &'a RawValue)>,
    [open, close]: [char; 2],
    level: usize,
    out: &mut String,
) {
    out.push(open);
    for (at, (name, value)) in values.enumerate() {
        out.push_str(if at == 0 { "\n" } else { ",\n" });
        out.push_str(&"  ".repeat(level + 1));
        match name.map(quoted) {
            Some(name) => {
                out.push_str(&format!("{name}: "));
                write(value, level + 1, out);
            }
            None => match on_one_line(value) {
                Some(line) => out.push_str(&line),
                None => write(value, level + 1, out),
            },
        }
    }
    out.push('\n');
    out.push_str(&"  ".repeat(level));
    out.push(close);
}

/// An object of a list without further objects and lists in it.
fn on_one_line(value: &RawValue) -> Option<String> {
    let object: RawObject = serde_json::from_str(value.get()).ok()?;
    let is_plain = |value: &RawValue| !value.get().starts_with(['{', '[']);
    let all_plain = !object.is_empty() && object.iter().all(|(_, value)| is_plain(value));
    let member = |(name, value): (&str, &RawValue)| format!("{}: {}", quoted(name), value.get());
    all_plain.then(|| format!("{{{}}}", object.iter().map(member).collect::<Vec<_>>().join(", ")))
}

fn quoted(name: &str) -> String {
    serde_json::Value::from(name).to_string()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn laid(text: &str) -> String {
        of_text(text).unwrap()
    }

    /// Goal: the lists of agents look as people know them. Method: the two of the source document.
    #[test]
    fn lists_of_agents() {
        let none = r#"{"count":0,"message":"No agents found in the directory"}"#;
        assert_eq!(laid(none), "{\n  \"count\": 0,\n  \"message\": \"No agents found in the directory\"\n}");
        let two = concat!(
            r#"{"count":2,"agents":[{"id":"bidirectional-agent-2","name":"Agent Two"},"#,
            r#"{"id":"bidirectional-agent-3","name":"Agent Three"}]}"#
        );
        let expected = r#"{
  "count": 2,
  "agents": [
    {"id": "bidirectional-agent-2", "name": "Agent Two"},
    {"id": "bidirectional-agent-3", "name": "Agent Three"}
  ]
}"#;
        assert_eq!(laid(two), expected);
    }

    /// Goal: every shape has a layout. Method: empty ones, nested ones, plain lists, a key twice, what is no list or object.
    #[test]
    fn shapes() {
        assert_eq!(laid("{}"), "{}");
        assert_eq!(laid("[ ]"), "[]");
        assert_eq!(laid(r#"{"b":{},"a":[]}"#), "{\n  \"b\": {},\n  \"a\": []\n}");
        assert_eq!(laid(r#"["x",1]"#), "[\n  \"x\",\n  1\n]");
        assert_eq!(laid(r#"[{"a":{"b":1}}]"#), "[\n  {\n    \"a\": {\n      \"b\": 1\n    }\n  }\n]");
        assert_eq!(laid(r#"{"a":1,"a":2}"#), r#"{"a":1,"a":2}"#);
        for text in ["", "7", "words", "{", "[1"] {
            assert_eq!(of_text(text), None, "{text}");
        }
    }

    /// Goal: depth is bounded, nothing is lost. Method: lists one level deeper than are laid out.
    #[test]
    fn deep_ones_stay_on_a_line() {
        let deep = format!("{}1{}", "[".repeat(LEVELS_MAX + 1), "]".repeat(LEVELS_MAX + 1));
        let laid = laid(&deep);
        assert!(laid.contains("[1]"), "{laid}");
        assert!(!self::laid(&deep[1..deep.len() - 1]).contains("[1]"));
    }

    proptest! {
        /// Goal: layout changes no value. Method: any nesting of a few shapes, read back.
        #[test]
        fn it_reads_back(items in proptest::collection::vec("[a-z\"\\\\ü\n]{0,6}", 0..5), levels in 0usize..6) {
            let mut value = serde_json::json!({ "items": items, "n": 1.5, "none": null });
            for _ in 0..levels {
                value = serde_json::json!([{ "in": value, "x": true }, {}]);
            }
            let laid = of_text(&value.to_string()).unwrap();
            prop_assert_eq!(serde_json::from_str::<Value>(&laid).unwrap(), value);
        }
    }
}
