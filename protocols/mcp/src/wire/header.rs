//! What streamable HTTP repeats in headers (2026-07-28): `MCP-Protocol-Version`, `Mcp-Method`, `Mcp-Name`, `Mcp-Param-*`.

use std::borrow::Cow;
use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::HeaderName;
use serde_json::Value;

/// The revision.
pub const PROTOCOL_VERSION: &str = "mcp-protocol-version";
/// The request's method.
pub const METHOD: &str = "mcp-method";
/// What the request is about: a tool's, a prompt's name, a resource's URI.
pub const NAME: &str = "mcp-name";
/// How the headers begin that repeat arguments.
pub const PARAM_PREFIX: &str = "mcp-param-";
/// The keyword of a JSON Schema that asks for such a header.
pub const ANNOTATION: &str = "x-mcp-header";

const ENCODED_PREFIX: &str = "=?base64?";
const ENCODED_SUFFIX: &str = "?=";

/// An argument that a header repeats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderParam {
    /// The header.
    pub header: HeaderName,
    /// Where the value stands in the arguments: the names of members, from the outside in.
    pub path: Vec<String>,
    /// What it is.
    pub kind: ParamKind,
}

/// What a header may repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParamKind {
    /// As it is.
    String,
    /// In decimal digits.
    Integer,
    /// `true` or `false`.
    Boolean,
}

/// Why a tool can't be used over streamable HTTP: its author mends the schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderParamError {
    /// Write 1*tchar (RFC 9110, section 5.6.2).
    #[error("`x-mcp-header` is no name of a header")]
    Name,
    /// Give each its own.
    #[error("`x-mcp-header` names {0:?} twice")]
    Twice(String),
    /// Annotate strings, integers and booleans only.
    #[error("`x-mcp-header` {0:?} stands at a value that is neither string, integer nor boolean")]
    Type(String),
    /// Annotate what `properties` alone lead to.
    #[error("`x-mcp-header` stands where `properties` alone don't lead")]
    Place,
}

/// The arguments that headers repeat, from a tool's input schema.
///
/// # Errors
/// Where an annotation breaks the specification's rules (basic/transports/streamable-http, Schema Extension): the tool
/// is not to be used over HTTP.
pub fn params_of(schema: &Value) -> Result<Vec<HeaderParam>, HeaderParamError> {
    let (mut found, mut names) = (Vec::new(), HashSet::new());
    object(schema, &mut Vec::new(), &mut found)?;
    for param in &found {
        if !names.insert(&param.header) {
            return Err(HeaderParamError::Twice(param.header.to_string()));
        }
    }
    Ok(found)
}

/// A schema that `properties` alone lead to.
fn object(
    schema: &Value,
    path: &mut Vec<String>,
    found: &mut Vec<HeaderParam>,
) -> Result<(), HeaderParamError> {
    let Value::Object(members) = schema else {
        return Ok(());
    };
    for (keyword, value) in members {
        match (keyword.as_str(), value) {
            (ANNOTATION, _) if path.is_empty() => return Err(HeaderParamError::Place),
            (ANNOTATION, value) => found.push(annotated(value, members.get("type"), path)?),
            ("properties", Value::Object(properties)) => {
                for (name, property) in properties {
                    path.push(name.clone());
                    object(property, path, found)?;
                    path.pop();
                }
            }
            (keyword, value) => elsewhere(keyword, value)?,
        }
    }
    Ok(())
}

fn annotated(
    value: &Value,
    kind: Option<&Value>,
    path: &[String],
) -> Result<HeaderParam, HeaderParamError> {
    let name = value
        .as_str()
        .filter(|name| !name.is_empty())
        .ok_or(HeaderParamError::Name)?;
    let header = format!("{PARAM_PREFIX}{name}")
        .parse()
        .map_err(|_| HeaderParamError::Name)?;
    let kind = match kind.and_then(Value::as_str) {
        Some("string") => ParamKind::String,
        Some("integer") => ParamKind::Integer,
        Some("boolean") => ParamKind::Boolean,
        _ => return Err(HeaderParamError::Type(name.to_owned())),
    };
    Ok(HeaderParam {
        header,
        path: path.to_vec(),
        kind,
    })
}

/// A keyword under which no annotation may stand.
fn elsewhere(keyword: &str, value: &Value) -> Result<(), HeaderParamError> {
    const SCHEMAS_BY_NAME: [&str; 5] = [
        "properties",
        "patternProperties",
        "$defs",
        "definitions",
        "dependentSchemas",
    ];
    const DATA: [&str; 5] = ["default", "const", "enum", "examples", "required"];
    match value {
        _ if DATA.contains(&keyword) => Ok(()),
        Value::Object(schemas) if SCHEMAS_BY_NAME.contains(&keyword) => {
            schemas.values().try_for_each(nowhere)
        }
        value => nowhere(value),
    }
}

fn nowhere(schema: &Value) -> Result<(), HeaderParamError> {
    match schema {
        Value::Object(members) if members.contains_key(ANNOTATION) => Err(HeaderParamError::Place),
        Value::Object(members) => members
            .iter()
            .try_for_each(|(keyword, value)| elsewhere(keyword, value)),
        Value::Array(schemas) => schemas.iter().try_for_each(nowhere),
        _ => Ok(()),
    }
}

/// A header's value as it was before it was encoded; `None` where it can't have been written by [`encode`] or by hand.
pub fn decode(value: &[u8]) -> Option<Cow<'_, str>> {
    let visible = |b: &u8| matches!(b, b'\t' | 0x20..=0x7e);
    let text = std::str::from_utf8(value)
        .ok()
        .filter(|text| text.as_bytes().iter().all(visible))?;
    let text = text.trim_matches([' ', '\t']);
    match text
        .strip_prefix(ENCODED_PREFIX)
        .and_then(|rest| rest.strip_suffix(ENCODED_SUFFIX))
    {
        Some(encoded) => String::from_utf8(STANDARD.decode(encoded).ok()?)
            .ok()
            .map(Cow::Owned),
        None => Some(Cow::Borrowed(text)),
    }
}

