//! Sockets of a node and the MCP, A2A and mail servers on them.

use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::ServerHandle;
use actix_web::web::ServiceConfig;
use callboard_a2a::inbound as a2a;

use callboard_mail::inbound::{MailServer, MailServerOptions};
use callboard_mcp::inbound as mcp;
use callboard_mcp::inbound::{
    self, CompatOptions, InboundOptions, McpServer, McpServerOptions, McpTaskStore,
};
use callboard_rpc::TokenVerifier;
use callboard_rpc::serve::tls::ListenerTls;
use callboard_rpc::serve::{BoundServer, ListenOptions, ServerRegistry};
use callboard_runtime::AgentRef;
use futures::future::join_all;

use super::a2a_server::A2aProtocol;
use super::grpc::GrpcListener;
use super::listener_options::{
    AccessConfig, ServedScopes, access_config, listener_error, request_limits, token_verifier,
};
use super::listener_servers::{
    ListenerContext, ListenerServers, ProtocolServer, RetiredServers, ServedAgents,
};
use super::{AgentAddress, Node, NodeError};
use crate::config::{
    CompatTransport, ConfigError, ListenerDeclaration, ListenerTlsDeclaration, McpDescription,
    ServedProtocol, Topology, UNAUTHENTICATED_MESSAGE,
};

/// Maximum number of threads that serve connections of one listener.
const LISTENER_WORKERS_MAX: usize = 4;

/// Bound sockets of a listener without a server.
pub(super) struct ListenerSockets {
    http: TcpListener,
    grpc: Option<TcpListener>,
}

/// An open listener.
pub(super) struct OpenListener {
    /// Declared address.
    pub(super) bind: SocketAddr,
    fingerprint: u64,
    /// The socket, so that another server can take it over.
    socket: TcpListener,
    handle: ServerHandle,
    server: ServerKind,
    /// gRPC server beside A2A over HTTP.
    grpc: Option<GrpcListener>,
    /// Verifier of its access tokens, for servers that are created later; `None` if it accepts none.
    tokens: Option<Arc<TokenVerifier>>,
    addresses: Vec<AgentAddress>,
    /// Scopes that its agents need, as clients are told.
    scopes: ServedScopes,
    /// Descriptions of the MCP servers: that of all agents, and that of each.
    descriptions: Vec<McpDescription>,
    /// URL of its address, without a path.
    base_url: String,
    /// Declared public URL.
    public_url: Option<String>,
}

enum ServerKind {
    /// The bare dialect of MCP.
    Bare(McpServer),
    Mcp(ListenerServers<McpProtocol>),
    A2a(ListenerServers<A2aProtocol>),
    Mail(MailServer),
}

impl OpenListener {
    pub(super) fn addresses(&self) -> &[AgentAddress] {
        &self.addresses
    }

    /// Returns the A2A URL of the agent `id`, the public one if it is declared, and whether the
    /// listener is bound to a loopback address. `None` if the listener doesn't serve the agent over
    /// A2A.
    pub(super) fn a2a_address_of(&self, id: &str) -> Option<(String, bool)> {
        let ServerKind::A2a(_) = self.server else {
            return None;
        };
        let address = self.socket.local_addr().ok()?;
        let listening = self
            .addresses
            .iter()
            .find(|listening| listening.agent == id)?;
        let url = match &self.public_url {
            Some(public) => listening.url.replacen(&self.base_url, public, 1),
            None => listening.url.clone(),
        };
        Some((url, address.ip().is_loopback()))
    }

    /// Stops accepting connections. The sockets stay open, and another server accepts on them.
    pub(super) async fn stop_accepting(&self) {
        if let Some(grpc) = &self.grpc {
            grpc.stop_accepting();
        }
        self.handle.pause().await;
    }

    /// Closes the listener after `grace`. An immediate close would drop accepted connections whose
    /// request hasn't been read.
    pub(super) async fn close_after(self, grace: impl Future<Output = ()>) {
        grace.await;
        self.close().await;
    }

