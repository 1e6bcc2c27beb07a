//! The topology file: which agents there are, which servers elsewhere, who listens, who answers what.
//!
//! A text becomes a tree that knows where each value stands (`text`), its sections become declarations (`file`, `decode`),
//! and these are held against each other (`check`) and against this machine (`surroundings`). Every mistake is found, not
//! only the first.

mod address;
mod bidirectional;
mod check;
mod decode;
mod kinds;
mod listener;
mod magictunnel;
mod problem;
mod sections;
#[cfg(test)]
mod tests;
mod tree;

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::Read;
use std::net::SocketAddr;
use std::ops::Range as Span;
use std::path::Path;

use callboard_clinics::plan::{ClinicEntry, Registry};
use callboard_gateway::answering::AnswerOptions;
use callboard_gateway::bundle::{Prefix, Separator};
use callboard_guardrail::OwnRule;
use callboard_message::DataClass;
use decode::decode_as;
use problem::{Problems, did_you_mean};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tree::{Tree, Value};

pub use address::{Range, WebUrl};
pub use bidirectional::{
    BIDIRECTIONAL_ID_DEFAULT, BIDIRECTIONAL_NAME_DEFAULT, BIDIRECTIONAL_PORT_DEFAULT,
    CLAUDE_KEY_VARIABLES, CLAUDE_MODEL_DEFAULT, ModeDeclaration,
};
pub(crate) use kinds::{AgentKind, Inboxes, Reach, Running, StartContext, spawn};
pub use kinds::{
    BindingName, CommandDeclaration, EraName, InterfaceDeclaration, LearningDeclaration,
    MailroomDeclaration, MemberDeclaration, ModelDeclaration, OauthDeclaration, Orchestrated,
    OrchestratorDeclaration, Pane, RemoteDeclaration, SamplingDeclaration, StartError, StartWhen,
    Structured, TmuxDeclaration, Transport, UpstreamDeclaration, UpstreamError, VersionName,
    WebhookDeclaration,
};
pub use listener::{
    CompatTransport, Dialect, Listener, Protocol, ProviderDeclaration, Speaks, Trust,
};
pub(crate) use problem::closest;
pub use problem::{ConfigError, Level, PROBLEMS_MAX, Problem};
use sections::Section;
pub use sections::{
    Audited, PolicyDeclaration, RetentionDeclaration, RoutingDeclaration, StoreDeclaration,
};

/// A day.
pub(crate) const SECONDS_A_DAY: u64 = 24 * 60 * 60;

/// The largest topology file that is read, in bytes.
pub const TOPOLOGY_BYTES_MAX: u64 = 1024 * 1024;

/// A checked topology: its names fit together, its paths are resolved.
#[derive(Debug)]
pub struct Topology {
    /// The node's name.
    pub name: String,
    /// The agents to start.
    pub(crate) agents: Vec<Box<dyn AgentKind>>,
    /// Purposes of agents, upstreams and virtual servers, by id, as far as the file says them.
    descriptions: HashMap<String, String>,
    /// The MCP servers elsewhere.
    pub upstreams: Vec<UpstreamDeclaration>,
    /// Selections of both.
    pub servers: Vec<ServerDeclaration>,
    /// The sockets to open, each in front of some of them.
    pub listeners: Vec<Listener>,
    /// Sections that are one table each.
    tables: Vec<Box<dyn Section>>,
    /// How a person talks to its agent, where it is a bidirectional agent's file.
    pub mode: Option<ModeDeclaration>,
    /// The clinics that an orchestrator on this node may ask.
    pub registry: Registry,
    /// What is written, to see what changes.
    pub(crate) prints: Prints,
}

/// A number for each declaration that is another when what is written is.
#[derive(Debug, Default)]
pub(crate) struct Prints {
    /// Of agents, upstreams and virtual servers, by id.
    pub(crate) agents: HashMap<String, u64>,
    /// In the order of the listeners.
    pub(crate) listeners: Vec<u64>,
    /// Of the store; 0 without one.
    pub(crate) store: u64,
}

