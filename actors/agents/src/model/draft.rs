//! What a model has written so far, piece by piece or at once, and what becomes of it.

use callboard_message::{Content, RawObject, SampleAnswer, Speaker};
use serde_json::value::RawValue;

use super::request::{Request, tokens_of, tool_use};
use super::trouble::Trouble;

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

/// Why an answer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stop {
    EndTurn,
    MaxTokens,
    Sequence,
    ToolUse,
    ContentFilter,
    Refusal,
    PauseTurn,
    Other,
    /// As a script says.
    Named(String),
}

impl Stop {
    /// In MCP's words, where it has one.
    fn name(&self) -> &str {
        match self {
            Self::EndTurn => "endTurn",
            Self::MaxTokens => "maxTokens",
            Self::Sequence => "stopSequence",
            Self::ToolUse => "toolUse",
            Self::ContentFilter => "contentFilter",
            Self::Refusal => "refusal",
            Self::PauseTurn => "pauseTurn",
            Self::Other => "other",
            Self::Named(name) => name,
        }
    }
}

impl Draft {
    /// A text, and that is all.
    pub fn said(text: String) -> Self {
        Self { text, stop: Some(Stop::EndTurn), is_whole: true, ..Self::default() }
    }

    /// A use of a tool begins, in the provider's numbering; or goes on, where that number was there.
    pub fn tool(&mut self, place: u64, id: Option<&str>, name: Option<&str>, input: &str) -> Result<(), Trouble> {
        if !self.uses.iter().any(|used| used.place == place) {
            if self.uses.len() == MODEL_TOOL_USES_MAX {
                return Err(Trouble::TooLarge);
            }
            self.uses.push(ToolUse { place, ..ToolUse::default() });
        }
        // Just found or made.
        let Some(used) = self.uses.iter_mut().find(|used| used.place == place) else { return Ok(()) };
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
        let place = self.uses.iter().map(|used| used.place + 1).max().unwrap_or(0);
        self.tool(place, id, Some(name), input)
    }

    /// More of a tool's input; of one that never began it is dropped (a provider's own tools aren't ours).
    pub fn tool_more(&mut self, place: u64, input: &str) {
        if let Some(used) = self.uses.iter_mut().find(|used| used.place == place) {
            used.input.push_str(input);
        }
    }

    /// The input of a tool as one piece, in place of what came of it.
    pub fn tool_input(&mut self, place: u64, input: &str) {
        if let Some(used) = self.uses.iter_mut().find(|used| used.place == place) {
            input.clone_into(&mut used.input);
        }
    }

    pub fn has_tools(&self) -> bool {
        !self.uses.is_empty()
    }

    /// How much is written, in bytes.
    pub fn written_bytes(&self) -> usize {
        self.text.len() + self.uses.iter().map(|used| used.name.len() + used.input.len()).sum::<usize>()
    }

    /// The tokens used, estimated where the provider didn't say.
    pub fn usage(&self, request: &Request) -> Usage {
        Usage {
            input: self.input_tokens.unwrap_or_else(|| request.tokens_estimate()),
            output: self.output_tokens.unwrap_or_else(|| tokens_of(self.written_bytes())),
        }
    }

    /// Ends the text before the first of these, for a provider that knows no stop sequences.
    pub fn cut_before(&mut self, sequences: &[String]) {
        let found = sequences.iter().filter(|s| !s.is_empty()).filter_map(|sequence| self.text.find(&**sequence));
        if let Some(at) = found.min() {
            self.text.truncate(at);
            self.uses.clear();
            self.stop = Some(Stop::Sequence);
        }
    }

    /// The result of `sampling/createMessage`. `model` is its name where the provider gave none.
    ///
    /// # Errors
    /// Where a tool's input is no object.
    pub fn answer(
        self,
        model: &str,
        provider: &str,
        usage: Usage,
        used_before: usize,
    ) -> Result<SampleAnswer, Trouble> {
        let mut blocks = Vec::new();
        if !self.text.is_empty() || self.uses.is_empty() {
            blocks.push(Content::text(&*self.text));
        }
        let stop = match self.stop {
            // Some say `stop` where they want a tool used.
            None | Some(Stop::EndTurn) if self.has_tools() => Some(Stop::ToolUse),
            ref said => said.clone(),
        };
        for (at, used) in self.uses.iter().enumerate() {
            // A cut-off input is no input: the model's tokens ended in the middle of it.
            let input = if used.input.trim().is_empty() { "{}" } else { &used.input };
            let parsed = serde_json::from_str::<&RawValue>(input).ok().filter(|raw| raw.get().starts_with('{'));
            match parsed {
                Some(input) => blocks.push(tool_use(&used.id_or(used_before + at), &used.name, input)),
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
        answer.set("model", self.model.as_deref().filter(|name| !name.is_empty()).unwrap_or(model));
        if let Some(stop) = stop {
            answer.set("stopReason", stop.name());
        }
        let tokens = RawObject::of("inputTokens", usage.input).with("outputTokens", usage.output);
        answer.set("_meta", RawObject::of(USAGE_KEY, tokens).with(PROVIDER_KEY, provider));
        Ok(SampleAnswer(answer))
    }
}

impl ToolUse {
    /// Its id, or one that is unique in the conversation.
    fn id_or(&self, number: usize) -> String {
        match self.id.is_empty() {
            true => format!("call_{number}"),
            false => self.id.clone(),
        }
    }
}
