use std::fmt;

use schemars::JsonSchema;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

/// How many steps a plan may have.
pub const STEPS_MAX: usize = 16;
/// How much of an unusable text a `raw_response` step keeps, in characters.
pub const RAW_TEXT_CHARS_MAX: usize = 2_000;
/// The action of the one step of a plan that could not be made. Nothing is dispatched for it.
pub const RAW_RESPONSE: &str = "raw_response";

/// What to ask of whom to answer one query: a step graph.
#[derive(derive_more::Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[debug("{steps:?}")]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// 1 to [`STEPS_MAX`] steps.
    pub steps: Vec<Step>,
}

/// One tool call at one clinic.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
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
        let mut parameters = Map::new();
        parameters.insert("text".into(), text.chars().take(RAW_TEXT_CHARS_MAX).collect::<String>().into());
        parameters.insert("reason".into(), reason.into().into());
        let step =
            Step { step_id: 1, clinic: String::new(), action: RAW_RESPONSE.into(), parameters, depends_on: Vec::new() };
        Self { steps: vec![step] }
    }

    /// Why nothing was planned, if this is the `raw_response` plan.
    pub fn refusal(&self) -> Option<&str> {
        match self.steps.as_slice() {
            [step] if step.action == RAW_RESPONSE => {
                Some(step.parameters.get("reason").and_then(Value::as_str).unwrap_or_default())
            }
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

impl fmt::Debug for Step {
    // Parameters are the user's words and may name a patient: only their number is printed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Step({} {:?} {:?}, {} parameters", self.step_id, self.clinic, self.action, self.parameters.len())?;
        if !self.depends_on.is_empty() {
            write!(f, ", after {:?}", self.depends_on)?;
        }
        f.write_str(")")
    }
}
