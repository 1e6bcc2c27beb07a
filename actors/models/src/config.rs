//! Configuration of models in a topology file.

use std::path::{Path, PathBuf};

use reqwest::Url;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use schemars::JsonSchema;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use super::wire::WireFormat;

/// Model declaration: provider and limits. It never contains an API key, only the name of the
/// environment variable that holds it.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(tag = "provider", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ModelConfig {
    /// OpenAI, through the responses or the chat completions API.
    Openai(RemoteModelConfig),
    /// Azure OpenAI; `model` is the deployment, `url` the resource
    /// (`https://name.openai.azure.com`).
    AzureOpenai(RemoteModelConfig),
    /// Server compatible with OpenAI's chat completions or responses API, at `url`.
    OpenaiCompatible(RemoteModelConfig),
    /// Anthropic's messages API.
    Anthropic(RemoteModelConfig),
    /// Ollama's own API.
    Ollama(RemoteModelConfig),
    /// Scripted answers without a model, for tests.
    Scripted(ScriptedConfig),
    /// Echo of the last message without a model.
    Echo(EchoConfig),
    /// Embeddings by a table of word vectors. It writes no answers.
    WordVectors(WordVectorsConfig),
}

/// Configuration of a model behind an HTTP API.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoteModelConfig {
    /// Model name at the provider; for Azure, the name of the deployment.
    pub model: String,
    /// Base URL of the API with its version, such as `https://api.openai.com/v1`. The default is
    /// the provider's own.
    pub url: Option<String>,
    /// Environment variable that holds the API key. The default is `OPENAI_API_KEY`,
    /// `AZURE_OPENAI_API_KEY` or `ANTHROPIC_API_KEY` (`CLAUDE_API_KEY` if only that one is set);
    /// Ollama and compatible servers use no key unless this is set.
    pub key_env: Option<String>,
    /// PEM file with the authorities of the server's certificate, in place of the public ones.
    pub ca: Option<PathBuf>,
    /// API key set by an embedding program. It can't be set in a topology file.
    #[serde(skip)]
    pub key: Option<SecretString>,
    /// OpenAI API to use; chat completions by default.
    #[serde(default)]
    pub api: OpenaiApi,
    /// Dated API version of Azure, such as `2024-10-21`. `None` uses Azure's `v1` API.
    pub api_version: Option<String>,
    /// Whether the answer is streamed, with progress to the caller; `true` by default.
    #[serde(default = "yes")]
    pub stream: bool,
    /// Alternative names of the model, which model hints in requests match too.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// Scores by which a pool chooses among its models.
    #[serde(default)]
    pub scores: ModelScores,
    /// Token prices; `None` counts the model as free.
    pub prices: Option<TokenPrices>,
    /// Usage limits.
    #[serde(default)]
    pub limits: ModelLimits,
    /// Timeouts of requests to the provider.
    #[serde(default)]
    pub timeouts: ModelTimeouts,
    /// Retries of failed requests.
    #[serde(default)]
    pub retries: ModelRetries,
}

impl RemoteModelConfig {
    /// Creates the configuration of this model with all defaults.
    pub fn new(model: impl Into<String>) -> Self {
        Self {
            model: model.into(),
            url: None,
            key_env: None,
            ca: None,
            key: None,
            api: OpenaiApi::default(),
            api_version: None,
            stream: true,
            aliases: Vec::new(),
            scores: ModelScores::default(),
            prices: None,
            limits: ModelLimits::default(),
            timeouts: ModelTimeouts::default(),
            retries: ModelRetries::default(),
        }
    }
}

/// OpenAI API to use: chat completions or responses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OpenaiApi {
    /// Chat completions, at `/chat/completions`.
    #[default]
    Chat,
    /// Responses, at `/responses`. This API lacks stop sequences, so they are applied to the
    /// finished text.
    Responses,
}

/// Scores of a model, each from 0 to 1, weighed against the priorities of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ModelScores {
    /// Cost score; 1 is the cheapest.
    pub cost: f64,
    /// Speed score; 1 is the fastest.
    pub speed: f64,
    /// Intelligence score; 1 is the most capable.
    pub intelligence: f64,
}

