use std::fmt;

use callboard_message::text::cut_chars;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::limits::{CONFIDENCE_DEFAULT, DECISION_REASON_CHARS_MAX};

/// Name and short code of each decision point, in the order of [`DecisionPoint::ALL`].
const POINT_NAMES: [(&str, &str); DecisionPoint::ALL.len()] = [
    ("follow_up", "DP1"),
    ("intake", "DP0"),
    ("clarity", "NP1"),
    ("split", "NP2.A"),
    ("plan", "NP2.B"),
    ("route", "DP2"),
    ("tool", "DP3"),
    ("answer", "DP4"),
    ("recovery", "NP3"),
    ("synthesis", "NP4"),
    ("confirm", "NP5"),
];

/// Point of the request pipeline at which a decider is asked for a decision.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Point")]
pub enum DecisionPoint {
    /// DP1: whether a reply to another agent's question is passed on as it is.
    FollowUp,
    /// DP0: clarity, split, route and tool of a request at once.
    Intake,
    /// NP1: whether the request is clear enough to work on.
    Clarity,
    /// NP2.A: whether the request needs several steps.
    Split,
    /// NP2.B: the steps of the plan.
    Plan,
    /// DP2, NP2.C: whether the request goes to a local tool, to another agent, or is rejected.
    Route,
    /// DP3, NP2.C: the local tool and its parameters.
    Tool,
    /// DP4: the text of the answer.
    Answer,
    /// NP3: the recovery strategy after a failed step.
    Recovery,
    /// NP4: the answer made from the results of all steps.
    Synthesis,
    /// NP5: whether a person has to confirm.
    Confirm,
}

impl DecisionPoint {
    /// All decision points, in pipeline order.
    pub const ALL: [Self; 11] = [
        Self::FollowUp,
        Self::Intake,
        Self::Clarity,
        Self::Split,
        Self::Plan,
        Self::Route,
        Self::Tool,
        Self::Answer,
        Self::Recovery,
        Self::Synthesis,
        Self::Confirm,
    ];

    /// Returns the name used in configuration files and JSON, for example `follow_up`.
    pub const fn as_str(self) -> &'static str {
        POINT_NAMES[self as usize].0
    }

    /// Returns the short code in prompts and documentation, for example `DP1`.
    pub const fn code(self) -> &'static str {
        POINT_NAMES[self as usize].1
    }

    /// Returns the decision point with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|point| point.as_str() == name)
    }

    /// Index in [`DecisionPoint::ALL`].
    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for DecisionPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Reply of a decider.
// `Debug` omits outcome and reason: they may contain user text.
#[derive(derive_more::Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[debug("Decided({}, {confidence:.2})", if outcome.is_some() { "clear" } else { "unclear" })]
#[debug(bound())]
#[schemars(rename = "Decided")]
pub struct DeciderReply<T> {
    /// Decided outcome. `None` if the decider can't tell; then the next decider is asked, or the
    /// fallback of the decision point applies.
    pub outcome: Option<T>,
    /// Confidence, 0 to 1.
    #[serde(default = "default_confidence")]
    pub confidence: f32,
    /// Reason in words, at most [`DECISION_REASON_CHARS_MAX`] characters.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// Model usage of this decision.
    #[serde(default)]
    pub cost: DecisionCost,
}

fn default_confidence() -> f32 {
    CONFIDENCE_DEFAULT
}

impl<T> DeciderReply<T> {
    /// Creates a reply with an outcome, its confidence (0 to 1) and its reason. Cuts the reason to
    /// [`DECISION_REASON_CHARS_MAX`] characters.
    pub fn clear(outcome: T, confidence: f32, why: impl Into<String>) -> Self {
        Self {
            outcome: Some(outcome),
            confidence,
            why: truncate_reason(why.into()),
            cost: DecisionCost::default(),
        }
    }

    /// Creates a reply without an outcome, for the given reason. The next decider is asked, or the
    /// fallback of the decision point applies.
    pub fn unclear(why: impl Into<String>) -> Self {
        Self {
            outcome: None,
            confidence: 0.0,
            why: truncate_reason(why.into()),
            cost: DecisionCost::default(),
        }
    }

    /// Sets the cost.
    pub fn with_cost(self, cost: DecisionCost) -> Self {
        Self { cost, ..self }
    }
}

fn truncate_reason(mut why: String) -> String {
    why.truncate(cut_chars(&why, DECISION_REASON_CHARS_MAX).len());
    why
}

/// Model usage of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Cost")]
pub struct DecisionCost {
    /// Input tokens.
    pub tokens_in: u32,
    /// Output tokens.
    pub tokens_out: u32,
    /// Price, in millionths of a US dollar.
    pub micro_usd: u64,
}

impl DecisionCost {
    /// Returns the sum of both costs.
    pub fn plus(self, other: Self) -> Self {
        Self {
            tokens_in: self.tokens_in.saturating_add(other.tokens_in),
            tokens_out: self.tokens_out.saturating_add(other.tokens_out),
            micro_usd: self.micro_usd.saturating_add(other.micro_usd),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a decision point has one name in code and JSON, which parses back, and its index in
    /// `ALL`. Method: every point.
    #[test]
    fn names() {
        for (at, point) in DecisionPoint::ALL.into_iter().enumerate() {
            assert_eq!(serde_json::to_value(point).unwrap(), point.as_str());
            assert_eq!(DecisionPoint::parse(point.as_str()), Some(point));
            assert_eq!(point.index(), at);
        }
        assert_eq!(DecisionPoint::parse("DP2"), None);
    }
}
