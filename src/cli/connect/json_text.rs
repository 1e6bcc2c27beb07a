//! Edits of a JSON text that leave everything else in it as it is: order, indentation and line breaks.

use std::fmt;
use std::ops::Range;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::error::EditError;

/// Maximum number of edits by which one text is rewritten.
const EDITS_MAX: usize = 64;
/// Indentation of a level where the text has none to follow.
const INDENT_DEFAULT: &str = "  ";

/// Edits `text` until its value is `wanted`. Each edit inserts, replaces or removes one member or element.
///
/// # Errors
/// [`EditError::Json`] if the text isn't JSON, [`EditError::UnsupportedForm`] if the value isn't reached within
/// [`EDITS_MAX`] edits.
pub(super) fn rewrite(text: &str, wanted: &Value) -> Result<String, EditError> {
    let mut text = text.to_owned();
    for _ in 0..EDITS_MAX {
        let current: Value = serde_json::from_str(&text)?;
        if current == *wanted {
            return Ok(text);
        }
        let start = text.len() - text.trim_start().len();
        let edit = find_edit(&text, start..text.trim_end().len(), &current, wanted)?;
        text.replace_range(edit.range, &edit.text);
    }
    Err(EditError::UnsupportedForm)
}

/// Replacement of a part of a text.
struct TextEdit {
    range: Range<usize>,
    text: String,
}

/// Returns an edit that brings the value at `range`, which is `current`, nearer to `wanted`. The two must differ.
fn find_edit(
    text: &str,
    range: Range<usize>,
    current: &Value,
    wanted: &Value,
) -> Result<TextEdit, EditError> {
    match (current, wanted) {
        (Value::Object(old), Value::Object(new)) => {
            let container = Container::of_object(text, range)?;
            for (key, value) in new {
                match old.get(key) {
                    Some(same) if same == value => {}
                    Some(other) => {
                        let place = container.member(key).ok_or(EditError::UnsupportedForm)?;
                        return find_edit(text, container.place(place)?, other, value);
                    }
                    None => return Ok(container.insertion(text, Some(key), value)),
                }
            }
            let extra = old.keys().find(|key| !new.contains_key(*key));
            let position = extra.and_then(|key| container.member(key));
            container.removal(text, position.ok_or(EditError::UnsupportedForm)?)
        }
        (Value::Array(old), Value::Array(new)) => {
            let container = Container::of_array(text, range)?;
            let mut pairs = old.iter().zip(new).enumerate();
            let mismatch = pairs.find(|(_, (old, new))| old != new);
            match mismatch {
                _ if old.len() > new.len() => {
                    let position = mismatch.map_or(new.len(), |(position, _)| position);
                    container.removal(text, position)
                }
                Some((position, (old, new))) => {
                    find_edit(text, container.place(position)?, old, new)
                }
                None => {
                    let added = new.get(old.len()).ok_or(EditError::UnsupportedForm)?;
                    Ok(container.insertion(text, None, added))
                }
            }
        }
        _ => {
            let indent = line_indent(text, range.start);
            let text = TextStyle::of(text).format(wanted, indent);
            Ok(TextEdit { range, text })
        }
    }
}

/// Object or array within a text, by places.
struct Container {
    /// Place between the brackets.
    inner: Range<usize>,
    items: Vec<ContainerItem>,
}

/// Member of an object, or element of an array.
struct ContainerItem {
    /// Key of a member; `None` for an element.
    key: Option<String>,
    /// Place of the value.
    value: Range<usize>,
}

impl Container {
    fn of_object(text: &str, range: Range<usize>) -> Result<Self, EditError> {
        let Members(members) = serde_json::from_str(part(text, range.clone()))?;
        let items = members.into_iter().map(|(key, value)| ContainerItem {
            key: Some(key),
            value: place_of(value, text),
        });
        Ok(Self::new(range, items.collect()))
    }

    fn of_array(text: &str, range: Range<usize>) -> Result<Self, EditError> {
        let elements: Vec<&RawValue> = serde_json::from_str(part(text, range.clone()))?;
        let items = elements.into_iter().map(|value| ContainerItem {
            key: None,
            value: place_of(value, text),
        });
        Ok(Self::new(range, items.collect()))
    }