/// Token prices in US dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenPrices {
    /// Price of input tokens.
    pub input_usd_per_million: f64,
    /// Price of output tokens.
    pub output_usd_per_million: f64,
}

/// Usage limits of a model. Limits that are left out don't apply, except `calls_max`, `tokens_max`
/// and `answer_bytes_max`, which have defaults. Limits in dollars need [`TokenPrices`].
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ModelLimits {
    /// Maximum concurrent calls at the provider; 16 by default. Further calls wait. Set by
    /// `limits.calls_max` of the model.
    pub calls_max: u32,
    /// Maximum tokens of one answer; 4,096 by default. A request for more is reduced to it, and a
    /// longer answer ends with `maxTokens`. Set by `limits.tokens_max` of the model.
    pub tokens_max: u32,
    /// Maximum bytes of one answer as the provider sends it; 4 MiB by default. A longer answer
    /// fails as `Unavailable`. Set by `limits.answer_bytes_max` of the model.
    pub answer_bytes_max: usize,
    /// Maximum tokens of one call, input (estimated) and output together. The answer is shortened
    /// to fit; a call whose input leaves no token for it fails as `Overloaded`. `None` means no
    /// limit.
    pub tokens_per_call_max: Option<u64>,
    /// Maximum cost of one call in US dollars. The answer is shortened to fit; a call whose input
    /// leaves no money for it fails as `Overloaded`. `None` means no limit.
    pub usd_per_call_max: Option<f64>,
    /// Maximum calls per minute; beyond it calls fail as `Overloaded`. A minute begins with the
    /// model's start, or with the first use after the previous one ended. `None` means no limit.
    pub requests_per_minute_max: Option<u64>,
    /// Maximum tokens per minute, input and output together; beyond it calls fail as `Overloaded`.
    /// A minute begins with the model's start, or with the first use after the previous one ended.
    /// `None` means no limit.
    pub tokens_per_minute_max: Option<u64>,
    /// Maximum tokens per day, input and output together; beyond it calls fail as `Overloaded`. A
    /// day is 24 hours from the model's start, or from the first use after the previous day ended.
    /// A restart begins a new day. `None` means no limit.
    pub tokens_per_day_max: Option<u64>,
    /// Maximum cost per day in US dollars; beyond it calls fail as `Overloaded`. A day is 24 hours
    /// from the model's start, or from the first use after the previous day ended. A restart begins
    /// a new day. `None` means no limit.
    pub usd_per_day_max: Option<f64>,
}

impl Default for ModelLimits {
    fn default() -> Self {
        Self {
            calls_max: 16,
            tokens_max: 4_096,
            answer_bytes_max: 4 * 1024 * 1024,
            tokens_per_call_max: None,
            usd_per_call_max: None,
            requests_per_minute_max: None,
            tokens_per_minute_max: None,
            tokens_per_day_max: None,
            usd_per_day_max: None,
        }
    }
}

/// Timeouts of requests to a provider. The deadline of the call applies as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ModelTimeouts {
    /// Time limit for the connection, in milliseconds; 10 s by default. After it the request is
    /// retried, and then fails as `Unavailable`. Set by `timeouts.connect_ms` of the model.
    pub connect_ms: u64,
    /// Time limit for the first piece of a streamed answer, and between two pieces, in
    /// milliseconds; 60 s by default. After it the call fails as `TimedOut`. Set by
    /// `timeouts.silence_ms` of the model.
    pub silence_ms: u64,
    /// Time limit for the whole answer including retries, in milliseconds; 300 s by default. After
    /// it the call fails as `TimedOut`. Set by `timeouts.whole_ms` of the model.
    pub whole_ms: u64,
}

impl Default for ModelTimeouts {
    fn default() -> Self {
        Self {
            connect_ms: 10_000,
            silence_ms: 60_000,
            whole_ms: 300_000,
        }
    }
}

/// Retries after a rate limit (429), a server error (5xx) or a failed connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ModelRetries {
    /// Maximum retries after the first attempt; 2 by default. After them the call fails with the
    /// last failure. Set by `retries.retries_max` of the model.
    pub retries_max: u32,
    /// Pause before the first retry, in milliseconds, if the provider gives none; 500 ms by
    /// default. It doubles with each retry, plus up to half of it at random. Set by
    /// `retries.pause_ms` of the model.
    pub pause_ms: u64,
    /// Maximum pause before a retry, in milliseconds; 30 s by default. If the provider asks for a
    /// longer one, there is no retry. Set by `retries.pause_ms_max` of the model.
    pub pause_ms_max: u64,
}

