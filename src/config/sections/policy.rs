//! Policies for all messages that cross a boundary (`[policy]`).

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use callboard_guardrail::{CustomRule, RuleSet};
use callboard_rpc::BufferLimits;
use serde::Deserialize;

use super::SectionDeclaration;
use crate::config::problem::{ProblemCollector, percent_error};
use crate::config::tree::ConfigTree;
use crate::config::{DeclaredNames, OrchestratorDeclaration};

/// Policies for all messages that cross a boundary (`[policy]`).
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyDeclaration {
    /// Whether the guardrail screens messages at boundaries.
    pub guard: bool,
    /// Whether the guardrail screens how upstreams and remote agents describe themselves and their
    /// tools, prompts and resources, although `guard` is false. Default: true.
    pub guard_descriptions: bool,
    /// Guardrail rules in addition to the built-in ones.
    pub guard_rules: Vec<CustomRule>,
    /// Maximum number of requests per second of one principal at the listeners; `None` for no
    /// limit. Messages that a request causes don't count.
    pub per_client_per_second: Option<NonZeroU32>,
    /// Maximum number of calls per second of one principal, by tool name, `agent.tool` or pattern
    /// (`*`, `?`). Other tools have no limit.
    pub per_tool_per_second: BTreeMap<String, NonZeroU32>,
    /// Maximum size of the requests, responses and events that the listeners buffer for their
    /// clients, in MiB; `None` for a quarter of the memory.
    pub buffered_mib_max: Option<NonZeroU32>,
    /// Share of a principal in `buffered_mib_max`, in percent, 1 to 100; `None` for the default.
    pub buffered_principal_percent: Option<u8>,
}

impl PolicyDeclaration {
    /// Returns the limits of the bytes that the listeners buffer for their clients.
    pub(crate) fn buffer_limits(&self) -> BufferLimits {
        let default = BufferLimits::default();
        let declared = self.buffered_mib_max.map(|mib| {
            let mib = usize::try_from(mib.get()).unwrap_or(usize::MAX);
            mib.saturating_mul(1_024 * 1_024)
        });
        BufferLimits {
            bytes_max: declared.unwrap_or(default.bytes_max),
            principal_percent: self
                .buffered_principal_percent
                .unwrap_or(default.principal_percent),
        }
    }
}

impl Default for PolicyDeclaration {
    fn default() -> Self {
        Self {
            guard: false,
            guard_descriptions: true,
            guard_rules: Vec::new(),
            per_client_per_second: None,
            per_tool_per_second: BTreeMap::new(),
            buffered_mib_max: None,
            buffered_principal_percent: None,
        }
    }
}

impl SectionDeclaration for PolicyDeclaration {
    fn check(
        &self,
        tree: &ConfigTree,
        names: &DeclaredNames<'_>,
        problems: &mut ProblemCollector<'_>,
    ) {
        if let Err(error) = RuleSet::with_custom(&self.guard_rules) {
            let index = self
                .guard_rules
                .iter()
                .position(|rule| rule.id == error.id)
                .map(|index| index.to_string());
            let path = ["guard_rules"]
                .into_iter()
                .chain(index.as_deref())
                .collect::<Vec<_>>();
            problems.error(tree.span_at_path(&path), error.to_string());
        }
        let key = "buffered_principal_percent";
        if let Some(why) = percent_error(key, self.buffered_principal_percent) {
            problems.error(tree.span_of(key), why);
        }
        let is_guarded = self.guard
            || self.guard_descriptions && names.has_remote_agents()
            || names.has_clinics()
            || names
                .agents_of_kind::<OrchestratorDeclaration>()
                .any(|it| it.guard);
        if !self.guard_rules.is_empty() && !is_guarded {
            let help =
                Some("write `guard = true` below [policy], or in an orchestrator".to_owned());
            problems.warning_with(
                tree.key_span("guard_rules"),
                "no agent has `guard = true`, so these rules have no effect".to_owned(),
                help,
            );
        }
    }
}
