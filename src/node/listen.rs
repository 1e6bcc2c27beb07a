//! The sockets of a node, and what is behind them.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use actix_web::dev::ServerHandle;
use callboard_mcp::bare::{self, BareServerOptions};
use callboard_mcp::inbound::{
    self, Compat, InboundOptions, Info, ListenOptions, McpServer, McpServerOptions, NamedServers, PATH_DEFAULT,
    Serving, TaskOptions, TaskStore,
};
use callboard_message::DataClass;
use callboard_rpc::{Access, AllowedHosts, AllowedOrigins, KeyRing, Limits};
use callboard_runtime::{AgentId, AgentRef};

use super::{Listening, Node, NodeError};
use crate::config::{CompatTransport, ConfigError, Listener, Speaks, Topology, Trust};

/// Most threads that serve the connections of one listener.
const WORKERS_MAX: usize = 4;

/// One thread a core: whoever accepted a call does all of it, up to the request that goes to an upstream.
fn listening() -> ListenOptions {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    ListenOptions { workers: cores.min(WORKERS_MAX), ..ListenOptions::default() }
}

/// A socket that is open.
pub(super) struct Open {
    /// As it was declared.
    pub(super) bind: SocketAddr,
    print: u64,
    /// The socket itself, so that another server can take it over.
    socket: TcpListener,
    handle: ServerHandle,
    behind: Behind,
    addresses: Vec<Listening>,
}

enum Behind {
    /// Who is served, in the bare dialect.
    Bare(AgentId),
    Mcp(Front),
}

/// MCP servers of a listener: all of its agents as one, and each by itself.
struct Front {
    all: McpServer,
    named: NamedServers,
    /// Made for `all`; `None` where it is one agent itself.
    bundle: Option<AgentRef>,
    /// The name of all, and who they are.
    name: String,
    members: Vec<(String, AgentId)>,
    /// What each was taken to hold at most when its server was made, and all of them under the empty name.
    classes: HashMap<String, DataClass>,
}

impl Open {
    pub(super) fn addresses(&self) -> &[Listening] {
        &self.addresses
    }

    /// Takes no new connections, and ends once what runs has ended, within the drain time.
    pub(super) async fn close(self) {
        let Self { socket, handle, behind, .. } = self;
        drop(socket);
        handle.stop(true).await;
        drop(behind);
    }

    /// The agent that was made to stand for all that are behind it.
    pub(super) fn bundle(&self) -> Option<AgentRef> {
        if let Behind::Mcp(front) = &self.behind { front.bundle.clone() } else { None }
    }

    /// Whether it is what the topology declares at `at`, apart from who is behind it.
    pub(super) fn is(&self, topology: &Topology, at: usize) -> bool {
        let declared = topology.listeners.get(at).zip(topology.prints.listeners.get(at));
        declared.is_some_and(|(listener, print)| listener.bind == self.bind && *print == self.print)
    }
}

/// What a listener has behind it no more, until it has done what it began.
#[derive(Default)]
pub(super) struct Left {
    /// Agents that were made to stand for others.
    pub(super) bundles: Vec<AgentRef>,
    /// Servers with an address of their own: their sessions end with them.
    pub(super) servers: Vec<McpServer>,
}

impl Node {
    /// Opens what is declared at `at`.
    pub(super) fn open(&self, topology: &Topology, at: usize) -> Result<Open, NodeError> {
        self.open_on(self.socket(declared(topology, at)?)?, topology, at)
    }

    pub(super) fn socket(&self, listener: &Listener) -> Result<TcpListener, NodeError> {
        let mut bind = listener.bind;
        if self.free_ports {
            bind.set_port(0);
        }
        TcpListener::bind(bind).map_err(|source| NodeError::Bind { bind, source })
    }

    /// Whether a listener can be what it is declared to be, as far as that can be told before it is opened.
    pub(super) fn can_serve(listener: &Listener) -> Result<(), NodeError> {
        server_options(listener).map(drop)
    }

    /// The same, on the socket of one that is open already and has the same address.
    pub(super) fn take_over(&self, open: &Open, topology: &Topology, at: usize) -> Result<Open, NodeError> {
        self.open_on(open.socket.try_clone()?, topology, at)
    }