impl Default for ModelRetries {
    fn default() -> Self {
        Self {
            retries_max: 2,
            pause_ms: 500,
            pause_ms_max: 30_000,
        }
    }
}

/// Configuration of a scripted model: fixed answers, for tests and trials without an API key.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScriptedConfig {
    /// Model name that the answers state.
    #[serde(default = "scripted")]
    pub model: String,
    /// Provider name that the answers state.
    #[serde(default = "scripted")]
    pub named_provider: String,
    /// Answers of the script. The first one whose `when` matches is used. Otherwise the answers
    /// without `when` follow in sequence, and the last of them repeats.
    pub answers: Vec<ScriptedAnswer>,
    /// Alternative names of the model, which model hints in requests match too.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// Scores by which a pool chooses among its models.
    #[serde(default)]
    pub scores: ModelScores,
    /// Token prices; `None` counts the model as free.
    pub prices: Option<TokenPrices>,
    /// Usage limits.
    #[serde(default)]
    pub limits: ModelLimits,
}

/// Answer of a scripted model.
#[derive(derive_more::Debug, Clone, Default, Deserialize, JsonSchema)]
// `Debug` omits the texts: a script may contain conversation data.
#[debug("ScriptedAnswer({} bytes)", text.len())]
#[serde(deny_unknown_fields, default)]
pub struct ScriptedAnswer {
    /// Condition: the last turn of the conversation contains this text, in the same case. `None`
    /// for an answer that is given in sequence.
    pub when: Option<String>,
    /// Text of the answer.
    pub text: String,
    /// Tool call in the answer.
    pub tool: Option<ScriptedTool>,
    /// Stop reason; by default `endTurn`, or `toolUse` with a tool call.
    pub stop_reason: Option<String>,
    /// Token usage; estimated if left out.
    pub usage: Option<ScriptedUsage>,
    /// Delay before the answer, in milliseconds.
    pub delay_ms: u64,
    /// Error message with which the call fails instead of answering.
    pub fails: Option<String>,
}

impl ScriptedAnswer {
    /// Creates an answer with this text.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            ..Self::default()
        }
    }
}

/// Tool call in a scripted answer.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScriptedTool {
    /// Name of the tool.
    pub name: String,
    /// Input of the tool, an object.
    #[serde(default)]
    pub input: serde_json::Map<String, serde_json::Value>,
}

/// Token usage of a scripted answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScriptedUsage {
    /// Number of input tokens.
    pub input_tokens: u64,
    /// Number of output tokens.
    pub output_tokens: u64,
}

/// Configuration of the echo model, which answers with the last message.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EchoConfig {
    /// Model name that the answers state; `echo` by default.
    pub model: String,
    /// Alternative names of the model, which model hints in requests match too.
    pub aliases: Vec<String>,
    /// Scores by which a pool chooses among its models.
    pub scores: ModelScores,
}

impl Default for EchoConfig {
    fn default() -> Self {
        Self {
            model: "echo".to_owned(),
            aliases: Vec::new(),
            scores: ModelScores::default(),
        }
    }
}

/// Configuration of a table of word vectors: embeddings without a provider.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WordVectorsConfig {
    /// File with the vectors: lines of a word and its numbers, as of GloVe and fastText (`.vec`), or
    /// a JSON object of words and lists of numbers.
    pub path: PathBuf,
}

/// Configuration of a model pool: `kind = "models"` in a topology.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelPoolConfig {
    /// Names of the member models in the agent directory, the preferred first.
    pub members: Vec<String>,
    /// Whether the next member is tried if the chosen one fails; `true` by default.
    #[serde(default = "yes")]
    pub fallback: bool,
}

fn yes() -> bool {
    true
}

fn scripted() -> String {
    "scripted".to_owned()
}

const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const API_KEY: HeaderName = HeaderName::from_static("api-key");
const ANTHROPIC_VERSION: HeaderName = HeaderName::from_static("anthropic-version");

