//! JSON for people: members in the order in which they came, two spaces a level, small objects of a list on one line.

use callboard_message::RawObject;
use serde_json::Value;
use serde_json::value::RawValue;

/// How deep it is laid out; what is deeper stands on one line.
const LEVELS_MAX: usize = 32;

/// JSON, laid out for people: a member or item a line; an object in a list that holds no others stays on one.
pub(super) fn laid_out(value: &RawValue) -> String {
    laid(value, 0)
}

/// The same of a text, if it is an object or a list.
pub(super) fn of_text(text: &str) -> Option<String> {
    let text = text.trim();
    let value: Box<RawValue> = text.starts_with(['{', '[']).then(|| serde_json::from_str(text).ok())??;
    Some(laid_out(&value))
}

fn laid(value: &RawValue, level: usize) -> String {
    let text = value.get();
    let parts: Option<Vec<String>> = match text.as_bytes().first() {
        Some(b'{') if level < LEVELS_MAX => serde_json::from_str(text).ok().map(|object: RawObject| {
            object.iter().map(|(name, value)| member(name, &laid(value, level + 1))).collect()
        }),
        Some(b'[') if level < LEVELS_MAX => serde_json::from_str(text).ok().map(|items: Vec<&RawValue>| {
            items.into_iter().map(|item| on_one_line(item).unwrap_or_else(|| laid(item, level + 1))).collect()
        }),
        _ => None,
    };
    let Some(parts) = parts else { return text.to_owned() };
    let (open, close) = (&text[..1], &text[text.len() - 1..]);
    if parts.is_empty() {
        return format!("{open}{close}");
    }
    let (outer, inner) = ("  ".repeat(level), "  ".repeat(level + 1));
    format!("{open}\n{inner}{}\n{outer}{close}", parts.join(&format!(",\n{inner}")))
}

fn member(name: &str, value: &str) -> String {
    format!("{}: {value}", Value::from(name))
}

fn on_one_line(value: &RawValue) -> Option<String> {
    let object: RawObject = serde_json::from_str(value.get()).ok()?;
    let all_plain = object.iter().all(|(_, value)| !value.get().starts_with(['{', '[']));
    let members = object.iter().map(|(name, value)| member(name, value.get())).collect::<Vec<_>>();
    (all_plain && !members.is_empty()).then(|| format!("{{{}}}", members.join(", ")))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
