//! Check of a form's values against its schema: the flat subset of JSON Schema of MCP's
//! `elicitation/create` (`PrimitiveSchemaDefinition`).

use serde_json::{Map, Value};

use crate::time::parse_rfc3339;

/// Maximum number of faults that one check reports. Further ones are left out.
pub(crate) const FAULTS_MAX: usize = 16;
/// Maximum number of allowed values that a fault lists; the rest is counted.
const LISTED_VALUES_MAX: usize = 16;

/// Returns the reasons why `content` doesn't fit the form `schema`, at most [`FAULTS_MAX`]; empty
/// if it fits. Members without a schema and keywords outside the subset are not checked, nor are
/// optional fields that were left blank: clients submit them as null or as an empty text. A fault
/// names the field and what it must be, never the value.
pub(crate) fn form_faults(schema: &Value, content: &Value) -> Vec<String> {
    let Value::Object(values) = content else {
        return vec!["the values of a form must be an object".to_owned()];
    };
    let no_fields = Map::new();
    let fields = schema.get("properties").and_then(Value::as_object);
    let fields = fields.unwrap_or(&no_fields);
    let required: Vec<&str> = strings(schema.get("required")).collect();
    let missing = required.iter().filter(|name| {
        let allows_null = |field: &Value| field_fault(field, &Value::Null).is_none();
        match values.get(**name) {
            None => true,
            Some(Value::Null) => !fields.get(**name).is_some_and(allows_null),
            Some(_) => false,
        }
    });
    let missing = missing.map(|name| format!("`{name}` is required"));
    let unfit = fields.iter().filter_map(|(name, field)| {
        let value = values.get(name)?;
        let is_skipped = match required.contains(&name.as_str()) {
            // Reported as missing.
            true => value.is_null(),
            false => is_blank(field, value),
        };
        let fault = field_fault(field, value).filter(|_| !is_skipped)?;
        Some(format!("`{name}` {fault}"))
    });
    missing.chain(unfit).take(FAULTS_MAX).collect()
}

/// Returns whether a client means by `value` that the optional field was left blank: null, or an
/// empty text where the schema restricts texts.
fn is_blank(field: &Value, value: &Value) -> bool {
    let is_restricted = || {
        ["format", "enum", "minLength", "oneOf", "anyOf", "const"]
            .iter()
            .any(|keyword| field.get(keyword).is_some())
    };
    value.is_null() || value.as_str() == Some("") && is_restricted()
}

/// Returns what is wrong with the value of one field, as the end of a sentence that begins with the
/// field's name; `None` if it fits.
fn field_fault(schema: &Value, value: &Value) -> Option<String> {
    if let Some(kinds) = schema.get("type") {
        let (fits, names) = match kinds {
            Value::Array(kinds) => (
                kinds.iter().any(|kind| is_of_type(kind, value)),
                strings(Some(&Value::Array(kinds.clone())))
                    .collect::<Vec<_>>()
                    .join(" or "),
            ),
            kind => (
                is_of_type(kind, value),
                kind.as_str().unwrap_or_default().to_owned(),
            ),
        };
        if !fits {
            return Some(format!("must be of type {names}"));
        }
    }
    if let Some(fault) = value_fault(schema, value) {
        return Some(fault);
    }
    match value {
        Value::String(text) => text_fault(schema, text),
        Value::Number(_) => number_fault(schema, value.as_f64()?),
        Value::Array(items) => list_fault(schema, items),
        _ => None,
    }
}

