//! The agents of a node: those that it starts, and those that stand for servers elsewhere.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use callboard_gateway::bundle::{Bundle, BundleMember, BundleOptions, Filter, Prefix};
use callboard_runtime::{AgentId, AgentRef, Answering, System};
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::NodeError;
use super::policy::CurrentAnswerers;
use crate::config::{
    AgentKind, Inboxes, Orchestrated, Running, ServerDeclaration, StartContext, Topology,
};

/// An agent that stands for others of this node.
pub(super) fn bundle(agent: AgentRef) -> Running {
    let mut running = Running::new(agent);
    running.is_bundle = true;
    running
}

/// All that run, by id.
pub(super) struct Cast {
    system: System,
    state: PathBuf,
    answering: Arc<dyn Answering>,
    inboxes: Inboxes,
    /// Fires when the node ends.
    ending: CancellationToken,
    running: HashMap<String, Running>,
    /// Virtual servers, by id.
    bundles: HashMap<String, Bundled>,
}

/// A virtual server, and what it was made of.
#[derive(Clone)]
struct Bundled {
    agent: AgentRef,
    print: u64,
    members: Vec<AgentId>,
}

/// What a change comes to, until it is made.
#[derive(Default)]
pub(super) struct Planned {
    running: HashMap<String, Running>,
    /// The ids of those that are new, or not what they were.
    pub(super) fresh: Vec<String>,
    /// Tell those that go on how they are declared now.
    renewed: Vec<BoxFuture<'static, ()>>,
}

impl Cast {
    /// `answering` is asked by whoever stands for servers elsewhere.
    pub(super) fn new(
        system: System,
        state: &Path,
        answering: CurrentAnswerers,
        ending: CancellationToken,
    ) -> Self {
        let (running, bundles) = (HashMap::new(), HashMap::new());
        let (state, answering) = (state.to_owned(), Arc::new(answering));
        Self {
            system,
            state,
            answering,
            inboxes: Inboxes::default(),
            ending,
            running,
            bundles,
        }
    }

