//! Kinds of agents (`[[agent]] kind`). Each is a module with declaration, checks and start, and a
//! line in [`AGENT_KINDS`].

mod a2a;
mod approvals;
mod clinic;
mod clinics;
mod clinics_pipeline;
mod emr_writeback;
mod mailroom;
mod model;
mod orchestrator;
mod patient_data;
mod person;
mod schema;
mod tmux;
mod upstream;
mod webhook;

use std::any::Any;
use std::collections::HashMap;
use std::fmt::{Debug, Display};
use std::path::Path;
use std::sync::Arc;

use callboard_clinics::access::HmcpAccess;
use callboard_clinics::clinic::ClinicConfig;
use callboard_clinics::hmcp::{EmrConfig, PatientDataConfig};
use callboard_gateway::aggregate::{AggregateError, ToolFilter};
use callboard_mailroom::MailroomError;
use callboard_message::mail::DeliveryMethod;
use callboard_message::{DataClass, TENANT_SCOPE_PREFIX};
use callboard_models::{ModelConfig, ModelPoolConfig};
use callboard_rpc::{KEY_SCOPE_BYTES_MAX, KeyError, is_valid_scope};
use callboard_runtime::{Agent, AgentId, AgentRef, QuestionRouter, System};
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use super::decode::decode;
use super::problem::{ProblemCollector, known_names_help};
use super::schema_parts::DeclarationSchema;
use super::tree::ConfigTree;
use super::{DESCRIPTION_KEY, DeclaredNames, ParsedDeclaration, Topology, require_table};

pub(crate) use a2a::PushInboxes;
pub use a2a::{
    A2aAgentDeclaration, A2aBindingName, A2aVersionName, InterfaceDeclaration, OauthDeclaration,
};
pub use clinics_pipeline::PipelineError;
pub(crate) use clinics_pipeline::{PipelineAgents, PipelineOptions};
pub use mailroom::{MailMemberDeclaration, MailroomDeclaration};
pub use model::ModelDeclaration;
pub(crate) use orchestrator::EXECUTE_COMMAND;
pub use orchestrator::{
    CommandDeclaration, DeciderEntry, DeciderList, DiscoveryDeclaration, EmbeddingDeclaration,
    OrchestratorDeclaration, RunningOrchestrator, StructuredOutput, TimedDecider,
};
pub use person::PersonDeclaration;
pub(super) use schema::agent_schema;
pub use tmux::{TmuxDeclaration, TmuxPane};
pub use upstream::{
    McpEraName, SamplingDeclaration, UpstreamDeclaration, UpstreamError, UpstreamStart,
    UpstreamTransport,
};
pub use webhook::WebhookDeclaration;

