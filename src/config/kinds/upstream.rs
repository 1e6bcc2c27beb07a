//! MCP servers behind the bridge (`[[upstream]]`). Each is an agent.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use callboard_gateway::aggregate::ToolFilter;
use callboard_gateway::question_router::{ServerGrants, UsageCaps};
use callboard_mcp::bridge::{
    Bridge, BridgeOptions, BridgeToolOptions, REMOTE_CONNECTIONS_DEFAULT, StartMode,
};
use callboard_mcp::outbound::auth::{AuthError, StaticBearer};
use callboard_mcp::outbound::{
    ChildCommand, Era, EraChoice, McpClientError, McpClientOptions, ServerDialect, ServerEndpoint,
};
use callboard_message::DataClass;
use callboard_rpc::ClientTls;
use callboard_runtime::{PinMode, QuestionRouter};
use futures::future::BoxFuture;
use schemars::JsonSchema;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use super::{AgentDeclaration, RunningAgent, StartContext, StartError};
use crate::config::DeclaredNames;
use crate::config::problem::{ProblemCollector, find_program, percent_error, variable_for_message};
use crate::config::secret::{check_secret, read_secret};
use crate::config::tls::{client_tls, resolve_ca};
use crate::config::tree::ConfigTree;

/// Time in which a program must have answered `initialize` after its start. `npx` and `uvx` may download
/// it first.
const PROGRAM_START_TIMEOUT: Duration = Duration::from_secs(120);

const TLS_PAIR_MESSAGE: &str = "write `client_certificate` and `client_key`, or neither";

