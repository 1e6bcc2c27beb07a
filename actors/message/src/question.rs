use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::raw::raw_bodies;
use crate::{Content, RawObject};

/// What a callee asks in mid-call, of whoever called. The bodies are MCP's, as they came: what this system doesn't know
/// of them travels on untouched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", content = "body", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Question {
    /// Of a language model (MCP `sampling/createMessage`).
    Sample(Sample),
    /// Of a person (MCP `elicitation/create`, A2A INPUT_REQUIRED).
    Elicit(Elicitation),
    /// Which folders the caller lends (MCP `roots/list`).
    Roots(RootsRequest),
}

/// What came back to a [`Question`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", content = "body", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Answer {
    /// To [`Question::Sample`].
    Sample(SampleAnswer),
    /// To [`Question::Elicit`].
    Elicit(ElicitAnswer),
    /// To [`Question::Roots`].
    Roots(RootsAnswer),
}

raw_bodies! {
    /// A prompt for the caller's language model: the params of `sampling/createMessage`.
    Sample;
    /// What the caller's model wrote: the result of `sampling/createMessage`.
    SampleAnswer;
    /// A form, or an address to visit, for a person: the params of `elicitation/create`.
    Elicitation;
    /// What a person did with it: the result of `elicitation/create`.
    ElicitAnswer;
    /// The params of `roots/list`.
    RootsRequest;
    /// The result of `roots/list`.
    RootsAnswer;
}

/// Who spoke a turn of a conversation with a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Speaker {
    /// The side that asks.
    User,
    /// The model.
    Assistant,
}

impl Answer {
    /// What the peer's result holds.
    pub fn body(&self) -> &RawObject {
        match self {
            Self::Sample(SampleAnswer(body)) | Self::Elicit(ElicitAnswer(body)) => body,
            Self::Roots(RootsAnswer(body)) => body,
        }
    }

    /// It as the peer's protocol has it.
    pub fn to_raw(&self) -> Box<RawValue> {
        self.body().to_raw()
    }
}

impl Question {
    /// The params that it is asked with.
    pub fn body(&self) -> &RawObject {
        let (Self::Sample(Sample(body))
        | Self::Elicit(Elicitation(body))
        | Self::Roots(RootsRequest(body))) = self;
        body
    }

    /// The answer to it whose body that is.
    pub fn answered(&self, body: RawObject) -> Answer {
        match self {
            Self::Sample(_) => Answer::Sample(SampleAnswer(body)),
            Self::Elicit(_) => Answer::Elicit(ElicitAnswer(body)),
            Self::Roots(_) => Answer::Roots(RootsAnswer(body)),
        }
    }

    /// A form for a person: what it reads, and the JSON Schema of the answer (MCP's flat subset).
    pub fn elicit(message: impl Into<String>, schema: Value) -> Self {
        Self::Elicit(Elicitation::form(message, schema))
    }

    /// One turn for the caller's model, and the most it may write, in tokens.
    pub fn sample(prompt: impl Into<String>, tokens_max: u32) -> Self {
        Self::Sample(Sample::prompt(prompt, tokens_max))
    }

    /// Which folders the caller lends.
    pub fn roots() -> Self {
        Self::Roots(RootsRequest::default())
    }

    /// The same, asked under `key`: see [`QUESTION_KEY`].
    pub fn key(mut self, key: &str) -> Self {
        let (Self::Sample(Sample(body))
        | Self::Elicit(Elicitation(body))
        | Self::Roots(RootsRequest(body))) = &mut self;
        set_key(body, key);
        self
    }

    /// Takes out the key that it is asked under.
    pub fn take_key(&mut self) -> Option<String> {
        let (Self::Sample(Sample(body))
        | Self::Elicit(Elicitation(body))
        | Self::Roots(RootsRequest(body))) = self;
        let mut meta = body.object("_meta")?;
        let key = serde_json::from_str(meta.remove(QUESTION_KEY)?.get()).ok();
        match meta.is_empty() {
            true => drop(body.remove("_meta")),
            false => body.set("_meta", meta),
        }
        key
    }
}

/// Member of a question's `_meta`: the name under which a caller that isn't asked live gets the question, and answers it
/// (MCP 2026-07-28 `inputRequests`). Unique among the questions of a call that wait at once; without one the questions are
/// `q1`, `q2`, … in the order in which they were asked.
pub const QUESTION_KEY: &str = "callboard/key";

fn set_key(body: &mut RawObject, key: &str) {
    let meta = body.object("_meta").unwrap_or_default();
    body.set("_meta", meta.with(QUESTION_KEY, key));
}

impl Sample {
    /// One turn of the user's, and the most the model may write, in tokens.
    pub fn prompt(text: impl Into<String>, tokens_max: u32) -> Self {
        Self(RawObject::of("messages", json!([])).with("maxTokens", tokens_max))
            .turn(Speaker::User, text)
    }

    /// The same with a turn more.
    pub fn turn(mut self, speaker: Speaker, text: impl Into<String>) -> Self {
        let mut turns: Vec<RawObject> = self.0.read("messages").unwrap_or_default();
        turns.push(RawObject::of("role", speaker).with("content", Content::text(text)));
        self.0.set("messages", turns);
        self
    }

