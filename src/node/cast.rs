//! The agents of a node: those that it starts, and those that stand for servers elsewhere.

use std::collections::HashMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use callboard_a2a::outbound::RemoteA2a;
use callboard_clinics::clinic::{Clinic, ClinicConfig};
use callboard_clinics::hmcp::{EmrConfig, EmrWriteback, PatientData};
use callboard_gateway::bundle::{Bundle, BundleMember, BundleOptions, Filter, Prefix};
use callboard_mailroom::{Mailroom, MailroomOptions};
use callboard_mcp::bridge::Bridge;
use callboard_models::{Member, Model, ModelConfig, Models};
use callboard_orchestration::peer_registry::KnownAgents;
use callboard_runtime::{Agent, AgentId, AgentRef, Answering, System};
use tokio_util::sync::CancellationToken;

use super::orchestrator::{Building, Orchestrated};
use super::policy::CurrentAnswerers;
use super::remote::{self, Inboxes};
use super::{NodeError, mail, spawn};
use crate::config::{
    AgentDeclaration, MailroomDeclaration, OrchestratorDeclaration, RemoteDeclaration, ServerDeclaration, Topology,
    UpstreamDeclaration,
};

/// The declaration of a model, in errors.
const MODEL: &str = "model";

/// One that runs.
#[derive(Clone)]
pub(super) struct Running {
    pub(super) agent: AgentRef,
    /// Of its declaration.
    print: u64,
    /// What it had to end.
    farewell: Option<Farewell>,
    /// Which of its tools are shown.
    filter: Filter,
    is_bundle: bool,
    /// Where it is an orchestrator: it, and those that it works with.
    orchestrated: Option<Box<(Orchestrated, Vec<AgentId>)>>,
    /// Where it is a mailroom: how it is set up.
    mail: Option<Arc<MailroomOptions>>,
}

impl Running {
    /// An agent that stands for others of this node.
    pub(super) fn bundle(agent: AgentRef) -> Self {
        Self { is_bundle: true, ..Self::new(agent, 0) }
    }

    fn new(agent: AgentRef, print: u64) -> Self {
        let filter = Filter::default();
        Self { agent, print, farewell: None, filter, is_bundle: false, orchestrated: None, mail: None }
    }

    /// What it had to end elsewhere.
    fn into_farewell(self) -> Option<Farewell> {
        self.farewell
    }

    pub(super) fn is_bundle(&self) -> bool {
        self.is_bundle
    }
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
    /// Mailrooms that go on, set up otherwise.
    declared: Vec<(AgentRef, Arc<MailroomOptions>)>,
}

impl Cast {
    /// `answering` is asked by whoever stands for servers elsewhere.
    pub(super) fn new(system: System, state: &Path, answering: CurrentAnswerers, ending: CancellationToken) -> Self {
        let (running, bundles) = (HashMap::new(), HashMap::new());
        let (state, answering) = (state.to_owned(), Arc::new(answering));
        Self { system, state, answering, inboxes: Inboxes::default(), ending, running, bundles }
    }

    /// Starts what isn't there as the topology wants it. Nobody finds the new ones yet.
    ///
    /// # Errors
    /// See [`NodeError`]; what was started has been stopped.
    pub(super) async fn plan(&self, topology: &Topology) -> Result<Planned, NodeError> {
        let mut planned = Planned::default();
        let started = self.start(topology, &mut planned).await;
        if let Err(error) = started {
            let fresh: Vec<_> = planned.fresh.iter().filter_map(|id| planned.running.remove(id)).collect();
            farewell(fresh).await;
            return Err(error);
        }
        Ok(planned)
    }

