//! HTTP headers that repeat parts of the body (2026-07-28): `MCP-Protocol-Version`, `Mcp-Method`,
//! `Mcp-Name`, `Mcp-Param-*`.

use std::borrow::Cow;
use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::HeaderName;
use serde_json::Value;

/// HTTP header with the protocol revision of the request.
pub const PROTOCOL_VERSION: &str = "mcp-protocol-version";
/// HTTP header with the JSON-RPC method of the request.
pub const METHOD: &str = "mcp-method";
/// HTTP header with the name of the request's tool or prompt, or the URI of its resource.
pub const NAME: &str = "mcp-name";
/// Prefix of the HTTP headers that repeat tool arguments.
pub const PARAM_PREFIX: &str = "mcp-param-";
/// JSON Schema keyword that marks a tool argument to be repeated in an HTTP header. Its value is
/// the header's name without [`PARAM_PREFIX`].
pub const ANNOTATION: &str = "x-mcp-header";

const ENCODED_PREFIX: &str = "=?base64?";
const ENCODED_SUFFIX: &str = "?=";

/// A tool argument that clients repeat in an HTTP header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderParam {
    /// Name of the HTTP header, with [`PARAM_PREFIX`].
    pub header: HeaderName,
    /// Path of the argument within `arguments`: member names, outermost first.
    pub path: Vec<String>,
    /// Type of the argument.
    pub kind: HeaderParamKind,
}

/// Types of arguments that can be repeated in a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderParamKind {
    /// Sent unchanged, or in Base64 if the header can't hold it.
    String,
    /// Sent as decimal digits.
    Integer,
    /// Sent as `true` or `false`.
    Boolean,
}

/// Errors in the `x-mcp-header` annotations of a tool's input schema. The tool can't be used over
/// streamable HTTP until its schema is corrected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderParamError {
    /// The annotation's value isn't a valid header name. Use only characters that RFC 9110, section
    /// 5.6.2 allows in a token.
    #[error("`x-mcp-header` isn't a valid header name")]
    Name,
    /// Two arguments name the same header. Give each its own.
    #[error("`x-mcp-header` {0:?} is used twice")]
    Twice(String),
    /// The type of the annotated argument is unsupported. Annotate strings, integers and booleans
    /// only.
    #[error("`x-mcp-header` {0:?} is on a value that is neither string, integer nor boolean")]
    Type(String),
    /// The annotation is in a place other than nested `properties`, such as the root or an array's
    /// items.
    #[error("`x-mcp-header` is outside nested `properties`")]
    Place,
}

/// Returns the arguments that clients repeat in headers, from a tool's input schema.
///
/// # Errors
/// An annotation that breaks the specification's rules (basic/transports/streamable-http, Schema
/// Extension). The tool must not be used over HTTP then.
pub fn parse_header_params(schema: &Value) -> Result<Vec<HeaderParam>, HeaderParamError> {
    let (mut found, mut names) = (Vec::new(), HashSet::new());
    collect_params(schema, &mut Vec::new(), &mut found)?;
    for param in &found {
        if !names.insert(&param.header) {
            return Err(HeaderParamError::Twice(param.header.to_string()));
        }
    }
    Ok(found)
}

/// Collects the annotated arguments of `schema` and its nested `properties` into `found`. `path`
/// leads from the root to `schema`.
fn collect_params(
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
            (ANNOTATION, value) => found.push(parse_annotation(value, members.get("type"), path)?),
            ("properties", Value::Object(properties)) => {
                for (name, property) in properties {
                    path.push(name.clone());
                    collect_params(property, path, found)?;
                    path.pop();
                }
            }
            (keyword, value) => check_other_keyword(keyword, value)?,
        }
    }
    Ok(())
}

fn parse_annotation(
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
        Some("string") => HeaderParamKind::String,
        Some("integer") => HeaderParamKind::Integer,
        Some("boolean") => HeaderParamKind::Boolean,
        _ => return Err(HeaderParamError::Type(name.to_owned())),
    };
    Ok(HeaderParam {
        header,
        path: path.to_vec(),
        kind,
    })
}

/// Fails if the value of a keyword other than `properties` contains an annotation. Keywords that
/// hold data, such as `default`, are skipped.
fn check_other_keyword(keyword: &str, value: &Value) -> Result<(), HeaderParamError> {
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
            schemas.values().try_for_each(check_no_annotation)
        }
        value => check_no_annotation(value),
    }
}

fn check_no_annotation(schema: &Value) -> Result<(), HeaderParamError> {
    match schema {
        Value::Object(members) if members.contains_key(ANNOTATION) => Err(HeaderParamError::Place),
        Value::Object(members) => members
            .iter()
            .try_for_each(|(keyword, value)| check_other_keyword(keyword, value)),
        Value::Array(schemas) => schemas.iter().try_for_each(check_no_annotation),
        _ => Ok(()),
    }
}

/// Decodes the value of a header, Base64-encoded by [`encode`] or plain. Returns `None` for invalid
/// characters, Base64 or UTF-8.
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

/// Encodes a value for a header: unchanged if possible, otherwise in Base64 between `=?base64?` and
/// `?=`.
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

    /// Goal: annotations are found below `properties`. Method: a nested schema; a property with the
    /// keyword's name.
    #[test]
    fn annotations_are_found() {
        let schema = json!({ "type": "object", "properties": {
            "region": { "type": "string", "x-mcp-header": "Region" },
            "x-mcp-header": { "type": "string", "default": { "x-mcp-header": "data" } },
            "where": { "type": "object", "properties": { "ward": { "type": "integer", "x-mcp-header": "Ward" } } },
        }});
        let mut found = parse_header_params(&schema).unwrap();
        found.sort_by(|a, b| a.header.as_str().cmp(b.header.as_str()));
        let path = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            found,
            [
                HeaderParam {
                    header: HeaderName::from_static("mcp-param-region"),
                    path: path(&["region"]),
                    kind: HeaderParamKind::String
                },
                HeaderParam {
                    header: HeaderName::from_static("mcp-param-ward"),
                    path: path(&["where", "ward"]),
                    kind: HeaderParamKind::Integer
                },
            ]
        );
    }

    /// Goal: annotations that break a rule are refused. Method: one row per rule.
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
            assert_eq!(parse_header_params(&schema).unwrap_err(), why, "{schema}");
        }
    }

    /// Goal: values are encoded as in the specification's examples. Method: rows, both ways.
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
        /// Goal: any value survives a round trip, as bytes that a header may have. Method: random
        /// strings.
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