/// An MCP server behind the bridge (`[[upstream]]`), served as an agent with this id.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UpstreamDeclaration {
    /// Unique name in the directory, also used in policies and as prefix of tool names.
    pub id: String,
    /// Description in A2A agent cards. Default: made from its tools.
    pub description: Option<String>,
    /// Program and arguments of a server on standard streams. Either this or `url` is required.
    #[serde(default)]
    pub command: Vec<String>,
    /// URL of a remote server.
    pub url: Option<String>,
    /// Transport. Default: by `command` or the scheme of `url`.
    pub transport: Option<UpstreamTransport>,
    /// Environment variables of this process that the program inherits, in addition to `HOME`,
    /// `LANG`, `PATH`, `TMPDIR` and `USER`.
    #[serde(default)]
    pub env_passthrough: Vec<String>,
    /// Environment variables of the program with their values.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, String>")]
    pub env: BTreeMap<String, SecretString>,
    /// Working directory of the program, relative to the topology file. Default: the file's folder.
    pub working_directory: Option<PathBuf>,
    /// Absolute folder of the topology file; `None` if it is this process's working directory.
    #[serde(skip)]
    folder: Option<PathBuf>,
    /// Environment variable with a bearer token.
    pub bearer_env: Option<String>,
    /// HTTP headers of each request.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, String>")]
    pub headers: BTreeMap<String, SecretString>,
    /// HTTP headers whose values are in the named environment variables.
    #[serde(default)]
    pub header_env: BTreeMap<String, String>,
    /// PEM file with the authorities of the server's certificate, in place of the public ones.
    pub ca: Option<PathBuf>,
    /// PEM file with the certificate that is shown to the server, followed by those of its issuers.
    pub client_certificate: Option<PathBuf>,
    /// PEM file with the private key of `client_certificate`.
    pub client_key: Option<PathBuf>,
    /// Handling of tools that come or change.
    #[serde(default)]
    pub pin: PinMode,
    /// Era of MCP that the server speaks.
    #[serde(default)]
    pub era: McpEraName,
    /// Dialect of the server's questions.
    #[serde(default)]
    pub dialect: ServerDialect,
    /// Whether the server keeps no state for a client, so that clients whom it can't ask share one
    /// connection.
    #[serde(default)]
    pub stateless: bool,
    /// Time of the first connection.
    #[serde(default)]
    pub start: UpstreamStart,
    /// Whether the server may request sampling.
    #[serde(default)]
    pub supports_sampling: bool,
    /// Whether the server may request elicitation.
    #[serde(default)]
    pub supports_elicitation: bool,
    /// Whether the server may request roots.
    #[serde(default)]
    pub supports_roots: bool,
    /// Whether the server may send requests of the client's extensions.
    #[serde(default)]
    pub supports_extensions: bool,
    /// Maximum number of concurrent calls, without those whose server waits for an answer. A
    /// further call fails after 5 s. Default: 64.
    pub calls_max: Option<u32>,
    /// Share of a principal in `calls_max` and `connections_max`, in percent, 1 to 100. Beyond it,
    /// a principal gets places only while others have room. Default: 25.
    pub principal_share_percent: Option<u8>,
    /// Maximum number of concurrent connections, without the one that all clients share. At the
    /// limit, the one that has been idle longest is closed. Default: 64, and 1,024 with `url`.
    pub connections_max: Option<u32>,
    /// Maximum size in bytes of one message from the server. A call with a larger answer fails.
    /// Default: 4 MiB.
    pub body_bytes_max: Option<NonZeroUsize>,
    /// Maximum duration in seconds of a call, questions included. An earlier deadline of the call
    /// applies too. Default: 300.
    pub call_timeout_s: Option<u64>,
    /// Time in seconds for which a client's connection without calls and subscriptions is kept.
    /// Default: 600.
    pub idle_timeout_s: Option<u64>,
    /// Maximum number of retries of a call to a tool that `retry` lists, or of a call to an
    /// idempotent tool that could not be sent. Default: 2.
    pub retries_max: Option<u32>,
    /// Tools or patterns whose calls may be repeated although the server may have executed them.
    #[serde(default)]
    pub retry: Vec<String>,
    /// Filter and renaming of its tools.
    #[serde(default)]
    pub tools: ToolFilter,
    /// Whether the arguments of a call must fit the tool's input schema. Default: true.
    pub check_arguments: Option<bool>,
    /// Time in seconds for which a tool's results are cached, by tool name or pattern.
    #[serde(default)]
    pub cache: BTreeMap<String, u64>,
    /// Tools or patterns whose cached results are shared between principals. Others are cached for
    /// each principal.
    #[serde(default)]
    pub cache_shared: Vec<String>,
    /// Highest class of data in arguments and results. Of tasks with `clinical` data only the
    /// states are written to disk. Default: `internal`.
    #[serde(default)]
    pub class: DataClass,
    /// Limits of the server's sampling requests.
    #[serde(default)]
    pub sampling: SamplingDeclaration,
}

/// Transport to an MCP server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UpstreamTransport {
    /// Standard streams of a child process.
    Stdio,
    /// Streamable HTTP, with HTTP+SSE as fallback.
    #[serde(alias = "http")]
    StreamableHttp,
    /// WebSocket.
    Websocket,
    /// HTTP+SSE of MCP 2024-11-05.
    Sse,
}

/// Era of MCP to speak with a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum McpEraName {
    /// Detected at the first connection.
    #[default]
    Auto,
    /// MCP 2024-11-05 to 2025-11-25.
    Legacy,
    /// MCP 2026-07-28.
    Modern,
}

/// Time of the first connection to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UpstreamStart {
    /// At the first call.
    #[default]
    Demand,
    /// At the start of the node.
    Boot,
}

/// Invalid endpoint or options of an upstream.
#[derive(Debug, thiserror::Error)]
#[error("upstream {id}: `{key}`: {why}")]
pub struct UpstreamError {
    /// Id of the upstream.
    pub id: String,
    /// Invalid key.
    pub key: &'static str,
    /// Reason.
    pub why: String,
}

/// Limits of a server's sampling requests (`[upstream.sampling]`).
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SamplingDeclaration {
    /// Whether a person at the client must approve before anyone but the client answers.
    pub approval: bool,
    /// Whether the server may itself answer sampling requests of other servers.
    pub answers_sampling: bool,
    /// Usage limits of its questions.
    pub caps: UsageCaps,
}

