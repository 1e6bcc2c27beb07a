//! Running agents of a node, including virtual servers, and their replacement on reload.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use callboard_gateway::aggregate::{
    AggregateAgent, AggregateMember, AggregateOptions, PrefixMode, ToolFilter,
};
use callboard_runtime::{
    AgentId, AgentRef, PRINCIPAL_SHARE_PERCENT_DEFAULT, QuestionRouter, System,
};
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::NodeError;
use super::policy::CurrentQuestionRouter;
use crate::config::{
    AgentDeclaration, PushInboxes, RunningAgent, RunningOrchestrator, ServerDeclaration,
    StartContext, Topology,
};

/// Creates the entry of an agent that is an aggregate of other agents of this node.
pub(super) fn running_bundle(agent: AgentRef) -> RunningAgent {
    let mut running = RunningAgent::new(agent);
    running.is_bundle = true;
    running
}

/// Running agents of a node by id.
pub(super) struct AgentSet {
    system: System,
    state: PathBuf,
    question_router: Arc<dyn QuestionRouter>,
    push_inboxes: PushInboxes,
    /// Cancelled when the node shuts down.
    shutdown_token: CancellationToken,
    running: HashMap<String, RunningAgent>,
    virtual_servers: HashMap<String, VirtualServer>,
    /// Id of the only upstream, whose tools keep their names; `None` with several, or none.
    sole_upstream: Option<String>,
}

/// A virtual server with the declaration and agents that it was built from.
#[derive(Clone)]
struct VirtualServer {
    agent: AgentRef,
    fingerprint: u64,
    members: Vec<AgentId>,
    sole_upstream: Option<String>,
}

/// Agents started for a reload that isn't committed yet.
#[derive(Default)]
pub(super) struct AgentSetChange {
    running: HashMap<String, RunningAgent>,
    /// Ids of new and changed agents.
    pub(super) started_ids: Vec<String>,
    /// Futures that apply changed declarations to agents that keep running.
    notifications: Vec<BoxFuture<'static, ()>>,
}

impl AgentSet {
    /// Creates an empty set. Upstreams send their questions to `answering`.
    pub(super) fn new(
        system: System,
        state: &Path,
        answering: CurrentQuestionRouter,
        shutdown_token: CancellationToken,
    ) -> Self {
        let (running, virtual_servers) = (HashMap::new(), HashMap::new());
        let (state, question_router) = (state.to_owned(), Arc::new(answering));
        Self {
            system,
            state,
            question_router,
            push_inboxes: PushInboxes::default(),
            shutdown_token,
            running,
            virtual_servers,
            sole_upstream: None,
        }
    }

    /// Starts all new and changed agents of the topology. They aren't in the directory yet.
    ///
    /// # Errors
    /// See [`NodeError`]. Agents that were already started are stopped.
    pub(super) async fn plan(&self, topology: &Topology) -> Result<AgentSetChange, NodeError> {
        let mut planned = AgentSetChange::default();
        // Agents with dependencies are started last.
        let (mut left, built): (Vec<_>, Vec<_>) = topology
            .agents_and_upstreams()
            .partition(|agent| agent.dependencies().is_empty());
        left.extend(built);
        // The check has ruled out cycles.
        let waits = |one: &dyn AgentDeclaration, left: &[&dyn AgentDeclaration]| {
            one.dependencies()
                .iter()
                .any(|id| left.iter().any(|other| other.id() == *id))
        };
        while let Some(at) = left.iter().position(|one| !waits(*one, &left)) {
            if let Err(error) = self.start(left.remove(at), topology, &mut planned).await {
                planned.cancel().await;
                return Err(error);
            }
        }
        Ok(planned)
    }

