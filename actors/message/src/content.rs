use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use crate::json::{self, Walk};
use crate::raw::raw_bodies;
use crate::{Failure, FailureKind, RawObject, RawReply};

raw_bodies! {
    /// One block of what is said: text, picture, sound, a resource (MCP content block), raw with a few readers.
    Content;
    /// What one resource holds (MCP `TextResourceContents`, `BlobResourceContents`).
    ResourceContent;
    /// A part of a call's result that is there before the rest (A2A artifact): `id`, `name`, `description`, `content` (blocks),
    /// `append`, `last`, `metadata`.
    ///
    /// A caller may miss artifacts, so the reply holds all of it, unless the callee knows better ([`SHOWN`]).
    Artifact;
}

impl Content {
    /// Text.
    pub fn text(text: impl Into<String>) -> Self {
        let mut block = RawObject::new();
        block.set_raw("type", json::raw_ref("\"text\"").to_owned());
        block.set_text("text", &text.into());
        Self(block)
    }

    /// A picture; `mime_type` for example `image/png`.
    pub fn image(bytes: &[u8], mime_type: &str) -> Self {
        Self::data("image", bytes, mime_type)
    }

    /// Sound; `mime_type` for example `audio/wav`.
    pub fn audio(bytes: &[u8], mime_type: &str) -> Self {
        Self::data("audio", bytes, mime_type)
    }

    /// A resource, with what it holds.
    pub fn resource(resource: ResourceContent) -> Self {
        Self(RawObject::of("type", "resource").with("resource", resource))
    }

    /// A resource that can be read at `uri`.
    pub fn resource_link(uri: &str, name: &str) -> Self {
        Self(
            RawObject::of("type", "resource_link")
                .with("uri", uri)
                .with("name", name),
        )
    }

    fn data(kind: &str, bytes: &[u8], mime_type: &str) -> Self {
        let data = STANDARD.encode(bytes);
        Self(
            RawObject::of("type", kind)
                .with("data", data)
                .with("mimeType", mime_type),
        )
    }

    /// The text of a text block.
    pub fn as_text(&self) -> Option<String> {
        let kind = self.0.get("type").and_then(json::text);
        kind.filter(|kind| kind == "text")
            .and_then(|_| self.0.text("text"))
    }
}

impl ResourceContent {
    /// Text.
    pub fn text(uri: &str, mime_type: &str, text: impl Into<String>) -> Self {
        Self(
            RawObject::of("uri", uri)
                .with("mimeType", mime_type)
                .with("text", text.into()),
        )
    }

    /// Anything else.
    pub fn blob(uri: &str, mime_type: &str, bytes: &[u8]) -> Self {
        Self(
            RawObject::of("uri", uri)
                .with("mimeType", mime_type)
                .with("blob", STANDARD.encode(bytes)),
        )
    }
}

/// A reply in blocks, for a message whose answer is more than a value: the result of MCP `tools/call`, whole.
///
/// A message with this reply has no output schema.
#[derive(Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct ToolResult(pub RawObject);

/// A plain text or number is a result too: whoever asks an agent elsewhere for one may get just what it says. An object stays
/// as it came.
impl<'de> Deserialize<'de> for ToolResult {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&Box::<RawValue>::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl ToolResult {
    /// Blocks, in order.
    pub fn of(content: impl IntoIterator<Item = Content>) -> Self {
        Self(with_blocks(content))
    }

    /// Reads one, without a copy in between.
    ///
    /// # Errors
    /// Where an object has a key twice; what is no object is a result too.
    pub fn parse(raw: &RawValue) -> Result<Self, serde_json::Error> {
        match raw.get().starts_with('{') {
            true => RawObject::parse(raw).map(Self),
            false => Ok(Self::text(json::text(raw).as_deref().unwrap_or(raw.get()))),
        }
    }

