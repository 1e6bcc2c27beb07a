//! Policies of a node: rate limits, guardrail, audit and question routing, replaced on reload.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use callboard_gateway::question_router::{QuestionRouterError, StrategyQuestionRouter};
use callboard_guardrail::{CustomRule, DetectorPolicy, Guardrail, GuardrailPolicy, RuleSet};
use callboard_message::{DataClass, Failure};
use callboard_rpc::{AuthFailures, BufferLimits};
use callboard_runtime::{
    AgentRef, AuditEntry, AuditPolicy, CallContext, Caller, ExchangePart, Policy, PolicyRequest,
    QuestionRouter, RateLimit, System,
};
use futures::future::BoxFuture;
use parking_lot::RwLock;

use crate::config::{AuditScope, PolicyDeclaration, StoreDeclaration, Topology, known_class};

/// Time limit of the guardrail for the descriptions of a remote agent. They aren't shown before, nor
/// if it is over.
const DESCRIPTIONS_TIMEOUT: Duration = Duration::from_secs(10);

/// Policies of a topology in a system's policy chain.
pub(super) struct NodePolicies {
    system: System,
    limits: PolicySlot,
    guard: PolicySlot,
    /// Guardrail agent at boundaries, with its custom rules.
    guardrail: Option<(AgentRef, Vec<CustomRule>)>,
    /// First detector policy, whose limit and calls later ones share.
    detector: Option<DetectorPolicy>,
}

/// Replaceable link of the policy chain. It joins the chain with its first policy, since an empty
/// chain costs nothing.
struct PolicySlot {
    links: PolicyLinks,
    is_pushed: bool,
    judges_parts: bool,
}

type PolicyLinks = Arc<RwLock<Arc<Vec<Box<dyn Policy>>>>>;

impl NodePolicies {
    pub(super) fn of(system: &System) -> Self {
        let slot = |judges_parts| PolicySlot {
            links: PolicyLinks::default(),
            is_pushed: false,
            judges_parts,
        };
        Self {
            system: system.clone(),
            limits: slot(false),
            guard: slot(true),
            guardrail: None,
            detector: None,
        }
    }

    /// Replaces the policies by those of a topology. Returns the guardrail agent that was replaced,
    /// to be stopped after messages in progress, which may still ask it; `None` if it stays or
    /// there was none.
    pub(super) fn update(&mut self, topology: &Topology) -> Option<AgentRef> {
        let declared: PolicyDeclaration = topology.section().cloned().unwrap_or_default();
        let mut limits: Vec<Box<dyn Policy>> = Vec::new();
        if let Some(per_second) = declared.per_client_per_second {
            limits.push(Box::new(RateLimit::per_principal(per_second)));
        }
        if !declared.per_tool_per_second.is_empty() {
            let per_tool = declared
                .per_tool_per_second
                .iter()
                .map(|(tool, per_second)| (tool.clone(), *per_second));
            limits.push(Box::new(RateLimit::per_tool(per_tool)));
        }
        self.limits.set_policies(&self.system, limits);
        let modes = topology.upstreams.iter();
        let modes = modes.map(|upstream| (upstream.id.clone(), upstream.pin));
        self.system.policy().tool_pins().set_modes(modes);
        let access = topology.access_rules().map(Arc::new);
        self.system.policy().set_access_rules(access);
        self.system.policy().quotas().set(declared.quotas.clone());
        let mut guard: Vec<Box<dyn Policy>> = Vec::new();
        let mut old = None;
        let describes = declared.guard_descriptions && topology.has_remote_agents();
        if declared.guard || describes {
            // The first screening must not wait for the rules.
            drop(RuleSet::built_in());
            let rules = &declared.guard_rules;
            old = self.guardrail.take_if(|(_, of)| of != rules);
            let (guardrail, _) = self.guardrail.get_or_insert_with(|| {
                let own = rules.clone();
                let agent = self
                    .system
                    .prepare_with(move || Guardrail::with_rules(&own))
                    .label("guardrail")
                    .spawn();
                (agent, rules.clone())
            });
            let policy = GuardrailPolicy::new(guardrail.clone());
            guard.push(Box::new(match declared.guard {
                true => policy,
                false => policy
                    .descriptions_only()
                    .with_timeout(DESCRIPTIONS_TIMEOUT),
            }));
        }
        if let Some(options) = declared.detector_options() {
            let first = self
                .detector
                .get_or_insert_with(|| DetectorPolicy::new(self.system.clone(), options.clone()));
            guard.push(Box::new(first.with_options(options)));
        }
        self.guard.set_policies(&self.system, guard);
        old.map(|(agent, _)| agent)
    }
}

impl PolicySlot {
    fn set_policies(&mut self, system: &System, links: Vec<Box<dyn Policy>>) {
        let has_any = !links.is_empty();
        *self.links.write() = Arc::new(links);
        if has_any && !self.is_pushed {
            self.is_pushed = true;
            system.policy().push(CurrentPolicies {
                links: self.links.clone(),
                judges_parts: self.judges_parts,
            });
        }
    }
}

/// The current policies, as one link.
struct CurrentPolicies {
    links: PolicyLinks,
    judges_parts: bool,
}

impl CurrentPolicies {
    fn current(&self) -> Arc<Vec<Box<dyn Policy>>> {
        self.links.read().clone()
    }
}

