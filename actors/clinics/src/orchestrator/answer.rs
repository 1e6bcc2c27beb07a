use std::sync::Arc;
use std::time::Duration;

use callboard_runtime::{AgentRef, CallMeta};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::plan::{RAW_RESPONSE, Step};
use crate::router::{StepOutcome, unheard};
use crate::verifier::{Identities, Verdict, Verify};

/// Maximum characters of a verifier's note; the rest is cut.
const NOTE_CHARS_MAX: usize = 300;

/// What the user gets. As JSON it is one object.
///
/// Its fields are private to this file: only `verify` makes one with data, of a draft that the verifier passed.
// Text and steps are patient data.
#[derive(derive_more::Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[debug(
    "Answer({status:?}, {} steps, verdict {:?}, {times_ms:?})",
    steps.len(), verdict.as_ref().map(|v| (v.safe, v.rule))
)]
pub struct Answer {
    status: Status,
    text: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    plan: Vec<Step>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    steps: Vec<StepOutcome>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<Verdict>,
    times_ms: TimesMs,
}

/// How a question ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// At least one clinic answered, and the answer is safe.
    Answered,
    /// Guardrail or verifier stopped it: the text is the reason and nothing else.
    Blocked,
    /// It couldn't be planned, no clinic answered, or a part of the pipeline is away: the text says which.
    Failed,
}

/// How long each stage took, in milliseconds; 0 for one that wasn't reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct TimesMs {
    /// The guardrail's look at the question.
    pub screening: u64,
    /// The planner.
    pub planning: u64,
    /// The router: all clinics, and the guardrail's look at what they answered.
    pub routing: u64,
    /// The verifier.
    pub verifying: u64,
    /// All of it.
    pub total: u64,
}

impl Answer {
    /// The verifier's note and nothing else.
    pub(super) fn blocked(mut verdict: Verdict) -> Self {
        verdict.note = verdict
            .note
            .chars()
            .filter(|c| !c.is_control())
            .take(NOTE_CHARS_MAX)
            .collect();
        Self {
            verdict: Some(verdict.clone()),
            text: verdict.note,
            ..Self::without_data(Status::Blocked, "")
        }
    }

    /// A sentence of our own, without anything from a clinic or a planner.
    pub(super) fn without_data(status: Status, text: &'static str) -> Self {
        let times_ms = TimesMs::default();
        Self {
            status,
            text: text.to_owned(),
            plan: Vec::new(),
            steps: Vec::new(),
            verdict: None,
            times_ms,
        }
    }

    pub(super) fn timed(self, times_ms: TimesMs) -> Self {
        Self { times_ms, ..self }
    }

    /// How it ended.
    pub fn status(&self) -> Status {
        self.status
    }

    /// The answer as plain text, or why there is none.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What was planned; empty where the answer was blocked.
    pub fn plan(&self) -> &[Step] {
        &self.plan
    }

    /// What the clinics answered, step by step; empty where the answer was blocked.
    pub fn steps(&self) -> &[StepOutcome] {
        &self.steps
    }

    /// The verifier's verdict; none where it wasn't reached.
    pub fn verdict(&self) -> Option<&Verdict> {
        self.verdict.as_ref()
    }

    /// How long it took.
    pub fn times_ms(&self) -> TimesMs {
        self.times_ms
    }
}

/// An answer before it is verified. Only [`verify`] turns it into an [`Answer`].
pub(super) struct Draft {
    pub status: Status,
    pub plan: Vec<Step>,
    pub steps: Vec<StepOutcome>,
    pub text: String,
}

/// Has the verifier read every value and the text of a draft, and makes the answer of a draft that is safe.
///
/// # Errors
/// The verdict where the verifier says that it isn't safe; `None` where it is away, late, or contradicts itself.
pub(super) async fn verify(
    draft: Draft,
    verifier: &AgentRef,
    call: &CallMeta,
    within: Duration,
    identities: Identities,
) -> Result<Answer, Option<Verdict>> {
    let records: Vec<Value> = draft
        .steps
        .iter()
        .filter_map(|s| s.result.clone())
        .collect();
    let results = serde_json::to_value(&draft.steps).map_err(|_| None)?;
    let message = Verify {
        records,
        results,
        text: draft.text.clone(),
        identities,
    };
    let call_on = Some(Arc::new(unheard(call)));
    match verifier
        .ask(message)
        .within_call(call_on)
        .within(within)
        .await
    {
        Ok(verdict) if verdict.safe && verdict.rule.is_none() => {
            let Draft {
                status,
                mut plan,
                steps,
                text,
            } = draft;
            // What a planner couldn't use may be anything; the reason says enough.
            for step in plan.iter_mut().filter(|step| step.action == RAW_RESPONSE) {
                step.parameters.remove("text");
            }
            Ok(Answer {
                status,
                text,
                plan,
                steps,
                verdict: Some(verdict),
                times_ms: TimesMs::default(),
            })
        }
        Ok(verdict) if !verdict.safe => Err(Some(verdict)),
        Ok(_) => {
            callboard_message::log::error!(call = %call.id, "verifier named a broken rule and called the answer safe: withheld");
            Err(None)
        }
        // Whoever asked has gone: that's no fault of anybody's here.
        Err(_) if call.cancel.is_cancelled() => Err(None),
        Err(why) => {
            callboard_message::log::error!(call = %call.id, kind = %why.kind(), "verifier could not check an answer: withheld");
            Err(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a note is cut at its limit and stays on one line. Method: at the limit and one above; a line break.
    #[test]
    fn notes_are_bounded() {
        let shown = |note: String| {
            Answer::blocked(Verdict {
                safe: false,
                note,
                rule: None,
            })
            .text()
            .to_owned()
        };
        assert_eq!(
            shown("é".repeat(NOTE_CHARS_MAX)).chars().count(),
            NOTE_CHARS_MAX
        );
        assert_eq!(
            shown("é".repeat(NOTE_CHARS_MAX + 1)).chars().count(),
            NOTE_CHARS_MAX
        );
        assert_eq!(shown("a\nb".into()), "ab");
    }
}
