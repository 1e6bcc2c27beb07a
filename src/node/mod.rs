//! Nodes: the running agents and listeners of a topology in this process.

mod a2a_server;
mod agent_set;
mod console;
mod grpc;
mod listen;
mod listener_options;
mod listener_servers;
mod monitoring;
mod policy;
mod reload;

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agent_set::AgentSet;
use callboard_gateway::aggregate::AggregateError;
use callboard_gateway::question_router::QuestionRouterError;
use callboard_mcp::inbound::ServeError;
use callboard_rpc::{AuthFailures, BufferBudget, IssuerRegistry, KeyError, TlsFileError};
use callboard_runtime::{
    AgentRef, NameTakenError, PRINCIPAL_SHARE_PERCENT_DEFAULT, Store, StoreAlreadySet, System,
    TaskRunner, TaskRunnerHandle, TaskRunnerOptions,
};
use callboard_store::{SqlStore, StoreError};
use console::NodeConsole;
use listen::OpenListener;
use monitoring::NodeMonitoring;
use policy::{CurrentQuestionRouter, DataClassRegistry, NodePolicies};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use crate::config::RunningOrchestrator;
pub(crate) use listen::server_description;
pub(crate) use reload::TopologyWatcher;
pub use reload::{RELOAD_DRAIN_MAX, RELOAD_GRACE, ReloadReport};

pub(crate) use crate::config::spawn_cloned;
use crate::config::{
    ConfigError, ConsoleDeclaration, OrchestratorDeclaration, StartError, StoreDeclaration,
    Topology,
};

/// Last line that a node prints before it serves.
pub(crate) const READY_LINE: &str = "ready";
/// First word of the line that each listener prints: `listening AGENT URL`.
pub(crate) const LISTENING_PREFIX: &str = "listening";

/// Default time for a node to finish running work at shutdown.
pub const SHUTDOWN_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);

/// Maximum number of plan steps that a node runs concurrently.
const CONCURRENT_STEPS_MAX: usize = 256;
/// Delay before the second attempt to connect to a target. It doubles up to
/// [`TARGET_RETRY_DELAY_MAX`].
const TARGET_RETRY_DELAY: Duration = Duration::from_millis(250);
/// Maximum delay between two attempts to connect to a target.
const TARGET_RETRY_DELAY_MAX: Duration = Duration::from_secs(60);

/// A running node.
pub struct Node {
    system: System,
    agents: AgentSet,
    policy: NodePolicies,
    question_router: CurrentQuestionRouter,
    listeners: Vec<OpenListener>,
    free_ports: bool,
    /// Failed authentications at all listeners, by address.
    auth_failures: Arc<AuthFailures>,
    /// Bytes that all listeners buffer for their clients.
    buffers: BufferBudget,
    /// Keys of the issuers of access tokens, shared by all listeners.
    issuers: IssuerRegistry,
    /// Certificates of ACME authorities, shared by all listeners.
    #[cfg(feature = "acme")]
    certificates: callboard_rpc::AcmeRegistry,
    /// Runner of stored tasks of orchestrators.
    runner: OptionalTaskRunner,
    /// Persistent store; `None` if the store is in memory.
    store: Option<SqlStore>,
    store_fingerprint: u64,
    /// In-memory store of tasks of A2A servers that aren't kept in `store`, for example clinical
    /// ones. All servers of an agent share it.
    a2a_memory: Store,
    /// Data classes of agents, for the audit; `None` without an audit.
    data_classes: Option<DataClassRegistry>,
    /// Reader of the node's events; `None` if nobody reads them.
    monitoring: Option<NodeMonitoring>,
    /// Open console; `None` without one.
    console: Option<NodeConsole>,
    /// Agents and servers that a reload replaced and that haven't finished.
    retiring_tasks: TaskTracker,
    /// Cancelled when the node shuts down.
    shutdown_token: CancellationToken,
}

/// Address of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentAddress {
    /// Id of the agent, or the node's name if several are served as one.
    pub agent: String,
    /// URL of the agent.
    pub url: String,
}

impl Node {
    /// Opens the store, starts the agents, then the listeners. Without `[store]` the store is a
    /// file in `state`. With `free_ports` each listener uses a free port. Must be called on an
    /// actix arbiter.
    ///
    /// # Errors
    /// See [`NodeError`]. Nothing keeps running.
    pub async fn start(
        topology: &Topology,
        state: &Path,
        free_ports: bool,
    ) -> Result<Self, NodeError> {
        Self::start_with_console(topology, state, free_ports, None).await
    }