/// Lookup of API keys by the name of an environment variable; it returns `None` if there is none.
pub(super) type KeyLookup<'a> = &'a dyn Fn(&str) -> Option<SecretString>;

/// Provider of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProviderKind {
    Openai,
    AzureOpenai,
    OpenaiCompatible,
    Anthropic,
    Ollama,
}

impl ProviderKind {
    /// Returns the name used in topologies and answers, the default base URL (`None` if one must be
    /// configured), and the default key variable (`None` if no key is needed).
    pub fn defaults(self) -> (&'static str, Option<&'static str>, Option<&'static str>) {
        match self {
            Self::Openai => (
                "openai",
                Some("https://api.openai.com/v1"),
                Some("OPENAI_API_KEY"),
            ),
            Self::AzureOpenai => ("azure_openai", None, Some("AZURE_OPENAI_API_KEY")),
            Self::OpenaiCompatible => ("openai_compatible", None, None),
            Self::Anthropic => (
                "anthropic",
                Some("https://api.anthropic.com/v1"),
                Some("ANTHROPIC_API_KEY"),
            ),
            Self::Ollama => ("ollama", Some("http://127.0.0.1:11434"), None),
        }
    }

    /// Returns the environment variable that holds the API key; `None` if the configuration
    /// contains the key, or none is needed.
    fn key_variable(self, config: &RemoteModelConfig) -> Option<&str> {
        if config.key.is_some() {
            None
        } else {
            config.key_env.as_deref().or(self.default_key_variable())
        }
    }

    /// Returns the default key variable; `None` if no key is needed by default. For Anthropic it is
    /// `CLAUDE_API_KEY` if only that one is set.
    fn default_key_variable(self) -> Option<&'static str> {
        const CLAUDE: &str = "CLAUDE_API_KEY";
        let is_set = |name: &str| std::env::var_os(name).is_some();
        match (self, self.defaults().2) {
            (Self::Anthropic, Some(usual)) if !is_set(usual) && is_set(CLAUDE) => Some(CLAUDE),
            (_, usual) => usual,
        }
    }

    /// Returns the path of the embeddings below the base URL; `None` if the provider has none.
    fn embeddings_path(self) -> Option<&'static str> {
        match self {
            Self::Openai | Self::AzureOpenai | Self::OpenaiCompatible => Some("embeddings"),
            Self::Ollama => Some("api/embed"),
            Self::Anthropic => None,
        }
    }

    fn wire_format(self, api: OpenaiApi) -> Result<WireFormat, ModelError> {
        match (self, api) {
            (Self::Openai | Self::AzureOpenai | Self::OpenaiCompatible, OpenaiApi::Responses) => {
                Ok(WireFormat::OpenaiResponses)
            }
            (Self::Openai | Self::AzureOpenai, OpenaiApi::Chat) => Ok(WireFormat::OpenaiChat {
                tokens_max: "max_completion_tokens",
            }),
            // All compatible servers know the older name.
            (Self::OpenaiCompatible, OpenaiApi::Chat) => Ok(WireFormat::OpenaiChat {
                tokens_max: "max_tokens",
            }),
            (Self::Anthropic, OpenaiApi::Chat) => Ok(WireFormat::Anthropic),
            (Self::Ollama, OpenaiApi::Chat) => Ok(WireFormat::Ollama),
            (Self::Anthropic | Self::Ollama, OpenaiApi::Responses) => {
                Err(ModelError::InvalidSetting {
                    setting: "api",
                    rule: "`responses` is only for OpenAI, Azure and compatible providers: remove the key",
                })
            }
        }
    }
}

impl ModelConfig {
    /// Returns the file of `ca`; `None` without one.
    pub fn ca_file(&self) -> Option<&Path> {
        match self {
            Self::Openai(remote)
            | Self::AzureOpenai(remote)
            | Self::OpenaiCompatible(remote)
            | Self::Anthropic(remote)
            | Self::Ollama(remote) => remote.ca.as_deref(),
            Self::Scripted(_) | Self::Echo(_) | Self::WordVectors(_) => None,
        }
    }

