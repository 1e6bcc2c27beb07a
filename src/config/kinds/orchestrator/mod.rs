//! Orchestrators (`[[agent]] kind = "orchestrator"`): declaration of deciders, tools and delegates.

mod build;
mod deciders;

use std::collections::{BTreeMap, HashSet};
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::{Path, PathBuf};

use build::OrchestratorBuilder;
use callboard_message::DataClass;
use callboard_orchestration::decide::{DeciderKind, DecisionPoint};
use callboard_orchestration::tools::TOOL_NAMES;
use callboard_runtime::AgentRef;
use futures::future::{BoxFuture, join_all};
use schemars::JsonSchema;
use serde::Deserialize;

pub use build::RunningOrchestrator;
pub use deciders::{DeciderEntry, DeciderList, EmbeddingDeclaration, TimedDecider};

use super::{
    AgentDeclaration, Reachability, RunningAgent, StartContext, StartError, decode_declaration,
};
use crate::config::address::NetworkRange;
use crate::config::problem::ProblemCollector;
use crate::config::tree::ConfigTree;
use crate::config::{DeclaredNames, personal, yes};

/// Default tools: all but `execute_command`.
const TOOLS_DEFAULT: [&str; 6] = [
    "echo",
    "llm",
    "summarize",
    "list_agents",
    "remember_agent",
    "human_input",
];
/// Key in `decide` for all points without an entry.
const DEFAULT_POINT: &str = "default";
/// Tool that `[agent.command]` configures.
pub(crate) const EXECUTE_COMMAND: &str = "execute_command";

/// An orchestrator for any request (`[[agent]] kind = "orchestrator"`).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OrchestratorDeclaration {
    /// Unique name in the directory.
    pub id: String,
    /// Name in cards and towards peers. Default: the id.
    pub name: Option<String>,
    /// Description in agent cards.
    pub description: Option<String>,
    /// Id of the model or model pool that writes answers, and decides at points without an entry in
    /// `decide`. `None`: rules decide at those points, and no model writes answers.
    pub model: Option<String>,
    /// Ids of agents and upstreams of this file that it may delegate to, in addition to discovered
    /// peers.
    #[serde(default)]
    pub agents: Vec<String>,
    /// Deciders by decision point: `rules`, `model`, `person`, `embedding` or an agent's id, or a list
    /// of them.
    #[serde(default)]
    #[schemars(extend("propertyNames" = { "anyOf": [{ "enum": DecisionPoint::ALL }, { "const": DEFAULT_POINT }] }))]
    pub decide: BTreeMap<String, DeciderList>,
    /// Embeddings, for points that `embedding` decides.
    pub embedding: Option<EmbeddingDeclaration>,
    /// Names of enabled tools.
    #[serde(default = "tools")]
    #[schemars(extend("items" = { "enum": TOOL_NAMES }))]
    pub tools: Vec<String>,
    /// Whether it asks for clarification of unclear requests. Default: true.
    #[serde(default = "yes")]
    pub clarification: bool,
    /// Whether it splits requests into steps. Default: true.
    #[serde(default = "yes")]
    pub decomposition: bool,
    /// Confidence, 0 to 1, below which a person must confirm an answer. Default: 0.4.
    pub confidence_min: Option<f64>,
    /// Risk, 0 to 1, above which a person must confirm an action. Default: 0.5.
    pub max_risk: Option<f64>,
    /// Estimated cost in US dollars above which a person must confirm a request; `None` for no
    /// limit.
    pub cost_usd_max: Option<f64>,
    /// Whether the guardrail screens requests and the answers of other agents. Default: true.
    #[serde(default = "yes")]
    pub guard: bool,
    /// System prompt of the answering model.
    pub system_prompt: Option<String>,
    /// Folder with prompt files that replace the built-in ones, relative to the topology file.
    pub prompts_dir: Option<PathBuf>,
    /// Use of structured output (a JSON schema) for the model's decisions.
    #[serde(default)]
    pub structured: StructuredOutput,
    /// Highest class of data in requests and answers.
    #[serde(default = "personal")]
    pub class: DataClass,
    /// Discovery of other agents.
    #[serde(default)]
    pub registry: DiscoveryDeclaration,
    /// Programs for `execute_command`. Without it the tool stays off.
    pub command: Option<CommandDeclaration>,
}

/// Use of structured output for the model's decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StructuredOutput {
    /// If the provider supports it.
    #[default]
    Auto,
    /// Never.
    Off,
}