impl UpstreamDeclaration {
    fn key_error(&self, key: &'static str, why: impl ToString) -> UpstreamError {
        UpstreamError {
            id: self.id.clone(),
            key,
            why: why.to_string(),
        }
    }

    /// Returns the endpoint.
    ///
    /// # Errors
    /// [`UpstreamError`] if `command`, `url` and `transport` contradict each other.
    pub fn endpoint(&self) -> Result<ServerEndpoint, UpstreamError> {
        match (self.command.split_first(), &self.url) {
            (Some(_), Some(_)) => Err(self.key_error("url", "write `command` or `url`, not both")),
            (None, None) => Err(self.key_error("id", "it needs `command` or `url`")),
            (Some((program, arguments)), None) => match self.transport {
                None | Some(UpstreamTransport::Stdio) if !program.is_empty() => {
                    Ok(self.child_endpoint(program, arguments))
                }
                None | Some(UpstreamTransport::Stdio) => {
                    Err(self.key_error("command", "the program's name is empty"))
                }
                Some(_) => Err(self.key_error(
                    "transport",
                    "a `command` speaks over `stdio` only: leave `transport` out",
                )),
            },
            (None, Some(url)) => {
                let endpoint = match self.transport {
                    Some(UpstreamTransport::Stdio) => {
                        return Err(
                            self.key_error("transport", "`stdio` needs a `command`, not a `url`")
                        );
                    }
                    Some(UpstreamTransport::Sse) => ServerEndpoint::sse(url),
                    _ => ServerEndpoint::from_url(url),
                };
                let endpoint = endpoint.map_err(|error| self.key_error("url", error))?;
                match (self.transport, &endpoint) {
                    (Some(UpstreamTransport::StreamableHttp), ServerEndpoint::WebSocket(_)) => {
                        Err(self.key_error("url", "`streamable_http` needs an http or https URL"))
                    }
                    (Some(UpstreamTransport::Websocket), ServerEndpoint::Http(_)) => {
                        Err(self.key_error("url", "`websocket` needs a ws or wss URL"))
                    }
                    _ => Ok(endpoint),
                }
            }
        }
    }

    fn child_endpoint(&self, program: &str, arguments: &[String]) -> ServerEndpoint {
        let mut child = ChildCommand::new(self.program_path(program), arguments);
        child
            .env_passthrough
            .extend(self.env_passthrough.iter().cloned());
        child.env = self
            .env
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        child.working_directory = self.program_directory().map(Path::to_owned);
        ServerEndpoint::Child(child)
    }

    /// Returns the directory in which the program runs; `None` for this process's.
    fn program_directory(&self) -> Option<&Path> {
        self.working_directory.as_deref().or(self.folder.as_deref())
    }

    /// Resolves a program path that contains a slash against the directory in which it runs.
    fn program_path(&self, program: &str) -> OsString {
        match self.program_directory() {
            Some(directory) if program.contains('/') => directory.join(program).into_os_string(),
            _ => program.into(),
        }
    }

