//! A node: the agents and listeners of a topology, running in this process.

mod cast;
mod front;
mod grpc;
mod listen;
mod policy;
mod reload;

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use callboard_gateway::answering::AnswerError;
use callboard_gateway::bundle::BundleError;
use callboard_mcp::inbound::ServeError;
use callboard_rpc::KeyError;
use callboard_runtime::{
    AgentRef, NameTaken, RunnerHandle, RunnerOptions, StoreIsSet, System, TaskRunner,
};
use callboard_store::{SqlStore, StoreError};
use cast::Cast;
use listen::Open;
use policy::{Classes, CurrentAnswerers, Policies};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use crate::config::Orchestrated;
pub(crate) use reload::Watch;
pub use reload::{RELOAD_DRAIN_MAX, RELOAD_GRACE, Reloaded};

pub(crate) use crate::config::spawn;
use crate::config::{ConfigError, OrchestratorDeclaration, StartError, StoreDeclaration, Topology};

/// The last line before a node serves: whoever started it may go on.
pub(crate) const READY: &str = "ready";
/// The first word of the line that each listener prints: `listening AGENT URL`.
pub(crate) const LISTENING: &str = "listening";

/// How long a node may take to finish what it began.
pub const SHUTDOWN_DEFAULT: Duration = Duration::from_secs(5);

/// Steps of plans that one node works on at once.
const STEPS_AT_ONCE_MAX: usize = 256;
/// Pause before a second attempt to connect to a target; it doubles up to [`TARGET_PAUSE_MAX`]. Fixed.
const TARGET_PAUSE: Duration = Duration::from_millis(250);
/// Maximum pause between two attempts to connect to a target. Fixed.
const TARGET_PAUSE_MAX: Duration = Duration::from_secs(60);

/// What runs.
pub struct Node {
    system: System,
    cast: Cast,
    policy: Policies,
    answering: CurrentAnswerers,
    listeners: Vec<Open>,
    free_ports: bool,
    /// Works off what orchestrators plan.
    runner: Runner,
    /// What must last is kept there; `None`: in memory.
    store: Option<SqlStore>,
    /// The declaration of it.
    store_print: u64,
    /// What its audit must know of the agents.
    classes: Option<Classes>,
    /// What a reload replaced, and isn't at its end.
    retiring: TaskTracker,
    /// Fires when the node ends.
    ending: CancellationToken,
}

/// Where an agent can be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listening {
    /// The agent's id, or the node's name where several are served as one.
    pub agent: String,
    /// Its address.
    pub url: String,
}

impl Node {
    /// Opens the store (without `[store]`, a file in `state`), starts the agents, then the listeners. Call it on an actix
    /// arbiter.
    ///
    /// # Errors
    /// See [`NodeError`]; nothing is left running.
    pub async fn start(
        topology: &Topology,
        state: &Path,
        free_ports: bool,
    ) -> Result<Self, NodeError> {
        let mut node = Self::begin(topology, state, Undeclared::File).await?;
        node.free_ports = free_ports;
        for at in 0..topology.listeners.len() {
            match node.open(topology, at) {
                Ok(open) => node.listeners.push(open),
                Err(error) => {
                    node.shutdown().await;
                    return Err(error);
                }
            }
        }
        node.tell_where(topology);
        node.connect_to_target(topology);
        Ok(node)
    }

    /// The same, with every listener closed: see [`Node::listen_a2a`].
    ///
    /// # Errors
    /// See [`NodeError`]; nothing is left running.
    pub async fn start_embedded(topology: &Topology, state: &Path) -> Result<Self, NodeError> {
        Self::begin(topology, state, Undeclared::File).await
    }

    /// Starts the agents and no listener; without `[store]` nothing outlasts the node. Call it on an actix arbiter.
    ///
    /// # Errors
    /// See [`NodeError`]; nothing is left running.
    pub async fn start_agents(topology: &Topology, state: &Path) -> Result<Self, NodeError> {
        Self::begin(topology, state, Undeclared::Memory).await
    }

