//! Cache of a server's tool list: header parameters, wrapped results and hints.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::wire::WRAPPED_SCHEMA;
use crate::wire::header::{self, HeaderParam, HeaderParamError, parse_header_params};
use callboard_message::RawObject;
use callboard_message::capabilities::PARTS_META_KEY;
use parking_lot::Mutex;
use reqwest::header::{HeaderName, HeaderValue};
use serde_json::Value;
use serde_json::value::RawValue;

use super::options::{CACHED_TOOLS_MAX, TOOL_CACHE_TTL_MAX};

/// Member of a tool's `_meta` that sets the time to live of its cached results, in seconds.
const CACHE_META: &str = "callboard/cache";

/// Cache of the tools that a server has listed, by name.
#[derive(Default)]
pub(crate) struct ToolCache(Mutex<ToolTable>);

#[derive(Default)]
struct ToolTable {
    tools: HashMap<String, Arc<CachedTool>>,
    /// True once the server's tool list has been read to its end since the cache was last cleared.
    is_complete: bool,
    /// Number of times that the cache has been cleared.
    version: u64,
}

/// Properties of a tool that determine how it is called.
#[derive(Default)]
pub(crate) struct CachedTool {
    /// True if the tool's structured content is an object whose member `result` holds the plain
    /// value.
    pub is_wrapped: bool,
    /// Arguments that are repeated in HTTP headers (modern era). `None` if the tool's
    /// `x-mcp-header` annotations are invalid.
    pub header_params: Option<Vec<HeaderParam>>,
    hints: ToolHints,
}

/// Hints of a tool about its behaviour (MCP, `ToolAnnotations`). They are unverified. They only
/// decide whether this server's own results are cached, and whether a call that couldn't be sent is
/// retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ToolHints {
    /// Calling it twice has the same effect as once.
    idempotent: bool,
    /// Time to live of the tool's cached results. `None`: not cached, as for every tool that isn't
    /// read-only.
    pub cache: Option<Duration>,
}

impl ToolHints {
    fn from_tool(tool: &RawObject) -> Self {
        let annotations = tool.object("annotations").unwrap_or_default();
        let is = |hint: &str| annotations.read(hint) == Some(true);
        let read_only = is("readOnlyHint");
        let meta = || {
            tool.get("_meta")
                .filter(|meta| read_only && meta.get().contains(CACHE_META))
        };
        let seconds: Option<u64> = meta().and_then(|_| tool.object("_meta")?.read(CACHE_META));
        let cache = seconds.map(|seconds| Duration::from_secs(seconds).min(TOOL_CACHE_TTL_MAX));
        Self {
            idempotent: is("idempotentHint"),
            cache,
        }
    }

    pub fn is_idempotent(self) -> bool {
        self.idempotent
    }
}

/// Returns a tool without its claim to read whole messages, which only agents of this system and
/// those of A2A do; `None` if it has none.
fn without_parts_claim(tool: &RawValue) -> Option<Box<RawValue>> {
    let mut tool = RawObject::parse(tool).ok()?;
    let mut meta = tool.object("_meta")?;
    meta.remove(PARTS_META_KEY)?;
    match meta.is_empty() {
        true => drop(tool.remove("_meta")),
        false => tool.set("_meta", meta),
    }
    Some(tool.to_raw())
}

impl ToolCache {
    /// Caches the tools on a page of `tools/list`. Returns the page without tools that have invalid
    /// `x-mcp-header` annotations, and without claims of tools to read whole messages
    /// ([`PARTS_META_KEY`]); `None` if there are neither. The tools are left out whatever the server's
    /// era and transport, because a client may meet this gateway in the modern era over HTTP.
    pub fn record_page(&self, page: &RawValue) -> Option<Box<RawValue>> {
        let mut page = RawObject::parse(page).ok()?;
        let listed: Vec<Box<RawValue>> = page.read("tools")?;
        let mut usable = Vec::with_capacity(listed.len());
        let mut is_changed = false;
        for raw in listed {
            match self.record_tool(&raw) {
                Err((tool, flaw)) => {
                    is_changed = true;
                    callboard_message::log::warn!(tool, %flaw, "omitted a tool with invalid x-mcp-header annotations")
                }
                Ok(()) => match without_parts_claim(&raw) {
                    Some(tool) => {
                        is_changed = true;
                        usable.push(tool);
                    }
                    None => usable.push(raw),
                },
            }
        }
        is_changed.then(|| {
            page.set("tools", usable);
            page.to_raw()
        })
    }

