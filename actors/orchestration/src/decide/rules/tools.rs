//! Parameters for a tool, from a request in words.

use callboard_message::RawObject;
use serde_json::Value;

use super::command::command_line;
use super::lexicon::Set;
use super::reading::Reading;
use crate::decide::{ToolChoice, ToolView, Turn};
use crate::tool_name::Tool;

/// The tool with its parameters; `None` where what it needs isn't there.
pub(super) fn choice(
    tool: &ToolView,
    reading: &Reading,
    request: &str,
    history: &[Turn],
) -> Option<ToolChoice> {
    let params = match Tool::named(&tool.name) {
        Some(ours) => params(ours, reading, request, history)?,
        None => only_text(&tool.params, request)?,
    };
    Some(ToolChoice {
        tool_name: tool.name.clone(),
        params,
    })
}

fn params(tool: Tool, reading: &Reading, request: &str, history: &[Turn]) -> Option<RawObject> {
    // "Shorten this" is about the longest of what was said before.
    let said = history
        .iter()
        .rev()
        .max_by_key(|turn| turn.text.len())
        .map(|turn| &*turn.text);
    let said =
        said.filter(|_| tool == Tool::Summarize && reading.has(Set::SummarizeVerb, &reading.all()));
    let text = if reading.has_content() {
        reading.content.trim()
    } else {
        said.unwrap_or(request).trim()
    };
    Some(match tool {
        Tool::Echo | Tool::Summarize => RawObject::of("text", text),
        Tool::Llm => RawObject::of("text", request),
        Tool::ListAgents => RawObject::new(),
        Tool::RememberAgent => RawObject::of("url", reading.only_address()?),
        Tool::ExecuteCommand => RawObject::of("command", command_line(reading, request)?),
        Tool::HumanInput => RawObject::of("question", request),
    })
}

/// The request under the only text that a tool needs.
fn only_text(schema: &Value, request: &str) -> Option<RawObject> {
    let required = schema
        .get("required")
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    let [name] = required else {
        return required.is_empty().then(RawObject::new);
    };
    let name = name.as_str()?;
    let kind = schema
        .pointer(&format!("/properties/{name}/type"))
        .and_then(Value::as_str);
    (kind.unwrap_or("string") == "string").then(|| RawObject::of(name, request))
}