impl Policy for CurrentPolicies {
    fn check<'a>(&'a self, crossing: PolicyRequest<'a>) -> BoxFuture<'a, Result<(), Failure>> {
        let links = self.current();
        Box::pin(async move {
            for link in links.iter() {
                link.check(crossing).await?;
            }
            Ok(())
        })
    }

    fn checks_parts(&self) -> bool {
        self.judges_parts
    }

    fn check_part<'a>(
        &'a self,
        part: ExchangePart,
        crossing: PolicyRequest<'a>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        let links = self.current();
        Box::pin(async move {
            for link in links.iter().filter(|link| link.checks_parts()) {
                link.check_part(part, crossing).await?;
            }
            Ok(())
        })
    }
}

/// Current data classes of a node's agents, for the audit.
#[derive(Clone, Default)]
pub(super) struct DataClassRegistry(Arc<RwLock<HashMap<String, DataClass>>>);

impl DataClassRegistry {
    /// Replaces the classes by those of a topology.
    pub(super) fn update(&self, topology: &Topology) {
        *self.0.write() = topology.classes();
    }

    /// Adds the classes of a topology, and keeps those that were known, the higher one of two: calls of agents that a
    /// reload replaces go on.
    pub(super) fn raise(&self, topology: &Topology) {
        let mut classes = self.0.write();
        for (id, class) in topology.classes() {
            let known = classes.entry(id).or_insert(class);
            *known = (*known).max(class);
        }
    }

    /// Returns the data class of an agent; for one that isn't declared, such as an aggregate, the highest of all that
    /// are.
    pub(super) fn class_or_highest(&self, agent: &str) -> DataClass {
        let classes = self.0.read();
        let known = classes.get(agent).copied();
        known
            .or_else(|| classes.values().max().copied())
            .unwrap_or(DataClass::Clinical)
    }

    fn class_of(&self, agent: &str) -> DataClass {
        known_class(&self.0.read(), agent)
    }
}

/// Installs the audit as the first link of the policy chain, so that it records rejections by the
/// others.
pub(super) fn install_audit(system: &System, topology: &Topology) -> DataClassRegistry {
    let classes = DataClassRegistry::default();
    classes.update(topology);
    let known = classes.clone();
    let policy = AuditPolicy::new(
        system.audit().clone(),
        Arc::new(move |agent| known.class_of(agent)),
    );
    let declared = topology
        .section()
        .map(|store: &StoreDeclaration| store.audit)
        .unwrap_or_default();
    system.audit().set_call_lines(declared == AuditScope::Calls);
    system.policy().push(match declared {
        AuditScope::All => policy,
        AuditScope::Calls | AuditScope::Decisions => policy.decisions_only(),
    });
    classes
}

/// Returns a counter of failed authentications. With an audit, it records the event `auth.failed`
/// for an address at most once a minute, and for all addresses as often as [`AuthFailures`] permits.
pub(super) fn auth_failures(system: &System, has_audit: bool) -> Arc<AuthFailures> {
    if !has_audit {
        return Arc::default();
    }
    let audit = system.audit().clone();
    Arc::new(AuthFailures::with_report(move |report| {
        let mut entry = AuditEntry::new("auth.failed")
            .with_peer(report.address.to_string())
            .with_outcome("rejected")
            .with_detail("reason", report.reason.message())
            .with_detail("count", report.count);
        if report.others > 0 {
            entry = entry.with_detail("others", report.others);
        }
        audit.try_enqueue(entry);
    }))
}

/// Returns the declared limits of the bytes that the listeners buffer for their clients.
pub(super) fn buffer_limits(topology: &Topology) -> BufferLimits {
    let declared: Option<&PolicyDeclaration> = topology.section();
    declared.map_or_else(BufferLimits::default, PolicyDeclaration::buffer_limits)
}

/// The current question router. Clones share their state.
#[derive(Clone)]
pub(super) struct CurrentQuestionRouter {
    system: System,
    answerers: Arc<RwLock<Arc<StrategyQuestionRouter>>>,
}

/// A new question router that isn't in use yet; `None` if nothing changes, so that usage counters
/// are kept.
pub(super) struct PlannedQuestionRouter(Option<Arc<StrategyQuestionRouter>>);

impl CurrentQuestionRouter {
    pub(super) fn of(system: &System, topology: &Topology) -> Result<Self, QuestionRouterError> {
        let answerers = Arc::new(StrategyQuestionRouter::new(
            system.clone(),
            topology.answer_options(),
        )?);
        Ok(Self {
            system: system.clone(),
            answerers: Arc::new(RwLock::new(answerers)),
        })
    }

    pub(super) fn plan(
        &self,
        topology: &Topology,
    ) -> Result<PlannedQuestionRouter, QuestionRouterError> {
        let options = topology.answer_options();
        if *self.current().options() == options {
            return Ok(PlannedQuestionRouter(None));
        }
        Ok(PlannedQuestionRouter(Some(Arc::new(
            StrategyQuestionRouter::new(self.system.clone(), options)?,
        ))))
    }

    /// Replaces the router. Running calls keep the previous one.
    pub(super) fn apply(&self, planned: PlannedQuestionRouter) {
        if let Some(answerers) = planned.0 {
            *self.answerers.write() = answerers;
        }
    }

    fn current(&self) -> Arc<StrategyQuestionRouter> {
        self.answerers.read().clone()
    }
}

impl QuestionRouter for CurrentQuestionRouter {
    fn caller(&self, source: &str, call: &CallContext) -> Option<Arc<dyn Caller>> {
        self.current().caller(source, call)
    }
}