    /// Starts a node like [`Node::start`], with its console at `console` rather than at the declared address, if that is
    /// set.
    ///
    /// # Errors
    /// See [`NodeError`]. Nothing keeps running.
    pub async fn start_with_console(
        topology: &Topology,
        state: &Path,
        free_ports: bool,
        console: Option<SocketAddr>,
    ) -> Result<Self, NodeError> {
        let has_console = console.is_some() || topology.section::<ConsoleDeclaration>().is_some();
        let mut node = Self::start_base(topology, state, DefaultStore::File, has_console).await?;
        node.free_ports = free_ports;
        for at in 0..topology.listeners.len() {
            match node.open_listener(topology, at) {
                Ok(open) => node.listeners.push(open),
                Err(error) => {
                    node.shutdown().await;
                    return Err(error);
                }
            }
        }
        match NodeConsole::open(&node, topology, console) {
            Ok(open) => node.console = open,
            Err(error) => {
                node.shutdown().await;
                return Err(error);
            }
        }
        node.publish_addresses(topology);
        node.connect_to_target(topology);
        Ok(node)
    }

    /// Starts a node like [`Node::start`], but opens no listener; see [`Node::listen_a2a`].
    ///
    /// # Errors
    /// See [`NodeError`]. Nothing keeps running.
    pub async fn start_embedded(topology: &Topology, state: &Path) -> Result<Self, NodeError> {
        Self::start_base(topology, state, DefaultStore::File, false).await
    }

    /// Starts the agents and no listener. Without `[store]` the store is in memory. Must be called
    /// on an actix arbiter.
    ///
    /// # Errors
    /// See [`NodeError`]. Nothing keeps running.
    pub async fn start_agents(topology: &Topology, state: &Path) -> Result<Self, NodeError> {
        Self::start_base(topology, state, DefaultStore::Memory, false).await
    }

    async fn start_base(
        topology: &Topology,
        state: &Path,
        undeclared: DefaultStore,
        has_console: bool,
    ) -> Result<Self, NodeError> {
        let system = System::on_current_arbiter();
        // Before any agent that writes to it.
        let store = open_store(&system, topology, state, undeclared).await?;
        // A store in memory has no audit.
        let classes = store
            .as_ref()
            .map(|_| policy::install_audit(&system, topology));
        let auth_failures = policy::auth_failures(&system, store.is_some());
        let mut policy = NodePolicies::of(&system);
        policy.update(topology);
        let answering = match CurrentQuestionRouter::of(&system, topology) {
            Ok(answering) => answering,
            Err(error) => {
                close_store(&system, store).await;
                return Err(error.into());
            }
        };
        let (retiring, ending) = (TaskTracker::new(), CancellationToken::new());
        let cast = AgentSet::new(system.clone(), state, answering.clone(), ending.clone());
        let mut node = Self {
            system,
            agents: cast,
            policy,
            question_router: answering,
            listeners: Vec::new(),
            free_ports: false,
            auth_failures,
            buffers: BufferBudget::new(policy::buffer_limits(topology)),
            issuers: IssuerRegistry::default(),
            #[cfg(feature = "acme")]
            certificates: callboard_rpc::AcmeRegistry::default(),
            runner: OptionalTaskRunner::default(),
            store,
            store_fingerprint: topology.fingerprints.store,
            a2a_memory: Store::in_memory(),
            data_classes: classes,
            monitoring: None,
            console: None,
            retiring_tasks: retiring,
            shutdown_token: ending,
        };
        match NodeMonitoring::start(&node.system, topology, has_console) {
            Ok(monitoring) => node.monitoring = monitoring,
            Err(error) => {
                node.shutdown().await;
                return Err(error);
            }
        }
        let started = match node.agents.plan(topology).await {
            Ok(planned) => node.agents.apply(planned, topology).await,
            Err(error) => Err(error),
        };
        match started {
            Ok(_) => {
                node.runner.start_if_needed(&node.system, topology);
                Ok(node)
            }
            Err(error) => {
                node.shutdown().await;
                Err(error)
            }
        }
    }

    /// Returns one agent for these ids: a single agent without a tool filter itself, otherwise an
    /// aggregate. Ids of no running agent are left out.
    ///
    /// # Errors
    /// [`NodeError::Bundle`] if names of tools collide.
    pub fn aggregate(&self, ids: &[&str]) -> Result<AgentRef, NodeError> {
        let share_percent = PRINCIPAL_SHARE_PERCENT_DEFAULT;
        let aggregate = self.agents.aggregate(ids, share_percent);
        aggregate.map(|(agent, _)| agent)
    }

    /// Returns the URL of the console; `None` without one.
    pub fn console_url(&self) -> Option<&str> {
        self.console.as_ref().map(NodeConsole::url)
    }

    /// Returns the running orchestrator with this id; `None` if there is none.
    pub fn orchestrator(&self, id: &str) -> Option<RunningOrchestrator> {
        self.agents.orchestrator(id).cloned()
    }

