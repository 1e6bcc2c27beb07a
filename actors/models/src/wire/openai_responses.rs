//! OpenAI's responses (`POST /responses`).

use callboard_message::{RawObject, Speaker};
use serde::Deserialize;

use crate::request::{Block, Media, Request, Tool, Turn, texts};

use super::super::request::{Draft, Stop};
use super::super::trouble::{Trouble, code};
use super::{Ask, ProviderError, TokenUsage, note};

/// The fewest tokens that the API lets an answer have.
const TOKENS_MIN: u32 = 16;

pub(super) fn body(request: &Request, ask: Ask<'_>) -> Result<RawObject, Trouble> {
    let mut input = Vec::new();
    for turn in &request.turns {
        items(turn, &mut input)?;
    }
    let mut body = RawObject::of("model", ask.model);
    body.set_some("instructions", &request.system);
    body.set("input", input);
    body.set("max_output_tokens", ask.tokens_max.max(TOKENS_MIN));
    body.set_some("temperature", &request.temperature);
    if !request.tools.is_empty() {
        body.set("tools", request.tools.iter().map(tool).collect::<Vec<_>>());
        body.set("tool_choice", request.choice);
    }
    // Nothing is to stay at the provider.
    Ok(body.with("store", false).with("stream", ask.stream))
}

fn tool(tool: &Tool) -> RawObject {
    let mut body = RawObject::of("type", "function").with("name", &tool.name);
    body.set_some("description", &tool.description);
    body.with("parameters", &tool.schema).with("strict", false)
}

/// A turn is a message, but uses of tools and their results are items of their own, in order.
fn items(turn: &Turn, input: &mut Vec<RawObject>) -> Result<(), Trouble> {
    let mut parts = Vec::new();
    for block in &turn.blocks {
        let item = match block {
            Block::Text(text) => {
                parts.push(said(turn.speaker, text));
                continue;
            }
            Block::Image(media) if turn.speaker == Speaker::User => {
                parts.push(image(media));
                continue;
            }
            Block::Image(_) => return Err(Trouble::Unfit("pictures by the assistant")),
            Block::Audio(_) => return Err(Trouble::Unfit("sound")),
            Block::ToolUse { id, name, input } => {
                let call = RawObject::of("type", "function_call").with("call_id", id);
                call.with("name", name).with("arguments", input.get())
            }
            Block::ToolResult { id, blocks, .. } => result(id, blocks)?,
        };
        message(turn.speaker, &mut parts, input);
        input.push(item);
    }
    message(turn.speaker, &mut parts, input);
    Ok(())
}

fn message(speaker: Speaker, parts: &mut Vec<RawObject>, input: &mut Vec<RawObject>) {
    if !parts.is_empty() {
        input.push(RawObject::of("role", speaker).with("content", std::mem::take(parts)));
    }
}

fn said(speaker: Speaker, text: &str) -> RawObject {
    let kind = match speaker {
        Speaker::User => "input_text",
        Speaker::Assistant => "output_text",
    };
    RawObject::of("type", kind).with("text", text)
}

fn image(media: &Media) -> RawObject {
    RawObject::of("type", "input_image").with("image_url", media.url())
}

fn result(id: &str, blocks: &[Block]) -> Result<RawObject, Trouble> {
    let item = RawObject::of("type", "function_call_output").with("call_id", id);
    if blocks.iter().all(|block| matches!(block, Block::Text(_))) {
        return Ok(item.with("output", texts(blocks)));
    }
    let part = |block: &Block| match block {
        Block::Text(text) => Ok(said(Speaker::User, text)),
        Block::Image(media) => Ok(image(media)),
        _ => Err(Trouble::Unfit("sound")),
    };
    Ok(item.with(
        "output",
        blocks.iter().map(part).collect::<Result<Vec<_>, _>>()?,
    ))
}

/// A response object.
#[derive(Deserialize)]
pub(super) struct ResponseSaid {
    model: Option<String>,
    status: Option<String>,
    #[serde(default)]
    output: Vec<Item>,
    usage: Option<TokenUsage>,
    error: Option<ProviderError>,
    incomplete_details: Option<Incomplete>,
}

#[derive(Deserialize)]
struct Incomplete {
    reason: Option<String>,
}

#[derive(Deserialize)]
struct Item {
    r#type: String,
    call_id: Option<String>,
    name: Option<String>,
    arguments: Option<String>,
    content: Option<Vec<Part>>,
}

#[derive(Deserialize)]
struct Part {
    text: Option<String>,
    refusal: Option<String>,
}

/// An event of a stream.
#[derive(Deserialize)]
pub(super) struct Event {
    r#type: String,
    delta: Option<String>,
    output_index: Option<u64>,
    item: Option<Item>,
    response: Option<ResponseSaid>,
    code: Option<String>,
}

pub(super) fn whole(said: ResponseSaid, draft: &mut Draft) -> Result<(), Trouble> {
    if let Some(error) = said.error {
        return Err(error.trouble());
    }
    if !said.output.is_empty() {
        // The end of a stream repeats all that came in pieces.
        *draft = Draft::default();
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
                        draft.stop = Some(Stop::Refusal);
                    }
                }
            }
            "function_call" => {
                let name = item.name.as_deref().unwrap_or_default();
                draft.tool_whole(
                    item.call_id.as_deref(),
                    name,
                    item.arguments.as_deref().unwrap_or_default(),
                )?;
            }
            // Reasoning and the provider's own tools are no part of the answer.
            _ => {}
        }
    }
    draft.model = said.model;
    note(said.usage, draft);
    let reason = said.incomplete_details.and_then(|details| details.reason);
    let ended = match (said.status.as_deref(), reason.as_deref()) {
        (None | Some("completed"), _) => Stop::EndTurn,
        (Some("incomplete"), reason) => reason.map_or(Stop::Other, Stop::of),
        _ => return Err(Trouble::Malformed("it ended in no state that ends it")),
    };
    draft.stop.get_or_insert(ended);
    draft.is_whole = true;
    Ok(())
}

pub(super) fn piece(event: Event, draft: &mut Draft) -> Result<(), Trouble> {
    let (place, delta) = (
        event.output_index.unwrap_or(0),
        event.delta.unwrap_or_default(),
    );
    match &*event.r#type {
        "response.output_text.delta" => draft.text.push_str(&delta),
        "response.refusal.delta" => {
            draft.text.push_str(&delta);
            draft.stop = Some(Stop::Refusal);
        }
        "response.output_item.added" => {
            if let Some(item) = event.item.filter(|item| item.r#type == "function_call") {
                draft.tool(place, item.call_id.as_deref(), item.name.as_deref(), "")?;
            }
        }
        "response.function_call_arguments.delta" => draft.tool_more(place, &delta),
        "response.output_item.done" => {
            if let Some(arguments) = event.item.and_then(|item| item.arguments) {
                draft.tool_input(place, &arguments);
            }
        }
        "response.completed" | "response.incomplete" | "response.failed" => {
            whole(
                event
                    .response
                    .ok_or(Trouble::Malformed("its last event has no response"))?,
                draft,
            )?;
        }
        "error" => {
            return Err(Trouble::Told {
                code: code(event.code.as_deref()),
                again: false,
            });
        }
        _ => {}
    }
    Ok(())
}
