//! A request for an answer, read once from the params of `sampling/createMessage` (MCP 2025-11-25, client/sampling),
//! before any provider's shape is made of it.

use std::collections::HashSet;

use callboard_message::surface::CreateMessage;
use callboard_message::{Content, Failure, RawObject, SampleAnswer, Speaker};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::AskModel;
use super::trouble::Trouble;

/// Most blocks of one conversation.
pub const MODEL_BLOCKS_MAX: usize = 4_096;
/// Most tools that one request may offer.
pub const MODEL_TOOLS_MAX: usize = 256;
/// Member of `_meta` in the params of `sampling/createMessage`: `true` where the caller gets the text as it is written, as pieces
/// of one artifact ([`STREAM_ARTIFACT`](crate::STREAM_ARTIFACT)).
pub const STREAM_KEY: &str = "callboard/stream";
/// What a picture or a sound is taken to cost before the provider says, in tokens.
const MEDIA_TOKENS_ESTIMATE: u64 = 1_500;
/// How many bytes of text are taken for one token before the provider says.
const BYTES_A_TOKEN: u64 = 4;

/// A conversation to go on with.
#[derive(Clone, Default)]
pub(super) struct Request {
    pub system: Option<String>,
    pub turns: Vec<Turn>,
    /// Tokens that may be written.
    pub tokens_max: Option<u32>,
    pub temperature: Option<f64>,
    pub stop: Vec<String>,
    pub tools: Vec<Tool>,
    pub choice: Choice,
    /// Whether the caller gets the text while it is written.
    pub stream: bool,
}

#[derive(Clone)]
pub(super) struct Turn {
    pub speaker: Speaker,
    pub blocks: Vec<Block>,
}

#[derive(Clone)]
pub(super) enum Block {
    Text(String),
    Image(Media),
    Audio(Media),
    ToolUse {
        id: String,
        name: String,
        input: Box<RawValue>,
    },
    /// `blocks` are texts, pictures and sounds.
    ToolResult {
        id: String,
        blocks: Vec<Block>,
        is_error: bool,
    },
}

/// A picture or sound, as base64.
#[derive(Clone)]
pub(super) struct Media {
    pub mime_type: String,
    pub data: String,
}

impl Media {
    /// As a `data:` URL (RFC 2397).
    pub fn url(&self) -> String {
        format!("data:{};base64,{}", self.mime_type, self.data)
    }
}

#[derive(Clone)]
pub(super) struct Tool {
    pub name: String,
    pub description: Option<String>,
    pub schema: Box<RawValue>,
}

/// Whether tools may, must, or must not be used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Choice {
    #[default]
    Auto,
    Required,
    None,
}

impl Request {
    /// One turn of the user's.
    ///
    /// # Errors
    /// `InvalidInput` like [`Request::read`].
    pub fn prompt(ask: AskModel) -> Result<Self, Failure> {
        let turn = Turn {
            speaker: Speaker::User,
            blocks: vec![Block::Text(ask.prompt)],
        };
        let (system, tokens_max) = (ask.system_prompt, ask.max_tokens);
        let request = Self {
            system,
            turns: vec![turn],
            tokens_max,
            ..Self::default()
        };
        request.check()?;
        Ok(request)
    }

    /// Reads the params of a request.
    ///
    /// # Errors
    /// `InvalidInput`, which names the member that doesn't fit and never shows what it holds.
    pub fn read(params: &CreateMessage) -> Result<Self, Failure> {
        let params = &params.0;
        let turns: Vec<RawObject> = required(params, "messages", "an array of objects")?;
        let tools: Vec<RawObject> =
            optional(params, "tools", "an array of objects")?.unwrap_or_default();
        if tools.len() > MODEL_TOOLS_MAX {
            return Err(Failure::invalid(format!(
                "more than {MODEL_TOOLS_MAX} tools"
            )));
        }
        let request = Self {
            system: optional(params, "systemPrompt", "a string")?,
            turns: turns.iter().map(Turn::read).collect::<Result<_, _>>()?,
            tokens_max: optional(params, "maxTokens", "a whole number of tokens")?,
            temperature: optional(params, "temperature", "a number")?,
            stop: optional(params, "stopSequences", "an array of strings")?.unwrap_or_default(),
            tools: tools.iter().map(Tool::read).collect::<Result<_, _>>()?,
            choice: Choice::read(optional(params, "toolChoice", "an object")?.as_ref())?,
            stream: params
                .object("_meta")
                .and_then(|meta| meta.read(STREAM_KEY))
                .unwrap_or_default(),
        };
        request.check()?;
        Ok(request)
    }