/// Discovery of other agents (`[agent.registry]`).
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DiscoveryDeclaration {
    /// Origin patterns (`*` matches any text) of agents that may be learned from other agents.
    /// Empty by default: then only agents that `trusted_keys` admits are learned.
    pub allow: Vec<String>,
    /// File with a JWK set, relative to the topology file. Agents whose card is signed by one of
    /// its keys may be learned from other agents too.
    pub trusted_keys: Option<PathBuf>,
    /// Networks that cards may point to, in addition to the public internet and their own origin.
    pub networks: Vec<NetworkRange>,
    /// File with initially known agents, relative to the topology file. It is read once.
    pub import: Option<PathBuf>,
}

/// Programs and limits of `execute_command` (`[agent.command]`).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CommandDeclaration {
    /// Allowed programs: names or absolute paths.
    pub allow: Vec<String>,
    /// Working directory of the programs, relative to the topology file.
    pub working_directory: PathBuf,
    /// Maximum number of arguments of one command. Default: 64.
    pub arguments_max: Option<NonZeroUsize>,
    /// Maximum run time of a command in seconds; then it is killed. Default: 30.
    pub timeout_s: Option<NonZeroU64>,
    /// Maximum number of bytes kept of standard output and of standard error, each. Default:
    /// 65,536.
    pub output_bytes_max: Option<NonZeroUsize>,
}

fn tools() -> Vec<String> {
    TOOLS_DEFAULT.map(str::to_owned).to_vec()
}

impl OrchestratorDeclaration {
    /// Returns the name in cards and towards peers.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.id)
    }
}

pub(super) fn read(
    tree: &mut ConfigTree,
    problems: &mut ProblemCollector<'_>,
) -> Option<Box<dyn AgentDeclaration>> {
    decode_declaration::<OrchestratorDeclaration>(tree, "an orchestrator", problems)
}

impl OrchestratorDeclaration {
    fn check_numbers(&self, tree: &ConfigTree, problems: &mut ProblemCollector<'_>) {
        let shares = [
            ("confidence_min", self.confidence_min),
            ("max_risk", self.max_risk),
        ];
        for (key, share) in shares {
            if share.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
                problems.error(tree.span_of(key), format!("`{key}` must be from 0 to 1"));
            }
        }
        if self
            .cost_usd_max
            .is_some_and(|usd| !usd.is_finite() || usd < 0.0)
        {
            problems.error(
                tree.span_of("cost_usd_max"),
                "`cost_usd_max` must be 0 or more",
            );
        }
    }

    fn check_tools(&self, tree: &ConfigTree, problems: &mut ProblemCollector<'_>) {
        let mut seen = HashSet::new();
        for (at, tool) in self.tools.iter().enumerate() {
            let span = tree.item_span("tools", at);
            if !TOOL_NAMES.contains(&&**tool) {
                problems.not_one_of(
                    span,
                    format!("there is no tool `{tool}`"),
                    tool,
                    &TOOL_NAMES,
                );
            } else if !seen.insert(tool) {
                problems.error(span, format!("`{tool}` is named twice"));
            } else if tool == EXECUTE_COMMAND && self.command.is_none() {
                let help = "name the programs that it may run in `command.allow`".to_owned();
                problems.warning_with(
                    span,
                    format!("`{tool}` stays off: no program is allowed"),
                    Some(help),
                );
            }
        }
    }

    fn check_agents(
        &self,
        tree: &ConfigTree,
        names: &DeclaredNames<'_>,
        problems: &mut ProblemCollector<'_>,
    ) {
        let mut seen = HashSet::new();
        for (at, id) in self.agents.iter().enumerate() {
            let span = tree.item_span("agents", at);
            if !seen.insert(id) {
                problems.error(span, format!("{id} is named twice"));
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
                problems.unknown_name(span, message, id, names.agents.keys().copied());
            } else if let Some(class) = names.agents.get(&**id).map(|agent| agent.class())
                && class > self.class
            {
                let help = Some(format!("write `class = \"{class}\"`"));
                let message = format!(
                    "{id} has data of the class `{class}`, and {} is only for `{}`",
                    self.id, self.class
                );
                problems.error_with(span, message, help);
            }
        }
    }

    fn check_name(
        &self,
        tree: &ConfigTree,
        names: &DeclaredNames<'_>,
        problems: &mut ProblemCollector<'_>,
    ) {
        let name = self.name();
        let earlier = names
            .agents_of_kind::<Self>()
            .take_while(|other| other.id != self.id);
        let same = earlier
            .filter(|other| other.name() == name)
            .last()
            .map(|other| &*other.id);
        // Agents of other kinds are named by their ids.
        let of_another = || {
            names
                .agents
                .get(name)
                .filter(|agent| agent.downcast::<Self>().is_none())
                .map(|_| name)
        };
        if let Some(other) = same.or_else(of_another) {
            let message = format!(
                "{other} and {} have the same name, under which their tasks are stored: change `name` of one",
                self.id
            );
            problems.error(tree.span_of("name"), message);
        }
    }

    /// Reports cyclic dependencies: each orchestrator would wait for the other to start.
    fn check_cycle(
        &self,
        tree: &ConfigTree,
        names: &DeclaredNames<'_>,
        problems: &mut ProblemCollector<'_>,
    ) {
        let (mut seen, mut left) = (HashSet::new(), self.dependencies());
        while let Some(id) = left.pop() {
            if id == self.id {
                let message = format!(
                    "{id} delegates to itself or lets itself decide, directly or through other agents"
                );
                problems.error(tree.span_of("id"), message);
                return;
            }
            if let Some(next) = names.agents.get(id).filter(|_| seen.insert(id)) {
                left.extend(next.dependencies());
            }
        }
    }
}

