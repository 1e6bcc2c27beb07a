use std::sync::Arc;
use std::time::Duration;

use callboard_runtime::{AgentRef, CallMeta};
use serde_json::Value;

use super::answer::Status;
use crate::plan::Step;
use crate::router::{StepOutcome, unheard};
use crate::verifier::{Identities, Verdict, Verify};

/// An answer before it is verified. Nothing turns it into an answer but [`verify`].
pub(super) struct Draft {
    pub status: Status,
    pub plan: Vec<Step>,
    pub steps: Vec<StepOutcome>,
    pub text: String,
}

/// A draft that the verifier passed. Its fields are this file's own: no other code can make one.
pub(super) struct Verified {
    draft: Draft,
    verdict: Verdict,
}

impl Verified {
    pub fn into_parts(self) -> (Draft, Verdict) {
        (self.draft, self.verdict)
    }
}

/// Why a draft isn't shown.
pub(super) enum Withheld {
    /// The verifier says that it isn't safe.
    Unsafe(Verdict),
    /// The verifier is away, late, or contradicts itself.
    Unchecked,
}

/// Has the verifier read every value and the text of a draft.
pub(super) async fn verify(
    draft: Draft,
    verifier: &AgentRef,
    call: &CallMeta,
    within: Duration,
    identities: Identities,
) -> Result<Verified, Withheld> {
    let records: Vec<Value> = draft.steps.iter().filter_map(|s| s.result.clone()).collect();
    let results = serde_json::to_value(&draft.steps).map_err(|_| Withheld::Unchecked)?;
    let message = Verify { records, results, text: draft.text.clone(), identities };
    let call_on = Some(Arc::new(unheard(call)));
    match verifier.ask(message).within_call(call_on).within(within).await {
        Ok(verdict) if verdict.safe && verdict.rule.is_none() => Ok(Verified { draft, verdict }),
        Ok(verdict) if !verdict.safe => Err(Withheld::Unsafe(verdict)),
        Ok(_) => {
            callboard_message::log::error!(call = %call.id, "verifier named a broken rule and called the answer safe: withheld");
            Err(Withheld::Unchecked)
        }
        // Whoever asked has gone: that's no fault of anybody's here.
        Err(_) if call.cancel.is_cancelled() => Err(Withheld::Unchecked),
        Err(why) => {
            callboard_message::log::error!(call = %call.id, kind = %why.kind(), "verifier could not check an answer: withheld");
            Err(Withheld::Unchecked)
        }
    }
}
