//! What is remembered of a server's tools: which arguments go into headers, whose value is wrapped, what they say of
//! themselves.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::wire::WRAPPED;
use crate::wire::header::{self, HeaderParam, HeaderParamError, params_of};
use callboard_message::{Failure, RawObject, ToolResult};
use parking_lot::Mutex;
use reqwest::header::{HeaderName, HeaderValue};
use serde_json::Value;
use serde_json::value::RawValue;

use super::options::{TOOL_CACHE_TIME_MAX, TOOLS_REMEMBERED_MAX};

/// In a tool's `_meta`: for how many seconds its results may be kept.
const CACHE: &str = "callboard/cache";

/// The tools that a server has listed.
#[derive(Default)]
pub(crate) struct ToolCache(Mutex<State>);

#[derive(Default)]
struct State {
    tools: HashMap<String, Arc<Known>>,
    /// The whole list has been read since it last changed.
    whole: bool,
    /// How often it has changed.
    edition: u64,
}

/// What is known of a tool.
#[derive(Default)]
pub(crate) struct Known {
    /// Its value is member `result` of the structured content.
    pub wrapped: bool,
    /// The arguments that go into headers, over HTTP in the modern era.
    pub header_params: Option<Vec<HeaderParam>>,
    /// What the tool says of itself.
    hints: Hints,
}

/// What a tool says of itself (MCP, `ToolAnnotations`). Nobody vouches for it: it decides only what the server's own
/// answers are worth, and whether it may be asked again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Hints {
    /// It changes nothing.
    read_only: bool,
    /// Twice the same does as much as once.
    idempotent: bool,
    /// For how long a result may be kept, of one that changes nothing.
    pub cache: Option<Duration>,
}

impl Hints {
    fn of(tool: &RawObject) -> Self {
        let said = tool.object("annotations").unwrap_or_default();
        let is = |hint: &str| said.read(hint) == Some(true);
        let (read_only, idempotent) = (is("readOnlyHint"), is("idempotentHint"));
        let meta = || {
            tool.get("_meta")
                .filter(|meta| read_only && meta.get().contains(CACHE))
        };
        let seconds: Option<u64> = meta().and_then(|_| tool.object("_meta")?.read(CACHE));
        let cache = seconds.map(|seconds| Duration::from_secs(seconds).min(TOOL_CACHE_TIME_MAX));
        Self {
            read_only,
            idempotent,
            cache,
        }
    }

    /// Whether it may be called again where nobody knows what became of the first call.
    pub fn may_repeat(self) -> bool {
        self.read_only || self.idempotent
    }
}

impl ToolCache {
    /// Remembers the tools on a page of `tools/list`. Gives the page back without tools that mustn't be used, where
    /// there are such and `is_strict`.
    pub fn learn(&self, page: &RawValue, is_strict: bool) -> Option<Box<RawValue>> {
        let mut page = RawObject::parse(page).ok()?;
        let listed: Vec<Box<RawValue>> = page.read("tools")?;
        let mut kept = Vec::with_capacity(listed.len());
        let before = listed.len();
        for raw in listed {
            match self.learn_tool(&raw) {
                Err((tool, flaw)) if is_strict => {
                    callboard_message::log::warn!(tool, %flaw, "a tool is left out")
                }
                _ => kept.push(raw),
            }
        }
        (kept.len() < before).then(|| {
            page.set("tools", kept);
            page.to_raw()
        })
    }

    fn learn_tool(&self, raw: &RawValue) -> Result<(), (String, HeaderParamError)> {
        let Ok(tool) = RawObject::parse(raw) else {
            return Ok(());
        };
        let Some(name) = tool.text("name") else {
            return Ok(());
        };
        // Most schemas say nothing of this: they aren't read.
        let schema = |member: &str, mark: &str| {
            tool.get(member)
                .filter(|raw| raw.get().contains(mark))
                .and_then(|_| tool.read::<Value>(member))
        };
        let wrapped = schema("outputSchema", WRAPPED).is_some_and(|schema| schema[WRAPPED] == true);
        let params = schema("inputSchema", header::ANNOTATION)
            .map_or(Ok(Vec::new()), |schema| params_of(&schema));
        let mut state = self.0.lock();
        if state.tools.len() < TOOLS_REMEMBERED_MAX || state.tools.contains_key(&name) {
            let known = Known {
                wrapped,
                header_params: params.clone().ok(),
                hints: Hints::of(&tool),
            };
            state.tools.insert(name.clone(), Arc::new(known));
        }
        params.map(drop).map_err(|flaw| (name, flaw))
    }

    /// What is known of `tool`.
    pub fn get(&self, tool: &str) -> Option<Arc<Known>> {
        self.0.lock().tools.get(tool).cloned()
    }

    /// What `tool` says of itself, nothing where it isn't known; and the edition of the list.
    pub fn hints(&self, tool: &str) -> (Hints, u64) {
        let state = self.0.lock();
        (
            state
                .tools
                .get(tool)
                .map(|known| known.hints)
                .unwrap_or_default(),
            state.edition,
        )
    }

    /// Whether nothing is known of `tool` yet, and the list may tell.
    pub fn lacks(&self, tool: &str) -> bool {
        let state = self.0.lock();
        !state.whole && !state.tools.contains_key(tool)
    }

    /// The last page has been read.
    pub fn set_whole(&self) {
        self.0.lock().whole = true;
    }

