//! An orchestrator that takes any request (`[[agent]]` of the kind `orchestrator`): who decides, and whom it delegates to.

mod build;

use std::collections::{BTreeMap, HashSet};
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::{Path, PathBuf};

use build::Building;
use callboard_message::DataClass;
use callboard_orchestration::decide::{Point, Who};
use callboard_orchestration::tools::TOOL_NAMES;
use callboard_runtime::AgentRef;
use futures::future::{BoxFuture, join_all};
use serde::Deserialize;

pub use build::Orchestrated;

use super::{AgentKind, Reach, Running, StartContext, StartError, declared};
use crate::config::address::Range;
use crate::config::problem::Problems;
use crate::config::tree::Tree;
use crate::config::{Names, personal, yes};

/// The tools of an orchestrator that names none: all but `execute_command`.
const TOOLS_DEFAULT: [&str; 6] = [
    "echo",
    "llm",
    "summarize",
    "list_agents",
    "remember_agent",
    "human_input",
];
/// The key in `decide` that holds for every point that isn't there.
const DEFAULT: &str = "default";
/// The tool that `[agent.command]` is for.
pub(crate) const EXECUTE_COMMAND: &str = "execute_command";

/// An orchestrator that takes any request.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrchestratorDeclaration {
    /// Its name in the directory.
    pub id: String,
    /// Its name in front of others; the id where it isn't said.
    pub name: Option<String>,
    /// What it is, for others.
    pub description: Option<String>,
    /// The id of the model (or choice of models) that answers, and decides where nobody else is named.
    pub model: Option<String>,
    /// The ids of agents and upstreams of this file that it delegates to, beside those that it learns of.
    #[serde(default)]
    pub agents: Vec<String>,
    /// Who decides at each point: `rules`, `model`, `person` or an agent's id.
    #[serde(default)]
    pub decide: BTreeMap<String, String>,
    /// Its tools.
    #[serde(default = "tools")]
    pub tools: Vec<String>,
    /// Whether it asks about requests that aren't clear.
    #[serde(default = "yes")]
    pub clarification: bool,
    /// Whether it splits requests into steps.
    #[serde(default = "yes")]
    pub decomposition: bool,
    /// An answer less sure than this has to be confirmed, 0 to 1.
    pub confidence_min: Option<f64>,
    /// An action riskier than this has to be confirmed, 0 to 1.
    pub max_risk: Option<f64>,
    /// A request dearer than this has to be confirmed, in US dollars.
    pub cost_usd_max: Option<f64>,
    /// Whether the guardrail screens what comes in.
    #[serde(default = "yes")]
    pub guard: bool,
    /// Said to the model that answers.
    pub system_prompt: Option<String>,
    /// A folder with prompts that stand in the place of ours. Relative to the topology file.
    pub prompts_dir: Option<PathBuf>,
    /// Whether the model is held to a JSON schema.
    #[serde(default)]
    pub structured: Structured,
    /// What requests and answers may hold.
    #[serde(default = "personal")]
    pub class: DataClass,
    /// How it learns of other agents.
    #[serde(default)]
    pub directory: LearningDeclaration,
    /// What `execute_command` may run; without it, that is off.
    pub command: Option<CommandDeclaration>,
}

/// Whether the model that decides is held to a JSON schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Structured {
    /// Where its provider can.
    #[default]
    Auto,
    /// Never.
    Off,
}

/// How an orchestrator learns of other agents (`[agent.directory]`).
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LearningDeclaration {
    /// Origins of agents that it learns of second-hand, `*` standing for anything.
    pub allow: Vec<String>,
    /// Keys (a JWK set): agents whose card one of them signed are learned of second-hand too. Relative to the topology file.
    pub trusted_keys: Option<PathBuf>,
    /// Networks that cards may lead to, beside the public internet and their own origin.
    pub networks: Vec<Range>,
    /// A file with agents to know from the start, read once. Relative to the topology file.
    pub import: Option<PathBuf>,
}

/// What `execute_command` may run (`[agent.command]`).
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandDeclaration {
    /// Programs: names, or absolute paths.
    pub allow: Vec<String>,
    /// Where they work. Relative to the topology file.
    pub directory: PathBuf,
    /// Most arguments.
    pub arguments_max: Option<NonZeroUsize>,
    /// How many seconds one may take.
    pub timeout_s: Option<NonZeroU64>,
    /// Most of its output that is kept, in bytes.
    pub output_bytes_max: Option<NonZeroUsize>,
}

fn tools() -> Vec<String> {
    TOOLS_DEFAULT.map(str::to_owned).to_vec()
}

