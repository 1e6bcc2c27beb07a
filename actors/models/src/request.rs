//! Provider-independent request, parsed once from the params of `sampling/createMessage` (MCP
//! 2025-11-25, client/sampling).

use std::collections::HashSet;

use callboard_message::capabilities::CreateMessage;
use callboard_message::{Content, Failure, RawObject, SamplingAnswer, Speaker};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::AskModel;
use super::provider_failure::ProviderFailure;

/// Maximum content blocks of one conversation. More are rejected with `InvalidInput`. Fixed.
pub const MODEL_BLOCKS_MAX: usize = 4_096;
/// Maximum tools in one request. More are rejected with `InvalidInput`. Fixed.
pub const MODEL_TOOLS_MAX: usize = 256;
/// Key in `_meta` of the params of `sampling/createMessage`. `true` streams the text to the caller
/// while it is written, as pieces of one artifact ([`STREAM_ARTIFACT`](crate::STREAM_ARTIFACT)).
pub const STREAM_KEY: &str = "callboard/stream";
/// Estimated tokens of an image or audio block, until the provider reports the number.
const MEDIA_TOKENS_ESTIMATE: u64 = 1_500;
/// Estimated bytes of text per token, until the provider reports the number.
const BYTES_PER_TOKEN: u64 = 4;

/// Conversation to be continued by the model.
#[derive(Clone, Default)]
pub(super) struct ModelRequest {
    pub system: Option<String>,
    pub turns: Vec<Turn>,
    /// Maximum tokens of the answer; `None` uses the model's limit.
    pub tokens_max: Option<u32>,
    pub temperature: Option<f64>,
    pub stop_sequences: Vec<String>,
    pub tools: Vec<ToolSpec>,
    pub tool_choice: ToolChoiceMode,
    /// Whether the text is streamed to the caller.
    pub stream: bool,
}

#[derive(Clone)]
pub(super) struct Turn {
    pub speaker: Speaker,
    pub blocks: Vec<ContentBlock>,
}

#[derive(Clone)]
pub(super) enum ContentBlock {
    Text(String),
    Image(MediaContent),
    Audio(MediaContent),
    ToolUse {
        id: String,
        name: String,
        input: Box<RawValue>,
    },
    /// Result of a tool; `blocks` are texts, images and audio.
    ToolResult {
        id: String,
        blocks: Vec<ContentBlock>,
        is_error: bool,
    },
}

/// Base64-encoded image or audio.
#[derive(Clone)]
pub(super) struct MediaContent {
    pub mime_type: String,
    pub data: String,
}

impl MediaContent {
    /// Returns a `data:` URL (RFC 2397).
    pub fn to_data_url(&self) -> String {
        format!("data:{};base64,{}", self.mime_type, self.data)
    }
}

#[derive(Clone)]
pub(super) struct ToolSpec {
    pub name: String,
    pub description: Option<String>,
    pub schema: Box<RawValue>,
}

/// Whether the model may, must or must not call tools.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ToolChoiceMode {
    #[default]
    Auto,
    Required,
    None,
}

impl ModelRequest {
    /// Creates a request with one user turn.
    ///
    /// # Errors
    /// `InvalidInput`, as [`ModelRequest::parse`].
    pub fn from_prompt(ask: AskModel) -> Result<Self, Failure> {
        let turn = Turn {
            speaker: Speaker::User,
            blocks: vec![ContentBlock::Text(ask.prompt)],
        };
        let (system, tokens_max) = (ask.system_prompt, ask.max_tokens);
        let request = Self {
            system,
            turns: vec![turn],
            tokens_max,
            ..Self::default()
        };
        request.validate()?;
        Ok(request)
    }

