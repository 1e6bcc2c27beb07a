//! What a modern request says of its body in HTTP headers (2026-07-28, streamable HTTP, request metadata).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use callboard_message::RawObject;
use reqwest::header::{HeaderName, HeaderValue};
use serde_json::Value;

/// The annotation in a tool's schema that sends an argument into a header.
pub(super) const ANNOTATION: &str = "x-mcp-header";
/// How the names of those headers begin.
const PREFIX: &str = "mcp-param-";
/// How a value begins and ends that no header could hold as it is.
const ENCODED: (&str, &str) = ("=?base64?", "?=");
/// The largest integer that every reader of JSON keeps exactly, in either direction.
const INTEGER_MAX: i64 = (1 << 53) - 1;
/// Members of a schema whose values are data: what looks like an annotation in them is none.
const DATA: [&str; 4] = ["const", "default", "enum", "examples"];
/// Members of a schema whose own members are names.
const NAMES: [&str; 5] = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];

/// An argument that goes into a header, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mirror {
    /// From the arguments down.
    path: Vec<String>,
    header: HeaderName,
}

/// Why a tool's annotations are invalid: such a tool mustn't be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Flaw {
    #[error("an x-mcp-header that is no header's name")]
    Name,
    #[error("an x-mcp-header twice")]
    Twice,
    #[error("an x-mcp-header on what is neither string nor integer nor boolean")]
    Kind,
    #[error("an x-mcp-header where no argument is sure to be")]
    Place,
}

/// The arguments that the schema sends into headers.
pub(super) fn mirrors(schema: &Value) -> Result<Vec<Mirror>, Flaw> {
    let mut found = Vec::new();
    collect(schema, &mut Vec::new(), &mut found)?;
    match annotations(schema) == found.len() {
        true => Ok(found),
        false => Err(Flaw::Place),
    }
}

fn collect(schema: &Value, path: &mut Vec<String>, found: &mut Vec<Mirror>) -> Result<(), Flaw> {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return Ok(()) };
    for (name, property) in properties {
        path.push(name.clone());
        if let Some(annotation) = property.get(ANNOTATION) {
            let annotation = annotation.as_str().filter(|a| !a.is_empty()).ok_or(Flaw::Name)?;
            if !matches!(property["type"].as_str(), Some("string" | "integer" | "boolean")) {
                return Err(Flaw::Kind);
            }
            let header: HeaderName = format!("{PREFIX}{annotation}").parse().map_err(|_| Flaw::Name)?;
            if found.iter().any(|mirror| mirror.header == header) {
                return Err(Flaw::Twice);
            }
            found.push(Mirror { path: path.clone(), header });
        }
        collect(property, path, found)?;
        path.pop();
    }
    Ok(())
}

/// How many annotations there are, wherever they stand.
fn annotations(schema: &Value) -> usize {
    match schema {
        Value::Array(items) => items.iter().map(annotations).sum(),
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| match name.as_str() {
                ANNOTATION => 1,
                name if DATA.contains(&name) => 0,
                name if NAMES.contains(&name) => value.as_object().map_or(0, |m| m.values().map(annotations).sum()),
                _ => annotations(value),
            })
            .sum(),
        _ => 0,
    }
}

/// The headers for a call with `arguments`. An argument that is missing, `null` or no such value has none.
pub(super) fn headers(mirrors: &[Mirror], arguments: &RawObject) -> Vec<(HeaderName, HeaderValue)> {
    let value = |mirror: &Mirror| {
        let (last, before) = mirror.path.split_last()?;
        let mut at = arguments.clone();
        for step in before {
            at = at.object(step)?;
        }
        Some((mirror.header.clone(), encode(&plain(&at.read(last)?)?)?))
    };
    mirrors.iter().filter_map(value).collect()
}

/// A value as text.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(yes) => Some(yes.to_string()),
        Value::Number(number) => {
            let whole = |f: f64| (f.fract() == 0.0 && f.abs() <= INTEGER_MAX as f64).then_some(f as i64);
            let integer = number.as_i64().or_else(|| number.as_f64().and_then(whole))?;
            (-INTEGER_MAX..=INTEGER_MAX).contains(&integer).then(|| integer.to_string())
        }
        _ => None,
    }
}

