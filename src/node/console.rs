//! Console of a node: the listener of its pages.

use std::collections::HashMap;
use std::net::SocketAddr;

use actix_web::dev::ServerHandle;
use callboard_rpc::serve::ListenOptions;
use callboard_runtime::PinMode;

use super::listener_options::{
    AccessConfig, ServedScopes, access_config, listener_error, token_verifier,
};
use super::{AgentAddress, Node, NodeError};
use crate::config::{
    ConfigError, ConsoleDeclaration, ListenerDeclaration, MailroomDeclaration, ServedProtocol,
    Topology,
};
use crate::console::{Console, ConsoleAccess, ServedListener, ServedTopology};
use crate::monitor::NodeMonitor;

/// Kind of agents that stand for A2A agents elsewhere, which are shown as upstreams.
const REMOTE_AGENT_KIND: &str = "a2a";

/// Open console of a node.
pub(super) struct NodeConsole {
    console: Console,
    monitor: NodeMonitor,
    handle: ServerHandle,
    bind: SocketAddr,
    url: String,
    /// Declaration that the console was opened with, and the keys and tokens that it asks for.
    settings: String,
}

impl NodeConsole {
    /// Opens the console that `topology` declares, at `bind` if that is set; with `bind` one with default settings is
    /// opened if none is declared. Returns `None` if there is none to open. The node's agents and listeners run.
    ///
    /// # Errors
    /// [`NodeError`] if anybody could use it from beyond this machine, or its address, keys or certificate can't be
    /// used.
    pub(super) fn open(
        node: &Node,
        topology: &Topology,
        bind: Option<SocketAddr>,
    ) -> Result<Option<Self>, NodeError> {
        let declared: Option<&ConsoleDeclaration> = topology.section();
        let Some(bind) = bind.or(declared.map(|declared| declared.bind)) else {
            return Ok(None);
        };
        let declared = declared.cloned().unwrap_or_default();
        let listener = declared.listener(bind, topology.listeners.iter());
        let listener = listener.map_err(|why| ConfigError::Listener {
            bind,
            why: why.to_owned(),
        })?;
        Node::can_serve_listener(&listener)?;
        let tokens = token_verifier(&listener, &node.issuers, ServedScopes::default())?;
        let AccessConfig {
            access,
            hosts,
            origins,
        } = access_config(&listener, tokens.as_ref())?;
        let options = ListenOptions {
            workers: 1,
            // The node's `drain_timeout_s` is for calls of its clients.
            drain_timeout: ListenOptions::default().drain_timeout,
            ..node.listen_options(topology, &listener, tokens.as_ref())?
        };
        let socket = node.bind_socket(bind)?;
        let address = socket.local_addr()?;
        let Some(monitoring) = &node.monitoring else {
            return Err(listener_error(&listener, "the node has no monitor"));
        };
        let monitor = monitoring.monitor().clone();
        let shown_agents = monitoring.shown_agents();
        let is_tls = listener.tls.is_some();
        let access = ConsoleAccess::new(access, hosts, origins, is_tls, address.port());
        let console = Console::new(
            monitor.clone(),
            access,
            ServedTopology::default(),
            shown_agents.clone(),
            node.shutdown_token.clone(),
        );
        let serving = console.serve(socket, &options)?;
        let handle = serving.server.handle();
        actix_web::rt::spawn(serving.server);
        let has_people = declared.answers && listener.requires_credential();
        if has_people {
            node.system.waiting_questions().open(shown_agents);
        }
        let open = Self {
            console,
            monitor,
            handle,
            bind,
            url: listener.base_url(address),
            settings: settings(topology, bind),
        };
        open.show(node, topology);
        Ok(Some(open))
    }

    /// Returns the URL of the console, without a path.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Shows a changed topology. The console stays as it was opened: other settings of its own are reported as a
    /// warning, and need a restart.
    pub(super) fn update(&self, node: &Node, topology: &Topology) {
        self.show(node, topology);
        if settings(topology, self.bind) != self.settings {
            tracing::warn!(
                "[console], or the `keys` or `auth` that it asks for, has changed: restart the node for it"
            );
        }
    }