    fn new(range: Range<usize>, items: Vec<ContainerItem>) -> Self {
        let inner = range.start.saturating_add(1)..range.end.saturating_sub(1);
        Self { inner, items }
    }

    /// Returns the position of the member with this key. Of several, the last one counts, as for readers of the text.
    fn member(&self, key: &str) -> Option<usize> {
        let mut items = self.items.iter();
        items.rposition(|item| item.key.as_deref() == Some(key))
    }

    /// Returns the place of the value at a position.
    fn place(&self, position: usize) -> Result<Range<usize>, EditError> {
        let item = self.items.get(position);
        item.map(|item| item.value.clone())
            .ok_or(EditError::UnsupportedForm)
    }

    /// Returns the edit that removes an item, with its comma.
    fn removal(&self, text: &str, position: usize) -> Result<TextEdit, EditError> {
        let item = self.place(position)?;
        let before = position.checked_sub(1).and_then(|at| self.items.get(at));
        let range = match before {
            Some(before) => before.value.end..item.end,
            None if self.items.len() > 1 => {
                let first = self.inner.start + leading_space(part(text, self.inner.clone())).len();
                let rest = part(text, item.end..self.inner.end).trim_start();
                let second = rest.strip_prefix(',').unwrap_or(rest).trim_start();
                first..self.inner.end.saturating_sub(second.len())
            }
            None => self.inner.clone(),
        };
        Ok(TextEdit {
            range,
            text: String::new(),
        })
    }

    /// Returns the edit that adds an item at the end, laid out like the first one.
    fn insertion(&self, text: &str, key: Option<&str>, value: &Value) -> TextEdit {
        let style = TextStyle::of(text);
        let key = key.map_or_else(String::new, |key| format!("{}: ", Value::from(key)));
        if let Some(last) = self.items.last() {
            let gap = leading_space(part(text, self.inner.clone()));
            let value = match gap.rsplit_once('\n') {
                Some((_, indent)) => style.format(value, indent),
                None => value.to_string(),
            };
            return TextEdit {
                range: last.value.end..last.value.end,
                text: format!(",{gap}{key}{value}"),
            };
        }
        let TextStyle { unit, newline } = style;
        let outer = line_indent(text, self.inner.start);
        let inner = format!("{outer}{unit}");
        let value = style.format(value, &inner);
        TextEdit {
            range: self.inner.clone(),
            text: format!("{newline}{inner}{key}{value}{newline}{outer}"),
        }
    }
}

/// Members of an object in the order of the text.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;

        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Vec<(String, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(members)
            }
        }

        deserializer.deserialize_map(MembersVisitor).map(Self)
    }
}

/// Layout of a text.
#[derive(Clone, Copy)]
struct TextStyle<'a> {
    /// Indentation of one level.
    unit: &'a str,
    newline: &'static str,
}

impl<'a> TextStyle<'a> {
    fn of(text: &'a str) -> Self {
        let first = leading_space(text.trim_start().get(1..).unwrap_or_default());
        let unit = first.rsplit_once('\n').map(|(_, indent)| indent);
        Self {
            unit: unit
                .filter(|unit| !unit.is_empty())
                .unwrap_or(INDENT_DEFAULT),
            newline: if text.contains("\r\n") { "\r\n" } else { "\n" },
        }
    }

    /// Formats a value that begins in a line with the indentation `indent`.
    fn format(self, value: &Value, indent: &str) -> String {
        let mut formatted = String::new();
        // A line break within a string is escaped, so that each line begins a value or ends one.
        for (nth, line) in format!("{value:#}").lines().enumerate() {
            let content = line.trim_start();
            if nth > 0 {
                let depth = (line.len() - content.len()) / 2;
                formatted += self.newline;
                formatted += indent;
                formatted += &self.unit.repeat(depth);
            }
            formatted += content;
        }
        formatted
    }
}

/// Returns the place in `text` of a value that was read from it.
fn place_of(value: &RawValue, text: &str) -> Range<usize> {
    let value = value.get();
    let start = value.as_ptr().addr().saturating_sub(text.as_ptr().addr());
    start..start + value.len()
}

