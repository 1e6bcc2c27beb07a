use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A point of the pipeline at which something is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
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
        match self {
            Self::FollowUp => "follow_up",
            Self::Clarity => "clarity",
            Self::Split => "split",
            Self::Plan => "plan",
            Self::Route => "route",
            Self::Tool => "tool",
            Self::Answer => "answer",
            Self::Recovery => "recovery",
            Self::Synthesis => "synthesis",
            Self::Confirm => "confirm",
        }
    }

    /// Its short code, as people see it in progress.
    pub const fn code(self) -> &'static str {
        match self {
            Self::FollowUp => "DP1",
            Self::Clarity => "NP1",
            Self::Split => "NP2.A",
            Self::Plan => "NP2.B",
            Self::Route => "DP2",
            Self::Tool => "DP3",
            Self::Answer => "DP4",
            Self::Recovery => "NP3",
            Self::Synthesis => "NP4",
            Self::Confirm => "NP5",
        }
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
