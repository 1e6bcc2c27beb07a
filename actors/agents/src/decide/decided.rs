use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::limits::{CONFIDENCE_UNSAID, WHY_CHARS_MAX, cut_chars};

/// What a decider answers.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
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
        Self { outcome: Some(outcome), confidence, why: cut(why.into()), cost: Cost::default() }
    }

    /// It isn't clear, for that reason.
    pub fn unclear(why: impl Into<String>) -> Self {
        Self { outcome: None, confidence: 0.0, why: cut(why.into()), cost: Cost::default() }
    }

    /// The same, at that cost.
    pub fn at_cost(self, cost: Cost) -> Self {
        Self { cost, ..self }
    }

    /// The same with another outcome.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Decided<U> {
        let Self { outcome, confidence, why, cost } = self;
        Decided { outcome: outcome.map(change), confidence, why, cost }
    }
}

fn cut(mut why: String) -> String {
    why.truncate(cut_chars(&why, WHY_CHARS_MAX).len());
    why
}

// What was decided, and why, may hold what people said.
impl<T> fmt::Debug for Decided<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clear = if self.outcome.is_some() { "clear" } else { "unclear" };
        write!(f, "Decided({clear}, {:.2})", self.confidence)
    }
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

impl std::ops::Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            tokens_in: self.tokens_in.saturating_add(other.tokens_in),
            tokens_out: self.tokens_out.saturating_add(other.tokens_out),
            micro_usd: self.micro_usd.saturating_add(other.micro_usd),
        }
    }
}
