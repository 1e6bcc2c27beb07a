use std::collections::BTreeSet;
use std::sync::Arc;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry as MapEntry;

use crate::agent_ref::AgentRef;
use crate::ids::AgentId;

/// The group that an agent is visible in unless it says otherwise.
pub const GROUP_DEFAULT: &str = "everyone";

/// Which agents exist under which exact names, and who may see them.
///
/// Visibility is by group: whoever looks on behalf of a group sees the agents of that group and no other. An agent in no
/// group is found by its exact name only by the system itself ([`Directory::get`]): a silo.
#[derive(Default)]
pub struct Directory {
    names: DashMap<Arc<str>, Listed>,
    by_id: DashMap<AgentId, Vec<Arc<str>>>,
}

struct Listed {
    agent: AgentRef,
    groups: BTreeSet<Arc<str>>,
}

/// Another agent has that name. Choose another, or stop that one first.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the name {name} is taken")]
pub struct NameTaken {
    /// The name.
    pub name: String,
}

impl Directory {
    /// Lists `agent` under `name`, visible to [`GROUP_DEFAULT`]. It is taken off when the agent ends.
    ///
    /// # Errors
    /// Where another living agent has that name.
    pub fn register(&self, name: impl Into<Arc<str>>, agent: &AgentRef) -> Result<(), NameTaken> {
        self.register_in(name, agent, [GROUP_DEFAULT])
    }

    /// As [`Directory::register`], visible to `groups` only.
    ///
    /// # Errors
    /// Where another living agent has that name.
    pub fn register_in<'a>(
        &self,
        name: impl Into<Arc<str>>,
        agent: &AgentRef,
        groups: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), NameTaken> {
        let name = name.into();
        match self.names.entry(name.clone()) {
            MapEntry::Occupied(taken) if taken.get().agent != *agent => {
                return Err(NameTaken { name: name.to_string() });
            }
            entry => {
                let groups = groups.into_iter().map(Arc::from).collect();
                entry.insert(Listed { agent: agent.clone(), groups });
            }
        }
        let mut names = self.by_id.entry(agent.id()).or_default();
        if !names.contains(&name) {
            names.push(name);
        }
        drop(names);
        if agent.0.exit().is_some() {
            self.forget(agent.id());
        }
        Ok(())
    }

    /// The agent of exactly this name, for the system's own use.
    pub fn get(&self, name: &str) -> Option<AgentRef> {
        self.names.get(name).map(|listed| listed.agent.clone())
    }

    /// The agent of exactly this name, if `group` may see it.
    pub fn find(&self, group: &str, name: &str) -> Option<AgentRef> {
        self.names.get(name).filter(|listed| listed.groups.contains(group)).map(|listed| listed.agent.clone())
    }

    /// Takes `agent` off: nobody finds it any more, and whoever has a handle can still use it.
    pub fn withdraw(&self, agent: &AgentRef) {
        self.forget(agent.id());
    }

    pub(crate) fn forget(&self, id: AgentId) {
        for name in self.by_id.remove(&id).map(|(_, names)| names).unwrap_or_default() {
            self.names.remove_if(&name, |_, listed| listed.agent.id() == id);
        }
    }
}
