use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::form_check::form_faults;
use crate::raw_object::raw_object_types;
use crate::{Content, RawObject};

/// Question that an agent asks its caller during a call. Bodies have the format of MCP and are kept
/// as raw JSON, so that unknown members are forwarded unchanged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", content = "body", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Question {
    /// Prompt for the caller's language model (MCP `sampling/createMessage`).
    Sample(SamplingRequest),
    /// Form or URL for a person (MCP `elicitation/create`, A2A INPUT_REQUIRED).
    Elicit(Elicitation),
    /// Request for the list of folders that the caller shares (MCP `roots/list`).
    Roots(RootsRequest),
}

/// Answer to a [`Question`], of the same kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", content = "body", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Answer {
    /// Answer to [`Question::Sample`].
    Sample(SamplingAnswer),
    /// Answer to [`Question::Elicit`].
    Elicit(ElicitationAnswer),
    /// Answer to [`Question::Roots`].
    Roots(RootsAnswer),
}

raw_object_types! {
    /// Prompt for the caller's language model: params of `sampling/createMessage`.
    SamplingRequest;
    /// Output of the caller's language model: result of `sampling/createMessage`.
    SamplingAnswer;
    /// Form to fill in, or URL to visit, for a person: params of `elicitation/create`.
    Elicitation;
    /// A person's reaction to an [`Elicitation`]: result of `elicitation/create`.
    ElicitationAnswer;
    /// Request for the folders that the caller shares: params of `roots/list`.
    RootsRequest;
    /// List of the folders that the caller shares: result of `roots/list`.
    RootsAnswer;
}

/// Author of a turn in a conversation with a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Speaker {
    /// The side that prompts the model.
    User,
    /// The language model.
    Assistant,
}

impl Answer {
    /// Returns the body of the answer, in the format of the MCP result.
    pub fn body(&self) -> &RawObject {
        match self {
            Self::Sample(SamplingAnswer(body)) | Self::Elicit(ElicitationAnswer(body)) => body,
            Self::Roots(RootsAnswer(body)) => body,
        }
    }

    /// Returns the body of the answer as raw JSON, in the format of the MCP result.
    pub fn to_raw(&self) -> Box<RawValue> {
        self.body().to_raw()
    }
}

impl Question {
    /// Returns the body of the question, in the format of the MCP params.
    pub fn body(&self) -> &RawObject {
        let (Self::Sample(SamplingRequest(body))
        | Self::Elicit(Elicitation(body))
        | Self::Roots(RootsRequest(body))) = self;
        body
    }

    /// Creates an answer of this question's kind with the given body.
    pub fn answer_with(&self, body: RawObject) -> Answer {
        match self {
            Self::Sample(_) => Answer::Sample(SamplingAnswer(body)),
            Self::Elicit(_) => Answer::Elicit(ElicitationAnswer(body)),
            Self::Roots(_) => Answer::Roots(RootsAnswer(body)),
        }
    }

    /// Creates a question that shows a form to a person. `message` explains it; `schema` is the
    /// JSON Schema of the form's values (the flat subset of MCP).
    pub fn elicit(message: impl Into<String>, schema: Value) -> Self {
        Self::Elicit(Elicitation::form(message, schema))
    }

    /// Creates a question to the caller's language model, with one user turn. `tokens_max` limits
    /// the length of its answer, in tokens.
    pub fn sample(prompt: impl Into<String>, tokens_max: u32) -> Self {
        Self::Sample(SamplingRequest::prompt(prompt, tokens_max))
    }

    /// Creates a request for the folders that the caller shares.
    pub fn roots() -> Self {
        Self::Roots(RootsRequest::default())
    }

    /// Sets the key of the question and returns the question; see [`QUESTION_KEY_META_KEY`].
    pub fn with_key(mut self, key: &str) -> Self {
        let (Self::Sample(SamplingRequest(body))
        | Self::Elicit(Elicitation(body))
        | Self::Roots(RootsRequest(body))) = &mut self;
        set_key(body, key);
        self
    }

    /// Removes the key from the question's `_meta` and returns the key; `None` if it has none. See
    /// [`QUESTION_KEY_META_KEY`].
    pub fn take_key(&mut self) -> Option<String> {
        let (Self::Sample(SamplingRequest(body))
        | Self::Elicit(Elicitation(body))
        | Self::Roots(RootsRequest(body))) = self;
        let mut meta = body.object("_meta")?;
        let key = serde_json::from_str(meta.remove(QUESTION_KEY_META_KEY)?.get()).ok();
        match meta.is_empty() {
            true => drop(body.remove("_meta")),
            false => body.set("_meta", meta),
        }
        key
    }
}

