//! Anthropic's messages (`POST /messages`, `anthropic-version: 2023-06-01`).

use callboard_message::RawObject;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::request::{Block, Choice, Request, Tool, Turn};

use super::super::request::{Draft, Stop};
use super::super::trouble::Trouble;
use super::{Ask, ProviderError, TokenUsage, note};

pub(super) fn body(request: &Request, ask: Ask<'_>) -> Result<RawObject, Trouble> {
    let mut body = RawObject::of("model", ask.model).with("max_tokens", ask.tokens_max);
    body.set_some("system", &request.system);
    body.set(
        "messages",
        request
            .turns
            .iter()
            .map(turn)
            .collect::<Result<Vec<_>, _>>()?,
    );
    body.set_some("temperature", &request.temperature);
    if !request.stop.is_empty() {
        body.set("stop_sequences", &request.stop);
    }
    if !request.tools.is_empty() {
        let choice = match request.choice {
            Choice::Auto => "auto",
            Choice::Required => "any",
            Choice::None => "none",
        };
        body.set("tools", request.tools.iter().map(tool).collect::<Vec<_>>());
        body.set("tool_choice", RawObject::of("type", choice));
    }
    Ok(body.with("stream", ask.stream))
}

fn tool(tool: &Tool) -> RawObject {
    let mut body = RawObject::of("name", &tool.name);
    body.set_some("description", &tool.description);
    body.with("input_schema", &tool.schema)
}

fn turn(turn: &Turn) -> Result<RawObject, Trouble> {
    let content = turn
        .blocks
        .iter()
        .map(block)
        .collect::<Result<Vec<_>, _>>()?;
    Ok(RawObject::of("role", turn.speaker).with("content", content))
}

fn block(of: &Block) -> Result<RawObject, Trouble> {
    Ok(match of {
        Block::Text(text) => RawObject::of("type", "text").with("text", text),
        Block::Image(media) => {
            let source = RawObject::of("type", "base64").with("media_type", &media.mime_type);
            RawObject::of("type", "image").with("source", source.with("data", &media.data))
        }
        Block::Audio(_) => return Err(Trouble::Unfit("sound")),
        Block::ToolUse { id, name, input } => RawObject::of("type", "tool_use")
            .with("id", id)
            .with("name", name)
            .with("input", input),
        Block::ToolResult {
            id,
            blocks,
            is_error,
        } => {
            let content = blocks.iter().map(block).collect::<Result<Vec<_>, _>>()?;
            let result = RawObject::of("type", "tool_result")
                .with("tool_use_id", id)
                .with("content", content);
            if *is_error {
                result.with("is_error", true)
            } else {
                result
            }
        }
    })
}

/// A message, whole or as it begins.
#[derive(Deserialize)]
pub(super) struct MessageSaid {
    model: Option<String>,
    #[serde(default)]
    content: Vec<BlockSaid>,
    stop_reason: Option<String>,
    usage: Option<TokenUsage>,
    error: Option<ProviderError>,
}

#[derive(Deserialize)]
struct BlockSaid {
    r#type: String,
    text: Option<String>,
    id: Option<String>,
    name: Option<String>,
    input: Option<Box<RawValue>>,
}

/// An event of a stream.
#[derive(Deserialize)]
pub(super) struct Event {
    r#type: String,
    #[serde(default)]
    index: u64,
    message: Option<MessageSaid>,
    content_block: Option<BlockSaid>,
    delta: Option<Delta>,
    usage: Option<TokenUsage>,
    error: Option<ProviderError>,
}

#[derive(Deserialize)]
struct Delta {
    text: Option<String>,
    partial_json: Option<String>,
    stop_reason: Option<String>,
}

pub(super) fn whole(said: MessageSaid, draft: &mut Draft) -> Result<(), Trouble> {
    if let Some(error) = said.error {
        return Err(error.trouble());
    }
    draft.model = said.model;
    for (at, block) in (0_u64..).zip(said.content) {
        begin(at, block, true, draft)?;
    }
    note(said.usage, draft);
    draft.stop = Some(Stop::of(
        &said
            .stop_reason
            .ok_or(Trouble::Malformed("it has no stop reason"))?,
    ));
    draft.is_whole = true;
    Ok(())
}

/// In a stream a tool's input begins as `{}` and comes in pieces after it.
fn begin(place: u64, block: BlockSaid, is_whole: bool, draft: &mut Draft) -> Result<(), Trouble> {
    match &*block.r#type {
        "text" => draft
            .text
            .push_str(block.text.as_deref().unwrap_or_default()),
        "tool_use" => {
            let input = block
                .input
                .as_ref()
                .filter(|_| is_whole)
                .map_or("", |input| input.get());
            draft.tool(place, block.id.as_deref(), block.name.as_deref(), input)?;
        }
        // Thinking and the provider's own tools are no part of the answer.
        _ => {}
    }
    Ok(())
}

pub(super) fn piece(event: Event, draft: &mut Draft) -> Result<(), Trouble> {
    note(event.usage, draft);
    match &*event.r#type {
        "message_start" => {
            if let Some(message) = event.message {
                draft.model = message.model;
                note(message.usage, draft);
            }
        }
        "content_block_start" => {
            if let Some(block) = event.content_block {
                begin(event.index, block, false, draft)?;
            }
        }
        "content_block_delta" => {
            if let Some(delta) = event.delta {
                draft
                    .text
                    .push_str(delta.text.as_deref().unwrap_or_default());
                if let Some(input) = delta.partial_json {
                    draft.tool_more(event.index, &input);
                }
            }
        }
        "message_delta" => {
            if let Some(reason) = event.delta.and_then(|delta| delta.stop_reason) {
                draft.stop = Some(Stop::of(&reason));
            }
        }
        "message_stop" => draft.is_whole = true,
        "error" => {
            return Err(event.error.map_or(
                Trouble::Told {
                    code: None,
                    again: false,
                },
                |error| error.trouble(),
            ));
        }
        // Pings, and whatever is added later.
        _ => {}
    }
    Ok(())
}
