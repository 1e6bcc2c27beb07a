//! MCP servers elsewhere (`[[upstream]]`), each an agent.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use callboard_gateway::answering::{Caps, ServerGrants};
use callboard_gateway::bundle::Filter;
use callboard_mcp::bridge::{
    Bridge, BridgeOptions, CONNECTIONS_MAX_AT_ADDRESS_DEFAULT, Start, ToolOptions,
};
use callboard_mcp::outbound::auth::{AuthError, StaticBearer};
use callboard_mcp::outbound::{
    ChildCommand, ClientError, ClientOptions, Dialect, Endpoint, Era, EraChoice,
};
use callboard_message::DataClass;
use callboard_runtime::Answering;
use futures::future::BoxFuture;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use super::{AgentKind, Running, StartContext, StartError, secret, spawn};
use crate::config::Names;
use crate::config::problem::{Problems, in_path, is_set, variable};
use crate::config::tree::Tree;

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

impl UpstreamDeclaration {
    fn wrong(&self, key: &'static str, why: impl ToString) -> UpstreamError {
        UpstreamError {
            id: self.id.clone(),
            key,
            why: why.to_string(),
        }
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
                None | Some(Transport::Stdio) if !program.is_empty() => {
                    Ok(self.child(program, arguments))
                }
                None | Some(Transport::Stdio) => {
                    Err(self.wrong("command", "the program's name is empty"))
                }
                Some(_) => Err(self.wrong("transport", "a command speaks over `stdio`")),
            },
            (None, Some(url)) => {
                let endpoint = match self.transport {
                    Some(Transport::Stdio) => {
                        return Err(
                            self.wrong("transport", "`stdio` needs a `command`, not a `url`")
                        );
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
        child.set = self
            .set
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
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
    pub fn bridge_options(
        &self,
        answering: Arc<dyn Answering>,
    ) -> Result<BridgeOptions, UpstreamError> {
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
                cache: self
                    .cache
                    .iter()
                    .map(|(tool, s)| (tool.clone(), Duration::from_secs(*s)))
                    .collect(),
                cache_shared: self.cache_shared.clone(),
                ..default.tools
            },
            idle_timeout: self
                .idle_timeout_s
                .map_or(default.idle_timeout, Duration::from_secs),
            ..default
        })
    }