/// Member of `_meta` in a question: its key. A caller that polls receives questions by key and
/// answers them by key (MCP 2026-07-28 `inputRequests`).
///
/// Keys are unique among the open questions of a call. Questions without a key get `q1`, `q2`, … in
/// the order in which they were asked.
pub const QUESTION_KEY_META_KEY: &str = "callboard/key";

fn set_key(body: &mut RawObject, key: &str) {
    let meta = body.object("_meta").unwrap_or_default();
    body.set("_meta", meta.with(QUESTION_KEY_META_KEY, key));
}

impl SamplingRequest {
    /// Creates a request with one user turn. `tokens_max` limits the length of the answer, in
    /// tokens.
    pub fn prompt(text: impl Into<String>, tokens_max: u32) -> Self {
        Self(RawObject::single("messages", json!([])).with("maxTokens", tokens_max))
            .with_turn(Speaker::User, text)
    }

    /// Appends a turn with a text to the conversation and returns the request.
    pub fn with_turn(mut self, speaker: Speaker, text: impl Into<String>) -> Self {
        let mut turns: Vec<RawObject> = self.0.read("messages").unwrap_or_default();
        turns.push(RawObject::single("role", speaker).with("content", Content::text(text)));
        self.0.set("messages", turns);
        self
    }

    /// Sets the system prompt and returns the request.
    pub fn with_system_prompt(mut self, text: impl Into<String>) -> Self {
        self.0.set("systemPrompt", text.into());
        self
    }

    /// Sets the key of the question and returns the request; see [`QUESTION_KEY_META_KEY`].
    pub fn with_key(mut self, key: &str) -> Self {
        set_key(&mut self.0, key);
        self
    }

    /// Returns the maximum number of tokens that the model may write; `None` if it is missing or
    /// invalid.
    pub fn tokens_max(&self) -> Option<u32> {
        self.0.read("maxTokens")
    }

    /// Returns the turns of the conversation that contain text, each as speaker and text, oldest
    /// first. Images and other content are left out.
    pub fn texts(&self) -> Vec<(Speaker, String)> {
        let turns: Vec<RawObject> = self.0.read("messages").unwrap_or_default();
        let told = |turn: RawObject| Some((turn.read("role")?, texts_of(&turn)?));
        turns.into_iter().filter_map(told).collect()
    }
}

impl SamplingAnswer {
    /// Creates a language model's answer from the model's name, its text, and the reason why it
    /// stopped, for example `endTurn`.
    pub fn text(
        model: impl Into<String>,
        text: impl Into<String>,
        stop_reason: Option<&str>,
    ) -> Self {
        let mut body = RawObject::single("role", Speaker::Assistant)
            .with("content", Content::text(text))
            .with("model", model.into());
        if let Some(reason) = stop_reason {
            body.set("stopReason", reason);
        }
        Self(body)
    }

    /// Returns the text that the model wrote; `None` if there is none.
    pub fn written_text(&self) -> Option<String> {
        texts_of(&self.0)
    }

    /// Returns the name of the model; `None` if it is missing.
    pub fn model(&self) -> Option<String> {
        self.0.text("model")
    }
}

impl Elicitation {
    /// Creates an elicitation by form. `message` is shown to the person; `schema` is the JSON
    /// Schema of the form's values. The person sees the fields in the order of its `properties`.
    pub fn form(message: impl Into<String>, schema: impl Serialize) -> Self {
        Self(RawObject::single("message", message.into()).with("requestedSchema", schema))
    }

    /// Creates an elicitation by URL: the person is asked to visit `url`. `id` is the elicitation
    /// id, by which the agent later reports that the visit is complete.
    pub fn url(message: impl Into<String>, url: impl Into<String>, id: impl Into<String>) -> Self {
        let body = RawObject::single("mode", "url").with("message", message.into());
        Self(
            body.with("url", url.into())
                .with("elicitationId", id.into()),
        )
    }

    /// Sets the key of the question and returns the elicitation; see [`QUESTION_KEY_META_KEY`].
    pub fn with_key(mut self, key: &str) -> Self {
        set_key(&mut self.0, key);
        self
    }