fn part(text: &str, range: Range<usize>) -> &str {
    text.get(range).unwrap_or_default()
}

fn leading_space(text: &str) -> &str {
    part(text, 0..text.len() - text.trim_start().len())
}

/// Returns the indentation of the line with this place.
fn line_indent(text: &str, at: usize) -> &str {
    let before = part(text, 0..at);
    leading_space(before.rsplit('\n').next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Goal: an edit changes its own place and nothing else. Method: rows of a text, a change of its value and the text that
    /// comes of it.
    #[test]
    fn everything_else_stays() {
        let entry = || json!({ "args": ["a"], "command": "c" });
        let add = |value: &mut Value| value["s"]["new"] = entry();
        let remove = |value: &mut Value| drop(value["s"].as_object_mut().unwrap().remove("x"));
        type Edit<'a> = &'a dyn Fn(&mut Value);
        let rows: [(&str, Edit<'_>, &str); 11] = [
            (
                "{}\n",
                &add,
                "{\n  \"s\": {\n    \"new\": {\n      \"args\": [\n        \"a\"\n      ],\n      \"command\": \"c\"\n    }\n  }\n}\n",
            ),
            (
                "{\r\n\t\"z\" : 1.50,\r\n\t\"s\": {}\r\n}",
                &add,
                "{\r\n\t\"z\" : 1.50,\r\n\t\"s\": {\r\n\t\t\"new\": {\r\n\t\t\t\"args\": [\r\n\t\t\t\t\"a\"\r\n\t\t\t],\r\n\t\t\t\"command\": \"c\"\r\n\t\t}\r\n\t}\r\n}",
            ),
            (
                "{ \"s\": { \"x\": 1 }, \"a\": 2 }",
                &add,
                "{ \"s\": { \"x\": 1, \"new\": {\"args\":[\"a\"],\"command\":\"c\"} }, \"a\": 2 }",
            ),
            (
                "{\n    \"s\": {\n        \"x\": { \"k\":\"}\\\",\" }\n    },\n    \"a\": 2\n}\n",
                &add,
                "{\n    \"s\": {\n        \"x\": { \"k\":\"}\\\",\" },\n        \"new\": {\n            \"args\": [\n                \"a\"\n            ],\n            \"command\": \"c\"\n        }\n    },\n    \"a\": 2\n}\n",
            ),
            ("{\"s\":{\"x\":1,\"y\":2}}", &remove, "{\"s\":{\"y\":2}}"),
            (
                "{\"s\":{\"y\":2 , \"x\":1 }}",
                &remove,
                "{\"s\":{\"y\":2 }}",
            ),
            ("{\"s\": { \"x\": 1 }}", &remove, "{\"s\": {}}"),
            (
                "{\"s\": {\n  \"x\": 1,\n\n  \"é\": [ 2 ]\n}}",
                &remove,
                "{\"s\": {\n  \"é\": [ 2 ]\n}}",
            ),
            (
                "{\"s\":{\"x\":1,\"y\":2,\"x\":3}}",
                &remove,
                "{\"s\":{\"y\":2}}",
            ),
            (
                "{ \"l\": [ 1, {\"a\" : 1}, 3 ] }",
                &|value: &mut Value| value["l"] = json!([1, { "a": 2 }, 3, "n"]),
                "{ \"l\": [ 1, {\"a\" : 2}, 3, \"n\" ] }",
            ),
            (
                "{ \"l\": [ 1, {\"a\" : 1}, 3 ] }",
                &|value: &mut Value| value["l"] = json!([{ "a": 1 }]),
                "{ \"l\": [ {\"a\" : 1} ] }",
            ),
        ];
        for (text, change, expected) in rows {
            let mut wanted: Value = serde_json::from_str(text).unwrap();
            change(&mut wanted);
            assert_eq!(rewrite(text, &wanted).unwrap(), expected, "{text}");
        }
    }

    /// Goal: a text that isn't JSON is refused, and the reason doesn't show it. Method: rows.
    #[test]
    fn other_texts_are_refused() {
        for text in ["", "{ // no\n}", "{\"secret\": 1,}", "{\"a\": secret}"] {
            let error = rewrite(text, &json!({})).unwrap_err();
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
