//! Repair of the items of list results. The SDKs of clients reject a whole list for one item that
//! doesn't fit their schema, so such an item is repaired, or dropped if it can't be.

use callboard_message::RawMembers;
use callboard_message::json::{RawCursor, quote, raw_from_written, text};
use serde_json::value::RawValue;

use super::request::McpMethod;
use crate::wire::Era;

/// A list result, repaired where necessary.
pub(crate) struct FittedList {
    pub result: Box<RawValue>,
    /// Number of items that were changed.
    pub repaired: usize,
    /// Number of items that were removed.
    pub dropped: usize,
}

/// Expected form of an optional member.
#[derive(Clone, Copy)]
enum MemberForm {
    Text,
    Number,
    Object,
    /// List of objects that have the named string member.
    ObjectsWith(&'static str),
}

impl MemberForm {
    fn fits(self, value: &RawValue) -> bool {
        let has_text = |item: &RawValue, name: &str| {
            RawCursor::object(item).is_some_and(|mut members| {
                members.any(|(member, value)| member == name && is_text(value))
            })
        };
        match self {
            Self::Text => is_text(value),
            Self::Number => value
                .get()
                .starts_with(|c: char| c == '-' || c.is_ascii_digit()),
            Self::Object => is_object(value),
            Self::ObjectsWith(name) => RawCursor::list(value)
                .is_some_and(|mut items| items.all(|item| has_text(item, name))),
        }
    }
}

/// Optional members that items of all lists may have.
const COMMON_MEMBERS: [(&str, MemberForm); 5] = [
    ("title", MemberForm::Text),
    ("description", MemberForm::Text),
    ("annotations", MemberForm::Object),
    ("_meta", MemberForm::Object),
    ("icons", MemberForm::ObjectsWith("src")),
];

/// Rules for the items of one list.
struct ListRules {
    /// Member of the result that holds the items.
    list: &'static str,
    /// Member that identifies an item: a string, without which the item is useless.
    key: &'static str,
    /// Optional members besides [`COMMON_MEMBERS`].
    members: &'static [(&'static str, MemberForm)],
}

impl ListRules {
    /// Returns the rules for the result of a method; `None` if it isn't a list of MCP's.
    fn for_method(method: McpMethod) -> Option<Self> {
        let (list, key, members): (_, _, &[_]) = match method {
            McpMethod::ListTools => ("tools", "name", &[("execution", MemberForm::Object)]),
            McpMethod::ListPrompts => (
                "prompts",
                "name",
                &[("arguments", MemberForm::ObjectsWith("name"))],
            ),
            McpMethod::ListResources => (
                "resources",
                "uri",
                &[("mimeType", MemberForm::Text), ("size", MemberForm::Number)],
            ),
            McpMethod::ListResourceTemplates => (
                "resourceTemplates",
                "uriTemplate",
                &[("mimeType", MemberForm::Text)],
            ),
            _ => return None,
        };
        Some(Self { list, key, members })
    }
}

/// Repairs the items of a list result for a client of `era`. Other results, and items without a
/// flaw, keep their bytes. A result whose list isn't an array is returned unchanged.
pub(crate) fn fit_items(method: McpMethod, result: Box<RawValue>, era: Era) -> FittedList {
    let unchanged = |result| FittedList {
        result,
        repaired: 0,
        dropped: 0,
    };
    let Some(rules) = ListRules::for_method(method) else {
        return unchanged(result);
    };
    let Ok(mut members) = RawMembers::parse(&result) else {
        return unchanged(result);
    };
    let Some(items) = members.get(rules.list).and_then(RawCursor::list) else {
        return unchanged(result);
    };
    let (mut kept, mut repaired, mut dropped) = (Vec::new(), 0, 0);
    for item in items {
        match fit_item(item, &rules, era) {
            FittedItem::Unchanged => kept.push(item.get().to_owned()),
            FittedItem::Repaired(item) => {
                repaired += 1;
                kept.push(item);
            }
            FittedItem::Dropped => dropped += 1,
        }
    }
    let has_cursor = members.get("nextCursor").is_none_or(is_text);
    if has_cursor && repaired + dropped == 0 {
        return unchanged(result);
    }
    members.retain(|name| has_cursor || name != "nextCursor");
    let list = format!("[{}]", kept.join(","));
    let mut fitted = String::with_capacity(result.get().len());
    members.write_with(&[(rules.list, &list)], &mut fitted);
    FittedList {
        result: raw_from_written(fitted),
        repaired,
        dropped,
    }
}

enum FittedItem {
    Unchanged,
    /// The item as JSON text, changed.
    Repaired(String),
    Dropped,
}

