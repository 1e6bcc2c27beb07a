//! The sockets of a node, and what is behind them.

use std::net::{SocketAddr, TcpListener};

use actix_web::dev::ServerHandle;
use actix_web::web::ServiceConfig;
use callboard_a2a::inbound as a2a;
use callboard_mail::inbound::MailServer;
use callboard_mcp::inbound::{self, McpServer};
use callboard_rpc::serve::{ListenOptions, Named, Serving};
use callboard_rpc::{Access, AllowedHosts, AllowedOrigins, KeyRing, Limits};
use callboard_runtime::AgentRef;

use super::front::{Front, Left, Place, Served};
use super::grpc::Grpc;
use super::served::{A2a, Mcp, mcp_options};
use super::{Listening, Node, NodeError};
use crate::config::{ConfigError, Listener, Speaks, Topology, Trust};

/// Most threads that serve the connections of one listener.
const WORKERS_MAX: usize = 4;

/// One thread a core: whoever accepted a call does all of it, up to the request that goes to an upstream.
fn listening() -> ListenOptions {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    ListenOptions { workers: cores.min(WORKERS_MAX), ..ListenOptions::default() }
}

/// The sockets of a listener, before anybody serves on them.
pub(super) struct Sockets {
    http: TcpListener,
    grpc: Option<TcpListener>,
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
    /// Beside A2A over HTTP.
    grpc: Option<Grpc>,
    addresses: Vec<Listening>,
    /// As others reach it, where that is another address.
    public: Option<String>,
}

enum Behind {
    /// In the bare dialect.
    Bare(McpServer),
    Mcp(Front<Mcp>),
    A2a(Front<A2a>),
    Mail(MailServer),
}

impl Open {
    pub(super) fn addresses(&self) -> &[Listening] {
        &self.addresses
    }

    /// Where the agent of that id is reached over A2A, and whether that is from this machine alone.
    pub(super) fn reached(&self, id: &str) -> Option<(String, bool)> {
        let Behind::A2a(_) = self.behind else { return None };
        let address = self.socket.local_addr().ok()?;
        let listening = self.addresses.iter().find(|listening| listening.agent == id)?;
        let url = match &self.public {
            Some(public) => listening.url.replacen(&format!("http://{address}"), public, 1),
            None => listening.url.clone(),
        };
        Some((url, address.ip().is_loopback()))
    }

    /// Takes no new connections: another server does, on the same sockets.
    pub(super) async fn pause(&self) {
        self.handle.pause().await;
    }

    /// Ends after `grace`. Stopped at once it would drop connections that it has accepted and not looked at.
    pub(super) async fn hand_over(self, grace: impl Future<Output = ()>) {
        grace.await;
        self.close().await;
    }

    /// Takes no new connections, and ends once what runs has ended, within the drain time.
    pub(super) async fn close(self) {
        let Self { socket, handle, behind, grpc, .. } = self;
        drop(socket);
        // Event sockets don't end by themselves.
        if let Behind::Mail(server) = &behind {
            server.stop().await;
        }
        let grpc = async {
            if let Some(grpc) = grpc {
                grpc.close().await;
            }
        };
        tokio::join!(handle.stop(true), grpc);
        match behind {
            Behind::Bare(_) | Behind::Mail(_) => {}
            Behind::Mcp(front) => front.end(),
            Behind::A2a(front) => front.end(),
        }
    }

    /// The agent that was made to stand for all that are behind it.
    pub(super) fn bundle(&self) -> Option<AgentRef> {
        match &self.behind {
            Behind::Bare(_) | Behind::Mail(_) => None,
            Behind::Mcp(front) => front.bundle(),
            Behind::A2a(front) => front.bundle(),
        }
    }

    /// Whether it is what the topology declares at `at`, apart from who is behind it.
    pub(super) fn is(&self, topology: &Topology, at: usize) -> bool {
        let declared = topology.listeners.get(at).zip(topology.prints.listeners.get(at));
        declared.is_some_and(|(listener, print)| listener.bind == self.bind && *print == self.print)
    }
}

impl Node {
    /// Opens what is declared at `at`.
    pub(super) fn open(&self, topology: &Topology, at: usize) -> Result<Open, NodeError> {
        self.open_on(self.sockets(declared(topology, at)?)?, topology, at)
    }

    /// New sockets.
    pub(super) fn sockets(&self, listener: &Listener) -> Result<Sockets, NodeError> {
        let grpc = listener.grpc_bind.map(|bind| self.socket(bind)).transpose()?;
        Ok(Sockets { http: self.socket(listener.bind)?, grpc })
    }

