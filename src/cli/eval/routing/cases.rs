//! Labelled requests, and the agents that route them: rules, or an orchestrator (the decider).

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use callboard_macros::Message;
use callboard_message::{DataClass, Failure};
use callboard_orchestration::decide::intake::{self, IntakeOptions, IntakeStage, RoutingRequest};
use callboard_orchestration::decide::rules::RulesDecider;
use callboard_orchestration::decide::{
    Decider, Deciders, PeerAgentView, RoutingContext, RunId, SkillView, ToolView, Turn,
};
use callboard_runtime::{Agent, AgentRef, ConcurrentHandler, Context, Handlers, System};
use futures::{StreamExt, stream};
use serde::Deserialize;
use serde_json::json;

use super::RouteClass;
use crate::cli::CommandError;
use crate::cli::eval::sets::{EvalCaseError, read_file};
use crate::config::Topology;
use crate::node::{Node, NodeError};

/// Value of `--by` for the decider that routes by rules, without a topology.
pub(super) const RULES: &str = "rules";
const CONTEXT_FILE: &str = "world.json";
const DEV_FILE: &str = "routing_dev.jsonl";
const HELDOUT_FILE: &str = "routing_heldout.jsonl";

/// A labelled request.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EvalCase {
    pub(super) id: String,
    pub(super) text: String,
    pub(super) lang: String,
    pub(super) expect: RouteClass,
    /// Expected tool or agent, for the classes local and remote.
    pub(super) target: Option<String>,
    /// Tools, agents or classes that count as correct too.
    #[serde(default)]
    pub(super) also: Vec<String>,
    /// Source of the request: a file, or the point of view from which it was written.
    #[serde(default, alias = "from")]
    pub(super) source: Option<String>,
    /// Group of the request; `None` for its label.
    #[serde(default)]
    pub(super) kind: Option<String>,
    /// Whether the wording suggests another route than the meaning.
    #[serde(default)]
    pub(super) tricky: bool,
    /// Earlier turns of the conversation.
    #[serde(default)]
    history: Vec<HistoryTurn>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct HistoryTurn {
    role: HistoryRole,
    text: String,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum HistoryRole {
    User,
    Agent,
}

impl EvalCase {
    fn history_turns(&self) -> Vec<Turn> {
        let turn = |said: &HistoryTurn| match said.role {
            HistoryRole::User => Turn::user(&said.text),
            HistoryRole::Agent => Turn::assistant(&said.text),
        };
        self.history.iter().map(turn).collect()
    }
}

/// Labelled requests with the tools and agents to choose from.
#[derive(Debug)]
pub(super) struct EvalDataset {
    pub(super) context: Arc<RoutingContext>,
    pub(super) dev: Vec<EvalCase>,
    pub(super) heldout: Vec<EvalCase>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ContextFile {
    tools: Vec<ToolEntry>,
    agents: Vec<AgentEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolEntry {
    name: String,
    description: String,
    tags: Vec<String>,
    examples: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentEntry {
    id: String,
    name: String,
    description: String,
    skills: Vec<ToolEntry>,
}

impl EvalDataset {
    /// Reads the files of a folder, or the built-in ones.
    pub(super) fn read(folder: Option<&Path>) -> Result<Self, EvalCaseError> {
        let context = read_context(folder)?;
        let [dev, heldout] = match folder {
            Some(folder) => [
                read_file(&folder.join(DEV_FILE))?,
                read_file(&folder.join(HELDOUT_FILE))?,
            ],
            None => [
                include_str!("../../../../examples/eval/routing_dev.jsonl").to_owned(),
                include_str!("../../../../examples/eval/routing_heldout.jsonl").to_owned(),
            ],
        };
        Ok(Self {
            dev: parse_cases(DEV_FILE, &dev, &context)?,
            heldout: parse_cases(HELDOUT_FILE, &heldout, &context)?,
            context,
        })
    }
}

/// Reads the tools and agents to choose from: those of a folder, or the built-in ones.
pub(super) fn read_context(folder: Option<&Path>) -> Result<Arc<RoutingContext>, EvalCaseError> {
    let text = match folder {
        Some(folder) => read_file(&folder.join(CONTEXT_FILE))?,
        None => include_str!("../../../../examples/eval/world.json").to_owned(),
    };
    Ok(Arc::new(parse_context(&text)?))
}

/// Reads a file of requests.
pub(super) fn read_cases(
    file: &Path,
    world: &RoutingContext,
) -> Result<Vec<EvalCase>, EvalCaseError> {
    parse_cases(&file.display().to_string(), &read_file(file)?, world)
}

fn parse_context(text: &str) -> Result<RoutingContext, EvalCaseError> {
    let wrong = |error: serde_json::Error| EvalCaseError::Line {
        file: CONTEXT_FILE.to_owned(),
        line: error.line(),
        why: error.to_string(),
    };
    let file: ContextFile = serde_json::from_str(text).map_err(wrong)?;
    let tool = |line: ToolEntry| {
        let ToolEntry {
            name,
            description,
            tags,
            examples,
        } = line;
        ToolView {
            name,
            description,
            tags,
            examples,
            params: json!({"type": "object"}),
            risk: Default::default(),
        }
    };
    let skill = |line: ToolEntry| {
        let ToolEntry {
            name,
            description,
            tags,
            examples,
        } = line;
        SkillView {
            id: name.clone(),
            name,
            description,
            tags,
            examples,
            ..SkillView::default()
        }
    };
    let agent = |line: AgentEntry| {
        let AgentEntry {
            id,
            name,
            description,
            skills,
        } = line;
        PeerAgentView {
            id,
            name,
            description,
            skills: skills.into_iter().map(skill).collect(),
            is_up: true,
        }
    };
    Ok(RoutingContext {
        tools: file.tools.into_iter().map(tool).collect(),
        agents: file.agents.into_iter().map(agent).collect(),
    })
}

/// Parses a file with one JSON object a line. Empty lines are skipped.
pub(super) fn parse_cases(
    file: &str,
    text: &str,
    world: &RoutingContext,
) -> Result<Vec<EvalCase>, EvalCaseError> {
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty());
    let case = |(at, line): (usize, &str)| {
        let wrong = |why: String| EvalCaseError::Line {
            file: file.to_owned(),
            line: at + 1,
            why,
        };
        let case: EvalCase =
            serde_json::from_str(line).map_err(|error| wrong(error.to_string()))?;
        check_label(&case, world).map_err(wrong)?;
        Ok(case)
    };
    let cases = lines.map(case).collect::<Result<Vec<EvalCase>, _>>()?;
    let twice = cases
        .iter()
        .enumerate()
        .find(|(at, case)| cases[..*at].iter().any(|earlier| earlier.id == case.id));
    match twice {
        Some((at, case)) => {
            let why = format!("{} is the id of another request", case.id);
            Err(EvalCaseError::Line {
                file: file.to_owned(),
                line: at + 1,
                why,
            })
        }
        None => Ok(cases),
    }
}

/// Checks that the label names an existing tool, agent or class.
fn check_label(case: &EvalCase, world: &RoutingContext) -> Result<(), String> {
    let target = case.target.as_deref();
    match (case.expect, target) {
        (RouteClass::Local, Some(name)) if world.tool(name).is_none() => {
            return Err(format!("no tool is called {name}"));
        }
        (RouteClass::Remote, Some(id)) if world.agent(id).is_none() => {
            return Err(format!("no agent has the id {id}"));
        }
        (RouteClass::Local | RouteClass::Remote, None) => {
            return Err("`target` is missing".to_owned());
        }
        (RouteClass::Reject | RouteClass::Clarify | RouteClass::Decompose, Some(_)) => {
            return Err(format!("`{}` takes no `target`", case.expect.as_str()));
        }
        _ => {}
    }
    let known = |also: &&String| {
        RouteClass::parse(also).is_some()
            || world.tool(also).is_some()
            || world.agent(also).is_some()
    };
    match case.also.iter().find(|also| !known(also)) {
        Some(unknown) => Err(format!(
            "`also` names {unknown}, which is neither a class nor a tool nor an agent"
        )),
        None => Ok(()),
    }
}

/// Timeout for one set of requests. With a model, a set takes several hundred model calls.
const SET_TIMEOUT: Duration = Duration::from_secs(60 * 60);
/// Timeout for stopping the decider.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum concurrent requests. Only models need time; providers limit concurrent calls.
const CONCURRENT_REQUESTS: usize = 4;

/// Routing of one request: the decision, the number of decisions made for it, the number of these
/// that were made by a fallback, and their cost in millionths of a US dollar.
#[derive(Debug, Clone)]
pub(super) struct RoutingResult {
    pub(super) decision: intake::RoutingDecision,
    pub(super) decisions: usize,
    pub(super) fallbacks: usize,
    pub(super) micro_usd: u64,
}

/// Running agents that route labelled requests: the built-in rules, or an orchestrator of a
/// topology with its node.
pub(super) struct EvalSystem {
    router: AgentRef,
    node: Option<Node>,
    system: System,
    _state: Option<tempfile::TempDir>,
}

impl EvalSystem {
    /// Starts the routing by the decider `by`: `rules` without a topology file, or the id of an
    /// orchestrator of that file, whose agents run in a temporary state directory.
    ///
    /// # Errors
    /// Usage error if `by` is an id and there is no file; the node's errors, among them that the
    /// file has no such orchestrator.
    pub(super) async fn start(by: &str, topology: Option<&Path>) -> Result<Self, CommandError> {
        let Some(file) = topology else {
            if by != RULES {
                return Err(CommandError::usage(format_args!(
                    "{by} is an orchestrator of a topology: name the file with --topology"
                )));
            }
            let system = System::on_current_arbiter();
            let rules = Decider::rules(system.spawn(RulesDecider::new()));
            let deciders = Arc::new(Deciders::uniform("eval", DataClass::Public, &rules));
            let router = system.spawn(EvalRouter { deciders });
            return Ok(Self {
                router,
                node: None,
                system,
                _state: None,
            });
        };
        let topology = Topology::read(file)?;
        let state = tempfile::Builder::new()
            .prefix("callboard-eval-")
            .tempdir()
            .map_err(NodeError::Scratch)?;
        let node = Node::start_agents(&topology, state.path()).await?;
        let Some(orchestrated) = node.orchestrator(by) else {
            node.shutdown().await;
            return Err(NodeError::NoOrchestrator {
                id: Some(by.to_owned()),
            }
            .into());
        };
        let system = node.system().clone();
        let router = system.spawn(EvalRouter {
            deciders: orchestrated.deciders,
        });
        Ok(Self {
            router,
            node: Some(node),
            system,
            _state: Some(state),
        })
    }

    /// Routes all cases, at most [`CONCURRENT_REQUESTS`] at once. Results are in the order of the
    /// cases. Fails if that takes longer than [`SET_TIMEOUT`].
    pub(super) async fn route(
        &self,
        cases: &[EvalCase],
        world: &Arc<RoutingContext>,
    ) -> Result<Vec<RoutingResult>, CommandError> {
        let message = RouteCases {
            cases: cases.to_vec(),
            world: world.clone(),
        };
        Ok(self
            .router
            .ask(message)
            .within(SET_TIMEOUT)
            .await
            .map_err(Failure::from)?)
    }

    /// Stops the system that routes the cases: its node, if there is one, or else its agents, for
    /// which it waits up to [`SHUTDOWN_TIMEOUT`].
    pub(super) async fn stop(self) {
        match self.node {
            Some(node) => node.shutdown().await,
            None => drop(self.system.shutdown(SHUTDOWN_TIMEOUT).await),
        }
    }
}

/// Message that asks for the routing of several cases.
#[derive(Message)]
#[message(name = "route_all", reply = Vec<RoutingResult>, local)]
struct RouteCases {
    cases: Vec<EvalCase>,
    world: Arc<RoutingContext>,
}

/// Agent that asks the deciders as an orchestrator does, without carrying out their decisions.
struct EvalRouter {
    deciders: Arc<Deciders>,
}

impl Agent for EvalRouter {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<RouteCases>(1);
    }
}

impl ConcurrentHandler<RouteCases> for EvalRouter {
    fn handle(
        &mut self,
        message: RouteCases,
        cx: Context,
    ) -> impl Future<Output = Vec<RoutingResult>> + Send + 'static {
        let deciders = self.deciders.clone();
        async move {
            let RouteCases { cases, world } = message;
            let routes: Vec<_> = cases
                .iter()
                .map(|case| route_case(&deciders, &cx, case, &world))
                .collect();
            stream::iter(routes)
                .buffered(CONCURRENT_REQUESTS)
                .collect()
                .await
        }
    }
}

async fn route_case(
    deciders: &Deciders,
    cx: &Context,
    case: &EvalCase,
    world: &Arc<RoutingContext>,
) -> RoutingResult {
    let request = RoutingRequest {
        run: RunId::random(),
        text: case.text.clone(),
        history: case.history_turns(),
    };
    let intake = intake::route(
        deciders,
        cx,
        &request,
        world,
        &IntakeOptions::default(),
        IntakeStage::Clarity,
    )
    .await;
    RoutingResult {
        decisions: intake.records.len(),
        fallbacks: intake
            .records
            .iter()
            .filter(|record| record.fallback.is_some())
            .count(),
        micro_usd: intake
            .records
            .iter()
            .map(|record| record.cost.micro_usd)
            .sum(),
        decision: intake.decision,
    }
}