/// A topology file that was looked at.
#[derive(Debug)]
pub struct Checked {
    /// What it says, unless it has errors.
    pub topology: Option<Topology>,
    /// All that is wrong with it, in the order of the text.
    pub problems: Vec<Problem>,
    /// The text.
    pub text: String,
}

impl Topology {
    /// Reads a file: YAML where its name ends in `.yaml` or `.yml`, else TOML. What it needs of this machine isn't looked
    /// for: see [`Topology::check`].
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        Self::read_with_warnings(path).map(|(topology, _)| topology)
    }

    /// The same, and what is wrong with a file that can be used all the same.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub(crate) fn read_with_warnings(path: &Path) -> Result<(Self, Vec<Problem>), ConfigError> {
        let text = read_text(path)?;
        match parse(&text, is_yaml(path), folder(path), false) {
            (Some(topology), warnings) => Ok((topology, warnings)),
            (None, problems) => Err(ConfigError::mistakes(path, problems)),
        }
    }

    /// Checks a text. `folder` is what its paths are relative to.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn parse(text: &str, is_yaml: bool, folder: &Path) -> Result<Self, ConfigError> {
        let (topology, problems) = parse(text, is_yaml, folder, false);
        topology.ok_or_else(|| ConfigError::mistakes(Path::new("topology"), problems))
    }

    /// Reads a file and finds everything that is wrong with it, also what it needs and this machine hasn't got.
    ///
    /// # Errors
    /// Where the file can't be read: [`ConfigError::Read`], [`ConfigError::TooLarge`].
    pub fn check(path: &Path) -> Result<Checked, ConfigError> {
        let text = read_text(path)?;
        let (topology, problems) = parse(&text, is_yaml(path), folder(path), true);
        Ok(Checked {
            topology,
            problems,
            text,
        })
    }

    /// The section of that type, if it is declared.
    pub(crate) fn section<S: Section>(&self) -> Option<&S> {
        self.tables.iter().find_map(|table| table.downcast())
    }

    /// Rules that guardrails have beside the built-in ones.
    pub(crate) fn guard_rules(&self) -> Vec<OwnRule> {
        self.section()
            .map(|policy: &PolicyDeclaration| policy.guard_rules.clone())
            .unwrap_or_default()
    }

    /// Declares a section that isn't declared yet.
    pub(crate) fn declare<S: Section>(&mut self, section: S) {
        if self.section::<S>().is_none() {
            self.tables.push(Box::new(section));
        }
    }

    /// What the agent, upstream or virtual server of that id is for, where the file says it.
    pub(crate) fn description(&self, id: &str) -> Option<&str> {
        self.descriptions.get(id).map(String::as_str)
    }

    /// All agents, then all upstreams.
    pub(crate) fn all(&self) -> impl Iterator<Item = &dyn AgentKind> {
        let upstreams = self
            .upstreams
            .iter()
            .map(|upstream| upstream as &dyn AgentKind);
        self.agents.iter().map(|agent| &**agent).chain(upstreams)
    }

    /// The agents of one kind.
    pub(crate) fn agents<K: AgentKind>(&self) -> impl Iterator<Item = &K> {
        self.all().filter_map(|agent| agent.downcast())
    }

    /// The agent of that kind and id.
    pub(crate) fn agent<K: AgentKind>(&self, id: &str) -> Option<&K> {
        self.agents().find(|agent: &&K| agent.id() == id)
    }

    /// Fingerprint of the declaration of that id; 0 where there is none.
    pub(crate) fn fingerprint(&self, id: &str) -> u64 {
        self.prints.agents.get(id).copied().unwrap_or_default()
    }

    /// The ids of all agents and upstreams, in the order of the file: what a listener that names nobody leads to. Ways out
    /// of a mailroom are nobody's to come to.
    pub(crate) fn ids(&self) -> Vec<&str> {
        self.all()
            .filter(|agent| agent.reach() != Reach::Mail)
            .map(AgentKind::id)
            .collect()
    }

    /// The orchestrator of that id.
    pub fn orchestrator(&self, id: &str) -> Option<&OrchestratorDeclaration> {
        self.agent(id)
    }

    /// Who answers, as the answering agents want it.
    pub fn answer_options(&self) -> AnswerOptions {
        let RoutingDeclaration {
            sampling,
            elicitation,
        } = self.section().cloned().unwrap_or_default();
        AnswerOptions {
            sampling,
            elicitation,
            servers: self
                .upstreams
                .iter()
                .map(|upstream| (upstream.id.clone(), upstream.grants()))
                .collect(),
            models: self
                .agents::<ModelDeclaration>()
                .map(|model| model.id.clone())
                .collect(),
        }
    }

    /// A listener at `bind` in front of the agent `id` alone: as the first one of A2A is declared, if there is one. Its port for
    /// gRPC stays, at the address of `bind`.
    pub(crate) fn a2a_listener(&self, id: &str, bind: SocketAddr) -> Listener {
        let declared = self
            .listeners
            .iter()
            .find(|listener| listener.protocol == Protocol::A2a);
        let mut listener = declared.cloned().unwrap_or_else(|| Listener::a2a(bind));
        if listener.bind != bind {
            // Not where others reach the declared one; nobody reaches the address of all of them.
            let here = |port: u16| {
                bind.ip()
                    .is_unspecified()
                    .then(|| format!("localhost:{port}"))
            };
            listener.public_url =
                here(bind.port()).and_then(|here| WebUrl::try_from(format!("http://{here}")).ok());
            listener.grpc_bind = listener
                .grpc_bind
                .map(|grpc| SocketAddr::new(bind.ip(), grpc.port()));
            listener.grpc_target = listener.grpc_bind.and_then(|grpc| here(grpc.port()));
        }
        Listener {
            bind,
            agent: Some(id.to_owned()),
            agents: Vec::new(),
            ..listener
        }
    }

    /// The highest class of what these ids' messages and replies may hold.
    pub(crate) fn class_of(&self, ids: &[&str]) -> DataClass {
        let behind = self.all().filter(|agent| self.leads_to(ids, agent.id()));
        behind.map(AgentKind::class).max().unwrap_or_default()
    }

    /// Whether an agent, an upstream or a virtual server is called that.
    pub(crate) fn has(&self, id: &str) -> bool {
        self.all().any(|agent| agent.id() == id)
            || self.servers.iter().any(|server| server.id == id)
    }

    /// Whether there is a mailroom behind these ids.
    pub(crate) fn has_mailroom(&self, ids: &[&str]) -> bool {
        self.agents::<MailroomDeclaration>()
            .any(|mailroom| self.leads_to(ids, &mailroom.id))
    }

    /// Whether one of these ids is `id`, or a virtual server that has it.
    pub(crate) fn leads_to(&self, ids: &[&str], id: &str) -> bool {
        let mut servers = self
            .servers
            .iter()
            .filter(|server| ids.contains(&&*server.id));
        ids.contains(&id) || servers.any(|server| server.members.iter().any(|member| member == id))
    }

    /// The ids of what is behind a listener.
    pub(crate) fn behind<'a>(&'a self, listener: &'a Listener) -> Vec<&'a str> {
        let named: Vec<_> = listener.named().collect();
        if named.is_empty() { self.ids() } else { named }
    }
}

