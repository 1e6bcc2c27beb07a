use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use crate::json::{self, RawCursor};
use crate::raw_object::raw_object_types;
use crate::{Failure, FailureKind, RawObject, RawReply};

raw_object_types! {
    /// Content block of MCP: text, image, audio or resource. It is kept as raw JSON.
    Content;
    /// Content of one resource (MCP `TextResourceContents`, `BlobResourceContents`).
    ResourceContent;
    /// Part of a call's result that is sent before the call ends (A2A artifact). Members: `id`,
    /// `name`, `description`, `content` (blocks), `append`, `last`, `metadata`.
    ///
    /// Because a caller may miss artifacts, the reply contains all of the result's content. If it
    /// has been sent as artifacts, the reply is marked with [`ARTIFACTS_SENT_META_KEY`].
    Artifact;
}

impl Content {
    /// Creates a text block.
    pub fn text(text: impl Into<String>) -> Self {
        let mut block = RawObject::new();
        block.set_raw("type", json::raw_ref("\"text\"").to_owned());
        block.set_text("text", &text.into());
        Self(block)
    }

    /// Creates an image block; `mime_type` is for example `image/png`.
    pub fn image(bytes: &[u8], mime_type: &str) -> Self {
        Self::binary_block("image", bytes, mime_type)
    }

    /// Creates an audio block; `mime_type` is for example `audio/wav`.
    pub fn audio(bytes: &[u8], mime_type: &str) -> Self {
        Self::binary_block("audio", bytes, mime_type)
    }

    /// Creates a block that embeds a resource and its content.
    pub fn resource(resource: ResourceContent) -> Self {
        Self(RawObject::single("type", "resource").with("resource", resource))
    }

    /// Creates a block with a link to the resource `uri`. `name` is its name for display.
    pub fn resource_link(uri: &str, name: &str) -> Self {
        Self(
            RawObject::single("type", "resource_link")
                .with("uri", uri)
                .with("name", name),
        )
    }

    fn binary_block(kind: &str, bytes: &[u8], mime_type: &str) -> Self {
        let data = STANDARD.encode(bytes);
        Self(
            RawObject::single("type", kind)
                .with("data", data)
                .with("mimeType", mime_type),
        )
    }

    /// Returns the text of a text block; `None` for other blocks.
    pub fn as_text(&self) -> Option<String> {
        let kind = self.0.get("type").and_then(json::text);
        kind.filter(|kind| kind == "text")
            .and_then(|_| self.0.text("text"))
    }
}

impl ResourceContent {
    /// Creates text content of the resource `uri`.
    pub fn text(uri: &str, mime_type: &str, text: impl Into<String>) -> Self {
        Self(
            RawObject::single("uri", uri)
                .with("mimeType", mime_type)
                .with("text", text.into()),
        )
    }

    /// Creates binary content of the resource `uri`, encoded as base64.
    pub fn blob(uri: &str, mime_type: &str, bytes: &[u8]) -> Self {
        Self(
            RawObject::single("uri", uri)
                .with("mimeType", mime_type)
                .with("blob", STANDARD.encode(bytes)),
        )
    }
}

/// Reply that consists of content blocks: the whole result of MCP `tools/call`. For messages whose
/// reply is not a single value.
///
/// A message with this reply type has no output schema.
#[derive(Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct ToolResult(pub RawObject);

/// Deserialises an object as it is. Any other JSON value becomes a text block, because agents on
/// other nodes may reply with a plain value.
impl<'de> Deserialize<'de> for ToolResult {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&Box::<RawValue>::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl ToolResult {
    /// Creates a result from content blocks, in order.
    pub fn from_content(content: impl IntoIterator<Item = Content>) -> Self {
        Self(with_blocks(content))
    }