    /// One block of text.
    pub fn text(text: impl AsRef<str>) -> Self {
        // Most results are this: written in one go.
        let text = text.as_ref();
        let (before, after) = (r#"[{"type":"text","text":"#, "}]");
        let mut block = String::with_capacity(before.len() + text.len() + 2 + after.len());
        block.push_str(before);
        json::quote_to(text, &mut block);
        block.push_str(after);
        let mut result = RawObject::new();
        result.set_raw("content", json::raw(block));
        Self(result)
    }

    /// What went wrong, for the model that called: it may try again otherwise.
    pub fn error(text: impl AsRef<str>) -> Self {
        Self(Self::text(text).0.with("isError", true))
    }

    /// The same with a value for programs: a JSON object.
    pub fn structured(mut self, value: impl Serialize) -> Self {
        self.0.set("structuredContent", value);
        self
    }

    /// Its blocks.
    pub fn content(&self) -> Vec<Content> {
        blocks(&self.0)
    }

    /// Its texts, one a line.
    pub fn texts(&self) -> String {
        texts(&self.0)
    }

    /// The value for programs.
    pub fn structured_content(&self) -> Option<Value> {
        self.0.read("structuredContent")
    }

    /// Whether it says what went wrong.
    pub fn is_error(&self) -> bool {
        self.0.read("isError").unwrap_or(false)
    }
}

/// An object with these blocks as `content`.
pub(crate) fn with_blocks(content: impl IntoIterator<Item = Content>) -> RawObject {
    let content: Vec<Content> = content.into_iter().collect();
    let bytes: usize = content.iter().map(|Content(block)| block.bytes() + 2).sum();
    let mut list = String::with_capacity(bytes + 1);
    list.push('[');
    for block in content {
        if list.len() > 1 {
            list.push(',');
        }
        block.0.write_with(&[], &mut list);
    }
    list.push(']');
    let mut object = RawObject::new();
    object.set_raw("content", json::raw(list));
    object
}

/// The blocks in `content`; none where one of them is no object.
pub(crate) fn blocks(of: &RawObject) -> Vec<Content> {
    let blocks = of
        .get("content")
        .and_then(Walk::list)
        .map(|list| list.map(RawObject::parse));
    let read: Option<Vec<Content>> =
        blocks.and_then(|blocks| blocks.map(|block| block.ok().map(Content)).collect());
    read.unwrap_or_default()
}

/// The texts of the blocks in `content`, one a line; empty where one of them is no object.
pub(crate) fn texts(of: &RawObject) -> String {
    let Some(content) = of.get("content") else {
        return String::new();
    };
    let mut all = String::with_capacity(content.get().len());
    let mut is_first = true;
    for block in Walk::list(content).into_iter().flatten() {
        let Some(members) = Walk::object(block) else {
            return String::new();
        };
        let (mut kind, mut text) = (None, None);
        for (name, value) in members {
            match &*name {
                "type" => kind = json::text(value),
                "text" => text = json::text(value),
                _ => {}
            }
        }
        if let Some(text) = text.filter(|_| kind.as_deref() == Some("text")) {
            if !is_first {
                all.push('\n');
            }
            is_first = false;
            all.push_str(&text);
        }
    }
    all
}

/// Marks the schema of a reply that is a [`ToolResult`]: adapters send it as it is.
pub(crate) const IS_TOOL_RESULT: &str = "callboard: a tool result";

impl JsonSchema for ToolResult {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ToolResult".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object", "$comment": IS_TOOL_RESULT })
    }
}

// What is said may be anybody's data: only names and sizes are printed.
impl fmt::Debug for ToolResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ToolResult({:?})", self.0)
    }
}

/// Member of a [`crate::ToolResult`]'s `_meta`, `true` where what it holds was given as artifacts already: a caller that keeps
/// those needn't keep it twice.
pub const SHOWN: &str = "callboard/shown";

/// Member of a [`crate::ToolResult`]'s `_meta`, `true` where it is what somebody says at once, and no task's result (A2A's answer
/// by a message).
pub const SAID_AT_ONCE: &str = "callboard/message";

impl Artifact {
    /// One of this call, whole. The same `id` again stands in its place, or goes on with it ([`Artifact::appended`]).
    pub fn new(id: impl Into<String>, content: impl IntoIterator<Item = Content>) -> Self {
        let content: Vec<Content> = content.into_iter().collect();
        Self(RawObject::of("id", id.into()).with("content", content))
    }

    /// The same with a name for people.
    pub fn named(self, name: &str) -> Self {
        Self(self.0.with("name", name))
    }

    /// The same, to be added to what the artifact of its id holds so far; `last`: nothing more comes.
    pub fn appended(self, last: bool) -> Self {
        Self(self.0.with("append", true).with("last", last))
    }

    /// The same, in place of what the artifact of its id holds so far.
    #[must_use]
    pub fn anew(mut self) -> Self {
        self.0.remove("append");
        self
    }

    /// Its name among the call's artifacts.
    pub fn id(&self) -> String {
        self.0.text("id").unwrap_or_default()
    }

    /// Its blocks.
    pub fn content(&self) -> Vec<Content> {
        blocks(&self.0)
    }

    /// Whether it is added to what the artifact of its id holds so far.
    pub fn is_appended(&self) -> bool {
        self.0.read("append").unwrap_or(false)
    }

    /// Whether nothing more comes of it, as far as that is said.
    pub fn is_last(&self) -> bool {
        self.0.read("last").unwrap_or(false)
    }
}

/// Member of a result's `_meta`: a failure of this system's behind a result that is an error, `kind` and `data`.
pub const FAILURE: &str = "callboard/failure";

