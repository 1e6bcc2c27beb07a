//! The topology file: which agents there are, which servers elsewhere, who listens, who answers what.
//!
//! A text becomes a tree that knows where each value stands (`text`), its sections become declarations (`file`, `decode`),
//! and these are held against each other (`check`) and against this machine (`surroundings`). Every mistake is found, not
//! only the first.

mod a2a;
mod agent;
mod check;
mod decode;
mod foreign;
mod listener;
mod mail;
mod orchestrator;
mod problem;
mod store;
#[cfg(test)]
mod tests;
mod tree;
mod upstream;

use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;

use callboard_clinics::plan::{ClinicEntry, Registry};
use callboard_message::DataClass;
use decode::decode_as;
use foreign::translate_external;
use problem::{Problems, did_you_mean};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tree::{Tree, Value};

pub use a2a::{
    BindingName, InterfaceDeclaration, OauthDeclaration, ProviderDeclaration, Range, RemoteDeclaration, VersionName,
    WebUrl,
};
pub use agent::AgentDeclaration;
pub use foreign::{
    BIDIRECTIONAL_ID_DEFAULT, BIDIRECTIONAL_NAME_DEFAULT, BIDIRECTIONAL_PORT_DEFAULT, CLAUDE_KEY_VARIABLES,
    CLAUDE_MODEL_DEFAULT, ModeDeclaration,
};
pub use listener::{CompatTransport, Dialect, Listener, Protocol, Speaks, Trust};
pub(crate) use mail::SECONDS_A_DAY;
pub use mail::{MailroomDeclaration, MemberDeclaration, Pane, TmuxDeclaration, WebhookDeclaration};
pub(crate) use orchestrator::EXECUTE_COMMAND;
pub use orchestrator::{CommandDeclaration, LearningDeclaration, OrchestratorDeclaration, Structured};
pub(crate) use problem::closest;
pub use problem::{ConfigError, Level, PROBLEMS_MAX, Problem};
pub use store::{Audited, RetentionDeclaration, StoreDeclaration};
pub use upstream::{
    EraName, PolicyDeclaration, RoutingDeclaration, SamplingDeclaration, ServerDeclaration, StartWhen, Transport,
    UpstreamDeclaration, UpstreamError,
};

/// The largest topology file that is read, in bytes.
pub const TOPOLOGY_BYTES_MAX: u64 = 1024 * 1024;

