//! Who routes the requests: an agent of a node of our own, as part of a call.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use callboard_agents::decide::intake::{self, From, IntakeOptions, Request};
use callboard_agents::decide::rules::RulesDecider;
use callboard_agents::decide::{Decider, Deciders, RunId, World};
use callboard_macros::Message;
use callboard_message::{DataClass, Failure};
use callboard_runtime::{Agent, AgentRef, ConcurrentHandler, Cx, Handlers, System};
use futures::{StreamExt, stream};

use super::CommandError;
use super::cases::{Case, RULES};
use crate::config::Topology;
use crate::node::{Node, NodeError};

/// How long all requests of one set may take: a model answers a few hundred times.
const ALL_WITHIN: Duration = Duration::from_secs(60 * 60);
/// How long whoever decided may take to end.
const ENDS_WITHIN: Duration = Duration::from_secs(5);
/// Requests on their way at once: rules take none of the time, of a model it is what providers bear.
const AT_ONCE: usize = 4;

/// Where a request went.
#[derive(Debug, Clone)]
pub(super) struct Routed {
    pub(super) decision: intake::RoutingDecision,
    pub(super) decisions: usize,
    pub(super) fallbacks: usize,
    pub(super) micro_usd: u64,
}

/// Whoever decides, running.
pub(super) struct By {
    router: AgentRef,
    node: Option<Node>,
    system: System,
    _state: Option<tempfile::TempDir>,
}

impl By {
    /// Starts `rules`, or the node with the orchestrator of that id.
    pub(super) async fn start(by: &str, topology: Option<&Path>) -> Result<Self, CommandError> {
        let Some(file) = topology else {
            if by != RULES {
                return Err(CommandError::usage(format_args!(
                    "{by} is an orchestrator of a topology: name the file with --topology"
                )));
            }
            let system = System::here();
            let rules = Decider::rules(system.spawn(RulesDecider::new()));
            let deciders = Arc::new(Deciders::all("eval", DataClass::Public, &rules));
            let router = system.spawn(Router { deciders });
            return Ok(Self { router, node: None, system, _state: None });
        };
        let topology = Topology::read(file)?;
        let state = tempfile::Builder::new().prefix("callboard-eval-").tempdir().map_err(NodeError::Scratch)?;
        let node = Node::start_agents(&topology, state.path()).await?;
        let Some(orchestrated) = node.orchestrator(by) else {
            node.shutdown().await;
            return Err(NodeError::NoOrchestrator { id: Some(by.to_owned()) }.into());
        };
        let system = node.system().clone();
        let router = system.spawn(Router { deciders: orchestrated.deciders });
        Ok(Self { router, node: Some(node), system, _state: Some(state) })
    }

    /// Routes them all, in order.
    pub(super) async fn route(&self, cases: &[Case], world: &Arc<World>) -> Result<Vec<Routed>, CommandError> {
        let message = RouteAll { cases: cases.to_vec(), world: world.clone() };
        Ok(self.router.ask(message).within(ALL_WITHIN).await.map_err(Failure::from)?)
    }

    /// Ends it.
    pub(super) async fn stop(self) {
        match self.node {
            Some(node) => node.shutdown().await,
            None => drop(self.system.shutdown(ENDS_WITHIN).await),
        }
    }
}

/// Route all these.
#[derive(Message)]
#[message(name = "route_all", reply = Vec<Routed>, local)]
struct RouteAll {
    cases: Vec<Case>,
    world: Arc<World>,
}

/// Asks the deciders as an orchestrator does, and does nothing else.
struct Router {
    deciders: Arc<Deciders>,
}

impl Agent for Router {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<RouteAll>(1);
    }
}

impl ConcurrentHandler<RouteAll> for Router {
    fn handle(&mut self, message: RouteAll, cx: Cx) -> impl Future<Output = Vec<Routed>> + Send + 'static {
        let deciders = self.deciders.clone();
        async move {
            let RouteAll { cases, world } = message;
            let one = |case: Case| {
                let (deciders, cx, world) = (deciders.clone(), cx.clone(), world.clone());
                async move { route(&deciders, &cx, &case, &world).await }
            };
            stream::iter(cases).map(one).buffered(AT_ONCE).collect().await
        }
    }
}

async fn route(deciders: &Deciders, cx: &Cx, case: &Case, world: &Arc<World>) -> Routed {
    let request = Request { run: RunId::fresh(), text: case.text.clone(), history: case.history() };
    let intake = intake::route(deciders, cx, &request, world, &IntakeOptions::default(), From::Clarity).await;
    Routed {
        decisions: intake.records.len(),
        fallbacks: intake.records.iter().filter(|record| record.fallback.is_some()).count(),
        micro_usd: intake.records.iter().map(|record| record.cost.micro_usd).sum(),
        decision: intake.decision,
    }
}
