//! Plans, the registry of clinics and the catalogue of tools, shared by planner, router and
//! orchestrator.

mod check;
mod registry;
mod reply;
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
    CLINICS_MAX, ClinicEntry, ClinicRegistry, ClinicRegistryError, NAME_CHARS_MAX,
    WORDS_PER_CLINIC_MAX,
};
pub use reply::{Counting, ReplyOptions};

/// Maximum number of steps of a plan. A plan with more is refused. Fixed.
pub const STEPS_MAX: usize = 16;
/// Maximum number of patients for which the steps with [`Step::for_each`] of one plan are repeated. A
/// step that would exceed it isn't run, and its outcome tells so. Fixed.
pub const PATIENTS_EACH_MAX: usize = 128;
/// Maximum characters of an unusable text that a `raw_response` step keeps; the rest is cut. Fixed.
pub const RAW_TEXT_CHARS_MAX: usize = 2_000;
/// Action of the only step of a plan for a question that could not be planned. The step is never
/// dispatched; it tells the user the reason.
pub const RAW_RESPONSE: &str = "raw_response";
/// Maximum size of a plan's text that [`Plan::parse_strict`] accepts, in bytes. Fixed.
pub const PLAN_BYTES_MAX: usize = 64 * 1024;

/// Reason shown to the user if a model's plan could not be parsed.
pub const UNREADABLE_PLAN: &str = "The plan could not be read, so no clinic was asked. \
     Ask again and name a specialty, a condition or a patient id.";
/// Maximum characters of a `patient_id` parameter. A plan with a longer one is refused. Fixed.
pub const PATIENT_ID_CHARS_MAX: usize = 64;
/// Maximum characters of the search text of a `query` step. A plan with a longer one is refused.
/// Fixed.
pub const QUERY_TEXT_CHARS_MAX: usize = 200;

/// Plan for answering a question: a graph of tool calls at clinics.
#[derive(derive_more::Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[debug("{steps:?}")]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Steps of the plan, 1 to [`STEPS_MAX`].
    pub steps: Vec<Step>,
    /// Additions to the answer, beside the steps' results.
    #[serde(default, skip_serializing_if = "ReplyOptions::is_empty")]
    pub reply: ReplyOptions,
}

impl From<Vec<Step>> for Plan {
    /// Creates a plan without additions to the answer.
    fn from(steps: Vec<Step>) -> Self {
        Self {
            steps,
            reply: ReplyOptions::default(),
        }
    }
}

/// Step of a plan: one tool call at one clinic.
#[derive(derive_more::Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
// Parameters are the user's words and may name a patient: only their number is printed.
#[debug("Step({step_id} {clinic:?} {action:?}, {} parameters, after {depends_on:?})", parameters.len())]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Number of the step, unique in its plan.
    pub step_id: u32,
    /// Id of a registered clinic; empty in a `raw_response` step.
    pub clinic: String,
    /// Name of a catalogue tool, or `raw_response`.
    pub action: String,
    /// Arguments of the tool; in a `raw_response` step, the unusable `text` and the `reason`.
    #[serde(deserialize_with = "unique_keys")]
    pub parameters: Map<String, Value>,
    /// Numbers of the steps that must have succeeded before this one begins. It orders steps and
    /// carries no data: the answer of one clinic is never sent to another.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<u32>,
    /// Number of a step of the same clinic that finds patients. This step is repeated for each of
    /// them, with their ids as its `patient_id`. The orchestrator fills the ids in; the router only
    /// receives the repeated steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_each: Option<u32>,
    /// Numbers of steps of the same clinic that find patients to leave out of this step's. The
    /// orchestrator removes them; those steps' own patients aren't shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<u32>,
}

impl Step {
    /// Creates a step without dependencies. `parameter` is the name and value of its only
    /// parameter.
    pub fn new(step_id: u32, clinic: &str, action: &str, parameter: Option<(&str, &str)>) -> Self {
        let parameters = parameter
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.into()))
            .collect();
        Self {
            step_id,
            clinic: clinic.to_owned(),
            action: action.to_owned(),
            parameters,
            depends_on: Vec::new(),
            for_each: None,
            except: Vec::new(),
        }
    }

    /// Returns whether the step's tool finds patients: their ids and conditions.
    pub fn finds_patients(&self) -> bool {
        matches!(self.action.as_str(), "list_patients" | "query")
    }
}

impl Plan {
    /// Creates the plan for a question that can't be planned: a single `raw_response` step.
    ///
    /// `text` is the unusable text, of which at most [`RAW_TEXT_CHARS_MAX`] characters are kept.
    /// `reason` is a sentence that tells the user what to do next.
    pub fn raw_response(text: &str, reason: impl Into<String>) -> Self {
        let text = cut_chars(text, RAW_TEXT_CHARS_MAX).into();
        let parameters = [
            ("text".into(), text),
            ("reason".into(), reason.into().into()),
        ]
        .into_iter()
        .collect();
        let step = Step {
            parameters,
            ..Step::new(1, "", RAW_RESPONSE, None)
        };
        Self::from(vec![step])
    }