/// A checked topology: its names fit together, its paths are resolved.
#[derive(Debug)]
pub struct Topology {
    /// The node's name.
    pub name: String,
    /// The agents to start.
    pub agents: Vec<AgentDeclaration>,
    /// What agents are for, by id, where the file says it and their kind doesn't.
    pub descriptions: HashMap<String, String>,
    /// The MCP servers elsewhere.
    pub upstreams: Vec<UpstreamDeclaration>,
    /// Selections of both.
    pub servers: Vec<ServerDeclaration>,
    /// The sockets to open, each in front of some of them.
    pub listeners: Vec<Listener>,
    /// What holds for all that crosses a boundary.
    pub policy: PolicyDeclaration,
    /// Who answers what upstreams ask.
    pub routing: RoutingDeclaration,
    /// Where the node keeps what must last; `None` where the file doesn't say.
    pub store: Option<StoreDeclaration>,
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
        Ok(Checked { topology, problems, text })
    }

    /// What the agent, upstream or virtual server of that id is for, where the file says it.
    pub(crate) fn description(&self, id: &str) -> Option<&str> {
        let of_agent = self.descriptions.get(id).or_else(|| self.orchestrator(id)?.description.as_ref());
        let mut upstreams = self.upstreams.iter().filter(|upstream| upstream.id == id);
        let mut servers = self.servers.iter().filter(|server| server.id == id);
        let others = || {
            upstreams.find_map(|it| it.description.as_ref()).or_else(|| servers.find_map(|it| it.description.as_ref()))
        };
        of_agent.or_else(others).map(String::as_str)
    }

    /// The ids of all agents and upstreams, in the order of the file: what a listener that names nobody leads to. Ways out
    /// of a mailroom are nobody's to come to.
    pub(crate) fn ids(&self) -> Vec<&str> {
        let agents = self.agents.iter().filter(|agent| !agent.is_way()).map(AgentDeclaration::id);
        agents.chain(self.upstreams.iter().map(|upstream| &*upstream.id)).collect()
    }

    /// The orchestrator of that id.
    pub fn orchestrator(&self, id: &str) -> Option<&OrchestratorDeclaration> {
        self.agents.iter().find_map(|agent| match agent {
            AgentDeclaration::Orchestrator(declared) if declared.id == id => Some(&**declared),
            _ => None,
        })
    }

    /// A listener at `bind` in front of the agent `id` alone: as the first one of A2A is declared, if there is one. Its port for
    /// gRPC stays, at the address of `bind`.
    pub(crate) fn a2a_listener(&self, id: &str, bind: SocketAddr) -> Listener {
        let declared = self.listeners.iter().find(|listener| listener.protocol == Protocol::A2a);
        let mut listener = declared.cloned().unwrap_or_else(|| Listener::a2a(bind));
        if listener.bind != bind {
            // Not where others reach the declared one; nobody reaches the address of all of them.
            let here = |port: u16| bind.ip().is_unspecified().then(|| format!("localhost:{port}"));
            listener.public_url = here(bind.port()).and_then(|here| WebUrl::try_from(format!("http://{here}")).ok());
            listener.grpc_bind = listener.grpc_bind.map(|grpc| SocketAddr::new(bind.ip(), grpc.port()));
            listener.grpc_target = listener.grpc_bind.and_then(|grpc| here(grpc.port()));
        }
        Listener { bind, agent: Some(id.to_owned()), agents: Vec::new(), ..listener }
    }

    /// The highest class of what these ids' messages and replies may hold.
    pub(crate) fn class_of(&self, ids: &[&str]) -> DataClass {
        let agents = self.agents.iter().map(|agent| (agent.id(), agent.class()));
        let upstreams = self.upstreams.iter().map(|upstream| (&*upstream.id, upstream.class));
        let behind = agents.chain(upstreams).filter(|(id, _)| self.leads_to(ids, id)).map(|(_, class)| class);
        behind.max().unwrap_or_default()
    }

    /// Whether an agent, an upstream or a virtual server is called that.
    pub(crate) fn has(&self, id: &str) -> bool {
        let servers = self.servers.iter().map(|server| &*server.id);
        let upstreams = self.upstreams.iter().map(|upstream| &*upstream.id);
        self.agents.iter().map(AgentDeclaration::id).chain(upstreams).chain(servers).any(|known| known == id)
    }

    /// Whether there is a mailroom behind these ids.
    pub(crate) fn has_mailroom(&self, ids: &[&str]) -> bool {
        let is_one = |agent: &&AgentDeclaration| matches!(agent, AgentDeclaration::Mailroom(_));
        self.agents.iter().filter(is_one).any(|agent| self.leads_to(ids, agent.id()))
    }

    /// Whether one of these ids is `id`, or a virtual server that has it.
    pub(crate) fn leads_to(&self, ids: &[&str], id: &str) -> bool {
        let mut servers = self.servers.iter().filter(|server| ids.contains(&&*server.id));
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
    path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
}

