//! Names, revisions and codes of MCP that client and server share, taken from the specification's
//! schemas.

pub mod code;
pub(crate) mod error_mapping;
pub mod header;
pub(crate) mod hmcp;
pub mod meta;

use std::fmt;

/// JSON Schema keyword in a tool's output schema. It marks that `structuredContent.result` holds
/// the reply itself, which isn't an object. Only callboard's servers write it.
pub(crate) const WRAPPED_SCHEMA: &str = "x-callboard-wrapped";

/// A revision of MCP, ordered from the oldest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Revision {
    /// 2024-11-05: HTTP+SSE and stdio.
    V2024_11_05,
    /// 2025-03-26: streamable HTTP, batches.
    V2025_03_26,
    /// 2025-06-18: elicitation, structured results; no batches.
    V2025_06_18,
    /// 2025-11-25: icons, URL elicitation, tools in sampling, tasks as an experiment.
    V2025_11_25,
    /// 2026-07-28: no sessions; servers ask questions in results instead of requests.
    V2026_07_28,
}

/// Era of MCP: the group of revisions with or without sessions. Peers of different eras can't
/// communicate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Era {
    /// Revisions up to 2025-11-25: sessions, `initialize`, and requests from server to client
    /// during a call.
    Legacy,
    /// Revision 2026-07-28: stateless requests, `server/discover`, and questions of the server in
    /// results (multi-round-trip requests).
    Modern,
}

impl Revision {
    /// All revisions, oldest first.
    pub const ALL: [Self; 5] = [
        Self::V2024_11_05,
        Self::V2025_03_26,
        Self::V2025_06_18,
        Self::V2025_11_25,
        Self::V2026_07_28,
    ];
    /// Latest revision of the legacy era.
    pub const LATEST_LEGACY: Self = Self::V2025_11_25;

    /// Returns the revision's date, as it is written on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    /// Parses a revision's date. Returns `None` for an unsupported revision.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|revision| revision.as_str() == text)
    }

    /// Returns the revision's era.
    pub fn era(self) -> Era {
        if self < Self::V2026_07_28 {
            Era::Legacy
        } else {
            Era::Modern
        }
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
