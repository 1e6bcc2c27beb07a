//! What judges, records and answers messages between agents, as the topology of the moment wants it: the declared limits,
//! the guard, the audit, and who answers what servers elsewhere ask.

use std::collections::HashMap;
use std::sync::Arc;

use callboard_gateway::answering::{AnswerError, Answerers};
use callboard_guardrail::{Guard, Guardrail, OwnRule};
use callboard_message::{DataClass, Failure};
use callboard_runtime::{
    AgentRef, Answering, AuditPolicy, CallMeta, Caller, Crossing, Part, Policy, RateLimit, System,
};
use futures::future::BoxFuture;
use parking_lot::RwLock;

use crate::config::{Audited, PolicyDeclaration, StoreDeclaration, Topology};

/// The policies of a topology, in a system's chain.
pub(super) struct Policies {
    system: System,
    limits: Slot,
    guard: Slot,
    /// The guardrail of boundaries, with the rules that it was started with.
    guardrail: Option<(AgentRef, Vec<OwnRule>)>,
}

/// A place in the chain for policies that may change. It joins the chain with its first: an empty chain costs nothing.
struct Slot {
    links: Links,
    is_pushed: bool,
    judges_parts: bool,
}

type Links = Arc<RwLock<Arc<Vec<Box<dyn Policy>>>>>;

impl Policies {
    pub(super) fn of(system: &System) -> Self {
        let slot = |judges_parts| Slot {
            links: Links::default(),
            is_pushed: false,
            judges_parts,
        };
        Self {
            system: system.clone(),
            limits: slot(false),
            guard: slot(true),
            guardrail: None,
        }
    }

    /// Puts what a topology wants in place of what was. Returns a guardrail that has other rules: messages that cross now may still
    /// ask it.
    pub(super) fn install(&mut self, topology: &Topology) -> Option<AgentRef> {
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
        self.limits.fill(&self.system, limits);
        let mut guard: Vec<Box<dyn Policy>> = Vec::new();
        let mut old = None;
        if declared.guard {
            let rules = &declared.guard_rules;
            old = self.guardrail.take_if(|(_, of)| of != rules);
            let (guardrail, _) = self.guardrail.get_or_insert_with(|| {
                let own = rules.clone();
                let agent = self
                    .system
                    .prepare_with(move || Guardrail::with(&own))
                    .label("guardrail")
                    .spawn();
                (agent, rules.clone())
            });
            guard.push(Box::new(Guard::new(guardrail.clone())));
        }
        self.guard.fill(&self.system, guard);
        old.map(|(agent, _)| agent)
    }
}

impl Slot {
    fn fill(&mut self, system: &System, links: Vec<Box<dyn Policy>>) {
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

/// The policies of the moment, as one.
struct CurrentPolicies {
    links: Links,
    judges_parts: bool,
}

impl CurrentPolicies {
    fn now(&self) -> Arc<Vec<Box<dyn Policy>>> {
        self.links.read().clone()
    }
}

impl Policy for CurrentPolicies {
    fn judge<'a>(&'a self, crossing: Crossing<'a>) -> BoxFuture<'a, Result<(), Failure>> {
        let links = self.now();
        Box::pin(async move {
            for link in links.iter() {
                link.judge(crossing).await?;
            }
            Ok(())
        })
    }

    fn judges_parts(&self) -> bool {
        self.judges_parts
    }

    fn judge_part<'a>(
        &'a self,
        part: Part,
        crossing: Crossing<'a>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        let links = self.now();
        Box::pin(async move {
            for link in links.iter().filter(|link| link.judges_parts()) {
                link.judge_part(part, crossing).await?;
            }
            Ok(())
        })
    }
}

/// The classes of what a node's agents say and hear, as the topology of the moment has them.
#[derive(Clone, Default)]
pub(super) struct Classes(Arc<RwLock<HashMap<String, DataClass>>>);

impl Classes {
    /// Takes over those of a topology.
    pub(super) fn install(&self, topology: &Topology) {
        let agents = topology.agents.iter().map(|agent| agent.id());
        let upstreams = topology.upstreams.iter().map(|upstream| &*upstream.id);
        let servers = topology.servers.iter().map(|server| &*server.id);
        let ids = agents.chain(upstreams).chain(servers);
        let classes = ids
            .map(|id| (id.to_owned(), topology.class_of(&[id])))
            .collect();
        *self.0.write() = classes;
    }

    /// Of what nobody declared, a bundle of several for example, everything may be said: its hashes are keyed.
    fn of(&self, agent: &str) -> DataClass {
        let classes = self.0.read();
        classes.get(agent).copied().unwrap_or(DataClass::Clinical)
    }
}

/// Makes the audit the first link of the system's chain: it sees what others refuse.
pub(super) fn audit(system: &System, topology: &Topology) -> Classes {
    let classes = Classes::default();
    classes.install(topology);
    let known = classes.clone();
    let policy = AuditPolicy::new(
        system.audit().clone(),
        Arc::new(move |agent| known.of(agent)),
    );
    let declared = topology
        .section()
        .map(|store: &StoreDeclaration| store.audit)
        .unwrap_or_default();
    system.policy().push(match declared {
        Audited::All => policy,
        Audited::Decisions => policy.decisions_only(),
    });
    classes
}

/// The answerers of the moment. Clones are the same.
#[derive(Clone)]
pub(super) struct CurrentAnswerers {
    system: System,
    answerers: Arc<RwLock<Arc<Answerers>>>,
}

/// Others, until they take their place; `None` where nothing changes, so that what was counted goes on.
pub(super) struct PlannedAnswerers(Option<Arc<Answerers>>);

impl CurrentAnswerers {
    pub(super) fn of(system: &System, topology: &Topology) -> Result<Self, AnswerError> {
        let answerers = Arc::new(Answerers::new(system.clone(), topology.answer_options())?);
        Ok(Self {
            system: system.clone(),
            answerers: Arc::new(RwLock::new(answerers)),
        })
    }

    pub(super) fn plan(&self, topology: &Topology) -> Result<PlannedAnswerers, AnswerError> {
        let options = topology.answer_options();
        if *self.now().options() == options {
            return Ok(PlannedAnswerers(None));
        }
        Ok(PlannedAnswerers(Some(Arc::new(Answerers::new(
            self.system.clone(),
            options,
        )?))))
    }

    /// Calls that have begun go on with those before.
    pub(super) fn apply(&self, planned: PlannedAnswerers) {
        if let Some(answerers) = planned.0 {
            *self.answerers.write() = answerers;
        }
    }

    fn now(&self) -> Arc<Answerers> {
        self.answerers.read().clone()
    }
}

impl Answering for CurrentAnswerers {
    fn caller(&self, source: &str, call: &CallMeta) -> Option<Arc<dyn Caller>> {
        self.now().caller(source, call)
    }
}