/// Returns the ids of models and model pools.
fn model_ids<'a>(names: &'a DeclaredNames<'_>) -> impl Iterator<Item = &'a str> {
    let models = names.agents.values();
    models
        .filter(|agent| agent.reachability() == Reachability::Agents)
        .map(|agent| agent.id())
}

impl AgentDeclaration for OrchestratorDeclaration {
    fn id(&self) -> &str {
        &self.id
    }

    fn kind(&self) -> &'static str {
        "orchestrator"
    }

    fn class(&self) -> DataClass {
        self.class
    }

    fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }

    /// Returns the ids of its models, delegates and deciders.
    fn dependencies(&self) -> Vec<&str> {
        let deciders = self
            .named_deciders()
            .filter(|entry| matches!(entry.kind(), DeciderKind::Agent(_)))
            .map(DeciderEntry::name);
        let embedding = self.embedding.as_ref().map(|embedding| &embedding.model);
        self.model
            .iter()
            .chain(&self.agents)
            .chain(embedding)
            .map(String::as_str)
            .chain(deciders)
            .collect()
    }

    fn resolve_paths(&mut self, folder: &Path) {
        let Self {
            prompts_dir,
            registry,
            command,
            ..
        } = self;
        let all = [
            prompts_dir,
            &mut registry.trusted_keys,
            &mut registry.import,
        ];
        let command = command
            .as_mut()
            .map(|command| &mut command.working_directory);
        for path in all.into_iter().filter_map(Option::as_mut).chain(command) {
            *path = folder.join(&*path);
        }
    }

    fn check(
        &self,
        tree: &ConfigTree,
        names: &DeclaredNames<'_>,
        problems: &mut ProblemCollector<'_>,
    ) {
        self.check_numbers(tree, problems);
        self.check_tools(tree, problems);
        if let Some(model) = &self.model {
            names.check_model(model, model_ids(names), tree.span_of("model"), problems);
        }
        self.check_embedding(tree, names, problems);
        self.check_agents(tree, names, problems);
        self.check_deciders(tree, names, problems);
        self.check_name(tree, names, problems);
        self.check_cycle(tree, names, problems);
    }

    /// Reports missing key files and folders. The directory file to import may be absent.
    fn check_machine(&self, tree: &ConfigTree, problems: &mut ProblemCollector<'_>) {
        let keys = self.registry.trusted_keys.as_ref();
        let work = self
            .command
            .as_ref()
            .map(|command| &command.working_directory);
        type IsThere = fn(&Path) -> bool;
        let named: [(&[&str], _, IsThere); 3] = [
            (&["registry", "trusted_keys"], keys, Path::is_file),
            (&["prompts_dir"], self.prompts_dir.as_ref(), Path::is_dir),
            (&["command", "working_directory"], work, Path::is_dir),
        ];
        for (key, path, is_there) in named {
            if let Some(path) = path.filter(|path| !is_there(path)) {
                problems.error(
                    tree.span_at_path(key),
                    format!("there is no {} on this machine", path.display()),
                );
            }
        }
    }

    fn start<'a>(
        &'a self,
        cx: &'a StartContext<'a>,
    ) -> BoxFuture<'a, Result<RunningAgent, StartError>> {
        Box::pin(async move {
            let mut building = OrchestratorBuilder::new(cx, self);
            match building.build().await {
                Ok(orchestrated) => {
                    let (helpers, known) = (building.helpers, orchestrated.known.clone());
                    let running =
                        RunningAgent::new(orchestrated.agent.clone()).with_kind_state(orchestrated);
                    Ok(running.with_teardown(async move {
                        helpers.iter().for_each(AgentRef::stop);
                        join_all(helpers.iter().map(AgentRef::wait_for_exit)).await;
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
