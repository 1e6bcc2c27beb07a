//! An orchestrator that takes any request (`[[agent]]` of the kind `orchestrator`): who decides, and whom it delegates to.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::{Path, PathBuf};

use callboard_message::DataClass;
use callboard_orchestration::decide::{Point, Who};
use callboard_orchestration::tools::TOOL_NAMES;
use serde::Deserialize;

use super::a2a::Range;
use super::agent::AgentDeclaration;
use super::problem::{Problems, did_you_mean};
use super::{Entry, Sections};

/// The tools of an orchestrator that names none: all but `execute_command`.
const TOOLS_DEFAULT: [&str; 6] = ["echo", "llm", "summarize", "list_agents", "remember_agent", "human_input"];
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

fn yes() -> bool {
    true
}

fn personal() -> DataClass {
    DataClass::Personal
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

    /// The ids of the agents that decide for it.
    fn deciders(&self) -> impl Iterator<Item = (&str, &str)> {
        self.decide.iter().filter_map(|(point, who)| match Who::parse(who) {
            Who::Agent(_) => Some((&**point, &**who)),
            _ => None,
        })
    }

    /// The ids of all that it works with.
    pub(crate) fn needs(&self) -> impl Iterator<Item = &str> {
        let ids = self.model.iter().chain(&self.agents).map(String::as_str);
        ids.chain(self.deciders().map(|(_, id)| id))
    }

    /// What it names and isn't there: the key, and the path. A directory that isn't there is none to read.
    pub(super) fn missing(&self) -> impl Iterator<Item = (&'static [&'static str], &Path)> {
        const KEYS: &[&str] = &["directory", "trusted_keys"];
        const PROMPTS: &[&str] = &["prompts_dir"];
        const WORK: &[&str] = &["command", "directory"];
        let keys = self.directory.trusted_keys.iter().filter(|file| !file.is_file()).map(|file| (KEYS, &**file));
        let prompts = self.prompts_dir.iter().filter(|folder| !folder.is_dir()).map(|folder| (PROMPTS, &**folder));
        let work = self.command.iter().map(|command| &command.directory).filter(|folder| !folder.is_dir());
        keys.chain(prompts).chain(work.map(|folder| (WORK, &**folder)))
    }

    /// Paths as this process sees them.
    pub(super) fn resolve(&mut self, folder: &Path) {
        let Self { prompts_dir, directory, command, .. } = self;
        let all = [prompts_dir, &mut directory.trusted_keys, &mut directory.import];
        let command = command.as_mut().map(|command| &mut command.directory);
        for path in all.into_iter().filter_map(Option::as_mut).chain(command) {
            *path = folder.join(&*path);
        }
    }
}

fn declared(sections: &Sections) -> impl Iterator<Item = (&OrchestratorDeclaration, &Entry<AgentDeclaration>)> {
    sections.agents.iter().filter_map(|entry| match &entry.value {
        AgentDeclaration::Orchestrator(declared) => Some((&**declared, entry)),
        _ => None,
    })
}

/// The ids of those that an orchestrator leads to.
pub(super) fn led_to(sections: &Sections) -> impl Iterator<Item = &str> {
    declared(sections).flat_map(|(declared, _)| declared.needs())
}

/// Whether what orchestrators name is there, and fits.
pub(super) fn check(sections: &Sections, known: &HashSet<&str>, unread: &HashSet<&str>, problems: &mut Problems<'_>) {
    // Other agents have their ids.
    let is_other = |entry: &&Entry<AgentDeclaration>| !matches!(entry.value, AgentDeclaration::Orchestrator(_));
    let others = sections.agents.iter().filter(is_other).map(|entry| entry.value.id());
    let others = others.chain(sections.upstreams.iter().map(|entry| &*entry.value.id));
    let mut names: HashMap<_, _> = others.map(|id| (id, id)).collect();
    for (declared, entry) in declared(sections) {
        let mut checking = Checking { declared, entry, sections, known, unread, problems };
        checking.numbers();
        checking.tools();
        checking.model();
        checking.agents();
        checking.deciders();
        if let Some(other) = names.insert(declared.name(), &declared.id) {
            let message = format!("{other} and {} have the same name: their tasks are kept under it", declared.id);
            checking.problems.error(entry.tree.place("name"), message);
        }
    }
    cycles(sections, problems);
}

struct Checking<'a, 'p, 't> {
    declared: &'a OrchestratorDeclaration,
    entry: &'a Entry<AgentDeclaration>,
    sections: &'a Sections,
    known: &'a HashSet<&'a str>,
    unread: &'a HashSet<&'a str>,
    problems: &'p mut Problems<'t>,
}

