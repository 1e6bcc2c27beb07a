//! Ollama's own API (`POST /api/chat`): its pieces have the shape of the whole.

use callboard_message::{RawObject, Speaker};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::request::{Block, Choice, Request, Turn, texts};

use super::super::request::{Draft, Stop};
use super::super::trouble::Trouble;
use super::{Ask, openai_chat};

pub(super) fn body(request: &Request, ask: Ask<'_>) -> Result<RawObject, Trouble> {
    let mut messages = Vec::new();
    if let Some(system) = &request.system {
        messages.push(RawObject::of("role", "system").with("content", system));
    }
    for turn in &request.turns {
        say(request, turn, &mut messages)?;
    }
    let mut options = RawObject::of("num_predict", ask.tokens_max);
    options.set_some("temperature", &request.temperature);
    if !request.stop.is_empty() {
        options.set("stop", &request.stop);
    }
    let mut body = RawObject::of("model", ask.model).with("messages", messages);
    match request.choice {
        _ if request.tools.is_empty() => {}
        Choice::Auto => body.set(
            "tools",
            request
                .tools
                .iter()
                .map(openai_chat::tool)
                .collect::<Vec<_>>(),
        ),
        // It knows no choice: not offering them is the same.
        Choice::None => {}
        Choice::Required => return Err(Trouble::Unfit("a tool that must be used")),
    }
    Ok(body.with("stream", ask.stream).with("options", options))
}

fn say(request: &Request, turn: &Turn, messages: &mut Vec<RawObject>) -> Result<(), Trouble> {
    let (mut images, mut calls, mut is_message) = (Vec::new(), Vec::new(), turn.blocks.is_empty());
    for block in &turn.blocks {
        match block {
            Block::Text(_) => is_message = true,
            Block::Image(media) => images.push(&media.data),
            Block::Audio(_) => return Err(Trouble::Unfit("sound")),
            Block::ToolUse { name, input, .. } => {
                let function = RawObject::of("name", name).with("arguments", input);
                calls.push(RawObject::of("function", function));
            }
            Block::ToolResult { id, blocks, .. } => messages.push(result(request, id, blocks)?),
        }
    }
    if !is_message && images.is_empty() && calls.is_empty() {
        return Ok(());
    }
    let mut message = RawObject::of("role", turn.speaker).with("content", texts(&turn.blocks));
    if !images.is_empty() {
        if turn.speaker == Speaker::Assistant {
            return Err(Trouble::Unfit("pictures by the assistant"));
        }
        message.set("images", images);
    }
    if !calls.is_empty() {
        message.set("tool_calls", calls);
    }
    messages.push(message);
    Ok(())
}

/// A result names its tool, for the API has no ids.
fn result(request: &Request, id: &str, blocks: &[Block]) -> Result<RawObject, Trouble> {
    let mut images = Vec::new();
    for block in blocks {
        match block {
            Block::Image(media) => images.push(&media.data),
            Block::Audio(_) => return Err(Trouble::Unfit("sound")),
            _ => {}
        }
    }
    let message =
        RawObject::of("role", "tool").with("tool_name", request.tool_of(id).unwrap_or_default());
    let message = message.with("content", texts(blocks));
    Ok(if images.is_empty() {
        message
    } else {
        message.with("images", images)
    })
}

/// An answer, or a piece of one.
#[derive(Deserialize)]
pub(super) struct Said {
    model: Option<String>,
    message: Option<MessageSaid>,
    #[serde(default)]
    done: bool,
    done_reason: Option<String>,
    prompt_eval_count: Option<u64>,
    eval_count: Option<u64>,
    /// A sentence.
    error: Option<String>,
}

#[derive(Deserialize)]
struct MessageSaid {
    content: Option<String>,
    tool_calls: Option<Vec<Call>>,
}

#[derive(Deserialize)]
struct Call {
    function: Function,
}

#[derive(Deserialize)]
struct Function {
    name: String,
    arguments: Option<Box<RawValue>>,
}

pub(super) fn piece(said: Said, draft: &mut Draft) -> Result<(), Trouble> {
    if said.error.is_some() {
        return Err(Trouble::Told {
            code: None,
            again: false,
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
            draft.tool_whole(None, &call.function.name, input)?;
        }
    }
    draft.input_tokens = said.prompt_eval_count.or(draft.input_tokens);
    draft.output_tokens = said.eval_count.or(draft.output_tokens);
    if said.done {
        draft.is_whole = true;
        draft.stop = Some(said.done_reason.as_deref().map_or(Stop::EndTurn, Stop::of));
    }
    Ok(())
}
