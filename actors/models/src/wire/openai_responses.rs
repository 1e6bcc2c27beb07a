//! Wire format of OpenAI's responses API (`POST /responses`).

use callboard_message::{RawObject, Speaker};
use serde::Deserialize;

use crate::request::{ContentBlock, MediaContent, ModelRequest, ToolSpec, Turn, join_texts};

use super::super::provider_failure::{ProviderFailure, sanitize_code};
use super::super::request::{AnswerDraft, StopReason};
use super::{BodyOptions, ErrorBody, UsageBody, record_usage};

/// Minimum value that the API accepts as the maximum of output tokens. A lower maximum is raised to
/// it.
const TOKENS_MIN: u32 = 16;

pub(super) fn request_body(
    request: &ModelRequest,
    ask: BodyOptions<'_>,
) -> Result<RawObject, ProviderFailure> {
    let mut input = Vec::new();
    for turn in &request.turns {
        push_items(turn, &mut input)?;
    }
    let mut body = RawObject::single("model", ask.model);
    body.set_some("instructions", &request.system);
    body.set("input", input);
    body.set("max_output_tokens", ask.tokens_max.max(TOKENS_MIN));
    body.set_some("temperature", &request.temperature);
    if !request.tools.is_empty() {
        body.set(
            "tools",
            request
                .tools
                .iter()
                .map(tool_definition)
                .collect::<Vec<_>>(),
        );
        body.set("tool_choice", request.tool_choice);
    }
    // The provider must not store the conversation.
    Ok(body.with("store", false).with("stream", ask.stream))
}

fn tool_definition(tool: &ToolSpec) -> RawObject {
    let mut body = RawObject::single("type", "function").with("name", &tool.name);
    body.set_some("description", &tool.description);
    body.with("parameters", &tool.schema).with("strict", false)
}

/// Appends the input items of a turn in order: messages, tool calls and tool results are separate
/// items.
///
/// # Errors
/// `Unsupported` for audio, and for images by the assistant.
fn push_items(turn: &Turn, input: &mut Vec<RawObject>) -> Result<(), ProviderFailure> {
    let mut parts = Vec::new();
    for block in &turn.blocks {
        let item = match block {
            ContentBlock::Text(text) => {
                parts.push(text_part(turn.speaker, text));
                continue;
            }
            ContentBlock::Image(media) if turn.speaker == Speaker::User => {
                parts.push(image_part(media));
                continue;
            }
            ContentBlock::Image(_) => {
                return Err(ProviderFailure::Unsupported(
                    "images in a message of the assistant",
                ));
            }
            ContentBlock::Audio(_) => return Err(ProviderFailure::Unsupported("audio")),
            ContentBlock::ToolUse { id, name, input } => {
                let call = RawObject::single("type", "function_call").with("call_id", id);
                call.with("name", name).with("arguments", input.get())
            }
            ContentBlock::ToolResult { id, blocks, .. } => tool_result_item(id, blocks)?,
        };
        push_message(turn.speaker, &mut parts, input);
        input.push(item);
    }
    push_message(turn.speaker, &mut parts, input);
    Ok(())
}

fn push_message(speaker: Speaker, parts: &mut Vec<RawObject>, input: &mut Vec<RawObject>) {
    if !parts.is_empty() {
        input.push(RawObject::single("role", speaker).with("content", std::mem::take(parts)));
    }
}

fn text_part(speaker: Speaker, text: &str) -> RawObject {
    let kind = match speaker {
        Speaker::User => "input_text",
        Speaker::Assistant => "output_text",
    };
    RawObject::single("type", kind).with("text", text)
}

fn image_part(media: &MediaContent) -> RawObject {
    RawObject::single("type", "input_image").with("image_url", media.to_data_url())
}

fn tool_result_item(id: &str, blocks: &[ContentBlock]) -> Result<RawObject, ProviderFailure> {
    let item = RawObject::single("type", "function_call_output").with("call_id", id);
    if blocks
        .iter()
        .all(|block| matches!(block, ContentBlock::Text(_)))
    {
        return Ok(item.with("output", join_texts(blocks)));
    }
    let part = |block: &ContentBlock| match block {
        ContentBlock::Text(text) => Ok(text_part(Speaker::User, text)),
        ContentBlock::Image(media) => Ok(image_part(media)),
        _ => Err(ProviderFailure::Unsupported("audio")),
    };
    Ok(item.with(
        "output",
        blocks.iter().map(part).collect::<Result<Vec<_>, _>>()?,
    ))
}