    /// Replaces the file of `ca` by the one that `resolve` returns for it.
    pub fn resolve_ca(&mut self, resolve: impl FnOnce(PathBuf) -> PathBuf) {
        match self {
            Self::Openai(remote)
            | Self::AzureOpenai(remote)
            | Self::OpenaiCompatible(remote)
            | Self::Anthropic(remote)
            | Self::Ollama(remote) => {
                remote.ca = remote.ca.take().map(resolve);
            }
            Self::Scripted(_) | Self::Echo(_) | Self::WordVectors(_) => {}
        }
    }

    /// Returns the file of word vectors; `None` for another model.
    pub fn vectors_file(&self) -> Option<&Path> {
        match self {
            Self::WordVectors(config) => Some(&config.path),
            _ => None,
        }
    }

    /// Makes a relative path of a file of word vectors relative to `folder`.
    pub fn resolve_vectors(&mut self, folder: &Path) {
        if let Self::WordVectors(config) = self {
            config.path = folder.join(&config.path);
        }
    }

    /// Returns the environment variable that holds the API key; `None` if no key is needed, or the
    /// configuration contains it.
    pub fn key_variable(&self) -> Option<&str> {
        match self {
            Self::Openai(remote) => ProviderKind::Openai.key_variable(remote),
            Self::AzureOpenai(remote) => ProviderKind::AzureOpenai.key_variable(remote),
            Self::OpenaiCompatible(remote) => ProviderKind::OpenaiCompatible.key_variable(remote),
            Self::Anthropic(remote) => ProviderKind::Anthropic.key_variable(remote),
            Self::Ollama(remote) => ProviderKind::Ollama.key_variable(remote),
            Self::Scripted(_) | Self::Echo(_) | Self::WordVectors(_) => None,
        }
    }
}

/// URL, headers and wire format of the requests to a provider.
pub(super) struct ApiEndpoint {
    pub url: Url,
    /// URL of the embeddings; `None` if the provider has none.
    pub embeddings_url: Option<Url>,
    pub headers: HeaderMap,
    pub wire_format: WireFormat,
}

impl ApiEndpoint {
    pub fn resolve(
        kind: ProviderKind,
        config: &RemoteModelConfig,
        keys: KeyLookup<'_>,
    ) -> Result<Self, ModelError> {
        let wire = kind.wire_format(config.api)?;
        let url = endpoint_url(kind, config, wire.path())?;
        let embeddings = kind.embeddings_path();
        let embeddings_url = embeddings
            .map(|path| endpoint_url(kind, config, path))
            .transpose()?;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(
            ACCEPT,
            HeaderValue::from_static("application/json, text/event-stream, application/x-ndjson"),
        );
        if kind == ProviderKind::Anthropic {
            headers.insert(ANTHROPIC_VERSION, HeaderValue::from_static("2023-06-01"));
        }
        let variable = kind.key_variable(config);
        if config.key.is_some() || variable.is_some() {
            let is_here = url.host_str().is_some_and(is_loopback);
            if url.scheme() == "http" && !is_here {
                return Err(ModelError::InvalidUrl(
                    "a key is sent only over `https`, or to this machine: write an `https` URL",
                ));
            }
            let variable = variable.unwrap_or_default();
            let key = config.key.clone().or_else(|| keys(variable));
            let (name, value) = key_header(kind, variable, key)?;
            headers.insert(name, value);
        }
        Ok(Self {
            url,
            embeddings_url,
            headers,
            wire_format: wire,
        })
    }
}