impl OrchestratorDeclaration {
    /// Its name in front of others.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.id)
    }

    /// Who decides at a point. What isn't said is the model's where there is one, else the rules'; answers are always the
    /// model's.
    pub fn who(&self, point: Point) -> Who {
        if let Some(who) = self.decide.get(point.as_str()) {
            return Who::parse(who);
        }
        match self.decide.get(DEFAULT) {
            _ if point == Point::Answer => Who::Model,
            Some(who) => Who::parse(who),
            None if self.model.is_some() => Who::Model,
            None => Who::Rules,
        }
    }
}

pub(super) fn read(tree: &mut Tree, problems: &mut Problems<'_>) -> Option<Box<dyn AgentKind>> {
    declared::<OrchestratorDeclaration>(tree, "an orchestrator", problems)
}

/// Checks of one orchestrator.
impl OrchestratorDeclaration {
    fn check_numbers(&self, tree: &Tree, problems: &mut Problems<'_>) {
        let shares = [
            ("confidence_min", self.confidence_min),
            ("max_risk", self.max_risk),
        ];
        for (key, share) in shares {
            if share.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
                problems.error(tree.place(key), format!("`{key}` is from 0 to 1"));
            }
        }
        if self
            .cost_usd_max
            .is_some_and(|usd| !usd.is_finite() || usd < 0.0)
        {
            problems.error(tree.place("cost_usd_max"), "`cost_usd_max` is 0 or more");
        }
    }

    fn check_tools(&self, tree: &Tree, problems: &mut Problems<'_>) {
        let mut seen = HashSet::new();
        for (at, tool) in self.tools.iter().enumerate() {
            let span = tree.item_place("tools", at);
            if !TOOL_NAMES.contains(&&**tool) {
                problems.not_among(
                    span,
                    format!("there is no tool `{tool}`"),
                    tool,
                    &TOOL_NAMES,
                );
            } else if !seen.insert(tool) {
                problems.error(span, format!("`{tool}` is there twice"));
            } else if tool == EXECUTE_COMMAND && self.command.is_none() {
                let help = "name the programs that it may run in `command.allow`".to_owned();
                problems.warning_with(
                    span,
                    format!("`{tool}` stays off: nothing is allowed"),
                    Some(help),
                );
            }
        }
    }

    fn check_agents(&self, tree: &Tree, names: &Names<'_>, problems: &mut Problems<'_>) {
        let mut seen = HashSet::new();
        for (at, id) in self.agents.iter().enumerate() {
            let span = tree.item_place("agents", at);
            if !seen.insert(id) {
                problems.error(span, format!("{id} is there twice"));
            } else if let Some(server) = names.servers.get(&**id) {
                let members = server.members.join("`, `");
                let help = Some(format!(
                    "name those behind it: `{members}`; an upstream's `tools` choose among its own"
                ));
                problems.error_with(
                    span,
                    format!("{id} is a virtual server, which can't be delegated to"),
                    help,
                );
            } else if !names.is_known(id) {
                let message = format!(
                    "{} delegates to {id}, which is no agent or upstream",
                    self.id
                );
                problems.unknown(span, message, id, names.agents.keys().copied());
            } else if let Some(class) = names.agents.get(&**id).map(|agent| agent.class())
                && class > self.class
            {
                let help = Some(format!("write `class = \"{class}\"`"));
                let message = format!(
                    "{id} answers what is {class}, and {} is {}",
                    self.id, self.class
                );
                problems.error_with(span, message, help);
            }
        }
    }

    fn check_deciders(&self, tree: &Tree, names: &Names<'_>, problems: &mut Problems<'_>) {
        let points: Vec<_> = Point::ALL
            .iter()
            .map(|point| point.as_str())
            .chain([DEFAULT])
            .collect();
        let decide = tree.get("decide");
        for (point, who) in &self.decide {
            let key = decide.and_then(|tree| tree.key_span(point));
            let span = tree.place_at(&["decide", point]);
            if !points.contains(&&**point) {
                problems.not_among(
                    key,
                    format!("nothing is decided at `{point}`"),
                    point,
                    &points,
                );
                continue;
            }
            match Who::parse(who) {
                Who::Model if self.model.is_none() => {
                    let help = Some("write the id of one in `model`".to_owned());
                    problems.error_with(span, format!("{} has no model to decide", self.id), help);
                }
                Who::Agent(id) if !names.is_known(&id) => {
                    let all = names
                        .agents
                        .keys()
                        .copied()
                        .chain(["rules", "model", "person"]);
                    let message = format!("there is no agent {id} to decide");
                    problems.unknown(span, message, &id, all);
                }
                _ => {}
            }
        }
    }

    fn check_name(&self, tree: &Tree, names: &Names<'_>, problems: &mut Problems<'_>) {
        let name = self.name();
        let earlier = names.all::<Self>().take_while(|other| other.id != self.id);
        let same = earlier
            .filter(|other| other.name() == name)
            .last()
            .map(|other| &*other.id);
        // Other agents have their ids.
        let of_another = || {
            names
                .agents
                .get(name)
                .filter(|agent| agent.downcast::<Self>().is_none())
                .map(|_| name)
        };
        if let Some(other) = same.or_else(of_another) {
            let message = format!(
                "{other} and {} have the same name: their tasks are kept under it",
                self.id
            );
            problems.error(tree.place("name"), message);
        }
    }

    /// Orchestrators that need one another would each wait for the other to be there.
    fn check_circle(&self, tree: &Tree, names: &Names<'_>, problems: &mut Problems<'_>) {
        let (mut seen, mut left) = (HashSet::new(), self.needs());
        while let Some(id) = left.pop() {
            if id == self.id {
                let message = format!(
                    "{id} delegates to itself, or has itself decide, by way of others or not"
                );
                problems.error(tree.place("id"), message);
                return;
            }
            if let Some(next) = names.agents.get(id).filter(|_| seen.insert(id)) {
                left.extend(next.needs());
            }
        }
    }
}