/// Returns the fault of a value that isn't among those that `const`, `enum`, `oneOf` and `anyOf`
/// list. A list without values isn't checked, nor is `oneOf` or `anyOf` with members other than
/// titled values, which the subset doesn't have.
fn value_fault(schema: &Value, value: &Value) -> Option<String> {
    let list = |name: &str| schema.get(name).and_then(Value::as_array);
    let titled = |name: &str| {
        let members = list(name)?;
        let values: Vec<&Value> = members.iter().filter_map(|one| one.get("const")).collect();
        (values.len() == members.len()).then_some(values)
    };
    let choices = [
        schema.get("const").map(|wanted| vec![wanted]),
        list("enum").map(|allowed| allowed.iter().collect()),
        titled("oneOf"),
        titled("anyOf"),
    ];
    let mut choices = choices.into_iter().flatten();
    let wanted = choices
        .find(|allowed| !allowed.is_empty() && !allowed.iter().any(|one| are_equal(one, value)))?;
    Some(choice_fault(wanted.into_iter()))
}

/// Returns whether two values are the same to JSON Schema, to which 1 and 1.0 are one number.
fn are_equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            one == other || one.as_f64() == other.as_f64()
        }
        _ => one == other,
    }
}

fn is_of_type(kind: &Value, value: &Value) -> bool {
    match kind.as_str() {
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("number") => value.is_number(),
        Some("integer") => {
            value.is_i64()
                || value.is_u64()
                || value.as_f64().is_some_and(|number| number.fract() == 0.0)
        }
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        Some("null") => value.is_null(),
        // Types of later revisions.
        _ => true,
    }
}

fn text_fault(schema: &Value, text: &str) -> Option<String> {
    let limit = |name: &str| schema.get(name).and_then(Value::as_u64);
    let chars = text.chars().count() as u64;
    if let Some(min) = limit("minLength").filter(|min| chars < *min) {
        return Some(format!("must have at least {min} characters"));
    }
    if let Some(max) = limit("maxLength").filter(|max| chars > *max) {
        return Some(format!("must have at most {max} characters"));
    }
    let (fits, name) = match schema.get("format").and_then(Value::as_str)? {
        "email" => (is_email(text), "an e-mail address"),
        "uri" => (is_uri(text), "a URI with its scheme"),
        "date" => (is_date(text), "a date such as 2026-11-25"),
        "date-time" => (is_date_time(text), "a time such as 2026-11-25T15:00:00Z"),
        _ => return None,
    };
    (!fits).then(|| format!("must be {name}"))
}

fn number_fault(schema: &Value, number: f64) -> Option<String> {
    let limit = |name: &str| schema.get(name).and_then(Value::as_f64);
    if let Some(min) = limit("minimum").filter(|min| number < *min) {
        return Some(format!("must be at least {min}"));
    }
    limit("maximum")
        .filter(|max| number > *max)
        .map(|max| format!("must be at most {max}"))
}

fn list_fault(schema: &Value, items: &[Value]) -> Option<String> {
    let limit = |name: &str| schema.get(name).and_then(Value::as_u64);
    if let Some(min) = limit("minItems").filter(|min| (items.len() as u64) < *min) {
        return Some(format!("must have at least {min} values"));
    }
    if let Some(max) = limit("maxItems").filter(|max| items.len() as u64 > *max) {
        return Some(format!("must have at most {max} values"));
    }
    let of = schema.get("items")?;
    let fault = items.iter().find_map(|item| field_fault(of, item))?;
    Some(format!("has a value that {fault}"))
}

fn choice_fault<'a>(allowed: impl Iterator<Item = &'a Value>) -> String {
    let mut names: Vec<_> = allowed
        .map(|value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        })
        .collect();
    let more = names.len().saturating_sub(LISTED_VALUES_MAX);
    names.truncate(LISTED_VALUES_MAX);
    let names = names.join(", ");
    match more {
        0 => format!("must be one of: {names}"),
        more => format!("must be one of: {names} or {more} others"),
    }
}

fn strings(list: Option<&Value>) -> impl Iterator<Item = &str> {
    let list = list.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_str)
}

fn is_email(text: &str) -> bool {
    !text.contains(char::is_whitespace)
        && text
            .rsplit_once('@')
            .is_some_and(|(name, host)| !name.is_empty() && !host.is_empty())
}

