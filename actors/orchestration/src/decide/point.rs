use std::fmt;

use callboard_message::text::cut_chars;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::limits::{CONFIDENCE_UNSAID, WHY_CHARS_MAX};

/// Name and short code of each point, in the order of [`Point::ALL`].
const POINT_NAMES: [(&str, &str); Point::ALL.len()] = [
    ("follow_up", "DP1"),
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

/// A point of the pipeline at which something is decided.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Point {
    /// DP1: does what somebody says go to the work under way?
    FollowUp,
    /// NP1: is the request clear enough?
    Clarity,
    /// NP2.A: does it need several steps?
    Split,
    /// NP2.B: which steps?
    Plan,
    /// DP2, NP2.C: here, elsewhere, or not at all?
    Route,
    /// DP3, NP2.C: with which tool?
    Tool,
    /// DP4: what is the answer?
    Answer,
    /// NP3: what to do about an error?
    Recovery,
    /// NP4: what do the steps' results come to?
    Synthesis,
    /// NP5: does a person have to confirm?
    Confirm,
}

impl Point {
    /// Every point.
    pub const ALL: [Self; 10] = [
        Self::FollowUp,
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

    /// Its name, in files and JSON.
    pub const fn as_str(self) -> &'static str {
        POINT_NAMES[self as usize].0
    }

    /// Its short code, as people see it in progress.
    pub const fn code(self) -> &'static str {
        POINT_NAMES[self as usize].1
    }

    /// The point of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|point| point.as_str() == name)
    }

    /// Its place in [`Point::ALL`].
    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a decider answers.
// What was decided, and why, may hold what people said.
#[derive(derive_more::Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[debug("Decided({}, {confidence:.2})", if outcome.is_some() { "clear" } else { "unclear" })]
#[debug(bound())]
pub struct Decided<T> {
    /// What was decided; `None` where it isn't clear: then the point's fallback holds.
    pub outcome: Option<T>,
    /// How sure, 0 to 1.
    #[serde(default = "unsaid")]
    pub confidence: f32,
    /// Why, for people: at most [`WHY_CHARS_MAX`] characters.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// What it cost.
    #[serde(default)]
    pub cost: Cost,
}

fn unsaid() -> f32 {
    CONFIDENCE_UNSAID
}

impl<T> Decided<T> {
    /// This, so sure, for that reason.
    pub fn sure(outcome: T, confidence: f32, why: impl Into<String>) -> Self {
        Self {
            outcome: Some(outcome),
            confidence,
            why: cut(why.into()),
            cost: Cost::default(),
        }
    }

    /// It isn't clear, for that reason.
    pub fn unclear(why: impl Into<String>) -> Self {
        Self {
            outcome: None,
            confidence: 0.0,
            why: cut(why.into()),
            cost: Cost::default(),
        }
    }

    /// The same, at that cost.
    pub fn at_cost(self, cost: Cost) -> Self {
        Self { cost, ..self }
    }
}

fn cut(mut why: String) -> String {
    why.truncate(cut_chars(&why, WHY_CHARS_MAX).len());
    why
}

/// What a decision cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Cost {
    /// Tokens read.
    pub tokens_in: u32,
    /// Tokens written.
    pub tokens_out: u32,
    /// Price, in millionths of a US dollar.
    pub micro_usd: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a point has one name, here and in JSON, reads back, and stands where `ALL` has it. Method: every point.
    #[test]
    fn names() {
        for (at, point) in Point::ALL.into_iter().enumerate() {
            assert_eq!(serde_json::to_value(point).unwrap(), point.as_str());
            assert_eq!(Point::parse(point.as_str()), Some(point));
            assert_eq!(point.index(), at);
        }
        assert_eq!(Point::parse("DP2"), None);
    }
}
