use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Additions of the planner to an answer: remarks about how the question was read, and how the
/// orchestrator sums its results up. They pass the verifier with the answer.
#[derive(derive_more::Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
// Remarks quote the user's words.
#[debug("ReplyOptions({} notes, {counting:?})", notes.len())]
#[serde(deny_unknown_fields, default)]
pub struct ReplyOptions {
    /// Sentences for the reader, such as corrected spellings and words that weren't used.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Whether the patients found are counted or compared by number; absent if not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counting: Option<Counting>,
    /// Sentence that replaces the answer if every step succeeded and none found a patient: no
    /// clinic here treats what was asked for. Absent if such an answer is shown as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub if_none: Option<String>,
    /// Whether the reason of a `raw_response` plan is the answer itself, not a refusal.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_answer: bool,
}

/// Summary of the numbers of patients that a plan's steps find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Counting {
    /// The number for each search.
    Count,
    /// The number for each search, and which is the largest.
    Compare,
}

impl ReplyOptions {
    /// Returns whether there are no additions.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
