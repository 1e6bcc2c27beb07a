//! Plans, the registry of clinics and the catalogue of tools, shared by planner, router and orchestrator.

mod check;
mod registry;
#[cfg(test)]
pub(crate) mod samples;

use std::fmt;

use callboard_message::text::cut_chars;
use schemars::JsonSchema;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

pub use check::{CheckedPlan, PlanError};
pub(crate) use registry::is_name;
pub use registry::{
    CLINICS_MAX, ClinicEntry, NAME_CHARS_MAX, Registry, RegistryError, WORDS_PER_CLINIC_MAX,
};

/// Maximum steps of a plan. A plan with more becomes a refusal for the user. Fixed.
pub const STEPS_MAX: usize = 16;
/// Maximum characters of an unusable text that a `raw_response` step keeps. A longer one is cut. Fixed.
pub const RAW_TEXT_CHARS_MAX: usize = 2_000;
/// The action of the one step of a plan that could not be made. Nothing is dispatched for it.
pub const RAW_RESPONSE: &str = "raw_response";
/// Maximum bytes of the text of a plan. A longer one becomes a refusal for the user. Fixed.
pub const PLAN_BYTES_MAX: usize = 64 * 1024;

/// Text for the user when a model's plan could not be read.
pub const UNREADABLE_PLAN: &str = "The plan could not be read, so no clinic was asked. \
     Ask again and name a specialty, a condition or a patient id.";
/// Maximum characters of a patient's id. A plan with a longer one is refused. Fixed.
pub const PATIENT_ID_CHARS_MAX: usize = 64;
/// Maximum characters of the text of a `query` step. A plan with a longer one is refused. Fixed.
pub const QUERY_TEXT_CHARS_MAX: usize = 200;

/// What to ask of whom to answer one query: a step graph.
#[derive(derive_more::Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[debug("{steps:?}")]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// 1 to [`STEPS_MAX`] steps.
    pub steps: Vec<Step>,
}

/// One tool call at one clinic.
#[derive(derive_more::Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
// Parameters are the user's words and may name a patient: only their number is printed.
#[debug("Step({step_id} {clinic:?} {action:?}, {} parameters, after {depends_on:?})", parameters.len())]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Unique in its plan.
    pub step_id: u32,
    /// The id of a registered clinic; empty in a `raw_response`.
    pub clinic: String,
    /// A tool of the catalogue, or `raw_response`.
    pub action: String,
    /// The tool's arguments.
    #[serde(deserialize_with = "unique_keys")]
    pub parameters: Map<String, Value>,
    /// Steps that must have succeeded before this one begins. It orders steps and carries no data: what one clinic
    /// answered never goes to another.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<u32>,
}

impl Plan {
    /// The plan of a query that can't be planned: one `raw_response` step.
    ///
    /// `text` is what could not be used (at most [`RAW_TEXT_CHARS_MAX`] characters are kept); `reason` is a sentence
    /// that tells the user what to do next.
    pub fn raw_response(text: &str, reason: impl Into<String>) -> Self {
        let text = cut_chars(text, RAW_TEXT_CHARS_MAX).into();
        let parameters = [
            ("text".into(), text),
            ("reason".into(), reason.into().into()),
        ]
        .into_iter()
        .collect();
        let step = Step {
            step_id: 1,
            clinic: String::new(),
            action: RAW_RESPONSE.into(),
            parameters,
            depends_on: Vec::new(),
        };
        Self { steps: vec![step] }
    }

    /// Why nothing was planned, if this is the `raw_response` plan.
    pub fn refusal(&self) -> Option<&str> {
        match self.steps.as_slice() {
            [step] if step.action == RAW_RESPONSE => Some(
                step.parameters
                    .get("reason")
                    .and_then(Value::as_str)
                    .unwrap_or_default(),
            ),
            _ => None,
        }
    }
}

/// The parameters as an object with every key once: of two values for one key, guard and tool could each see another.
fn unique_keys<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Map<String, Value>, D::Error> {
    struct Unique;

    impl<'de> Visitor<'de> for Unique {
        type Value = Map<String, Value>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
            let mut map = Map::new();
            while let Some((key, value)) = entries.next_entry::<String, Value>()? {
                if map.insert(key, value).is_some() {
                    return Err(A::Error::custom("a parameter is given twice"));
                }
            }
            Ok(map)
        }
    }

    deserializer.deserialize_map(Unique)
}

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
    /// Write at least one step, and fewer at once.
    #[error(transparent)]
    Steps(#[from] PlanError),
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
            serde_json::from_str(text).map_err(|e| PlanParseError::NotSteps {
                line: e.line(),
                column: e.column(),
            })?;
        check::check_count(&steps)?;
        Ok(Self { steps })
    }

    /// As [`Plan::read`]; what can't be read becomes the `raw_response` plan, so that the pipeline goes on to refuse.
    pub fn parse(text: &str) -> Self {
        Self::read(text).unwrap_or_else(|_| Self::raw_response(text, UNREADABLE_PLAN))
    }
}

/// A tool that every clinic has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tool {
    /// Its name, as a step's `action`.
    pub name: &'static str,
    /// Its one argument, a text that is required: key and maximum characters.
    pub parameter: Option<(&'static str, usize)>,
}

/// The tools that a step may name: the four of the federated clinics (technical blueprint, section 2.4).
pub const CATALOGUE: [Tool; 4] = [
    Tool {
        name: "list_patients",
        parameter: None,
    },
    Tool {
        name: "get_patient",
        parameter: Some(("patient_id", PATIENT_ID_CHARS_MAX)),
    },
    Tool {
        name: "check_medications",
        parameter: Some(("patient_id", PATIENT_ID_CHARS_MAX)),
    },
    Tool {
        name: "query",
        parameter: Some(("query", QUERY_TEXT_CHARS_MAX)),
    },
];

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
        assert_eq!(
            serde_json::to_string(&plan.steps).ok().as_deref(),
            Some(THE_PLAN)
        );
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
        assert!(matches!(
            Plan::read(&steps(STEPS_MAX + 1)),
            Err(PlanParseError::Steps(PlanError::TooManySteps { steps: 17 }))
        ));

        let padded = |bytes: usize| format!("{}{}", steps(1), " ".repeat(bytes - steps(1).len()));
        assert!(Plan::read(&padded(PLAN_BYTES_MAX)).is_ok());
        assert!(matches!(
            Plan::read(&padded(PLAN_BYTES_MAX + 1)),
            Err(PlanParseError::TooLong { .. })
        ));

        let kept = |text: &str| {
            Plan::parse(text).steps[0].parameters["text"]
                .as_str()
                .map(|t| t.chars().count())
        };
        assert_eq!(
            kept(&"é".repeat(RAW_TEXT_CHARS_MAX)),
            Some(RAW_TEXT_CHARS_MAX)
        );
        assert_eq!(
            kept(&"é".repeat(RAW_TEXT_CHARS_MAX + 1)),
            Some(RAW_TEXT_CHARS_MAX)
        );
    }

    /// Goal: no message quotes the text of a plan. Method: a name in a place where serde would quote it.
    #[test]
    fn errors_do_not_quote() {
        let bad = r#"[{"step_id":"Jane Roe","clinic":"clinic_a","action":"x","parameters":{}}]"#;
        let error = Plan::read(bad).map_err(|e| e.to_string());
        assert!(matches!(&error, Err(e) if !e.contains("Jane")), "{error:?}");
    }
}