fn folder(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

fn is_yaml(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "yaml" || extension == "yml")
}

fn read_text(path: &Path) -> Result<String, ConfigError> {
    let read = |source| ConfigError::Read {
        path: path.to_owned(),
        source,
    };
    let mut bytes = Vec::new();
    fs::File::open(path)
        .map_err(read)?
        .take(TOPOLOGY_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(read)?;
    if bytes.len() as u64 > TOPOLOGY_BYTES_MAX {
        return Err(ConfigError::TooLarge {
            path: path.to_owned(),
        });
    }
    String::from_utf8(bytes)
        .map_err(|error| read(std::io::Error::new(std::io::ErrorKind::InvalidData, error)))
}

fn parse(
    text: &str,
    is_yaml: bool,
    folder: &Path,
    looks_around: bool,
) -> (Option<Topology>, Vec<Problem>) {
    let mut problems = Problems::of(text);
    let mut topology = None;
    if let Some(sections) = sections(text, is_yaml, folder, &mut problems) {
        let registry = check::check(&sections, &mut problems);
        if looks_around {
            check::check_machine(&sections, &mut problems);
        }
        topology = registry
            .filter(|_| !problems.has_errors())
            .map(|registry| Topology::of(sections, registry));
    }
    (topology, problems.into_sorted())
}

impl Topology {
    fn of(sections: Sections, registry: Registry) -> Self {
        fn values<T>(entries: Vec<Entry<T>>) -> Vec<T> {
            entries.into_iter().map(|entry| entry.value).collect()
        }
        let agents = sections
            .agents
            .iter()
            .map(|entry| (entry.value.id().to_owned(), entry.fingerprint));
        let upstreams = sections
            .upstreams
            .iter()
            .map(|entry| (entry.value.id.clone(), entry.fingerprint));
        let servers = sections
            .servers
            .iter()
            .map(|entry| (entry.value.id.clone(), entry.fingerprint));
        let prints = Prints {
            agents: agents.chain(upstreams).chain(servers).collect(),
            listeners: sections
                .listeners
                .iter()
                .map(|entry| entry.fingerprint)
                .collect(),
            store: sections
                .table_entry::<StoreDeclaration>()
                .map_or(0, |entry| entry.fingerprint),
        };
        Self {
            name: sections.name,
            agents: values(sections.agents),
            descriptions: sections.descriptions,
            upstreams: values(sections.upstreams),
            servers: values(sections.servers),
            listeners: values(sections.listeners),
            tables: values(sections.tables),
            mode: sections.mode,
            registry,
            prints,
        }
    }
}

/// Sections beside [`sections::SECTIONS`].
const LISTS: [&str; 7] = [
    "node",
    "upstream",
    "agent",
    "server",
    "listener",
    "clinic",
    "external_mcp",
];

/// The member that says what something is for: cards are told it, and nothing begins anew for it.
const DESCRIPTION: &str = "description";

/// A declaration, and where its parts stand.
struct Entry<T> {
    value: T,
    tree: Tree,
    /// Of what is written, before anything was repaired.
    pub(super) fingerprint: u64,
}

/// A virtual server (`[[server]]`): a named selection, as one agent of this id.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerDeclaration {
    /// Its name in the directory.
    pub id: String,
    /// The ids of the agents and upstreams behind it.
    pub members: Vec<String>,
    /// Patterns over the names of tools as they are shown; all where there are none.
    #[serde(default)]
    pub tools: Vec<String>,
    /// What it is for, in A2A's cards.
    pub description: Option<String>,
    /// Which names of tools say whose they are.
    #[serde(default)]
    pub prefix: Prefix,
    /// What stands between a member and a name of its own.
    #[serde(default)]
    pub separator: Separator,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeDeclaration {
    name: String,
}

/// All that a file declares.
struct Sections {
    pub(super) name: String,
    tables: Vec<Entry<Box<dyn Section>>>,
    upstreams: Vec<Entry<UpstreamDeclaration>>,
    agents: Vec<Entry<Box<dyn AgentKind>>>,
    /// Purposes of agents, upstreams and virtual servers, by id.
    descriptions: HashMap<String, String>,
    pub(super) servers: Vec<Entry<ServerDeclaration>>,
    listeners: Vec<Entry<Listener>>,
    clinics: Vec<Entry<ClinicEntry>>,
    /// How a person talks to its agent, where it is a bidirectional agent's file.
    mode: Option<ModeDeclaration>,
    /// The ids of agents, upstreams and servers of which nothing could be made.
    unread: Vec<String>,
}

impl Sections {
    fn table_entry<S: Section>(&self) -> Option<&Entry<Box<dyn Section>>> {
        self.tables
            .iter()
            .find(|entry| entry.value.downcast::<S>().is_some())
    }

    fn table<S: Section>(&self) -> Option<&S> {
        self.tables.iter().find_map(|entry| entry.value.downcast())
    }

    /// Upstreams, then agents, each with its table.
    fn agents(&self) -> impl Iterator<Item = (&dyn AgentKind, &Tree)> {
        let upstreams = self
            .upstreams
            .iter()
            .map(|entry| (&entry.value as &dyn AgentKind, &entry.tree));
        upstreams.chain(self.agents.iter().map(|entry| (&*entry.value, &entry.tree)))
    }
}

/// Declared names, with what each stands for.
pub(crate) struct Names<'a> {
    /// Agents and upstreams, by id.
    agents: HashMap<&'a str, &'a dyn AgentKind>,
    /// Virtual servers, by id.
    servers: HashMap<&'a str, &'a ServerDeclaration>,
    /// The ids of those of which nothing could be made.
    unread: HashSet<&'a str>,
    sections: &'a Sections,
}