    /// Parses the params of a request.
    ///
    /// # Errors
    /// `InvalidInput` naming the invalid member, without its content.
    pub fn parse(params: &CreateMessage) -> Result<Self, Failure> {
        let params = &params.0;
        let turns: Vec<RawObject> = required_member(params, "messages", "an array of objects")?;
        let tools: Vec<RawObject> =
            optional_member(params, "tools", "an array of objects")?.unwrap_or_default();
        if tools.len() > MODEL_TOOLS_MAX {
            return Err(Failure::invalid(format!(
                "`tools` has {} entries, more than {MODEL_TOOLS_MAX}",
                tools.len()
            )));
        }
        let request = Self {
            system: optional_member(params, "systemPrompt", "a string")?,
            turns: turns.iter().map(Turn::parse).collect::<Result<_, _>>()?,
            tokens_max: optional_member(params, "maxTokens", "a whole number of tokens")?,
            temperature: optional_member(params, "temperature", "a number")?,
            stop_sequences: optional_member(params, "stopSequences", "an array of strings")?
                .unwrap_or_default(),
            tools: tools
                .iter()
                .map(ToolSpec::parse)
                .collect::<Result<_, _>>()?,
            tool_choice: ToolChoiceMode::parse(
                optional_member(params, "toolChoice", "an object")?.as_ref(),
            )?,
            stream: params
                .object("_meta")
                .and_then(|meta| meta.read(STREAM_KEY))
                .unwrap_or_default(),
        };
        request.validate()?;
        Ok(request)
    }

    /// Checks the rules for requests that hold for all providers: number of turns, tokens and
    /// blocks, and that each tool call has its result.
    ///
    /// # Errors
    /// `InvalidInput` with the broken rule.
    fn validate(&self) -> Result<(), Failure> {
        if self.turns.is_empty() {
            return Err(Failure::invalid("`messages` is empty"));
        }
        if self.tokens_max == Some(0) {
            return Err(Failure::invalid("`maxTokens` must be at least 1"));
        }
        if self.blocks().count() > MODEL_BLOCKS_MAX {
            return Err(Failure::invalid(format!(
                "the messages have more than {MODEL_BLOCKS_MAX} content blocks: shorten the conversation"
            )));
        }
        let mut open = HashSet::new();
        for turn in &self.turns {
            turn.validate(&mut open)?;
        }
        if open.is_empty() {
            Ok(())
        } else {
            Err(missing_tool_result())
        }
    }

    fn blocks(&self) -> impl Iterator<Item = &ContentBlock> {
        self.turns.iter().flat_map(|turn| &turn.blocks)
    }

    /// Estimates the number of input tokens.
    pub fn tokens_estimate(&self) -> u64 {
        let texts = self
            .system
            .iter()
            .map(|system| system.len() as u64 / BYTES_PER_TOKEN);
        let tools = self.tools.iter().map(ToolSpec::tokens_estimate);
        let blocks = self.blocks().map(ContentBlock::tokens_estimate);
        texts.chain(tools).chain(blocks).sum::<u64>() + 1
    }

    /// Returns the text blocks of the last turn, one per line; empty if it has none.
    pub fn last_text(&self) -> String {
        self.turns
            .last()
            .map(|turn| join_texts(&turn.blocks))
            .unwrap_or_default()
    }

    /// Returns the number of tool calls in the conversation.
    pub fn tool_use_count(&self) -> usize {
        self.blocks()
            .filter(|block| matches!(block, ContentBlock::ToolUse { .. }))
            .count()
    }

    /// Returns the name of the tool in the tool call with this id; `None` if there is no such call.
    pub fn tool_name_of_use(&self, use_id: &str) -> Option<&str> {
        self.blocks().find_map(|block| match block {
            ContentBlock::ToolUse { id, name, .. } if id == use_id => Some(&**name),
            _ => None,
        })
    }
}

/// Estimates the tokens of a text of `bytes` bytes.
fn estimate_tokens(bytes: usize) -> u64 {
    bytes as u64 / BYTES_PER_TOKEN + 1
}