    /// Returns the text that is shown to the person; empty if it is missing.
    pub fn message(&self) -> String {
        self.0.text("message").unwrap_or_default()
    }

    /// Returns the JSON Schema of the form's values; `None` if the elicitation is not a form.
    pub fn schema(&self) -> Option<Value> {
        self.0.read("requestedSchema")
    }

    /// Returns whether the person is to visit a URL rather than to fill in a form.
    pub fn is_url(&self) -> bool {
        self.0.text("mode").as_deref() == Some("url")
    }

    /// Returns the URL to visit; `None` for a form.
    pub fn target_url(&self) -> Option<String> {
        self.0.text("url").filter(|_| self.is_url())
    }

    /// Returns the reasons why `content` doesn't fit the form, such as "`name` is required", at
    /// most 16; empty if it fits. Checked are required fields, types, allowed values, lengths,
    /// ranges and formats of MCP's flat subset of JSON Schema. Optional fields may be null, and text
    /// fields among them empty. A reason names the field but not the value.
    pub fn check(&self, content: &Value) -> Vec<String> {
        form_faults(&self.schema().unwrap_or_default(), content)
    }

    /// Returns the reasons why `answer` doesn't answer the elicitation, as [`check`](Self::check)
    /// does for the values of an accepted form; empty if it does. Its action must be `accept`,
    /// `decline` or `cancel`.
    pub fn check_answer(&self, answer: &ElicitationAnswer) -> Vec<String> {
        match answer.0.text("action").as_deref() {
            Some("accept") if self.is_url() => Vec::new(),
            Some("accept") => {
                let content = answer.0.read::<Value>("content");
                self.check(
                    &content
                        .filter(|c| !c.is_null())
                        .unwrap_or_else(|| json!({})),
                )
            }
            Some("decline" | "cancel") => Vec::new(),
            _ => vec!["`action` must be one of: accept, decline, cancel".to_owned()],
        }
    }
}

impl ElicitationAnswer {
    /// Creates the answer of a person who submitted the form with these values. Must be used only
    /// if a person submitted them, or has authorised them beforehand.
    pub fn accept(content: Value) -> Self {
        Self(RawObject::single("action", "accept").with("content", content))
    }

    /// Creates the answer of a person who agreed without form values, for example to visit a URL.
    pub fn agree() -> Self {
        Self(RawObject::single("action", "accept"))
    }

    /// Creates the answer of a person who declined.
    pub fn decline() -> Self {
        Self(RawObject::single("action", "decline"))
    }

    /// Creates the answer of a person who dismissed the question without a choice.
    pub fn cancel() -> Self {
        Self(RawObject::single("action", "cancel"))
    }

    /// Returns the person's choice; `Cancel` if it is missing or unknown.
    pub fn action(&self) -> ElicitationAction {
        self.0.read("action").unwrap_or(ElicitationAction::Cancel)
    }

    /// Returns the values of the form; `None` unless the person accepted and sent values.
    pub fn content(&self) -> Option<Value> {
        (self.action() == ElicitationAction::Accept)
            .then(|| self.0.read("content"))
            .flatten()
    }
}

/// A person's choice on an [`Elicitation`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ElicitationAction {
    /// The person accepted. A form is filled in.
    Accept,
    /// The person declined.
    Decline,
    /// The person dismissed the question without a choice. Unknown choices are read as this one.
    #[serde(other)]
    Cancel,
}

/// A folder that a caller shares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Root {
    /// Location as a `file://` URI.
    pub uri: String,
    /// Display name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl RootsAnswer {
    /// Creates a result from shared folders.
    pub fn from_roots(roots: Vec<Root>) -> Self {
        Self(RawObject::single("roots", roots))
    }

    /// Returns the shared folders; empty if they are missing or invalid.
    pub fn roots(&self) -> Vec<Root> {
        self.0.read("roots").unwrap_or_default()
    }
}

/// Returns the texts of the member `content` of `holder`, which is one block or a list of blocks,
/// joined by line feeds. `None` if it contains no text.
fn texts_of(holder: &RawObject) -> Option<String> {
    let blocks: Vec<Content> = match holder.get("content")?.get().as_bytes().first() {
        Some(b'[') => holder.read("content")?,
        _ => vec![holder.read("content")?],
    };
    let texts: Vec<String> = blocks.iter().filter_map(Content::as_text).collect();
    (!texts.is_empty()).then(|| texts.join("\n"))
}