fn endpoint_url(
    kind: ProviderKind,
    config: &RemoteModelConfig,
    path: &str,
) -> Result<Url, ModelError> {
    if config.model.is_empty() {
        return Err(ModelError::InvalidSetting {
            setting: "model",
            rule: "it is empty: write the model's name at the provider",
        });
    }
    if kind != ProviderKind::AzureOpenai && config.api_version.is_some() {
        return Err(ModelError::InvalidSetting {
            setting: "api_version",
            rule: "only the provider `azure_openai` has one: remove the key",
        });
    }
    let text = config.url.as_deref().or(kind.defaults().1);
    let text = text.ok_or(ModelError::InvalidUrl(
        "it is missing, and this provider has no default: write its base URL",
    ))?;
    let mut url = Url::parse(text).map_err(|_| {
        ModelError::InvalidUrl("it is no absolute URL such as https://models.example/v1")
    })?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err(ModelError::InvalidUrl(
            "it must begin with `http://` or `https://` and a host",
        ));
    }
    if !url.username().is_empty()
        || url.password().is_some()
        || url.query().is_some()
        || url.fragment().is_some()
    {
        return Err(ModelError::InvalidUrl(
            "it must not have a user, password, query or fragment: remove it",
        ));
    }
    let before: &[&str] = match (kind, &config.api_version) {
        (ProviderKind::AzureOpenai, None) => &["openai", "v1"],
        (ProviderKind::AzureOpenai, Some(_)) if config.api == OpenaiApi::Responses => {
            return Err(ModelError::InvalidSetting {
                setting: "api_version",
                rule: "with `api = \"responses\"` it must be absent: only Azure's `v1` API has responses",
            });
        }
        (ProviderKind::AzureOpenai, Some(_)) => &["openai", "deployments", &config.model],
        _ => &[],
    };
    // A URL with a host always has path segments.
    if let Ok(mut segments) = url.path_segments_mut() {
        segments
            .pop_if_empty()
            .extend(before)
            .extend(path.split('/'));
    }
    if let Some(version) = &config.api_version {
        url.query_pairs_mut().append_pair("api-version", version);
    }
    Ok(url)
}

fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|ip| ip.is_loopback())
}

fn key_header(
    kind: ProviderKind,
    variable: &str,
    key: Option<SecretString>,
) -> Result<(HeaderName, HeaderValue), ModelError> {
    let missing = || ModelError::KeyMissing {
        variable: variable.to_owned(),
    };
    let key = key
        .filter(|key| !key.expose_secret().is_empty())
        .ok_or_else(missing)?;
    let (name, value) = match kind {
        ProviderKind::Anthropic => (X_API_KEY, HeaderValue::from_str(key.expose_secret())),
        ProviderKind::AzureOpenai => (API_KEY, HeaderValue::from_str(key.expose_secret())),
        _ => (
            AUTHORIZATION,
            HeaderValue::from_str(&format!("Bearer {}", key.expose_secret())),
        ),
    };
    let mut value = value.map_err(|_| ModelError::KeyUnusable {
        variable: variable.to_owned(),
    })?;
    value.set_sensitive(true);
    Ok((name, value))
}

/// Error in the configuration of a model. The message names the remedy and never contains a key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The environment variable of the API key is missing or empty. Remedy: set it for this
    /// process.
    #[error(
        "failed to find the API key: the environment variable `{variable}` is missing or empty"
    )]
    KeyMissing {
        /// Name of the environment variable.
        variable: String,
    },
    /// The API key has characters other than printable ASCII, such as a line end. Remedy: correct
    /// the environment variable.
    #[error(
        "failed to use the API key in `{variable}`: it has characters other than printable ASCII"
    )]
    KeyUnusable {
        /// Name of the environment variable.
        variable: String,
    },
    /// The base URL is invalid. Remedy: an absolute `http` or `https` URL without user, password or
    /// query.
    #[error("failed to read `url`: {0}")]
    InvalidUrl(&'static str),
    /// A setting is missing or invalid. Remedy: add or correct it.
    #[error("failed to accept `{setting}`: {rule}")]
    InvalidSetting {
        /// Name of the setting in the configuration.
        setting: &'static str,
        /// Rule that the setting must satisfy.
        rule: &'static str,
    },
    /// The file of `ca` can't be used. Remedy: a PEM file with the certificates of authorities.
    #[error("failed to use `ca`, {path}: {why}", path = path.display())]
    Ca {
        /// Path of the file.
        path: PathBuf,
        /// Reason.
        why: String,
    },
    /// The file of word vectors can't be used. Remedy: lines of a word and its numbers, or a JSON
    /// object of words and lists of numbers.
    #[error("failed to use `path`, {path}: {why}", path = path.display())]
    WordVectors {
        /// Path of the file.
        path: PathBuf,
        /// Reason.
        why: String,
    },
    /// The HTTP client can't be created, because the TLS set-up of this machine is broken.
    #[error("failed to create an HTTP client: check the TLS set-up of this machine")]
    HttpClient(#[source] reqwest::Error),
}
