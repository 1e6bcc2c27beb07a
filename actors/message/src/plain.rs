//! A result in blocks as the plain value that an agent of this process would have answered.

use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use crate::{Content, Failure, FailureKind, RawObject, ToolResult};

/// Member of a result's `_meta`: a failure of this system's behind a result that is an error, `kind` and `data`.
pub const FAILURE: &str = "callboard/failure";

impl ToolResult {
    /// The value: structured content, or of that member `result` where it is `wrapped`; else its one text, as JSON where
    /// it is some; else, of several blocks or of others than text, the result as it is.
    ///
    /// # Errors
    /// What the result says went wrong.
    pub fn into_value(self, wrapped: bool) -> Result<Box<RawValue>, Failure> {
        let result = self.0;
        if result.read("isError") == Some(true) {
            return Err(failure(ToolResult(result)));
        }
        if let Some(structured) = result.get("structuredContent") {
            let inner = wrapped.then(|| RawObject::parse(structured).ok()?.remove("result")).flatten();
            return Ok(inner.unwrap_or_else(|| structured.to_owned()));
        }
        let blocks: Vec<Content> = result.read("content").unwrap_or_default();
        match blocks.as_slice() {
            [] => Ok(RawValue::NULL.to_owned()),
            [only] => match only.as_text() {
                Some(text) => {
                    Ok(RawValue::from_string(text.clone()).or_else(|_| to_raw_value(&text)).unwrap_or_default())
                }
                None => Ok(result.to_raw()),
            },
            _ => Ok(result.to_raw()),
        }
    }
}

/// What a tool says went wrong: of this system's servers as it was, of others their text.
fn failure(result: ToolResult) -> Failure {
    let text = result.texts();
    let message = if text.is_empty() { "the tool failed".to_owned() } else { text };
    let ours = result.0.object("_meta").and_then(|m| m.object(FAILURE));
    let kind = ours.as_ref().and_then(|o| o.read("kind")).unwrap_or(FailureKind::Rejected);
    let failure = Failure::new(kind, message);
    match ours.and_then(|o| o.read::<Value>("data")) {
        Some(data) => failure.with_data(data),
        None => failure,
    }
}

#[cfg(test)]
mod tests {
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
            (json!({ "content": [text("{\"a\":1}")], "structuredContent": { "a": 2 } }), false, json!({ "a": 2 })),
            (json!({ "content": [], "structuredContent": { "result": 7 } }), true, json!(7)),
            (json!({ "content": [], "structuredContent": { "result": 7 } }), false, json!({ "result": 7 })),
            (json!({ "content": [text("[1,2]")] }), false, json!([1, 2])),
            (json!({ "content": [text("plain words")] }), false, json!("plain words")),
            (json!({ "content": [] }), false, json!(null)),
            (json!({ "content": [image.clone()] }), false, json!({ "content": [image] })),
        ] {
            let got = ToolResult(result(sent.clone())).into_value(wrapped).unwrap();
            assert_eq!(serde_json::from_str::<Value>(got.get()).unwrap(), expected, "{sent}");
        }
    }

    /// Goal: a tool's error is a failure with its words, and of our own servers with its kind and data. Method: one each.
    #[test]
    fn errors_become_failures() {
        let theirs = ToolResult(result(json!({ "content": [text("no such file")], "isError": true })))
            .into_value(false)
            .unwrap_err();
        assert_eq!((theirs.kind, theirs.message.as_str()), (FailureKind::Rejected, "no such file"));
        let meta = json!({ FAILURE: { "kind": "not_found", "data": { "id": 1 } } });
        let ours = ToolResult(result(json!({ "content": [text("m")], "isError": true, "_meta": meta })))
            .into_value(false)
            .unwrap_err();
        assert_eq!((ours.kind, ours.data), (FailureKind::NotFound, Some(json!({ "id": 1 }))));
    }
}
