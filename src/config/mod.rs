//! Topology files: parsing, validation, and the declarations of agents, upstreams, listeners and
//! policies.
//!
//! A text becomes a tree that keeps the source position of each value (`tree`). Its sections are
//! decoded into declarations (`decode`, `sections`, `kinds`, `listener`). The declarations are
//! checked against each other and against this machine (`check`). All problems are reported, not
//! only the first.

mod address;
mod advice;
mod bidirectional;
mod check;
mod decode;
mod kinds;
mod listener;
mod listener_auth;
mod lists;
mod magictunnel;
mod node;
mod problem;
mod read;
mod renamed;
mod schema;
mod schema_parts;
mod secret;
mod sections;
#[cfg(test)]
mod tests;
mod tls;
mod tree;

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::ops::Range as Span;
use std::path::Path;
use std::time::Duration;

use callboard_clinics::plan::{ClinicEntry, ClinicRegistry};
use callboard_gateway::aggregate::{NameSeparator, PrefixMode};
use callboard_gateway::question_router::QuestionRouterOptions;
use callboard_guardrail::CustomRule;
use callboard_message::DataClass;
use decode::decode_as;
use node::NodeDeclaration;
use problem::ProblemCollector;
use read::{read_sections, read_text};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tree::{ConfigTree, ConfigValue};

#[cfg(feature = "cli")]
pub(crate) use address::parse_socket_address;
pub use address::{NetworkRange, WebUrl};
pub use bidirectional::{
    BIDIRECTIONAL_ID_DEFAULT, BIDIRECTIONAL_NAME_DEFAULT, BIDIRECTIONAL_PORT_DEFAULT,
    CLAUDE_KEY_VARIABLES, CLAUDE_MODEL_DEFAULT, ReplDeclaration,
};
pub use kinds::{
    A2aAgentDeclaration, A2aBindingName, A2aVersionName, CommandDeclaration, DeciderEntry,
    DeciderList, DiscoveryDeclaration, EmbeddingDeclaration, InterfaceDeclaration,
    MailMemberDeclaration, MailroomDeclaration, McpEraName, ModelDeclaration, OauthDeclaration,
    OrchestratorDeclaration, PersonDeclaration, PipelineError, RunningOrchestrator,
    SamplingDeclaration, StartError, StructuredOutput, TimedDecider, TmuxDeclaration, TmuxPane,
    UpstreamDeclaration, UpstreamError, UpstreamStart, UpstreamTransport, WebhookDeclaration,
};
pub(crate) use kinds::{
    AgentDeclaration, PipelineAgents, PipelineOptions, PushInboxes, Reachability, RunningAgent,
    StartContext, spawn_cloned,
};
pub(crate) use listener::UNAUTHENTICATED_MESSAGE;
pub use listener::{
    AnonymousAccess, CompatTransport, ListenerDeclaration, ListenerDialect, ListenerProtocol,
    ProviderDeclaration, ServedProtocol,
};
pub use listener_auth::{
    AlgorithmName, AuthDeclaration, ClaimsDeclaration, IssuerDeclaration, KeySetPlace,
};
pub(crate) use problem::closest_name;
#[cfg(feature = "cli")]
pub(crate) use problem::find_program;
pub use problem::{ConfigError, ConfigProblem, PROBLEMS_MAX, Severity};
#[cfg(feature = "cli")]
pub(crate) use problem::{suggestion_suffix, variable_for_message};
pub use schema::topology_schema;
pub(crate) use secret::read_secret;
use sections::SectionDeclaration;
pub(crate) use sections::known_class;
pub use sections::{
    AuditScope, ClinicsDeclaration, ConsoleDeclaration, PolicyDeclaration, RetentionDeclaration,
    RoutingDeclaration, StoreDeclaration, TelemetryDeclaration,
};
pub use tls::{CertificateClientDeclaration, ListenerTlsDeclaration};
pub(crate) use tls::{client_tls, resolve_ca};