/// Decoder of an agent's table from which `kind` has been removed. Reports problems, and returns
/// `None` if there is no declaration then.
type AgentReader =
    fn(&mut ConfigTree, &mut ProblemCollector<'_>) -> Option<Box<dyn AgentDeclaration>>;

/// Decoder of one agent kind.
#[derive(Clone, Copy)]
pub(super) struct KindReader {
    read: AgentReader,
    /// Generator of the schema of its table, without `kind` and, unless the declaration has them, `id` and
    /// `description`.
    pub(super) schema: DeclarationSchema,
    /// Whether `description` is used in agent cards only, so that a change of it restarts nothing.
    pub(super) is_described: bool,
}

impl KindReader {
    /// Creates the entry of a kind whose `description` is used in agent cards only.
    const fn described(read: AgentReader, schema: DeclarationSchema) -> Self {
        Self {
            read,
            schema,
            is_described: true,
        }
    }

    /// Creates the entry of a kind that has no `description`, or uses it itself.
    const fn undescribed(read: AgentReader, schema: DeclarationSchema) -> Self {
        Self {
            read,
            schema,
            is_described: false,
        }
    }
}

/// Kinds of agents: name, and decoder.
pub(super) const AGENT_KINDS: &[(&str, KindReader)] = &[
    (
        "clinic",
        KindReader::described(clinic::read, ClinicConfig::json_schema),
    ),
    (
        "clinics",
        KindReader::described(clinics::read, clinics::ClinicsAgentDeclaration::json_schema),
    ),
    (
        "model",
        KindReader::described(model::read, ModelConfig::json_schema),
    ),
    (
        "models",
        KindReader::described(model::read_pool, ModelPoolConfig::json_schema),
    ),
    (
        "emr_writeback",
        KindReader::described(emr_writeback::read, EmrConfig::json_schema),
    ),
    (
        "patient_data",
        KindReader::described(patient_data::read, PatientDataConfig::json_schema),
    ),
    (
        "approvals",
        KindReader::described(
            approvals::read,
            approvals::ApprovalsDeclaration::json_schema,
        ),
    ),
    (
        "a2a",
        KindReader::described(a2a::read, A2aAgentDeclaration::json_schema),
    ),
    (
        "orchestrator",
        KindReader::undescribed(orchestrator::read, OrchestratorDeclaration::json_schema),
    ),
    (
        "mailroom",
        KindReader::described(mailroom::read, MailroomDeclaration::json_schema),
    ),
    (
        "person",
        KindReader::described(person::read, PersonDeclaration::json_schema),
    ),
    (
        "tmux",
        KindReader::undescribed(tmux::read, TmuxDeclaration::json_schema),
    ),
    (
        "webhook",
        KindReader::undescribed(webhook::read, WebhookDeclaration::json_schema),
    ),
];

const AGENT_SECTION: &str = "[[agent]]";

/// Declaration of an agent of one kind.
pub(crate) trait AgentDeclaration: Any + Debug + Send + Sync {
    /// Returns the unique name in the directory.
    fn id(&self) -> &str;

    /// Returns the kind as written in a topology file; `upstream` for an `[[upstream]]`.
    fn kind(&self) -> &'static str;

    /// Returns the highest class of data in its messages and replies.
    fn class(&self) -> DataClass;

    /// Returns the access that HMCP's scopes must open for each request to the agent; `None` if it
    /// demands none of these scopes.
    fn hmcp_access(&self) -> Option<HmcpAccess> {
        None
    }

    /// Returns the description, if the declaration itself contains one.
    fn description(&self) -> Option<&str> {
        None
    }

    /// Returns the parties that send messages to the agent.
    fn reachability(&self) -> Reachability {
        Reachability::Listeners
    }

    /// Returns the delivery method of its mail, as a member of a mailroom.
    fn mail_delivery(&self) -> DeliveryMethod {
        DeliveryMethod::Agent
    }

    /// Returns the ids of agents that it needs. They start first; if one is replaced, this agent is
    /// replaced too.
    fn dependencies(&self) -> Vec<&str> {
        Vec::new()
    }

    /// Returns the ids of agents that are reachable through it.
    fn reachable_ids(&self) -> Vec<&str> {
        self.dependencies()
    }

    /// Returns whether it asks the clinics of the `[[clinic]]` sections. If these change, it is
    /// replaced.
    fn asks_clinics(&self) -> bool {
        false
    }

    /// Resolves paths that are relative to the topology file against `folder`.
    fn resolve_paths(&mut self, _folder: &Path) {}

    /// Reports inconsistencies within the declaration or with others.
    fn check(
        &self,
        _tree: &ConfigTree,
        _names: &DeclaredNames<'_>,
        _problems: &mut ProblemCollector<'_>,
    ) {
    }

    /// Reports variables, files and programs that the declaration names and this machine lacks.
    fn check_machine(&self, _tree: &ConfigTree, _problems: &mut ProblemCollector<'_>) {}

    /// Checks whether the agent can be reached now, and returns the reason why not. `None` for a
    /// kind that can't be checked so.
    fn check_reachable(&self) -> Option<BoxFuture<'_, Result<(), String>>> {
        None
    }

    /// Changes a running agent with the same id to this declaration without a restart. Returns
    /// `None` if it must be restarted.
    fn reconfigure(
        &self,
        _running: &RunningAgent,
        _cx: &StartContext<'_>,
    ) -> Result<Option<ReconfiguredAgent>, StartError> {
        Ok(None)
    }

    /// Starts the agent. It isn't in the directory yet.
    fn start<'a>(
        &'a self,
        cx: &'a StartContext<'a>,
    ) -> BoxFuture<'a, Result<RunningAgent, StartError>>;
}

impl dyn AgentDeclaration {
    /// Returns the declaration if its type is `K`.
    pub(crate) fn downcast<K: AgentDeclaration>(&self) -> Option<&K> {
        (self as &dyn Any).downcast_ref()
    }
}

/// Parties that send messages to an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reachability {
    /// Clients of a listener. In a file with listeners, an agent that none of them reaches gets a
    /// warning.
    Listeners,
    /// Other agents of the node, as for language models: no listener is needed.
    Agents,
    /// Mailrooms only, which deliver their mail to it (tmux panes, webhooks). A listener that names
    /// no agent doesn't serve it.
    Mail,
}

pub(super) type ParsedAgent = ParsedDeclaration<Box<dyn AgentDeclaration>>;