    pub(super) fn open_on(&self, socket: TcpListener, topology: &Topology, at: usize) -> Result<Open, NodeError> {
        let listener = declared(topology, at)?;
        let kept = socket.try_clone()?;
        let (serving, behind) = match listener.speaks() {
            Speaks::Bare => self.bare(socket, listener)?,
            Speaks::A2a | Speaks::Mcp => self.mcp(socket, listener, topology)?,
        };
        let print = topology.prints.listeners.get(at).copied().unwrap_or_default();
        let addresses = addresses(&behind, serving.address, listener);
        let handle = serving.server.handle();
        actix_web::rt::spawn(serving.server);
        Ok(Open { bind: listener.bind, print, socket: kept, handle, behind, addresses })
    }

    fn bare(&self, socket: TcpListener, listener: &Listener) -> Result<(Serving, Behind), NodeError> {
        let id = listener.agent.as_deref().unwrap_or_default();
        let agent = self.system.directory().get(id);
        let agent = agent.ok_or_else(|| ConfigError::UnknownAgent { agent: id.to_owned() })?;
        let default = BareServerOptions::default();
        let options = BareServerOptions {
            trust: trust(listener),
            limits: limits(listener),
            call_deadline: listener.call_deadline_s.map_or(default.call_deadline, |s| Duration::from_secs(s.get())),
            ..default
        };
        let behind = Behind::Bare(agent.id());
        Ok((bare::serve(socket, agent, options, &listening())?, behind))
    }

    /// All of the listener's agents at `/mcp`, and each of them at `/agents/ID/mcp`.
    fn mcp(
        &self,
        socket: TcpListener,
        listener: &Listener,
        topology: &Topology,
    ) -> Result<(Serving, Behind), NodeError> {
        let ids = topology.behind(listener);
        let options = self.with_tasks(server_options(listener)?, topology, &ids);
        let (agent, is_made) = self.cast.as_one(&ids)?;
        let name = name_of(&ids, topology);
        let front = Front {
            all: server(&name, agent.clone(), options, PATH_DEFAULT),
            named: NamedServers::default(),
            bundle: is_made.then_some(agent),
            name,
            members: self.members(&ids),
            classes: classes(topology, &ids),
        };
        front.named.set(self.each(&ids, &HashMap::new(), listener, topology)?);
        let serving = inbound::serve_named(socket, vec![front.all.clone()], front.named.clone(), &listening())?;
        Ok((serving, Behind::Mcp(front)))
    }

    /// The same with its tasks in the node's store, as far as what is behind it may be on a disk.
    fn with_tasks(&self, options: McpServerOptions, topology: &Topology, ids: &[&str]) -> McpServerOptions {
        let store = self.store.as_ref().map(|_| TaskStore::from(self.system.store()));
        let tasks = TaskOptions { store, class: topology.class_of(ids), ..options.inbound.tasks };
        McpServerOptions { inbound: InboundOptions { tasks, ..options.inbound }, ..options }
    }

    fn members(&self, ids: &[&str]) -> Vec<(String, AgentId)> {
        ids.iter().filter_map(|id| Some(((*id).to_owned(), self.system.directory().get(id)?.id()))).collect()
    }

    /// Each agent by itself; those that are served already stay what they are.
    fn each(
        &self,
        ids: &[&str],
        served: &HashMap<String, McpServer>,
        listener: &Listener,
        topology: &Topology,
    ) -> Result<HashMap<String, McpServer>, NodeError> {
        let mut each = HashMap::new();
        for id in ids {
            let server = match served.get(*id) {
                Some(served) => served.clone(),
                None => {
                    let options = self.with_tasks(server_options(listener)?, topology, &[id]);
                    server(id, self.cast.as_one(&[id])?.0, options, PATH_DEFAULT)
                }
            };
            each.insert((*id).to_owned(), server);
        }
        Ok(each)
    }

    /// Whether who is behind it is served by a server that can't change.
    pub(super) fn must_begin_again(&self, open: &Open, topology: &Topology, at: usize) -> bool {
        match (&open.behind, topology.listeners.get(at)) {
            (Behind::Bare(served), Some(listener)) => {
                let agent = listener.agent.as_deref().and_then(|id| self.system.directory().get(id));
                agent.is_none_or(|agent| agent.id() != *served)
            }
            // What was kept of an agent's tasks may not be on a disk any more.
            (Behind::Mcp(front), Some(listener)) => {
                let now = classes(topology, &topology.behind(listener));
                now.iter().any(|(id, class)| front.classes.get(id).is_some_and(|before| class > before))
            }
            _ => false,
        }
    }

