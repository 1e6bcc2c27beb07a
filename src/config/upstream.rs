//! MCP servers elsewhere, and `[[server]]`, `[policy]` and `[routing]`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use callboard_gateway::answering::{AnswerOptions, Caps, Routing, ServerGrants};
use callboard_gateway::bundle::{Filter, Prefix, Separator};
use callboard_mcp::bridge::{BridgeOptions, CONNECTIONS_MAX_AT_ADDRESS_DEFAULT, Start, ToolOptions};
use callboard_mcp::outbound::auth::{AuthError, StaticBearer};
use callboard_mcp::outbound::{ChildCommand, ClientError, ClientOptions, Dialect, Endpoint, Era, EraChoice};
use callboard_message::DataClass;
use callboard_runtime::Answering;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use super::Topology;

/// An MCP server elsewhere (`[[upstream]]`): an agent of this id.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpstreamDeclaration {
    /// Its name in the directory, in rules and in names of tools.
    pub id: String,
    /// What it is for, in A2A's cards.
    pub description: Option<String>,
    /// A program that speaks over its standard streams, and its arguments. Either this or `url`.
    #[serde(default)]
    pub command: Vec<String>,
    /// Where it listens.
    pub url: Option<String>,
    /// How it is spoken to; by default what `command` or the scheme of `url` says.
    pub transport: Option<Transport>,
    /// Variables of this process that the program gets beside `HOME`, `LANG`, `PATH`, `TMPDIR` and `USER`.
    #[serde(default)]
    pub environment: Vec<String>,
    /// Variables that it gets with these values.
    #[serde(default)]
    pub set: BTreeMap<String, SecretString>,
    /// Where it runs. Relative to the topology file.
    pub directory: Option<PathBuf>,
    /// The variable that holds a bearer token.
    pub bearer_env: Option<String>,
    /// Headers of each HTTP request.
    #[serde(default)]
    pub headers: BTreeMap<String, SecretString>,
    /// Headers whose values are in variables of these names.
    #[serde(default)]
    pub header_env: BTreeMap<String, String>,
    /// Which of the two MCPs it speaks.
    #[serde(default)]
    pub era: EraName,
    /// How it asks.
    #[serde(default)]
    pub dialect: Dialect,
    /// When it is connected.
    #[serde(default)]
    pub start: StartWhen,
    /// Whether it may ask for a model.
    #[serde(default)]
    pub supports_sampling: bool,
    /// Whether it may ask a person.
    #[serde(default)]
    pub supports_elicitation: bool,
    /// Whether it may ask for roots.
    #[serde(default)]
    pub supports_roots: bool,
    /// Most calls at once.
    pub calls_max: Option<u32>,
    /// Most connections at once.
    pub connections_max: Option<u32>,
    /// How many seconds a call may take that has no deadline of its own.
    pub call_timeout_s: Option<u64>,
    /// How many seconds a connection of one client is kept without a call.
    pub idle_timeout_s: Option<u64>,
    /// How often a call is tried again whose tool says that it is idempotent or only reads.
    pub retries_max: Option<u32>,
    /// Which of its tools are shown, and as what.
    #[serde(default)]
    pub tools: Filter,
    /// How many seconds the results of its tools may be used again, by tool.
    #[serde(default)]
    pub cache: BTreeMap<String, u64>,
    /// Tools, or patterns, whose results are the same whoever asks. Those of others are kept for each principal.
    #[serde(default)]
    pub cache_shared: Vec<String>,
    /// What the arguments and results of its tools may hold: where it is `clinical`, tasks of them are never on a disk.
    #[serde(default)]
    pub class: DataClass,
    /// What bounds its asking for a model.
    #[serde(default)]
    pub sampling: SamplingDeclaration,
}

/// How a server is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// Standard streams of a child process.
    Stdio,
    /// Streamable HTTP; where there is only HTTP+SSE at the URL, that.
    #[serde(alias = "http")]
    StreamableHttp,
    /// WebSocket.
    Websocket,
    /// HTTP+SSE, of 2024-11-05.
    Sse,
}

/// Which of the two MCPs is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EraName {
    /// The server is asked.
    #[default]
    Auto,
    /// 2024-11-05 to 2025-11-25.
    Legacy,
    /// 2026-07-28.
    Modern,
}