pub(crate) const SECONDS_PER_DAY: u64 = 24 * 60 * 60;

/// Maximum size of a topology file in bytes.
pub const TOPOLOGY_BYTES_MAX: u64 = 1024 * 1024;

/// A validated topology: references resolve, and paths are absolute or relative to this process.
#[derive(Debug)]
pub struct Topology {
    /// The node's name.
    pub name: String,
    /// Time that calls in progress have to complete when a listener closes. Default: 5 s.
    pub drain_timeout: Duration,
    /// Agents to start, without upstreams.
    pub(crate) agents: Vec<Box<dyn AgentDeclaration>>,
    /// Descriptions of agents, upstreams and virtual servers by id, where the file has one.
    descriptions: HashMap<String, String>,
    /// MCP servers behind the bridge, in file order.
    pub upstreams: Vec<UpstreamDeclaration>,
    /// Virtual servers: named selections of agents and upstreams.
    pub servers: Vec<ServerDeclaration>,
    /// Listeners to open.
    pub listeners: Vec<ListenerDeclaration>,
    tables: Vec<Box<dyn SectionDeclaration>>,
    /// REPL settings; `None` unless this is a bidirectional agent's file.
    pub mode: Option<ReplDeclaration>,
    /// Registry of the clinics that an orchestrator on this node may query.
    pub registry: ClinicRegistry,
    /// Fingerprints by which a reload finds changed declarations.
    pub(crate) fingerprints: ConfigFingerprints,
}

/// Fingerprints of declarations. A fingerprint changes if the written declaration does.
#[derive(Debug, Default)]
pub(crate) struct ConfigFingerprints {
    /// Fingerprints of agents, upstreams and virtual servers, by id.
    pub(crate) agents: HashMap<String, u64>,
    /// Fingerprints of listeners, in file order.
    pub(crate) listeners: Vec<u64>,
    /// Fingerprint of `[store]`; 0 without one.
    pub(crate) store: u64,
}

/// Result of [`Topology::check`].
#[derive(Debug)]
pub struct CheckReport {
    /// Parsed topology; `None` if there are errors.
    pub topology: Option<Topology>,
    /// Errors and warnings, in file order.
    pub problems: Vec<ConfigProblem>,
    /// Text of the file.
    pub text: String,
}