    async fn start(&self, topology: &Topology, planned: &mut Planned) -> Result<(), NodeError> {
        let print = |id: &str| topology.prints.agents.get(id).copied().unwrap_or_default();
        let mut orchestrators = Vec::new();
        for declared in &topology.agents {
            let id = declared.id();
            match (self.unchanged(id, print(id)), declared) {
                (_, AgentDeclaration::Orchestrator(orchestrator)) => orchestrators.push(&**orchestrator),
                (_, AgentDeclaration::Mailroom(declared)) => self.mailroom(declared, topology, planned).await?,
                (Some(running), _) => drop(planned.running.insert(id.to_owned(), running)),
                (None, AgentDeclaration::A2a(remote)) => planned.add(id, self.remote(remote, print(id))?),
                (None, _) => {
                    if let Some(agent) = self.agent(declared, topology).await? {
                        planned.add(id, Running::new(agent, print(id)));
                    }
                }
            }
        }
        for declared in &topology.upstreams {
            let id = &*declared.id;
            match self.unchanged(id, print(id)) {
                Some(running) => drop(planned.running.insert(id.to_owned(), running)),
                None => planned.add(id, self.upstream(declared, print(id))?),
            }
        }
        // Each after those that it works with; none works with itself.
        let waits = |one: &OrchestratorDeclaration, left: &[&OrchestratorDeclaration]| {
            one.needs().any(|id| left.iter().any(|other| other.id == id))
        };
        while let Some(at) = orchestrators.iter().position(|one| !waits(one, &orchestrators)) {
            let declared = orchestrators.remove(at);
            self.orchestrator(declared, print(&declared.id), planned).await?;
        }
        Ok(())
    }

    async fn mailroom(
        &self,
        declared: &MailroomDeclaration,
        topology: &Topology,
        planned: &mut Planned,
    ) -> Result<(), NodeError> {
        let options = Arc::new(mail::options(declared, topology)?);
        // It stays, with what is on its way, whoever its members are.
        let same = self.running.get(&declared.id).filter(|running| running.mail.is_some());
        let Some(same) = same.cloned() else {
            let (agent, mailroom) = mail::open(&self.system, &declared.id, MailroomOptions::clone(&options)).await?;
            let (farewell, mail) = (Some(Farewell::Mailroom(mailroom)), Some(options));
            planned.add(&declared.id, Running { farewell, mail, ..Running::new(agent, 0) });
            return Ok(());
        };
        if same.mail.as_ref() != Some(&options) {
            planned.declared.push((same.agent.clone(), options.clone()));
        }
        planned.running.insert(declared.id.clone(), Running { mail: Some(options), ..same });
        Ok(())
    }

    async fn orchestrator(
        &self,
        declared: &OrchestratorDeclaration,
        print: u64,
        planned: &mut Planned,
    ) -> Result<(), NodeError> {
        let id = &*declared.id;
        let needs: Vec<_> = declared.needs().filter_map(|id| Some(planned.running.get(id)?.agent.id())).collect();
        let before = self.unchanged(id, print);
        if let Some(same) = before.filter(|running| running.orchestrated.as_ref().is_some_and(|o| o.1 == needs)) {
            planned.running.insert(id.to_owned(), same);
            return Ok(());
        }
        let (mut shown, mut bundles) = (HashMap::new(), Vec::new());
        for need in declared.needs() {
            let Some(running) = planned.running.get(need) else { continue };
            let agent = running.agent.clone();
            let agent = if running.filter == Filter::default() {
                agent
            } else {
                let member = BundleMember::new(need, agent).filtered(running.filter.clone());
                let options = BundleOptions { prefix: Prefix::Never, ..BundleOptions::default() };
                let bundle = Bundle::with([member], options)?.spawn(&self.system, need);
                bundles.push(bundle.clone());
                bundle
            };
            shown.insert(need, agent);
        }
        let building = Building::new(&self.system, declared, &self.ending);
        let built = building
            .build(|id| shown.get(id).cloned())
            .await
            .inspect_err(|_| bundles.iter().for_each(AgentRef::stop))?;
        let agent = built.orchestrated.agent.clone();
        let helpers = built.helpers.into_iter().chain(bundles).collect();
        let farewell = Some(Farewell::Helpers(helpers, built.orchestrated.known.clone()));
        let orchestrated = Some(Box::new((built.orchestrated, needs)));
        planned.add(id, Running { farewell, orchestrated, ..Running::new(agent, print) });
        Ok(())
    }

    /// The orchestrator of that id.
    pub(super) fn orchestrated(&self, id: &str) -> Option<&Orchestrated> {
        self.running.get(id)?.orchestrated.as_ref().map(|orchestrated| &orchestrated.0)
    }

    fn unchanged(&self, id: &str, print: u64) -> Option<Running> {
        self.running.get(id).filter(|running| running.print == print).cloned()
    }

