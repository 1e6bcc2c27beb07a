//! What is remembered of a server's tools: which arguments go into headers, whose value is wrapped, what they say of
//! themselves.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use callboard_message::RawObject;
use serde_json::Value;
use serde_json::value::RawValue;

use super::link::lock;
use super::mirror::{ANNOTATION, Flaw, Mirror, mirrors};
use super::options::{TOOL_CACHE_TIME_MAX, TOOLS_REMEMBERED_MAX};

/// Says that `structuredContent.result` is the reply itself: servers of this system write it.
const WRAPPED: &str = "x-callboard-wrapped";
/// In a tool's `_meta`: for how many seconds its results may be kept.
const CACHE: &str = "callboard/cache";

/// The tools that a server has listed.
#[derive(Default)]
pub(crate) struct ToolBook(Mutex<State>);

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
    pub(super) wrapped: bool,
    /// The arguments that go into headers, over HTTP in the modern era.
    pub(super) mirrors: Option<Vec<Mirror>>,
    /// What the tool says of itself.
    hints: Hints,
}

/// What a tool says of itself (MCP, `ToolAnnotations`). Nobody vouches for it: it decides only what the server's own
/// answers are worth, and whether it may be asked again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Hints {
    /// It changes nothing.
    pub(crate) read_only: bool,
    /// Twice the same does as much as once.
    pub(crate) idempotent: bool,
    /// For how long a result may be kept, of one that changes nothing.
    pub(crate) cache: Option<Duration>,
}

impl Hints {
    fn of(tool: &RawObject) -> Self {
        let said = tool.object("annotations").unwrap_or_default();
        let is = |hint: &str| said.read(hint) == Some(true);
        let (read_only, idempotent) = (is("readOnlyHint"), is("idempotentHint"));
        let meta = || tool.get("_meta").filter(|meta| read_only && meta.get().contains(CACHE));
        let seconds: Option<u64> = meta().and_then(|_| tool.object("_meta")?.read(CACHE));
        let cache = seconds.map(|seconds| Duration::from_secs(seconds).min(TOOL_CACHE_TIME_MAX));
        Self { read_only, idempotent, cache }
    }

    /// Whether it may be called again where nobody knows what became of the first call.
    pub(crate) fn may_repeat(self) -> bool {
        self.read_only || self.idempotent
    }
}

impl ToolBook {
    /// Remembers the tools on a page of `tools/list`. Gives the page back without tools that mustn't be used, where
    /// there are such and `is_strict`.
    pub(crate) fn learn(&self, page: &RawValue, is_strict: bool) -> Option<Box<RawValue>> {
        let mut page = RawObject::parse(page).ok()?;
        let listed: Vec<Box<RawValue>> = page.read("tools")?;
        let mut kept = Vec::with_capacity(listed.len());
        let before = listed.len();
        for raw in listed {
            match self.learn_tool(&raw) {
                Err((tool, flaw)) if is_strict => callboard_message::log::warn!(tool, %flaw, "a tool is left out"),
                _ => kept.push(raw),
            }
        }
        (kept.len() < before).then(|| {
            page.set("tools", kept);
            page.to_raw()
        })
    }

    fn learn_tool(&self, raw: &RawValue) -> Result<(), (String, Flaw)> {
        let Ok(tool) = RawObject::parse(raw) else { return Ok(()) };
        let Some(name) = tool.text("name") else { return Ok(()) };
        // Most schemas say nothing of this: they aren't read.
        let schema = |member: &str, mark: &str| {
            tool.get(member).filter(|raw| raw.get().contains(mark)).and_then(|_| tool.read::<Value>(member))
        };
        let wrapped = schema("outputSchema", WRAPPED).is_some_and(|schema| schema[WRAPPED] == true);
        let mirrors = schema("inputSchema", ANNOTATION).map_or_else(|| Ok(Vec::new()), |schema| mirrors(&schema));
        let flaw = mirrors.as_ref().err().copied();
        let mut state = lock(&self.0);
        if state.tools.len() < TOOLS_REMEMBERED_MAX || state.tools.contains_key(&name) {
            let known = Known { wrapped, mirrors: mirrors.ok(), hints: Hints::of(&tool) };
            state.tools.insert(name.clone(), Arc::new(known));
        }
        flaw.map_or(Ok(()), |flaw| Err((name, flaw)))
    }

    /// What is known of `tool`.
    pub(crate) fn get(&self, tool: &str) -> Option<Arc<Known>> {
        lock(&self.0).tools.get(tool).cloned()
    }

    /// What `tool` says of itself, nothing where it isn't known; and the edition of the list.
    pub(crate) fn hints(&self, tool: &str) -> (Hints, u64) {
        let state = lock(&self.0);
        (state.tools.get(tool).map(|known| known.hints).unwrap_or_default(), state.edition)
    }

    /// Whether every tool is known that there is.
    pub(crate) fn is_whole(&self) -> bool {
        lock(&self.0).whole
    }

    /// The last page has been read.
    pub(crate) fn set_whole(&self) {
        lock(&self.0).whole = true;
    }

    /// Something has changed: what is known may be wrong.
    pub(crate) fn forget(&self) {
        let mut state = lock(&self.0);
        *state = State { edition: state.edition + 1, ..State::default() };
    }
}

#[cfg(test)]
mod tests {
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
        let book = ToolBook::default();
        assert!(book.learn(&page, false).is_none());
        let kept = book.learn(&page, true).unwrap();
        assert_eq!(kept.get(), r#"{"tools":[{"name":"good","inputSchema":{"type":"object"},"odd":1.0}],"ttlMs":5}"#);
        assert!(book.get("bad").unwrap().mirrors.is_none());
        assert_eq!(book.get("good").unwrap().mirrors, Some(vec![]));
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
            (r#""annotations":{"idempotentHint":true},"_meta":{"callboard/cache":60}"#, false, true, None),
            (r#""annotations":{"readOnlyHint":"true"},"_meta":{"callboard/cache":60}"#, false, false, None),
            (r#""annotations":{"readOnlyHint":true},"_meta":{"callboard/cache":-1}"#, true, false, None),
            (r#""annotations":{"readOnlyHint":true},"_meta":{"callboard/cache":3600}"#, true, false, hour),
            (r#""annotations":{"readOnlyHint":true},"_meta":{"callboard/cache":3601}"#, true, false, hour),
        ] {
            let book = ToolBook::default();
            assert!(book.learn(&raw(&format!(r#"{{"tools":[{{"name":"t",{said}}}]}}"#)), false).is_none());
            assert_eq!(book.hints("t"), (Hints { read_only, idempotent, cache }, 0), "{said}");
            book.forget();
            assert_eq!(book.hints("t"), (Hints::default(), 1));
        }
    }

    /// Goal: a server can't fill this process with names. Method: one tool more than the bound.
    #[test]
    fn the_book_is_bounded() {
        let book = ToolBook::default();
        for n in 0..=TOOLS_REMEMBERED_MAX {
            let _ = book.learn(&raw(&format!(r#"{{"tools":[{{"name":"t{n}"}}]}}"#)), true);
        }
        assert!(book.get(&format!("t{}", TOOLS_REMEMBERED_MAX - 1)).is_some());
        assert!(book.get(&format!("t{TOOLS_REMEMBERED_MAX}")).is_none());
    }
}