impl<'a> Names<'a> {
    /// Reports names that can't be.
    fn of(sections: &'a Sections, problems: &mut Problems<'_>) -> Self {
        let unread = sections.unread.iter().map(String::as_str).collect();
        let mut names = Self {
            agents: HashMap::new(),
            servers: HashMap::new(),
            unread,
            sections,
        };
        let mut is_new = |id: &str, tree: &Tree, is_taken: bool| {
            let Some(span) = tree.place("id") else {
                return false;
            };
            let wrong = match id {
                "" => "an id can't be empty".to_owned(),
                _ if is_taken => format!("two agents are called {id}"),
                _ => return true,
            };
            problems.error(Some(span), wrong);
            false
        };
        for (agent, tree) in sections.agents() {
            let id = agent.id();
            if is_new(id, tree, names.agents.contains_key(id)) {
                names.agents.insert(id, agent);
            }
        }
        for Entry { value, tree, .. } in &sections.servers {
            let id = &*value.id;
            if is_new(
                id,
                tree,
                names.agents.contains_key(id) || names.servers.contains_key(id),
            ) {
                names.servers.insert(id, value);
            }
        }
        names
    }

    /// Whether it is an agent or upstream, or may have been meant to be one.
    fn is_known(&self, id: &str) -> bool {
        self.agents.contains_key(id) || self.unread.contains(id)
    }