    /// Puts those whom the topology wants behind an open listener. Who stood for the old ones goes to `left`.
    pub(super) fn renew(
        &self,
        open: &mut Open,
        topology: &Topology,
        at: usize,
        left: &mut Left,
    ) -> Result<(), NodeError> {
        let listener = declared(topology, at)?;
        let Behind::Mcp(front) = &mut open.behind else { return Ok(()) };
        let ids = topology.behind(listener);
        let members = self.members(&ids);
        if members == front.members {
            return Ok(());
        }
        let (agent, is_made) = self.cast.as_one(&ids)?;
        let mut served = HashMap::new();
        for (id, before) in &front.members {
            let Some(server) = front.named.get(id) else { continue };
            let Some((_, now)) = members.iter().find(|(other, _)| other == id) else {
                left.servers.push(server);
                continue;
            };
            if now != before {
                server.replace(self.cast.as_one(&[id])?.0);
            }
            served.insert(id.clone(), server);
        }
        front.named.set(self.each(&ids, &served, listener, topology)?);
        front.all.replace(agent.clone());
        front.members = members;
        for (id, class) in classes(topology, &ids) {
            // A server that stays keeps to what it was made for.
            front.classes.entry(id).or_insert(class);
        }
        front.name = name_of(&ids, topology);
        let address = open.socket.local_addr()?;
        left.bundles.extend(std::mem::replace(&mut front.bundle, is_made.then_some(agent)));
        open.addresses = addresses(&open.behind, address, listener);
        Ok(())
    }
}

fn classes(topology: &Topology, ids: &[&str]) -> HashMap<String, DataClass> {
    let all = (String::new(), topology.class_of(ids));
    ids.iter().map(|id| ((*id).to_owned(), topology.class_of(&[id]))).chain([all]).collect()
}

fn declared(topology: &Topology, at: usize) -> Result<&Listener, NodeError> {
    topology.listeners.get(at).ok_or_else(|| ConfigError::NoAgents.into())
}

fn name_of(ids: &[&str], topology: &Topology) -> String {
    if let [alone] = *ids { alone.to_owned() } else { topology.name.clone() }
}

fn addresses(behind: &Behind, address: SocketAddr, listener: &Listener) -> Vec<Listening> {
    let at = |agent: &str, path: &str| Listening { agent: agent.to_owned(), url: format!("http://{address}{path}") };
    match behind {
        Behind::Bare(_) => vec![at(listener.agent.as_deref().unwrap_or_default(), bare::PATH_DEFAULT)],
        Behind::Mcp(front) => {
            let all = at(&front.name, PATH_DEFAULT);
            let each = front.members.iter().map(|(id, _)| at(id, &inbound::NAMED_PATH.replace("{name}", id)));
            std::iter::once(all).chain(each).collect()
        }
    }
}

fn server(name: &str, agent: AgentRef, options: McpServerOptions, path: &str) -> McpServer {
    let info = Info { name: name.to_owned(), ..Info::default() };
    let inbound = InboundOptions { info, ..options.inbound };
    McpServer::new(agent, McpServerOptions { inbound, path: path.to_owned(), ..options })
}

fn trust(listener: &Listener) -> callboard_rpc::Trust {
    match listener.trust {
        Trust::Anonymous => callboard_rpc::Trust::Anonymous,
        Trust::LoopbackOperator => callboard_rpc::Trust::LoopbackOperator,
    }
}

fn limits(listener: &Listener) -> Limits {
    let default = Limits::default();
    Limits { body_bytes_max: listener.body_bytes_max.map_or(default.body_bytes_max, |bytes| bytes.get()), ..default }
}

fn server_options(listener: &Listener) -> Result<McpServerOptions, NodeError> {
    let wrong = |why: String| ConfigError::Listener { bind: listener.bind, why };
    let access = match &listener.keys {
        Some(file) => Access::keys(KeyRing::open(file)?),
        None => trust(listener).into(),
    };
    let hosts = listener.hosts.iter().try_fold(AllowedHosts::default(), |hosts, host| hosts.with(host));
    let origins = listener.origins.iter().try_fold(AllowedOrigins::default(), |origins, origin| origins.with(origin));
    let compat = Compat {
        websocket: listener.compat.contains(&CompatTransport::Websocket),
        sse: listener.compat.contains(&CompatTransport::Sse),
    };
    let default = InboundOptions::default();
    let call_deadline = listener.call_deadline_s.map_or(default.call_deadline, |s| Duration::from_secs(s.get()));
    Ok(McpServerOptions {
        inbound: InboundOptions { limits: limits(listener), call_deadline, ..default },
        access,
        hosts: hosts.map_err(|error| wrong(error.to_string()))?,
        origins: origins.map_err(|error| wrong(error.to_string()))?,
        compat,
        ..McpServerOptions::default()
    })
}