impl Topology {
    /// Reads and validates a topology file: YAML if its name ends in `.yaml` or `.yml`, else TOML.
    /// Files, variables and programs that it names are not looked up on this machine; see
    /// [`Topology::check`].
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        Self::read_with_warnings(path).map(|(topology, _)| topology)
    }

    /// Reads a topology file as [`Topology::read`] does, and returns its warnings too.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub(crate) fn read_with_warnings(
        path: &Path,
    ) -> Result<(Self, Vec<ConfigProblem>), ConfigError> {
        let text = read_text(path)?;
        match parse_topology(&text, is_yaml(path), parent_folder(path), false) {
            (Some(topology), warnings) => Ok((topology, warnings)),
            (None, problems) => Err(ConfigError::invalid(path, problems)),
        }
    }

    /// Parses and validates a text. Relative paths are resolved against `folder`.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn parse(text: &str, is_yaml: bool, folder: &Path) -> Result<Self, ConfigError> {
        let (topology, problems) = parse_topology(text, is_yaml, folder, false);
        topology.ok_or_else(|| ConfigError::invalid(Path::new("topology"), problems))
    }

    /// Reads a file and reports all its problems, including files, variables and programs that this
    /// machine lacks.
    ///
    /// # Errors
    /// [`ConfigError::Read`] or [`ConfigError::TooLarge`] if the file can't be read.
    pub fn check(path: &Path) -> Result<CheckReport, ConfigError> {
        let text = read_text(path)?;
        let (topology, problems) = parse_topology(&text, is_yaml(path), parent_folder(path), true);
        Ok(CheckReport {
            topology,
            problems,
            text,
        })
    }

    /// Returns the section of type `S`, if declared.
    pub(crate) fn section<S: SectionDeclaration>(&self) -> Option<&S> {
        self.tables.iter().find_map(|table| table.downcast())
    }

    /// Returns the `[clinics]` section, if declared.
    pub(crate) fn clinics_section(&self) -> Option<&ClinicsDeclaration> {
        self.section()
    }

    /// Returns the operator's guardrail rules, which apply beside the built-in ones.
    pub(crate) fn guard_rules(&self) -> Vec<CustomRule> {
        self.section()
            .map(|policy: &PolicyDeclaration| policy.guard_rules.clone())
            .unwrap_or_default()
    }

    /// Adds a section unless one of its type is declared.
    pub(crate) fn add_section_if_absent<S: SectionDeclaration>(&mut self, section: S) {
        if self.section::<S>().is_none() {
            self.tables.push(Box::new(section));
        }
    }

    /// Returns the declared description of an agent, upstream or virtual server.
    pub(crate) fn description(&self, id: &str) -> Option<&str> {
        self.descriptions.get(id).map(String::as_str)
    }

    /// Returns all agents, then all upstreams.
    pub(crate) fn agents_and_upstreams(&self) -> impl Iterator<Item = &dyn AgentDeclaration> {
        let upstreams = self
            .upstreams
            .iter()
            .map(|upstream| upstream as &dyn AgentDeclaration);
        self.agents.iter().map(|agent| &**agent).chain(upstreams)
    }

    /// Returns the agents of one kind.
    pub(crate) fn agents_of_kind<K: AgentDeclaration>(&self) -> impl Iterator<Item = &K> {
        self.agents_and_upstreams()
            .filter_map(|agent| agent.downcast())
    }

    /// Returns whether there is an upstream or a remote A2A agent.
    pub(crate) fn has_remote_agents(&self) -> bool {
        self.agents_and_upstreams().any(is_remote)
    }

    /// Returns the agent of kind `K` with this id.
    pub(crate) fn agent_of_kind<K: AgentDeclaration>(&self, id: &str) -> Option<&K> {
        self.agents_of_kind().find(|agent: &&K| agent.id() == id)
    }

    /// Returns the fingerprint of the declaration with this id; 0 if there is none.
    pub(crate) fn fingerprint(&self, id: &str) -> u64 {
        self.fingerprints
            .agents
            .get(id)
            .copied()
            .unwrap_or_default()
    }

    /// Returns the id of the only upstream, which keeps its tool names; `None` with several, or
    /// none.
    pub(crate) fn sole_upstream(&self) -> Option<&str> {
        match &*self.upstreams {
            [sole] => Some(&sole.id),
            _ => None,
        }
    }

    /// Returns the ids behind a listener that names no agent: all agents and upstreams in file
    /// order, except tmux panes and webhooks, which only a mailroom reaches.
    pub(crate) fn servable_ids(&self) -> Vec<&str> {
        self.agents_and_upstreams()
            .filter(|agent| agent.reachability() != Reachability::Mail)
            .map(AgentDeclaration::id)
            .collect()
    }

    /// Returns the declared orchestrator with this id.
    pub fn orchestrator(&self, id: &str) -> Option<&OrchestratorDeclaration> {
        self.agent_of_kind(id)
    }

    /// Returns the options of the question router: strategies, grants of each upstream, and models.
    pub fn answer_options(&self) -> QuestionRouterOptions {
        let RoutingDeclaration {
            sampling,
            elicitation,
        } = self.section().cloned().unwrap_or_default();
        QuestionRouterOptions {
            sampling,
            elicitation,
            servers: self
                .upstreams
                .iter()
                .map(|upstream| (upstream.id.clone(), upstream.server_grants()))
                .collect(),
            models: self.answering_models().map(str::to_owned).collect(),
        }
    }

    /// Returns an A2A listener at `bind` for the agent `id` only. Other keys are those of the first
    /// A2A listener in the file, or the defaults. A declared gRPC port is kept, at the IP address
    /// of `bind`.
    pub(crate) fn a2a_listener(&self, id: &str, bind: SocketAddr) -> ListenerDeclaration {
        let declared = self
            .listeners
            .iter()
            .find(|listener| listener.protocol == ListenerProtocol::A2a);
        let mut listener = declared
            .cloned()
            .unwrap_or_else(|| ListenerDeclaration::a2a_default(bind));
        if listener.bind != bind {
            // The declared public URL belongs to another address. An unspecified address can't be
            // connected to.
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
        ListenerDeclaration {
            bind,
            agent: Some(id.to_owned()),
            agents: Vec::new(),
            ..listener
        }
    }

    /// Returns the highest data class among the agents with these ids.
    pub(crate) fn class_of(&self, ids: &[&str]) -> DataClass {
        let classes = self.agents_behind(ids).map(AgentDeclaration::class);
        classes.max().unwrap_or_default()
    }

    /// Returns the agents and upstreams with these ids, and the members of virtual servers with them.
    pub(crate) fn agents_behind(
        &self,
        ids: &[&str],
    ) -> impl Iterator<Item = &dyn AgentDeclaration> {
        self.agents_and_upstreams()
            .filter(|agent| self.includes_agent(ids, agent.id()))
    }

    /// Whether an agent, upstream or virtual server has this id.
    pub(crate) fn has_id(&self, id: &str) -> bool {
        self.agents_and_upstreams().any(|agent| agent.id() == id)
            || self.servers.iter().any(|server| server.id == id)
    }

    /// Whether one of these ids is a mailroom, or a virtual server that contains one.
    pub(crate) fn has_mailroom(&self, ids: &[&str]) -> bool {
        self.agents_of_kind::<MailroomDeclaration>()
            .any(|mailroom| self.includes_agent(ids, &mailroom.id))
    }

    /// Whether `ids` contains `id`, or a virtual server with `id` as a member.
    pub(crate) fn includes_agent(&self, ids: &[&str], id: &str) -> bool {
        let mut servers = self
            .servers
            .iter()
            .filter(|server| ids.contains(&&*server.id));
        ids.contains(&id) || servers.any(|server| server.members.iter().any(|member| member == id))
    }

    /// Returns the description that the file declares for the MCP server of these agents: that of a
    /// listener that serves just them, else that of the virtual server that they are.
    pub(crate) fn mcp_description(&self, ids: &[&str]) -> McpDescription {
        let mut listeners = self.listeners.iter();
        let listener = listeners.find(|listener| {
            listener.served_protocol() == ServedProtocol::Mcp && self.served_ids(listener) == ids
        });
        self.mcp_description_at(listener, ids)
    }

    /// Returns the description of the MCP server of the agents `ids`: the values that `listener`
    /// declares, else those of the virtual server that `ids` names. `listener` is `None` for the
    /// server of a single agent beside the listener's server for all: then the listener's values
    /// don't apply.
    pub(crate) fn mcp_description_at(
        &self,
        listener: Option<&ListenerDeclaration>,
        ids: &[&str],
    ) -> McpDescription {
        let of_listener = listener.map(|listener| McpDescription {
            name: listener.name.clone(),
            version: listener.version.clone(),
            instructions: listener.instructions.clone(),
        });
        let mut servers = self.servers.iter();
        let server = servers.find(|server| ids == [&*server.id]);
        let of_server = server.map(|server| McpDescription {
            name: server.name.clone(),
            version: server.version.clone(),
            instructions: server.instructions.clone(),
        });
        of_listener
            .unwrap_or_default()
            .or(of_server.unwrap_or_default())
    }

    /// Returns the ids of the agents, upstreams and virtual servers behind a listener.
    pub(crate) fn served_ids<'a>(&'a self, listener: &'a ListenerDeclaration) -> Vec<&'a str> {
        let named: Vec<_> = listener.named_ids().collect();
        if named.is_empty() {
            self.servable_ids()
        } else {
            named
        }
    }
}