    async fn begin(
        topology: &Topology,
        state: &Path,
        undeclared: Undeclared,
    ) -> Result<Self, NodeError> {
        let system = System::here();
        // Before anything that writes to it.
        let store = open(&system, topology, state, undeclared).await?;
        // What is kept in memory is nobody's record.
        let classes = store.as_ref().map(|_| policy::audit(&system, topology));
        let mut policy = Policies::of(&system);
        policy.install(topology);
        let answering = match CurrentAnswerers::of(&system, topology) {
            Ok(answering) => answering,
            Err(error) => {
                close(&system, store).await;
                return Err(error.into());
            }
        };
        let (retiring, ending) = (TaskTracker::new(), CancellationToken::new());
        let cast = Cast::new(system.clone(), state, answering.clone(), ending.clone());
        let mut node = Self {
            system,
            cast,
            policy,
            answering,
            listeners: Vec::new(),
            free_ports: false,
            runner: Runner::default(),
            store,
            store_print: topology.prints.store,
            classes,
            retiring,
            ending,
        };
        let started = match node.cast.plan(topology).await {
            Ok(planned) => node.cast.apply(planned, topology).await,
            Err(error) => Err(error),
        };
        match started {
            Ok(_) => {
                node.runner.start_for(&node.system, topology);
                Ok(node)
            }
            Err(error) => {
                node.shutdown().await;
                Err(error)
            }
        }
    }

    /// One agent that stands for those of these ids: itself where it is alone.
    ///
    /// # Errors
    /// [`NodeError::Bundle`].
    pub fn as_one(&self, ids: &[&str]) -> Result<AgentRef, NodeError> {
        self.cast.as_one(ids).map(|(agent, _)| agent)
    }

    /// The orchestrator of that id, with what it works with.
    pub fn orchestrator(&self, id: &str) -> Option<Orchestrated> {
        self.cast.orchestrated(id).cloned()
    }

    /// Connects the agent of a bidirectional agent's file to the one that the file names, as soon as that answers.
    fn connect_to_target(&self, topology: &Topology) {
        let target = topology
            .mode
            .as_ref()
            .and_then(|mode| mode.target_url.clone());
        let orchestrated = self.cast.orchestrated(&topology.name);
        let (Some(target), Some(known)) = (
            target,
            orchestrated.map(|orchestrated| orchestrated.known.clone()),
        ) else {
            return;
        };
        let connecting = async move {
            let mut pause = TARGET_PAUSE;
            loop {
                match known.connect(&target).await {
                    Ok(known) => {
                        return tracing::info!(
                            agent = known.id,
                            "the agent is connected to its target"
                        );
                    }
                    Err(failure) => {
                        tracing::warn!(kind = %failure.kind, ?pause, "the target doesn't answer: tried again")
                    }
                }
                tokio::time::sleep(pause).await;
                pause = (2 * pause).min(TARGET_PAUSE_MAX);
            }
        };
        tokio::spawn(self.ending.clone().run_until_cancelled_owned(connecting));
    }

    /// Tells orchestrators where they can be reached from now on.
    pub(super) fn tell_where(&self, topology: &Topology) {
        for OrchestratorDeclaration { id, .. } in topology.agents() {
            let Some(orchestrated) = self.cast.orchestrated(id) else {
                continue;
            };
            let reached = self.listeners.iter().find_map(|open| open.reached(id));
            let (url, is_local) = reached.as_ref().map_or((None, false), |(url, is_local)| {
                (Some(url.as_str()), *is_local)
            });
            orchestrated.known.listens(url, is_local);
        }
    }

    /// What can be reached, and where.
    pub fn listeners(&self) -> impl Iterator<Item = &Listening> {
        self.listeners.iter().flat_map(Open::addresses)
    }

    /// Its agents.
    pub fn system(&self) -> &System {
        &self.system
    }

    /// What ends from here on does so because the node does: it goes on after the next start. [`Node::shutdown`] follows.
    pub(crate) fn begins_to_end(&self) {
        self.ending.cancel();
    }

    /// Stops listening, lets agents finish, ends, and lets go of the store last; children of this process end too.
    pub async fn shutdown(mut self) {
        self.begins_to_end();
        self.retiring.close();
        futures::future::join_all(self.listeners.drain(..).map(Open::close)).await;
        self.system.store().live.stop().await;
        self.runner.stop().await;
        let report = self.system.shutdown(SHUTDOWN_DEFAULT).await;
        if tokio::time::timeout(SHUTDOWN_DEFAULT, self.retiring.wait())
            .await
            .is_err()
        {
            tracing::warn!("what was replaced doesn't end in time");
        }
        cast::goodbyes(self.cast.drain()).await;
        close(&self.system, self.store.take()).await;
        tracing::info!(?report, "node has ended");
    }
}

