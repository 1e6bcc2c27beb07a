//! What crosses the node's boundaries is in its audit.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use callboard_message::DataClass;
use callboard_runtime::{AuditPolicy, System};

use crate::config::{Audited, Topology};

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
        let classes = ids.map(|id| (id.to_owned(), topology.class_of(&[id]))).collect();
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = classes;
    }

    /// Of what nobody declared, a bundle of several for example, everything may be said: its hashes are keyed.
    fn of(&self, agent: &str) -> DataClass {
        let classes = self.0.read().unwrap_or_else(PoisonError::into_inner);
        classes.get(agent).copied().unwrap_or(DataClass::Clinical)
    }
}

/// Makes the audit the first link of the system's chain: it sees what others refuse.
pub(super) fn audit(system: &System, topology: &Topology) -> Classes {
    let classes = Classes::default();
    classes.install(topology);
    let known = classes.clone();
    let policy = AuditPolicy::new(system.audit().clone(), Arc::new(move |agent| known.of(agent)));
    let declared = topology.store.as_ref().map(|store| store.audit).unwrap_or_default();
    system.policy().push(match declared {
        Audited::All => policy,
        Audited::Decisions => policy.decisions_only(),
    });
    classes
}