    /// Parses a result from JSON. A value that is not an object becomes a text block.
    ///
    /// # Errors
    /// Fails if the object has a duplicate key.
    pub fn parse(raw: &RawValue) -> Result<Self, serde_json::Error> {
        match raw.get().starts_with('{') {
            true => RawObject::parse(raw).map(Self),
            false => Ok(Self::text(json::text(raw).as_deref().unwrap_or(raw.get()))),
        }
    }

    /// Creates a result of one text block.
    pub fn text(text: impl AsRef<str>) -> Self {
        // Most results are one text, so it is written in one pass.
        let text = text.as_ref();
        let (before, after) = (r#"[{"type":"text","text":"#, "}]");
        let mut block = String::with_capacity(before.len() + text.len() + 2 + after.len());
        block.push_str(before);
        json::quote_into(text, &mut block);
        block.push_str(after);
        let mut result = RawObject::new();
        result.set_raw("content", json::raw_from_written(block));
        Self(result)
    }

    /// Creates an error result (`isError`). The text is shown to the calling model, so that it can
    /// correct its call.
    pub fn error(text: impl AsRef<str>) -> Self {
        Self(Self::text(text).0.with("isError", true))
    }

    /// Sets the structured content, which must serialise to a JSON object, and returns the result.
    /// The type of `value` must ensure that; it isn't checked.
    pub fn with_structured_content(mut self, value: impl Serialize) -> Self {
        self.0.set("structuredContent", value);
        self
    }

    /// Returns the content blocks; empty if they are missing, or one of them is not an object or
    /// has a duplicate key.
    pub fn content(&self) -> Vec<Content> {
        blocks(&self.0)
    }

    /// Returns the texts of the text blocks, joined by line feeds; empty if there are none, or one
    /// of the blocks is not an object.
    pub fn texts(&self) -> String {
        texts(&self.0)
    }

    /// Returns the structured content; `None` if it is missing.
    pub fn structured_content(&self) -> Option<Value> {
        self.0.read("structuredContent")
    }

    /// Returns whether the result is an error (`isError`).
    pub fn is_error(&self) -> bool {
        self.0.read("isError").unwrap_or(false)
    }
}

/// Creates an object with the member `content`, a list of the blocks.
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
    object.set_raw("content", json::raw_from_written(list));
    object
}

/// Returns the content blocks in the member `content` of an object; empty if it is missing or no
/// list, or one of the blocks is not an object or has a duplicate key.
pub(crate) fn blocks(of: &RawObject) -> Vec<Content> {
    let blocks = of
        .get("content")
        .and_then(RawCursor::list)
        .map(|list| list.map(RawObject::parse));
    let read: Option<Vec<Content>> =
        blocks.and_then(|blocks| blocks.map(|block| block.ok().map(Content)).collect());
    read.unwrap_or_default()
}

/// Returns the texts of the text blocks in the member `content`, joined by line feeds. Empty if one
/// of the blocks is not an object.
pub(crate) fn texts(of: &RawObject) -> String {
    let Some(content) = of.get("content") else {
        return String::new();
    };
    let mut all = String::with_capacity(content.get().len());
    let mut is_first = true;
    for block in RawCursor::list(content).into_iter().flatten() {
        let Some(members) = RawCursor::object(block) else {
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

/// Value of `$comment` in the reply schema of a message that replies with a [`ToolResult`]. By it,
/// adapters detect that the reply must be sent unchanged.
pub(crate) const TOOL_RESULT_COMMENT: &str = "callboard: a tool result";

impl JsonSchema for ToolResult {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ToolResult".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object", "$comment": TOOL_RESULT_COMMENT })
    }
}

// Content may be confidential: only names and sizes are printed.
impl fmt::Debug for ToolResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ToolResult({:?})", self.0)
    }
}