    /// Returns the bridge's options. Reads the environment variables that the declaration names.
    ///
    /// # Errors
    /// [`UpstreamError`] if a variable is missing or a header is invalid.
    pub fn bridge_options(
        &self,
        answering: Arc<dyn QuestionRouter>,
    ) -> Result<BridgeOptions, UpstreamError> {
        let default = BridgeOptions::default();
        Ok(BridgeOptions {
            client: self.client_options()?,
            question_router: Some(answering),
            is_stateless: self.stateless,
            start: match self.start {
                UpstreamStart::Demand => StartMode::Demand,
                UpstreamStart::Boot => StartMode::Boot,
            },
            calls_max: self.calls_max.unwrap_or(default.calls_max),
            principal_share_percent: self
                .principal_share_percent
                .unwrap_or(default.principal_share_percent),
            connections_max: match self.connections_max {
                Some(max) => max as usize,
                // A remote session is cheap; a program is a process each.
                None if self.command.is_empty() => REMOTE_CONNECTIONS_DEFAULT,
                None => default.connections_max,
            },
            tools: BridgeToolOptions {
                retries_max: self.retries_max.unwrap_or(default.tools.retries_max),
                retry_tools: self.retry.clone(),
                cache_ttl: self
                    .cache
                    .iter()
                    .map(|(tool, s)| (tool.clone(), Duration::from_secs(*s)))
                    .collect(),
                cache_shared: self.cache_shared.clone(),
                checks_arguments: self
                    .check_arguments
                    .unwrap_or(default.tools.checks_arguments),
                ..default.tools
            },
            idle_timeout: self
                .idle_timeout_s
                .map_or(default.idle_timeout, Duration::from_secs),
            ..default
        })
    }

    /// Returns the client's options. Reads the environment variables that the declaration names.
    ///
    /// # Errors
    /// [`UpstreamError`] if a variable is missing or a header is invalid.
    pub fn client_options(&self) -> Result<McpClientOptions, UpstreamError> {
        let mut options = McpClientOptions {
            tls: self.client_tls()?,
            era: self.era_choice(),
            expects_questions: self.supports_sampling
                || self.supports_elicitation
                || self.supports_roots
                || self.supports_extensions,
            dialect: self.dialect,
            is_transport_fixed: self.transport.is_some(),
            ..McpClientOptions::default()
        };
        if !self.command.is_empty() {
            options.handshake_timeout = PROGRAM_START_TIMEOUT;
        }
        if let Some(bytes) = self.body_bytes_max {
            options.limits.body_bytes_max = bytes.get();
        }
        if let Some(seconds) = self.call_timeout_s {
            options.call_timeout = Duration::from_secs(seconds);
        }
        for (name, value) in &self.headers {
            options = options
                .with_header(name, value)
                .map_err(|error| self.key_error("headers", format!("{name}: {error}")))?;
        }
        for (name, variable) in &self.header_env {
            let value = read_secret(variable).map_err(|why| self.key_error("header_env", why))?;
            let wrong =
                |error: McpClientError| self.key_error("header_env", format!("{name}: {error}"));
            options = options.with_header(name, &value).map_err(wrong)?;
        }
        if let Some(variable) = &self.bearer_env {
            let token = read_secret(variable).map_err(|why| self.key_error("bearer_env", why))?;
            let wrong = |error: AuthError| self.key_error("bearer_env", error);
            options.authorizer = Some(Arc::new(StaticBearer::new(&token).map_err(wrong)?));
        }
        Ok(options)
    }

    fn client_tls(&self) -> Result<ClientTls, UpstreamError> {
        let tls = client_tls(self.ca.as_deref()).map_err(|why| self.key_error("ca", why))?;
        match (&self.client_certificate, &self.client_key) {
            (Some(certificate), Some(key)) => tls
                .with_certificate(certificate, key)
                .map_err(|error| self.key_error("client_certificate", error)),
            (None, None) => Ok(tls),
            (Some(_), None) => Err(self.key_error("client_certificate", TLS_PAIR_MESSAGE)),
            (None, Some(_)) => Err(self.key_error("client_key", TLS_PAIR_MESSAGE)),
        }
    }