    /// Connects the agent of a bidirectional agent's file to its `target_url`, retrying until it
    /// answers.
    fn connect_to_target(&self, topology: &Topology) {
        let target = topology
            .mode
            .as_ref()
            .and_then(|mode| mode.target_url.clone());
        let orchestrated = self.agents.orchestrator(&topology.name);
        let (Some(target), Some(known)) = (
            target,
            orchestrated.map(|orchestrated| orchestrated.known.clone()),
        ) else {
            return;
        };
        let connecting = async move {
            let mut pause = TARGET_RETRY_DELAY;
            loop {
                match known.connect(&target).await {
                    Ok(known) => {
                        return tracing::info!(agent = known.id, "connected to the target");
                    }
                    Err(failure) => {
                        tracing::warn!(kind = %failure.kind, ?pause, "failed to connect to the target: retrying")
                    }
                }
                tokio::time::sleep(pause).await;
                pause = (2 * pause).min(TARGET_RETRY_DELAY_MAX);
            }
        };
        tokio::spawn(
            self.shutdown_token
                .clone()
                .run_until_cancelled_owned(connecting),
        );
    }

    /// Tells each orchestrator of `topology` the A2A URL at which a listener serves it now, if any.
    pub(super) fn publish_addresses(&self, topology: &Topology) {
        for OrchestratorDeclaration { id, .. } in topology.agents_of_kind() {
            let Some(orchestrated) = self.agents.orchestrator(id) else {
                continue;
            };
            let reached = self
                .listeners
                .iter()
                .find_map(|open| open.a2a_address_of(id));
            let (url, is_local) = reached.as_ref().map_or((None, false), |(url, is_local)| {
                (Some(url.as_str()), *is_local)
            });
            orchestrated.known.set_listen_address(url, is_local);
        }
    }

    /// Returns the addresses of all listeners.
    pub fn listeners(&self) -> impl Iterator<Item = &AgentAddress> {
        self.listeners.iter().flat_map(OpenListener::addresses)
    }

    /// Returns the system that runs the node's agents.
    pub fn system(&self) -> &System {
        &self.system
    }

    /// Marks the shutdown: tasks that are interrupted from now on resume after the next start. Call
    /// [`Node::shutdown`] next.
    pub(crate) fn begin_shutdown(&self) {
        self.shutdown_token.cancel();
    }

    /// Stops listening, drains the agents, ends child processes, and closes the store last.
    pub async fn shutdown(mut self) {
        self.begin_shutdown();
        self.retiring_tasks.close();
        futures::future::join_all(self.listeners.drain(..).map(OpenListener::close)).await;
        if let Some(console) = self.console.take() {
            console.close().await;
        }
        self.system.store().running_tasks.stop().await;
        self.a2a_memory.running_tasks.stop().await;
        self.runner.stop().await;
        let report = self.system.shutdown(SHUTDOWN_TIMEOUT_DEFAULT).await;
        if tokio::time::timeout(SHUTDOWN_TIMEOUT_DEFAULT, self.retiring_tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!(
                "calls of replaced agents or listeners did not end in time: they were cut off"
            );
        }
        agent_set::tear_down_agents(self.agents.take_running()).await;
        if let Some(monitoring) = self.monitoring.take() {
            monitoring.stop().await;
        }
        close_store(&self.system, self.store.take()).await;
        tracing::info!(?report, "node stopped");
    }
}

/// Task runner of the node; it runs only if there are orchestrators.
#[derive(Default)]
struct OptionalTaskRunner(Option<TaskRunnerHandle>);

impl OptionalTaskRunner {
    /// Starts the runner if there are orchestrators. The agents of its tasks must be in the
    /// directory.
    fn start_if_needed(&mut self, system: &System, topology: &Topology) {
        let has_any = topology
            .agents_of_kind::<OrchestratorDeclaration>()
            .next()
            .is_some();
        if has_any && self.0.is_none() {
            let options = TaskRunnerOptions {
                tasks_max: CONCURRENT_STEPS_MAX,
                ..TaskRunnerOptions::default()
            };
            self.0 = Some(TaskRunner::start(system, options));
        }
    }

    async fn stop(&mut self) {
        if let Some(runner) = self.0.take() {
            runner.stop().await;
        }
    }
}

