//! The node's own section of a topology (`[node]`).

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::problem::ProblemCollector;
use super::tree::ConfigTree;

/// Name of the key of the drain timeout.
const DRAIN_TIMEOUT_KEY: &str = "drain_timeout_s";
/// Default time that calls in progress have to complete when a listener closes, in seconds. Changed by
/// `drain_timeout_s` in `[node]`.
const DRAIN_TIMEOUT_S_DEFAULT: u64 = 5;
/// Maximum of `drain_timeout_s` in `[node]`, in seconds. A larger number is an error. Fixed.
const DRAIN_TIMEOUT_S_MAX: u64 = 600;

/// The node (`[node]`).
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NodeDeclaration {
    /// Name of the node.
    pub(super) name: String,
    /// Time that calls in progress have to complete when a listener closes, in seconds, 0 to 600. Then
    /// they are cut off. Default: 5.
    drain_timeout_s: Option<u64>,
}

impl NodeDeclaration {
    /// Creates the declaration of a node without further keys.
    pub(super) fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    /// Reports numbers out of range.
    pub(super) fn check(&self, tree: &ConfigTree, problems: &mut ProblemCollector<'_>) {
        if let Some(seconds) = self.drain_timeout_s
            && seconds > DRAIN_TIMEOUT_S_MAX
        {
            let why =
                format!("`{DRAIN_TIMEOUT_KEY}` must be 0 to {DRAIN_TIMEOUT_S_MAX}, not {seconds}");
            problems.error(tree.span_of(DRAIN_TIMEOUT_KEY), why);
        }
    }

    /// Returns the declared or default time that calls in progress have to complete.
    pub(super) fn drain_timeout(&self) -> Duration {
        Duration::from_secs(self.drain_timeout_s.unwrap_or(DRAIN_TIMEOUT_S_DEFAULT))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Topology;

    /// Goal: the time for calls at the end is as declared, up to its limit. Method: without the key, none, the limit, and
    /// one more.
    #[test]
    fn drain_timeouts() {
        let parse = |more: &str| {
            let text = format!("[node]\nname = \"n\"\n{more}");
            Topology::parse(&text, false, Path::new(""))
        };
        for (more, seconds) in [
            (String::new(), DRAIN_TIMEOUT_S_DEFAULT),
            ("drain_timeout_s = 0".to_owned(), 0),
            (
                format!("drain_timeout_s = {DRAIN_TIMEOUT_S_MAX}"),
                DRAIN_TIMEOUT_S_MAX,
            ),
        ] {
            let topology = parse(&more).unwrap();
            assert_eq!(topology.drain_timeout, Duration::from_secs(seconds));
        }
        let over = parse(&format!("drain_timeout_s = {}", DRAIN_TIMEOUT_S_MAX + 1));
        let told = over.unwrap_err().to_string();
        assert!(
            told.contains("`drain_timeout_s` must be 0 to 600, not 601 at line 3, column 19"),
            "{told}"
        );
    }
}
