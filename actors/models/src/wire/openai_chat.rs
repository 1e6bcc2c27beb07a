//! OpenAI's chat completions (`POST /chat/completions`), which most servers of local models speak too.

use callboard_message::{RawObject, Speaker};
use serde::Deserialize;

use crate::request::{Block, Request, Tool, Turn, texts};

use super::super::request::{Draft, Stop};
use super::super::trouble::Trouble;
use super::{Ask, ProviderError, TokenUsage, note};

pub(super) fn body(
    request: &Request,
    ask: Ask<'_>,
    tokens_max: &str,
) -> Result<RawObject, Trouble> {
    let mut messages = Vec::new();
    if let Some(system) = &request.system {
        messages.push(RawObject::of("role", "system").with("content", system));
    }
    for turn in &request.turns {
        match turn.speaker {
            Speaker::User => user(turn, &mut messages)?,
            Speaker::Assistant => messages.push(assistant(turn)?),
        }
    }
    let mut body = RawObject::of("model", ask.model).with("messages", messages);
    body.set(tokens_max, ask.tokens_max);
    body.set_some("temperature", &request.temperature);
    if !request.stop.is_empty() {
        body.set("stop", &request.stop);
    }
    if !request.tools.is_empty() {
        body.set("tools", request.tools.iter().map(tool).collect::<Vec<_>>());
        body.set("tool_choice", request.choice);
    }
    body.set("stream", ask.stream);
    if ask.stream {
        body.set("stream_options", RawObject::of("include_usage", true));
    }
    Ok(body)
}

pub(super) fn tool(tool: &Tool) -> RawObject {
    let mut function = RawObject::of("name", &tool.name);
    function.set_some("description", &tool.description);
    RawObject::of("type", "function").with("function", function.with("parameters", &tool.schema))
}

/// A turn of the user's: results of tools are messages of their own, and what of them isn't text comes after them.
fn user(turn: &Turn, messages: &mut Vec<RawObject>) -> Result<(), Trouble> {
    let mut parts = Vec::new();
    for block in &turn.blocks {
        if let Block::ToolResult { id, blocks, .. } = block {
            let message = RawObject::of("role", "tool").with("tool_call_id", id);
            messages.push(message.with("content", texts(blocks)));
            parts.extend(
                blocks
                    .iter()
                    .filter(|block| !matches!(block, Block::Text(_))),
            );
        } else {
            parts.push(block);
        }
    }
    let message = RawObject::of("role", "user");
    match &*parts {
        [] => {}
        [Block::Text(text)] => messages.push(message.with("content", text)),
        parts => {
            let parts = parts
                .iter()
                .map(|block| part(block))
                .collect::<Result<Vec<_>, _>>()?;
            messages.push(message.with("content", parts));
        }
    }
    Ok(())
}

fn part(block: &Block) -> Result<RawObject, Trouble> {
    Ok(match block {
        Block::Text(text) => RawObject::of("type", "text").with("text", text),
        Block::Image(media) => {
            let url = RawObject::of("url", media.url());
            RawObject::of("type", "image_url").with("image_url", url)
        }
        Block::Audio(media) => {
            let format = match &*media.mime_type {
                "audio/wav" | "audio/x-wav" | "audio/wave" => "wav",
                "audio/mpeg" | "audio/mp3" => "mp3",
                _ => return Err(Trouble::Unfit("sound other than WAV and MP3")),
            };
            let audio = RawObject::of("data", &media.data).with("format", format);
            RawObject::of("type", "input_audio").with("input_audio", audio)
        }
        Block::ToolUse { .. } | Block::ToolResult { .. } => {
            return Err(Trouble::Unfit("a tool's block in this place"));
        }
    })
}

fn assistant(turn: &Turn) -> Result<RawObject, Trouble> {
    let mut calls = Vec::new();
    for block in &turn.blocks {
        match block {
            Block::Text(_) => {}
            Block::ToolUse { id, name, input } => {
                let function = RawObject::of("name", name).with("arguments", input.get());
                calls.push(
                    RawObject::of("id", id)
                        .with("type", "function")
                        .with("function", function),
                );
            }
            _ => return Err(Trouble::Unfit("pictures or sound by the assistant")),
        }
    }
    let message = RawObject::of("role", "assistant").with("content", texts(&turn.blocks));
    Ok(if calls.is_empty() {
        message
    } else {
        message.with("tool_calls", calls)
    })
}

/// An answer, or a piece of one.
#[derive(Deserialize)]
pub(super) struct Completion {
    model: Option<String>,
    #[serde(default)]
    choices: Vec<ChoiceSaid>,
    usage: Option<TokenUsage>,
    error: Option<ProviderError>,
}

#[derive(Deserialize)]
struct ChoiceSaid {
    message: Option<Said>,
    delta: Option<Said>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Said {
    content: Option<String>,
    refusal: Option<String>,
    #[serde(default)]
    tool_calls: Option<Vec<Call>>,
}

#[derive(Deserialize)]
struct Call {
    index: Option<u64>,
    id: Option<String>,
    function: Option<Function>,
}

#[derive(Deserialize)]
struct Function {
    name: Option<String>,
    arguments: Option<String>,
}

pub(super) fn whole(said: Completion, draft: &mut Draft) -> Result<(), Trouble> {
    if said.error.is_none() && said.choices.is_empty() {
        return Err(Trouble::Malformed("it has no choice"));
    }
    piece(said, draft)?;
    draft.is_whole = true;
    Ok(())
}

pub(super) fn piece(said: Completion, draft: &mut Draft) -> Result<(), Trouble> {
    if let Some(error) = said.error {
        return Err(error.trouble());
    }
    draft.model = said.model.or(draft.model.take());
    note(said.usage, draft);
    // One answer was asked for.
    let Some(choice) = said.choices.into_iter().next() else {
        return Ok(());
    };
    if let Some(said) = choice.message.or(choice.delta) {
        draft
            .text
            .push_str(said.content.as_deref().unwrap_or_default());
        if let Some(refusal) = said.refusal.filter(|refusal| !refusal.is_empty()) {
            draft.text.push_str(&refusal);
            draft.stop = Some(Stop::Refusal);
        }
        for call in said.tool_calls.unwrap_or_default() {
            let function = call.function.unwrap_or(Function {
                name: None,
                arguments: None,
            });
            let (id, arguments) = (call.id.as_deref(), function.arguments.unwrap_or_default());
            match call.index {
                Some(index) => draft.tool(index, id, function.name.as_deref(), &arguments)?,
                None => draft.tool_whole(
                    id,
                    function.name.as_deref().unwrap_or_default(),
                    &arguments,
                )?,
            }
        }
    }
    if let Some(reason) = choice.finish_reason {
        draft.is_whole = true;
        draft.stop.get_or_insert(Stop::of(&reason));
    }
    Ok(())
}
