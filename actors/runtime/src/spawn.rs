use std::any::TypeId;
use std::sync::atomic::{Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};

use crate::agent::Agent;
use crate::agent_ref::AgentRef;
use crate::body::{Body, Runner};
use crate::cell::{Cell, Factory, Kind, Stats};
use crate::ids::AgentId;
use crate::mailbox::{Gate, Mailbox};
use crate::profile::Profile;
use crate::supervision::Supervisor;
use crate::system::{Inner, System};

/// Choices for a new agent.
#[must_use = "nothing is spawned until `spawn`"]
pub struct Spawn<'a, A: Agent> {
    system: &'a System,
    agent: Option<A>,
    factory: Option<Factory<A>>,
    label: Option<Arc<str>>,
    profile: Option<Profile>,
    arbiter: Option<usize>,
    supervisor: Option<Supervisor>,
}

impl<'a, A: Agent> Spawn<'a, A> {
    pub(crate) fn new(system: &'a System, agent: Option<A>, factory: Option<Factory<A>>) -> Self {
        Self { system, agent, factory, label: None, profile: None, arbiter: None, supervisor: None }
    }

    /// A name for people. For others to find it, see [`Directory::register`].
    pub fn label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Another profile than its type's.
    pub fn profile(mut self, profile: Profile) -> Self {
        self.profile = Some(profile);
        self
    }

    /// A certain arbiter, modulo their number; by default they take turns.
    pub fn on(mut self, arbiter: usize) -> Self {
        self.arbiter = Some(arbiter);
        self
    }

    /// Below this supervisor.
    pub fn under(mut self, supervisor: &Supervisor) -> Self {
        self.supervisor = Some(supervisor.clone());
        self
    }

    /// Spawns it. It starts soon, on its arbiter.
    pub fn spawn(self) -> AgentRef {
        let inner = &self.system.inner;
        let kind = kind::<A>(inner);
        let profile = self.profile.map_or_else(|| kind.profile.clone(), Arc::new);
        let at = self.arbiter.unwrap_or_else(|| inner.next_host.fetch_add(1, Relaxed)) % inner.hosts.len();
        let host = inner.hosts[at].clone();
        let mailbox = Mailbox::new(profile.mailbox_capacity);
        if inner.draining.load(SeqCst) {
            mailbox.set_gate(Gate::AgentsOnly);
        }
        let agent = self.agent;
        let cell = Arc::new(Cell {
            id: AgentId(inner.next_id.fetch_add(1, Relaxed)),
            label: self.label,
            system: self.system.unguarded(),
            host: host.clone(),
            kind,
            profile,
            factory: self.factory,
            supervisor: self.supervisor,
            mailbox,
            stats: Stats::default(),
            asides: OnceLock::new(),
        });
        let body = Body::new(agent);
        let agent = AgentRef(cell.clone());
        if let Some(supervisor) = &cell.supervisor {
            supervisor.adopt(&agent);
        }
        inner.agents.insert(agent.id(), agent.clone());
        host.run(Box::new(Runner { cell, body }));
        agent
    }
}

fn kind<A: Agent>(inner: &Inner) -> Arc<Kind<A>> {
    let known = inner.kinds.get(&TypeId::of::<A>()).map(|kind| kind.clone());
    if let Some(kind) = known.and_then(|kind| kind.downcast::<Kind<A>>().ok()) {
        return kind;
    }
    let kind = Arc::new(Kind::<A>::new());
    inner.kinds.insert(TypeId::of::<A>(), kind.clone());
    kind
}
