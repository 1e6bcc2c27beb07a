//! Wire format of Ollama's API (`POST /api/chat`). Streamed pieces have the shape of a complete
//! answer.

use callboard_message::{RawObject, Speaker};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::request::{ContentBlock, ModelRequest, ToolChoiceMode, Turn, join_texts};

use super::super::provider_failure::ProviderFailure;
use super::super::request::{AnswerDraft, StopReason};
use super::{BodyOptions, openai_chat};

pub(super) fn request_body(
    request: &ModelRequest,
    ask: BodyOptions<'_>,
) -> Result<RawObject, ProviderFailure> {
    let mut messages = Vec::new();
    if let Some(system) = &request.system {
        messages.push(RawObject::single("role", "system").with("content", system));
    }
    for turn in &request.turns {
        push_messages(request, turn, &mut messages)?;
    }
    let mut options = RawObject::single("num_predict", ask.tokens_max);
    options.set_some("temperature", &request.temperature);
    if !request.stop_sequences.is_empty() {
        options.set("stop", &request.stop_sequences);
    }
    let mut body = RawObject::single("model", ask.model).with("messages", messages);
    match request.tool_choice {
        _ if request.tools.is_empty() => {}
        ToolChoiceMode::Auto => body.set(
            "tools",
            request
                .tools
                .iter()
                .map(openai_chat::tool_definition)
                .collect::<Vec<_>>(),
        ),
        // The API has no tool choice; offering no tools has the same effect.
        ToolChoiceMode::None => {}
        ToolChoiceMode::Required => {
            return Err(ProviderFailure::Unsupported("the tool choice `required`"));
        }
    }
    Ok(body.with("stream", ask.stream).with("options", options))
}

fn push_messages(
    request: &ModelRequest,
    turn: &Turn,
    messages: &mut Vec<RawObject>,
) -> Result<(), ProviderFailure> {
    let (mut images, mut calls, mut is_message) = (Vec::new(), Vec::new(), turn.blocks.is_empty());
    for block in &turn.blocks {
        match block {
            ContentBlock::Text(_) => is_message = true,
            ContentBlock::Image(media) => images.push(&media.data),
            ContentBlock::Audio(_) => return Err(ProviderFailure::Unsupported("audio")),
            ContentBlock::ToolUse { name, input, .. } => {
                let function = RawObject::single("name", name).with("arguments", input);
                calls.push(RawObject::single("function", function));
            }
            ContentBlock::ToolResult { id, blocks, .. } => {
                messages.push(tool_result_message(request, id, blocks)?)
            }
        }
    }
    if !is_message && images.is_empty() && calls.is_empty() {
        return Ok(());
    }
    let mut message =
        RawObject::single("role", turn.speaker).with("content", join_texts(&turn.blocks));
    if !images.is_empty() {
        if turn.speaker == Speaker::Assistant {
            return Err(ProviderFailure::Unsupported(
                "images in a message of the assistant",
            ));
        }
        message.set("images", images);
    }
    if !calls.is_empty() {
        message.set("tool_calls", calls);
    }
    messages.push(message);
    Ok(())
}

/// Builds the message with a tool result. It names the tool, because the API has no ids of tool
/// calls; the name is empty if no tool call has the id.
///
/// # Errors
/// `Unsupported` for audio.
fn tool_result_message(
    request: &ModelRequest,
    id: &str,
    blocks: &[ContentBlock],
) -> Result<RawObject, ProviderFailure> {
    let mut images = Vec::new();
    for block in blocks {
        match block {
            ContentBlock::Image(media) => images.push(&media.data),
            ContentBlock::Audio(_) => return Err(ProviderFailure::Unsupported("audio")),
            _ => {}
        }
    }
    let message = RawObject::single("role", "tool").with(
        "tool_name",
        request.tool_name_of_use(id).unwrap_or_default(),
    );
    let message = message.with("content", join_texts(blocks));
    Ok(if images.is_empty() {
        message
    } else {
        message.with("images", images)
    })
}

/// Complete answer, or a piece of one.
#[derive(Deserialize)]
pub(super) struct ChatBody {
    model: Option<String>,
    message: Option<ChatMessage>,
    #[serde(default)]
    done: bool,
    done_reason: Option<String>,
    prompt_eval_count: Option<u64>,
    eval_count: Option<u64>,
    /// Error message; `None` in an answer.
    error: Option<String>,
}

#[derive(Deserialize)]
struct ChatMessage {
    content: Option<String>,
    tool_calls: Option<Vec<ChatToolCall>>,
}

#[derive(Deserialize)]
struct ChatToolCall {
    function: FunctionCall,
}

#[derive(Deserialize)]
struct FunctionCall {
    name: String,
    arguments: Option<Box<RawValue>>,
}

pub(super) fn read_piece(said: ChatBody, draft: &mut AnswerDraft) -> Result<(), ProviderFailure> {
    if said.error.is_some() {
        return Err(ProviderFailure::ErrorEvent {
            code: None,
            is_retryable: false,
        });
    }
    draft.model = said.model.or(draft.model.take());
    if let Some(message) = said.message {
        draft
            .text
            .push_str(message.content.as_deref().unwrap_or_default());
        for call in message.tool_calls.unwrap_or_default() {
            let input = call
                .function
                .arguments
                .as_ref()
                .map_or("", |input| input.get());
            draft.add_complete_tool_use(None, &call.function.name, input)?;
        }
    }
    draft.input_tokens = said.prompt_eval_count.or(draft.input_tokens);
    draft.output_tokens = said.eval_count.or(draft.output_tokens);
    if said.done {
        draft.is_complete = true;
        draft.stop_reason = Some(
            said.done_reason
                .as_deref()
                .map_or(StopReason::EndTurn, StopReason::from_provider),
        );
    }
    Ok(())
}
