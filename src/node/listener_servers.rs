//! Servers of a listener, for any protocol: one for all its agents, and one for each of them.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use callboard_message::DataClass;
use callboard_rpc::TokenVerifier;
use callboard_rpc::serve::ServerRegistry;
use callboard_runtime::{AgentId, AgentRef};

use super::{AgentAddress, Node, NodeError};
use crate::config::{ListenerDeclaration, Topology};

/// A server of one protocol in front of one agent.
pub(super) trait ProtocolServer: Sized + 'static {
    /// The server. Clones share their state.
    type Server: Clone + Send + 'static;
    /// Path of the server for all agents.
    const PATH: &'static str;
    /// Path of the servers of single agents, with `{name}` for the id.
    const NAMED_PATH: &'static str;

    /// Checks the declaration before a server is created.
    fn validate(listener: &ListenerDeclaration) -> Result<(), NodeError>;
    /// Creates a server for `agent` on this listener.
    fn create(
        place: &ListenerContext<'_>,
        who: ServedAgents<'_>,
        agent: AgentRef,
    ) -> Result<Self::Server, NodeError>;
    /// Replaces the agent behind a server and updates its description.
    fn replace_agent(
        place: &ListenerContext<'_>,
        who: ServedAgents<'_>,
        server: &Self::Server,
        agent: AgentRef,
    );
    /// Updates the description of a server from the topology.
    fn update_description(
        place: &ListenerContext<'_>,
        who: ServedAgents<'_>,
        server: &Self::Server,
    );
    /// Releases a server without clients. Its tasks belong to the node and stay.
    fn close(server: Self::Server);
}

/// Agents that a server stands for.
#[derive(Clone, Copy)]
pub(super) enum ServedAgents<'a> {
    /// All of these ids, under this name.
    All(&'a str, &'a [&'a str]),
    /// One id.
    One(&'a str),
}

impl ServedAgents<'_> {
    /// Returns the server's name.
    pub(super) fn name(&self) -> &str {
        let (Self::All(name, _) | Self::One(name)) = self;
        name
    }

    /// Returns the ids behind the server.
    pub(super) fn ids(&self) -> &[&str] {
        match self {
            Self::All(_, ids) => ids,
            Self::One(id) => std::slice::from_ref(id),
        }
    }

    /// Returns the highest data class of its agents.
    pub(super) fn data_class(&self, topology: &Topology) -> DataClass {
        topology.class_of(self.ids())
    }
}

/// Listener whose servers are created or changed, with its node, topology and actual address.
pub(super) struct ListenerContext<'a> {
    pub(super) node: &'a Node,
    pub(super) listener: &'a ListenerDeclaration,
    pub(super) topology: &'a Topology,
    pub(super) address: SocketAddr,
    /// Actual gRPC address of the listener; `None` without gRPC.
    pub(super) grpc: Option<SocketAddr>,
    /// Verifier of its access tokens; `None` if it accepts none.
    pub(super) tokens: Option<&'a Arc<TokenVerifier>>,
}

impl ListenerContext<'_> {
    /// Returns one agent for these ids, and whether it is an aggregate that was created for them.
    fn aggregate(&self, ids: &[&str]) -> Result<(AgentRef, bool), NodeError> {
        let share_percent = self.listener.principal_share();
        self.node.agents.aggregate(ids, share_percent)
    }
}

/// Servers of a listener.
pub(super) struct ListenerServers<S: ProtocolServer> {
    all: S::Server,
    by_id: ServerRegistry<S::Server>,
    /// Aggregate that was created for `all`; `None` if `all` has a single agent, which stands for
    /// itself.
    bundle: Option<AgentRef>,
    /// Name of the server for all agents.
    name: String,
    /// Ids in the file of all agents, with the running agent of each.
    members: Vec<(String, AgentId)>,
    /// Id of the only upstream, whose tools keep their names in `all`; `None` if there isn't just
    /// one.
    sole_upstream: Option<String>,
    /// Data class at the creation of each server, by id; the empty id stands for all.
    data_classes: HashMap<String, DataClass>,
}

/// Replaced servers of listeners, until they have been drained.
#[derive(Default)]
pub(super) struct RetiredServers {
    /// Aggregates to stop.
    pub(super) bundles: Vec<AgentRef>,
    /// Shutdowns of servers of single agents; their sessions end with them.
    pub(super) closers: Vec<Box<dyn FnOnce()>>,
}

impl<S: ProtocolServer> ListenerServers<S> {
    pub(super) fn open(place: &ListenerContext<'_>) -> Result<Self, NodeError> {
        let ids = place.topology.served_ids(place.listener);
        let (agent, is_made) = place.aggregate(&ids)?;
        let name = aggregate_name(&ids, place.topology);
        let front = Self {
            all: S::create(place, ServedAgents::All(&name, &ids), agent.clone())?,
            by_id: ServerRegistry::default(),
            bundle: is_made.then_some(agent),
            name,
            members: resolve_members(place.node, &ids),
            sole_upstream: place.node.agents.sole_upstream().map(str::to_owned),
            data_classes: data_classes(place.topology, &ids),
        };
        front
            .by_id
            .set(Self::servers_by_id(place, &ids, &HashMap::new())?);
        Ok(front)
    }