fn parent_folder(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

fn is_yaml(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "yaml" || extension == "yml")
}

fn parse_topology(
    text: &str,
    is_yaml: bool,
    folder: &Path,
    looks_around: bool,
) -> (Option<Topology>, Vec<ConfigProblem>) {
    let mut problems = ProblemCollector::new(text);
    let mut topology = None;
    if let Some(sections) = read_sections(text, is_yaml, folder, &mut problems) {
        let registry = check::check_references(&sections, &mut problems);
        if looks_around {
            check::check_machine(&sections, &mut problems);
        }
        topology = registry
            .filter(|_| !problems.has_errors())
            .map(|registry| Topology::from_sections(sections, registry));
    }
    (topology, problems.into_sorted())
}

impl Topology {
    fn from_sections(sections: ParsedSections, registry: ClinicRegistry) -> Self {
        fn values<T>(entries: Vec<ParsedDeclaration<T>>) -> Vec<T> {
            entries.into_iter().map(|entry| entry.value).collect()
        }
        let clinics = sections
            .clinics
            .iter()
            .fold(0, |all: u64, entry| all.rotate_left(1) ^ entry.fingerprint);
        let agents = sections.agents.iter().map(|entry| {
            let asked = if entry.value.asks_clinics() {
                clinics
            } else {
                0
            };
            (entry.value.id().to_owned(), entry.fingerprint ^ asked)
        });
        let upstreams = sections
            .upstreams
            .iter()
            .map(|entry| (entry.value.id.clone(), entry.fingerprint));
        let servers = sections
            .servers
            .iter()
            .map(|entry| (entry.value.id.clone(), entry.fingerprint));
        let fingerprints = ConfigFingerprints {
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
            drain_timeout: sections.node.drain_timeout(),
            name: sections.node.name,
            agents: values(sections.agents),
            descriptions: sections.descriptions,
            upstreams: values(sections.upstreams),
            servers: values(sections.servers),
            listeners: values(sections.listeners),
            tables: values(sections.tables),
            mode: sections.mode,
            registry,
            fingerprints,
        }
    }
}