    /// How it is spoken to. Reads the variables that it names.
    ///
    /// # Errors
    /// Where a variable is missing, or a header can't be one.
    pub fn client_options(&self) -> Result<ClientOptions, UpstreamError> {
        let mut options = ClientOptions {
            era: self.era_choice(),
            dialect: self.dialect,
            ..ClientOptions::default()
        };
        if let Some(seconds) = self.call_timeout_s {
            options.call_timeout = Duration::from_secs(seconds);
        }
        for (name, value) in &self.headers {
            options = options
                .header(name, value)
                .map_err(|error| self.wrong("headers", format!("{name}: {error}")))?;
        }
        for (name, variable) in &self.header_env {
            let value = secret(variable).map_err(|why| self.wrong("header_env", why))?;
            let wrong = |error: ClientError| self.wrong("header_env", format!("{name}: {error}"));
            options = options.header(name, &value).map_err(wrong)?;
        }
        if let Some(variable) = &self.bearer_env {
            let token = secret(variable).map_err(|why| self.wrong("bearer_env", why))?;
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

    /// What it may ask, and who may answer.
    pub(crate) fn grants(&self) -> ServerGrants {
        ServerGrants {
            supports_sampling: self.supports_sampling,
            supports_elicitation: self.supports_elicitation,
            supports_roots: self.supports_roots,
            answers_sampling: self.sampling.answers_sampling,
            caps: self.sampling.caps.clone(),
            approval: self.sampling.approval,
        }
    }

    /// Whether a header's value is one, without reading any variable.
    fn is_header(name: &str, value: Option<&SecretString>) -> bool {
        let value = value.map_or_else(
            || SecretString::from("x"),
            |v| SecretString::from(v.expose_secret()),
        );
        ClientOptions::default().header(name, &value).is_ok()
    }
}

impl AgentKind for UpstreamDeclaration {
    fn id(&self) -> &str {
        &self.id
    }

    fn class(&self) -> DataClass {
        self.class
    }

    fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }

    fn resolve(&mut self, folder: &Path) {
        self.directory = self
            .directory
            .take()
            .map(|directory| folder.join(directory));
    }

    fn check(&self, tree: &Tree, _: &Names<'_>, problems: &mut Problems<'_>) {
        if let Err(error) = self.endpoint()
            && let Some(span) = tree.place(error.key)
        {
            problems.error(Some(span), format!("upstream {}: {}", self.id, error.why));
        }
        let is_child = !self.command.is_empty();
        let for_programs = ["environment", "set", "directory"].map(|key| (key, true));
        let for_urls = ["bearer_env", "headers", "header_env"].map(|key| (key, false));
        for (key, wants_child) in for_programs.into_iter().chain(for_urls) {
            if tree.get(key).is_some()
                && is_child != wants_child
                && (is_child || self.url.is_some())
            {
                let whose = if wants_child {
                    "a `command`"
                } else {
                    "a `url`"
                };
                problems.error(
                    tree.key_span(key),
                    format!("`{key}` is for upstreams with {whose}"),
                );
            }
        }
        let headers = self
            .headers
            .iter()
            .map(|(name, value)| ("headers", name, Some(value)));
        let from_variables = self
            .header_env
            .keys()
            .map(|name| ("header_env", name, None));
        for (key, name, value) in headers.chain(from_variables) {
            if !UpstreamDeclaration::is_header(name, value) {
                let span = tree.get(key).and_then(|headers| headers.key_span(name));
                problems.error(
                    span,
                    format!("`{name}` is not a header, or its value can't be one's"),
                );
            }
        }
        let calls = [
            ("calls_max", self.calls_max),
            ("connections_max", self.connections_max),
        ];
        let all = calls
            .map(|(key, max)| (key, max.map(u64::from)))
            .into_iter();
        for (key, number) in all.chain([("call_timeout_s", self.call_timeout_s)]) {
            if number == Some(0) {
                problems.error(tree.place(key), format!("`{key}` must be 1 at least"));
            }
        }
        let mut shown = HashMap::new();
        for (own, name) in &self.tools.rename {
            if let Some(other) = shown.insert(name, own) {
                let span = tree.place_at(&["tools", "rename", own]);
                problems.error(
                    span,
                    format!("`{own}` and `{other}` would both be shown as `{name}`"),
                );
            }
        }
    }

    fn check_machine(&self, tree: &Tree, problems: &mut Problems<'_>) {
        self.bearer_env
            .iter()
            .for_each(|name| is_set(name, tree.place("bearer_env"), problems));
        for (header, name) in &self.header_env {
            is_set(name, tree.place_at(&["header_env", header]), problems);
        }
        for (at, name) in self
            .environment
            .iter()
            .enumerate()
            .filter(|(_, name)| std::env::var_os(name).is_none())
        {
            let span = tree.item_place("environment", at);
            problems.warning(
                span,
                format!("there is no {} that {} could get", variable(name), self.id),
            );
        }
        if let Some(directory) = self
            .directory
            .as_ref()
            .filter(|directory| !directory.is_dir())
        {
            let message = format!("there is no folder {}", directory.display());
            problems.error(tree.place("directory"), message);
            return;
        }
        let Some(program) = self.command.first().filter(|program| !program.is_empty()) else {
            return;
        };
        let found = match program.contains('/') {
            true => self
                .directory
                .as_deref()
                .unwrap_or(Path::new(""))
                .join(program)
                .is_file(),
            false => in_path(program).is_some(),
        };
        if !found {
            let place = if program.contains('/') {
                ""
            } else {
                " in PATH"
            };
            problems.warning(
                tree.item_place("command", 0),
                format!("there is no program {program}{place}"),
            );
        }
    }

    fn start<'a>(&'a self, cx: &'a StartContext<'a>) -> BoxFuture<'a, Result<Running, StartError>> {
        Box::pin(async move {
            let options = self.bridge_options(cx.answering.clone())?;
            let bridge = Bridge::new(self.id.as_str(), self.endpoint()?, options);
            let bridge = bridge.map_err(StartError::declared("upstream", &self.id))?;
            let running = Running::new(spawn(cx.system, &self.id, bridge.clone()));
            Ok(Running {
                filter: self.tools.clone(),
                ..running.ending_with(async move { bridge.said_goodbye().await })
            })
        })
    }
}