    /// Those of a listener that is open at this address already; a new one for gRPC where that is elsewhere now.
    pub(super) fn sockets_of(&self, open: &Open, listener: &Listener) -> Result<Sockets, NodeError> {
        let grpc = match (listener.grpc_bind, &open.grpc) {
            (None, _) => None,
            (Some(bind), Some(grpc)) if grpc.bind == bind => Some(grpc.socket.try_clone()?),
            (Some(bind), _) => Some(self.socket(bind)?),
        };
        Ok(Sockets { http: open.socket.try_clone()?, grpc })
    }

    fn socket(&self, mut bind: SocketAddr) -> Result<TcpListener, NodeError> {
        if self.free_ports {
            bind.set_port(0);
        }
        TcpListener::bind(bind).map_err(|source| NodeError::Bind { bind, source })
    }

    /// Whether a listener can be what it is declared to be, as far as that can be told before it is opened.
    pub(super) fn can_serve(listener: &Listener) -> Result<(), NodeError> {
        match listener.speaks() {
            Speaks::A2a => A2a::can_serve(listener),
            Speaks::Mcp | Speaks::Bare => Mcp::can_serve(listener),
            Speaks::Mail => entrance(listener).map(drop),
        }
    }

    /// Opens what is declared at `at` on these sockets.
    pub(super) fn open_on(&self, sockets: Sockets, topology: &Topology, at: usize) -> Result<Open, NodeError> {
        let print = topology.prints.listeners.get(at).copied().unwrap_or_default();
        self.open_as(sockets, topology, declared(topology, at)?, print)
    }

    fn open_as(
        &self,
        sockets: Sockets,
        topology: &Topology,
        listener: &Listener,
        print: u64,
    ) -> Result<Open, NodeError> {
        let Sockets { http: socket, grpc } = sockets;
        let kept = socket.try_clone()?;
        let at_grpc = grpc.as_ref().map(TcpListener::local_addr).transpose()?;
        let place = Place { node: self, listener, topology, address: socket.local_addr()?, grpc: at_grpc };
        let (serving, behind) = match listener.speaks() {
            Speaks::Bare => self.bare(socket, listener)?,
            Speaks::Mail => self.mail(socket, listener)?,
            Speaks::Mcp => {
                let front = Front::<Mcp>::of(&place)?;
                let (all, named) = front.servers();
                (inbound::serve_named(socket, vec![all], named, &listening())?, Behind::Mcp(front))
            }
            Speaks::A2a => {
                let front = Front::<A2a>::of(&place)?;
                let (all, named) = front.servers();
                let inboxes = self.cast.inboxes().clone();
                let more = move |config: &mut ServiceConfig| inboxes.configure(config);
                (a2a::serve_with(socket, all, named, &listening(), more)?, Behind::A2a(front))
            }
        };
        let grpc = match (&behind, listener.grpc_bind.zip(grpc)) {
            (Behind::A2a(front), Some((bind, socket))) => {
                Some(Grpc::open(bind, socket, front.servers(), &listening())?)
            }
            _ => None,
        };
        let addresses = addresses(&behind, serving.address, grpc.as_ref(), listener);
        let handle = serving.server.handle();
        actix_web::rt::spawn(serving.server);
        let public = listener.public_url.as_ref().map(|url| url.url().as_str().trim_end_matches('/').to_owned());
        Ok(Open { bind: listener.bind, print, socket: kept, handle, behind, grpc, addresses, public })
    }

    /// Opens an A2A listener in front of the agent `id` alone, as the topology's first one of that protocol is declared, if
    /// there is one, but at `bind`.
    ///
    /// # Errors
    /// See [`NodeError`]; what listens already goes on.
    pub async fn listen_a2a(
        &mut self,
        topology: &Topology,
        id: &str,
        bind: SocketAddr,
    ) -> Result<Listening, NodeError> {
        let listener = topology.a2a_listener(id, bind);
        Self::can_serve(&listener)?;
        let open = self.open_as(self.sockets(&listener)?, topology, &listener, 0)?;
        let listening = open.addresses().first().cloned();
        self.listeners.push(open);
        self.tell_where(topology);
        listening.ok_or_else(|| ConfigError::UnknownAgent { agent: id.to_owned() }.into())
    }

    /// Closes every listener, once what came in there has ended; whether any was open.
    pub async fn stop_listening(&mut self, topology: &Topology) -> bool {
        let open = std::mem::take(&mut self.listeners);
        let was_open = !open.is_empty();
        self.tell_where(topology);
        futures::future::join_all(open.into_iter().map(Open::close)).await;
        was_open
    }