    /// Reports contradictions of `command`, `url` and `transport`, and keys that are for the other kind
    /// of endpoint.
    fn check_endpoint(&self, tree: &ConfigTree, problems: &mut ProblemCollector<'_>) {
        if let Err(error) = self.endpoint()
            && let Some(span) = tree.span_of(error.key)
        {
            problems.error(Some(span), format!("upstream {}: {}", self.id, error.why));
        }
        let is_child = !self.command.is_empty();
        let for_programs = ["env_passthrough", "env", "working_directory"].map(|key| (key, true));
        let for_urls = [
            "bearer_env",
            "headers",
            "header_env",
            "ca",
            "client_certificate",
            "client_key",
        ]
        .map(|key| (key, false));
        for (key, wants_child) in for_programs.into_iter().chain(for_urls) {
            if tree.is_set(key) && is_child != wants_child && (is_child || self.url.is_some()) {
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
    }

    /// Reports keys for TLS without one another, or with a URL without TLS.
    fn check_tls(&self, tree: &ConfigTree, problems: &mut ProblemCollector<'_>) {
        let is_plain = self
            .url
            .as_ref()
            .is_some_and(|url| url.starts_with("http:") || url.starts_with("ws:"));
        let for_tls = ["ca", "client_certificate", "client_key"];
        for key in for_tls
            .into_iter()
            .filter(|key| is_plain && tree.is_set(key))
        {
            let why = "is for an https or wss URL: over this one everything is sent in the open";
            problems.error(tree.key_span(key), format!("`{key}` {why}"));
        }
        let (alone, other) = match (&self.client_certificate, &self.client_key) {
            (Some(_), None) => ("client_certificate", "client_key"),
            (None, Some(_)) => ("client_key", "client_certificate"),
            _ => return,
        };
        if tree.get(other).is_some_and(ConfigTree::is_placeholder) {
            return;
        }
        problems.error(
            tree.key_span(alone),
            format!("`{alone}`: {TLS_PAIR_MESSAGE}"),
        );
    }

    /// Returns the era of MCP to speak.
    pub fn era_choice(&self) -> EraChoice {
        match self.era {
            McpEraName::Auto => EraChoice::Auto,
            McpEraName::Legacy => EraChoice::Only(Era::Legacy),
            McpEraName::Modern => EraChoice::Only(Era::Modern),
        }
    }

    /// Returns the questions that the server may ask, and their limits.
    pub(crate) fn server_grants(&self) -> ServerGrants {
        ServerGrants {
            supports_sampling: self.supports_sampling,
            supports_elicitation: self.supports_elicitation,
            supports_roots: self.supports_roots,
            supports_extensions: self.supports_extensions,
            answers_sampling: self.sampling.answers_sampling,
            caps: self.sampling.caps.clone(),
            approval: self.sampling.approval,
        }
    }

    /// Whether a header's name and value are valid. Reads no environment variable; `None` stands
    /// for any valid value.
    fn is_valid_header(name: &str, value: Option<&SecretString>) -> bool {
        let value = value.map_or_else(
            || SecretString::from("x"),
            |v| SecretString::from(v.expose_secret()),
        );
        McpClientOptions::default()
            .with_header(name, &value)
            .is_ok()
    }
}

impl AgentDeclaration for UpstreamDeclaration {
    fn id(&self) -> &str {
        &self.id
    }

    fn kind(&self) -> &'static str {
        "upstream"
    }

    fn class(&self) -> DataClass {
        self.class
    }

    fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }

    fn resolve_paths(&mut self, folder: &Path) {
        // A relative path would be resolved again in the child, after it has changed its directory.
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        self.folder = (!folder.as_os_str().is_empty()).then(|| absolute(folder));
        self.working_directory = self
            .working_directory
            .take()
            .map(|directory| absolute(&folder.join(directory)));
        self.ca = self.ca.take().map(|file| resolve_ca(&file, folder));
        for file in [&mut self.client_certificate, &mut self.client_key] {
            *file = file.take().map(|file| folder.join(file));
        }
    }