    /// The agent of that kind and id.
    fn agent<K: AgentKind>(&self, id: &str) -> Option<&'a K> {
        self.agents.get(id)?.downcast()
    }

    /// The agents of one kind, in the order of the file.
    fn all<K: AgentKind>(&self) -> impl Iterator<Item = &'a K> {
        self.sections
            .agents()
            .filter_map(|(agent, _)| agent.downcast())
    }

    fn has_clinics(&self) -> bool {
        !self.sections.clinics.is_empty()
    }

    fn upstream_ids(&self) -> impl Iterator<Item = &'a str> {
        self.all::<UpstreamDeclaration>()
            .map(|upstream| &*upstream.id)
    }

    /// An error unless `id` is one of these models.
    fn check_model(
        &self,
        id: &str,
        models: impl Iterator<Item = &'a str>,
        span: Option<Span<usize>>,
        problems: &mut Problems<'_>,
    ) {
        let models: Vec<_> = models.collect();
        if !self.unread.contains(id) && !models.contains(&id) {
            problems.unknown(span, format!("there is no model {id}"), id, models);
        }
    }

    /// A warning unless a mailroom has `id` as a member.
    fn check_has_mail(&self, id: &str, tree: &Tree, problems: &mut Problems<'_>) {
        if !self
            .all::<MailroomDeclaration>()
            .any(|room| room.leads_to().contains(&id))
        {
            let help = Some(format!(
                "write [[agent.member]] with `id = \"{id}\"` below a mailroom"
            ));
            let message = format!("{id} has no mail: no mailroom has it as a member");
            problems.warning_with(tree.place("id"), message, help);
        }
    }
}