    /// The one agent that a listener is for.
    fn alone(&self, listener: &Listener) -> Result<AgentRef, NodeError> {
        let id = listener.agent.as_deref().unwrap_or_default();
        let agent = self.system.directory().get(id);
        agent.ok_or_else(|| ConfigError::UnknownAgent { agent: id.to_owned() }.into())
    }

    fn mail(&self, socket: TcpListener, listener: &Listener) -> Result<(Serving, Behind), NodeError> {
        let server = MailServer::new(self.alone(listener)?, super::mail::server_options(listener)?);
        Ok((callboard_mail::inbound::serve(socket, server.clone(), &listening())?, Behind::Mail(server)))
    }

    fn bare(&self, socket: TcpListener, listener: &Listener) -> Result<(Serving, Behind), NodeError> {
        let server = McpServer::new(self.alone(listener)?, mcp_options(listener)?);
        Ok((inbound::serve_named(socket, vec![server.clone()], Named::default(), &listening())?, Behind::Bare(server)))
    }

    /// Whether who is behind it is served by a server that can't change.
    pub(super) fn must_begin_again(&self, open: &Open, topology: &Topology, at: usize) -> bool {
        let Some(listener) = topology.listeners.get(at) else { return false };
        match &open.behind {
            Behind::Mcp(front) => front.keeps_too_much(topology, listener),
            Behind::A2a(front) => front.keeps_too_much(topology, listener),
            Behind::Bare(_) | Behind::Mail(_) => false,
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
        let address = open.socket.local_addr()?;
        let at_grpc = open.grpc.as_ref().map(|grpc| grpc.address);
        let place = Place { node: self, listener, topology, address, grpc: at_grpc };
        match &mut open.behind {
            Behind::Bare(server) => server.replace(self.alone(listener)?),
            Behind::Mcp(front) => front.renew(&place, left)?,
            Behind::A2a(front) => front.renew(&place, left)?,
            Behind::Mail(server) => server.replace(self.alone(listener)?),
        }
        open.addresses = addresses(&open.behind, address, open.grpc.as_ref(), listener);
        Ok(())
    }
}

pub(super) fn declared(topology: &Topology, at: usize) -> Result<&Listener, NodeError> {
    topology.listeners.get(at).ok_or_else(|| ConfigError::NoAgents.into())
}

fn addresses(behind: &Behind, address: SocketAddr, grpc: Option<&Grpc>, listener: &Listener) -> Vec<Listening> {
    let alone = |path: &str| {
        let agent = listener.agent.clone().unwrap_or_default();
        vec![Listening { agent, url: format!("http://{address}{path}") }]
    };
    let mut all = match behind {
        Behind::Bare(_) => alone(inbound::PATH_DEFAULT),
        Behind::Mail(_) => alone(""),
        Behind::Mcp(front) => front.addresses(address),
        Behind::A2a(front) => front.addresses(address),
    };
    let who = all.first().map(|first| first.agent.clone()).unwrap_or_default();
    all.extend(grpc.map(|grpc| Listening { agent: who, url: format!("grpc://{}", grpc.address) }));
    all
}

fn trust(listener: &Listener) -> callboard_rpc::Trust {
    match listener.trust {
        Trust::Anonymous if listener.is_behind_proxy() => callboard_rpc::Trust::BehindProxy,
        Trust::Anonymous => callboard_rpc::Trust::Anonymous,
        Trust::LoopbackOperator => callboard_rpc::Trust::LoopbackOperator,
    }
}

pub(super) fn limits(listener: &Listener) -> Limits {
    let default = Limits::default();
    Limits { body_bytes_max: listener.body_bytes_max.map_or(default.body_bytes_max, |bytes| bytes.get()), ..default }
}

/// Who may come in.
pub(super) struct Entrance {
    pub(super) access: Access,
    pub(super) hosts: AllowedHosts,
    pub(super) origins: AllowedOrigins,
}

pub(super) fn entrance(listener: &Listener) -> Result<Entrance, NodeError> {
    let wrong = |why: String| ConfigError::Listener { bind: listener.bind, why };
    let access = match &listener.keys {
        Some(file) => Access::keys(KeyRing::open(file)?),
        None if listener.open => Access::Anyone,
        None => trust(listener).into(),
    };
    let hosts = listener.hosts.iter().try_fold(AllowedHosts::default(), |hosts, host| hosts.with(host));
    let origins = listener.origins.iter().try_fold(AllowedOrigins::default(), |origins, origin| origins.with(origin));
    Ok(Entrance {
        access,
        hosts: hosts.map_err(|error| wrong(error.to_string()))?,
        origins: origins.map_err(|error| wrong(error.to_string()))?,
    })
}