/// Failure to start or change a node.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// The topology file is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An agent failed to start.
    #[error(transparent)]
    Agent(#[from] StartError),
    /// There is no orchestrator, or none with the requested id.
    #[error("there is no orchestrator{}: declare an [[agent]] of the kind \"orchestrator\"", .id.as_ref().map(|id| format!(" with the id {id}")).unwrap_or_default())]
    NoOrchestrator {
        /// The requested id; `None` for any orchestrator.
        id: Option<String>,
    },
    /// `[routing]` is invalid.
    #[error("section [routing]: {0}")]
    Routing(#[from] QuestionRouterError),
    /// An address can't be bound, for example because it is in use.
    #[error("failed to listen on {bind}: {source}")]
    Bind {
        /// The address.
        bind: SocketAddr,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A listener's server can't be created.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The key file is missing or invalid.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// A certificate or key file of a listener can't be used.
    #[error("section [listener.tls]: {0}")]
    Tls(#[from] TlsFileError),
    /// The store can't be opened.
    #[error("store: {}", error_with_sources(.0))]
    Store(#[from] StoreError),
    /// The system has a store already; use a new system.
    #[error(transparent)]
    StoreAlreadySet(#[from] StoreAlreadySet),
    /// `[store]` changed during a reload. Restart the node.
    #[error("[store] has changed: restart the node for it")]
    StoreChanged,
    /// Names of tools in an aggregate collide. Rename an agent, or serve fewer as one.
    #[error(transparent)]
    Bundle(#[from] AggregateError),
    /// An agent's name is taken.
    #[error(transparent)]
    Name(#[from] NameTakenError),
    /// The file declares no listener to serve.
    #[error("{path} declares no listener, so there is nothing to serve: add a [[listener]]")]
    NothingToServe {
        /// Path of the file.
        path: PathBuf,
    },
    /// There is no example of that name.
    #[error("no example {name}; there are {known}")]
    UnknownExample {
        /// The requested name.
        name: String,
        /// Names of all examples.
        known: String,
    },
    /// The monitor of events, or the export of traces and metrics, can't be started.
    #[error("{0}")]
    Telemetry(String),
    /// A temporary folder for an example can't be created. Set `TMPDIR` to a writable folder.
    #[error(
        "failed to create a folder for the example's data: {0}; set TMPDIR to a writable folder"
    )]
    Scratch(#[source] io::Error),
    /// Error of the operating system.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl NodeError {
    /// Whether the cause is the user's command line or file.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Serve(ServeError::UnauthenticatedListener { .. }) => true,
            Self::Config(_) | Self::Keys(_) | Self::Tls(_) | Self::Bundle(_) => true,
            Self::Agent(error) => error.is_usage(),
            Self::NoOrchestrator { .. } | Self::Routing(_) => true,
            Self::Store(error) => matches!(error, StoreError::Url(_)),
            Self::StoreChanged | Self::Telemetry(_) => true,
            Self::Name(_) | Self::NothingToServe { .. } | Self::UnknownExample { .. } => true,
            Self::Bind { .. } | Self::Serve(_) => false,
            Self::StoreAlreadySet(_) | Self::Scratch(_) | Self::Io(_) => false,
        }
    }
}

/// Maximum time to write pending audit entries at shutdown.
const AUDIT_FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Store of a node without `[store]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DefaultStore {
    /// A file in the state directory.
    File,
    /// Memory.
    Memory,
}

/// Opens the declared store, or the store `undeclared` without a `[store]`, and installs it in the
/// system. Returns `None` for a store in memory.
pub(super) async fn open_store(
    system: &System,
    topology: &Topology,
    state: &Path,
    undeclared: DefaultStore,
) -> Result<Option<SqlStore>, NodeError> {
    let declared = match (topology.section(), undeclared) {
        (Some(declared), _) => declared,
        (None, DefaultStore::File) => &StoreDeclaration::default(),
        (None, DefaultStore::Memory) => return Ok(None),
    };
    let Some(options) = declared.store_options(&topology.name, state)? else {
        return Ok(None);
    };
    let opened = SqlStore::open(&options).await?;
    if let Err(error) = system.set_store(opened.store()) {
        opened.close().await;
        return Err(error.into());
    }
    tracing::info!(
        place = options.place(),
        run = opened.run_id(),
        "opened the store"
    );
    Ok(Some(opened))
}

/// Writes pending audit entries and counts of quotas, then closes the store.
pub(super) async fn close_store(system: &System, opened: Option<SqlStore>) {
    let Some(opened) = opened else { return };
    if tokio::time::timeout(AUDIT_FLUSH_TIMEOUT, system.audit().flush())
        .await
        .is_err()
    {
        tracing::error!("failed to write the last audit entries in time: they are lost");
    }
    let kv = &system.store().kv;
    let flushed = tokio::time::timeout(AUDIT_FLUSH_TIMEOUT, system.policy().quotas().flush(kv));
    if flushed.await.is_err() {
        tracing::error!("failed to write the last counts of quotas in time: they are lost");
    }
    opened.close().await;
}

/// Formats an error with its sources: messages of the database are in the source.
pub(crate) fn error_with_sources(error: &StoreError) -> String {
    let mut said = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let words = error.to_string();
        if !said.contains(&words) {
            said.push_str(": ");
            said.push_str(&words);
        }
        source = error.source();
    }
    said
}
