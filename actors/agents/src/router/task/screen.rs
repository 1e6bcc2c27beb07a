//! What strangers say passes the guardrail, where there is one.

use callboard_message::json::quote;
use callboard_message::{Failure, FailureKind};
use callboard_runtime::AgentRef;
use serde_json::value::{RawValue, to_raw_value};

use crate::decide::limits::{ERROR_CHARS_MAX, cut_chars};
use crate::guardrail::{Guard, Origin};
use crate::text::plain;

/// What stands for an error that the guardrail stopped.
const STOPPED: &str = "the error isn't shown: the guardrail stopped it";

/// Lets a text pass.
///
/// # Errors
/// [`FailureKind::Blocked`], without the text.
pub(crate) async fn passes(guard: Option<&AgentRef>, text: &str, origin: Origin) -> Result<(), Failure> {
    let Some(guard) = guard else { return Ok(()) };
    let body = RawValue::from_string(quote(text)).or_else(|_| to_raw_value(text)).unwrap_or_default();
    Guard::new(guard.clone()).pass(&body, origin).await
}

/// An error as a decider may see it: one line, [`ERROR_CHARS_MAX`] characters.
pub(crate) async fn screened(guard: Option<&AgentRef>, failure: &Failure) -> String {
    let text = plain(&failure.message).split_whitespace().collect::<Vec<_>>().join(" ");
    let text = cut_chars(&text, ERROR_CHARS_MAX).to_owned();
    match passes(guard, &text, Origin::ToolResult).await {
        Ok(()) if !text.is_empty() => text,
        Ok(()) => failure.kind.to_string(),
        Err(_) => STOPPED.to_owned(),
    }
}

/// Whether that failure is the guardrail's.
pub(super) fn is_blocked(failure: &Failure) -> bool {
    failure.kind == FailureKind::Blocked
}
