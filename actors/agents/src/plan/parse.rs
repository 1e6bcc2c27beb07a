use super::{Plan, STEPS_MAX, Step};

/// How long the text of a plan may be, in bytes.
pub const PLAN_BYTES_MAX: usize = 64 * 1024;

/// What the user reads when a model's plan could not be read.
pub const UNREADABLE_PLAN: &str = "The plan could not be read, so no clinic was asked. \
     Ask again and name a specialty, a condition or a patient id.";

/// Why a text is no plan. Each variant tells its writer what to change.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanParseError {
    /// Write a shorter one.
    #[error("the plan has {bytes} bytes, more than {PLAN_BYTES_MAX}")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// Write a JSON array of steps and nothing else: no fences, no prose, no further fields.
    // serde's own message is left out: it can quote the text.
    #[error("the plan is not a JSON array of steps (line {line}, column {column})")]
    NotSteps {
        /// Where it stops to fit, from 1.
        line: usize,
        /// In that line, from 1.
        column: usize,
    },
    /// Write at least one step.
    #[error("the plan has no step")]
    Empty,
    /// Ask for less at once.
    #[error("the plan has {steps} steps, more than {STEPS_MAX}")]
    TooManySteps {
        /// How many it has.
        steps: usize,
    },
}

impl Plan {
    /// Reads what a model wrote in the planner's place: a strict JSON array of at most [`STEPS_MAX`] steps.
    ///
    /// Whether clinics and tools exist is [`Plan::check`]'s question.
    pub fn read(text: &str) -> Result<Self, PlanParseError> {
        if text.len() > PLAN_BYTES_MAX {
            return Err(PlanParseError::TooLong { bytes: text.len() });
        }
        let steps: Vec<Step> =
            serde_json::from_str(text).map_err(|e| PlanParseError::NotSteps { line: e.line(), column: e.column() })?;
        match steps.len() {
            0 => Err(PlanParseError::Empty),
            steps if steps > STEPS_MAX => Err(PlanParseError::TooManySteps { steps }),
            _ => Ok(Self { steps }),
        }
    }

    /// As [`Plan::read`]; what can't be read becomes the `raw_response` plan, so that the pipeline goes on to refuse.
    pub fn parse(text: &str) -> Self {
        Self::read(text).unwrap_or_else(|_| Self::raw_response(text, UNREADABLE_PLAN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::RAW_TEXT_CHARS_MAX;
    use crate::plan::samples::THE_PLAN;

    fn steps(n: usize) -> String {
        let steps: Vec<String> = (1..=n)
            .map(|i| {
                format!(r#"{{"step_id":{i},"clinic":"clinic_a","action":"query","parameters":{{"query":"q{i}"}}}}"#)
            })
            .collect();
        format!("[{}]", steps.join(","))
    }

    /// Goal: a plan is written as the document has it. Method: read, write, compare bytes; no `depends_on` when empty.
    #[test]
    fn the_documents_plan_round_trips_byte_for_byte() {
        let plan = Plan::parse(THE_PLAN);
        assert_eq!(plan.refusal(), None);
        assert_eq!(serde_json::to_string(&plan.steps).ok().as_deref(), Some(THE_PLAN));
    }

    /// Goal: whatever is not strictly a plan is the refusal. Method: rows of near misses.
    #[test]
    fn anything_else_is_a_raw_response() {
        let fenced = format!("```json\n{}\n```", steps(1));
        let prose = format!("Here is the plan: {}", steps(1));
        let trailing = format!("{} Done.", steps(1));
        for bad in [
            "",
            "I would first list the patients.",
            "[]",
            "{}",
            "null",
            r#"{"steps":[]}"#,
            r#"[{"step_id":1,"clinic":"clinic_a","action":"query"}]"#,
            r#"[{"step_id":-1,"clinic":"clinic_a","action":"list_patients","parameters":{}}]"#,
            r#"[{"step_id":1,"clinic":"clinic_a","action":"list_patients","parameters":{},"why":"x"}]"#,
            r#"[{"step_id":1,"clinic":"clinic_a","clinic":"clinic_b","action":"list_patients","parameters":{}}]"#,
            r#"[{"step_id":1,"clinic":"clinic_a","action":"query","parameters":{"query":"a","query":"b"}}]"#,
            r#"[{"step_id":1,"clinic":["clinic_a","clinic_b"],"action":"list_patients","parameters":{}}]"#,
            &fenced,
            &prose,
            &trailing,
            &"[".repeat(100_000)[..PLAN_BYTES_MAX],
        ] {
            let plan = Plan::parse(bad);
            assert_eq!(plan.refusal(), Some(UNREADABLE_PLAN), "{bad}");
            assert_eq!(plan.steps[0].action, "raw_response");
        }
    }

    /// Goal: the limits hold. Method: at the limit and one above it.
    #[test]
    fn limits() {
        assert!(Plan::read(&steps(STEPS_MAX)).is_ok());
        assert!(
            matches!(Plan::read(&steps(STEPS_MAX + 1)), Err(PlanParseError::TooManySteps { steps }) if steps == 17)
        );

        let padded = |bytes: usize| format!("{}{}", steps(1), " ".repeat(bytes - steps(1).len()));
        assert!(Plan::read(&padded(PLAN_BYTES_MAX)).is_ok());
        assert!(matches!(Plan::read(&padded(PLAN_BYTES_MAX + 1)), Err(PlanParseError::TooLong { .. })));

        let kept = |text: &str| Plan::parse(text).steps[0].parameters["text"].as_str().map(|t| t.chars().count());
        assert_eq!(kept(&"é".repeat(RAW_TEXT_CHARS_MAX)), Some(RAW_TEXT_CHARS_MAX));
        assert_eq!(kept(&"é".repeat(RAW_TEXT_CHARS_MAX + 1)), Some(RAW_TEXT_CHARS_MAX));
    }

    /// Goal: no message quotes the text of a plan. Method: a name in a place where serde would quote it.
    #[test]
    fn errors_do_not_quote() {
        let bad = r#"[{"step_id":"Jane Roe","clinic":"clinic_a","action":"x","parameters":{}}]"#;
        let error = Plan::read(bad).map_err(|e| e.to_string());
        assert!(matches!(&error, Err(e) if !e.contains("Jane")), "{error:?}");
    }
}
