//! Virtual servers, and what holds for all that crosses.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use callboard_agents::bundle::{Prefix, Separator};
use serde::Deserialize;

/// A virtual server (`[[server]]`): a named selection, as one agent of this id.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerDeclaration {
    /// Its name in the directory.
    pub id: String,
    /// The ids of the agents and upstreams behind it.
    pub members: Vec<String>,
    /// Patterns over the names of tools as they are shown; all where there are none.
    #[serde(default)]
    pub tools: Vec<String>,
    /// What it is for, in A2A's cards.
    pub description: Option<String>,
    /// Which names of tools say whose they are.
    #[serde(default)]
    pub prefix: Prefix,
    /// What stands between a member and a name of its own.
    #[serde(default)]
    pub separator: Separator,
}

/// What holds for every message that crosses a boundary (`[policy]`).
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyDeclaration {
    /// Whether guardrail reads what crosses.
    pub guard: bool,
    /// Most requests a second of one client.
    pub per_client_per_second: Option<NonZeroU32>,
    /// Most calls a second of one tool, by its name as it is shown.
    pub per_tool_per_second: BTreeMap<String, NonZeroU32>,
}
