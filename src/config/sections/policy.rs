//! Policies for all messages that cross a boundary (`[policy]`).

use std::collections::{BTreeMap, HashMap};
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use std::time::Duration;

use callboard_guardrail::{CustomRule, DetectorOptions, RuleSet};
use callboard_message::DataClass;
use callboard_rpc::BufferLimits;
use callboard_runtime::{AccessRule, AccessRules, DataClassLookup, Quota};
use schemars::JsonSchema;
use serde::Deserialize;

use super::SectionDeclaration;
use crate::config::problem::{ProblemCollector, percent_error};
use crate::config::tree::ConfigTree;
use crate::config::{
    AgentDeclaration, DeclaredNames, ModelDeclaration, OrchestratorDeclaration, Topology,
};

/// Policies for all messages that cross a boundary (`[policy]`).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyDeclaration {
    /// Whether the guardrail screens messages at boundaries.
    pub guard: bool,
    /// Whether the guardrail screens how upstreams and remote agents describe themselves and their
    /// tools, prompts and resources, although `guard` is false. Default: true.
    pub guard_descriptions: bool,
    /// Rules about who may use what, of which the first that applies decides. Without rules everything is
    /// permitted; with one, everything else is denied.
    pub rules: Vec<AccessRule>,
    /// Limits of calls, tokens and money of principals in a minute, day or month.
    pub quotas: Vec<Quota>,
    /// Id of an agent that judges texts at boundaries in addition to the guardrail, by the message
    /// `screen`; `None` for no such agent.
    pub detector: Option<String>,
    /// Time limit of the detector for one message, in milliseconds. Default: 2,000.
    pub detector_timeout_ms: Option<NonZeroU64>,
    /// Whether messages are blocked while the detector is unavailable. Default: true.
    pub detector_required: bool,
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

impl PolicyDeclaration {
    /// Returns the options of the detector; `None` without one.
    pub(crate) fn detector_options(&self) -> Option<DetectorOptions> {
        let options = DetectorOptions::new(self.detector.clone()?);
        let timeout = self.detector_timeout_ms.map(NonZeroU64::get);
        Some(DetectorOptions {
            timeout: timeout.map_or(options.timeout, Duration::from_millis),
            is_required: self.detector_required,
            ..options
        })
    }

    /// Reports mistakes in the rules about who may use what.
    fn check_rules(
        &self,
        tree: &ConfigTree,
        names: &DeclaredNames<'_>,
        problems: &mut ProblemCollector<'_>,
    ) {
        if let Err((at, error)) =
            AccessRules::new(self.rules.clone(), Arc::new(|_| DataClass::Public))
        {
            let path = ["rules", &at.to_string()];
            let id = self.rules.get(at).map_or("", |rule| &rule.id);
            problems.error(
                tree.span_at_path(&path),
                format!("the rule `{id}`: {error}"),
            );
        }
        for (at, rule) in self.rules.iter().enumerate() {
            let is_plain = |name: &&String| !name.contains(['*', '?']);
            let mut plain = rule.agents.iter().filter(is_plain);
            if let Some(unknown) = plain.find(|name| !names.is_known(name)) {
                let path = ["rules", &at.to_string(), "agents"];
                let why = format!(
                    "the rule `{}`: no agent or upstream is called {unknown}, so this entry has no effect (a virtual server is judged by its members)",
                    rule.id
                );
                problems.warning(tree.span_at_path(&path), why);
            }
        }
    }
}

/// Reports mistakes in quotas.
fn check_quotas(
    quotas: &[Quota],
    tree: &ConfigTree,
    names: &DeclaredNames<'_>,
    problems: &mut ProblemCollector<'_>,
) {
    if let Err((at, error)) = Quota::validate_all(quotas) {
        let path = ["quotas", &at.to_string()];
        let id = quotas.get(at).map_or("", |quota| &quota.id);
        problems.error(
            tree.span_at_path(&path),
            format!("the quota `{id}`: {error}"),
        );
    }
    let is_plain = |name: &&String| !name.contains(['*', '?']);
    let is_model = |name: &str| names.agent_of_kind::<ModelDeclaration>(name).is_some();
    for (at, quota) in quotas.iter().enumerate() {
        let mut agents = quota.agents.iter().filter(is_plain);
        if let Some(unknown) = agents.find(|name| !names.is_known(name)) {
            let path = ["quotas", &at.to_string(), "agents"];
            let why = format!(
                "the quota `{}`: no agent or upstream is called {unknown}, so this entry has no effect (calls of a virtual server count at its members)",
                quota.id
            );
            problems.warning(tree.span_at_path(&path), why);
        }
        let mut models = quota.models.iter().filter(is_plain);
        if let Some(unknown) = models.find(|name| !is_model(name) && !names.is_unreadable(name)) {
            let path = ["quotas", &at.to_string(), "models"];
            let why = format!(
                "the quota `{}`: no model is called {unknown}, so this entry has no effect (a pool counts at its members)",
                quota.id
            );
            problems.warning(tree.span_at_path(&path), why);
        }
    }
}

impl Default for PolicyDeclaration {
    fn default() -> Self {
        Self {
            guard: false,
            guard_descriptions: true,
            rules: Vec::new(),
            quotas: Vec::new(),
            detector: None,
            detector_timeout_ms: None,
            detector_required: true,
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
        self.check_rules(tree, names, problems);
        check_quotas(&self.quotas, tree, names, problems);
        if let Some(id) = self.detector.as_ref().filter(|id| !names.is_known(id)) {
            let message = format!("there is no agent {id} to judge texts");
            let all = names.agents.keys().copied();
            problems.unknown_name(tree.span_of("detector"), message, id, all);
        }
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

impl Topology {
    /// Returns the data classes of all agents, upstreams and virtual servers, by id.
    pub(crate) fn classes(&self) -> HashMap<String, DataClass> {
        let agents = self.agents_and_upstreams().map(AgentDeclaration::id);
        let servers = self.servers.iter().map(|server| &*server.id);
        agents
            .chain(servers)
            .map(|id| (id.to_owned(), self.class_of(&[id])))
            .collect()
    }

    /// Returns the rules about who may use what; `None` if there are none. Mistakes were reported with the
    /// other problems: rules with one permit nothing.
    pub(crate) fn access_rules(&self) -> Option<AccessRules> {
        let declared = self.section::<PolicyDeclaration>()?;
        if declared.rules.is_empty() {
            return None;
        }
        let classes = self.classes();
        let class_of: DataClassLookup = Arc::new(move |agent| known_class(&classes, agent));
        Some(AccessRules::new(declared.rules.clone(), class_of).unwrap_or_default())
    }
}

/// Returns the data class of an agent. An undeclared one, such as an aggregate, has the highest.
pub(crate) fn known_class(classes: &HashMap<String, DataClass>, agent: &str) -> DataClass {
    classes.get(agent).copied().unwrap_or(DataClass::Clinical)
}