    /// Returns the reason if this is a `raw_response` plan, that is, the question could not be
    /// planned; an empty text if the plan states none. Otherwise returns `None`.
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

/// Deserializes a step's parameters. Fails if a parameter is repeated, because guardrail and tool
/// might use different values of it. Keys within a value aren't checked.
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

/// Error of parsing a plan's text. Each message tells the author of the plan what to change.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanParseError {
    /// The text is longer than [`PLAN_BYTES_MAX`] bytes.
    #[error("the plan has {bytes} bytes, more than {PLAN_BYTES_MAX}")]
    TooLong {
        /// Length of the text, in bytes.
        bytes: usize,
    },
    /// The text isn't a JSON array of steps. It must have no Markdown fences, no prose and no
    /// unknown fields.
    // serde's own message is left out: it can quote the text.
    #[error(
        "the plan is not a JSON array of steps without unknown keys or other text (line {line}, column {column})"
    )]
    NotSteps {
        /// Line of the error, from 1.
        line: usize,
        /// Column of the error, from 1; 0 before the first character of a line.
        column: usize,
    },
    /// The plan has no step, or more than [`STEPS_MAX`].
    #[error(transparent)]
    Steps(#[from] PlanError),
}

impl Plan {
    /// Parses a plan written by a model: strictly a JSON array of 1 to [`STEPS_MAX`] steps.
    /// [`Plan::check`] validates its clinics and tools.
    ///
    /// # Errors
    /// [`PlanParseError`], if the text is too long or isn't such an array.
    pub fn parse_strict(text: &str) -> Result<Self, PlanParseError> {
        if text.len() > PLAN_BYTES_MAX {
            return Err(PlanParseError::TooLong { bytes: text.len() });
        }
        let steps: Vec<Step> =
            serde_json::from_str(text).map_err(|e| PlanParseError::NotSteps {
                line: e.line(),
                column: e.column(),
            })?;
        check::check_count(&steps)?;
        Ok(Self::from(steps))
    }

    /// Parses a plan as [`Plan::parse_strict`] does. Invalid text becomes a `raw_response` plan,
    /// which the pipeline shows to the user as a refusal.
    pub fn parse_or_refuse(text: &str) -> Self {
        Self::parse_strict(text).unwrap_or_else(|_| Self::raw_response(text, UNREADABLE_PLAN))
    }
}

/// Tool that every clinic offers, as used in plans.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClinicTool {
    /// Name of the tool, used as a step's `action`.
    pub name: &'static str,
    /// Name and maximum characters of the tool's single, required text parameter; `None` if it
    /// takes none.
    pub parameter: Option<(&'static str, usize)>,
}

/// Tools that a step may name: the four of the federated clinics (technical blueprint, section
/// 2.4).
pub const CATALOGUE: [ClinicTool; 4] = [
    ClinicTool {
        name: "list_patients",
        parameter: None,
    },
    ClinicTool {
        name: "get_patient",
        parameter: Some(("patient_id", PATIENT_ID_CHARS_MAX)),
    },
    ClinicTool {
        name: "check_medications",
        parameter: Some(("patient_id", PATIENT_ID_CHARS_MAX)),
    },
    ClinicTool {
        name: "query",
        parameter: Some(("query", QUERY_TEXT_CHARS_MAX)),
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::RAW_TEXT_CHARS_MAX;
    use crate::plan::samples::SAMPLE_PLAN;

    fn steps(n: usize) -> String {
        let steps: Vec<String> = (1..=n)
            .map(|i| {
                format!(r#"{{"step_id":{i},"clinic":"clinic_a","action":"query","parameters":{{"query":"q{i}"}}}}"#)
            })
            .collect();
        format!("[{}]", steps.join(","))
    }

    /// Goal: a plan is written as the document has it. Method: read, write, compare bytes; no `depends_on` when empty.
    /// Rows: C-19, C-45.
    #[test]
    fn the_documents_plan_round_trips_byte_for_byte() {
        let plan = Plan::parse_or_refuse(SAMPLE_PLAN);
        assert_eq!(plan.refusal(), None);
        assert_eq!(
            serde_json::to_string(&plan.steps).ok().as_deref(),
            Some(SAMPLE_PLAN)
        );
    }

    /// Goal: whatever is not strictly a plan is the refusal. Method: rows of near misses.
    /// Rows: C-22.
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
            let plan = Plan::parse_or_refuse(bad);
            assert_eq!(plan.refusal(), Some(UNREADABLE_PLAN), "{bad}");
            assert_eq!(plan.steps[0].action, "raw_response");
        }
    }

    /// Goal: the limits hold. Method: at the limit and one above it.
    #[test]
    fn limits() {
        assert!(Plan::parse_strict(&steps(STEPS_MAX)).is_ok());
        assert!(matches!(
            Plan::parse_strict(&steps(STEPS_MAX + 1)),
            Err(PlanParseError::Steps(PlanError::TooManySteps { steps: 17 }))
        ));

        let padded = |bytes: usize| format!("{}{}", steps(1), " ".repeat(bytes - steps(1).len()));
        assert!(Plan::parse_strict(&padded(PLAN_BYTES_MAX)).is_ok());
        assert!(matches!(
            Plan::parse_strict(&padded(PLAN_BYTES_MAX + 1)),
            Err(PlanParseError::TooLong { .. })
        ));

        let kept = |text: &str| {
            Plan::parse_or_refuse(text).steps[0].parameters["text"]
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
        let error = Plan::parse_strict(bad).map_err(|e| e.to_string());
        assert!(matches!(&error, Err(e) if !e.contains("Jane")), "{error:?}");
    }
}
