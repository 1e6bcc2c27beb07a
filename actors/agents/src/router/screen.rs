use std::sync::Arc;
use std::time::Duration;

use callboard_runtime::{AgentRef, CallMeta};
use serde_json::Value;

use super::unheard;
use crate::guardrail::{Origin, Screen};

/// What is said in place of a text that the guardrail stopped, or could not screen.
pub(crate) const BLOCKED: &str = "Request blocked by guardrails";

/// Whether a text may go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Screened {
    Passed,
    /// By a rule, or because the guardrail is late or away: what can't be screened doesn't pass.
    Stopped,
}

/// Asks the guardrail about a text.
pub(crate) async fn screen(
    guardrail: &AgentRef,
    call: &CallMeta,
    within: Duration,
    text: String,
    origin: Origin,
) -> Screened {
    let call_on = Some(Arc::new(unheard(call)));
    match guardrail.ask(Screen { text, origin }).within_call(call_on).within(within).await {
        Ok(screening) if !screening.blocked => Screened::Passed,
        Ok(screening) => {
            callboard_message::log::info!(rules = ?screening.rules, "guardrail stopped a text");
            Screened::Stopped
        }
        // Whoever asked has gone: that's no fault of anybody's here.
        Err(_) if call.cancel.is_cancelled() => Screened::Stopped,
        Err(why) => {
            callboard_message::log::error!(%why, "guardrail could not screen a text: stopped");
            Screened::Stopped
        }
    }
}

/// Every text in a value, keys too, one a line: an instruction that is split over fields is whole again.
pub(super) fn texts(value: &Value) -> String {
    let mut lines = Vec::new();
    collect(value, &mut lines);
    lines.join("\n")
}

fn collect<'a>(value: &'a Value, lines: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => lines.push(text),
        Value::Array(items) => items.iter().for_each(|v| collect(v, lines)),
        Value::Object(fields) => fields.iter().for_each(|(key, v)| {
            lines.push(key);
            collect(v, lines);
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