impl AgentKind for OrchestratorDeclaration {
    fn id(&self) -> &str {
        &self.id
    }

    fn class(&self) -> DataClass {
        self.class
    }

    fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }

    /// Ids of all that it works with.
    fn needs(&self) -> Vec<&str> {
        let deciders = self
            .decide
            .values()
            .filter(|who| matches!(Who::parse(who), Who::Agent(_)));
        self.model
            .iter()
            .chain(&self.agents)
            .chain(deciders)
            .map(String::as_str)
            .collect()
    }

    fn resolve(&mut self, folder: &Path) {
        let Self {
            prompts_dir,
            directory,
            command,
            ..
        } = self;
        let all = [
            prompts_dir,
            &mut directory.trusted_keys,
            &mut directory.import,
        ];
        let command = command.as_mut().map(|command| &mut command.directory);
        for path in all.into_iter().filter_map(Option::as_mut).chain(command) {
            *path = folder.join(&*path);
        }
    }

    fn check(&self, tree: &Tree, names: &Names<'_>, problems: &mut Problems<'_>) {
        self.check_numbers(tree, problems);
        self.check_tools(tree, problems);
        if let Some(model) = &self.model {
            let models = names
                .agents
                .values()
                .filter(|agent| agent.reach() == Reach::Agents);
            names.check_model(
                model,
                models.map(|agent| agent.id()),
                tree.place("model"),
                problems,
            );
        }
        self.check_agents(tree, names, problems);
        self.check_deciders(tree, names, problems);
        self.check_name(tree, names, problems);
        self.check_circle(tree, names, problems);
    }

    /// A directory file that isn't there is none to read.
    fn check_machine(&self, tree: &Tree, problems: &mut Problems<'_>) {
        let keys = self.directory.trusted_keys.as_ref();
        let work = self.command.as_ref().map(|command| &command.directory);
        type IsThere = fn(&Path) -> bool;
        let named: [(&[&str], _, IsThere); 3] = [
            (&["directory", "trusted_keys"], keys, Path::is_file),
            (&["prompts_dir"], self.prompts_dir.as_ref(), Path::is_dir),
            (&["command", "directory"], work, Path::is_dir),
        ];
        for (key, path, is_there) in named {
            if let Some(path) = path.filter(|path| !is_there(path)) {
                problems.error(
                    tree.place_at(key),
                    format!("there is no {}", path.display()),
                );
            }
        }
    }

    fn start<'a>(&'a self, cx: &'a StartContext<'a>) -> BoxFuture<'a, Result<Running, StartError>> {
        Box::pin(async move {
            let mut building = Building::new(cx, self);
            match building.build().await {
                Ok(orchestrated) => {
                    let (helpers, known) = (building.helpers, orchestrated.known.clone());
                    let running = Running::new(orchestrated.agent.clone()).with_state(orchestrated);
                    Ok(running.ending_with(async move {
                        helpers.iter().for_each(AgentRef::stop);
                        join_all(helpers.iter().map(AgentRef::ended)).await;
                        known.close().await;
                    }))
                }
                Err(error) => {
                    building.helpers.iter().for_each(AgentRef::stop);
                    Err(error)
                }
            }
        })
    }
}