    /// Stops accepting connections, and returns when running requests have ended or the drain time
    /// is over.
    pub(super) async fn close(self) {
        let Self {
            socket,
            handle,
            server: behind,
            grpc,
            ..
        } = self;
        drop(socket);
        // Streams that no request keeps open don't end by themselves.
        match &behind {
            ServerKind::Mail(server) => server.stop().await,
            ServerKind::Mcp(front) => {
                let servers = front.servers();
                join_all(servers.iter().map(McpServer::stop)).await;
            }
            ServerKind::A2a(front) => front
                .servers()
                .iter()
                .for_each(a2a::A2aServer::end_subscriptions),
            ServerKind::Bare(_) => {}
        }
        let grpc = async {
            if let Some(grpc) = grpc {
                grpc.close().await;
            }
        };
        tokio::join!(handle.stop(true), grpc);
        match behind {
            ServerKind::Bare(_) | ServerKind::Mail(_) => {}
            ServerKind::Mcp(front) => front.close(),
            ServerKind::A2a(front) => front.close(),
        }
    }

    /// Returns the aggregate that was created for the listener; `None` if a single agent stands for
    /// itself, and for the bare dialect and mail.
    pub(super) fn bundle(&self) -> Option<AgentRef> {
        match &self.server {
            ServerKind::Bare(_) | ServerKind::Mail(_) => None,
            ServerKind::Mcp(front) => front.bundle(),
            ServerKind::A2a(front) => front.bundle(),
        }
    }

    /// Returns whether the listener was opened with the settings now declared at index `at` (address
    /// and fingerprint). The agents that it serves aren't compared.
    pub(super) fn matches_declaration(&self, topology: &Topology, at: usize) -> bool {
        let declared = topology
            .listeners
            .get(at)
            .zip(topology.fingerprints.listeners.get(at));
        declared.is_some_and(|(listener, print)| {
            listener.bind == self.bind && *print == self.fingerprint
        })
    }
}