    /// Reports as a warning that a changed topology declares a console that the node was started without.
    pub(super) fn warn_if_added(topology: &Topology) {
        let declared: Option<&ConsoleDeclaration> = topology.section();
        if declared.is_some() {
            tracing::warn!(
                "the node was started without [console]: restart it to open the console"
            );
        }
    }

    fn show(&self, node: &Node, topology: &Topology) {
        let served = served_topology(node, topology);
        let mut kinds: HashMap<String, String> = topology
            .agents_and_upstreams()
            .map(|agent| (agent.id().to_owned(), agent.kind().to_owned()))
            .collect();
        let servers = topology.servers.iter();
        kinds.extend(servers.map(|server| (server.id.clone(), "server".to_owned())));
        self.monitor.set_kinds(kinds);
        self.monitor.set_upstreams(served.upstreams.clone());
        self.console.set_topology(served);
    }

    /// Ends the calls that were begun at the console, and closes it after its running requests.
    pub(super) async fn close(self) {
        self.console.cancel_runs();
        self.handle.stop(true).await;
    }
}

/// Returns the settings of the console of `topology` at `bind` as a text, to find changes that need a restart.
fn settings(topology: &Topology, bind: SocketAddr) -> String {
    let declared: Option<&ConsoleDeclaration> = topology.section();
    // `None` if the section is missing, also where the command line opens the console.
    let declared_bind = declared.map(|declared| declared.bind);
    let declared = declared.cloned().unwrap_or_default();
    let listener = declared.listener(bind, topology.listeners.iter());
    format!("{listener:?} {declared_bind:?} {}", declared.answers)
}

/// Returns what the console shows of a topology and of the node's open listeners.
fn served_topology(node: &Node, topology: &Topology) -> ServedTopology {
    let (remote, agents): (Vec<_>, Vec<_>) = topology
        .agents
        .iter()
        .map(|agent| (agent.id().to_owned(), agent.kind().to_owned()))
        .partition(|(_, kind)| kind == REMOTE_AGENT_KIND);
    let upstreams = topology.upstreams.iter().map(|upstream| &upstream.id);
    let remote = remote.into_iter().map(|(id, _)| id);
    let pinned = topology.upstreams.iter();
    let pinned = pinned.filter(|upstream| upstream.pin != PinMode::Off);
    let mailrooms = topology.agents_of_kind::<MailroomDeclaration>();
    let callable = topology.servable_ids().into_iter().map(str::to_owned);
    let servers = topology.servers.iter().map(|server| server.id.clone());
    let listeners = node.listeners.iter().zip(&topology.listeners);
    let listeners = listeners
        .filter(|(open, listener)| open.bind == listener.bind)
        .filter_map(|(open, listener)| served_listener(open.addresses(), listener));
    ServedTopology {
        node: topology.name.clone(),
        agents,
        upstreams: upstreams.cloned().chain(remote).collect(),
        pinned: pinned.map(|upstream| upstream.id.clone()).collect(),
        mailrooms: mailrooms.map(|room| room.id.clone()).collect(),
        callable: callable.chain(servers).collect(),
        listeners: listeners.collect(),
    }
}

fn served_listener(
    addresses: &[AgentAddress],
    listener: &ListenerDeclaration,
) -> Option<ServedListener> {
    let protocol = match listener.served_protocol() {
        ServedProtocol::Mcp => "mcp",
        ServedProtocol::Bare => "bare",
        ServedProtocol::A2a => "a2a",
        ServedProtocol::Mail => "mail",
    };
    let http = addresses.iter().filter(|to| !to.url.starts_with("grpc:"));
    let agents: Vec<_> = http.map(|to| (to.agent.clone(), to.url.clone())).collect();
    let url = agents.first().map(|(_, url)| url.clone())?;
    Some(ServedListener {
        url,
        protocol: protocol.to_owned(),
        needs_credential: listener.requires_credential(),
        agents,
    })
}
