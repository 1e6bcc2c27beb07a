use std::sync::Arc;
use std::time::Duration;

use callboard_runtime::{AgentRef, CallContext};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::plan::{RAW_RESPONSE, Step};
use crate::router::{StepOutcome, without_caller};
use crate::verifier::{Finding, Identities, Verdict, Verified, Verify};

/// Maximum characters of a verifier's note in a blocked answer; the rest is cut.
const NOTE_CHARS_MAX: usize = 300;

/// Answer to a clinician's question: its text, and the plan, results and verdict behind it.
///
/// Fields are private, so that an answer with patient data can only be made from a draft that the
/// verifier passed.
// Text and steps are patient data.
#[derive(derive_more::Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[debug(
    "Answer({status:?}, {} steps, verdict {:?}, {times_ms:?})",
    steps.len(), verdict.as_ref().map(|v| (v.safe, v.rule))
)]
pub struct ClinicAnswer {
    status: AnswerStatus,
    text: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    plan: Vec<Step>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    steps: Vec<StepOutcome>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<Verdict>,
    times_ms: TimesMs,
}

/// Outcome of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AnswerStatus {
    /// Every step was answered by its clinic, and the verifier passed the answer.
    Answered,
    /// Some steps were answered and others weren't, for example because a clinic is down; the text
    /// tells which. The verifier passed the answer.
    Partial,
    /// The guardrail blocked the question, or the verifier the answer; the text holds only the
    /// reason.
    Blocked,
    /// The question couldn't be planned, no clinic answered, or a stage was unavailable; the text
    /// states which.
    Failed,
}

impl AnswerStatus {
    /// Returns the name of the status in JSON and in the audit.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Partial => "partial",
            Self::Blocked => "blocked",
            Self::Failed => "failed",
        }
    }
}

/// Duration of each stage in milliseconds; 0 for a stage that wasn't reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct TimesMs {
    /// Time the guardrail took to screen the question, in milliseconds.
    pub screening: u64,
    /// Time the planner took, in milliseconds.
    pub planning: u64,
    /// Time the router took, in milliseconds: all clinics, and the guardrail's screening of their
    /// answers.
    pub routing: u64,
    /// Time the verifier took, in milliseconds.
    pub verifying: u64,
    /// Time of the whole question, in milliseconds.
    pub total: u64,
}

impl ClinicAnswer {
    /// Creates a blocked answer: it holds only the verdict, whose note is also the text, without
    /// control characters and cut after [`NOTE_CHARS_MAX`] characters.
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
            ..Self::without_data(AnswerStatus::Blocked, "")
        }
    }

    /// Creates an answer whose text is a fixed sentence, without data of a clinic or planner.
    pub(super) fn without_data(status: AnswerStatus, text: &'static str) -> Self {
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

    /// Adds the findings about steps that were withheld to the verdict.
    pub(super) fn with_findings(mut self, findings: Vec<Finding>) -> Self {
        self.verdict = self.verdict.map(|verdict| {
            let redactions = verdict.redactions;
            verdict.with_redactions(findings, redactions)
        });
        self
    }

    pub(super) fn with_times(self, times_ms: TimesMs) -> Self {
        Self { times_ms, ..self }
    }

    /// Returns the outcome of the question.
    pub fn status(&self) -> AnswerStatus {
        self.status
    }

    /// Returns the answer as plain text, or the reason there is none.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the planned steps: a single `raw_response` step, without its unusable `text`, if the
    /// question couldn't be planned. Empty if the question or answer was blocked, the answer
    /// couldn't be verified, or planner or router failed.
    pub fn plan(&self) -> &[Step] {
        &self.plan
    }

    /// Returns the clinics' answers or errors, one for each step; empty if no clinic was asked, the
    /// router failed, or the answer was blocked or couldn't be verified.
    pub fn steps(&self) -> &[StepOutcome] {
        &self.steps
    }

    /// Returns the verifier's verdict, with the number of redactions; `None` if the verifier wasn't reached, couldn't check the
    /// answer, or contradicted itself.
    pub fn verdict(&self) -> Option<&Verdict> {
        self.verdict.as_ref()
    }

    /// Returns the duration of each stage.
    pub fn times_ms(&self) -> TimesMs {
        self.times_ms
    }
}

/// Answer that isn't verified yet. Only [`verify_draft`] turns it into a [`ClinicAnswer`].
pub(super) struct AnswerDraft {
    pub status: AnswerStatus,
    pub plan: Vec<Step>,
    pub steps: Vec<StepOutcome>,
    pub text: String,
}

