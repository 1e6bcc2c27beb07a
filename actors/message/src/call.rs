use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Default maximum number of agents that one call may pass through before it is rejected as a loop.
pub const HOPS_MAX_DEFAULT: u16 = 16;

/// Identifier of one call. It is ordered by time and unique across nodes (UUID version 7, RFC
/// 9562).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct CallId(Uuid);

impl CallId {
    /// Generates a new id from the current time and random bits.
    pub fn generate() -> Self {
        Self(Uuid::now_v7())
    }

    /// Returns 32 random bits of the id, which differ between ids of the same time.
    pub fn random_bits(&self) -> u32 {
        // The lower half of UUID version 7 ends with random bits; a counter is above them.
        self.0.as_u64_pair().1 as u32
    }
}

impl FromStr for CallId {
    type Err = uuid::Error;

    /// Reads an id as it is displayed.
    fn from_str(text: &str) -> Result<Self, uuid::Error> {
        text.parse().map(Self)
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Identifier of a client's session in MCP up to 2025-11-25. It is unique across nodes (UUID
/// version 7).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct SessionId(Uuid);

impl SessionId {
    /// Generates a new id from the current time and random bits.
    pub fn generate() -> Self {
        Self(Uuid::now_v7())
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Remaining budget of a call. A field that is `None` means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Budget {
    /// Number of tokens that language models may still read and write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Amount of money that may still be spent, in millionths of a US dollar.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub micro_usd: Option<u64>,
}

/// Progress report of a running call.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Progress {
    /// Amount of work done so far. It grows with every report of one call.
    pub done: f64,
    /// Amount of work when the call is complete, in the same unit as `done`; `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
    /// Description of the current step, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