    fn check(&self, tree: &ConfigTree, _: &DeclaredNames<'_>, problems: &mut ProblemCollector<'_>) {
        // Without one of these, what is missing or doesn't fit would only follow from it.
        let is_placeholder = |key| tree.get(key).is_some_and(ConfigTree::is_placeholder);
        if !is_placeholder("command") && !is_placeholder("url") {
            self.check_endpoint(tree, problems);
        }
        self.check_tls(tree, problems);
        let headers = self
            .headers
            .iter()
            .map(|(name, value)| ("headers", name, Some(value)));
        let from_variables = self
            .header_env
            .keys()
            .map(|name| ("header_env", name, None));
        for (key, name, value) in headers.chain(from_variables) {
            if !UpstreamDeclaration::is_valid_header(name, value) {
                let span = tree.get(key).and_then(|headers| headers.key_span(name));
                problems.error(
                    span,
                    format!(
                        "`{name}` is no valid header name, or its value is no valid header value"
                    ),
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
                problems.error(tree.span_of(key), format!("`{key}` must be 1 at least"));
            }
        }
        let key = "principal_share_percent";
        if let Some(why) = percent_error(key, self.principal_share_percent) {
            problems.error(tree.span_of(key), why);
        }
        let mut shown = HashMap::new();
        for (own, name) in &self.tools.rename {
            if let Some(other) = shown.insert(name, own) {
                let span = tree.span_at_path(&["tools", "rename", own]);
                problems.error(
                    span,
                    format!("`{own}` and `{other}` would both be shown as `{name}`"),
                );
            }
        }
    }

    fn check_machine(&self, tree: &ConfigTree, problems: &mut ProblemCollector<'_>) {
        // One without the other was reported before.
        if self.client_certificate.is_some() == self.client_key.is_some()
            && let Err(error) = self.client_tls()
        {
            problems.error(
                tree.span_of(error.key),
                format!("`{}`: {}", error.key, error.why),
            );
        }
        self.bearer_env
            .iter()
            .for_each(|name| check_secret(name, tree.span_of("bearer_env"), problems));
        for (header, name) in &self.header_env {
            check_secret(name, tree.span_at_path(&["header_env", header]), problems);
        }
        for (at, name) in self
            .env_passthrough
            .iter()
            .enumerate()
            .filter(|(_, name)| std::env::var_os(name).is_none())
        {
            let span = tree.item_span("env_passthrough", at);
            problems.warning(
                span,
                format!(
                    "there is no {} to pass on to {}",
                    variable_for_message(name),
                    self.id
                ),
            );
        }
        if let Some(directory) = self
            .working_directory
            .as_ref()
            .filter(|directory| !directory.is_dir())
        {
            let message = format!("there is no folder {}", directory.display());
            problems.error(tree.span_of("working_directory"), message);
            return;
        }
        let Some(program) = self.command.first().filter(|program| !program.is_empty()) else {
            return;
        };
        let found = match program.contains('/') {
            true => Path::new(&self.program_path(program)).is_file(),
            false => find_program(program).is_some(),
        };
        if !found {
            let (place, help) = match program.contains('/') {
                true => (
                    "",
                    "install it, or correct the path: without it the upstream can't start",
                ),
                false if program.contains(' ') => (
                    " in PATH",
                    "write program and arguments one by one, as in `command = [\"npx\", \"-y\", \"server\"]`",
                ),
                false => (
                    " in PATH",
                    "install it, or write its whole path: without it the upstream can't start",
                ),
            };
            problems.warning_with(
                tree.item_span("command", 0),
                format!("there is no program {program}{place}"),
                Some(help.to_owned()),
            );
        }
    }

    fn start<'a>(
        &'a self,
        cx: &'a StartContext<'a>,
    ) -> BoxFuture<'a, Result<RunningAgent, StartError>> {
        Box::pin(async move {
            let options = self.bridge_options(cx.question_router.clone())?;
            let bridge = Bridge::new(self.id.as_str(), self.endpoint()?, options);
            let bridge = bridge.map_err(StartError::declaration_error("upstream", &self.id))?;
            let agent = bridge.clone();
            let agent = cx.system.prepare_with(move || agent.clone());
            let agent = agent
                .label(self.id.as_str())
                .profile(bridge.agent_profile());
            let running = RunningAgent::new(agent.spawn());
            Ok(RunningAgent {
                filter: self.tools.clone(),
                ..running.with_teardown(async move { bridge.drained().await })
            })
        })
    }
}