/// Sends the text and step outcomes of a draft to the verifier, but not the plan. Returns the
/// answer if the verifier says that it is safe: text and steps as the verifier returned them, without
/// times, and without the unusable text of a `raw_response` step.
///
/// # Errors
/// The verdict, if the draft isn't safe; `None`, if the call is cancelled, or the verifier is
/// unavailable, late, contradicts itself, or returns results of other steps.
pub(super) async fn verify_draft(
    draft: AnswerDraft,
    verifier: &AgentRef,
    call: &CallContext,
    within: Duration,
    identities: Identities,
) -> Result<ClinicAnswer, Option<Verdict>> {
    let mut records: Vec<Value> = draft
        .steps
        .iter()
        .filter_map(|s| s.result.clone())
        .collect();
    records.extend(searched_in_vain(&draft));
    let results = serde_json::to_value(&draft.steps).map_err(|_| None)?;
    let message = Verify {
        records,
        results,
        text: draft.text.clone(),
        identities,
    };
    let call_on = Some(Arc::new(without_caller(call)));
    match verifier
        .ask(message)
        .within_call(call_on)
        .within(within)
        .await
    {
        Ok(Verified {
            verdict,
            results,
            text,
        }) if verdict.safe && verdict.rule.is_none() => {
            let (status, mut plan) = (draft.status, draft.plan);
            // Exactly what was verified is shown: personal data may have been cut out of it.
            let steps = match serde_json::from_value::<Vec<StepOutcome>>(results) {
                Ok(steps) if are_same_steps(&steps, &draft.steps) => steps,
                _ => {
                    callboard_message::log::error!(call = %call.id, principal = call.principal.id, "verifier returned results of other steps: answer withheld");
                    return Err(None);
                }
            };
            // An unusable planner output may hold anything, so only the reason is shown, and only as it
            // was verified.
            let is_changed = text != draft.text;
            for step in plan.iter_mut().filter(|step| step.action == RAW_RESPONSE) {
                step.clinic.clear();
                step.parameters
                    .retain(|name, value| name == "reason" && value.is_string());
                if is_changed {
                    step.parameters.insert("reason".into(), text.clone().into());
                }
            }
            Ok(ClinicAnswer {
                status,
                text,
                plan,
                steps,
                verdict: Some(verdict),
                times_ms: TimesMs::default(),
            })
        }
        Ok(Verified { verdict, .. }) if !verdict.safe => Err(Some(verdict)),
        Ok(_) => {
            callboard_message::log::error!(call = %call.id, principal = call.principal.id, "verifier reported a violation but marked the answer safe: answer withheld");
            Err(None)
        }
        // The caller has cancelled: not worth an error in the log.
        Err(_) if call.cancel.is_cancelled() => Err(None),
        Err(why) => {
            callboard_message::log::error!(call = %call.id, principal = call.principal.id, kind = %why.kind(), "verifier could not check an answer: withheld");
            Err(None)
        }
    }
}

/// Returns what was searched at clinics that didn't answer, as a clinic that answers repeats it: the text names it, and a
/// medicine that is only asked for is no treatment plan. A text with a number, which may be a dose, isn't returned.
fn searched_in_vain(draft: &AnswerDraft) -> Vec<Value> {
    let failed = draft.plan.iter().filter(|step| {
        let outcome = draft.steps.iter().find(|o| o.step_id == step.step_id);
        step.action == "query" && outcome.is_some_and(|o| o.result.is_none())
    });
    let texts = failed.filter_map(|step| step.parameters.get("query")?.as_str());
    let texts = texts.filter(|text| !text.contains(|c: char| c.is_numeric()));
    texts.map(|text| json!({"query": text})).collect()
}

/// Returns whether the verifier returned the outcomes of the steps that it was asked about.
fn are_same_steps(verified: &[StepOutcome], asked: &[StepOutcome]) -> bool {
    let same = |(v, a): (&StepOutcome, &StepOutcome)| {
        v.step_id == a.step_id
            && v.action == a.action
            && v.result.is_some() == a.result.is_some()
            && v.error.is_some() == a.error.is_some()
    };
    verified.len() == asked.len() && verified.iter().zip(asked).all(same)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a note is cut at its limit and stays on one line. Method: at the limit and one above; a line break.
    #[test]
    fn notes_are_bounded() {
        let shown = |note: String| {
            ClinicAnswer::blocked(Verdict {
                safe: false,
                note,
                rule: None,
                findings: Vec::new(),
                redactions: 0,
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