impl Checking<'_, '_, '_> {
    fn numbers(&mut self) {
        let shares = [("confidence_min", self.declared.confidence_min), ("max_risk", self.declared.max_risk)];
        for (key, share) in shares {
            if share.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
                self.problems.error(self.entry.tree.place(key), format!("`{key}` is from 0 to 1"));
            }
        }
        if self.declared.cost_usd_max.is_some_and(|usd| !usd.is_finite() || usd < 0.0) {
            self.problems.error(self.entry.tree.place("cost_usd_max"), "`cost_usd_max` is 0 or more");
        }
    }

    fn tools(&mut self) {
        let mut seen = HashSet::new();
        for (at, tool) in self.declared.tools.iter().enumerate() {
            let span = self.entry.tree.item_place("tools", at);
            if !TOOL_NAMES.contains(&&**tool) {
                let help = did_you_mean(tool, TOOL_NAMES);
                let help = help.or_else(|| Some(format!("there are `{}`", TOOL_NAMES.join("`, `"))));
                self.problems.error_with(span, format!("there is no tool `{tool}`"), help);
            } else if !seen.insert(tool) {
                self.problems.error(span, format!("`{tool}` is there twice"));
            } else if tool == EXECUTE_COMMAND && self.declared.command.is_none() {
                let help = "name the programs that it may run in `command.allow`".to_owned();
                self.problems.warning_with(span, format!("`{tool}` stays off: nothing is allowed"), Some(help));
            }
        }
    }

    fn model(&mut self) {
        let Some(model) = self.declared.model.as_deref().filter(|id| !self.unread.contains(id)) else { return };
        let models = self.sections.agents.iter().filter(|entry| entry.value.answers_others());
        let models: Vec<_> = models.map(|entry| entry.value.id()).collect();
        if !models.contains(&model) {
            let span = self.entry.tree.place("model");
            self.problems.unknown(span, format!("there is no model {model}"), model, models);
        }
    }

    fn agents(&mut self) {
        let mut seen = HashSet::new();
        for (at, id) in self.declared.agents.iter().enumerate() {
            let span = self.entry.tree.item_place("agents", at);
            if !seen.insert(id) {
                self.problems.error(span, format!("{id} is there twice"));
            } else if let Some(server) = self.sections.servers.iter().find(|server| server.value.id == *id) {
                let members = server.value.members.join("`, `");
                let help =
                    Some(format!("name those behind it: `{members}`; an upstream's `tools` choose among its own"));
                self.problems.error_with(span, format!("{id} is a virtual server, which can't be delegated to"), help);
            } else if self.is_unknown(id) {
                let message = format!("{} delegates to {id}, which is no agent or upstream", self.declared.id);
                self.problems.unknown(span, message, id, self.known.iter().copied());
            } else if self.class_of(id) > Some(self.declared.class) {
                let class = self.class_of(id).unwrap_or_default();
                let help = Some(format!("write `class = \"{class}\"`"));
                let message =
                    format!("{id} answers what is {class}, and {} is {}", self.declared.id, self.declared.class);
                self.problems.error_with(span, message, help);
            }
        }
    }

    fn deciders(&mut self) {
        let points: Vec<_> = Point::ALL.iter().map(|point| point.as_str()).chain([DEFAULT]).collect();
        let decide = self.entry.tree.get("decide");
        for (point, who) in &self.declared.decide {
            let key = decide.and_then(|tree| tree.key_span(point));
            let span = self.entry.tree.place_at(&["decide", point]);
            if !points.contains(&&**point) {
                let help = did_you_mean(point, points.iter().copied());
                let help = help.or_else(|| Some(format!("there are `{}`", points.join("`, `"))));
                self.problems.error_with(key, format!("nothing is decided at `{point}`"), help);
                continue;
            }
            match Who::parse(who) {
                Who::Model if self.declared.model.is_none() => {
                    let help = Some("write the id of one in `model`".to_owned());
                    self.problems.error_with(span, format!("{} has no model to decide", self.declared.id), help);
                }
                Who::Agent(id) if self.is_unknown(&id) => {
                    let all = self.known.iter().copied().chain(["rules", "model", "person"]);
                    let message = format!("there is no agent {id} to decide");
                    self.problems.unknown(span, message, &id, all);
                }
                _ => {}
            }
        }
    }

    fn is_unknown(&self, id: &str) -> bool {
        !self.known.contains(id) && !self.unread.contains(id)
    }

    fn class_of(&self, id: &str) -> Option<DataClass> {
        let agents = self.sections.agents.iter().map(|entry| (entry.value.id(), entry.value.class()));
        let upstreams = self.sections.upstreams.iter().map(|entry| (&*entry.value.id, entry.value.class));
        agents.chain(upstreams).find(|(other, _)| *other == id).map(|(_, class)| class)
    }
}

/// Orchestrators that need one another would each wait for the other to be there.
fn cycles(sections: &Sections, problems: &mut Problems<'_>) {
    let all: HashMap<&str, &OrchestratorDeclaration> =
        declared(sections).map(|(declared, _)| (&*declared.id, declared)).collect();
    for (declared, entry) in declared(sections) {
        let (mut seen, mut left) = (HashSet::new(), declared.needs().collect::<Vec<_>>());
        while let Some(id) = left.pop() {
            if id == declared.id {
                let message = format!("{id} delegates to itself, or has itself decide, by way of others or not");
                problems.error(entry.tree.place("id"), message);
                break;
            }
            if let Some(next) = all.get(id).filter(|_| seen.insert(id)) {
                left.extend(next.needs());
            }
        }
    }
}
