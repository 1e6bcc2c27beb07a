//! What holds for every message that crosses a boundary (`[policy]`).

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use callboard_guardrail::{OwnRule, Rules};
use serde::Deserialize;

use super::Section;
use crate::config::problem::Problems;
use crate::config::tree::Tree;
use crate::config::{Names, OrchestratorDeclaration};

/// What holds for every message that crosses a boundary (`[policy]`).
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyDeclaration {
    /// Whether guardrail reads what crosses.
    pub guard: bool,
    /// Rules that the node's guardrails have beside the built-in ones.
    pub guard_rules: Vec<OwnRule>,
    /// Most requests a second of one client.
    pub per_client_per_second: Option<NonZeroU32>,
    /// Most calls a second of one tool, by its name as it is shown.
    pub per_tool_per_second: BTreeMap<String, NonZeroU32>,
}

impl Section for PolicyDeclaration {
    fn check(&self, tree: &Tree, names: &Names<'_>, problems: &mut Problems<'_>) {
        if let Err(error) = Rules::with(&self.guard_rules) {
            let index = self
                .guard_rules
                .iter()
                .position(|rule| rule.id == error.id)
                .map(|index| index.to_string());
            let path = ["guard_rules"]
                .into_iter()
                .chain(index.as_deref())
                .collect::<Vec<_>>();
            problems.error(tree.place_at(&path), error.to_string());
        }
        let is_guarded = self.guard
            || names.has_clinics()
            || names.all::<OrchestratorDeclaration>().any(|it| it.guard);
        if !self.guard_rules.is_empty() && !is_guarded {
            let help =
                Some("write `guard = true` below [policy], or in an orchestrator".to_owned());
            problems.warning_with(
                tree.key_span("guard_rules"),
                "no guard is on: these rules hold nowhere".to_owned(),
                help,
            );
        }
    }
}