    fn record_tool(&self, raw: &RawValue) -> Result<(), (String, HeaderParamError)> {
        let Ok(tool) = RawObject::parse(raw) else {
            return Ok(());
        };
        let Some(name) = tool.text("name") else {
            return Ok(());
        };
        // Most schemas have no annotations, and aren't parsed.
        let schema = |member: &str, mark: &str| {
            tool.get(member)
                .filter(|raw| raw.get().contains(mark))
                .and_then(|_| tool.read::<Value>(member))
        };
        let wrapped = schema("outputSchema", WRAPPED_SCHEMA)
            .is_some_and(|schema| schema[WRAPPED_SCHEMA] == true);
        let params = schema("inputSchema", header::ANNOTATION)
            .map_or(Ok(Vec::new()), |schema| parse_header_params(&schema));
        let mut state = self.0.lock();
        if state.tools.len() < CACHED_TOOLS_MAX || state.tools.contains_key(&name) {
            let known = CachedTool {
                is_wrapped: wrapped,
                header_params: params.clone().ok(),
                hints: ToolHints::from_tool(&tool),
            };
            state.tools.insert(name.clone(), Arc::new(known));
        }
        params.map(drop).map_err(|flaw| (name, flaw))
    }

    pub fn get(&self, tool: &str) -> Option<Arc<CachedTool>> {
        self.0.lock().tools.get(tool).cloned()
    }

    /// Returns the hints of `tool` and the version of the cache, which changes when the cache is
    /// cleared. An unknown tool has no hints.
    pub fn hints(&self, tool: &str) -> (ToolHints, u64) {
        let state = self.0.lock();
        (
            state
                .tools
                .get(tool)
                .map(|known| known.hints)
                .unwrap_or_default(),
            state.version,
        )
    }

    /// Returns true if `tool` isn't cached and the server's list hasn't been read to its end.
    pub fn needs_listing(&self, tool: &str) -> bool {
        let state = self.0.lock();
        !state.is_complete && !state.tools.contains_key(tool)
    }

    /// Records that the server's tool list has been read to its end.
    pub fn mark_complete(&self) {
        self.0.lock().is_complete = true;
    }

    /// Clears the cache, because the server's tools have changed.
    pub fn invalidate(&self) {
        let mut state = self.0.lock();
        *state = ToolTable {
            version: state.version + 1,
            ..ToolTable::default()
        };
    }
}

/// Largest absolute value of an integer in a header; every JSON implementation represents it
/// exactly.
const INTEGER_MAX: i64 = (1 << 53) - 1;

/// Returns the headers that repeat `arguments` of a tool call, as `params` of the tool require. An
/// argument gets no header if it is missing, `null`, an array, an object or an unsuitable number.
pub(crate) fn param_headers(
    params: &[HeaderParam],
    arguments: &RawObject,
) -> Vec<(HeaderName, HeaderValue)> {
    let value = |param: &HeaderParam| {
        let (last, before) = param.path.split_last()?;
        let mut at = arguments.clone();
        for step in before {
            at = at.object(step)?;
        }
        Some((
            param.header.clone(),
            header_value(&header_text(&at.read(last)?)?)?,
        ))
    };
    params.iter().filter_map(value).collect()
}

/// Formats a string, Boolean or integer for a header. Returns `None` for other values and for
/// integers beyond ±[`INTEGER_MAX`].
fn header_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(yes) => Some(yes.to_string()),
        Value::Number(number) => {
            let whole =
                |f: f64| (f.fract() == 0.0 && f.abs() <= INTEGER_MAX as f64).then_some(f as i64);
            let integer = number
                .as_i64()
                .or_else(|| number.as_f64().and_then(whole))?;
            (-INTEGER_MAX..=INTEGER_MAX)
                .contains(&integer)
                .then(|| integer.to_string())
        }
        _ => None,
    }
}

/// Encodes text as a header value, in Base64 if it has characters that a header can't hold.
pub(crate) fn header_value(text: &str) -> Option<HeaderValue> {
    HeaderValue::from_str(&header::encode(text)).ok()
}

#[cfg(test)]
mod tool_book_tests {
    use super::*;

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    /// Goal: a tool with invalid annotations is left out, and the others stay byte for byte.
    /// Method: a page with one of each.
    #[test]
    fn flawed_tools_are_left_out() {
        let page = raw(concat!(
            r#"{"tools":[{"name":"good","inputSchema":{"type":"object"},"odd":1.0},"#,
            r#"{"name":"bad","inputSchema":{"properties":{"a":{"type":"string","x-mcp-header":""}}}}],"ttlMs":5}"#
        ));
        let book = ToolCache::default();
        let usable = book.record_page(&page).unwrap();
        assert_eq!(
            usable.get(),
            r#"{"tools":[{"name":"good","inputSchema":{"type":"object"},"odd":1.0}],"ttlMs":5}"#
        );
        assert!(book.get("bad").unwrap().header_params.is_none());
        assert_eq!(book.get("good").unwrap().header_params, Some(vec![]));
    }