/// The node's runner, where there are orchestrators.
#[derive(Default)]
struct Runner(Option<RunnerHandle>);

impl Runner {
    /// Starts it, once the agents whose tasks it takes can be found.
    fn start_for(&mut self, system: &System, topology: &Topology) {
        let has_any = topology
            .agents::<OrchestratorDeclaration>()
            .next()
            .is_some();
        if has_any && self.0.is_none() {
            let options = RunnerOptions {
                tasks_max: STEPS_AT_ONCE_MAX,
                ..RunnerOptions::default()
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

/// Why a node doesn't start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// Correct the topology file.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// See [`StartError`].
    #[error(transparent)]
    Agent(#[from] StartError),
    /// Declare one: `[[agent]]` of the kind `orchestrator`.
    #[error("there is no orchestrator to talk to{}", .id.as_ref().map(|id| format!(" of the id {id}")).unwrap_or_default())]
    NoOrchestrator {
        /// Which one was wanted.
        id: Option<String>,
    },
    /// Correct `[routing]`.
    #[error("routing: {0}")]
    Routing(#[from] AnswerError),
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
    /// See what the store says: correct `[store]`, or make room, or ask who has it.
    #[error("store: {}", in_full(.0))]
    Store(#[from] StoreError),
    /// Start another system: this one has kept something already.
    #[error(transparent)]
    StoreIsSet(#[from] StoreIsSet),
    /// Restart the node: a store can't be changed under what runs.
    #[error("[store] has changed: restart the node for it")]
    StoreChanged,
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
    /// Reload with SIGHUP, or see why the system can't tell of changes.
    #[error("failed to watch the topology file: {0}")]
    Watch(#[source] notify::Error),
    /// See what the system says.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl NodeError {
    /// Whether the user's command line or file is at fault.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Serve(ServeError::OpenBeyondLoopback { .. }) => true,
            Self::Config(_) | Self::Keys(_) | Self::Bundle(_) => true,
            Self::Agent(error) => error.is_usage(),
            Self::NoOrchestrator { .. } | Self::Routing(_) => true,
            Self::Store(error) => matches!(error, StoreError::Url(_)),
            Self::StoreChanged => true,
            Self::Name(_) | Self::NothingToServe { .. } | Self::NoSuchExample { .. } => true,
            Self::Bind { .. } | Self::Serve(_) => false,
            Self::StoreIsSet(_) | Self::Scratch(_) | Self::Watch(_) | Self::Io(_) => false,
        }
    }
}

/// How long what the audit has waiting may take to be kept at the end.
const AUDIT_FLUSH_MAX: Duration = Duration::from_secs(5);

/// What a node without `[store]` keeps in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Undeclared {
    /// A file in the state directory.
    File,
    /// Memory.
    Memory,
}

/// Opens what is declared and makes it the system's. `None`: the store is in memory.
pub(super) async fn open(
    system: &System,
    topology: &Topology,
    state: &Path,
    undeclared: Undeclared,
) -> Result<Option<SqlStore>, NodeError> {
    let declared = match (topology.section(), undeclared) {
        (Some(declared), _) => declared,
        (None, Undeclared::File) => &StoreDeclaration::default(),
        (None, Undeclared::Memory) => return Ok(None),
    };
    let Some(options) = declared.options(&topology.name, state)? else {
        return Ok(None);
    };
    let opened = SqlStore::open(&options).await?;
    if let Err(error) = system.keep_in(opened.store()) {
        opened.close().await;
        return Err(error.into());
    }
    tracing::info!(
        place = options.place(),
        run = opened.run(),
        "the store is open"
    );
    Ok(Some(opened))
}

/// Keeps what the audit has waiting, then lets others have the store.
pub(super) async fn close(system: &System, opened: Option<SqlStore>) {
    let Some(opened) = opened else { return };
    if tokio::time::timeout(AUDIT_FLUSH_MAX, system.audit().flush())
        .await
        .is_err()
    {
        tracing::error!("the store didn't keep the last entries of the audit");
    }
    opened.close().await;
}

/// An error with what is behind it: a database's own words are in its source.
pub(crate) fn in_full(error: &StoreError) -> String {
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
