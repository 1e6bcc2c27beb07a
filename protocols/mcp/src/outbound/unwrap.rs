//! A tool's result as the plain value that an agent of this process would have answered.

use callboard_message::{Content, Failure, FailureKind, RawObject, ToolResult};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use crate::wire::meta;

/// A tool's result as a plain value; `wrapped` is asked where only the tool's schema says what that is.
///
/// # Errors
/// What the tool says went wrong; `Internal` where it is no result.
pub(crate) async fn plain_value<Wrapped: Future<Output = bool>>(
    result: &RawValue,
    wrapped: impl FnOnce() -> Wrapped,
) -> Result<Box<RawValue>, Failure> {
    let result = RawObject::parse(result).map_err(|_| Failure::internal("the tool's result is no object"))?;
    // Boxed: it may ask the server, and calls that needn't know carry no room for that.
    let wrapped = may_be_wrapped(&result) && Box::pin(wrapped()).await;
    value(result, wrapped)
}

/// Whether only the tool's output schema says what the value is: the structured content is `{"result": …}`.
fn may_be_wrapped(result: &RawObject) -> bool {
    result.object("structuredContent").is_some_and(|content| content.len() == 1 && content.has("result"))
}

/// The value: structured content; else its one text, as JSON where it is some; else, of several blocks or of others
/// than text, the result as it is.
///
/// # Errors
/// What the tool says went wrong.
fn value(result: RawObject, wrapped: bool) -> Result<Box<RawValue>, Failure> {
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
            Some(text) => Ok(RawValue::from_string(text.clone()).or_else(|_| to_raw_value(&text)).unwrap_or_default()),
            None => Ok(result.to_raw()),
        },
        _ => Ok(result.to_raw()),
    }
}

/// What a tool says went wrong: of this system's servers as it was, of others their text.
fn failure(result: ToolResult) -> Failure {
    let text = result.texts();
    let message = if text.is_empty() { "the tool failed".to_owned() } else { text };
    let ours = result.0.object("_meta").and_then(|m| m.object(meta::FAILURE));
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
            let got = value(result(sent.clone()), wrapped).unwrap();
            assert_eq!(serde_json::from_str::<Value>(got.get()).unwrap(), expected, "{sent}");
        }
    }

    /// Goal: a tool's error is a failure with its words, and of our own servers with its kind and data. Method: one each.
    #[test]
    fn errors_become_failures() {
        let theirs = value(result(json!({ "content": [text("no such file")], "isError": true })), false).unwrap_err();
        assert_eq!((theirs.kind, theirs.message.as_str()), (FailureKind::Rejected, "no such file"));
        let meta = json!({ meta::FAILURE: { "kind": "not_found", "data": { "id": 1 } } });
        let ours = value(result(json!({ "content": [text("m")], "isError": true, "_meta": meta })), false).unwrap_err();
        assert_eq!((ours.kind, ours.data), (FailureKind::NotFound, Some(json!({ "id": 1 }))));
    }
}