    async fn agent(&self, declared: &AgentDeclaration, topology: &Topology) -> Result<Option<AgentRef>, NodeError> {
        let agent = match declared {
            AgentDeclaration::Model(id, config) => spawn(&self.system, id, open(id, config)?),
            AgentDeclaration::Models(id, config) => {
                let member = |member: &String| {
                    let declared = topology.agents.iter().find_map(|agent| match agent {
                        AgentDeclaration::Model(id, config) if id == member => Some(config),
                        _ => None,
                    });
                    declared.map(|config| Ok(Member::new(member.as_str(), open(member, config)?.card())))
                };
                let members: Result<Vec<_>, NodeError> = config.members.iter().filter_map(member).collect();
                let models = Models::new(members?, config.fallback);
                spawn(&self.system, id, models.map_err(NodeError::declared(MODEL, id))?)
            }
            // They have more to them than an agent.
            AgentDeclaration::A2a(_) | AgentDeclaration::Orchestrator(_) | AgentDeclaration::Mailroom(_) => {
                return Ok(None);
            }
            AgentDeclaration::Tmux(declared) => mail::tmux(&self.system, declared),
            AgentDeclaration::Webhook(declared) => mail::webhook(&self.system, declared)?,
            AgentDeclaration::EmrWriteback(emr) => {
                let file = emr.file.as_ref().map(|file| self.state.join(file));
                self.opened(&emr.id, EmrWriteback::new(&EmrConfig { file, ..emr.clone() }))?
            }
            AgentDeclaration::PatientData(patients) => self.opened(&patients.id, PatientData::new(patients))?,
            AgentDeclaration::Clinic(clinic) => {
                let config = ClinicConfig { database: self.state.join(&clinic.database), ..clinic.clone() };
                self.opened(&clinic.id, Clinic::open(config).await)?
            }
        };
        Ok(Some(agent))
    }

    /// Spawns an agent that was opened, if it could be.
    fn opened<A: Agent + Clone + Sync, E: Display>(
        &self,
        id: &str,
        opened: Result<A, E>,
    ) -> Result<AgentRef, NodeError> {
        let agent = opened.map_err(|why| NodeError::Start { id: id.to_owned(), why: why.to_string() })?;
        Ok(spawn(&self.system, id, agent))
    }

    fn upstream(&self, declared: &UpstreamDeclaration, print: u64) -> Result<Running, NodeError> {
        let options = declared.bridge_options(self.answering.clone())?;
        let bridge = Bridge::new(declared.id.as_str(), declared.endpoint()?, options);
        let bridge = bridge.map_err(NodeError::declared("upstream", &declared.id))?;
        let farewell = Some(Farewell::Bridge(bridge.clone()));
        let agent = spawn(&self.system, &declared.id, bridge);
        Ok(Running { farewell, filter: declared.tools.clone(), ..Running::new(agent, print) })
    }