impl Node {
    /// Returns a listener's options, with one thread per core, at most [`LISTENER_WORKERS_MAX`]:
    /// the accepting thread handles a call up to the request to an upstream. Reads the certificate
    /// files.
    pub(super) fn listen_options(
        &self,
        topology: &Topology,
        listener: &ListenerDeclaration,
        tokens: Option<&Arc<TokenVerifier>>,
    ) -> Result<ListenOptions, NodeError> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let tls = listener
            .tls
            .as_ref()
            .map(|tls| self.listener_tls(listener, tls))
            .transpose()?;
        Ok(ListenOptions {
            tls,
            drain_timeout: topology.drain_timeout,
            trusted_proxies: listener
                .trusted_proxies
                .iter()
                .map(|range| range.network())
                .collect(),
            proxy_protocol: listener.proxy_protocol,
            workers: cores.min(LISTENER_WORKERS_MAX),
            address_connections_max: listener.address_connections_max.map(NonZeroUsize::get),
            auth_failures: self.auth_failures.clone(),
            buffers: self.buffers.clone(),
            token_resource: tokens.map(|tokens| Arc::new(tokens.resource().clone())),
            ..ListenOptions::default()
        })
    }

    #[cfg(feature = "acme")]
    fn listener_tls(
        &self,
        listener: &ListenerDeclaration,
        tls: &ListenerTlsDeclaration,
    ) -> Result<ListenerTls, NodeError> {
        Ok(match &tls.acme {
            None => ListenerTls::open(tls.files())?,
            Some(acme) => {
                let settings = acme
                    .settings()
                    .map_err(|why| listener_error(listener, &why))?;
                ListenerTls::open_acme(&settings, &self.certificates)?
            }
        })
    }

    #[cfg(not(feature = "acme"))]
    fn listener_tls(
        &self,
        _: &ListenerDeclaration,
        tls: &ListenerTlsDeclaration,
    ) -> Result<ListenerTls, NodeError> {
        Ok(ListenerTls::open(tls.files())?)
    }

    /// Opens the listener declared at index `at`.
    pub(super) fn open_listener(
        &self,
        topology: &Topology,
        at: usize,
    ) -> Result<OpenListener, NodeError> {
        let listener = listener_at(topology, at)?;
        Self::can_serve_listener(listener)?;
        self.open_on_sockets(self.bind_sockets(listener)?, topology, at)
    }

    /// Binds new sockets.
    pub(super) fn bind_sockets(
        &self,
        listener: &ListenerDeclaration,
    ) -> Result<ListenerSockets, NodeError> {
        let grpc = listener
            .grpc_bind
            .map(|bind| self.bind_socket(bind))
            .transpose()?;
        Ok(ListenerSockets {
            http: self.bind_socket(listener.bind)?,
            grpc,
        })
    }

    /// Returns the sockets of the listener open at this address. A gRPC socket with another address
    /// is bound anew.
    pub(super) fn reuse_sockets(
        &self,
        open: &OpenListener,
        listener: &ListenerDeclaration,
    ) -> Result<ListenerSockets, NodeError> {
        let grpc = match (listener.grpc_bind, &open.grpc) {
            (None, _) => None,
            (Some(bind), Some(grpc)) if grpc.bind == bind => Some(grpc.socket.try_clone()?),
            (Some(bind), _) => Some(self.bind_socket(bind)?),
        };
        Ok(ListenerSockets {
            http: open.socket.try_clone()?,
            grpc,
        })
    }

    pub(super) fn bind_socket(&self, mut bind: SocketAddr) -> Result<TcpListener, NodeError> {
        if self.free_ports {
            bind.set_port(0);
        }
        TcpListener::bind(bind).map_err(|source| NodeError::Bind { bind, source })
    }

    /// Checks settings that can be validated before the listener is opened.
    pub(super) fn can_serve_listener(listener: &ListenerDeclaration) -> Result<(), NodeError> {
        if listener.lacks_authentication() {
            return Err(listener_error(listener, UNAUTHENTICATED_MESSAGE));
        }
        if let Some(tls) = &listener.tls
            && tls.acme.is_none()
        {
            tls.files().check()?;
        }
        match listener.served_protocol() {
            ServedProtocol::A2a => A2aProtocol::validate(listener),
            ServedProtocol::Mcp | ServedProtocol::Bare => McpProtocol::validate(listener),
            ServedProtocol::Mail => access_config(listener, None).map(drop),
        }
    }

    /// Opens the listener declared at index `at` on bound sockets.
    pub(super) fn open_on_sockets(
        &self,
        sockets: ListenerSockets,
        topology: &Topology,
        at: usize,
    ) -> Result<OpenListener, NodeError> {
        let print = topology
            .fingerprints
            .listeners
            .get(at)
            .copied()
            .unwrap_or_default();
        self.open_declared(sockets, topology, listener_at(topology, at)?, print)
    }

    fn open_declared(
        &self,
        sockets: ListenerSockets,
        topology: &Topology,
        listener: &ListenerDeclaration,
        print: u64,
    ) -> Result<OpenListener, NodeError> {
        let ListenerSockets { http: socket, grpc } = sockets;
        let kept = socket.try_clone()?;
        let scopes = ServedScopes::of(topology, listener);
        let tokens = token_verifier(listener, &self.issuers, scopes.clone())?;
        let options = self.listen_options(topology, listener, tokens.as_ref())?;
        let at_grpc = grpc.as_ref().map(TcpListener::local_addr).transpose()?;
        let place = ListenerContext {
            node: self,
            listener,
            topology,
            address: socket.local_addr()?,
            grpc: at_grpc,
            tokens: tokens.as_ref(),
        };
        let (serving, behind) = match listener.served_protocol() {
            ServedProtocol::Bare => self.serve_bare(socket, listener, &options)?,
            ServedProtocol::Mail => self.serve_mail(socket, &place, &options)?,
            ServedProtocol::Mcp => {
                let front = ListenerServers::<McpProtocol>::open(&place)?;
                let (all, named) = front.clone_servers();
                (
                    inbound::serve_named(socket, vec![all], named, &options)?,
                    ServerKind::Mcp(front),
                )
            }
            ServedProtocol::A2a => {
                let front = ListenerServers::<A2aProtocol>::open(&place)?;
                let (all, named) = front.clone_servers();
                let inboxes = self.agents.inboxes().clone();
                let more = move |config: &mut ServiceConfig| inboxes.configure(config);
                (
                    a2a::serve_with(socket, all, named, &options, more)?,
                    ServerKind::A2a(front),
                )
            }
        };
        let grpc = match (&behind, listener.grpc_bind.zip(grpc)) {
            (ServerKind::A2a(front), Some((bind, socket))) => Some(GrpcListener::open(
                bind,
                socket,
                front.clone_servers(),
                &options,
            )?),
            _ => None,
        };
        let addresses = server_addresses(&behind, serving.address, grpc.as_ref(), listener);
        let handle = serving.server.handle();
        actix_web::rt::spawn(serving.server);
        let public = listener
            .public_url
            .as_ref()
            .map(|url| url.url().as_str().trim_end_matches('/').to_owned());
        Ok(OpenListener {
            bind: listener.bind,
            fingerprint: print,
            socket: kept,
            handle,
            server: behind,
            grpc,
            tokens,
            addresses,
            scopes,
            base_url: listener.base_url(serving.address),
            descriptions: mcp_descriptions(topology, listener),
            public_url: public,
        })
    }

    /// Opens an A2A listener at `bind` for the agent `id` only. Its other keys are those of the
    /// topology's first A2A listener, or the defaults. With `open`, clients without a credential are
    /// served at an address that isn't loopback too, unless the listener has keys.
    ///
    /// # Errors
    /// See [`NodeError`]. Open listeners are unaffected.
    pub async fn listen_a2a(
        &mut self,
        topology: &Topology,
        id: &str,
        bind: SocketAddr,
        open: bool,
    ) -> Result<AgentAddress, NodeError> {
        let mut listener = topology.a2a_listener(id, bind);
        listener.open |= open;
        Self::can_serve_listener(&listener)?;
        let open = self.open_declared(self.bind_sockets(&listener)?, topology, &listener, 0)?;
        let listening = open.addresses().first().cloned();
        self.listeners.push(open);
        self.publish_addresses(topology);
        listening.ok_or_else(|| ConfigError::unknown_agent(id, topology.servable_ids()).into())
    }

    /// Closes all listeners after their running requests, and tells the orchestrators of `topology`
    /// that they have no address. Returns whether any listener was open.
    pub async fn stop_listening(&mut self, topology: &Topology) -> bool {
        let open = std::mem::take(&mut self.listeners);
        let was_open = !open.is_empty();
        self.publish_addresses(topology);
        join_all(open.into_iter().map(OpenListener::close)).await;
        was_open
    }

    /// Returns the agent that a listener of mail or the bare dialect names (`agent`).
    ///
    /// # Errors
    /// [`ConfigError::UnknownAgent`] if no such agent runs.
    fn single_agent(&self, listener: &ListenerDeclaration) -> Result<AgentRef, NodeError> {
        let id = listener.agent.as_deref().unwrap_or_default();
        let agent = self.system.directory().get(id);
        agent.ok_or_else(|| ConfigError::unknown_agent(id, []).into())
    }

    fn serve_mail(
        &self,
        socket: TcpListener,
        place: &ListenerContext<'_>,
        options: &ListenOptions,
    ) -> Result<(BoundServer, ServerKind), NodeError> {
        let server = MailServer::new(
            self.single_agent(place.listener)?,
            mail_options(place.listener, place.tokens)?,
        );
        Ok((
            callboard_mail::inbound::serve(socket, server.clone(), options)?,
            ServerKind::Mail(server),
        ))
    }

    fn serve_bare(
        &self,
        socket: TcpListener,
        listener: &ListenerDeclaration,
        options: &ListenOptions,
    ) -> Result<(BoundServer, ServerKind), NodeError> {
        // The bare dialect has no credentials.
        let server = McpServer::new(self.single_agent(listener)?, mcp_options(listener, None)?);
        Ok((
            inbound::serve_named(
                socket,
                vec![server.clone()],
                ServerRegistry::default(),
                options,
            )?,
            ServerKind::Bare(server),
        ))
    }

    /// Whether the listener's servers can't be changed to the listener declared at index `at` and
    /// must be opened anew: an agent has a stricter data class, its agents need other scopes, or the
    /// description of an MCP server has changed.
    pub(super) fn needs_restart(
        &self,
        open: &OpenListener,
        topology: &Topology,
        at: usize,
    ) -> bool {
        let Some(listener) = topology.listeners.get(at) else {
            return false;
        };
        if open.scopes != ServedScopes::of(topology, listener) {
            return true;
        }
        match &open.server {
            ServerKind::Mcp(front) => {
                front.has_stricter_class(topology, listener)
                    || open.descriptions != mcp_descriptions(topology, listener)
            }
            ServerKind::A2a(front) => front.has_stricter_class(topology, listener),
            ServerKind::Bare(_) | ServerKind::Mail(_) => false,
        }
    }

    /// Changes the agents behind an open listener to those that index `at` of the topology
    /// declares. Replaced aggregates, and servers of agents that are gone, are added to `left`.
    pub(super) fn update_listener(
        &self,
        open: &mut OpenListener,
        topology: &Topology,
        at: usize,
        left: &mut RetiredServers,
    ) -> Result<(), NodeError> {
        let listener = listener_at(topology, at)?;
        let address = open.socket.local_addr()?;
        let at_grpc = open.grpc.as_ref().map(|grpc| grpc.address);
        let place = ListenerContext {
            node: self,
            listener,
            topology,
            address,
            grpc: at_grpc,
            tokens: open.tokens.as_ref(),
        };
        match &mut open.server {
            ServerKind::Bare(server) => server.replace(self.single_agent(listener)?),
            ServerKind::Mcp(front) => front.update(&place, left)?,
            ServerKind::A2a(front) => front.update(&place, left)?,
            ServerKind::Mail(server) => server.replace_agent(self.single_agent(listener)?),
        }
        open.addresses = server_addresses(&open.server, address, open.grpc.as_ref(), listener);
        Ok(())
    }
}

