//! Wire format of OpenAI's chat completions (`POST /chat/completions`), supported by most servers
//! of local models.

use callboard_message::{RawObject, Speaker};
use serde::Deserialize;

use crate::request::{ContentBlock, ModelRequest, ToolSpec, Turn, join_texts};

use super::super::provider_failure::ProviderFailure;
use super::super::request::{AnswerDraft, StopReason};
use super::{BodyOptions, ErrorBody, UsageBody, record_usage};

pub(super) fn request_body(
    request: &ModelRequest,
    ask: BodyOptions<'_>,
    tokens_max: &str,
) -> Result<RawObject, ProviderFailure> {
    let mut messages = Vec::new();
    if let Some(system) = &request.system {
        messages.push(RawObject::single("role", "system").with("content", system));
    }
    for turn in &request.turns {
        match turn.speaker {
            Speaker::User => push_user_messages(turn, &mut messages)?,
            Speaker::Assistant => messages.push(assistant_message(turn)?),
        }
    }
    let mut body = RawObject::single("model", ask.model).with("messages", messages);
    body.set(tokens_max, ask.tokens_max);
    body.set_some("temperature", &request.temperature);
    if !request.stop_sequences.is_empty() {
        body.set("stop", &request.stop_sequences);
    }
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
    body.set("stream", ask.stream);
    if ask.stream {
        body.set("stream_options", RawObject::single("include_usage", true));
    }
    Ok(body)
}

pub(super) fn tool_definition(tool: &ToolSpec) -> RawObject {
    let mut function = RawObject::single("name", &tool.name);
    function.set_some("description", &tool.description);
    RawObject::single("type", "function")
        .with("function", function.with("parameters", &tool.schema))
}

/// Appends the messages of a user turn. Each tool result becomes a message of its own. The images
/// and audio of all results follow in one user message.
///
/// # Errors
/// `Unsupported` for audio other than WAV and MP3.
fn push_user_messages(turn: &Turn, messages: &mut Vec<RawObject>) -> Result<(), ProviderFailure> {
    let mut parts = Vec::new();
    for block in &turn.blocks {
        if let ContentBlock::ToolResult { id, blocks, .. } = block {
            let message = RawObject::single("role", "tool").with("tool_call_id", id);
            messages.push(message.with("content", join_texts(blocks)));
            parts.extend(
                blocks
                    .iter()
                    .filter(|block| !matches!(block, ContentBlock::Text(_))),
            );
        } else {
            parts.push(block);
        }
    }
    let message = RawObject::single("role", "user");
    match &*parts {
        [] => {}
        [ContentBlock::Text(text)] => messages.push(message.with("content", text)),
        parts => {
            let parts = parts
                .iter()
                .map(|block| content_part(block))
                .collect::<Result<Vec<_>, _>>()?;
            messages.push(message.with("content", parts));
        }
    }
    Ok(())
}

fn content_part(block: &ContentBlock) -> Result<RawObject, ProviderFailure> {
    Ok(match block {
        ContentBlock::Text(text) => RawObject::single("type", "text").with("text", text),
        ContentBlock::Image(media) => {
            let url = RawObject::single("url", media.to_data_url());
            RawObject::single("type", "image_url").with("image_url", url)
        }
        ContentBlock::Audio(media) => {
            let format = match &*media.mime_type {
                "audio/wav" | "audio/x-wav" | "audio/wave" => "wav",
                "audio/mpeg" | "audio/mp3" => "mp3",
                _ => return Err(ProviderFailure::Unsupported("audio other than WAV and MP3")),
            };
            let audio = RawObject::single("data", &media.data).with("format", format);
            RawObject::single("type", "input_audio").with("input_audio", audio)
        }
        ContentBlock::ToolUse { .. } | ContentBlock::ToolResult { .. } => {
            return Err(ProviderFailure::Unsupported(
                "a tool use or tool result in this place",
            ));
        }
    })
}

fn assistant_message(turn: &Turn) -> Result<RawObject, ProviderFailure> {
    let mut calls = Vec::new();
    for block in &turn.blocks {
        match block {
            ContentBlock::Text(_) => {}
            ContentBlock::ToolUse { id, name, input } => {
                let function = RawObject::single("name", name).with("arguments", input.get());
                calls.push(
                    RawObject::single("id", id)
                        .with("type", "function")
                        .with("function", function),
                );
            }
            _ => {
                return Err(ProviderFailure::Unsupported(
                    "images or audio in a message of the assistant",
                ));
            }
        }
    }
    let message = RawObject::single("role", "assistant").with("content", join_texts(&turn.blocks));
    Ok(if calls.is_empty() {
        message
    } else {
        message.with("tool_calls", calls)
    })
}

/// Complete answer, or a piece of one.
#[derive(Deserialize)]
pub(super) struct Completion {
    model: Option<String>,
    #[serde(default)]
    choices: Vec<CompletionChoice>,
    usage: Option<UsageBody>,
    error: Option<ErrorBody>,
}

#[derive(Deserialize)]
struct CompletionChoice {
    message: Option<CompletionMessage>,
    delta: Option<CompletionMessage>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct CompletionMessage {
    content: Option<String>,
    refusal: Option<String>,
    #[serde(default)]
    tool_calls: Option<Vec<CompletionToolCall>>,
}

#[derive(Deserialize)]
struct CompletionToolCall {
    index: Option<u64>,
    id: Option<String>,
    function: Option<FunctionCall>,
}

#[derive(Deserialize)]
struct FunctionCall {
    name: Option<String>,
    arguments: Option<String>,
}

pub(super) fn read_answer(
    said: Completion,
    draft: &mut AnswerDraft,
) -> Result<(), ProviderFailure> {
    if said.error.is_none() && said.choices.is_empty() {
        return Err(ProviderFailure::Malformed("`choices` is empty"));
    }
    read_piece(said, draft)?;
    draft.is_complete = true;
    Ok(())
}

pub(super) fn read_piece(said: Completion, draft: &mut AnswerDraft) -> Result<(), ProviderFailure> {
    if let Some(error) = said.error {
        return Err(error.to_failure());
    }
    draft.model = said.model.or(draft.model.take());
    record_usage(said.usage, draft);
    // Only one answer was requested.
    let Some(choice) = said.choices.into_iter().next() else {
        return Ok(());
    };
    if let Some(said) = choice.message.or(choice.delta) {
        draft
            .text
            .push_str(said.content.as_deref().unwrap_or_default());
        if let Some(refusal) = said.refusal.filter(|refusal| !refusal.is_empty()) {
            draft.text.push_str(&refusal);
            draft.stop_reason = Some(StopReason::Refusal);
        }
        for call in said.tool_calls.unwrap_or_default() {
            let function = call.function.unwrap_or(FunctionCall {
                name: None,
                arguments: None,
            });
            let (id, arguments) = (call.id.as_deref(), function.arguments.unwrap_or_default());
            match call.index {
                Some(index) => {
                    draft.add_tool_use(index, id, function.name.as_deref(), &arguments)?
                }
                None => draft.add_complete_tool_use(
                    id,
                    function.name.as_deref().unwrap_or_default(),
                    &arguments,
                )?,
            }
        }
    }
    if let Some(reason) = choice.finish_reason {
        draft.is_complete = true;
        draft
            .stop_reason
            .get_or_insert(StopReason::from_provider(&reason));
    }
    Ok(())
}
