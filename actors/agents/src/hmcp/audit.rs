//! What happened, for those who have to account for it: who, what, how much, how it ended. Never what was said.

use callboard_message::{DataClass, Failure, FailureKind, Message};
use callboard_runtime::{AuditEntry, Cx};
use serde_json::value::RawValue;

use super::patients::FindPatient;
use crate::guardrail::rules_of;

/// Puts a message and what came of it on record.
///
/// # Errors
/// `Unavailable` where the answer says who a patient is and that can't be put on record: then it must not go.
pub(super) async fn record(
    cx: &Cx,
    message: &'static str,
    asked: &RawValue,
    outcome: Result<&RawValue, &Failure>,
) -> Result<(), Failure> {
    let log = cx.system().audit();
    let (ended, rules) = match outcome {
        Ok(_) => ("answered", Vec::new()),
        Err(failure) if failure.kind == FailureKind::Blocked => ("blocked", rules_of(failure).unwrap_or_default()),
        Err(_) => ("failed", Vec::new()),
    };
    let entry = AuditEntry::new("message").with_agent(cx.me().to_string()).with_message(message).with_outcome(ended);
    let entry = entry.with_principal(cx.principal()).with_class(DataClass::Clinical);
    let entry = entry.with_body(log.mark(DataClass::Clinical, asked.get().as_bytes()));
    let entry = entry.with("bytes_out", outcome.map_or(0, |reply| reply.get().len())).with("rules", rules);
    let entry = match cx.call() {
        Some(call) => entry.with_call(call.id).with("hops", call.hops),
        None => entry,
    };
    let entry = match outcome {
        Err(failure) => entry.with("failure", failure.kind.to_string()),
        Ok(_) => entry,
    };
    if outcome.is_ok() && message == FindPatient::NAME {
        let kept = log.record(entry).await;
        return kept
            .map(drop)
            .map_err(|error| Failure::unavailable(format!("it can't be put on record who was shown: {error}")));
    }
    log.placed(entry).await;
    Ok(())
}