    async fn start(
        &self,
        declared: &dyn AgentDeclaration,
        topology: &Topology,
        planned: &mut AgentSetChange,
    ) -> Result<(), NodeError> {
        let Self {
            system,
            state,
            question_router: answering,
            push_inboxes: inboxes,
            shutdown_token: ending,
            ..
        } = self;
        let (id, running) = (declared.id(), &planned.running);
        let cx = StartContext {
            system,
            state,
            topology,
            question_router: answering,
            push_inboxes: inboxes,
            shutdown_token: ending,
            running_agents: running,
        };
        let fingerprint = topology.fingerprint(id);
        let needs: Vec<_> = declared
            .dependencies()
            .into_iter()
            .filter_map(|id| Some(running.get(id)?.agent.id()))
            .collect();
        if let Some(before) = self.running.get(id) {
            let goes_on = match declared.reconfigure(before, &cx)? {
                Some((renewed, told)) => {
                    planned.notifications.extend(told);
                    Some(renewed)
                }
                None => (before.fingerprint == fingerprint && before.dependencies == needs)
                    .then(|| before.clone()),
            };
            if let Some(running) = goes_on {
                planned.running.insert(id.to_owned(), running);
                return Ok(());
            }
        }
        let mut running = declared.start(&cx).await?;
        (running.fingerprint, running.dependencies) = (fingerprint, needs);
        planned.started_ids.push(id.to_owned());
        planned.running.insert(id.to_owned(), running);
        Ok(())
    }

    /// Returns the running orchestrator with this id.
    pub(super) fn orchestrator(&self, id: &str) -> Option<&RunningOrchestrator> {
        self.running.get(id)?.kind_state()
    }

    /// Returns the receivers of A2A push notifications.
    pub(super) fn inboxes(&self) -> &PushInboxes {
        &self.push_inboxes
    }

    /// Commits a reload: directory names point to the new agents, and virtual servers are rebuilt.
    /// Returns the replaced agents, whose running calls continue until [`drain_agents`].
    ///
    /// # Errors
    /// See [`NodeError`]. Nothing is changed.
    pub(super) async fn apply(
        &mut self,
        planned: AgentSetChange,
        topology: &Topology,
    ) -> Result<Vec<RunningAgent>, NodeError> {
        let bundles = match self.plan_virtual_servers(topology, &planned) {
            Ok(bundles) => bundles,
            Err(error) => {
                planned.cancel().await;
                return Err(error);
            }
        };
        let directory = self.system.directory();
        let is_old = |id: &String, running: &RunningAgent| {
            planned
                .running
                .get(id)
                .is_none_or(|other| other.agent.id() != running.agent.id())
        };
        let old: Vec<_> = self
            .running
            .iter()
            .filter(|(id, running)| is_old(id, running))
            .collect();
        let mut old: Vec<_> = old
            .into_iter()
            .map(|(_, running)| running.clone())
            .collect();
        let is_kept = |agent: &AgentRef| bundles.values().any(|kept| kept.agent.id() == agent.id());
        let ended = self
            .virtual_servers
            .values()
            .filter(|bundled| !is_kept(&bundled.agent));
        old.extend(ended.map(|bundled| running_bundle(bundled.agent.clone())));
        old.iter()
            .for_each(|running| directory.unregister(&running.agent));
        for (id, running) in &planned.running {
            directory.register(id.as_str(), &running.agent)?;
        }
        for (id, bundled) in &bundles {
            directory.register(id.as_str(), &bundled.agent)?;
        }
        (self.running, self.virtual_servers) = (planned.running, bundles);
        self.sole_upstream = topology.sole_upstream().map(str::to_owned);
        for renewed in planned.notifications {
            renewed.await;
        }
        Ok(old)
    }

    fn plan_virtual_servers(
        &self,
        topology: &Topology,
        planned: &AgentSetChange,
    ) -> Result<HashMap<String, VirtualServer>, NodeError> {
        let mut bundles = HashMap::new();
        for server in &topology.servers {
            let print = topology.fingerprint(&server.id);
            let members = server
                .members
                .iter()
                .filter_map(|id| Some(planned.running.get(id)?.agent.id()));
            let members: Vec<_> = members.collect();
            let same = self.virtual_servers.get(&server.id);
            let bundled = match same
                .filter(|bundled| bundled.fingerprint == print && bundled.members == members)
                .filter(|bundled| bundled.sole_upstream.as_deref() == topology.sole_upstream())
            {
                Some(bundled) => bundled.clone(),
                None => VirtualServer {
                    agent: self.spawn_virtual_server(server, topology, planned)?,
                    fingerprint: print,
                    members,
                    sole_upstream: topology.sole_upstream().map(str::to_owned),
                },
            };
            bundles.insert(server.id.clone(), bundled);
        }
        Ok(bundles)
    }