/// Key of a declaration's description. Descriptions appear in agent cards only, so a change
/// restarts nothing.
const DESCRIPTION_KEY: &str = "description";

/// A decoded declaration with its tree, for the source positions of later problems.
struct ParsedDeclaration<T> {
    value: T,
    tree: ConfigTree,
    /// Fingerprint of the tree before repairs.
    pub(super) fingerprint: u64,
}

/// A virtual server (`[[server]]`): several agents and upstreams served as one agent.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServerDeclaration {
    /// Unique name in the directory.
    pub id: String,
    /// Ids of the agents and upstreams behind it.
    pub members: Vec<String>,
    /// Patterns (`*`, `?`) of tools that are included, by own name or `member.name`; empty includes
    /// all.
    #[serde(default)]
    pub tools: Vec<String>,
    /// Description in agent cards. Default: made from its tools.
    pub description: Option<String>,
    /// Name that MCP clients are told. Default: its id.
    pub name: Option<String>,
    /// Version that MCP clients are told. Default: callboard's.
    pub version: Option<String>,
    /// Instructions for the model of an MCP client. Default: those of its members.
    pub instructions: Option<String>,
    /// Tool names that get the member's id as a prefix.
    #[serde(default)]
    pub prefix: PrefixMode,
    /// Separator between the member's id and the tool name. Default: `__`.
    #[serde(default)]
    pub separator: NameSeparator,
    /// Share of a principal in the requests of one type that it handles at a time, in percent, 1 to
    /// 100. Default: 25.
    pub principal_share_percent: Option<u8>,
}

/// Name, version and instructions that a file declares for an MCP server; `None` where it declares
/// nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct McpDescription {
    pub(crate) name: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) instructions: Option<String>,
}