    /// Goal: a server's tools can't claim to read whole messages, and keep the rest. Method: a page
    /// with the claim alone, beside another member, escaped, and without it.
    #[test]
    fn claims_to_read_messages_are_removed() {
        let page = raw(concat!(
            r#"{"tools":[{"name":"a","_meta":{"callboard/parts":true}},"#,
            r#"{"name":"b","_meta":{"x":1.0,"callboard\/parts":true}},{"name":"c","_meta":{}}],"ttlMs":5}"#
        ));
        let usable = ToolCache::default().record_page(&page).unwrap();
        assert_eq!(
            usable.get(),
            r#"{"tools":[{"name":"a"},{"name":"b","_meta":{"x":1.0}},{"name":"c","_meta":{}}],"ttlMs":5}"#
        );
    }

    /// Goal: hints are exactly those that the tool gives. Method: rows; invalid times, and one
    /// above the limit.
    #[test]
    fn hints_of_tools() {
        let hour = Some(TOOL_CACHE_TTL_MAX);
        for (annotations, idempotent, cache) in [
            (r#""a":1"#, false, None),
            (
                r#""annotations":{"readOnlyHint":true},"_meta":{"callboard/cache":60}"#,
                false,
                Some(Duration::from_secs(60)),
            ),
            (
                r#""annotations":{"idempotentHint":true},"_meta":{"callboard/cache":60}"#,
                true,
                None,
            ),
            (
                r#""annotations":{"readOnlyHint":"true"},"_meta":{"callboard/cache":60}"#,
                false,
                None,
            ),
            (
                r#""annotations":{"readOnlyHint":true},"_meta":{"callboard/cache":-1}"#,
                false,
                None,
            ),
            (
                r#""annotations":{"readOnlyHint":true},"_meta":{"callboard/cache":3600}"#,
                false,
                hour,
            ),
            (
                r#""annotations":{"readOnlyHint":true},"_meta":{"callboard/cache":3601}"#,
                false,
                hour,
            ),
        ] {
            let book = ToolCache::default();
            assert!(
                book.record_page(&raw(&format!(
                    r#"{{"tools":[{{"name":"t",{annotations}}}]}}"#
                )))
                .is_none()
            );
            assert_eq!(
                book.hints("t"),
                (ToolHints { idempotent, cache }, 0),
                "{annotations}"
            );
            book.invalidate();
            assert_eq!(book.hints("t"), (ToolHints::default(), 1));
        }
    }

    /// Goal: a server can't fill this process with names. Method: one tool more than the limit.
    #[test]
    fn the_book_is_bounded() {
        let book = ToolCache::default();
        for n in 0..=CACHED_TOOLS_MAX {
            let _ = book.record_page(&raw(&format!(r#"{{"tools":[{{"name":"t{n}"}}]}}"#)));
        }
        assert!(book.get(&format!("t{}", CACHED_TOOLS_MAX - 1)).is_some());
        assert!(book.get(&format!("t{CACHED_TOOLS_MAX}")).is_none());
    }
}

#[cfg(test)]
mod header_tests {
    use super::*;
    use serde_json::json;

    /// Goal: each annotated argument has its header, and no other has one. Method: nested, missing,
    /// null, and too large ones.
    #[test]
    fn arguments_become_headers() {
        let schema = json!({ "properties": {
            "region": { "type": "string", header::ANNOTATION: "Region" },
            "size": { "type": "integer", header::ANNOTATION: "Size" },
            "deep": { "type": "object", "properties": { "yes": { "type": "boolean", header::ANNOTATION: "Yes" } } },
            "null": { "type": "string", header::ANNOTATION: "Null" },
            "missing": { "type": "string", header::ANNOTATION: "Missing" },
            "large": { "type": "integer", header::ANNOTATION: "Large" },
            "plain": { "type": "string" },
        }});
        let arguments = r#"{"region":"eu","size":42.0,"deep":{"yes":false},"null":null,"large":9007199254740992,"plain":"p"}"#;
        let headers = param_headers(
            &parse_header_params(&schema).unwrap(),
            &serde_json::from_str(arguments).unwrap(),
        );
        let mut seen: Vec<_> = headers
            .iter()
            .map(|(n, v)| (n.as_str(), v.to_str().unwrap()))
            .collect();
        seen.sort_unstable();
        assert_eq!(
            seen,
            [
                ("mcp-param-region", "eu"),
                ("mcp-param-size", "42"),
                ("mcp-param-yes", "false")
            ]
        );
    }
}
