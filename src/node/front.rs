//! What a listener leads to, whatever it speaks: all of its agents as one, and each by itself.

use std::collections::HashMap;
use std::net::SocketAddr;

use callboard_message::DataClass;
use callboard_rpc::serve::Named;
use callboard_runtime::{AgentId, AgentRef};

use super::{Listening, Node, NodeError};
use crate::config::{Listener, Topology};

/// A server of one protocol, in front of one agent.
pub(super) trait Served: Sized + 'static {
    /// The server. Clones are the same.
    type Server: Clone + Send + 'static;
    /// Where all are served as one.
    const PATH: &'static str;
    /// Where each is served, with `{name}` in it.
    const NAMED_PATH: &'static str;

    /// Whether it can be what it is declared to be.
    fn can_serve(listener: &Listener) -> Result<(), NodeError>;
    /// A server of `agent` at this place, under this name and, unless it is for all, at an address of its own.
    fn server(place: &Place<'_>, who: Who<'_>, agent: AgentRef) -> Result<Self::Server, NodeError>;
    /// Serves another from now on, as the topology says that it is.
    fn replace(place: &Place<'_>, who: Who<'_>, server: &Self::Server, agent: AgentRef);
    /// Says of it what the topology says now.
    fn describe(place: &Place<'_>, who: Who<'_>, server: &Self::Server);
    /// Lets go of what it has, once nobody comes to it any more. Tasks are the node's.
    fn end(server: Self::Server);
}

/// Whom a server stands for.
#[derive(Clone, Copy)]
pub(super) enum Who<'a> {
    /// All of these, under this name.
    All(&'a str, &'a [&'a str]),
    /// One.
    One(&'a str),
}

impl Who<'_> {
    /// The name that it has in front of others.
    pub(super) fn name(&self) -> &str {
        let (Self::All(name, _) | Self::One(name)) = self;
        name
    }

    /// Whom it stands for.
    pub(super) fn ids(&self) -> &[&str] {
        match self {
            Self::All(_, ids) => ids,
            Self::One(id) => std::slice::from_ref(id),
        }
    }

    /// What it is taken to hold at most.
    pub(super) fn class(&self, topology: &Topology) -> DataClass {
        topology.class_of(self.ids())
    }
}

/// A listener on its socket.
pub(super) struct Place<'a> {
    pub(super) node: &'a Node,
    pub(super) listener: &'a Listener,
    pub(super) topology: &'a Topology,
    pub(super) address: SocketAddr,
    /// Where it speaks gRPC too.
    pub(super) grpc: Option<SocketAddr>,
}

/// The servers of a listener.
pub(super) struct Front<S: Served> {
    all: S::Server,
    named: Named<S::Server>,
    /// Made for `all`; `None` where it is one agent itself.
    bundle: Option<AgentRef>,
    /// The name of all, and who they are.
    name: String,
    members: Vec<(String, AgentId)>,
    /// What each was taken to hold at most when its server was made, and all of them under the empty name.
    classes: HashMap<String, DataClass>,
}

/// What a listener has behind it no more, until it has done what it began.
#[derive(Default)]
pub(super) struct Left {
    /// Agents that were made to stand for others.
    pub(super) bundles: Vec<AgentRef>,
    /// The ends of servers with an address of their own: their sessions end with them.
    pub(super) servers: Vec<Box<dyn FnOnce()>>,
}

impl<S: Served> Front<S> {
    pub(super) fn of(place: &Place<'_>) -> Result<Self, NodeError> {
        let ids = place.topology.behind(place.listener);
        let (agent, is_made) = place.node.cast.as_one(&ids)?;
        let name = name_of(&ids, place.topology);
        let front = Self {
            all: S::server(place, Who::All(&name, &ids), agent.clone())?,
            named: Named::default(),
            bundle: is_made.then_some(agent),
            name,
            members: members(place.node, &ids),
            classes: classes(place.topology, &ids),
        };
        front.named.set(Self::each(place, &ids, &HashMap::new())?);
        Ok(front)
    }