/// Returns the declared descriptions of the MCP servers of a listener: that of all agents, and that
/// of each.
fn mcp_descriptions(topology: &Topology, listener: &ListenerDeclaration) -> Vec<McpDescription> {
    let ids = topology.served_ids(listener);
    let all = topology.mcp_description_at(Some(listener), &ids);
    let each = ids
        .iter()
        .map(|id| topology.mcp_description_at(None, std::slice::from_ref(id)));
    std::iter::once(all).chain(each).collect()
}

pub(super) fn listener_at(
    topology: &Topology,
    at: usize,
) -> Result<&ListenerDeclaration, NodeError> {
    topology
        .listeners
        .get(at)
        .ok_or_else(|| ConfigError::NoAgents.into())
}

fn server_addresses(
    behind: &ServerKind,
    address: SocketAddr,
    grpc: Option<&GrpcListener>,
    listener: &ListenerDeclaration,
) -> Vec<AgentAddress> {
    let base_url = listener.base_url(address);
    let alone = |path: &str| {
        let agent = listener.agent.clone().unwrap_or_default();
        vec![AgentAddress {
            agent,
            url: format!("{base_url}{path}"),
        }]
    };
    let mut all = match behind {
        ServerKind::Bare(_) => alone(inbound::PATH_DEFAULT),
        ServerKind::Mail(_) => alone(""),
        ServerKind::Mcp(front) => front.addresses(&base_url),
        ServerKind::A2a(front) => front.addresses(&base_url),
    };
    let who = all
        .first()
        .map(|first| first.agent.clone())
        .unwrap_or_default();
    all.extend(grpc.map(|grpc| AgentAddress {
        agent: who,
        url: format!("grpc://{}", grpc.address),
    }));
    all
}

