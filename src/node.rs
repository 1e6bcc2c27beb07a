//! A node: the agents and listeners of a topology, running in this process.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use actix_web::dev::ServerHandle;
use callboard_agents::bundle::{Bundle, BundleError};
use callboard_agents::clinic::{Clinic, ClinicConfig, ClinicError};
use callboard_mcp::bare::{self, BareServerOptions};
use callboard_mcp::inbound::{
    self, Compat, InboundOptions, Info, ListenOptions, McpServer, McpServerOptions, PATH_DEFAULT, ServeError, Serving,
};
use callboard_rpc::{Access, AllowedHosts, AllowedOrigins, KeyError, KeyRing};
use callboard_runtime::{AgentRef, NameTaken, System};

use crate::config::{AgentDeclaration, CompatTransport, ConfigError, Dialect, Listener, Topology, Trust};

/// How long a node may take to finish what it began.
pub const SHUTDOWN_DEFAULT: Duration = Duration::from_secs(5);

/// What runs.
pub struct Node {
    system: System,
    listeners: Vec<Listening>,
    servers: Vec<ServerHandle>,
}

/// Where an agent can be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listening {
    /// The agent's id, or the node's name where several are served as one.
    pub agent: String,
    /// Its address.
    pub url: String,
}

/// Why a node doesn't start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// Correct the topology file.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// See what the clinic says of its database or seed.
    #[error("failed to start {id}: {source}")]
    Clinic {
        /// Whose.
        id: String,
        /// Why.
        source: ClinicError,
    },
    /// Bind another address, or ask who has that one.
    #[error("failed to listen on {bind}: {source}")]
    Bind {
        /// Where.
        bind: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// Correct the listener.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// Make a key (`callboard keys add`), or mend the key file.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// Rename an agent, or serve fewer as one.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// Rename an agent.
    #[error(transparent)]
    Name(#[from] NameTaken),
    /// Name the file of a node that listens; a host's file is for `callboard ask --topology`.
    #[error("{path} declares no listener: there is nothing to serve")]
    NothingToServe {
        /// The file.
        path: PathBuf,
    },
    /// Name one that comes with callboard.
    #[error("no example {name}; there are {known}")]
    NoSuchExample {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// Point `TMPDIR` at a folder that can be written to.
    #[error("failed to make a folder for the example's data: {0}")]
    Scratch(#[source] io::Error),
    /// See what the system says.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl NodeError {
    /// Whether the user's command line or file is at fault.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Serve(ServeError::OperatorBeyondLoopback { .. } | ServeError::OpenBeyondLoopback { .. }) => true,
            Self::Config(_) | Self::Keys(_) | Self::Bundle(_) => true,
            Self::Name(_) | Self::NothingToServe { .. } | Self::NoSuchExample { .. } => true,
            Self::Clinic { .. } | Self::Bind { .. } | Self::Serve(_) | Self::Scratch(_) | Self::Io(_) => false,
        }
    }
}

impl Node {
    /// Starts the agents, then the listeners. Call it on an actix arbiter.
    ///
    /// # Errors
    /// See [`NodeError`]; nothing is left running.
    pub async fn start(topology: &Topology, state: &Path, free_ports: bool) -> Result<Self, NodeError> {
        let mut node = Self::start_agents(topology, state).await?;
        let listening = topology.listeners.iter().try_for_each(|listener| match listener.dialect {
            Dialect::Bare => node.listen_bare(listener, free_ports),
            Dialect::Mcp => node.listen_mcp(listener, topology, free_ports),
        });
        match listening {
            Ok(()) => Ok(node),
            Err(error) => {
                node.shutdown().await;
                Err(error)
            }
        }
    }

    /// Starts the agents and no listener. Call it on an actix arbiter.
    ///
    /// # Errors
    /// See [`NodeError`]; nothing is left running.
    pub async fn start_agents(topology: &Topology, state: &Path) -> Result<Self, NodeError> {
        let node = Self { system: System::here(), listeners: Vec::new(), servers: Vec::new() };
        for AgentDeclaration::Clinic(clinic) in &topology.agents {
            if let Err(error) = node.start_clinic(clinic, state).await {
                node.shutdown().await;
                return Err(error);
            }
        }
        Ok(node)
    }

    async fn start_clinic(&self, clinic: &ClinicConfig, state: &Path) -> Result<(), NodeError> {
        let config = ClinicConfig { database: state.join(&clinic.database), ..clinic.clone() };
        let opened = Clinic::open(config).await;
        let clinic_id = clinic.id.as_str();
        let clinic = opened.map_err(|source| NodeError::Clinic { id: clinic_id.to_owned(), source })?;
        let agent = self.system.prepare_with(move || clinic.clone()).label(clinic_id).spawn();
        Ok(self.system.directory().register(clinic_id, &agent)?)
    }

    /// One agent that stands for those of these ids: itself where it is alone.
    ///
    /// # Errors
    /// [`NodeError::Bundle`].
    pub fn as_one(&self, ids: &[&str]) -> Result<AgentRef, NodeError> {
        let found = ids.iter().filter_map(|id| Some(((*id).to_owned(), self.system.directory().get(id)?)));
        let mut members: Vec<_> = found.collect();
        match (members.len(), members.pop()) {
            (1, Some((_, agent))) => Ok(agent),
            (_, last) => {
                let bundle = Bundle::new(members.into_iter().chain(last))?;
                Ok(self.system.prepare_with(move || bundle.clone()).label("bundle").spawn())
            }
        }
    }

    fn listen_bare(&mut self, listener: &Listener, free_ports: bool) -> Result<(), NodeError> {
        let bind = listener.bind;
        let id = listener.agent.clone().unwrap_or_default();
        let agent = self.system.directory().get(&id);
        let agent = agent.ok_or_else(|| ConfigError::NoSuchAgent { bind, agent: id.clone() })?;
        let options = BareServerOptions { trust: trust(listener), ..BareServerOptions::default() };
        let serving = bare::serve(socket(listener, free_ports)?, agent, options, &ListenOptions::default())?;
        self.listeners.push(Listening { agent: id, url: format!("http://{}{}", serving.address, bare::PATH_DEFAULT) });
        self.run(serving);
        Ok(())
    }

    /// All of the listener's agents at `/mcp`, and each of them at `/agents/ID/mcp`.
    fn listen_mcp(&mut self, listener: &Listener, topology: &Topology, free_ports: bool) -> Result<(), NodeError> {
        let ids = listener.agents(&topology.agents);
        let base = server_options(listener)?;
        let server = |name: &str, path: String, agent: AgentRef| {
            let info = Info { name: name.to_owned(), ..Info::default() };
            let inbound = InboundOptions { info, ..InboundOptions::default() };
            // HTTP+SSE has addresses of its own, of which there is one on a listener.
            let compat = Compat { sse: base.compat.sse && path == PATH_DEFAULT, ..base.compat };
            McpServer::new(agent, McpServerOptions { inbound, path, compat, ..base.clone() })
        };
        let name = if let [alone] = *ids { alone } else { &*topology.name };
        let mut servers = vec![server(name, PATH_DEFAULT.to_owned(), self.as_one(&ids)?)];
        let mut paths = vec![(name, PATH_DEFAULT.to_owned())];
        for id in &ids {
            let path = format!("/agents/{id}{PATH_DEFAULT}");
            servers.push(server(id, path.clone(), self.as_one(&[id])?));
            paths.push((id, path));
        }
        let serving = inbound::serve_all(socket(listener, free_ports)?, servers, &ListenOptions::default())?;
        let address = serving.address;
        let at = |(agent, path): (&str, String)| Listening {
            agent: agent.to_owned(),
            url: format!("http://{address}{path}"),
        };
        self.listeners.extend(paths.into_iter().map(at));
        self.run(serving);
        Ok(())
    }

    fn run(&mut self, serving: Serving) {
        self.servers.push(serving.server.handle());
        actix_web::rt::spawn(serving.server);
    }

    /// What can be reached, and where.
    pub fn listeners(&self) -> &[Listening] {
        &self.listeners
    }

    /// Its agents.
    pub fn system(&self) -> &System {
        &self.system
    }

    /// Stops listening, lets agents finish, ends.
    pub async fn shutdown(self) {
        for server in &self.servers {
            server.stop(true).await;
        }
        let report = self.system.shutdown(SHUTDOWN_DEFAULT).await;
        tracing::info!(?report, "node has ended");
    }
}

fn socket(listener: &Listener, free_ports: bool) -> Result<TcpListener, NodeError> {
    let mut bind: SocketAddr = listener.bind;
    if free_ports {
        bind.set_port(0);
    }
    TcpListener::bind(bind).map_err(|source| NodeError::Bind { bind, source })
}

fn trust(listener: &Listener) -> callboard_rpc::Trust {
    match listener.trust {
        Trust::Anonymous => callboard_rpc::Trust::Anonymous,
        Trust::LoopbackOperator => callboard_rpc::Trust::LoopbackOperator,
    }
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
    Ok(McpServerOptions {
        access,
        hosts: hosts.map_err(|error| wrong(error.to_string()))?,
        origins: origins.map_err(|error| wrong(error.to_string()))?,
        compat,
        ..McpServerOptions::default()
    })
}
