//! What happened, for those who have to account for it: who, what, how much, how it ended. Never what was said.

use callboard_message::{Failure, FailureKind};
use callboard_runtime::Cx;
use serde_json::value::RawValue;

use crate::guardrail::rules_of;

/// Writes one line to the target `callboard::audit`.
pub(super) fn record(cx: &Cx, message: &'static str, asked: &RawValue, outcome: Result<&RawValue, &Failure>) {
    let (call, hops) = cx.call().map_or((None, 0), |call| (Some(call.id), call.hops));
    let (ended, rules) = match outcome {
        Ok(_) => ("answered", Vec::new()),
        Err(failure) if failure.kind == FailureKind::Blocked => ("blocked", rules_of(failure).unwrap_or_default()),
        Err(_) => ("failed", Vec::new()),
    };
    tracing::info!(
        target: "callboard::audit",
        agent = %cx.me(),
        call = call.map(tracing::field::display),
        hops,
        principal = cx.principal().id,
        kind = ?cx.principal().kind,
        message,
        bytes_in = asked.get().len(),
        bytes_out = outcome.map_or(0, |reply| reply.get().len()),
        outcome = ended,
        failure = outcome.err().map(|failure| tracing::field::display(failure.kind)),
        rules = ?rules,
        "message"
    );
}
