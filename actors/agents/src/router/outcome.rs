use std::fmt;

use callboard_message::{Failure, FailureKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::plan::Step;
use crate::text::plain;

/// A clinic can't be reached or couldn't answer (technical blueprint, section 2.2).
pub const CODE_UNAVAILABLE: i32 = -32000;
/// A clinic didn't accept the parameters.
pub const CODE_INVALID_PARAMS: i32 = -32602;
/// The guardrail stopped a clinic's answer.
pub const CODE_BLOCKED: i32 = -1;

/// How long a clinic's own words in an error may be, in characters; the rest is cut.
const MESSAGE_CHARS_MAX: usize = 200;

/// How one step ended: with a result, or with an error.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepOutcome {
    /// The step's number.
    pub step_id: u32,
    /// Who was asked.
    pub clinic: String,
    /// Which tool.
    pub action: String,
    /// What the clinic answered. Patient data: never logged, never stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// Why there is no result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<StepError>,
    /// How long it took, in milliseconds.
    pub ms: u64,
}

/// Why a step has no result.
#[derive(derive_more::Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[debug("StepError({})", code)]
pub struct StepError {
    /// As in JSON-RPC: [`CODE_UNAVAILABLE`], [`CODE_INVALID_PARAMS`], [`CODE_BLOCKED`], or what the clinic's peer said.
    pub code: i32,
    /// One sentence for a person.
    pub message: String,
}

impl StepOutcome {
    pub(super) fn succeeded(step: &Step, result: Value, ms: u64) -> Self {
        Self { result: Some(result), error: None, ..Self::of(step, ms) }
    }

    pub(super) fn failed(step: &Step, error: StepError, ms: u64) -> Self {
        Self { result: None, error: Some(error), ..Self::of(step, ms) }
    }

    fn of(step: &Step, ms: u64) -> Self {
        let (clinic, action) = (step.clinic.clone(), step.action.clone());
        Self { step_id: step.step_id, clinic, action, result: None, error: None, ms }
    }
}

impl StepError {
    pub(super) fn unavailable(message: impl Into<String>) -> Self {
        Self { code: CODE_UNAVAILABLE, message: message.into() }
    }

    /// A clinic's failure. Its own words are kept only where they tell what to change, and are still to be screened.
    pub(super) fn of_clinic(clinic: &str, failure: &Failure) -> Self {
        let told = failure.data.as_ref().and_then(|d| d.get("code")).and_then(Value::as_i64);
        let told = told.and_then(|code| i32::try_from(code).ok());
        let words = || printable(&failure.message);
        let (code, message) = match failure.kind {
            FailureKind::InvalidInput | FailureKind::NotFound => {
                (CODE_INVALID_PARAMS, format!("{clinic}: {}", words()))
            }
            FailureKind::Denied | FailureKind::Rejected => (CODE_UNAVAILABLE, format!("{clinic} refused: {}", words())),
            FailureKind::Blocked => (CODE_BLOCKED, format!("{clinic} blocked the request")),
            FailureKind::TimedOut => (CODE_UNAVAILABLE, format!("{clinic} did not answer in time")),
            FailureKind::Overloaded => (CODE_UNAVAILABLE, format!("{clinic} is overloaded: ask again later")),
            FailureKind::Cancelled => (CODE_UNAVAILABLE, format!("the request to {clinic} was cancelled")),
            FailureKind::Unavailable => (CODE_UNAVAILABLE, format!("{clinic} can't be reached")),
            _ => (CODE_UNAVAILABLE, format!("{clinic} failed to answer")),
        };
        Self { code: told.unwrap_or(code), message }
    }
}

fn printable(words: &str) -> String {
    plain(words).chars().map(|c| if c.is_control() { ' ' } else { c }).take(MESSAGE_CHARS_MAX).collect()
}

impl fmt::Debug for StepOutcome {
    // The result is patient data and an error may quote it: neither is printed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = match &self.error {
            Some(error) => format!("error {}", error.code),
            None => "result".to_owned(),
        };
        write!(f, "StepOutcome({} {} {}: {end}, {} ms)", self.step_id, self.clinic, self.action, self.ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a clinic's words are cut and cannot break a line; the code that its peer told is kept. Method: at the
    /// limit and one above; a failure with a code.
    #[test]
    fn a_clinics_words_are_bounded() {
        let kept = |chars: usize| {
            let error = StepError::of_clinic("clinic_a", &Failure::not_found("é".repeat(chars)));
            error.message.chars().filter(|c| *c == 'é').count()
        };
        assert_eq!(kept(MESSAGE_CHARS_MAX), MESSAGE_CHARS_MAX);
        assert_eq!(kept(MESSAGE_CHARS_MAX + 1), MESSAGE_CHARS_MAX);

        let failure = Failure::invalid("a\u{1b}b\nc").with_data(serde_json::json!({ "code": -32099 }));
        let error = StepError::of_clinic("clinic_a", &failure);
        assert_eq!((error.code, error.message.as_str()), (-32099, "clinic_a: a b c"));
    }
}