    fn remote(&self, declared: &RemoteDeclaration, print: u64) -> Result<Running, NodeError> {
        let remote = remote::open(declared, &self.inboxes)?;
        let farewell = Some(Farewell::A2a(remote.clone()));
        let agent = spawn(&self.system, &declared.id, remote);
        Ok(Running { farewell, filter: declared.tools.clone(), ..Running::new(agent, print) })
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
    pub(super) async fn apply(&mut self, planned: Planned, topology: &Topology) -> Result<Vec<Running>, NodeError> {
        let bundles = match self.virtual_servers(topology, &planned) {
            Ok(bundles) => bundles,
            Err(error) => {
                planned.cancel().await;
                return Err(error);
            }
        };
        let directory = self.system.directory();
        let is_old = |id: &String, running: &Running| {
            planned.running.get(id).is_none_or(|other| other.agent.id() != running.agent.id())
        };
        let old: Vec<_> = self.running.iter().filter(|(id, running)| is_old(id, running)).collect();
        let mut old: Vec<_> = old.into_iter().map(|(_, running)| running.clone()).collect();
        let is_kept = |agent: &AgentRef| bundles.values().any(|kept| kept.agent.id() == agent.id());
        let ended = self.bundles.values().filter(|bundled| !is_kept(&bundled.agent));
        old.extend(ended.map(|bundled| Running::bundle(bundled.agent.clone())));
        old.iter().for_each(|running| directory.withdraw(&running.agent));
        for (id, running) in &planned.running {
            directory.register(id.as_str(), &running.agent)?;
        }
        for (id, bundled) in &bundles {
            directory.register(id.as_str(), &bundled.agent)?;
        }
        (self.running, self.bundles) = (planned.running, bundles);
        for (mailroom, options) in planned.declared {
            mail::declare(&mailroom, MailroomOptions::clone(&options)).await;
        }
        Ok(old)
    }

    fn virtual_servers(&self, topology: &Topology, planned: &Planned) -> Result<HashMap<String, Bundled>, NodeError> {
        let mut bundles = HashMap::new();
        for server in &topology.servers {
            let print = topology.prints.agents.get(&server.id).copied().unwrap_or_default();
            let members = server.members.iter().filter_map(|id| Some(planned.running.get(id)?.agent.id()));
            let members: Vec<_> = members.collect();
            let same = self.bundles.get(&server.id);
            let bundled = match same.filter(|bundled| bundled.print == print && bundled.members == members) {
                Some(bundled) => bundled.clone(),
                None => Bundled { agent: self.virtual_server(server, planned)?, print, members },
            };
            bundles.insert(server.id.clone(), bundled);
        }
        Ok(bundles)
    }

    fn virtual_server(&self, server: &ServerDeclaration, planned: &Planned) -> Result<AgentRef, NodeError> {
        let members = server.members.iter().filter_map(|id| {
            let running = planned.running.get(id)?;
            Some(BundleMember::new(id.as_str(), running.agent.clone()).filtered(running.filter.clone()))
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
        let filter = |id: &str| self.running.get(id).map(|running| running.filter.clone()).unwrap_or_default();
        let found = ids
            .iter()
            .filter_map(|id| Some(BundleMember::new(*id, self.system.directory().get(id)?).filtered(filter(id))));
        let members: Vec<_> = found.collect();
        let mut options = BundleOptions::default();
        if let [alone] = members.as_slice() {
            if alone.filter == Filter::default() {
                return Ok((alone.agent.clone(), false));
            }
            options.prefix = Prefix::Never;
        }
        Ok((Bundle::with(members, options)?.spawn(&self.system, "bundle"), true))
    }

    /// Those that have something of theirs elsewhere to end.
    pub(super) fn drain(&mut self) -> Vec<Running> {
        self.running.drain().map(|(_, running)| running).collect()
    }
}

impl Planned {
    fn add(&mut self, id: &str, running: Running) {
        self.fresh.push(id.to_owned());
        self.running.insert(id.to_owned(), running);
    }

    /// Stops what was started for a change that isn't made.
    pub(super) async fn cancel(mut self) {
        farewell(self.fresh.iter().filter_map(|id| self.running.remove(id)).collect()).await;
    }
}

fn open(id: &str, config: &ModelConfig) -> Result<Model, NodeError> {
    Model::open(config.clone()).map_err(NodeError::declared(MODEL, id))
}

/// How long servers elsewhere may take to end, children of this process above all.
const GOODBYE: Duration = Duration::from_secs(5);

/// What an agent has elsewhere, which ends after it.
#[derive(Clone)]
enum Farewell {
    Bridge(Bridge),
    A2a(RemoteA2a),
    /// With the deliveries of its mail.
    Mailroom(Mailroom),
    /// Agents that are there for it alone, and those elsewhere that it opened.
    Helpers(Vec<AgentRef>, KnownAgents),
}

/// Stops agents once they have done what they began, and waits for the end of what they had elsewhere.
pub(super) async fn farewell(old: Vec<Running>) {
    old.iter().for_each(|running| running.agent.stop());
    let ended = old.into_iter().map(|running| async move {
        running.agent.ended().await;
        goodbye(running.into_farewell()).await;
    });
    futures::future::join_all(ended).await;
}

/// Waits for the end of what agents that have ended had elsewhere.
pub(super) async fn goodbyes(ended: Vec<Running>) {
    futures::future::join_all(ended.into_iter().map(|running| goodbye(running.into_farewell()))).await;
}

async fn goodbye(elsewhere: Option<Farewell>) {
    let said = async {
        match elsewhere {
            None => {}
            Some(Farewell::Bridge(bridge)) => bridge.said_goodbye().await,
            Some(Farewell::A2a(remote)) => remote.said_goodbye().await,
            Some(Farewell::Mailroom(mailroom)) => mailroom.end().await,
            Some(Farewell::Helpers(helpers, known)) => {
                helpers.iter().for_each(AgentRef::stop);
                futures::future::join_all(helpers.iter().map(AgentRef::ended)).await;
                known.close().await;
            }
        }
    };
    if tokio::time::timeout(GOODBYE, said).await.is_err() {
        tracing::warn!("what an agent has elsewhere doesn't end in time");
    }
}