/// Response object.
#[derive(Deserialize)]
pub(super) struct ResponseBody {
    model: Option<String>,
    status: Option<String>,
    #[serde(default)]
    output: Vec<OutputItem>,
    usage: Option<UsageBody>,
    error: Option<ErrorBody>,
    incomplete_details: Option<IncompleteDetails>,
}

#[derive(Deserialize)]
struct IncompleteDetails {
    reason: Option<String>,
}

#[derive(Deserialize)]
struct OutputItem {
    r#type: String,
    call_id: Option<String>,
    name: Option<String>,
    arguments: Option<String>,
    content: Option<Vec<OutputPart>>,
}

#[derive(Deserialize)]
struct OutputPart {
    text: Option<String>,
    refusal: Option<String>,
}

/// Event of a streamed answer.
#[derive(Deserialize)]
pub(super) struct ResponseEvent {
    r#type: String,
    delta: Option<String>,
    output_index: Option<u64>,
    item: Option<OutputItem>,
    response: Option<ResponseBody>,
    code: Option<String>,
}

pub(super) fn read_answer(
    said: ResponseBody,
    draft: &mut AnswerDraft,
) -> Result<(), ProviderFailure> {
    if let Some(error) = said.error {
        return Err(error.to_failure());
    }
    if !said.output.is_empty() {
        // The final event repeats everything that was streamed.
        *draft = AnswerDraft::default();
    }
    for item in said.output {
        match &*item.r#type {
            "message" => {
                for part in item.content.unwrap_or_default() {
                    draft
                        .text
                        .push_str(part.text.as_deref().unwrap_or_default());
                    if let Some(refusal) = part.refusal {
                        draft.text.push_str(&refusal);
                        draft.stop_reason = Some(StopReason::Refusal);
                    }
                }
            }
            "function_call" => {
                let name = item.name.as_deref().unwrap_or_default();
                draft.add_complete_tool_use(
                    item.call_id.as_deref(),
                    name,
                    item.arguments.as_deref().unwrap_or_default(),
                )?;
            }
            // Reasoning and the provider's own tools aren't part of the answer.
            _ => {}
        }
    }
    draft.model = said.model;
    record_usage(said.usage, draft);
    let reason = said.incomplete_details.and_then(|details| details.reason);
    let ended = match (said.status.as_deref(), reason.as_deref()) {
        (None | Some("completed"), _) => StopReason::EndTurn,
        (Some("incomplete"), reason) => reason.map_or(StopReason::Other, StopReason::from_provider),
        _ => {
            return Err(ProviderFailure::Malformed(
                "its `status` is neither `completed` nor `incomplete`",
            ));
        }
    };
    draft.stop_reason.get_or_insert(ended);
    draft.is_complete = true;
    Ok(())
}

pub(super) fn read_piece(
    event: ResponseEvent,
    draft: &mut AnswerDraft,
) -> Result<(), ProviderFailure> {
    let (place, delta) = (
        event.output_index.unwrap_or(0),
        event.delta.unwrap_or_default(),
    );
    match &*event.r#type {
        "response.output_text.delta" => draft.text.push_str(&delta),
        "response.refusal.delta" => {
            draft.text.push_str(&delta);
            draft.stop_reason = Some(StopReason::Refusal);
        }
        "response.output_item.added" => {
            if let Some(item) = event.item.filter(|item| item.r#type == "function_call") {
                draft.add_tool_use(place, item.call_id.as_deref(), item.name.as_deref(), "")?;
            }
        }
        "response.function_call_arguments.delta" => draft.append_tool_input(place, &delta),
        "response.output_item.done" => {
            if let Some(arguments) = event.item.and_then(|item| item.arguments) {
                draft.set_tool_input(place, &arguments);
            }
        }
        "response.completed" | "response.incomplete" | "response.failed" => {
            read_answer(
                event
                    .response
                    .ok_or(ProviderFailure::Malformed("its last event has no response"))?,
                draft,
            )?;
        }
        "error" => {
            return Err(ProviderFailure::ErrorEvent {
                code: sanitize_code(event.code.as_deref()),
                is_retryable: false,
            });
        }
        _ => {}
    }
    Ok(())
}