fn read_text(path: &Path) -> Result<String, ConfigError> {
    let read = |source| ConfigError::Read { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    fs::File::open(path).map_err(read)?.take(TOPOLOGY_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(read)?;
    if bytes.len() as u64 > TOPOLOGY_BYTES_MAX {
        return Err(ConfigError::TooLarge { path: path.to_owned() });
    }
    String::from_utf8(bytes).map_err(|error| read(std::io::Error::new(std::io::ErrorKind::InvalidData, error)))
}

fn parse(text: &str, is_yaml: bool, folder: &Path, looks_around: bool) -> (Option<Topology>, Vec<Problem>) {
    let mut problems = Problems::of(text);
    let mut topology = None;
    if let Some(sections) = sections(text, is_yaml, folder, &mut problems) {
        let registry = check::check(&sections, &mut problems);
        if looks_around {
            check::check_machine(&sections, &mut problems);
        }
        topology = registry.filter(|_| !problems.has_errors()).map(|registry| Topology::of(sections, registry));
    }
    (topology, problems.into_sorted())
}

impl Topology {
    fn of(sections: Sections, registry: Registry) -> Self {
        fn values<T>(entries: Vec<Entry<T>>) -> Vec<T> {
            entries.into_iter().map(|entry| entry.value).collect()
        }
        let agents = sections.agents.iter().map(|entry| (entry.value.id().to_owned(), entry.fingerprint));
        let upstreams = sections.upstreams.iter().map(|entry| (entry.value.id.clone(), entry.fingerprint));
        let servers = sections.servers.iter().map(|entry| (entry.value.id.clone(), entry.fingerprint));
        let prints = Prints {
            agents: agents.chain(upstreams).chain(servers).collect(),
            listeners: sections.listeners.iter().map(|entry| entry.fingerprint).collect(),
            store: sections.store.as_ref().map_or(0, |entry| entry.fingerprint),
        };
        Self {
            name: sections.name,
            agents: values(sections.agents),
            descriptions: sections.descriptions,
            upstreams: values(sections.upstreams),
            servers: values(sections.servers),
            listeners: values(sections.listeners),
            policy: sections.policy.value,
            routing: sections.routing.value,
            store: sections.store.map(|entry| entry.value),
            mode: sections.mode,
            registry,
            prints,
        }
    }
}

const SECTIONS: [&str; 10] =
    ["node", "store", "policy", "upstream", "agent", "server", "routing", "listener", "clinic", "external_mcp"];

/// The member that says what something is for: cards are told it, and nothing begins anew for it.
const DESCRIPTION: &str = "description";

/// A declaration, and where its parts stand.
struct Entry<T> {
    value: T,
    tree: Tree,
    /// Of what is written, before anything was repaired.
    pub(super) fingerprint: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeDeclaration {
    name: String,
}

/// All that a file declares.
struct Sections {
    pub(super) name: String,
    policy: Entry<PolicyDeclaration>,
    routing: Entry<RoutingDeclaration>,
    store: Option<Entry<StoreDeclaration>>,
    upstreams: Vec<Entry<UpstreamDeclaration>>,
    agents: Vec<Entry<AgentDeclaration>>,
    /// What agents are for, by id.
    descriptions: HashMap<String, String>,
    pub(super) servers: Vec<Entry<ServerDeclaration>>,
    listeners: Vec<Entry<Listener>>,
    clinics: Vec<Entry<ClinicEntry>>,
    /// How a person talks to its agent, where it is a bidirectional agent's file.
    mode: Option<ModeDeclaration>,
    /// The ids of agents, upstreams and servers of which nothing could be made.
    unread: Vec<String>,
}

/// Reads a text into its sections; `None` where it can't be read at all. Paths are resolved against `folder`.
fn sections(text: &str, is_yaml: bool, folder: &Path, problems: &mut Problems<'_>) -> Option<Sections> {
    let mut root = tree::read(text, is_yaml, problems)?;
    // What follows from a line that can't be read would be told as a mistake of its own.
    if problems.has_errors() {
        return None;
    }
    if !matches!(root.value, Value::Table(_)) {
        problems.error(Some(root.span), "a topology is a table of sections");
        return None;
    }
    let is_other = foreign::is_bidirectional(&root);
    let is_known = |name: &str| SECTIONS.contains(&name) || is_other && foreign::is_known(name);
    let unknown: Vec<_> = root.members().iter().filter(|(key, _)| !is_known(&key.name)).cloned().collect();
    for (key, _) in unknown {
        let help = did_you_mean(&key.name, SECTIONS).or_else(|| Some(format!("there are {}", SECTIONS.join(", "))));
        let level = if is_other { Level::Warning } else { Level::Error };
        problems.add(level, Some(key.span), format!("a topology has no section `{}`", key.name), help);
    }
    // `None` where its mistakes have been told.
    let other = if is_other { Some(foreign::translate(&mut root, folder, problems)?) } else { None };
    let mut take = |name: &str| root.take(name).map(|(_, tree)| tree);
    let foreign = take("external_mcp").map(|tree| translate_external(tree, problems));
    let is_foreign = foreign.is_some();
    let (foreign_upstreams, foreign_routing) = foreign.map(|f| (f.upstreams, f.routing)).unwrap_or_default();

    let sources = [take("upstream"), take("agent"), take("server")];
    let written = sources.iter().flatten().flat_map(Tree::items).chain(&foreign_upstreams);
    let mut unread: Vec<_> = written.filter_map(|tree| tree.get("id")?.text()).map(str::to_owned).collect();
    let [upstreams, agents, servers] = sources;
    let name = match (take("node"), is_foreign) {
        _ if other.is_some() => other.as_ref().map(|other| other.name.clone()),
        (Some(tree), _) => one::<NodeDeclaration>(Some(tree), "[node]", problems).map(|node| node.value.name),
        (None, true) => Some(foreign::NAME_DEFAULT.to_owned()),
        (None, false) => {
            problems.error(None, "there is no section [node] with the node's `name`");
            None
        }
    };
    let policy = one(take("policy"), "[policy]", problems);
    let store = one(take("store"), "[store]", problems);
    let routing_tree = match (take("routing"), foreign_routing) {
        (Some(ours), Some(_)) => {
            problems.error(Some(ours.span.clone()), "write `routing` or `external_routing`, not both");
            Some(ours)
        }
        (ours, theirs) => ours.or(theirs),
    };
    let routing = one(routing_tree, "[routing]", problems);
    let mut upstreams: Vec<Entry<UpstreamDeclaration>> = many(upstreams, "upstream", problems);
    upstreams.extend(entries(foreign_upstreams, "a server", Level::Warning, problems));
    upstreams.iter_mut().for_each(|upstream| upstream.value.resolve(folder));
    let agents = items(agents, "agent", problems);
    let agents = agents.into_iter().filter_map(|tree| agent::read(tree, problems));
    let (mut agents, descriptions): (Vec<_>, Vec<_>) = agents.unzip();
    let told = agents.iter().zip(descriptions).filter_map(|(entry, told)| Some((entry.value.id().to_owned(), told?)));
    let descriptions = told.collect();
    agents.iter_mut().for_each(|agent| agent.value.resolve(folder));
    let mut listener_trees = items(take("listener"), "listener", problems);
    if is_foreign && listener_trees.is_empty() {
        listener_trees.push(foreign::external_listener());
    }
    let mut listeners: Vec<Entry<Listener>> = entries(listener_trees, "[[listener]]", Level::Error, problems);
    for listener in &mut listeners {
        listener.value.resolve(folder);
    }
    let mode = other.map(|other| {
        agents.extend(other.agents);
        listeners.push(other.listener);
        other.mode
    });
    let servers: Vec<Entry<ServerDeclaration>> = many(servers, "server", problems);
    unread.retain(|id| {
        let is_read = agents.iter().any(|entry| entry.value.id() == id)
            || upstreams.iter().any(|entry| entry.value.id == *id)
            || servers.iter().any(|entry| entry.value.id == *id);
        !is_read
    });
    Some(Sections {
        name: name.unwrap_or_default(),
        policy: policy.unwrap_or_else(empty),
        routing: routing.unwrap_or_else(empty),
        store,
        upstreams,
        agents,
        descriptions,
        servers,
        unread,
        listeners,
        clinics: many(take("clinic"), "clinic", problems),
        mode,
    })
}

fn empty<T: Default>() -> Entry<T> {
    Entry { value: T::default(), tree: Tree::empty(), fingerprint: 0 }
}

fn one<T: DeserializeOwned>(tree: Option<Tree>, what: &str, problems: &mut Problems<'_>) -> Option<Entry<T>> {
    entry(tree?, what, Level::Error, problems)
}

fn many<T: DeserializeOwned>(tree: Option<Tree>, name: &str, problems: &mut Problems<'_>) -> Vec<Entry<T>> {
    let items = items(tree, name, problems);
    entries(items, &format!("[[{name}]]"), Level::Error, problems)
}

fn entries<T: DeserializeOwned>(
    trees: Vec<Tree>,
    what: &str,
    unknown: Level,
    problems: &mut Problems<'_>,
) -> Vec<Entry<T>> {
    trees.into_iter().filter_map(|tree| entry(tree, what, unknown, problems)).collect()
}

fn entry<T: DeserializeOwned>(
    mut tree: Tree,
    what: &str,
    unknown: Level,
    problems: &mut Problems<'_>,
) -> Option<Entry<T>> {
    let fingerprint = tree.fingerprint_without(DESCRIPTION);
    if !matches!(tree.value, Value::Table(_)) {
        problems.error(Some(tree.span), format!("{what} must be a table"));
        return None;
    }
    let value = decode_as(&mut tree, what, unknown, problems)?;
    Some(Entry { value, tree, fingerprint })
}

fn items(tree: Option<Tree>, name: &str, problems: &mut Problems<'_>) -> Vec<Tree> {
    match tree {
        None => Vec::new(),
        Some(Tree { value: Value::List(items), .. }) => items,
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
