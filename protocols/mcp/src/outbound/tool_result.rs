//! Results of tool calls: plain ones completed, and plain values taken out.

use callboard_message::json::{RawCursor, text};
use callboard_message::{Failure, RawObject, ToolResult};
use serde_json::value::RawValue;

/// Members of which each tool result has at least one (MCP, `CallToolResult`).
const TOOL_RESULT_MEMBERS: [&str; 3] = ["content", "structuredContent", "isError"];

/// Converts a plain object, with which some servers answer `tools/call`, to a tool result: its JSON
/// text as content, and the object as structured content. `_meta` and `resultType` keep their place.
/// Tool results, results of other types, and values that are no object are returned unchanged.
pub(crate) fn complete_tool_result(result: Box<RawValue>) -> Box<RawValue> {
    if !is_plain_object(&result) {
        return result;
    }
    let Ok(mut value) = RawObject::parse(&result) else {
        return result;
    };
    let [kind, meta] = ["resultType", "_meta"].map(|name| Some((name, value.remove(name)?)));
    let value = value.to_raw();
    let mut completed = ToolResult::text(value.get()).0;
    completed.set_raw("structuredContent", value);
    for (name, member) in kind.into_iter().chain(meta) {
        completed.set_raw(name, member);
    }
    completed.to_raw()
}

fn is_plain_object(result: &RawValue) -> bool {
    RawCursor::object(result).is_some_and(|mut members| {
        members.all(|(name, value)| match &*name {
            "resultType" => text(value).as_deref() == Some("complete"),
            name => !TOOL_RESULT_MEMBERS.contains(&name),
        })
    })
}

/// Extracts the plain value from a `tools/call` result. `wrapped` looks up whether the tool wraps
/// its value in `{"result": …}`. It is called only if the structured content has that form.
///
/// # Errors
/// The error that the tool reports; `Internal` if the result is no object.
pub(crate) async fn plain_value<Wrapped: Future<Output = bool>>(
    result: &RawValue,
    wrapped: impl FnOnce() -> Wrapped,
) -> Result<Box<RawValue>, Failure> {
    let result = RawObject::parse(result).map_err(|_| {
        Failure::internal("the tool's result is no JSON object: the server has to be corrected")
    })?;
    // Boxed: it may request the tool list, and most calls needn't carry its state.
    let content = result.object("structuredContent");
    let may_be_wrapped = content.is_some_and(|content| content.len() == 1 && content.has("result"));
    let wrapped = may_be_wrapped && Box::pin(wrapped()).await;
    ToolResult(result).into_value(wrapped)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a plain object becomes a tool result, and nothing else is touched. Method: rows.
    /// Rows: M-44, X-15.
    #[test]
    fn plain_objects_become_results() {
        for (result, completed) in [
            (
                r#"{"analysis":"a","n":1.0}"#,
                r#"{"content":[{"type":"text","text":"{\"analysis\":\"a\",\"n\":1.0}"}],"structuredContent":{"analysis":"a","n":1.0}}"#,
            ),
            (
                r#"{"_meta":{"a":1},"n":1,"resultType":"complete"}"#,
                r#"{"content":[{"type":"text","text":"{\"n\":1}"}],"structuredContent":{"n":1},"resultType":"complete","_meta":{"a":1}}"#,
            ),
            (
                "{}",
                r#"{"content":[{"type":"text","text":"{}"}],"structuredContent":{}}"#,
            ),
            (r#"{"content":[],"n":1}"#, ""),
            (r#"{"structuredContent":{"n":1}}"#, ""),
            (r#"{"isError":true}"#, ""),
            (r#"{"n":1,"resultType":"task"}"#, ""),
            (r#"{"n":1,"resultType":1}"#, ""),
            (r#"["n"]"#, ""),
            (r#""n""#, ""),
        ] {
            let raw = RawValue::from_string(result.to_owned()).unwrap();
            let expected = if completed.is_empty() {
                result
            } else {
                completed
            };
            assert_eq!(complete_tool_result(raw).get(), expected);
        }
    }
}