/// Member of `_meta` in a [`crate::ToolResult`]. `true` if all content of the result has also been
/// sent as artifacts, so that a caller that stores artifacts needn't store it twice.
pub const ARTIFACTS_SENT_META_KEY: &str = "callboard/shown";
/// Metadata key of a message's or task's parent: the id of the task that it belongs to.
pub const PARENT_META_KEY: &str = "parent_id";
/// Key in a result's `_meta` of the decision that the result comes from: `run`, `outcome`, `by`,
/// `confidence` (0 to 1) and `decisions` (their number).
pub const DECISION_META_KEY: &str = "callboard/decision";

/// Member of `_meta` in a [`crate::ToolResult`]. `true` if the result is to be sent as an immediate
/// message instead of a task's result (A2A: a reply of type `Message`).
pub const DIRECT_MESSAGE_META_KEY: &str = "callboard/message";

impl Artifact {
    /// Creates an artifact. A later artifact with the same `id` replaces its content, or is
    /// appended to it if marked with [`Artifact::appending`].
    pub fn new(id: impl Into<String>, content: impl IntoIterator<Item = Content>) -> Self {
        let content: Vec<Content> = content.into_iter().collect();
        Self(RawObject::single("id", id.into()).with("content", content))
    }

    /// Sets the display name and returns the artifact.
    pub fn with_name(self, name: &str) -> Self {
        Self(self.0.with("name", name))
    }

    /// Marks the artifact as an addition to the earlier artifact with the same id, and returns it.
    /// `last` marks the last addition.
    pub fn appending(self, last: bool) -> Self {
        Self(self.0.with("append", true).with("last", last))
    }

    /// Marks the artifact as a replacement for the earlier artifact with the same id, and returns
    /// it.
    #[must_use]
    pub fn replacing(mut self) -> Self {
        self.0.remove("append");
        self
    }

    /// Returns the id of the artifact within its call; empty if it is missing.
    pub fn id(&self) -> String {
        self.0.text("id").unwrap_or_default()
    }

    /// Returns the content blocks; empty if they are missing, or one of them is not an object or
    /// has a duplicate key.
    pub fn content(&self) -> Vec<Content> {
        blocks(&self.0)
    }

    /// Returns whether the content is to be appended to the earlier artifact with the same id.
    pub fn is_appended(&self) -> bool {
        self.0.read("append").unwrap_or(false)
    }

    /// Returns whether the artifact is marked as the last part.
    pub fn is_last(&self) -> bool {
        self.0.read("last").unwrap_or(false)
    }
}

/// Member of `_meta` in an error result: `kind` and `data` of the [`Failure`] from which the result
/// was made.
pub const FAILURE_META_KEY: &str = "callboard/failure";

impl ToolResult {
    /// Converts a tool result to a reply value. With structured content, returns it, or only its
    /// member `result` if `wrapped` is set and there is one. Otherwise returns the text of the only
    /// content block: as JSON if it parses, else as a string. Otherwise, with several blocks or one
    /// that is no text, returns the whole result; a result without content becomes `null`.
    ///
    /// # Errors
    /// An error result is returned as a [`Failure`] with its text: of the kind and with the data
    /// that it has under [`FAILURE_META_KEY`], else of the kind [`FailureKind::Rejected`].
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

/// Converts an error result to a failure. Kind and data are those that a callboard server has put
/// into `_meta`. Results of other servers become [`FailureKind::Rejected`].
fn failure(result: ToolResult) -> Failure {
    let text = result.texts();
    let message = if text.is_empty() {
        "the tool reported an error without a text: its server's log may tell more".to_owned()
    } else {
        text
    };
    let ours = result
        .0
        .object("_meta")
        .and_then(|m| m.object(FAILURE_META_KEY));
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

    /// Goal: result objects are kept whole, and a plain value becomes a result with its text.
    /// Method: one of each.
    /// Rows: X-15.
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

    /// Goal: an error result becomes a failure with its text, and with kind and data if it came
    /// from callboard. Method: one each.
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
        let meta = json!({ FAILURE_META_KEY: { "kind": "not_found", "data": { "id": 1 } } });
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