impl McpDescription {
    /// Returns this description with the values of `other` in place of those that are `None`.
    fn or(self, other: Self) -> Self {
        Self {
            name: self.name.or(other.name),
            version: self.version.or(other.version),
            instructions: self.instructions.or(other.instructions),
        }
    }
}

/// All decoded declarations of a file.
#[derive(Default)]
struct ParsedSections {
    pub(super) node: NodeDeclaration,
    tables: Vec<ParsedDeclaration<Box<dyn SectionDeclaration>>>,
    upstreams: Vec<ParsedDeclaration<UpstreamDeclaration>>,
    agents: Vec<ParsedDeclaration<Box<dyn AgentDeclaration>>>,
    descriptions: HashMap<String, String>,
    pub(super) servers: Vec<ParsedDeclaration<ServerDeclaration>>,
    listeners: Vec<ParsedDeclaration<ListenerDeclaration>>,
    clinics: Vec<ParsedDeclaration<ClinicEntry>>,
    mode: Option<ReplDeclaration>,
    /// Ids of agents, upstreams and servers that failed to decode. References to them are not
    /// reported again.
    unreadable_ids: Vec<String>,
    /// Whether a table that declares an agent has no readable id, or stands in a section of an unknown
    /// name. Then any id may be the missing one.
    has_unnamed: bool,
}

impl ParsedSections {
    fn table_entry<S: SectionDeclaration>(
        &self,
    ) -> Option<&ParsedDeclaration<Box<dyn SectionDeclaration>>> {
        self.tables
            .iter()
            .find(|entry| entry.value.downcast::<S>().is_some())
    }

    fn table<S: SectionDeclaration>(&self) -> Option<&S> {
        self.tables.iter().find_map(|entry| entry.value.downcast())
    }

    /// Returns upstreams, then agents, each with its tree.
    fn agents(&self) -> impl Iterator<Item = (&dyn AgentDeclaration, &ConfigTree)> {
        let upstreams = self
            .upstreams
            .iter()
            .map(|entry| (&entry.value as &dyn AgentDeclaration, &entry.tree));
        upstreams.chain(self.agents.iter().map(|entry| (&*entry.value, &entry.tree)))
    }
}

/// Declared ids, for checks of references.
pub(crate) struct DeclaredNames<'a> {
    agents: HashMap<&'a str, &'a dyn AgentDeclaration>,
    servers: HashMap<&'a str, &'a ServerDeclaration>,
    /// Ids whose declarations failed to decode.
    unreadable_ids: HashSet<&'a str>,
    /// Whether any other id may be that of a declaration that failed to decode.
    has_unnamed: bool,
    sections: &'a ParsedSections,
}