    /// What no provider accepts is refused here, with the rule.
    fn check(&self) -> Result<(), Failure> {
        if self.turns.is_empty() {
            return Err(Failure::invalid("`messages` is empty"));
        }
        if self.tokens_max == Some(0) {
            return Err(Failure::invalid("`maxTokens` must be at least 1"));
        }
        if self.blocks().count() > MODEL_BLOCKS_MAX {
            return Err(Failure::invalid(format!(
                "more than {MODEL_BLOCKS_MAX} blocks of content"
            )));
        }
        let mut open = HashSet::new();
        for turn in &self.turns {
            turn.check(&mut open)?;
        }
        if open.is_empty() {
            Ok(())
        } else {
            Err(unanswered())
        }
    }

    fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.turns.iter().flat_map(|turn| &turn.blocks)
    }

    /// What it may cost to read, in tokens: a guess, until the provider says.
    pub fn tokens_estimate(&self) -> u64 {
        let texts = self
            .system
            .iter()
            .map(|system| system.len() as u64 / BYTES_A_TOKEN);
        let tools = self.tools.iter().map(Tool::tokens_estimate);
        let blocks = self.blocks().map(Block::tokens_estimate);
        texts.chain(tools).chain(blocks).sum::<u64>() + 1
    }

    /// The text of the last turn.
    pub fn last_text(&self) -> String {
        self.turns
            .last()
            .map(|turn| texts(&turn.blocks))
            .unwrap_or_default()
    }

    /// How many tools were used in the conversation so far.
    pub fn tool_uses(&self) -> usize {
        self.blocks()
            .filter(|block| matches!(block, Block::ToolUse { .. }))
            .count()
    }

    /// The name of the tool whose use has this id.
    pub fn tool_of(&self, use_id: &str) -> Option<&str> {
        self.blocks().find_map(|block| match block {
            Block::ToolUse { id, name, .. } if id == use_id => Some(&**name),
            _ => None,
        })
    }
}

/// What so many bytes of text may be in tokens.
fn tokens_of(bytes: usize) -> u64 {
    bytes as u64 / BYTES_A_TOKEN + 1
}