/// Reads a text into its sections; `None` where it can't be read at all. Paths are resolved against `folder`.
fn sections(
    text: &str,
    is_yaml: bool,
    folder: &Path,
    problems: &mut Problems<'_>,
) -> Option<Sections> {
    let mut root = tree::read(text, is_yaml, problems)?;
    // What follows from a line that can't be read would be told as a mistake of its own.
    if problems.has_errors() {
        return None;
    }
    if !matches!(root.value, Value::Table(_)) {
        problems.error(Some(root.span), "a topology is a table of sections");
        return None;
    }
    let is_other = bidirectional::is_one(&root);
    let known: Vec<_> = LISTS
        .into_iter()
        .chain(sections::SECTIONS.map(|(name, _)| name))
        .collect();
    let is_known = |name: &str| known.contains(&name) || is_other && bidirectional::is_known(name);
    let unknown: Vec<_> = root
        .members()
        .iter()
        .filter(|(key, _)| !is_known(&key.name))
        .cloned()
        .collect();
    for (key, _) in unknown {
        let help = did_you_mean(&key.name, known.iter().copied())
            .or_else(|| Some(format!("there are {}", known.join(", "))));
        let level = if is_other {
            Level::Warning
        } else {
            Level::Error
        };
        problems.add(
            level,
            Some(key.span),
            format!("a topology has no section `{}`", key.name),
            help,
        );
    }
    // `None` where its mistakes have been told.
    let other = if is_other {
        Some(bidirectional::translate(&mut root, folder, problems)?)
    } else {
        None
    };
    let mut take = |name: &str| root.take(name).map(|(_, tree)| tree);
    let foreign = take("external_mcp").map(|tree| magictunnel::translate(tree, problems));
    let is_foreign = foreign.is_some();
    let (foreign_upstreams, foreign_routing) = foreign
        .map(|f| (f.upstreams, f.routing))
        .unwrap_or_default();

    let sources = [take("upstream"), take("agent"), take("server")];
    let written = sources
        .iter()
        .flatten()
        .flat_map(Tree::items)
        .chain(&foreign_upstreams);
    let mut unread: Vec<_> = written
        .filter_map(|tree| tree.get("id")?.text())
        .map(str::to_owned)
        .collect();
    let [upstreams, agents, servers] = sources;
    let name = match (take("node"), is_foreign) {
        _ if other.is_some() => other.as_ref().map(|other| other.name.clone()),
        (Some(tree), _) => {
            one::<NodeDeclaration>(Some(tree), "[node]", problems).map(|node| node.value.name)
        }
        (None, true) => Some(magictunnel::NAME_DEFAULT.to_owned()),
        (None, false) => {
            problems.error(None, "there is no section [node] with the node's `name`");
            None
        }
    };
    let mut foreign_routing = foreign_routing;
    let mut tables = Vec::new();
    for (name, read) in sections::SECTIONS {
        let theirs = if name == "routing" {
            foreign_routing.take()
        } else {
            None
        };
        let ours = take(name);
        if let (Some(ours), Some(_)) = (&ours, &theirs) {
            problems.error(
                Some(ours.span.clone()),
                "write `routing` or `external_routing`, not both",
            );
        }
        tables.extend(ours.or(theirs).and_then(|tree| read(tree, name, problems)));
    }
    let mut upstreams: Vec<Entry<UpstreamDeclaration>> = many(upstreams, "upstream", problems);
    upstreams.extend(entries(
        foreign_upstreams,
        "a server",
        Level::Warning,
        problems,
    ));
    upstreams
        .iter_mut()
        .for_each(|upstream| upstream.value.resolve(folder));
    let agents = items(agents, "agent", problems);
    let agents = agents
        .into_iter()
        .filter_map(|tree| kinds::read(tree, problems));
    let (mut agents, of_cards): (Vec<_>, Vec<_>) = agents.unzip();
    agents
        .iter_mut()
        .for_each(|agent| agent.value.resolve(folder));
    let mut listener_trees = items(take("listener"), "listener", problems);
    if is_foreign && listener_trees.is_empty() {
        listener_trees.push(magictunnel::listener());
    }
    let mut listeners: Vec<Entry<Listener>> =
        entries(listener_trees, "[[listener]]", Level::Error, problems);
    for listener in &mut listeners {
        listener.value.resolve(folder);
    }
    let mode = other.map(|other| {
        agents.extend(other.agents);
        listeners.push(other.listener);
        other.mode
    });
    let servers: Vec<Entry<ServerDeclaration>> = many(servers, "server", problems);
    let mut sections = Sections {
        name: name.unwrap_or_default(),
        tables,
        upstreams,
        agents,
        descriptions: HashMap::new(),
        servers,
        unread: Vec::new(),
        listeners,
        clinics: many(take("clinic"), "clinic", problems),
        mode,
    };
    let servers = sections.servers.iter().map(|entry| &entry.value);
    unread.retain(|id| {
        !sections.agents().any(|(agent, _)| agent.id() == id)
            && !servers.clone().any(|it| it.id == *id)
    });
    let of_cards = sections
        .agents
        .iter()
        .map(|entry| entry.value.id())
        .zip(of_cards);
    let own = sections
        .agents()
        .map(|(agent, _)| (agent.id(), agent.description().map(str::to_owned)));
    let of_servers = servers.map(|server| (&*server.id, server.description.clone()));
    let described = of_cards.chain(own).chain(of_servers);
    let descriptions = described
        .filter_map(|(id, told)| Some((id.to_owned(), told?)))
        .collect();
    (sections.descriptions, sections.unread) = (descriptions, unread);
    Some(sections)
}

