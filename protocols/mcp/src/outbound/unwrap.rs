//! A tool's result as the plain value that an agent of this process would have answered.

use callboard_message::{Failure, RawObject, ToolResult};
use serde_json::value::RawValue;

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
    ToolResult(result).into_value(wrapped)
}

/// Whether only the tool's output schema says what the value is: the structured content is `{"result": …}`.
fn may_be_wrapped(result: &RawObject) -> bool {
    result.object("structuredContent").is_some_and(|content| content.len() == 1 && content.has("result"))
}
