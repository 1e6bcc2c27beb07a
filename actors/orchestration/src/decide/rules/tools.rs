//! Parameters for tool calls, extracted from a request.

use callboard_message::RawObject;
use serde_json::Value;

use super::command::command_line;
use super::lexicon::WordSet;
use super::reading::RequestReading;
use crate::decide::{ToolChoice, ToolView, Turn};
use crate::tool_name::BuiltinTool;

/// Chooses the tool's parameters from the request. `None` if the request lacks a required
/// parameter.
pub(super) fn choose_tool(
    tool: &ToolView,
    reading: &RequestReading,
    request: &str,
    history: &[Turn],
) -> Option<ToolChoice> {
    let params = match BuiltinTool::from_name(&tool.name) {
        Some(ours) => tool_params(ours, reading, request, history)?,
        None => only_text(&tool.params, request)?,
    };
    Some(ToolChoice {
        tool_name: tool.name.clone(),
        params,
    })
}

fn tool_params(
    tool: BuiltinTool,
    reading: &RequestReading,
    request: &str,
    history: &[Turn],
) -> Option<RawObject> {
    // A request such as "shorten this" refers to the longest earlier turn.
    let said = history
        .iter()
        .rev()
        .max_by_key(|turn| turn.text.len())
        .map(|turn| &*turn.text);
    let said = said.filter(|_| {
        tool == BuiltinTool::Summarize && reading.has(WordSet::SummarizeVerb, &reading.full_span())
    });
    let text = if reading.has_content() {
        reading.content.trim()
    } else {
        said.unwrap_or(request).trim()
    };
    Some(match tool {
        BuiltinTool::Echo | BuiltinTool::Summarize => RawObject::single("text", text),
        BuiltinTool::Llm => RawObject::single("text", request),
        BuiltinTool::ListAgents => RawObject::new(),
        BuiltinTool::RememberAgent => RawObject::single("url", reading.only_address()?),
        BuiltinTool::ExecuteCommand => {
            RawObject::single("command", command_line(reading, request)?)
        }
        BuiltinTool::HumanInput => RawObject::single("question", request),
    })
}

/// Returns parameters with the request as the tool's only required text parameter. `None` if the
/// tool has no such parameter.
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
    (kind.unwrap_or("string") == "string").then(|| RawObject::single(name, request))
}