    /// The same with what the model is told before.
    pub fn system_prompt(mut self, text: impl Into<String>) -> Self {
        self.0.set("systemPrompt", text.into());
        self
    }

    /// The same, asked under `key`: see [`QUESTION_KEY`].
    pub fn key(mut self, key: &str) -> Self {
        set_key(&mut self.0, key);
        self
    }

    /// The most the model may write, in tokens.
    pub fn tokens_max(&self) -> Option<u32> {
        self.0.read("maxTokens")
    }

    /// The texts of the conversation, oldest first; content of other kinds is left out.
    pub fn texts(&self) -> Vec<(Speaker, String)> {
        let turns: Vec<RawObject> = self.0.read("messages").unwrap_or_default();
        let told = |turn: RawObject| Some((turn.read("role")?, texts_of(&turn)?));
        turns.into_iter().filter_map(told).collect()
    }
}

impl SampleAnswer {
    /// What `model` wrote, and why it ended (for example `endTurn`).
    pub fn text(
        model: impl Into<String>,
        text: impl Into<String>,
        stop_reason: Option<&str>,
    ) -> Self {
        let mut body = RawObject::of("role", Speaker::Assistant)
            .with("content", Content::text(text))
            .with("model", model.into());
        if let Some(reason) = stop_reason {
            body.set("stopReason", reason);
        }
        Self(body)
    }

    /// The text that the model wrote; `None` where it wrote none.
    pub fn written(&self) -> Option<String> {
        texts_of(&self.0)
    }

    /// The model's name.
    pub fn model(&self) -> Option<String> {
        self.0.text("model")
    }
}

impl Elicitation {
    /// A form: what the person reads, and the JSON Schema of the answer.
    pub fn form(message: impl Into<String>, schema: Value) -> Self {
        Self(RawObject::of("message", message.into()).with("requestedSchema", schema))
    }

    /// An address that the person visits; `id` tells when it is done.
    pub fn url(message: impl Into<String>, url: impl Into<String>, id: impl Into<String>) -> Self {
        let body = RawObject::of("mode", "url").with("message", message.into());
        Self(
            body.with("url", url.into())
                .with("elicitationId", id.into()),
        )
    }

    /// The same, asked under `key`: see [`QUESTION_KEY`].
    pub fn key(mut self, key: &str) -> Self {
        set_key(&mut self.0, key);
        self
    }

    /// What the person reads.
    pub fn message(&self) -> String {
        self.0.text("message").unwrap_or_default()
    }

    /// The JSON Schema of the answer, of a form.
    pub fn schema(&self) -> Option<Value> {
        self.0.read("requestedSchema")
    }

    /// Whether the person is to visit an address rather than to fill in a form.
    pub fn is_visit(&self) -> bool {
        self.0.text("mode").as_deref() == Some("url")
    }

    /// The address, where it is one.
    pub fn address(&self) -> Option<String> {
        self.0.text("url").filter(|_| self.is_visit())
    }
}

impl ElicitAnswer {
    /// Filled in and sent. Only a person, or a value that a person authorised beforehand, accepts.
    pub fn accept(content: Value) -> Self {
        Self(RawObject::of("action", "accept").with("content", content))
    }

    /// Visited the address, or agreed without a form.
    pub fn agree() -> Self {
        Self(RawObject::of("action", "accept"))
    }

    /// Said no.
    pub fn decline() -> Self {
        Self(RawObject::of("action", "decline"))
    }

    /// Closed it without a choice.
    pub fn cancel() -> Self {
        Self(RawObject::of("action", "cancel"))
    }

    /// What the person did.
    pub fn action(&self) -> ElicitAction {
        self.0.read("action").unwrap_or(ElicitAction::Cancel)
    }

    /// The values, where they were sent.
    pub fn content(&self) -> Option<Value> {
        (self.action() == ElicitAction::Accept)
            .then(|| self.0.read("content"))
            .flatten()
    }
}

/// What a person did with an [`Elicitation`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ElicitAction {
    /// Filled in and sent.
    Accept,
    /// Said no.
    Decline,
    /// Closed it without a choice, or did something that this system doesn't know.
    #[serde(other)]
    Cancel,
}

/// A folder that a caller lends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Root {
    /// A `file://` URI.
    pub uri: String,
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl RootsAnswer {
    /// The folders lent.
    pub fn of(roots: Vec<Root>) -> Self {
        Self(RawObject::of("roots", roots))
    }

    /// The folders lent.
    pub fn roots(&self) -> Vec<Root> {
        self.0.read("roots").unwrap_or_default()
    }
}

/// The text in `content`, which is one block or several.
fn texts_of(holder: &RawObject) -> Option<String> {
    let blocks: Vec<Content> = match holder.get("content")?.get().as_bytes().first() {
        Some(b'[') => holder.read("content")?,
        _ => vec![holder.read("content")?],
    };
    let texts: Vec<String> = blocks.iter().filter_map(Content::as_text).collect();
    (!texts.is_empty()).then(|| texts.join("\n"))
}