/// Text as a header's value: as it is, or in base64 where no header could hold it so, or where it looks encoded.
pub(super) fn encode(text: &str) -> Option<HeaderValue> {
    let fits = text.bytes().all(|b| matches!(b, b' '..=b'~')) && text.trim_matches(' ') == text;
    let looks_encoded = text.starts_with(ENCODED.0) && text.ends_with(ENCODED.1);
    match fits && !looks_encoded {
        true => HeaderValue::from_str(text).ok(),
        false => HeaderValue::from_str(&format!("{}{}{}", ENCODED.0, STANDARD.encode(text), ENCODED.1)).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Goal: a value reaches the server whole whatever is in it. Method: the specification's table, and the edges of it.
    #[test]
    fn values_are_encoded_as_specified() {
        for (text, header) in [
            ("us-west1", "us-west1"),
            ("us west 1", "us west 1"),
            ("", ""),
            ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
            (" padded ", "=?base64?IHBhZGRlZCA=?="),
            ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
            ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ] {
            assert_eq!(encode(text).unwrap(), header, "{text:?}");
        }
    }

    fn of(property: Value) -> Result<Vec<Mirror>, Flaw> {
        mirrors(&json!({ "type": "object", "properties": { "a": property } }))
    }

    /// Goal: only annotations that the specification allows are used. Method: one of each other kind.
    #[test]
    fn flawed_annotations_are_found() {
        for (property, flaw) in [
            (json!({ "type": "string", ANNOTATION: "" }), Flaw::Name),
            (json!({ "type": "string", ANNOTATION: 1 }), Flaw::Name),
            (json!({ "type": "string", ANNOTATION: "My Region" }), Flaw::Name),
            (json!({ "type": "string", ANNOTATION: "Région" }), Flaw::Name),
            (json!({ "type": "string", ANNOTATION: "a\r\nb" }), Flaw::Name),
            (json!({ "type": "number", ANNOTATION: "A" }), Flaw::Kind),
            (json!({ "type": "object", ANNOTATION: "A" }), Flaw::Kind),
            (json!({ "type": "array", "items": { "type": "string", ANNOTATION: "A" } }), Flaw::Place),
            (json!({ "anyOf": [{ "type": "string", ANNOTATION: "A" }] }), Flaw::Place),
        ] {
            assert_eq!(of(property.clone()), Err(flaw), "{property}");
        }
        let twice = json!({ "properties": {
            "a": { "type": "string", ANNOTATION: "MyField" },
            "b": { "type": "object", "properties": { "c": { "type": "string", ANNOTATION: "myfield" } } },
        }});
        assert_eq!(mirrors(&twice), Err(Flaw::Twice));
    }

    /// Goal: what only looks like an annotation is none. Method: one in a default, one as an argument's name.
    #[test]
    fn data_is_no_annotation() {
        assert_eq!(of(json!({ "type": "object", "default": { ANNOTATION: "A" } })), Ok(vec![]));
        assert_eq!(mirrors(&json!({ "properties": { ANNOTATION: { "type": "string" } } })), Ok(vec![]));
    }

    /// Goal: each annotated argument has its header, and no other. Method: nested, missing, null, and too large ones.
    #[test]
    fn arguments_become_headers() {
        let schema = json!({ "properties": {
            "region": { "type": "string", ANNOTATION: "Region" },
            "size": { "type": "integer", ANNOTATION: "Size" },
            "deep": { "type": "object", "properties": { "yes": { "type": "boolean", ANNOTATION: "Yes" } } },
            "null": { "type": "string", ANNOTATION: "Null" },
            "missing": { "type": "string", ANNOTATION: "Missing" },
            "large": { "type": "integer", ANNOTATION: "Large" },
            "plain": { "type": "string" },
        }});
        let arguments =
            r#"{"region":"eu","size":42.0,"deep":{"yes":false},"null":null,"large":9007199254740992,"plain":"p"}"#;
        let headers = headers(&mirrors(&schema).unwrap(), &serde_json::from_str(arguments).unwrap());
        let mut seen: Vec<_> = headers.iter().map(|(n, v)| (n.as_str(), v.to_str().unwrap())).collect();
        seen.sort_unstable();
        assert_eq!(seen, [("mcp-param-region", "eu"), ("mcp-param-size", "42"), ("mcp-param-yes", "false")]);
    }
}