/// Decodes an agent's table by its `kind`. Also returns its description if that is for agent cards
/// only; `None` without one. Returns `None` after problems that prevent decoding. Serde's enum
/// representations would lose source positions.
pub(super) fn read_agent(
    tree: ConfigTree,
    problems: &mut ProblemCollector<'_>,
) -> Option<(ParsedAgent, Option<String>)> {
    let mut tree = require_table(tree, AGENT_SECTION, problems)?;
    let (name, kind) = take_choice(&mut tree, "kind", AGENT_KINDS, problems)?;
    let description = if kind.is_described {
        take_description(&mut tree, problems)
    } else {
        None
    };
    let fingerprint = tree.fingerprint();
    let value = (kind.read)(&mut tree, problems)?;
    debug_assert_eq!(value.kind(), name, "the declaration's kind is its entry's");
    Some((
        ParsedDeclaration {
            value,
            tree,
            fingerprint,
        },
        description,
    ))
}

fn take_description(tree: &mut ConfigTree, problems: &mut ProblemCollector<'_>) -> Option<String> {
    let (_, value) = tree.take(DESCRIPTION_KEY)?;
    let text = value.text().map(str::to_owned);
    if text.is_none() {
        problems.error(Some(value.span), "`description` must be a text");
    }
    text
}

/// Removes `key` from the table and returns the entry of `all` that its value names, with that
/// name. Reports a missing or unknown value, and returns `None` then.
fn take_choice<'a, T: Copy>(
    tree: &mut ConfigTree,
    key: &str,
    all: &[(&'a str, T)],
    problems: &mut ProblemCollector<'_>,
) -> Option<(&'a str, T)> {
    let known: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
    let Some((_, value)) = tree.take(key) else {
        problems.error_with(
            Some(tree.span.clone()),
            format!("{AGENT_SECTION} lacks `{key}`"),
            known_names_help(&known),
        );
        return None;
    };
    let Some(text) = value.text() else {
        problems.error(Some(value.span), format!("`{key}` must be a text"));
        return None;
    };
    let found = all.iter().find(|(name, _)| *name == text);
    if found.is_none() {
        problems.not_one_of(
            Some(value.span.clone()),
            format!("there is no {key} of agent `{text}`"),
            text,
            &known,
        );
    }
    found.copied()
}

/// Decodes a declaration with serde, as [`decode`]: `None` after problems that prevent it. `what`
/// names the table in messages.
fn decode_declaration<K: AgentDeclaration + DeserializeOwned>(
    tree: &mut ConfigTree,
    what: &str,
    problems: &mut ProblemCollector<'_>,
) -> Option<Box<dyn AgentDeclaration>> {
    Some(Box::new(decode::<K>(tree, what, problems)?))
}

/// Reports invalid keys of the agent `id`, each with a reason.
fn report_key_errors<W: Display>(
    id: &str,
    wrong: impl IntoIterator<Item = (&'static str, W)>,
    tree: &ConfigTree,
    problems: &mut ProblemCollector<'_>,
) {
    for (key, why) in wrong {
        problems.error(tree.span_of(key), format!("agent {id}: `{key}`: {why}"));
    }
}

/// Reports a tenant of the agent `id` that no credential can be of.
fn check_tenant(
    id: &str,
    tenant: Option<&str>,
    tree: &ConfigTree,
    problems: &mut ProblemCollector<'_>,
) {
    let is_possible = |tenant: &str| {
        !tenant.is_empty() && is_valid_scope(&format!("{TENANT_SCOPE_PREFIX}{tenant}"))
    };
    if tenant.is_none_or(is_possible) {
        return;
    }
    let why = format!(
        "no credential can be of this tenant: write 1 to {} printable ASCII characters without spaces, \" and \\",
        KEY_SCOPE_BYTES_MAX - TENANT_SCOPE_PREFIX.len()
    );
    report_key_errors(id, [("tenant", why)], tree, problems);
}

/// Dependencies of a starting agent.
#[derive(Clone, Copy)]
pub(crate) struct StartContext<'a> {
    pub(crate) system: &'a System,
    /// State directory, for agents' data.
    pub(crate) state: &'a Path,
    pub(crate) topology: &'a Topology,
    /// Router of questions from upstreams.
    pub(crate) question_router: &'a Arc<dyn QuestionRouter>,
    /// Receivers of A2A push notifications.
    pub(crate) push_inboxes: &'a PushInboxes,
    /// Cancelled when the node shuts down.
    pub(crate) shutdown_token: &'a CancellationToken,
    /// Running agents by id, including all dependencies.
    pub(crate) running_agents: &'a HashMap<String, RunningAgent>,
}

impl StartContext<'_> {
    /// Spawns an agent if it was opened successfully.
    fn spawn_opened<A: Agent + Clone + Sync, E: Display>(
        &self,
        id: &str,
        opened: Result<A, E>,
    ) -> Result<RunningAgent, StartError> {
        let agent = opened.map_err(|why| StartError::Failed {
            id: id.to_owned(),
            why: why.to_string(),
        })?;
        Ok(RunningAgent::new(spawn_cloned(self.system, id, agent)))
    }
}