    /// Starts what isn't there as the topology wants it. Nobody finds the new ones yet.
    ///
    /// # Errors
    /// See [`NodeError`]; what was started has been stopped.
    pub(super) async fn plan(&self, topology: &Topology) -> Result<Planned, NodeError> {
        let mut planned = Planned::default();
        // Those that are built on others come last.
        let (mut left, built): (Vec<_>, Vec<_>) =
            topology.all().partition(|agent| agent.needs().is_empty());
        left.extend(built);
        // None waits for itself: that was checked.
        let waits = |one: &dyn AgentKind, left: &[&dyn AgentKind]| {
            one.needs()
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
        declared: &dyn AgentKind,
        topology: &Topology,
        planned: &mut Planned,
    ) -> Result<(), NodeError> {
        let Self {
            system,
            state,
            answering,
            inboxes,
            ending,
            ..
        } = self;
        let (id, running) = (declared.id(), &planned.running);
        let cx = StartContext {
            system,
            state,
            topology,
            answering,
            inboxes,
            ending,
            running,
        };
        let fingerprint = topology.fingerprint(id);
        let needs: Vec<_> = declared
            .needs()
            .into_iter()
            .filter_map(|id| Some(running.get(id)?.agent.id()))
            .collect();
        if let Some(before) = self.running.get(id) {
            let goes_on = match declared.renew(before, &cx)? {
                Some((renewed, told)) => {
                    planned.renewed.extend(told);
                    Some(renewed)
                }
                None => (before.fingerprint == fingerprint && before.needs == needs)
                    .then(|| before.clone()),
            };
            if let Some(running) = goes_on {
                planned.running.insert(id.to_owned(), running);
                return Ok(());
            }
        }
        let mut running = declared.start(&cx).await?;
        (running.fingerprint, running.needs) = (fingerprint, needs);
        planned.fresh.push(id.to_owned());
        planned.running.insert(id.to_owned(), running);
        Ok(())
    }

    /// The orchestrator of that id.
    pub(super) fn orchestrated(&self, id: &str) -> Option<&Orchestrated> {
        self.running.get(id)?.state()
    }

    /// Where agents elsewhere push.
    pub(super) fn inboxes(&self) -> &Inboxes {
        &self.inboxes
    }

    /// Makes the change: names point to the new ones, and virtual servers are made of them. The old ones are the result;
    /// calls that they have begun go on until [`farewell`].
    ///
    /// # Errors
    /// See [`NodeError`]; where there is one nothing has changed.
    pub(super) async fn apply(
        &mut self,
        planned: Planned,
        topology: &Topology,
    ) -> Result<Vec<Running>, NodeError> {
        let bundles = match self.virtual_servers(topology, &planned) {
            Ok(bundles) => bundles,
            Err(error) => {
                planned.cancel().await;
                return Err(error);
            }
        };
        let directory = self.system.directory();
        let is_old = |id: &String, running: &Running| {
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
            .bundles
            .values()
            .filter(|bundled| !is_kept(&bundled.agent));
        old.extend(ended.map(|bundled| bundle(bundled.agent.clone())));
        old.iter()
            .for_each(|running| directory.withdraw(&running.agent));
        for (id, running) in &planned.running {
            directory.register(id.as_str(), &running.agent)?;
        }
        for (id, bundled) in &bundles {
            directory.register(id.as_str(), &bundled.agent)?;
        }
        (self.running, self.bundles) = (planned.running, bundles);
        for renewed in planned.renewed {
            renewed.await;
        }
        Ok(old)
    }

    fn virtual_servers(
        &self,
        topology: &Topology,
        planned: &Planned,
    ) -> Result<HashMap<String, Bundled>, NodeError> {
        let mut bundles = HashMap::new();
        for server in &topology.servers {
            let print = topology.fingerprint(&server.id);
            let members = server
                .members
                .iter()
                .filter_map(|id| Some(planned.running.get(id)?.agent.id()));
            let members: Vec<_> = members.collect();
            let same = self.bundles.get(&server.id);
            let bundled =
                match same.filter(|bundled| bundled.print == print && bundled.members == members) {
                    Some(bundled) => bundled.clone(),
                    None => Bundled {
                        agent: self.virtual_server(server, planned)?,
                        print,
                        members,
                    },
                };
            bundles.insert(server.id.clone(), bundled);
        }
        Ok(bundles)
    }

    fn virtual_server(
        &self,
        server: &ServerDeclaration,
        planned: &Planned,
    ) -> Result<AgentRef, NodeError> {
        let members = server.members.iter().filter_map(|id| {
            let running = planned.running.get(id)?;
            Some(
                BundleMember::new(id.as_str(), running.agent.clone())
                    .filtered(running.filter.clone()),
            )
        });
        let options = BundleOptions {
            allow: server.tools.clone(),
            prefix: server.prefix,
            separator: server.separator,
            ..BundleOptions::default()
        };
        Ok(Bundle::with(members, options)?.spawn(&self.system, &server.id))
    }

    /// One agent that stands for those of these ids: itself where it is alone; and whether it was made for that.
    pub(super) fn as_one(&self, ids: &[&str]) -> Result<(AgentRef, bool), NodeError> {
        let filter = |id: &str| {
            self.running
                .get(id)
                .map(|running| running.filter.clone())
                .unwrap_or_default()
        };
        let found = ids.iter().filter_map(|id| {
            Some(BundleMember::new(*id, self.system.directory().get(id)?).filtered(filter(id)))
        });
        let members: Vec<_> = found.collect();
        let mut options = BundleOptions::default();
        if let [alone] = members.as_slice() {
            if alone.filter == Filter::default() {
                return Ok((alone.agent.clone(), false));
            }
            options.prefix = Prefix::Never;
        }
        Ok((
            Bundle::with(members, options)?.spawn(&self.system, "bundle"),
            true,
        ))
    }

    /// Those that have something of theirs elsewhere to end.
    pub(super) fn drain(&mut self) -> Vec<Running> {
        self.running.drain().map(|(_, running)| running).collect()
    }
}

impl Planned {
    /// Stops what was started for a change that isn't made.
    async fn cancel(mut self) {
        farewell(
            self.fresh
                .iter()
                .filter_map(|id| self.running.remove(id))
                .collect(),
        )
        .await;
    }
}

/// How long servers elsewhere may take to end, children of this process above all.
const GOODBYE: Duration = Duration::from_secs(5);

/// Stops agents once they have done what they began, and waits for the end of what they had elsewhere.
pub(super) async fn farewell(old: Vec<Running>) {
    old.iter().for_each(|running| running.agent.stop());
    let ended = old.into_iter().map(|running| async move {
        running.agent.ended().await;
        goodbye(running).await;
    });
    futures::future::join_all(ended).await;
}

/// Waits for the end of what agents that have ended had elsewhere.
pub(super) async fn goodbyes(ended: Vec<Running>) {
    futures::future::join_all(ended.into_iter().map(goodbye)).await;
}

async fn goodbye(running: Running) {
    if tokio::time::timeout(GOODBYE, running.tear_down())
        .await
        .is_err()
    {
        tracing::warn!("what an agent has elsewhere doesn't end in time");
    }
}
