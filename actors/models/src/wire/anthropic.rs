//! Wire format of Anthropic's messages API (`POST /messages`, `anthropic-version: 2023-06-01`).

use callboard_message::RawObject;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::request::{ContentBlock, ModelRequest, ToolChoiceMode, ToolSpec, Turn};

use super::super::provider_failure::ProviderFailure;
use super::super::request::{AnswerDraft, StopReason};
use super::{BodyOptions, ErrorBody, UsageBody, record_usage};

pub(super) fn request_body(
    request: &ModelRequest,
    ask: BodyOptions<'_>,
) -> Result<RawObject, ProviderFailure> {
    let mut body = RawObject::single("model", ask.model).with("max_tokens", ask.tokens_max);
    body.set_some("system", &request.system);
    body.set(
        "messages",
        request
            .turns
            .iter()
            .map(turn_message)
            .collect::<Result<Vec<_>, _>>()?,
    );
    body.set_some("temperature", &request.temperature);
    if !request.stop_sequences.is_empty() {
        body.set("stop_sequences", &request.stop_sequences);
    }
    if !request.tools.is_empty() {
        let choice = match request.tool_choice {
            ToolChoiceMode::Auto => "auto",
            ToolChoiceMode::Required => "any",
            ToolChoiceMode::None => "none",
        };
        body.set(
            "tools",
            request
                .tools
                .iter()
                .map(tool_definition)
                .collect::<Vec<_>>(),
        );
        body.set("tool_choice", RawObject::single("type", choice));
    }
    Ok(body.with("stream", ask.stream))
}

fn tool_definition(tool: &ToolSpec) -> RawObject {
    let mut body = RawObject::single("name", &tool.name);
    body.set_some("description", &tool.description);
    body.with("input_schema", &tool.schema)
}

fn turn_message(turn: &Turn) -> Result<RawObject, ProviderFailure> {
    let content = turn
        .blocks
        .iter()
        .map(content_block)
        .collect::<Result<Vec<_>, _>>()?;
    Ok(RawObject::single("role", turn.speaker).with("content", content))
}

fn content_block(of: &ContentBlock) -> Result<RawObject, ProviderFailure> {
    Ok(match of {
        ContentBlock::Text(text) => RawObject::single("type", "text").with("text", text),
        ContentBlock::Image(media) => {
            let source = RawObject::single("type", "base64").with("media_type", &media.mime_type);
            RawObject::single("type", "image").with("source", source.with("data", &media.data))
        }
        ContentBlock::Audio(_) => return Err(ProviderFailure::Unsupported("audio")),
        ContentBlock::ToolUse { id, name, input } => RawObject::single("type", "tool_use")
            .with("id", id)
            .with("name", name)
            .with("input", input),
        ContentBlock::ToolResult {
            id,
            blocks,
            is_error,
        } => {
            let content = blocks
                .iter()
                .map(content_block)
                .collect::<Result<Vec<_>, _>>()?;
            let result = RawObject::single("type", "tool_result")
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

/// Message object of the API: a complete answer, or the first part of a streamed one.
#[derive(Deserialize)]
pub(super) struct MessageBody {
    model: Option<String>,
    #[serde(default)]
    content: Vec<BlockBody>,
    stop_reason: Option<String>,
    usage: Option<UsageBody>,
    error: Option<ErrorBody>,
}

#[derive(Deserialize)]
struct BlockBody {
    r#type: String,
    text: Option<String>,
    id: Option<String>,
    name: Option<String>,
    input: Option<Box<RawValue>>,
}

/// Event of a streamed answer.
#[derive(Deserialize)]
pub(super) struct MessageEvent {
    r#type: String,
    #[serde(default)]
    index: u64,
    message: Option<MessageBody>,
    content_block: Option<BlockBody>,
    delta: Option<MessageDelta>,
    usage: Option<UsageBody>,
    error: Option<ErrorBody>,
}

#[derive(Deserialize)]
struct MessageDelta {
    text: Option<String>,
    partial_json: Option<String>,
    stop_reason: Option<String>,
}

pub(super) fn read_answer(
    said: MessageBody,
    draft: &mut AnswerDraft,
) -> Result<(), ProviderFailure> {
    if let Some(error) = said.error {
        return Err(error.to_failure());
    }
    draft.model = said.model;
    for (at, block) in (0_u64..).zip(said.content) {
        begin_block(at, block, true, draft)?;
    }
    record_usage(said.usage, draft);
    draft.stop_reason =
        Some(StopReason::from_provider(&said.stop_reason.ok_or(
            ProviderFailure::Malformed("it has no `stop_reason`"),
        )?));
    draft.is_complete = true;
    Ok(())
}

/// Begins a content block of the answer, the one with the index `place`. In a streamed answer
/// (`is_whole` is `false`), the block's tool input is an empty `{}` that is ignored; the input
/// follows in pieces. Blocks other than text and tool calls are ignored.
///
/// # Errors
/// `TooLarge` for too many tool calls.
fn begin_block(
    place: u64,
    block: BlockBody,
    is_whole: bool,
    draft: &mut AnswerDraft,
) -> Result<(), ProviderFailure> {
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
            draft.add_tool_use(place, block.id.as_deref(), block.name.as_deref(), input)?;
        }
        // Thinking and the provider's own tools aren't part of the answer.
        _ => {}
    }
    Ok(())
}

pub(super) fn read_piece(
    event: MessageEvent,
    draft: &mut AnswerDraft,
) -> Result<(), ProviderFailure> {
    record_usage(event.usage, draft);
    match &*event.r#type {
        "message_start" => {
            if let Some(message) = event.message {
                draft.model = message.model;
                record_usage(message.usage, draft);
            }
        }
        "content_block_start" => {
            if let Some(block) = event.content_block {
                begin_block(event.index, block, false, draft)?;
            }
        }
        "content_block_delta" => {
            if let Some(delta) = event.delta {
                draft
                    .text
                    .push_str(delta.text.as_deref().unwrap_or_default());
                if let Some(input) = delta.partial_json {
                    draft.append_tool_input(event.index, &input);
                }
            }
        }
        "message_delta" => {
            if let Some(reason) = event.delta.and_then(|delta| delta.stop_reason) {
                draft.stop_reason = Some(StopReason::from_provider(&reason));
            }
        }
        "message_stop" => draft.is_complete = true,
        "error" => {
            return Err(event.error.map_or(
                ProviderFailure::ErrorEvent {
                    code: None,
                    is_retryable: false,
                },
                |error| error.to_failure(),
            ));
        }
        // Pings and unknown events are ignored.
        _ => {}
    }
    Ok(())
}