/// When a server is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartWhen {
    /// When it is first asked.
    #[default]
    Demand,
    /// When the node starts.
    Boot,
}

/// Why an upstream's endpoint or options can't be made: the key at fault, and what to change.
#[derive(Debug, thiserror::Error)]
#[error("upstream {id}: `{key}`: {why}")]
pub struct UpstreamError {
    /// Whose.
    pub id: String,
    /// The key.
    pub key: &'static str,
    /// What is wrong with it.
    pub why: String,
}

impl UpstreamDeclaration {
    fn wrong(&self, key: &'static str, why: impl ToString) -> UpstreamError {
        UpstreamError { id: self.id.clone(), key, why: why.to_string() }
    }

    /// Where it is.
    ///
    /// # Errors
    /// Where `command`, `url` and `transport` don't fit together.
    pub fn endpoint(&self) -> Result<Endpoint, UpstreamError> {
        match (self.command.split_first(), &self.url) {
            (Some(_), Some(_)) => Err(self.wrong("url", "write `command` or `url`, not both")),
            (None, None) => Err(self.wrong("id", "it needs `command` or `url`")),
            (Some((program, arguments)), None) => match self.transport {
                None | Some(Transport::Stdio) if !program.is_empty() => Ok(self.child(program, arguments)),
                None | Some(Transport::Stdio) => Err(self.wrong("command", "the program's name is empty")),
                Some(_) => Err(self.wrong("transport", "a command speaks over `stdio`")),
            },
            (None, Some(url)) => {
                let endpoint = match self.transport {
                    Some(Transport::Stdio) => {
                        return Err(self.wrong("transport", "`stdio` needs a `command`, not a `url`"));
                    }
                    Some(Transport::Sse) => Endpoint::sse(url),
                    _ => Endpoint::url(url),
                };
                let endpoint = endpoint.map_err(|error| self.wrong("url", error))?;
                match (self.transport, &endpoint) {
                    (Some(Transport::StreamableHttp), Endpoint::WebSocket(_)) => {
                        Err(self.wrong("url", "`streamable_http` needs an http or https URL"))
                    }
                    (Some(Transport::Websocket), Endpoint::Http(_)) => {
                        Err(self.wrong("url", "`websocket` needs a ws or wss URL"))
                    }
                    _ => Ok(endpoint),
                }
            }
        }
    }

    fn child(&self, program: &str, arguments: &[String]) -> Endpoint {
        let mut child = ChildCommand::new(self.program(program), arguments);
        child.inherit.extend(self.environment.iter().cloned());
        child.set = self.set.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        child.directory = self.directory.clone();
        Endpoint::Child(child)
    }

    /// A program with a slash is where `directory` is, not where this process runs.
    fn program(&self, program: &str) -> OsString {
        match &self.directory {
            Some(directory) if program.contains('/') => directory.join(program).into_os_string(),
            _ => program.into(),
        }
    }

    /// How the bridge to it behaves. Reads the variables that it names.
    ///
    /// # Errors
    /// Where a variable is missing, or a header can't be one.
    pub fn bridge_options(&self, answering: Arc<dyn Answering>) -> Result<BridgeOptions, UpstreamError> {
        let default = BridgeOptions::default();
        Ok(BridgeOptions {
            client: self.client_options()?,
            answering: Some(answering),
            start: match self.start {
                StartWhen::Demand => Start::Demand,
                StartWhen::Boot => Start::Boot,
            },
            calls_max: self.calls_max.unwrap_or(default.calls_max),
            connections_max: match self.connections_max {
                Some(max) => max as usize,
                // A session at an address costs little; a program is a process.
                None if self.command.is_empty() => CONNECTIONS_MAX_AT_ADDRESS_DEFAULT,
                None => default.connections_max,
            },
            tools: ToolOptions {
                retries_max: self.retries_max.unwrap_or(default.tools.retries_max),
                cache: self.cache.iter().map(|(tool, s)| (tool.clone(), Duration::from_secs(*s))).collect(),
                cache_shared: self.cache_shared.clone(),
                ..default.tools
            },
            idle_timeout: self.idle_timeout_s.map_or(default.idle_timeout, Duration::from_secs),
            ..default
        })
    }