/// The texts among blocks, one a line.
pub(super) fn texts(blocks: &[Block]) -> String {
    let texts = blocks.iter().filter_map(|block| match block {
        Block::Text(text) => Some(&**text),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

impl Turn {
    fn read(turn: &RawObject) -> Result<Self, Failure> {
        let speaker = required(turn, "role", "`user` or `assistant`")?;
        let content = turn
            .get("content")
            .ok_or_else(|| Failure::invalid("a message has no `content`"))?;
        let blocks: Vec<RawObject> = match content.get().as_bytes().first() {
            Some(b'[') => {
                serde_json::from_str(content.get()).map_err(|_| wrong("content", "blocks"))?
            }
            _ => vec![
                RawObject::parse(content)
                    .map_err(|_| wrong("content", "a block or an array of blocks"))?,
            ],
        };
        Ok(Self {
            speaker,
            blocks: blocks.iter().map(Block::read).collect::<Result<_, _>>()?,
        })
    }

    /// Each use of a tool is answered in the very next turn, which holds nothing else (client/sampling, "Tool Result Messages").
    fn check<'a>(&'a self, open: &mut HashSet<&'a str>) -> Result<(), Failure> {
        let is_result = |block: &Block| matches!(block, Block::ToolResult { .. });
        let results = self.blocks.iter().filter(|block| is_result(block)).count();
        if results > 0 && (results < self.blocks.len() || self.speaker == Speaker::Assistant) {
            return Err(Failure::invalid(
                "results of tools stand alone, in a message of the user's",
            ));
        }
        for block in &self.blocks {
            if let Block::ToolResult { id, .. } = block
                && !open.remove(&**id)
            {
                return Err(Failure::invalid(
                    "a tool's result answers no use of the turn before",
                ));
            }
        }
        if !open.is_empty() {
            return Err(unanswered());
        }
        for block in &self.blocks {
            match block {
                Block::ToolUse { .. } if self.speaker == Speaker::User => {
                    return Err(Failure::invalid("only the assistant uses tools"));
                }
                Block::ToolUse { id, .. } if !open.insert(id) => {
                    return Err(Failure::invalid("two uses of tools have one id"));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Block {
    fn read(block: &RawObject) -> Result<Self, Failure> {
        let kind: String = required(block, "type", "a string")?;
        Ok(match &*kind {
            "text" => Self::Text(required(block, "text", "a string")?),
            "image" => Self::Image(Media::read(block, "image/")?),
            "audio" => Self::Audio(Media::read(block, "audio/")?),
            "tool_use" => Self::ToolUse {
                id: required(block, "id", "a string")?,
                name: required(block, "name", "a string")?,
                input: required::<RawObject>(block, "input", "an object")?.to_raw(),
            },
            "tool_result" => Self::ToolResult {
                id: required(block, "toolUseId", "a string")?,
                blocks: result_blocks(block)?,
                is_error: optional(block, "isError", "true or false")?.unwrap_or(false),
            },
            _ => {
                return Err(Failure::invalid(
                    "a block of content has a `type` that no model takes",
                ));
            }
        })
    }

    fn tokens_estimate(&self) -> u64 {
        match self {
            Self::Text(text) => tokens_of(text.len()),
            Self::Image(_) | Self::Audio(_) => MEDIA_TOKENS_ESTIMATE,
            Self::ToolUse { name, input, .. } => tokens_of(name.len() + input.get().len()),
            Self::ToolResult { blocks, .. } => blocks.iter().map(Self::tokens_estimate).sum(),
        }
    }
}

/// What a tool gave, as texts, pictures and sounds; `structuredContent` counts only where there is nothing else.
fn result_blocks(result: &RawObject) -> Result<Vec<Block>, Failure> {
    let blocks: Vec<RawObject> =
        optional(result, "content", "an array of blocks")?.unwrap_or_default();
    let structured = result
        .get("structuredContent")
        .filter(|_| blocks.is_empty());
    if let Some(structured) = structured {
        return Ok(vec![Block::Text(structured.get().to_owned())]);
    }
    blocks.iter().map(result_block).collect()
}

fn result_block(block: &RawObject) -> Result<Block, Failure> {
    match block.text("type").as_deref() {
        Some("text" | "image" | "audio") => Block::read(block),
        Some("resource_link") => Ok(Block::Text(required(block, "uri", "a string")?)),
        Some("resource") => {
            let resource: RawObject = required(block, "resource", "an object")?;
            Ok(Block::Text(
                resource
                    .text("text")
                    .or_else(|| resource.text("uri"))
                    .unwrap_or_default(),
            ))
        }
        _ => Err(Failure::invalid(
            "a block of a tool's result has a `type` that no model takes",
        )),
    }
}

impl Media {
    fn read(block: &RawObject, family: &str) -> Result<Self, Failure> {
        let mime_type: String = required(block, "mimeType", "a string")?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '+' | '-' | '.');
        if !mime_type.starts_with(family) || !mime_type.chars().all(is_plain) {
            return Err(wrong("mimeType", "a media type of the block's kind"));
        }
        Ok(Self {
            mime_type,
            data: required(block, "data", "base64 text")?,
        })
    }
}

impl Tool {
    fn read(tool: &RawObject) -> Result<Self, Failure> {
        let schema: RawObject = required(tool, "inputSchema", "an object")?;
        let (name, description) = (
            required(tool, "name", "a string")?,
            optional(tool, "description", "a string")?,
        );
        Ok(Self {
            name,
            description,
            schema: schema.to_raw(),
        })
    }

    fn tokens_estimate(&self) -> u64 {
        tokens_of(
            self.name.len()
                + self.description.as_ref().map_or(0, String::len)
                + self.schema.get().len(),
        )
    }
}

impl Choice {
    fn read(choice: Option<&RawObject>) -> Result<Self, Failure> {
        match choice.and_then(|choice| choice.text("mode")).as_deref() {
            None | Some("auto") => Ok(Self::Auto),
            Some("required") => Ok(Self::Required),
            Some("none") => Ok(Self::None),
            Some(_) => Err(wrong("toolChoice.mode", "`auto`, `required` or `none`")),
        }
    }
}

/// Names by which the caller would like a model, and what it cares for: `modelPreferences`.
#[derive(Debug, Clone, Default)]
pub(super) struct Preferences {
    /// Parts of names, the preferred first, in lower case.
    pub hints: Vec<String>,
    /// Weights of cost, speed and intelligence, each from 0 to 1.
    pub weights: [f64; 3],
}

impl Preferences {
    /// What doesn't fit is left out: preferences are advice.
    pub fn read(params: &CreateMessage) -> Self {
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

/// A block of the protocol's, for an answer.
fn tool_use(id: &str, name: &str, input: &RawValue) -> Content {
    Content(
        RawObject::of("type", "tool_use")
            .with("id", id)
            .with("name", name)
            .with("input", input),
    )
}

fn required<T: DeserializeOwned>(from: &RawObject, name: &str, shape: &str) -> Result<T, Failure> {
    optional(from, name, shape)?.ok_or_else(|| wrong(name, shape))
}

fn optional<T: DeserializeOwned>(
    from: &RawObject,
    name: &str,
    shape: &str,
) -> Result<Option<T>, Failure> {
    match from.get(name) {
        None => Ok(None),
        Some(value) if value.get() == "null" => Ok(None),
        Some(value) => serde_json::from_str(value.get())
            .map(Some)
            .map_err(|_| wrong(name, shape)),
    }
}

fn wrong(name: &str, shape: &str) -> Failure {
    Failure::invalid(format!("`{name}` must be {shape}"))
}

fn unanswered() -> Failure {
    Failure::invalid("a use of a tool has no result in the turn after it")
}

/// Member of an answer's `_meta`: the tokens used, `{"inputTokens": n, "outputTokens": n}`.
pub const USAGE_KEY: &str = "callboard/usage";
/// Member of an answer's `_meta`: who provided the model, for example `openai`.
pub const PROVIDER_KEY: &str = "callboard/provider";
/// Most uses of tools in one answer.
pub const MODEL_TOOL_USES_MAX: usize = 64;

/// Tokens used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub input: u64,
    pub output: u64,
}

impl Usage {
    pub fn total(self) -> u64 {
        self.input.saturating_add(self.output)
    }
}

/// An answer that is being written.
#[derive(Default)]
pub(super) struct Draft {
    /// The model's own name, where the provider says it.
    pub model: Option<String>,
    pub text: String,
    uses: Vec<ToolUse>,
    pub stop: Option<Stop>,
    pub input_tokens: Option<u64>,
    pub output_tokens: Option<u64>,
    /// Whether the provider said that this is all.
    pub is_whole: bool,
}

#[derive(Default)]
struct ToolUse {
    /// The provider's number for it, while it streams.
    place: u64,
    id: String,
    name: String,
    input: String,
}

/// Reason an answer ended, by MCP's name where it has one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Stop {
    EndTurn,
    MaxTokens,
    #[serde(rename = "stopSequence")]
    Sequence,
    ToolUse,
    ContentFilter,
    Refusal,
    PauseTurn,
    Other,
    /// The name that a script gives.
    #[serde(untagged)]
    Named(String),
}

impl Stop {
    /// Reads any provider's name: no two mean different things by one.
    pub fn of(reason: &str) -> Self {
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

impl Draft {
    /// A text, and that is all.
    pub fn said(text: String) -> Self {
        Self {
            text,
            stop: Some(Stop::EndTurn),
            is_whole: true,
            ..Self::default()
        }
    }

    fn used(&mut self, place: u64) -> Option<&mut ToolUse> {
        self.uses.iter_mut().find(|used| used.place == place)
    }

    /// A use of a tool begins, in the provider's numbering; or goes on, where that number was there.
    pub fn tool(
        &mut self,
        place: u64,
        id: Option<&str>,
        name: Option<&str>,
        input: &str,
    ) -> Result<(), Trouble> {
        if self.used(place).is_none() {
            if self.uses.len() == MODEL_TOOL_USES_MAX {
                return Err(Trouble::TooLarge);
            }
            self.uses.push(ToolUse {
                place,
                ..ToolUse::default()
            });
        }
        // Just found or made.
        let Some(used) = self.used(place) else {
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

    /// A use of a tool that came whole.
    pub fn tool_whole(&mut self, id: Option<&str>, name: &str, input: &str) -> Result<(), Trouble> {
        let place = self
            .uses
            .iter()
            .map(|used| used.place + 1)
            .max()
            .unwrap_or(0);
        self.tool(place, id, Some(name), input)
    }

    /// More of a tool's input; of one that never began it is dropped (a provider's own tools aren't ours).
    pub fn tool_more(&mut self, place: u64, input: &str) {
        if let Some(used) = self.used(place) {
            used.input.push_str(input);
        }
    }

    /// The input of a tool as one piece, in place of what came of it.
    pub fn tool_input(&mut self, place: u64, input: &str) {
        if let Some(used) = self.used(place) {
            input.clone_into(&mut used.input);
        }
    }

    /// How much is written, in bytes.
    pub fn written_bytes(&self) -> usize {
        self.text.len()
            + self
                .uses
                .iter()
                .map(|used| used.name.len() + used.input.len())
                .sum::<usize>()
    }

    /// The tokens used, estimated where the provider didn't say.
    pub fn usage(&self, request: &Request) -> Usage {
        Usage {
            input: self
                .input_tokens
                .unwrap_or_else(|| request.tokens_estimate()),
            output: self
                .output_tokens
                .unwrap_or_else(|| tokens_of(self.written_bytes())),
        }
    }

    /// Ends the text before the first of these, for a provider that knows no stop sequences.
    pub fn cut_before(&mut self, sequences: &[String]) {
        let found = sequences
            .iter()
            .filter(|s| !s.is_empty())
            .filter_map(|sequence| self.text.find(&**sequence));
        if let Some(at) = found.min() {
            self.text.truncate(at);
            self.uses.clear();
            self.stop = Some(Stop::Sequence);
        }
    }

    /// The result of `sampling/createMessage`. `model` is its name where the provider gave none; `micro_usd` is what it cost,
    /// in millionths of a dollar, 0 where that isn't known.
    ///
    /// # Errors
    /// Where a tool's input is no object.
    pub fn answer(
        self,
        model: &str,
        provider: &str,
        usage: Usage,
        micro_usd: u64,
        used_before: usize,
    ) -> Result<SampleAnswer, Trouble> {
        let mut blocks = Vec::new();
        if !self.text.is_empty() || self.uses.is_empty() {
            blocks.push(Content::text(&*self.text));
        }
        let stop = match self.stop {
            // Some say `stop` where they want a tool used.
            None | Some(Stop::EndTurn) if !self.uses.is_empty() => Some(Stop::ToolUse),
            ref said => said.clone(),
        };
        for (at, used) in self.uses.iter().enumerate() {
            // A cut-off input is no input: the model's tokens ended in the middle of it.
            let input = if used.input.trim().is_empty() {
                "{}"
            } else {
                &used.input
            };
            let parsed = serde_json::from_str::<&RawValue>(input)
                .ok()
                .filter(|raw| raw.get().starts_with('{'));
            match parsed {
                Some(input) => {
                    blocks.push(tool_use(&used.id_or(used_before + at), &used.name, input))
                }
                None if stop == Some(Stop::MaxTokens) => {}
                None => return Err(Trouble::Malformed("a tool's input is no object")),
            }
        }
        if blocks.is_empty() {
            blocks.push(Content::text(""));
        }
        let mut answer = RawObject::of("role", Speaker::Assistant);
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
        let mut used = RawObject::of("inputTokens", usage.input).with("outputTokens", usage.output);
        if micro_usd > 0 {
            used.set("microUsd", micro_usd);
        }
        answer.set(
            "_meta",
            RawObject::of(USAGE_KEY, used).with(PROVIDER_KEY, provider),
        );
        Ok(SampleAnswer(answer))
    }
}

impl ToolUse {
    /// Its id, or one that is unique in the conversation.
    fn id_or(&self, number: usize) -> String {
        if self.id.is_empty() {
            format!("call_{number}")
        } else {
            self.id.clone()
        }
    }
}