impl<'a> DeclaredNames<'a> {
    /// Collects the ids. Reports empty and duplicate ones.
    fn collect(sections: &'a ParsedSections, problems: &mut ProblemCollector<'_>) -> Self {
        let unread = sections.unreadable_ids.iter().map(String::as_str).collect();
        let mut names = Self {
            agents: HashMap::new(),
            servers: HashMap::new(),
            unreadable_ids: unread,
            // Without an error, no declaration failed to decode.
            has_unnamed: sections.has_unnamed && problems.has_errors(),
            sections,
        };
        let mut is_new = |id: &str, tree: &ConfigTree, is_taken: bool| {
            let Some(span) = tree.span_of("id") else {
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
        for ParsedDeclaration { value, tree, .. } in &sections.servers {
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

    /// Whether `id` is an agent or upstream, or may belong to a declaration that failed to decode.
    fn is_known(&self, id: &str) -> bool {
        self.agents.contains_key(id) || self.is_unreadable(id)
    }

    /// Whether an id that isn't declared may belong to a declaration that failed to decode. References
    /// to it are not reported: the failure is their cause.
    fn is_unreadable(&self, id: &str) -> bool {
        self.has_unnamed || self.unreadable_ids.contains(id)
    }

    /// Whether a declaration failed to decode.
    fn has_unreadable(&self) -> bool {
        self.has_unnamed || !self.unreadable_ids.is_empty()
    }

    fn agent_of_kind<K: AgentDeclaration>(&self, id: &str) -> Option<&'a K> {
        self.agents.get(id)?.downcast()
    }

    /// Returns the agents of one kind, in file order.
    fn agents_of_kind<K: AgentDeclaration>(&self) -> impl Iterator<Item = &'a K> {
        self.sections
            .agents()
            .filter_map(|(agent, _)| agent.downcast())
    }

    /// Returns whether there is an upstream or a remote A2A agent.
    fn has_remote_agents(&self) -> bool {
        let mut agents = self.sections.agents();
        agents.any(|(agent, _)| is_remote(agent))
    }

    fn has_clinics(&self) -> bool {
        !self.sections.clinics.is_empty()
    }

    fn upstream_ids(&self) -> impl Iterator<Item = &'a str> {
        self.agents_of_kind::<UpstreamDeclaration>()
            .map(|upstream| &*upstream.id)
    }

    /// Reports an error unless `id` is one of `models`.
    fn check_model(
        &self,
        id: &str,
        models: impl Iterator<Item = &'a str>,
        span: Option<Span<usize>>,
        problems: &mut ProblemCollector<'_>,
    ) {
        let models: Vec<_> = models.collect();
        if !self.is_unreadable(id) && !models.contains(&id) {
            problems.unknown_name(span, format!("there is no model {id}"), id, models);
        }
    }

    /// Reports a warning unless `id` is a member of a mailroom.
    fn check_has_mailroom(&self, id: &str, tree: &ConfigTree, problems: &mut ProblemCollector<'_>) {
        if !self
            .agents_of_kind::<MailroomDeclaration>()
            .any(|room| room.reachable_ids().contains(&id))
        {
            let help = Some(format!(
                "write [[agent.member]] with `id = \"{id}\"` below a mailroom"
            ));
            let message = format!("{id} has no mail: no mailroom has it as a member");
            problems.warning_with(tree.span_of("id"), message, help);
        }
    }
}

fn yes() -> bool {
    true
}

fn personal() -> DataClass {
    DataClass::Personal
}

fn decode_table<T: DeserializeOwned>(
    tree: Option<ConfigTree>,
    what: &str,
    problems: &mut ProblemCollector<'_>,
) -> Option<ParsedDeclaration<T>> {
    decode_entry(tree?, what, Severity::Error, problems)
}

fn decode_entries<T: DeserializeOwned>(
    trees: Vec<ConfigTree>,
    what: &str,
    unknown: Severity,
    problems: &mut ProblemCollector<'_>,
) -> Vec<ParsedDeclaration<T>> {
    trees
        .into_iter()
        .filter_map(|tree| decode_entry(tree, what, unknown, problems))
        .collect()
}

fn decode_entry<T: DeserializeOwned>(
    tree: ConfigTree,
    what: &str,
    unknown: Severity,
    problems: &mut ProblemCollector<'_>,
) -> Option<ParsedDeclaration<T>> {
    let mut tree = require_table(tree, what, problems)?;
    let fingerprint = tree.fingerprint_without(DESCRIPTION_KEY);
    let value = decode_as(&mut tree, what, unknown, problems)?;
    Some(ParsedDeclaration {
        value,
        tree,
        fingerprint,
    })
}

/// Returns the tree if it is a table; otherwise reports an error.
fn require_table(
    tree: ConfigTree,
    what: &str,
    problems: &mut ProblemCollector<'_>,
) -> Option<ConfigTree> {
    if matches!(tree.value, ConfigValue::Table(_)) {
        return Some(tree);
    }
    problems.error(Some(tree.span), format!("{what} must be a table"));
    None
}

fn is_remote(agent: &dyn AgentDeclaration) -> bool {
    let is_upstream = agent.downcast::<UpstreamDeclaration>().is_some();
    is_upstream || agent.downcast::<A2aAgentDeclaration>().is_some()
}
