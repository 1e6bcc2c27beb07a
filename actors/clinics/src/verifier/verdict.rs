//! Verdict of a verification, and its reply.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Maximum number of findings in a verdict. Further ones are left out, since the answer is
/// withheld by the first already.
pub const FINDINGS_MAX: usize = 16;

/// Result of a verification: whether an answer may be shown, and the reason if not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// Whether the answer may be shown; if not, only the note may.
    pub safe: bool,
    /// `OK`, or one sentence with the first defect that makes the answer unsafe. Never repeats
    /// personal data.
    pub note: String,
    /// Broken rule of the note; `None` if the answer is safe, or was too long or too deeply nested
    /// to be checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<Rule>,
    /// Defects of all rules, in the order R1, R2, R3: at most [`FINDINGS_MAX`]. Those of a safe answer are
    /// personal data that was cut out of it, and defects of single clinics' answers that it leaves out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// Number of places where personal data was cut out of results and text.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub redactions: u32,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// Defect of an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// Broken rule.
    pub rule: Rule,
    /// Sentence with the defect. Never repeats personal data.
    pub note: String,
}

impl Finding {
    pub(crate) fn new(rule: Rule, note: impl Into<String>) -> Self {
        Self {
            rule,
            note: note.into(),
        }
    }
}

impl Verdict {
    pub(super) fn safe() -> Self {
        Self {
            safe: true,
            note: "OK".to_owned(),
            rule: None,
            findings: Vec::new(),
            redactions: 0,
        }
    }

    /// Creates the verdict about an answer that can't be checked. It has no rule.
    pub(super) fn unchecked(note: &str) -> Self {
        Self {
            safe: false,
            note: note.to_owned(),
            ..Self::safe()
        }
    }

    /// Creates the verdict about an answer with these defects, which are in the order of their
    /// rules: unsafe by the first of them, safe without any. Repeated ones are left out.
    pub(super) fn with_findings(found: impl IntoIterator<Item = Finding>) -> Self {
        let mut findings: Vec<Finding> = Vec::new();
        for finding in found {
            if findings.len() == FINDINGS_MAX {
                break;
            }
            if !findings.contains(&finding) {
                findings.push(finding);
            }
        }
        match findings.first() {
            None => Self::safe(),
            Some(first) => Self {
                safe: false,
                note: first.note.clone(),
                rule: Some(first.rule),
                findings,
                redactions: 0,
            },
        }
    }
}

impl Verdict {
    /// Adds what was cut out: findings that don't make the answer unsafe, and the number of places.
    pub(crate) fn with_redactions(mut self, found: Vec<Finding>, redactions: u32) -> Self {
        self.findings.extend(found);
        self.findings.sort_by_key(|finding| finding.rule);
        self.findings.truncate(FINDINGS_MAX);
        Self { redactions, ..self }
    }
}

/// Safety rule of the verifier.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum Rule {
    /// No fabricated doses or treatments.
    R1,
    /// No personal data.
    R2,
    /// No medical advice that only a physician may give.
    R3,
}

/// Verified answer: the verdict, and what may be shown.
#[derive(derive_more::Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
// Results and text are patient data: they are never printed.
#[debug("Verified({verdict:?}, {} bytes of text)", text.len())]
pub struct Verified {
    /// Verdict about the answer.
    pub verdict: Verdict,
    /// Results as they may be shown, with personal data replaced by its class in brackets, such as
    /// `[name]`; `null` if the answer is unsafe.
    #[serde(default)]
    pub results: Value,
    /// Text as it may be shown, with personal data replaced as in the results; empty if the answer
    /// is unsafe.
    #[serde(default)]
    pub text: String,
}

impl Verified {
    /// Creates the reply for an answer whose verdict is known: nothing of an unsafe one is kept.
    pub(super) fn new(verdict: Verdict, results: Value, text: String) -> Self {
        let (results, text) = match verdict.safe {
            true => (results, text),
            false => (Value::Null, String::new()),
        };
        Self {
            verdict,
            results,
            text,
        }
    }
}