/// Spawns an agent that is restarted from a clone after a failure.
pub(crate) fn spawn_cloned<A: Agent + Clone + Sync>(
    system: &System,
    label: &str,
    agent: A,
) -> AgentRef {
    system
        .prepare_with(move || agent.clone())
        .label(label)
        .spawn()
}

/// A running agent of the topology.
#[derive(Clone)]
pub(crate) struct RunningAgent {
    pub(crate) agent: AgentRef,
    /// Fingerprint of its declaration.
    pub(crate) fingerprint: u64,
    /// Ids of the agents that it depends on.
    pub(crate) dependencies: Vec<AgentId>,
    /// Filter and renaming of its tools.
    pub(crate) filter: ToolFilter,
    /// Whether it is an aggregate, which only passes messages on to other agents of this node.
    pub(crate) is_bundle: bool,
    /// State that only its kind knows.
    kind_state: Option<Arc<dyn Any + Send + Sync>>,
    /// Cleanup of external resources, after the agent has stopped.
    teardown: Option<Shared<BoxFuture<'static, ()>>>,
}

/// A running agent with a changed declaration, and a future that applies the change after the
/// reload has been committed.
pub(crate) type ReconfiguredAgent = (RunningAgent, Option<BoxFuture<'static, ()>>);

impl RunningAgent {
    pub(crate) fn new(agent: AgentRef) -> Self {
        let filter = ToolFilter::default();
        Self {
            agent,
            fingerprint: 0,
            dependencies: Vec::new(),
            filter,
            is_bundle: false,
            kind_state: None,
            teardown: None,
        }
    }

    /// Sets the cleanup that runs after the agent has stopped.
    fn with_teardown(self, teardown: impl Future<Output = ()> + Send + 'static) -> Self {
        Self {
            teardown: Some(teardown.boxed().shared()),
            ..self
        }
    }

    /// Sets the state that only its kind knows.
    fn with_kind_state(self, state: impl Any + Send + Sync) -> Self {
        Self {
            kind_state: Some(Arc::new(state)),
            ..self
        }
    }

    /// Returns the state of its kind, if its type is `T`.
    pub(crate) fn kind_state<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.kind_state.as_ref()?.downcast_ref()
    }

    /// Cleans up external resources. Call it after the agent has stopped.
    pub(crate) async fn tear_down(self) {
        if let Some(teardown) = self.teardown {
            teardown.await;
        }
    }
}

/// Failure to start an agent of a topology.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The agent can't open its database, seed or file.
    #[error("failed to start {id}: {why}")]
    Failed {
        /// Id of the agent.
        id: String,
        /// Reason.
        why: String,
    },
    /// The declaration, or something that it names, is invalid.
    #[error("{what} {id}: {why}")]
    Declared {
        /// Kind of the declaration, for example `upstream`.
        what: &'static str,
        /// Id of the declaration.
        id: String,
        /// Reason.
        why: String,
    },
    /// A mailroom's declaration is invalid, or its store failed.
    #[error("mailroom {id}: {source}")]
    Mailroom {
        /// Id of the mailroom.
        id: String,
        /// Reason.
        source: MailroomError,
    },
    /// An upstream's endpoint or options are invalid.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// Two tools of an aggregate have the same name.
    #[error(transparent)]
    Bundle(#[from] AggregateError),
    /// The key file is invalid or can't be read.
    #[error(transparent)]
    Keys(#[from] KeyError),
}

impl StartError {
    /// Returns a closure for `map_err` that makes a [`Self::Declared`] error.
    fn declaration_error<E: Display>(what: &'static str, id: &str) -> impl Fn(E) -> Self {
        move |why| Self::Declared {
            what,
            id: id.to_owned(),
            why: why.to_string(),
        }
    }

    /// Whether the cause is the user's file.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Failed { .. } => false,
            Self::Mailroom { source, .. } => !matches!(source, MailroomError::Store(_)),
            Self::Declared { .. } | Self::Upstream(_) | Self::Bundle(_) | Self::Keys(_) => true,
        }
    }
}
