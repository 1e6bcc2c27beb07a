//! Requests to route, and who routes them.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use callboard_macros::Message;
use callboard_message::{DataClass, Failure};
use callboard_orchestration::decide::intake::{self, From, IntakeOptions, Request};
use callboard_orchestration::decide::rules::RulesDecider;
use callboard_orchestration::decide::{
    AgentView, Decider, Deciders, RunId, SkillView, ToolView, Turn, World,
};
use callboard_runtime::{Agent, AgentRef, ConcurrentHandler, Cx, Handlers, System};
use futures::{StreamExt, stream};
use serde::Deserialize;
use serde_json::json;

use super::Class;
use crate::cli::CommandError;
use crate::config::Topology;
use crate::node::{Node, NodeError};

/// The rules' name as a decider.
pub(super) const RULES: &str = "rules";
const WORLD: &str = "world.json";
const DEV: &str = "routing_dev.jsonl";
const HELDOUT: &str = "routing_heldout.jsonl";

/// Why requests can't be read: correct the file.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum CaseError {
    /// It isn't there, or isn't readable.
    #[error("{file}: {source}")]
    File {
        file: String,
        source: std::io::Error,
    },
    /// It isn't what it should be.
    #[error("{file}, line {line}: {why}")]
    Line {
        file: String,
        line: usize,
        why: String,
    },
}

/// A labelled request.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    pub(super) id: String,
    pub(super) text: String,
    pub(super) lang: String,
    pub(super) expect: Class,
    /// The tool or the agent, where that matters.
    pub(super) target: Option<String>,
    /// Tools, agents or classes that are as good.
    #[serde(default)]
    pub(super) also: Vec<String>,
    /// Whose words these are.
    #[serde(default, rename = "from")]
    _from: String,
    /// Whether the words point elsewhere than the meaning.
    #[serde(default)]
    pub(super) tricky: bool,
    /// What was said before.
    #[serde(default)]
    history: Vec<Said>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    role: Role,
    text: String,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Role {
    User,
    Agent,
}

impl Case {
    fn history(&self) -> Vec<Turn> {
        let turn = |said: &Said| match said.role {
            Role::User => Turn::user(&said.text),
            Role::Agent => Turn::assistant(&said.text),
        };
        self.history.iter().map(turn).collect()
    }
}

