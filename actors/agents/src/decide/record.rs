use std::fmt;
use std::sync::Arc;

use callboard_message::{FailureKind, hex};
use callboard_runtime::BodyMark;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::decided::Cost;
use super::point::Point;

/// Names everything that is done for one request: the same request again, under the same key, has the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunId(Arc<str>);

impl RunId {
    /// That of what `owner` said under `key` in `context` to `agent`; a fresh one where the key is empty.
    pub fn of(agent: &str, owner: &str, context: &str, key: &str) -> Self {
        if key.is_empty() {
            return Self::fresh();
        }
        let mut hash = Sha256::new();
        for part in [agent, owner, context, key] {
            // With its length before it, so that no two lists of parts are one text.
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self(format!("run-{}", hex(&hash.finalize()[..16])).into())
    }

    /// One that nothing else has.
    pub fn fresh() -> Self {
        Self(format!("run-{}", Uuid::now_v7().simple()).into())
    }

    /// As text: `run-` and 32 hexadecimal digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why the fallback held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FallbackWhy {
    /// The decider said that it isn't clear.
    Unclear,
    /// It failed.
    Failed(FailureKind),
    /// It was late.
    TimedOut,
    /// It named what isn't there, or passed a limit.
    Unknown,
}

impl fmt::Display for FallbackWhy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unclear => f.write_str("unclear"),
            Self::Failed(kind) => write!(f, "failed: {kind}"),
            Self::TimedOut => f.write_str("timed out"),
            Self::Unknown => f.write_str("names what isn't there"),
        }
    }
}

/// That something was decided. It holds no text that anybody said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DecisionRecord {
    /// Where.
    pub point: Point,
    /// By whom: `rules`, `model:ID`, `person`, `agent:ID`.
    pub by: String,
    /// What stands for what the decider saw.
    pub inputs: BodyMark,
    /// What, in a word or two; `none` where nothing was.
    pub outcome: String,
    /// How sure, 0 to 1.
    pub confidence: f32,
    /// How long it took, in milliseconds.
    pub ms: u64,
    /// What it cost.
    pub cost: Cost,
    /// Why the fallback holds, where it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<FallbackWhy>,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
}

impl fmt::Display for DecisionRecord {
    /// As people see it in progress: `DP2: remote weather (0.82, rules)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({:.2}, {}", self.point.code(), self.outcome, self.confidence, self.by)?;
        match &self.fallback {
            Some(why) => write!(f, "; fallback, {why})"),
            None => f.write_str(")"),
        }
    }
}
