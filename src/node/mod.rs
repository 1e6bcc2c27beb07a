//! A node: the agents and listeners of a topology, running in this process.

mod answering;
mod cast;
mod error;
mod farewell;
mod front;
mod grpc;
mod listen;
mod mail;
mod orchestrator;
mod peers;
mod policy;
mod reload;
mod remote;
mod served;
mod store;

use std::path::Path;
use std::time::Duration;

use callboard_runtime::{Agent, AgentRef, System};
use callboard_store::SqlStore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::Topology;
use answering::Current;
use cast::Cast;
pub use error::NodeError;
use listen::Open;
pub use orchestrator::Orchestrated;
use orchestrator::Runner;
use policy::{Classes, Policies};
pub(crate) use reload::Watch;
pub use reload::{RELOAD_DRAIN_MAX, RELOAD_GRACE, Reloaded};
use store::Undeclared;
pub(crate) use store::in_full;

/// Spawns an agent that begins anew from a clone after a failure.
pub(crate) fn spawn<A: Agent + Clone + Sync>(system: &System, label: &str, agent: A) -> AgentRef {
    system.prepare_with(move || agent.clone()).label(label).spawn()
}

/// How long a node may take to finish what it began.
pub const SHUTDOWN_DEFAULT: Duration = Duration::from_secs(5);

/// What runs.
pub struct Node {
    system: System,
    cast: Cast,
    policy: Policies,
    answering: Current,
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
    pub async fn start(topology: &Topology, state: &Path, free_ports: bool) -> Result<Self, NodeError> {
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

    async fn begin(topology: &Topology, state: &Path, undeclared: Undeclared) -> Result<Self, NodeError> {
        let system = System::here();
        // Before anything that writes to it.
        let store = store::open(&system, topology, state, undeclared).await?;
        // What is kept in memory is nobody's record.
        let classes = store.as_ref().map(|_| policy::audit(&system, topology));
        let mut policy = Policies::of(&system);
        policy.install(&topology.policy);
        let answering = match Current::of(&system, topology) {
            Ok(answering) => answering,
            Err(error) => {
                store::close(&system, store).await;
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
        if tokio::time::timeout(SHUTDOWN_DEFAULT, self.retiring.wait()).await.is_err() {
            tracing::warn!("what was replaced doesn't end in time");
        }
        farewell::goodbyes(self.cast.drain()).await;
        store::close(&self.system, self.store.take()).await;
        tracing::info!(?report, "node has ended");
    }
}
