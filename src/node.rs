//! A node: the agents and listeners of a topology, running in this process.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use actix_web::dev::ServerHandle;
use callboard_agents::clinic::{Clinic, ClinicConfig, ClinicError};
use callboard_mcp::bare::{self, BareServerOptions, ListenOptions, ServeError};
use callboard_runtime::{NameTaken, System};

use crate::config::{AgentDeclaration, ConfigError, Listener, Topology, Trust};

/// How long a node may take to finish what it began.
pub const SHUTDOWN_DEFAULT: Duration = Duration::from_secs(5);

/// What runs.
pub struct Node {
    system: System,
    listeners: Vec<(String, SocketAddr)>,
    servers: Vec<ServerHandle>,
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
            Self::Config(_) | Self::Serve(ServeError::OperatorBeyondLoopback { .. }) => true,
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
        let mut node = Self { system: System::here(), listeners: Vec::new(), servers: Vec::new() };
        match node.start_all(topology, state, free_ports).await {
            Ok(()) => Ok(node),
            Err(error) => {
                node.shutdown().await;
                Err(error)
            }
        }
    }

    async fn start_all(&mut self, topology: &Topology, state: &Path, free_ports: bool) -> Result<(), NodeError> {
        for AgentDeclaration::Clinic(clinic) in &topology.agents {
            let config = ClinicConfig { database: state.join(&clinic.database), ..clinic.clone() };
            let opened = Clinic::open(config).await;
            let clinic_id = clinic.id.as_str();
            let clinic = opened.map_err(|source| NodeError::Clinic { id: clinic_id.to_owned(), source })?;
            let agent = self.system.prepare_with(move || clinic.clone()).label(clinic_id).spawn();
            self.system.directory().register(clinic_id, &agent)?;
        }
        topology.listeners.iter().try_for_each(|listener| self.listen(listener, free_ports))
    }

    fn listen(&mut self, listener: &Listener, free_ports: bool) -> Result<(), NodeError> {
        let mut bind = listener.bind;
        if free_ports {
            bind.set_port(0);
        }
        let no_agent = || ConfigError::NoSuchAgent { bind, agent: listener.agent.clone() };
        let agent = self.system.directory().get(&listener.agent).ok_or_else(no_agent)?;
        let socket = TcpListener::bind(bind).map_err(|source| NodeError::Bind { bind, source })?;
        let trust = match listener.trust {
            Trust::Anonymous => callboard_rpc::Trust::Anonymous,
            Trust::LoopbackOperator => callboard_rpc::Trust::LoopbackOperator,
        };
        let options = BareServerOptions { trust, ..BareServerOptions::default() };
        let serving = bare::serve(socket, agent, options, &ListenOptions::default())?;
        self.listeners.push((listener.agent.clone(), serving.address));
        self.servers.push(serving.server.handle());
        actix_web::rt::spawn(serving.server);
        Ok(())
    }

    /// The agents that listen, and where.
    pub fn listeners(&self) -> &[(String, SocketAddr)] {
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