/// Returns the server options of a mail listener.
fn mail_options(
    listener: &ListenerDeclaration,
    tokens: Option<&Arc<TokenVerifier>>,
) -> Result<MailServerOptions, NodeError> {
    let AccessConfig {
        access,
        hosts,
        origins,
    } = access_config(listener, tokens)?;
    let mut options = MailServerOptions {
        access,
        hosts,
        origins,
        principal_share_percent: listener.principal_share(),
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
struct McpProtocol;

impl ProtocolServer for McpProtocol {
    type Server = McpServer;
    const PATH: &'static str = mcp::PATH_DEFAULT;
    const NAMED_PATH: &'static str = mcp::NAMED_PATH;

    fn validate(listener: &ListenerDeclaration) -> Result<(), NodeError> {
        mcp_options(listener, None).map(drop)
    }

    fn create(
        place: &ListenerContext<'_>,
        who: ServedAgents<'_>,
        agent: AgentRef,
    ) -> Result<McpServer, NodeError> {
        let options = mcp_options(place.listener, place.tokens)?;
        let at = match who {
            ServedAgents::All(..) => Some(place.listener),
            ServedAgents::One(_) => None,
        };
        let declared = place.topology.mcp_description_at(at, who.ids());
        let info = server_description(who.name(), declared);
        // In the node's store, unless the data class forbids writing to disk.
        let store = place
            .node
            .store
            .as_ref()
            .map(|_| McpTaskStore::from(place.node.system.store()));
        let tasks = mcp::McpTaskOptions {
            store,
            class: who.data_class(place.topology),
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
                agent_id_must_match: claims_must_match,
                ..options
            },
        ))
    }

    fn replace_agent(
        _: &ListenerContext<'_>,
        _: ServedAgents<'_>,
        server: &McpServer,
        agent: AgentRef,
    ) {
        server.replace(agent);
    }

    /// MCP servers have no description.
    fn update_description(_: &ListenerContext<'_>, _: ServedAgents<'_>, _: &McpServer) {}

    fn close(server: McpServer) {
        // Its sessions have been answered.
        drop(server);
    }
}