    pub(super) fn clone_servers(&self) -> (S::Server, ServerRegistry<S::Server>) {
        (self.all.clone(), self.by_id.clone())
    }

    /// Returns all servers.
    pub(super) fn servers(&self) -> Vec<S::Server> {
        let each = self.members.iter().filter_map(|(id, _)| self.by_id.get(id));
        each.chain([self.all.clone()]).collect()
    }

    pub(super) fn bundle(&self) -> Option<AgentRef> {
        self.bundle.clone()
    }

    /// Returns the addresses of the servers, below the listener's base URL.
    pub(super) fn addresses(&self, base_url: &str) -> Vec<AgentAddress> {
        let at = |agent: &str, path: &str| AgentAddress {
            agent: agent.to_owned(),
            url: format!("{base_url}{path}"),
        };
        let each = self
            .members
            .iter()
            .map(|(id, _)| at(id, &S::NAMED_PATH.replace("{name}", id)));
        std::iter::once(at(&self.name, S::PATH))
            .chain(each)
            .collect()
    }

    /// Returns a server for each of `ids`: that in `served`, or else a new one.
    fn servers_by_id(
        place: &ListenerContext<'_>,
        ids: &[&str],
        served: &HashMap<String, S::Server>,
    ) -> Result<HashMap<String, S::Server>, NodeError> {
        let mut each = HashMap::new();
        for id in ids {
            let server = match served.get(*id) {
                Some(served) => served.clone(),
                None => S::create(place, ServedAgents::One(id), place.aggregate(&[id])?.0)?,
            };
            each.insert((*id).to_owned(), server);
        }
        Ok(each)
    }

    /// Whether the data class of an agent has become stricter, so that its stored tasks may not
    /// stay on disk.
    pub(super) fn has_stricter_class(
        &self,
        topology: &Topology,
        listener: &ListenerDeclaration,
    ) -> bool {
        let now = data_classes(topology, &topology.served_ids(listener));
        now.iter().any(|(id, class)| {
            self.data_classes
                .get(id)
                .is_some_and(|before| class > before)
        })
    }

    /// Changes the servers to the agents of the topology. Servers of agents that stay are kept with
    /// their sessions. Aggregates and servers that are no longer needed are added to `left`.
    pub(super) fn update(
        &mut self,
        place: &ListenerContext<'_>,
        left: &mut RetiredServers,
    ) -> Result<(), NodeError> {
        let ids = place.topology.served_ids(place.listener);
        let members = resolve_members(place.node, &ids);
        // A changed description alone restarts nothing.
        for id in &ids {
            if let Some(server) = self.by_id.get(id) {
                S::update_description(place, ServedAgents::One(id), &server);
            }
        }
        let sole_upstream = place.node.agents.sole_upstream();
        if members == self.members && sole_upstream == self.sole_upstream.as_deref() {
            S::update_description(place, ServedAgents::All(&self.name, &ids), &self.all);
            return Ok(());
        }
        let (agent, is_made) = place.aggregate(&ids)?;
        let mut served = HashMap::new();
        for (id, before) in &self.members {
            let Some(server) = self.by_id.get(id) else {
                continue;
            };
            let Some((_, now)) = members.iter().find(|(other, _)| other == id) else {
                left.closers.push(Box::new(|| S::close(server)));
                continue;
            };
            if now != before {
                S::replace_agent(
                    place,
                    ServedAgents::One(id),
                    &server,
                    place.aggregate(&[id])?.0,
                );
            }
            served.insert(id.clone(), server);
        }
        self.by_id.set(Self::servers_by_id(place, &ids, &served)?);
        self.name = aggregate_name(&ids, place.topology);
        S::replace_agent(
            place,
            ServedAgents::All(&self.name, &ids),
            &self.all,
            agent.clone(),
        );
        self.members = members;
        self.sole_upstream = sole_upstream.map(str::to_owned);
        for (id, class) in data_classes(place.topology, &ids) {
            // A kept server keeps the class that it was created for.
            self.data_classes.entry(id).or_insert(class);
        }
        left.bundles.extend(std::mem::replace(
            &mut self.bundle,
            is_made.then_some(agent),
        ));
        Ok(())
    }

    /// Closes the server for all agents and those of single agents.
    pub(super) fn close(self) {
        self.servers().into_iter().for_each(S::close);
    }
}

fn resolve_members(node: &Node, ids: &[&str]) -> Vec<(String, AgentId)> {
    ids.iter()
        .filter_map(|id| Some(((*id).to_owned(), node.system.directory().get(id)?.id())))
        .collect()
}

fn data_classes(topology: &Topology, ids: &[&str]) -> HashMap<String, DataClass> {
    let all = (String::new(), topology.class_of(ids));
    ids.iter()
        .map(|id| ((*id).to_owned(), topology.class_of(&[id])))
        .chain([all])
        .collect()
}

/// Returns the name of the server for all agents: the id of the only one, else the topology's name.
pub(super) fn aggregate_name(ids: &[&str], topology: &Topology) -> String {
    if let [alone] = *ids {
        alone.to_owned()
    } else {
        topology.name.clone()
    }
}