/// All of it.
#[derive(Debug)]
pub(super) struct Cases {
    pub(super) world: Arc<World>,
    pub(super) dev: Vec<Case>,
    pub(super) heldout: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WorldFile {
    tools: Vec<ToolLine>,
    agents: Vec<AgentLine>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolLine {
    name: String,
    description: String,
    tags: Vec<String>,
    examples: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentLine {
    id: String,
    name: String,
    description: String,
    skills: Vec<ToolLine>,
}

impl Cases {
    /// From a folder, or those that come with callboard.
    pub(super) fn read(folder: Option<&Path>) -> Result<Self, CaseError> {
        let [world, dev, heldout] = match folder {
            Some(folder) => [
                text(folder, WORLD)?,
                text(folder, DEV)?,
                text(folder, HELDOUT)?,
            ],
            None => [
                include_str!("../../../examples/eval/world.json").to_owned(),
                include_str!("../../../examples/eval/routing_dev.jsonl").to_owned(),
                include_str!("../../../examples/eval/routing_heldout.jsonl").to_owned(),
            ],
        };
        let world = Arc::new(self::world(&world)?);
        Ok(Self {
            dev: cases(DEV, &dev, &world)?,
            heldout: cases(HELDOUT, &heldout, &world)?,
            world,
        })
    }
}

fn text(folder: &Path, name: &str) -> Result<String, CaseError> {
    let file = folder.join(name);
    fs::read_to_string(&file).map_err(|source| CaseError::File {
        file: file.display().to_string(),
        source,
    })
}

fn world(text: &str) -> Result<World, CaseError> {
    let wrong = |error: serde_json::Error| CaseError::Line {
        file: WORLD.to_owned(),
        line: error.line(),
        why: error.to_string(),
    };
    let file: WorldFile = serde_json::from_str(text).map_err(wrong)?;
    let tool = |line: ToolLine| {
        let ToolLine {
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
    let skill = |line: ToolLine| {
        let ToolLine {
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
    let agent = |line: AgentLine| {
        let AgentLine {
            id,
            name,
            description,
            skills,
        } = line;
        AgentView {
            id,
            name,
            description,
            skills: skills.into_iter().map(skill).collect(),
            is_up: true,
        }
    };
    Ok(World {
        tools: file.tools.into_iter().map(tool).collect(),
        agents: file.agents.into_iter().map(agent).collect(),
    })
}

/// The requests of a file, a JSON object a line; empty lines are passed over.
pub(super) fn cases(file: &str, text: &str, world: &World) -> Result<Vec<Case>, CaseError> {
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty());
    let case = |(at, line): (usize, &str)| {
        let wrong = |why: String| CaseError::Line {
            file: file.to_owned(),
            line: at + 1,
            why,
        };
        let case: Case = serde_json::from_str(line).map_err(|error| wrong(error.to_string()))?;
        check(&case, world).map_err(wrong)?;
        Ok(case)
    };
    let cases = lines.map(case).collect::<Result<Vec<Case>, _>>()?;
    let twice = cases
        .iter()
        .enumerate()
        .find(|(at, case)| cases[..*at].iter().any(|earlier| earlier.id == case.id));
    match twice {
        Some((at, case)) => {
            let why = format!("{} is the id of another request", case.id);
            Err(CaseError::Line {
                file: file.to_owned(),
                line: at + 1,
                why,
            })
        }
        None => Ok(cases),
    }
}

/// A label names what is there.
fn check(case: &Case, world: &World) -> Result<(), String> {
    let target = case.target.as_deref();
    match (case.expect, target) {
        (Class::Local, Some(name)) if world.tool(name).is_none() => {
            return Err(format!("no tool is called {name}"));
        }
        (Class::Remote, Some(id)) if world.agent(id).is_none() => {
            return Err(format!("no agent has the id {id}"));
        }
        (Class::Local | Class::Remote, None) => return Err("a target is missing".to_owned()),
        (Class::Reject | Class::Clarify | Class::Decompose, Some(_)) => {
            return Err(format!("{} has no target", case.expect.as_str()));
        }
        _ => {}
    }
    let known = |also: &&String| {
        Class::parse(also).is_some() || world.tool(also).is_some() || world.agent(also).is_some()
    };
    match case.also.iter().find(|also| !known(also)) {
        Some(unknown) => Err(format!(
            "`also` names {unknown}, which is neither a class nor a tool nor an agent"
        )),
        None => Ok(()),
    }
}

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
        let router = system.spawn(Router {
            deciders: orchestrated.deciders,
        });
        Ok(Self {
            router,
            node: Some(node),
            system,
            _state: Some(state),
        })
    }

    /// Routes them all, in order.
    pub(super) async fn route(
        &self,
        cases: &[Case],
        world: &Arc<World>,
    ) -> Result<Vec<Routed>, CommandError> {
        let message = RouteAll {
            cases: cases.to_vec(),
            world: world.clone(),
        };
        Ok(self
            .router
            .ask(message)
            .within(ALL_WITHIN)
            .await
            .map_err(Failure::from)?)
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
    fn handle(
        &mut self,
        message: RouteAll,
        cx: Cx,
    ) -> impl Future<Output = Vec<Routed>> + Send + 'static {
        let deciders = self.deciders.clone();
        async move {
            let RouteAll { cases, world } = message;
            let routes: Vec<_> = cases
                .iter()
                .map(|case| route(&deciders, &cx, case, &world))
                .collect();
            stream::iter(routes).buffered(AT_ONCE).collect().await
        }
    }
}

async fn route(deciders: &Deciders, cx: &Cx, case: &Case, world: &Arc<World>) -> Routed {
    let request = Request {
        run: RunId::fresh(),
        text: case.text.clone(),
        history: case.history(),
    };
    let intake = intake::route(
        deciders,
        cx,
        &request,
        world,
        &IntakeOptions::default(),
        From::Clarity,
    )
    .await;
    Routed {
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