/// Returns the description of an MCP server: its name unless it reports one of its own, and what is
/// declared.
pub(crate) fn server_description(name: &str, declared: McpDescription) -> mcp::ServerDescription {
    let McpDescription {
        name: declared_name,
        version,
        instructions,
    } = declared;
    mcp::ServerDescription {
        name: name.to_owned(),
        declared: mcp::DeclaredDescription {
            name: declared_name,
            version,
            instructions,
        },
        ..mcp::ServerDescription::default()
    }
}

fn mcp_options(
    listener: &ListenerDeclaration,
    tokens: Option<&Arc<TokenVerifier>>,
) -> Result<McpServerOptions, NodeError> {
    let entrance = access_config(listener, tokens)?;
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
            limits: request_limits(listener),
            call_deadline,
            principal_share_percent: listener.principal_share(),
            ..default.inbound
        },
        access: entrance.access,
        hosts: entrance.hosts,
        origins: entrance.origins,
        compat: CompatOptions {
            websocket: has(CompatTransport::Websocket),
            sse: has(CompatTransport::Sse),
            ..default.compat
        },
        ..default
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Goal: calls have the time that the file declares when a listener closes. Method: the options of a listener, without the
    /// key and with it.
    #[test]
    fn listeners_drain_as_declared() {
        actix_web::rt::System::new().block_on(async {
            for (key, seconds) in [("", 5), ("drain_timeout_s = 60\n", 60)] {
                let text = format!(
                    "[node]\nname = \"n\"\n{key}[[agent]]\nkind = \"model\"\nid = \"echo\"\nprovider = \"echo\"\n\
                     [[listener]]\nprotocol = \"a2a\"\nbind = \"127.0.0.1:0\"\nagent = \"echo\"\n"
                );
                let topology = Topology::parse(&text, false, Path::new("")).unwrap();
                let node = Node::start_agents(&topology, Path::new("")).await.unwrap();
                let options = node.listen_options(&topology, &topology.listeners[0], None);
                assert_eq!(
                    options.unwrap().drain_timeout,
                    Duration::from_secs(seconds)
                );
                node.shutdown().await;
            }
        });
    }
}
