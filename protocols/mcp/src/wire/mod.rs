//! Names, revisions and codes of MCP that both sides of the protocol share. Source: the specification's schemas.

pub mod code;
pub(crate) mod failure;
pub mod header;
pub(crate) mod hmcp;
pub mod meta;

use std::fmt;

/// Keyword of a tool's output schema: `structuredContent.result` is the reply itself. Servers of this system write it.
pub(crate) const WRAPPED: &str = "x-callboard-wrapped";

/// A revision of MCP, oldest first.
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
    /// 2026-07-28: no sessions; a server's questions are results.
    V2026_07_28,
}

/// Which of the two MCPs: peers of one can't talk to the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Era {
    /// Sessions, `initialize`, requests of the server's in mid-call.
    Legacy,
    /// Stateless, `server/discover`, multi-round-trip requests.
    Modern,
}

impl Revision {
    /// All of them, oldest first.
    pub const ALL: [Self; 5] = [
        Self::V2024_11_05,
        Self::V2025_03_26,
        Self::V2025_06_18,
        Self::V2025_11_25,
        Self::V2026_07_28,
    ];
    /// The newest that begins with `initialize`.
    pub const LATEST_LEGACY: Self = Self::V2025_11_25;

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    /// The revision of that name; `None` where this system doesn't speak it.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|revision| revision.as_str() == text)
    }

    /// Which of the two MCPs it is.
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