fn fit_item(item: &RawValue, rules: &ListRules, era: Era) -> FittedItem {
    let Ok(mut members) = RawMembers::parse(item) else {
        // Of members with the same name, parsers of JSON take one.
        return match is_object(item) {
            true => FittedItem::Unchanged,
            false => FittedItem::Dropped,
        };
    };
    let Some(key) = members.get(rules.key).and_then(text) else {
        return FittedItem::Dropped;
    };
    let is_tool = rules.list == "tools";
    let mut put = Vec::new();
    if !members.get("name").is_some_and(is_text) {
        put.push(("name", quote(&key)));
    }
    if is_tool && let Some(schema) = repaired_input_schema(members.get("inputSchema")) {
        put.push(("inputSchema", schema));
    }
    let is_output_schema = |schema: &RawValue| match era {
        Era::Legacy => has_object_type(schema),
        Era::Modern => is_object(schema),
    };
    let mut removed: Vec<&str> = COMMON_MEMBERS
        .iter()
        .chain(rules.members)
        .filter(|(name, form)| members.get(name).is_some_and(|value| !form.fits(value)))
        .map(|(name, _)| *name)
        .collect();
    if is_tool
        && members
            .get("outputSchema")
            .is_some_and(|schema| !is_output_schema(schema))
    {
        removed.push("outputSchema");
    }
    if put.is_empty() && removed.is_empty() {
        return FittedItem::Unchanged;
    }
    members.retain(|name| !removed.contains(&name));
    let put: Vec<_> = put
        .iter()
        .map(|(name, json)| (*name, json.as_str()))
        .collect();
    let mut fitted = String::with_capacity(item.get().len());
    members.write_with(&put, &mut fitted);
    FittedItem::Repaired(fitted)
}

/// Returns a tool's input schema with the type `object`, which MCP requires; `None` if it has that
/// type. A schema that is missing or no object becomes one that accepts any object.
fn repaired_input_schema(schema: Option<&RawValue>) -> Option<String> {
    const OBJECT: &str = r#""object""#;
    if schema.is_some_and(has_object_type) {
        return None;
    }
    let members = schema
        .and_then(|schema| RawMembers::parse(schema).ok())
        .unwrap_or_default();
    let mut repaired = String::new();
    members.write_with(&[("type", OBJECT)], &mut repaired);
    Some(repaired)
}

fn has_object_type(schema: &RawValue) -> bool {
    RawCursor::object(schema).is_some_and(|mut members| {
        members.any(|(name, value)| name == "type" && text(value).as_deref() == Some("object"))
    })
}

fn is_text(value: &RawValue) -> bool {
    value.get().starts_with('"')
}

