use callboard_macros::Message;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Checks the answer to a query before a person sees it: medicines and doses against the records, personal data,
/// medical advice.
#[derive(derive_more::Debug, Clone, Message, Serialize, Deserialize, JsonSchema)]
// Records and text hold patient data: they are never printed.
#[debug("Verify({} records, {} bytes, identities {:?})", records.len(), self.bytes(), identities)]
#[message(name = "verify", reply = Verdict)]
#[serde(deny_unknown_fields)]
pub struct Verify {
    /// What the clinics answered in this query: all that the answer may rest on.
    pub records: Vec<Value>,
    /// The aggregated results as they would be shown; null if only the text is.
    #[serde(default)]
    pub results: Value,
    /// The final text.
    #[serde(default)]
    pub text: String,
    /// Whether the caller may see who the patients are.
    #[serde(default)]
    pub identities: Identities,
}

impl Verify {
    /// Bytes of text and values that the rules will read.
    pub(super) fn bytes(&self) -> usize {
        self.records.iter().chain([&self.results]).map(bytes).sum::<usize>() + self.text.len()
    }
}

/// Bytes of the strings in a value; stops counting where a value is nested too deeply to be read at all.
fn bytes(value: &Value) -> usize {
    fn count(value: &Value, depth: usize) -> usize {
        match value {
            _ if depth > super::VALUE_DEPTH_MAX => 0,
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(|v| 1 + count(v, depth + 1)).sum(),
            Value::Object(map) => map.iter().map(|(k, v)| k.len() + count(v, depth + 1)).sum(),
            _ => 4,
        }
    }
    count(value, 0)
}

/// What the caller's principal and purpose allow it to see of a person.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Identities {
    /// Nothing that identifies a person.
    #[default]
    Withheld,
    /// Names, ids and addresses, but only those that the records hold.
    AsRecorded,
}

/// Whether an answer may be shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// Show the answer; else show the note and nothing else.
    pub safe: bool,
    /// `OK`, or one sentence that says what is wrong. Never repeats personal data.
    pub note: String,
    /// The rule that was broken; none if the answer is safe, or couldn't be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<Rule>,
}

impl Verdict {
    pub(super) fn ok() -> Self {
        Self { safe: true, note: "OK".to_owned(), rule: None }
    }

    pub(super) fn broken(rule: Rule, note: String) -> Self {
        Self { safe: false, note, rule: Some(rule) }
    }

    pub(super) fn unreadable(note: &str) -> Self {
        Self { safe: false, note: note.to_owned(), rule: None }
    }
}

/// A safety rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Rule {
    /// No fabricated doses or treatments.
    R1,
    /// No personal data.
    R2,
    /// No medical advice that only a physician may give.
    R3,
}