    /// How it is spoken to. Reads the variables that it names.
    ///
    /// # Errors
    /// Where a variable is missing, or a header can't be one.
    pub fn client_options(&self) -> Result<ClientOptions, UpstreamError> {
        let mut options = ClientOptions { era: self.era_choice(), dialect: self.dialect, ..ClientOptions::default() };
        if let Some(seconds) = self.call_timeout_s {
            options.call_timeout = Duration::from_secs(seconds);
        }
        for (name, value) in &self.headers {
            options = options.header(name, value).map_err(|error| self.wrong("headers", format!("{name}: {error}")))?;
        }
        for (name, variable) in &self.header_env {
            let value = self.variable("header_env", variable)?;
            let wrong = |error: ClientError| self.wrong("header_env", format!("{name}: {error}"));
            options = options.header(name, &value).map_err(wrong)?;
        }
        if let Some(variable) = &self.bearer_env {
            let token = self.variable("bearer_env", variable)?;
            let wrong = |error: AuthError| self.wrong("bearer_env", error);
            options.authorizer = Some(Arc::new(StaticBearer::new(&token).map_err(wrong)?));
        }
        Ok(options)
    }

    /// Which of the two MCPs is spoken.
    pub fn era_choice(&self) -> EraChoice {
        match self.era {
            EraName::Auto => EraChoice::Auto,
            EraName::Legacy => EraChoice::Only(Era::Legacy),
            EraName::Modern => EraChoice::Only(Era::Modern),
        }
    }

    fn variable(&self, key: &'static str, name: &str) -> Result<SecretString, UpstreamError> {
        let value = std::env::var(name).map_err(|_| self.wrong(key, format!("there is no variable {name}")))?;
        Ok(SecretString::from(value))
    }

    /// Paths as this process sees them.
    pub(super) fn resolve(&mut self, folder: &Path) {
        self.directory = self.directory.take().map(|directory| folder.join(directory));
    }

    /// Whether a header's value is one, without reading any variable.
    pub(super) fn is_header(name: &str, value: Option<&SecretString>) -> bool {
        let value = value.map_or_else(|| SecretString::from("x"), |v| SecretString::from(v.expose_secret()));
        ClientOptions::default().header(name, &value).is_ok()
    }
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

/// What holds for every message that crosses a boundary (`[policy]`).
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyDeclaration {
    /// Whether guardrail reads what crosses.
    pub guard: bool,
    /// Most requests a second of one client.
    pub per_client_per_second: Option<NonZeroU32>,
    /// Most calls a second of one tool, by its name as it is shown.
    pub per_tool_per_second: BTreeMap<String, NonZeroU32>,
}

/// Who answers what (`[routing]`).
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RoutingDeclaration {
    /// What a server asks of a model.
    pub sampling: Routing,
    /// What a server asks of a person.
    pub elicitation: Routing,
}

/// What bounds a server's asking for a model (`[upstream.sampling]`).
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SamplingDeclaration {
    /// Whether a person at the client must agree before anyone but the client answers.
    pub approval: bool,
    /// Whether it may itself be given what other servers ask a model.
    pub answers_sampling: bool,
    /// How much its questions may cost.
    pub caps: Caps,
}

impl Topology {
    /// Who answers, as the answering agents want it.
    pub fn answer_options(&self) -> AnswerOptions {
        AnswerOptions {
            sampling: self.routing.sampling.clone(),
            elicitation: self.routing.elicitation.clone(),
            servers: self.upstreams.iter().map(|upstream| (upstream.id.clone(), grants(upstream))).collect(),
            models: self.agents.iter().filter(|a| a.is_model()).map(|agent| agent.id().to_owned()).collect(),
        }
    }
}

fn grants(upstream: &UpstreamDeclaration) -> ServerGrants {
    ServerGrants {
        supports_sampling: upstream.supports_sampling,
        supports_elicitation: upstream.supports_elicitation,
        supports_roots: upstream.supports_roots,
        answers_sampling: upstream.sampling.answers_sampling,
        caps: upstream.sampling.caps.clone(),
        approval: upstream.sampling.approval,
    }
}