fn one<T: DeserializeOwned>(
    tree: Option<Tree>,
    what: &str,
    problems: &mut Problems<'_>,
) -> Option<Entry<T>> {
    entry(tree?, what, Level::Error, problems)
}

fn many<T: DeserializeOwned>(
    tree: Option<Tree>,
    name: &str,
    problems: &mut Problems<'_>,
) -> Vec<Entry<T>> {
    let items = items(tree, name, problems);
    entries(items, &format!("[[{name}]]"), Level::Error, problems)
}

fn entries<T: DeserializeOwned>(
    trees: Vec<Tree>,
    what: &str,
    unknown: Level,
    problems: &mut Problems<'_>,
) -> Vec<Entry<T>> {
    trees
        .into_iter()
        .filter_map(|tree| entry(tree, what, unknown, problems))
        .collect()
}

fn entry<T: DeserializeOwned>(
    tree: Tree,
    what: &str,
    unknown: Level,
    problems: &mut Problems<'_>,
) -> Option<Entry<T>> {
    let mut tree = table(tree, what, problems)?;
    let fingerprint = tree.fingerprint_without(DESCRIPTION);
    let value = decode_as(&mut tree, what, unknown, problems)?;
    Some(Entry {
        value,
        tree,
        fingerprint,
    })
}

/// The tree, where it is a table.
fn table(tree: Tree, what: &str, problems: &mut Problems<'_>) -> Option<Tree> {
    if matches!(tree.value, Value::Table(_)) {
        return Some(tree);
    }
    problems.error(Some(tree.span), format!("{what} must be a table"));
    None
}

/// Default of switches that are on.
fn yes() -> bool {
    true
}

/// Default class of what people say.
fn personal() -> DataClass {
    DataClass::Personal
}

fn items(tree: Option<Tree>, name: &str, problems: &mut Problems<'_>) -> Vec<Tree> {
    match tree {
        None => Vec::new(),
        Some(Tree {
            value: Value::List(items),
            ..
        }) => items,
        Some(tree) => {
            problems.error_with(
                Some(tree.span),
                format!("`{name}` must be a list"),
                Some(format!("in TOML each begins with [[{name}]]")),
            );
            Vec::new()
        }
    }
}