    fn spawn_virtual_server(
        &self,
        server: &ServerDeclaration,
        topology: &Topology,
        planned: &AgentSetChange,
    ) -> Result<AgentRef, NodeError> {
        let members = server.members.iter().filter_map(|id| {
            let running = planned.running.get(id)?;
            Some(
                AggregateMember::new(id.as_str(), running.agent.clone())
                    .with_filter(running.filter.clone())
                    .with_kept_names(topology.sole_upstream() == Some(id)),
            )
        });
        let options = AggregateOptions {
            allow: server.tools.clone(),
            prefix: server.prefix,
            separator: server.separator,
            principal_share_percent: server
                .principal_share_percent
                .unwrap_or(PRINCIPAL_SHARE_PERCENT_DEFAULT),
            ..AggregateOptions::default()
        };
        Ok(AggregateAgent::with_options(members, options)?.spawn(&self.system, &server.id))
    }

    /// Returns one agent for these ids, and whether it is an aggregate that was created for them. A
    /// single agent without a tool filter stands for itself; otherwise the agents are behind an
    /// aggregate. Ids that aren't in the directory are left out. `share_percent` is a principal's
    /// share of the requests that the aggregate handles at a time.
    ///
    /// # Errors
    /// [`NodeError::Bundle`] if names of tools collide.
    pub(super) fn aggregate(
        &self,
        ids: &[&str],
        share_percent: u8,
    ) -> Result<(AgentRef, bool), NodeError> {
        let filter = |id: &str| {
            self.running
                .get(id)
                .map(|running| running.filter.clone())
                .unwrap_or_default()
        };
        let found = ids.iter().filter_map(|id| {
            Some(
                AggregateMember::new(*id, self.system.directory().get(id)?)
                    .with_filter(filter(id))
                    .with_kept_names(self.sole_upstream.as_deref() == Some(*id)),
            )
        });
        let members: Vec<_> = found.collect();
        let mut options = AggregateOptions {
            principal_share_percent: share_percent,
            ..AggregateOptions::default()
        };
        if let [alone] = members.as_slice() {
            if alone.filter == ToolFilter::default() {
                return Ok((alone.agent.clone(), false));
            }
            options.prefix = PrefixMode::Never;
        }
        Ok((
            AggregateAgent::with_options(members, options)?.spawn(&self.system, "bundle"),
            true,
        ))
    }

    /// Returns the id of the only upstream; `None` with several, or none.
    pub(super) fn sole_upstream(&self) -> Option<&str> {
        self.sole_upstream.as_deref()
    }

    /// Removes and returns the agents with external resources to clean up.
    pub(super) fn take_running(&mut self) -> Vec<RunningAgent> {
        self.running.drain().map(|(_, running)| running).collect()
    }
}

impl AgentSetChange {
    /// Stops the agents that were started for an abandoned reload.
    async fn cancel(mut self) {
        drain_agents(
            self.started_ids
                .iter()
                .filter_map(|id| self.running.remove(id))
                .collect(),
        )
        .await;
    }
}

/// Maximum time for the cleanup of external resources, such as child processes.
const TEARDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Waits until agents have finished their calls, stops them, and cleans up their external
/// resources.
pub(super) async fn drain_agents(old: Vec<RunningAgent>) {
    old.iter().for_each(|running| running.agent.stop());
    let ended = old.into_iter().map(|running| async move {
        running.agent.wait_for_exit().await;
        tear_down_agent(running).await;
    });
    futures::future::join_all(ended).await;
}

/// Cleans up external resources of stopped agents.
pub(super) async fn tear_down_agents(ended: Vec<RunningAgent>) {
    futures::future::join_all(ended.into_iter().map(tear_down_agent)).await;
}

async fn tear_down_agent(running: RunningAgent) {
    if tokio::time::timeout(TEARDOWN_TIMEOUT, running.tear_down())
        .await
        .is_err()
    {
        tracing::warn!(
            "cleanup of an agent's external resources did not finish in time: its processes may still run"
        );
    }
}