/// Joins the text blocks, one per line.
pub(super) fn join_texts(blocks: &[ContentBlock]) -> String {
    let texts = blocks.iter().filter_map(|block| match block {
        ContentBlock::Text(text) => Some(&**text),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

impl Turn {
    fn parse(turn: &RawObject) -> Result<Self, Failure> {
        let speaker = required_member(turn, "role", "`user` or `assistant`")?;
        let content = turn
            .get("content")
            .ok_or_else(|| Failure::invalid("a message has no `content`"))?;
        let blocks: Vec<RawObject> = match content.get().as_bytes().first() {
            Some(b'[') => serde_json::from_str(content.get())
                .map_err(|_| invalid_member("content", "a block or an array of blocks"))?,
            _ => vec![
                RawObject::parse(content)
                    .map_err(|_| invalid_member("content", "a block or an array of blocks"))?,
            ],
        };
        Ok(Self {
            speaker,
            blocks: blocks
                .iter()
                .map(ContentBlock::parse)
                .collect::<Result<_, _>>()?,
        })
    }

    /// Checks that each tool call is answered in the next turn, which contains only results (MCP
    /// client/sampling, "Tool Result Messages"). `open` has the ids of the tool calls of the
    /// previous turn, and afterwards those of this turn.
    ///
    /// # Errors
    /// `InvalidInput` with the broken rule.
    fn validate<'a>(&'a self, open: &mut HashSet<&'a str>) -> Result<(), Failure> {
        let is_result = |block: &ContentBlock| matches!(block, ContentBlock::ToolResult { .. });
        let results = self.blocks.iter().filter(|block| is_result(block)).count();
        if results > 0 && (results < self.blocks.len() || self.speaker == Speaker::Assistant) {
            return Err(Failure::invalid(
                "tool results must be alone in a message with the role `user`",
            ));
        }
        for block in &self.blocks {
            if let ContentBlock::ToolResult { id, .. } = block
                && !open.remove(&**id)
            {
                return Err(Failure::invalid(
                    "a tool result matches no tool use of the previous message",
                ));
            }
        }
        if !open.is_empty() {
            return Err(missing_tool_result());
        }
        for block in &self.blocks {
            match block {
                ContentBlock::ToolUse { .. } if self.speaker == Speaker::User => {
                    return Err(Failure::invalid(
                        "tool uses must be in a message with the role `assistant`",
                    ));
                }
                ContentBlock::ToolUse { id, .. } if !open.insert(id) => {
                    return Err(Failure::invalid("two tool uses have the same id"));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl ContentBlock {
    fn parse(block: &RawObject) -> Result<Self, Failure> {
        let kind: String = required_member(block, "type", "a string")?;
        Ok(match &*kind {
            "text" => Self::Text(required_member(block, "text", "a string")?),
            "image" => Self::Image(MediaContent::parse(block, "image/")?),
            "audio" => Self::Audio(MediaContent::parse(block, "audio/")?),
            "tool_use" => Self::ToolUse {
                id: required_member(block, "id", "a string")?,
                name: required_member(block, "name", "a string")?,
                input: required_member::<RawObject>(block, "input", "an object")?.to_raw(),
            },
            "tool_result" => Self::ToolResult {
                id: required_member(block, "toolUseId", "a string")?,
                blocks: result_blocks(block)?,
                is_error: optional_member(block, "isError", "true or false")?.unwrap_or(false),
            },
            _ => {
                return Err(Failure::invalid(
                    "content block has an unsupported `type`: use text, image or resource",
                ));
            }
        })
    }

    fn tokens_estimate(&self) -> u64 {
        match self {
            Self::Text(text) => estimate_tokens(text.len()),
            Self::Image(_) | Self::Audio(_) => MEDIA_TOKENS_ESTIMATE,
            Self::ToolUse { name, input, .. } => estimate_tokens(name.len() + input.get().len()),
            Self::ToolResult { blocks, .. } => blocks.iter().map(Self::tokens_estimate).sum(),
        }
    }
}

/// Converts a tool result to texts, images and audio. `structuredContent` is used only without any
/// content block. A resource becomes its text, or else its URI.
///
/// # Errors
/// `InvalidInput` for an invalid block or one of another type.
fn result_blocks(result: &RawObject) -> Result<Vec<ContentBlock>, Failure> {
    let blocks: Vec<RawObject> =
        optional_member(result, "content", "an array of blocks")?.unwrap_or_default();
    let structured = result
        .get("structuredContent")
        .filter(|_| blocks.is_empty());
    if let Some(structured) = structured {
        return Ok(vec![ContentBlock::Text(structured.get().to_owned())]);
    }
    blocks.iter().map(result_block).collect()
}

fn result_block(block: &RawObject) -> Result<ContentBlock, Failure> {
    match block.text("type").as_deref() {
        Some("text" | "image" | "audio") => ContentBlock::parse(block),
        Some("resource_link") => Ok(ContentBlock::Text(required_member(
            block, "uri", "a string",
        )?)),
        Some("resource") => {
            let resource: RawObject = required_member(block, "resource", "an object")?;
            Ok(ContentBlock::Text(
                resource
                    .text("text")
                    .or_else(|| resource.text("uri"))
                    .unwrap_or_default(),
            ))
        }
        _ => Err(Failure::invalid(
            "content block of a tool result has an unsupported `type`: use text, image or resource",
        )),
    }
}

impl MediaContent {
    fn parse(block: &RawObject, family: &str) -> Result<Self, Failure> {
        let mime_type: String = required_member(block, "mimeType", "a string")?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '+' | '-' | '.');
        if !mime_type.starts_with(family) || !mime_type.chars().all(is_plain) {
            return Err(invalid_member(
                "mimeType",
                &format!("a media type that begins with `{family}`"),
            ));
        }
        Ok(Self {
            mime_type,
            data: required_member(block, "data", "base64 text")?,
        })
    }
}

impl ToolSpec {
    fn parse(tool: &RawObject) -> Result<Self, Failure> {
        let schema: RawObject = required_member(tool, "inputSchema", "an object")?;
        let (name, description) = (
            required_member(tool, "name", "a string")?,
            optional_member(tool, "description", "a string")?,
        );
        Ok(Self {
            name,
            description,
            schema: schema.to_raw(),
        })
    }

    fn tokens_estimate(&self) -> u64 {
        estimate_tokens(
            self.name.len()
                + self.description.as_ref().map_or(0, String::len)
                + self.schema.get().len(),
        )
    }
}

impl ToolChoiceMode {
    fn parse(choice: Option<&RawObject>) -> Result<Self, Failure> {
        match choice.and_then(|choice| choice.text("mode")).as_deref() {
            None | Some("auto") => Ok(Self::Auto),
            Some("required") => Ok(Self::Required),
            Some("none") => Ok(Self::None),
            Some(_) => Err(invalid_member(
                "toolChoice.mode",
                "`auto`, `required` or `none`",
            )),
        }
    }
}

/// Model hints and priorities of a request: `modelPreferences`.
#[derive(Debug, Clone, Default)]
pub(super) struct ModelPreferences {
    /// Parts of model names in lower case, the preferred first.
    pub hints: Vec<String>,
    /// Weights of cost, speed and intelligence, each from 0 to 1; 0 if the request has none.
    pub weights: [f64; 3],
}

impl ModelPreferences {
    /// Parses the preferences. Invalid ones are ignored, because preferences are advisory.
    pub fn parse(params: &CreateMessage) -> Self {
        let preferences = params.0.object("modelPreferences").unwrap_or_default();
        let hints: Vec<Value> = preferences.read("hints").unwrap_or_default();
        let names = hints
            .iter()
            .filter_map(|hint| hint["name"].as_str())
            .filter(|name| !name.is_empty());
        let weights = ["costPriority", "speedPriority", "intelligencePriority"];
        Self {
            hints: names.map(str::to_lowercase).collect(),
            weights: weights
                .map(|name| preferences.read::<f64>(name).unwrap_or(0.0).clamp(0.0, 1.0)),
        }
    }
}

/// Creates a `tool_use` block of MCP.
fn tool_use_block(id: &str, name: &str, input: &RawValue) -> Content {
    Content(
        RawObject::single("type", "tool_use")
            .with("id", id)
            .with("name", name)
            .with("input", input),
    )
}

fn required_member<T: DeserializeOwned>(
    from: &RawObject,
    name: &str,
    shape: &str,
) -> Result<T, Failure> {
    optional_member(from, name, shape)?.ok_or_else(|| invalid_member(name, shape))
}

fn optional_member<T: DeserializeOwned>(
    from: &RawObject,
    name: &str,
    shape: &str,
) -> Result<Option<T>, Failure> {
    match from.get(name) {
        None => Ok(None),
        Some(value) if value.get() == "null" => Ok(None),
        Some(value) => serde_json::from_str(value.get())
            .map(Some)
            .map_err(|_| invalid_member(name, shape)),
    }
}

fn invalid_member(name: &str, shape: &str) -> Failure {
    Failure::invalid(format!("`{name}` must be {shape}"))
}

fn missing_tool_result() -> Failure {
    Failure::invalid("a tool use has no result in the next message")
}

/// Key in `_meta` of an answer: token usage as `{"inputTokens": n, "outputTokens": n}`.
pub const USAGE_KEY: &str = "callboard/usage";
/// Key in `_meta` of an answer: name of the model's provider, such as `openai`.
pub const PROVIDER_KEY: &str = "callboard/provider";
/// Maximum tool calls in one answer. More fail as `Unavailable`. Fixed.
pub const MODEL_TOOL_USES_MAX: usize = 64;

/// Token usage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct TokenCounts {
    pub input: u64,
    pub output: u64,
}

impl TokenCounts {
    pub fn total(self) -> u64 {
        self.input.saturating_add(self.output)
    }
}

/// Answer under construction.
#[derive(Default)]
pub(super) struct AnswerDraft {
    /// Model name reported by the provider.
    pub model: Option<String>,
    pub text: String,
    tool_uses: Vec<DraftToolUse>,
    pub stop_reason: Option<StopReason>,
    pub input_tokens: Option<u64>,
    pub output_tokens: Option<u64>,
    /// Whether the provider reported the end of the answer.
    pub is_complete: bool,
}

#[derive(Default)]
struct DraftToolUse {
    /// Index of the tool call in the provider's stream.
    place: u64,
    id: String,
    name: String,
    input: String,
}

/// Reason that an answer ended, by its MCP name if there is one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum StopReason {
    EndTurn,
    MaxTokens,
    #[serde(rename = "stopSequence")]
    Sequence,
    ToolUse,
    ContentFilter,
    Refusal,
    PauseTurn,
    Other,
    /// Name given by a script.
    #[serde(untagged)]
    Named(String),
}

impl StopReason {
    /// Converts a provider's stop reason; an unknown one becomes `Other`. One function serves all
    /// providers, because their names for stop reasons don't conflict.
    pub fn from_provider(reason: &str) -> Self {
        match reason {
            "end_turn" | "stop" => Self::EndTurn,
            "max_tokens" | "model_context_window_exceeded" | "length" | "max_output_tokens" => {
                Self::MaxTokens
            }
            "stop_sequence" => Self::Sequence,
            "tool_use" | "tool_calls" | "function_call" => Self::ToolUse,
            "content_filter" => Self::ContentFilter,
            "refusal" => Self::Refusal,
            "pause_turn" => Self::PauseTurn,
            _ => Self::Other,
        }
    }
}

impl AnswerDraft {
    /// Creates a complete text answer.
    pub fn from_text(text: String) -> Self {
        Self {
            text,
            stop_reason: Some(StopReason::EndTurn),
            is_complete: true,
            ..Self::default()
        }
    }

    fn find_tool_use(&mut self, place: u64) -> Option<&mut DraftToolUse> {
        self.tool_uses.iter_mut().find(|used| used.place == place)
    }

    /// Begins or continues the tool call with the provider's index `place`: sets the id and name if
    /// they are given and not empty, and appends to the input.
    ///
    /// # Errors
    /// `TooLarge` for a further call beyond [`MODEL_TOOL_USES_MAX`].
    pub fn add_tool_use(
        &mut self,
        place: u64,
        id: Option<&str>,
        name: Option<&str>,
        input: &str,
    ) -> Result<(), ProviderFailure> {
        if self.find_tool_use(place).is_none() {
            if self.tool_uses.len() == MODEL_TOOL_USES_MAX {
                return Err(ProviderFailure::TooLarge);
            }
            self.tool_uses.push(DraftToolUse {
                place,
                ..DraftToolUse::default()
            });
        }
        // The entry exists: it was found or has just been added.
        let Some(used) = self.find_tool_use(place) else {
            return Ok(());
        };
        if let Some(id) = id.filter(|id| !id.is_empty()) {
            id.clone_into(&mut used.id);
        }
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            name.clone_into(&mut used.name);
        }
        used.input.push_str(input);
        Ok(())
    }

    /// Adds a complete tool call. `input` is a JSON object; without an `id`, one is generated for
    /// the answer.
    ///
    /// # Errors
    /// `TooLarge` beyond [`MODEL_TOOL_USES_MAX`] calls.
    pub fn add_complete_tool_use(
        &mut self,
        id: Option<&str>,
        name: &str,
        input: &str,
    ) -> Result<(), ProviderFailure> {
        let place = self
            .tool_uses
            .iter()
            .map(|used| used.place + 1)
            .max()
            .unwrap_or(0);
        self.add_tool_use(place, id, Some(name), input)
    }

    /// Appends to the input of the tool call with the provider's index `place`. Ignored for an
    /// unknown index, because calls of the provider's own tools aren't recorded.
    pub fn append_tool_input(&mut self, place: u64, input: &str) {
        if let Some(used) = self.find_tool_use(place) {
            used.input.push_str(input);
        }
    }

    /// Replaces the streamed input of the tool call with the provider's index `place` by the
    /// complete input. Ignored for an unknown index.
    pub fn set_tool_input(&mut self, place: u64, input: &str) {
        if let Some(used) = self.find_tool_use(place) {
            input.clone_into(&mut used.input);
        }
    }

    /// Returns the number of bytes of the answer so far: text, and names and inputs of tool calls.
    pub fn written_bytes(&self) -> usize {
        self.text.len()
            + self
                .tool_uses
                .iter()
                .map(|used| used.name.len() + used.input.len())
                .sum::<usize>()
    }

    /// Returns the token usage. Numbers that the provider hasn't reported are estimated from the
    /// request and the answer so far.
    pub fn usage(&self, request: &ModelRequest) -> TokenCounts {
        TokenCounts {
            input: self
                .input_tokens
                .unwrap_or_else(|| request.tokens_estimate()),
            output: self
                .output_tokens
                .unwrap_or_else(|| estimate_tokens(self.written_bytes())),
        }
    }

    /// Cuts the text at the first stop sequence, for providers without stop sequences. If there is
    /// one, all tool calls are dropped, and the stop reason is [`StopReason::Sequence`].
    pub fn truncate_at_stop(&mut self, sequences: &[String]) {
        let found = sequences
            .iter()
            .filter(|s| !s.is_empty())
            .filter_map(|sequence| self.text.find(&**sequence));
        if let Some(at) = found.min() {
            self.text.truncate(at);
            self.tool_uses.clear();
            self.stop_reason = Some(StopReason::Sequence);
        }
    }

    /// Returns the result of `sampling/createMessage`. `model` is the name to use if the provider
    /// reported none. `micro_usd` is the cost in millionths of a US dollar, 0 if unknown.
    /// `used_before` is the number of tool calls in the conversation, from which generated ids of
    /// tool calls count on.
    ///
    /// # Errors
    /// `Malformed` if a tool's input isn't an object, unless the answer was cut at the token limit:
    /// such a call is left out.
    pub fn into_answer(
        self,
        model: &str,
        provider: &str,
        usage: TokenCounts,
        micro_usd: u64,
        used_before: usize,
    ) -> Result<SamplingAnswer, ProviderFailure> {
        let mut blocks = Vec::new();
        if !self.text.is_empty() || self.tool_uses.is_empty() {
            blocks.push(Content::text(&*self.text));
        }
        let stop = match self.stop_reason {
            // Some providers report `stop` together with a tool call.
            None | Some(StopReason::EndTurn) if !self.tool_uses.is_empty() => {
                Some(StopReason::ToolUse)
            }
            ref said => said.clone(),
        };
        for (at, used) in self.tool_uses.iter().enumerate() {
            // The input of the last call may be cut off at the token limit; such a call is dropped.
            let input = if used.input.trim().is_empty() {
                "{}"
            } else {
                &used.input
            };
            let parsed = serde_json::from_str::<&RawValue>(input)
                .ok()
                .filter(|raw| raw.get().starts_with('{'));
            match parsed {
                Some(input) => blocks.push(tool_use_block(
                    &used.id_or_numbered(used_before + at),
                    &used.name,
                    input,
                )),
                None if stop == Some(StopReason::MaxTokens) => {}
                None => {
                    return Err(ProviderFailure::Malformed(
                        "the input of a tool use is no JSON object",
                    ));
                }
            }
        }
        if blocks.is_empty() {
            blocks.push(Content::text(""));
        }
        let mut answer = RawObject::single("role", Speaker::Assistant);
        match &*blocks {
            [block] => answer.set("content", block),
            blocks => answer.set("content", blocks),
        }
        answer.set(
            "model",
            self.model
                .as_deref()
                .filter(|name| !name.is_empty())
                .unwrap_or(model),
        );
        answer.set_some("stopReason", &stop);
        let mut used =
            RawObject::single("inputTokens", usage.input).with("outputTokens", usage.output);
        if micro_usd > 0 {
            used.set("microUsd", micro_usd);
        }
        answer.set(
            "_meta",
            RawObject::single(USAGE_KEY, used).with(PROVIDER_KEY, provider),
        );
        Ok(SamplingAnswer(answer))
    }
}

impl DraftToolUse {
    /// Returns the id of the tool call, or `call_` and `number` if the provider gave none. `number`
    /// is the index of the call in the whole conversation, so the id is unique there.
    fn id_or_numbered(&self, number: usize) -> String {
        if self.id.is_empty() {
            format!("call_{number}")
        } else {
            self.id.clone()
        }
    }
}