impl ToolResult {
    /// The value: structured content, or of that member `result` where it is `wrapped`; else its one text, as JSON where
    /// it is some; else, of several blocks or of others than text, the result as it is.
    ///
    /// # Errors
    /// What the result says went wrong.
    pub fn into_value(self, wrapped: bool) -> RawReply {
        if self.is_error() {
            return Err(failure(self));
        }
        let result = self.0;
        if let Some(structured) = result.get("structuredContent") {
            let inner = wrapped
                .then(|| RawObject::parse(structured).ok()?.remove("result"))
                .flatten();
            return Ok(inner.unwrap_or_else(|| structured.to_owned()));
        }
        let blocks: Vec<Content> = result.read("content").unwrap_or_default();
        match blocks.as_slice() {
            [] => Ok(RawValue::NULL.to_owned()),
            [only] => match only.as_text() {
                Some(text) => Ok(RawValue::from_string(text.clone())
                    .or_else(|_| to_raw_value(&text))
                    .unwrap_or_default()),
                None => Ok(result.to_raw()),
            },
            _ => Ok(result.to_raw()),
        }
    }
}

/// What a tool says went wrong: of this system's servers as it was, of others their text.
fn failure(result: ToolResult) -> Failure {
    let text = result.texts();
    let message = if text.is_empty() {
        "the tool failed".to_owned()
    } else {
        text
    };
    let ours = result.0.object("_meta").and_then(|m| m.object(FAILURE));
    let kind = ours
        .as_ref()
        .and_then(|o| o.read("kind"))
        .unwrap_or(FailureKind::Rejected);
    let failure = Failure::new(kind, message);
    match ours.and_then(|o| o.read::<Value>("data")) {
        Some(data) => failure.with_data(data),
        None => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a result is read whole, and a plain value as the result that says it. Method: one of each.
    #[test]
    fn values_are_results() {
        let read = |json: &str| serde_json::from_str::<ToolResult>(json).unwrap();
        let whole = r#"{"content":[{"type":"text","text":"a","x":1.0}],"y":null}"#;
        assert_eq!(read(whole).0.to_raw().get(), whole);
        assert_eq!(read("\"a\""), ToolResult::text("a"));
        let task = r#"{"task":{"taskId":"a"}}"#;
        assert_eq!(read(task).0.to_raw().get(), task);
        assert_eq!(read("7").texts(), "7");
    }
}

#[cfg(test)]
mod plain_tests {
    use super::*;
    use serde_json::json;

    fn result(json: Value) -> RawObject {
        serde_json::from_str(&json.to_string()).unwrap()
    }

    fn text(text: &str) -> Value {
        json!({ "type": "text", "text": text })
    }

    /// Goal: a remote reply reads like a local one. Method: each shape that a result has, and the value in it.
    #[test]
    fn values_come_out() {
        let image = json!({ "type": "image", "data": "", "mimeType": "image/png" });
        for (sent, wrapped, expected) in [
            (
                json!({ "content": [text("{\"a\":1}")], "structuredContent": { "a": 2 } }),
                false,
                json!({ "a": 2 }),
            ),
            (
                json!({ "content": [], "structuredContent": { "result": 7 } }),
                true,
                json!(7),
            ),
            (
                json!({ "content": [], "structuredContent": { "result": 7 } }),
                false,
                json!({ "result": 7 }),
            ),
            (json!({ "content": [text("[1,2]")] }), false, json!([1, 2])),
            (
                json!({ "content": [text("plain words")] }),
                false,
                json!("plain words"),
            ),
            (json!({ "content": [] }), false, json!(null)),
            (
                json!({ "content": [image.clone()] }),
                false,
                json!({ "content": [image] }),
            ),
        ] {
            let got = ToolResult(result(sent.clone()))
                .into_value(wrapped)
                .unwrap();
            assert_eq!(
                serde_json::from_str::<Value>(got.get()).unwrap(),
                expected,
                "{sent}"
            );
        }
    }

    /// Goal: a tool's error is a failure with its words, and of our own servers with its kind and data. Method: one each.
    #[test]
    fn errors_become_failures() {
        let theirs = ToolResult(result(
            json!({ "content": [text("no such file")], "isError": true }),
        ))
        .into_value(false)
        .unwrap_err();
        assert_eq!(
            (theirs.kind, theirs.message.as_str()),
            (FailureKind::Rejected, "no such file")
        );
        let meta = json!({ FAILURE: { "kind": "not_found", "data": { "id": 1 } } });
        let ours = ToolResult(result(
            json!({ "content": [text("m")], "isError": true, "_meta": meta }),
        ))
        .into_value(false)
        .unwrap_err();
        assert_eq!(
            (ours.kind, ours.data),
            (FailureKind::NotFound, Some(json!({ "id": 1 })))
        );
    }
}