/// Returns whether the text is a scheme of RFC 3986, section 3.1, such as `https:`, with more text
/// after it and without white space.
fn is_uri(text: &str) -> bool {
    let is_scheme = |scheme: &str| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    };
    !text.contains(char::is_whitespace)
        && text
            .split_once(':')
            .is_some_and(|(scheme, rest)| is_scheme(scheme) && !rest.is_empty())
}

fn is_date(text: &str) -> bool {
    let numbers: Option<Vec<u32>> = text
        .split('-')
        .map(|number| number.parse().ok().filter(|_| !number.starts_with('+')))
        .collect();
    let lengths: Vec<_> = text.split('-').map(str::len).collect();
    let (Some([year, month, day]), [4, 2, 2]) = (numbers.as_deref(), &*lengths) else {
        return false;
    };
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days_max = match month {
        2 => 28 + u32::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => 0,
    };
    (1..=days_max).contains(day)
}

/// Returns whether the text is a time of RFC 3339, of any year. [`parse_rfc3339`] accepts years
/// from 1970 only.
fn is_date_time(text: &str) -> bool {
    text.split_at_checked(10).is_some_and(|(date, time)| {
        is_date(date) && parse_rfc3339(&format!("2000-01-01{time}")).is_some()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Elicitation, ElicitationAnswer, RawObject};

    /// Returns the faults of the value of a form's only, required field.
    fn faults(field: &Value, value: Value) -> Vec<String> {
        let schema = json!({ "type": "object", "properties": { "x": field }, "required": ["x"] });
        Elicitation::form("?", schema).check(&json!({ "x": value }))
    }

    /// Goal: every keyword of the subset is checked, at its limit and beyond. Method: rows of a
    /// field, values that fit, and values that don't with the fault.
    #[test]
    fn values_are_checked_against_their_fields() {
        let string = |more: Value| {
            let mut schema = json!({ "type": "string" });
            let members = schema.as_object_mut().unwrap();
            members.extend(more.as_object().unwrap().clone());
            schema
        };
        let titled = json!([{ "const": "a", "title": "Anna" }, { "const": "b", "title": "Ben" }]);
        let one_of = "`x` must be one of: a, b";
        let rows = [
            (
                string(json!({})),
                json!(["", "a"]),
                json!([1, true, {}, []]),
                "`x` must be of type string",
            ),
            (
                string(json!({ "minLength": 2 })),
                json!(["ää"]),
                json!(["ä"]),
                "`x` must have at least 2 characters",
            ),
            (
                string(json!({ "maxLength": 2 })),
                json!(["ää"]),
                json!(["äää"]),
                "`x` must have at most 2 characters",
            ),
            (
                string(json!({ "enum": ["a", "b"] })),
                json!(["a"]),
                json!(["A", "c", ""]),
                one_of,
            ),
            (
                string(json!({ "oneOf": titled })),
                json!(["b"]),
                json!(["Ben"]),
                one_of,
            ),
            (
                json!({ "anyOf": titled }),
                json!(["b"]),
                json!(["Ben", 1]),
                one_of,
            ),
            (
                string(json!({ "format": "email" })),
                json!(["a@b"]),
                json!(["a", "@b", "a b@c"]),
                "`x` must be an e-mail address",
            ),
            (
                string(json!({ "format": "uri" })),
                json!(["urn:a", "http://a/"]),
                json!(["a", "a b:c", "1:a"]),
                "`x` must be a URI with its scheme",
            ),
            (
                string(json!({ "format": "date" })),
                json!(["2024-02-29", "1931-12-31"]),
                json!(["2023-02-29", "2024-2-1", "+024-02-01", "today"]),
                "`x` must be a date such as 2026-11-25",
            ),
            (
                string(json!({ "format": "date-time" })),
                json!(["1931-12-31T01:02:03Z", "2024-02-29T01:02:03.5+01:00"]),
                json!(["2024-02-29", "now"]),
                "`x` must be a time such as 2026-11-25T15:00:00Z",
            ),
            (
                string(json!({ "format": "unknown" })),
                json!(["a"]),
                json!([]),
                "",
            ),
            (
                json!({ "type": "integer" }),
                json!([1, -1, 1.0]),
                json!([1.5, "1"]),
                "`x` must be of type integer",
            ),
            (
                json!({ "type": "number" }),
                json!([1, 1.5]),
                json!(["1", true]),
                "`x` must be of type number",
            ),
            (
                json!({ "type": "integer", "minimum": 1 }),
                json!([1]),
                json!([0]),
                "`x` must be at least 1",
            ),
            (
                json!({ "type": "number", "maximum": 1.5 }),
                json!([1.5]),
                json!([1.6]),
                "`x` must be at most 1.5",
            ),
            (
                json!({ "type": "boolean" }),
                json!([true]),
                json!(["true", 1]),
                "`x` must be of type boolean",
            ),
            (
                json!({ "type": "array", "minItems": 1 }),
                json!([["a"]]),
                json!([[]]),
                "`x` must have at least 1 values",
            ),
            (
                json!({ "type": "array", "maxItems": 1 }),
                json!([["a"]]),
                json!([["a", "b"]]),
                "`x` must have at most 1 values",
            ),
            (
                json!({ "type": "array", "items": { "type": "string", "enum": ["a", "b"] } }),
                json!([[], ["a", "b"]]),
                json!([["a", "c"]]),
                "`x` has a value that must be one of: a, b",
            ),
            (
                json!({ "type": "array", "items": { "anyOf": titled } }),
                json!([["b"]]),
                json!([["Ben"]]),
                "`x` has a value that must be one of: a, b",
            ),
            (
                json!({ "type": ["string", "null"] }),
                json!(["a", null]),
                json!([1]),
                "`x` must be of type string or null",
            ),
            (
                json!({ "anyOf": [{ "type": "integer" }, { "const": "b" }] }),
                json!([1, "a"]),
                json!([]),
                "",
            ),
            (
                json!({ "oneOf": [{ "type": "string" }, { "type": "null" }] }),
                json!(["a", null]),
                json!([]),
                "",
            ),
            (
                json!({ "type": "string", "enum": [], "oneOf": [], "anyOf": [] }),
                json!(["a"]),
                json!([1]),
                "`x` must be of type string",
            ),
            (
                json!({ "enum": [1, 2.0] }),
                json!([1, 1.0, 2]),
                json!([1.5, "1"]),
                "`x` must be one of: 1, 2.0",
            ),
            (
                json!({ "const": 1.0 }),
                json!([1]),
                json!([2]),
                "`x` must be one of: 1.0",
            ),
            (json!({}), json!([1, "a"]), json!([]), ""),
        ];
        for (field, fit, unfit, fault) in rows {
            for value in fit.as_array().unwrap() {
                assert_eq!(faults(&field, value.clone()), [""; 0], "{field} {value}");
            }
            for value in unfit.as_array().unwrap() {
                assert_eq!(faults(&field, value.clone()), [fault], "{field} {value}");
            }
        }
    }

    /// Goal: a required field must be there and not null, an optional one may be left out or null,
    /// and members without a schema are not checked. Method: a form with both.
    #[test]
    fn required_fields_must_have_a_value() {
        let text = json!({ "type": "string" });
        let form = Elicitation::form(
            "?",
            json!({ "type": "object", "properties": { "a": text, "b": text }, "required": ["a"] }),
        );
        let rows = [
            (json!({ "a": "x" }), vec![]),
            (json!({ "a": "x", "c": 1 }), vec![]),
            (json!({}), vec!["`a` is required"]),
            (json!({ "a": null }), vec!["`a` is required"]),
            (json!({ "a": "x", "b": null }), vec![]),
            (
                json!({ "a": "x", "b": 1 }),
                vec!["`b` must be of type string"],
            ),
            (json!([]), vec!["the values of a form must be an object"]),
        ];
        for (content, wanted) in rows {
            assert_eq!(form.check(&content), wanted, "{content}");
        }
    }

    /// Goal: an optional field left blank, as null or as an empty text, isn't checked; a required one
    /// is. Method: restricted fields, both blanks, optional and required.
    #[test]
    fn optional_fields_may_be_left_blank() {
        let fields = [
            json!({ "type": "string", "format": "email" }),
            json!({ "type": "string", "enum": ["a", "b"] }),
            json!({ "type": "string", "minLength": 1 }),
            json!({ "type": "string", "oneOf": [{ "const": "a", "title": "Anna" }] }),
        ];
        for field in fields {
            let form = Elicitation::form("?", json!({ "properties": { "x": field } }));
            for blank in [json!(null), json!("")] {
                let blank = json!({ "x": blank });
                assert_eq!(form.check(&blank), [""; 0], "{field} {blank}");
                let required = faults(&field, blank["x"].clone());
                assert_eq!(required.len(), 1, "{field} {blank}");
            }
        }
        let number = json!({ "properties": { "x": { "type": "integer" } } });
        let number = Elicitation::form("?", number);
        assert_eq!(number.check(&json!({ "x": null })), [""; 0]);
        let fault = ["`x` must be of type integer"];
        assert_eq!(number.check(&json!({ "x": "" })), fault);
    }

    /// Goal: an answer has a known action; its values are checked only if it accepts a form. Method:
    /// answers to a form with a required field, to one without, and to a visit.
    #[test]
    fn answers_have_a_known_action() {
        let field = json!({ "x": { "type": "string" } });
        let needs = Elicitation::form("?", json!({ "properties": field, "required": ["x"] }));
        let optional = Elicitation::form("?", json!({ "properties": field }));
        let visit = Elicitation::url("?", "https://id.example", "v1");
        let answer =
            |json: Value| ElicitationAnswer(serde_json::from_value::<RawObject>(json).unwrap());
        let action = "`action` must be one of: accept, decline, cancel";
        let rows = [
            (
                &needs,
                json!({ "action": "accept", "content": { "x": "a" } }),
                None,
            ),
            (
                &needs,
                json!({ "action": "accept" }),
                Some("`x` is required"),
            ),
            (
                &needs,
                json!({ "action": "accept", "content": null }),
                Some("`x` is required"),
            ),
            (
                &needs,
                json!({ "action": "accept", "content": { "x": 1 } }),
                Some("`x` must be of type string"),
            ),
            (&needs, json!({ "action": "decline" }), None),
            (&needs, json!({ "action": "cancel", "content": {} }), None),
            (&needs, json!({ "action": "submit" }), Some(action)),
            (&needs, json!({ "action": 1 }), Some(action)),
            (&needs, json!({}), Some(action)),
            (&optional, json!({ "action": "accept" }), None),
            (&visit, json!({ "action": "accept" }), None),
            (&visit, json!({ "action": "yes" }), Some(action)),
        ];
        for (form, given, wanted) in rows {
            let faults = form.check_answer(&answer(given.clone()));
            assert_eq!(faults.first().map(String::as_str), wanted, "{given}");
        }
    }

    /// Goal: reports are bounded. Method: one fault and one allowed value above the limits.
    #[test]
    fn reports_are_bounded() {
        let names: Vec<_> = (0..=FAULTS_MAX).map(|n| n.to_string()).collect();
        let form = Elicitation::form("?", json!({ "required": names }));
        assert_eq!(form.check(&json!({})).len(), FAULTS_MAX);
        let most = &names[..LISTED_VALUES_MAX];
        assert!(!faults(&json!({ "enum": most }), json!("x"))[0].contains("others"));
        assert!(faults(&json!({ "enum": names }), json!("x"))[0].ends_with("15 or 1 others"));
    }
}
