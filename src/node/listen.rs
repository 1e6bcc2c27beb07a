//! The sockets of a node, and the servers of MCP and A2A behind them.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use actix_web::dev::ServerHandle;
use actix_web::web::ServiceConfig;
use callboard_a2a::card::SigningKey;
use callboard_a2a::inbound as a2a;
use callboard_a2a::inbound::{A2aOptions, A2aServer, PushOptions};
use callboard_a2a::wire::AgentProvider;
use callboard_mail::inbound::{MailServer, MailServerOptions};
use callboard_mcp::inbound as mcp;
use callboard_mcp::inbound::{
    self, Compat, InboundOptions, McpServer, McpServerOptions, TaskStore,
};
use callboard_rpc::serve::{ListenOptions, Named, Serving};
use callboard_rpc::{Access, AllowedHosts, AllowedOrigins, KeyRing, Limits};
use callboard_runtime::AgentRef;
use secrecy::SecretString;
use url::Url;

use super::front::{Front, Left, Place, Served, Who};
use super::grpc::Grpc;
use super::{Listening, Node, NodeError};
use crate::config::{CompatTransport, ConfigError, Listener, Speaks, Topology, Trust};

/// Most threads that serve the connections of one listener.
const WORKERS_MAX: usize = 4;

/// One thread a core: whoever accepted a call does all of it, up to the request that goes to an upstream.
fn listening() -> ListenOptions {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    ListenOptions {
        workers: cores.min(WORKERS_MAX),
        ..ListenOptions::default()
    }
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
        let Behind::A2a(_) = self.behind else {
            return None;
        };
        let address = self.socket.local_addr().ok()?;
        let listening = self
            .addresses
            .iter()
            .find(|listening| listening.agent == id)?;
        let url = match &self.public {
            Some(public) => listening
                .url
                .replacen(&format!("http://{address}"), public, 1),
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
        let Self {
            socket,
            handle,
            behind,
            grpc,
            ..
        } = self;
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
        let declared = topology
            .listeners
            .get(at)
            .zip(topology.prints.listeners.get(at));
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
        let grpc = listener
            .grpc_bind
            .map(|bind| self.socket(bind))
            .transpose()?;
        Ok(Sockets {
            http: self.socket(listener.bind)?,
            grpc,
        })
    }

    /// Those of a listener that is open at this address already; a new one for gRPC where that is elsewhere now.
    pub(super) fn sockets_of(
        &self,
        open: &Open,
        listener: &Listener,
    ) -> Result<Sockets, NodeError> {
        let grpc = match (listener.grpc_bind, &open.grpc) {
            (None, _) => None,
            (Some(bind), Some(grpc)) if grpc.bind == bind => Some(grpc.socket.try_clone()?),
            (Some(bind), _) => Some(self.socket(bind)?),
        };
        Ok(Sockets {
            http: open.socket.try_clone()?,
            grpc,
        })
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
    pub(super) fn open_on(
        &self,
        sockets: Sockets,
        topology: &Topology,
        at: usize,
    ) -> Result<Open, NodeError> {
        let print = topology
            .prints
            .listeners
            .get(at)
            .copied()
            .unwrap_or_default();
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
        let place = Place {
            node: self,
            listener,
            topology,
            address: socket.local_addr()?,
            grpc: at_grpc,
        };
        let (serving, behind) = match listener.speaks() {
            Speaks::Bare => self.bare(socket, listener)?,
            Speaks::Mail => self.mail(socket, listener)?,
            Speaks::Mcp => {
                let front = Front::<Mcp>::of(&place)?;
                let (all, named) = front.servers();
                (
                    inbound::serve_named(socket, vec![all], named, &listening())?,
                    Behind::Mcp(front),
                )
            }
            Speaks::A2a => {
                let front = Front::<A2a>::of(&place)?;
                let (all, named) = front.servers();
                let inboxes = self.cast.inboxes().clone();
                let more = move |config: &mut ServiceConfig| inboxes.configure(config);
                (
                    a2a::serve_with(socket, all, named, &listening(), more)?,
                    Behind::A2a(front),
                )
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
        let public = listener
            .public_url
            .as_ref()
            .map(|url| url.url().as_str().trim_end_matches('/').to_owned());
        Ok(Open {
            bind: listener.bind,
            print,
            socket: kept,
            handle,
            behind,
            grpc,
            addresses,
            public,
        })
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
        listening.ok_or_else(|| {
            ConfigError::UnknownAgent {
                agent: id.to_owned(),
            }
            .into()
        })
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
        agent.ok_or_else(|| {
            ConfigError::UnknownAgent {
                agent: id.to_owned(),
            }
            .into()
        })
    }

    fn mail(
        &self,
        socket: TcpListener,
        listener: &Listener,
    ) -> Result<(Serving, Behind), NodeError> {
        let server = MailServer::new(self.alone(listener)?, mail_options(listener)?);
        Ok((
            callboard_mail::inbound::serve(socket, server.clone(), &listening())?,
            Behind::Mail(server),
        ))
    }

    fn bare(
        &self,
        socket: TcpListener,
        listener: &Listener,
    ) -> Result<(Serving, Behind), NodeError> {
        let server = McpServer::new(self.alone(listener)?, mcp_options(listener)?);
        Ok((
            inbound::serve_named(socket, vec![server.clone()], Named::default(), &listening())?,
            Behind::Bare(server),
        ))
    }

    /// Whether who is behind it is served by a server that can't change.
    pub(super) fn must_begin_again(&self, open: &Open, topology: &Topology, at: usize) -> bool {
        let Some(listener) = topology.listeners.get(at) else {
            return false;
        };
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
        let place = Place {
            node: self,
            listener,
            topology,
            address,
            grpc: at_grpc,
        };
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
    topology
        .listeners
        .get(at)
        .ok_or_else(|| ConfigError::NoAgents.into())
}

fn addresses(
    behind: &Behind,
    address: SocketAddr,
    grpc: Option<&Grpc>,
    listener: &Listener,
) -> Vec<Listening> {
    let alone = |path: &str| {
        let agent = listener.agent.clone().unwrap_or_default();
        vec![Listening {
            agent,
            url: format!("http://{address}{path}"),
        }]
    };
    let mut all = match behind {
        Behind::Bare(_) => alone(inbound::PATH_DEFAULT),
        Behind::Mail(_) => alone(""),
        Behind::Mcp(front) => front.addresses(address),
        Behind::A2a(front) => front.addresses(address),
    };
    let who = all
        .first()
        .map(|first| first.agent.clone())
        .unwrap_or_default();
    all.extend(grpc.map(|grpc| Listening {
        agent: who,
        url: format!("grpc://{}", grpc.address),
    }));
    all
}

fn trust(listener: &Listener) -> callboard_rpc::Trust {
    match listener.trust {
        Trust::Anonymous if listener.is_behind_proxy() => callboard_rpc::Trust::BehindProxy,
        Trust::Anonymous => callboard_rpc::Trust::Anonymous,
        Trust::LoopbackOperator => callboard_rpc::Trust::LoopbackOperator,
    }
}

fn limits(listener: &Listener) -> Limits {
    let default = Limits::default();
    Limits {
        body_bytes_max: listener
            .body_bytes_max
            .map_or(default.body_bytes_max, |bytes| bytes.get()),
        ..default
    }
}

/// Who may come in.
struct Entrance {
    access: Access,
    hosts: AllowedHosts,
    origins: AllowedOrigins,
}

fn entrance(listener: &Listener) -> Result<Entrance, NodeError> {
    let wrong = |why: String| ConfigError::Listener {
        bind: listener.bind,
        why,
    };
    let access = match &listener.keys {
        Some(file) => Access::keys(KeyRing::open(file)?),
        None if listener.open => Access::Anyone,
        None => trust(listener).into(),
    };
    let hosts = listener
        .hosts
        .iter()
        .try_fold(AllowedHosts::default(), |hosts, host| hosts.with(host));
    let origins = listener
        .origins
        .iter()
        .try_fold(AllowedOrigins::default(), |origins, origin| {
            origins.with(origin)
        });
    Ok(Entrance {
        access,
        hosts: hosts.map_err(|error| wrong(error.to_string()))?,
        origins: origins.map_err(|error| wrong(error.to_string()))?,
    })
}

/// How a listener serves its mailroom.
fn mail_options(listener: &Listener) -> Result<MailServerOptions, NodeError> {
    let Entrance {
        access,
        hosts,
        origins,
    } = entrance(listener)?;
    let mut options = MailServerOptions {
        access,
        hosts,
        origins,
        ..MailServerOptions::default()
    };
    if let Some(bytes) = listener.body_bytes_max {
        options.limits.body_bytes_max = bytes.get();
    }
    if let Some(seconds) = listener.call_deadline_s {
        options.call_deadline = Duration::from_secs(seconds.get());
    }
    Ok(options)
}

/// MCP, both eras.
struct Mcp;

impl Served for Mcp {
    type Server = McpServer;
    const PATH: &'static str = mcp::PATH_DEFAULT;
    const NAMED_PATH: &'static str = mcp::NAMED_PATH;

    fn can_serve(listener: &Listener) -> Result<(), NodeError> {
        mcp_options(listener).map(drop)
    }

    fn server(place: &Place<'_>, who: Who<'_>, agent: AgentRef) -> Result<McpServer, NodeError> {
        let options = mcp_options(place.listener)?;
        let info = mcp::Info {
            name: who.name().to_owned(),
            ..mcp::Info::default()
        };
        // In the node's store, as far as what is behind it may be on a disk.
        let store = place
            .node
            .store
            .as_ref()
            .map(|_| TaskStore::from(place.node.system.store()));
        let tasks = mcp::TaskOptions {
            store,
            class: who.class(place.topology),
            ..options.inbound.tasks
        };
        let inbound = InboundOptions {
            info,
            tasks,
            ..options.inbound
        };
        let claims_must_match = place.topology.has_mailroom(who.ids());
        let path = Self::PATH.to_owned();
        Ok(McpServer::new(
            agent,
            McpServerOptions {
                inbound,
                path,
                claims_must_match,
                ..options
            },
        ))
    }

    fn replace(_: &Place<'_>, _: Who<'_>, server: &McpServer, agent: AgentRef) {
        server.replace(agent);
    }

    /// It says nothing of what anything is for.
    fn describe(_: &Place<'_>, _: Who<'_>, _: &McpServer) {}

    fn end(server: McpServer) {
        // Its sessions have had their answers.
        drop(server);
    }
}

fn mcp_options(listener: &Listener) -> Result<McpServerOptions, NodeError> {
    let entrance = entrance(listener)?;
    let has = |transport| listener.compat.contains(&transport);
    let default = if listener.is_bare() {
        McpServerOptions::bare()
    } else {
        McpServerOptions::default()
    };
    let InboundOptions { call_deadline, .. } = default.inbound;
    let call_deadline = listener
        .call_deadline_s
        .map_or(call_deadline, |s| Duration::from_secs(s.get()));
    Ok(McpServerOptions {
        inbound: InboundOptions {
            limits: limits(listener),
            call_deadline,
            ..default.inbound
        },
        access: entrance.access,
        hosts: entrance.hosts,
        origins: entrance.origins,
        compat: Compat {
            websocket: has(CompatTransport::Websocket),
            sse: has(CompatTransport::Sse),
            ..default.compat
        },
        ..default
    })
}

/// A2A, all versions.
struct A2a;

impl Served for A2a {
    type Server = A2aServer;
    const PATH: &'static str = a2a::PATH;
    const NAMED_PATH: &'static str = a2a::NAMED_PATH;

    fn can_serve(listener: &Listener) -> Result<(), NodeError> {
        let base = format!("http://{}", listener.bind);
        a2a_options(
            listener,
            base.parse()
                .map_err(|_| wrong(listener, "its address can't be in a URL"))?,
        )
        .map(drop)
    }

    fn server(place: &Place<'_>, who: Who<'_>, agent: AgentRef) -> Result<A2aServer, NodeError> {
        let listener = place.listener;
        let mut options = a2a_options(listener, base(place, who)?)?;
        options.info.name = who.name().to_owned();
        if let Some(orchestrator) = place.topology.orchestrator(who.name()) {
            options.info.name = orchestrator.name().to_owned();
        }
        options.info.description = description(place, who);
        options.one_anonymous = listener.lists_anonymous();
        if let Some(seconds) = listener.repeat_s {
            options.tasks.repeat_within = Duration::from_secs(seconds);
        }
        // Each by itself is a tenant there, which no card of its own can say.
        if let (Who::All(..), Some(address)) = (who, place.grpc) {
            options.grpc_target = Some(
                listener
                    .grpc_target
                    .clone()
                    .unwrap_or_else(|| address.to_string()),
            );
        }
        // In the node's store, as far as what is behind it may be on a disk.
        options.tasks.store = place
            .node
            .store
            .as_ref()
            .map(|_| place.node.system.store().clone());
        options.tasks.class = who.class(place.topology);
        Ok(A2aServer::new(agent, options))
    }

    fn replace(place: &Place<'_>, who: Who<'_>, server: &A2aServer, agent: AgentRef) {
        server.replace(agent);
        Self::describe(place, who, server);
    }

    fn describe(place: &Place<'_>, who: Who<'_>, server: &A2aServer) {
        server.describe(&description(place, who));
    }

    fn end(server: A2aServer) {
        server.leave();
    }
}

/// What the file says that it is for; empty where it doesn't, and for several as one.
fn description(place: &Place<'_>, who: Who<'_>) -> String {
    let id = match who {
        Who::One(id) => id,
        Who::All(_, [alone]) => alone,
        Who::All(..) => return String::new(),
    };
    place
        .topology
        .description(id)
        .unwrap_or_default()
        .to_owned()
}

/// What stands before a server's paths in its card.
fn base(place: &Place<'_>, who: Who<'_>) -> Result<Url, NodeError> {
    let public = match &place.listener.public_url {
        Some(declared) => declared.url().as_str().trim_end_matches('/').to_owned(),
        None => format!("http://{}", place.address),
    };
    let base = match who {
        Who::All(..) => public,
        Who::One(id) => format!("{public}/agents/{id}"),
    };
    base.parse()
        .map_err(|_| wrong(place.listener, "its address can't be in a URL"))
}

fn a2a_options(listener: &Listener, base: Url) -> Result<A2aOptions, NodeError> {
    let entrance = entrance(listener)?;
    let mut options = A2aOptions::at(base);
    options.access = entrance.access;
    options.hosts = entrance.hosts;
    options.origins = entrance.origins;
    options.limits = limits(listener);
    if let Some(seconds) = listener.call_deadline_s {
        options.call_deadline = Duration::from_secs(seconds.get());
    }
    let allow = listener
        .push_allow
        .iter()
        .map(|range| range.network())
        .collect();
    options.push = PushOptions {
        allow,
        ..options.push
    };
    options.signer = listener
        .signing_key
        .as_ref()
        .map(|_| signing_key(listener))
        .transpose()?;
    options.extended = listener.extended_card.unwrap_or(listener.keys.is_some());
    if let Some(version) = &listener.version {
        options.info.version.clone_from(version);
    }
    options.info.provider = listener.provider.as_ref().map(|provider| AgentProvider {
        url: provider.url.url().to_string(),
        organization: provider.organization.clone(),
    });
    options.info.documentation_url = listener
        .documentation_url
        .as_ref()
        .map(|url| url.url().to_string());
    options.info.icon_url = listener.icon_url.as_ref().map(|url| url.url().to_string());
    Ok(options)
}

fn signing_key(listener: &Listener) -> Result<SigningKey, NodeError> {
    let Some(path) = &listener.signing_key else {
        return Err(wrong(listener, "it has no signing key"));
    };
    let pem = fs::read_to_string(path).map(SecretString::from);
    let pem = pem.map_err(|error| {
        wrong(
            listener,
            &format!("failed to read {}: {error}", path.display()),
        )
    })?;
    SigningKey::from_pem(&pem)
        .map_err(|error| wrong(listener, &format!("{}: {error}", path.display())))
}

fn wrong(listener: &Listener, why: &str) -> NodeError {
    ConfigError::Listener {
        bind: listener.bind,
        why: why.to_owned(),
    }
    .into()
}