/// A value, fit for a header: as it is, or in Base64 between `=?base64?` and `?=`.
pub fn encode(value: &str) -> Cow<'_, str> {
    let plain = value.bytes().all(|b| matches!(b, b' '..=b'~'))
        && value.trim_matches(' ') == value
        && !(value.starts_with(ENCODED_PREFIX) && value.ends_with(ENCODED_SUFFIX));
    match plain {
        true => Cow::Borrowed(value),
        false => Cow::Owned(format!(
            "{ENCODED_PREFIX}{}{ENCODED_SUFFIX}",
            STANDARD.encode(value)
        )),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// Goal: annotations are found where `properties` lead. Method: a nested schema; a property of the keyword's name.
    #[test]
    fn annotations_are_found() {
        let schema = json!({ "type": "object", "properties": {
            "region": { "type": "string", "x-mcp-header": "Region" },
            "x-mcp-header": { "type": "string", "default": { "x-mcp-header": "data" } },
            "where": { "type": "object", "properties": { "ward": { "type": "integer", "x-mcp-header": "Ward" } } },
        }});
        let mut found = params_of(&schema).unwrap();
        found.sort_by(|a, b| a.header.as_str().cmp(b.header.as_str()));
        let path = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            found,
            [
                HeaderParam {
                    header: HeaderName::from_static("mcp-param-region"),
                    path: path(&["region"]),
                    kind: ParamKind::String
                },
                HeaderParam {
                    header: HeaderName::from_static("mcp-param-ward"),
                    path: path(&["where", "ward"]),
                    kind: ParamKind::Integer
                },
            ]
        );
    }

    /// Goal: what breaks a rule is refused. Method: a row a rule.
    #[test]
    fn annotations_that_break_a_rule_are_refused() {
        let property = |p: Value| json!({ "type": "object", "properties": { "a": p } });
        for (schema, why) in [
            (
                property(json!({ "type": "string", "x-mcp-header": "" })),
                HeaderParamError::Name,
            ),
            (
                property(json!({ "type": "string", "x-mcp-header": "a b" })),
                HeaderParamError::Name,
            ),
            (
                property(json!({ "type": "string", "x-mcp-header": "a\r\nb" })),
                HeaderParamError::Name,
            ),
            (
                property(json!({ "type": "string", "x-mcp-header": 1 })),
                HeaderParamError::Name,
            ),
            (
                property(json!({ "type": "string", "x-mcp-header": "Région" })),
                HeaderParamError::Name,
            ),
            (
                property(json!({ "type": "object", "x-mcp-header": "A" })),
                HeaderParamError::Type("A".into()),
            ),
            (
                property(json!({ "anyOf": [{ "type": "string", "x-mcp-header": "A" }] })),
                HeaderParamError::Place,
            ),
            (
                property(json!({ "type": "number", "x-mcp-header": "A" })),
                HeaderParamError::Type("A".into()),
            ),
            (
                property(json!({ "type": ["string", "null"], "x-mcp-header": "A" })),
                HeaderParamError::Type("A".into()),
            ),
            (
                property(json!({ "x-mcp-header": "A" })),
                HeaderParamError::Type("A".into()),
            ),
            (
                json!({ "type": "object", "x-mcp-header": "A" }),
                HeaderParamError::Place,
            ),
            (
                property(
                    json!({ "type": "array", "items": { "type": "string", "x-mcp-header": "A" } }),
                ),
                HeaderParamError::Place,
            ),
            (
                json!({ "oneOf": [{ "properties": { "a": { "type": "string", "x-mcp-header": "A" } } }] }),
                HeaderParamError::Place,
            ),
            (
                json!({ "$defs": { "d": { "type": "string", "x-mcp-header": "A" } } }),
                HeaderParamError::Place,
            ),
            (
                json!({ "properties": {
                    "a": { "type": "string", "x-mcp-header": "A" }, "b": { "type": "string", "x-mcp-header": "a" } } }),
                HeaderParamError::Twice("mcp-param-a".into()),
            ),
        ] {
            assert_eq!(params_of(&schema).unwrap_err(), why, "{schema}");
        }
    }

    /// Goal: the specification's examples of values. Method: rows, both ways.
    #[test]
    fn values_are_encoded_as_the_specification_says() {
        for (value, header) in [
            ("us-west1", "us-west1"),
            ("us west 1", "us west 1"),
            ("", ""),
            ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
            (" padded ", "=?base64?IHBhZGRlZCA=?="),
            ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
            ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
            ("=?base64?SGVsbG8=", "=?base64?SGVsbG8="),
        ] {
            assert_eq!(encode(value), header);
            assert_eq!(decode(header.as_bytes()).unwrap(), value);
        }
        for wrong in [
            "=?base64?SGVsbG8?=",
            "=?base64?SGVs!!!bG8=?=",
            "=?base64?/w==?=",
            "caf\u{e9}",
            "a\u{1}b",
        ] {
            assert_eq!(decode(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(decode(b"  spaced\t").unwrap(), "spaced");
    }

    proptest! {
        /// Goal: any value survives, as bytes that a header may have. Method: random strings.
        #[test]
        fn any_value_survives(value in ".*") {
            let header = encode(&value);
            prop_assert!(header.bytes().all(|b| matches!(b, 0x20..=0x7e | b'\t')));
            let read = decode(header.as_bytes()).unwrap().into_owned();
            drop(header);
            prop_assert_eq!(read, value);
        }
    }
}