    /// Something has changed: what is known may be wrong.
    pub fn forget(&self) {
        let mut state = self.0.lock();
        *state = State {
            edition: state.edition + 1,
            ..State::default()
        };
    }
}

/// The largest integer that every reader of JSON keeps exactly, in either direction.
const INTEGER_MAX: i64 = (1 << 53) - 1;

/// The headers for a call with `arguments`. An argument that is missing, `null` or no such value has none.
pub(crate) fn header_params(
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
            header_value(&plain(&at.read(last)?)?)?,
        ))
    };
    params.iter().filter_map(value).collect()
}

/// A value as text.
fn plain(value: &Value) -> Option<String> {
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

/// Text as a header's value, encoded where no header could hold it as it is.
pub(crate) fn header_value(text: &str) -> Option<HeaderValue> {
    HeaderValue::from_str(&header::encode(text)).ok()
}

/// A tool's result as a plain value; `wrapped` is asked where only the tool's schema says what that is.
///
/// # Errors
/// What the tool says went wrong; `Internal` where it is no result.
pub(crate) async fn plain_value<Wrapped: Future<Output = bool>>(
    result: &RawValue,
    wrapped: impl FnOnce() -> Wrapped,
) -> Result<Box<RawValue>, Failure> {
    let result = RawObject::parse(result)
        .map_err(|_| Failure::internal("the tool's result is no object"))?;
    // Boxed: it may ask the server, and calls that needn't know carry no room for that.
    let content = result.object("structuredContent");
    let may_be_wrapped = content.is_some_and(|content| content.len() == 1 && content.has("result"));
    let wrapped = may_be_wrapped && Box::pin(wrapped()).await;
    ToolResult(result).into_value(wrapped)
}

#[cfg(test)]
mod tool_book_tests {
    use super::*;

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    /// Goal: a tool with flawed annotations is left out, the others stay byte for byte. Method: a page with one of each.
    #[test]
    fn flawed_tools_are_left_out() {
        let page = raw(concat!(
            r#"{"tools":[{"name":"good","inputSchema":{"type":"object"},"odd":1.0},"#,
            r#"{"name":"bad","inputSchema":{"properties":{"a":{"type":"string","x-mcp-header":""}}}}],"ttlMs":5}"#
        ));
        let book = ToolCache::default();
        assert!(book.learn(&page, false).is_none());
        let kept = book.learn(&page, true).unwrap();
        assert_eq!(
            kept.get(),
            r#"{"tools":[{"name":"good","inputSchema":{"type":"object"},"odd":1.0}],"ttlMs":5}"#
        );
        assert!(book.get("bad").unwrap().header_params.is_none());
        assert_eq!(book.get("good").unwrap().header_params, Some(vec![]));
    }

    /// Goal: hints are what the tool says, no more. Method: rows; times that can't be, and one over the bound.
    #[test]
    fn hints_of_tools() {
        let hour = Some(TOOL_CACHE_TIME_MAX);
        for (said, read_only, idempotent, cache) in [
            (r#""a":1"#, false, false, None),
            (
                r#""annotations":{"readOnlyHint":true},"_meta":{"callboard/cache":60}"#,
                true,
                false,
                Some(Duration::from_secs(60)),
            ),
            (
                r#""annotations":{"idempotentHint":true},"_meta":{"callboard/cache":60}"#,
                false,
                true,
                None,
            ),
            (
                r#""annotations":{"readOnlyHint":"true"},"_meta":{"callboard/cache":60}"#,
                false,
                false,
                None,
            ),
            (
                r#""annotations":{"readOnlyHint":true},"_meta":{"callboard/cache":-1}"#,
                true,
                false,
                None,
            ),
            (
                r#""annotations":{"readOnlyHint":true},"_meta":{"callboard/cache":3600}"#,
                true,
                false,
                hour,
            ),
            (
                r#""annotations":{"readOnlyHint":true},"_meta":{"callboard/cache":3601}"#,
                true,
                false,
                hour,
            ),
        ] {
            let book = ToolCache::default();
            assert!(
                book.learn(
                    &raw(&format!(r#"{{"tools":[{{"name":"t",{said}}}]}}"#)),
                    false
                )
                .is_none()
            );
            assert_eq!(
                book.hints("t"),
                (
                    Hints {
                        read_only,
                        idempotent,
                        cache
                    },
                    0
                ),
                "{said}"
            );
            book.forget();
            assert_eq!(book.hints("t"), (Hints::default(), 1));
        }
    }

    /// Goal: a server can't fill this process with names. Method: one tool more than the bound.
    #[test]
    fn the_book_is_bounded() {
        let book = ToolCache::default();
        for n in 0..=TOOLS_REMEMBERED_MAX {
            let _ = book.learn(&raw(&format!(r#"{{"tools":[{{"name":"t{n}"}}]}}"#)), true);
        }
        assert!(
            book.get(&format!("t{}", TOOLS_REMEMBERED_MAX - 1))
                .is_some()
        );
        assert!(book.get(&format!("t{TOOLS_REMEMBERED_MAX}")).is_none());
    }
}

#[cfg(test)]
mod header_tests {
    use super::*;
    use serde_json::json;

    /// Goal: each annotated argument has its header, and no other. Method: nested, missing, null, and too large ones.
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
        let headers = header_params(
            &params_of(&schema).unwrap(),
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