fn is_object(value: &RawValue) -> bool {
    value.get().starts_with('{')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fitted(method: McpMethod, era: Era, result: &str) -> (String, usize, usize) {
        let raw = RawValue::from_string(result.to_owned()).unwrap();
        let list = fit_items(method, raw, era);
        (list.result.get().to_owned(), list.repaired, list.dropped)
    }

    /// Goal: a tool that a client's SDK would refuse is repaired, or dropped if it has no name, and
    /// costs no other tool. Method: rows of one flawed tool between two good ones with odd white
    /// space, for both eras.
    #[test]
    fn flawed_tools_are_repaired() {
        const GOOD: &str = r#"{ "name":"g", "inputSchema":{"type" : "object"}, "n":1.0,"outputSchema":{"type":"object"} }"#;
        let plain =
            |name: &str| format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#);
        let with =
            |more: &str| format!(r#"{{"name":"a","inputSchema":{{"type":"object"}},{more}}}"#);
        let schema = |schema: &str| format!(r#"{{"name":"a","inputSchema":{schema}}}"#);
        let rows: Vec<(String, Option<String>, Option<String>)> = vec![
            (r#"{"name":"a"}"#.into(), Some(plain("a")), Some(plain("a"))),
            (schema("null"), Some(plain("a")), Some(plain("a"))),
            (schema("[]"), Some(plain("a")), Some(plain("a"))),
            (schema("true"), Some(plain("a")), Some(plain("a"))),
            (
                schema(r#"{"properties":{"x":{"n": 1.0}}}"#),
                Some(schema(r#"{"properties":{"x":{"n": 1.0}},"type":"object"}"#)),
                Some(schema(r#"{"properties":{"x":{"n": 1.0}},"type":"object"}"#)),
            ),
            (
                schema(r#"{"type":"string"}"#),
                Some(plain("a")),
                Some(plain("a")),
            ),
            (
                with(r#""outputSchema":{"type":"array"}"#),
                Some(plain("a")),
                Some(with(r#""outputSchema":{"type":"array"}"#)),
            ),
            (
                with(r#""outputSchema":null"#),
                Some(plain("a")),
                Some(plain("a")),
            ),
            (
                with(r#""outputSchema":[]"#),
                Some(plain("a")),
                Some(plain("a")),
            ),
            (with(r#""title":7"#), Some(plain("a")), Some(plain("a"))),
            (
                with(r#""description":null"#),
                Some(plain("a")),
                Some(plain("a")),
            ),
            (
                with(r#""annotations":"x""#),
                Some(plain("a")),
                Some(plain("a")),
            ),
            (with(r#""_meta":[]"#), Some(plain("a")), Some(plain("a"))),
            (with(r#""icons":{}"#), Some(plain("a")), Some(plain("a"))),
            (
                with(r#""icons":[{"url":"x"}]"#),
                Some(plain("a")),
                Some(plain("a")),
            ),
            (
                with(r#""execution":"no""#),
                Some(plain("a")),
                Some(plain("a")),
            ),
            (r#"{"inputSchema":{"type":"object"}}"#.into(), None, None),
            (
                r#"{"name":7,"inputSchema":{"type":"object"}}"#.into(),
                None,
                None,
            ),
            ("null".into(), None, None),
            ("[]".into(), None, None),
        ];
        for (flawed, legacy, modern) in rows {
            for (era, wanted) in [(Era::Legacy, legacy), (Era::Modern, modern)] {
                let list = format!(r#"{{"x":1.0,"tools":[{GOOD},{flawed},{GOOD}]}}"#);
                let items: Vec<&str> = [GOOD]
                    .into_iter()
                    .chain(wanted.as_deref())
                    .chain([GOOD])
                    .collect();
                let is_changed = wanted.as_ref() != Some(&flawed);
                let seen = format!(r#"{{"x":1.0,"tools":[{}]}}"#, items.join(","));
                let repaired = usize::from(is_changed && wanted.is_some());
                assert_eq!(
                    fitted(McpMethod::ListTools, era, &list),
                    (seen, repaired, usize::from(wanted.is_none())),
                    "{era:?}: {flawed}"
                );
            }
        }
    }

    /// Goal: the other lists are repaired by their own rules. Method: one list each, with a flawed,
    /// a useless and a good item.
    #[test]
    fn flawed_items_of_other_lists() {
        for (method, list, seen) in [
            (
                McpMethod::ListResources,
                r#"{"resources":[{"uri":"a:b"},{"name":"n"},{"uri":"a:c","name":"n","size":"1","mimeType":1},{"uri":"a:d","name":"n","size":-1}],"nextCursor":null}"#,
                r#"{"resources":[{"uri":"a:b","name":"a:b"},{"uri":"a:c","name":"n"},{"uri":"a:d","name":"n","size":-1}]}"#,
            ),
            (
                McpMethod::ListResourceTemplates,
                r#"{"resourceTemplates":[{"uriTemplate":"a:{b}","name":""},{"uri":"a:b"}]}"#,
                r#"{"resourceTemplates":[{"uriTemplate":"a:{b}","name":""}]}"#,
            ),
            (
                McpMethod::ListPrompts,
                r#"{"prompts":[{"name":"a","arguments":[{"name":"x"}]},{"name":"b","arguments":[{}]},{"title":"c"}],"nextCursor":"c"}"#,
                r#"{"prompts":[{"name":"a","arguments":[{"name":"x"}]},{"name":"b"}],"nextCursor":"c"}"#,
            ),
        ] {
            assert_eq!(fitted(method, Era::Legacy, list).0, seen);
        }
    }

    /// Goal: results without a flaw keep their bytes, and so do results that are no list. Method:
    /// lists with odd white space, results of other methods and of other forms.
    #[test]
    fn other_results_keep_their_bytes() {
        for (method, result) in [
            (McpMethod::ListTools, r#"{ "tools" : [ ] , "n":1.0 }"#),
            (
                McpMethod::ListTools,
                r#"{ "tools" : [ { "name" : "a", "inputSchema":{ "type":"object" }, "icons":[ ] } ] }"#,
            ),
            (
                McpMethod::ListTools,
                r#"{"tools":[{"name":"a","name":"b"}]}"#,
            ),
            (McpMethod::ListTools, r#"{"tools":null}"#),
            (McpMethod::ListTools, r#"{"a":1,"a":2}"#),
            (McpMethod::ListTools, "[1]"),
            (McpMethod::CallTool, r#"{"tools":[null]}"#),
        ] {
            assert_eq!(
                fitted(method, Era::Legacy, result),
                (result.to_owned(), 0, 0)
            );
        }
    }
}
