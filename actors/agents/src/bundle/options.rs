//! What a bundle is made of.

use std::collections::BTreeMap;
use std::time::Duration;

use callboard_runtime::AgentRef;
use serde::Deserialize;

use super::BUNDLE_LIST_TIMEOUT_DEFAULT;

/// One of a bundle's agents.
#[derive(Debug, Clone)]
pub struct BundleMember {
    /// What its tools are called after.
    pub name: String,
    /// The agent.
    pub agent: AgentRef,
    /// Which of its tools are shown.
    pub filter: Filter,
}

impl BundleMember {
    /// An agent with all its tools, as they are called.
    pub fn new(name: impl Into<String>, agent: AgentRef) -> Self {
        Self { name: name.into(), agent, filter: Filter::default() }
    }

    /// The same, with only what passes `filter`.
    pub fn filtered(self, filter: Filter) -> Self {
        Self { filter, ..self }
    }
}

/// Which of an agent's tools are shown, and under which names. What isn't shown can't be called.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Filter {
    /// Patterns of its own names ([`callboard_runtime::Patterns`]); none: all.
    pub allow: Vec<String>,
    /// Patterns of its own names that aren't shown, whatever `allow` says.
    pub deny: Vec<String>,
    /// Own name → the name that takes its place. A tool that has such a name of its own is hidden by it.
    pub rename: BTreeMap<String, String>,
}

/// How a bundle shows its members.
#[derive(Debug, Clone)]
pub struct BundleOptions {
    /// Patterns of the names that tools are shown under; none: all.
    pub allow: Vec<String>,
    /// Patterns of such names that aren't shown, whatever `allow` says.
    pub deny: Vec<String>,
    /// Which names say whose they are.
    pub prefix: Prefix,
    /// What stands between a member and a name of its own.
    pub separator: Separator,
    /// How long a member's lists, and what it says of itself, are waited for; then the bundle's go without.
    pub list_timeout: Duration,
}

impl Default for BundleOptions {
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            deny: Vec::new(),
            prefix: Prefix::default(),
            separator: Separator::default(),
            list_timeout: BUNDLE_LIST_TIMEOUT_DEFAULT,
        }
    }
}

/// Which names have their member's before them (`member.name`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Prefix {
    /// Those of message types that another member has too, and all that a member lists itself: its list may change while
    /// the bundle runs, and a name must not come to mean something else.
    #[default]
    WhereNeeded,
    /// All of them: a member more changes no name.
    Always,
    /// Those of message types that another member has too. Only for bundles of which at most one member lists anything
    /// itself, for then nothing can come between; where its list has a name of a message type, that one is joined.
    Never,
}

/// What stands between a member and a name of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub enum Separator {
    /// `member.name`.
    #[default]
    #[serde(rename = ".")]
    Dot,
    /// `member__name`: for clients whose models take letters, digits, `_` and `-` only. No member's name then has `__` in
    /// it or `_` at its end.
    #[serde(rename = "__")]
    Underscores,
}

impl Separator {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Dot => ".",
            Self::Underscores => "__",
        }
    }

    pub(super) fn before_hash(self) -> char {
        match self {
            Self::Dot => '.',
            Self::Underscores => '_',
        }
    }
}

/// Why agents can't be bundled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// Rename one: in names of tools they would be the same.
    #[error("two members of a bundle are called {0:?} in names of tools")]
    SameName(String),
    /// Serve some of them elsewhere.
    #[error("a bundle has at most {} members", super::BUNDLE_MEMBERS_MAX)]
    TooMany,
    /// Give each tool a name of its own, of 1 to 64 letters, digits, `_`, `-`, `.` and `/`.
    #[error("two tools of {member:?} are to be called {name:?}, or nothing can be")]
    Rename {
        /// Whose.
        member: String,
        /// The name.
        name: String,
    },
    /// Rename it, or take the other separator: it couldn't be told where its name ends.
    #[error("{0:?} has \"__\" in its name, or \"_\" at its end, which separate it from names of tools")]
    Separator(String),
    /// Let names say whose they are, or serve some of them elsewhere.
    #[error("{0:?} and {1:?} both list what they have themselves, so names must say whose they are")]
    NeedsPrefix(String, String),
}