    pub(super) fn servers(&self) -> (S::Server, Named<S::Server>) {
        (self.all.clone(), self.named.clone())
    }

    pub(super) fn bundle(&self) -> Option<AgentRef> {
        self.bundle.clone()
    }

    pub(super) fn addresses(&self, address: SocketAddr) -> Vec<Listening> {
        let at = |agent: &str, path: &str| Listening {
            agent: agent.to_owned(),
            url: format!("http://{address}{path}"),
        };
        let each = self
            .members
            .iter()
            .map(|(id, _)| at(id, &S::NAMED_PATH.replace("{name}", id)));
        std::iter::once(at(&self.name, S::PATH))
            .chain(each)
            .collect()
    }

    /// Each agent by itself; those that are served already stay what they are.
    fn each(
        place: &Place<'_>,
        ids: &[&str],
        served: &HashMap<String, S::Server>,
    ) -> Result<HashMap<String, S::Server>, NodeError> {
        let mut each = HashMap::new();
        for id in ids {
            let server = match served.get(*id) {
                Some(served) => served.clone(),
                None => S::server(place, Who::One(id), place.node.cast.as_one(&[id])?.0)?,
            };
            each.insert((*id).to_owned(), server);
        }
        Ok(each)
    }

    /// Whether what was kept of an agent's tasks may not be on a disk any more.
    pub(super) fn keeps_too_much(&self, topology: &Topology, listener: &Listener) -> bool {
        let now = classes(topology, &topology.behind(listener));
        now.iter()
            .any(|(id, class)| self.classes.get(id).is_some_and(|before| class > before))
    }

    /// Puts those whom the topology wants behind it.
    pub(super) fn renew(&mut self, place: &Place<'_>, left: &mut Left) -> Result<(), NodeError> {
        let ids = place.topology.behind(place.listener);
        let members = members(place.node, &ids);
        // Nothing begins anew for a description alone.
        for id in &ids {
            if let Some(server) = self.named.get(id) {
                S::describe(place, Who::One(id), &server);
            }
        }
        if members == self.members {
            S::describe(place, Who::All(&self.name, &ids), &self.all);
            return Ok(());
        }
        let (agent, is_made) = place.node.cast.as_one(&ids)?;
        let mut served = HashMap::new();
        for (id, before) in &self.members {
            let Some(server) = self.named.get(id) else {
                continue;
            };
            let Some((_, now)) = members.iter().find(|(other, _)| other == id) else {
                left.servers.push(Box::new(|| S::end(server)));
                continue;
            };
            if now != before {
                S::replace(
                    place,
                    Who::One(id),
                    &server,
                    place.node.cast.as_one(&[id])?.0,
                );
            }
            served.insert(id.clone(), server);
        }
        self.named.set(Self::each(place, &ids, &served)?);
        self.name = name_of(&ids, place.topology);
        S::replace(place, Who::All(&self.name, &ids), &self.all, agent.clone());
        self.members = members;
        for (id, class) in classes(place.topology, &ids) {
            // A server that stays keeps to what it was made for.
            self.classes.entry(id).or_insert(class);
        }
        left.bundles.extend(std::mem::replace(
            &mut self.bundle,
            is_made.then_some(agent),
        ));
        Ok(())
    }

    /// Ends its servers.
    pub(super) fn end(self) {
        let each = self.members.iter().filter_map(|(id, _)| self.named.get(id));
        each.chain([self.all]).for_each(S::end);
    }
}

fn members(node: &Node, ids: &[&str]) -> Vec<(String, AgentId)> {
    ids.iter()
        .filter_map(|id| Some(((*id).to_owned(), node.system.directory().get(id)?.id())))
        .collect()
}

fn classes(topology: &Topology, ids: &[&str]) -> HashMap<String, DataClass> {
    let all = (String::new(), topology.class_of(ids));
    ids.iter()
        .map(|id| ((*id).to_owned(), topology.class_of(&[id])))
        .chain([all])
        .collect()
}

fn name_of(ids: &[&str], topology: &Topology) -> String {
    if let [alone] = *ids {
        alone.to_owned()
    } else {
        topology.name.clone()
    }
}
