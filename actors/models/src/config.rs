//! What a topology file says of a model.

use reqwest::Url;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use super::wire::Wire;

/// A model as declared: which provider, and what bounds its use. A key is never in it, only the name of the environment
/// variable that holds one.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "provider", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ModelConfig {
    /// OpenAI, by the responses API or chat completions.
    Openai(Remote),
    /// Azure OpenAI; `model` is the deployment, `url` the resource (`https://name.openai.azure.com`).
    AzureOpenai(Remote),
    /// Whatever speaks OpenAI's chat completions or responses at `url`.
    OpenaiCompatible(Remote),
    /// Anthropic's messages API.
    Anthropic(Remote),
    /// Ollama's own API.
    Ollama(Remote),
    /// No model: answers that were written down.
    Scripted(ScriptedConfig),
    /// No model: says what was said last.
    Echo(EchoConfig),
}

/// A model that answers over HTTP.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Remote {
    /// Its name at the provider, for Azure the deployment's.
    pub model: String,
    /// Where the API begins, version included (`https://api.openai.com/v1`); the provider's own by default.
    pub url: Option<String>,
    /// The environment variable that holds the key. By default `OPENAI_API_KEY`, `AZURE_OPENAI_API_KEY` and
    /// `ANTHROPIC_API_KEY`; Ollama and compatible servers get none unless it is named.
    pub key_env: Option<String>,
    /// The key itself, where a program has it: never of a file of ours.
    #[serde(skip)]
    pub key: Option<SecretString>,
    /// Which of OpenAI's APIs; chat completions by default.
    #[serde(default)]
    pub api: Api,
    /// Azure's dated API version (`2024-10-21`); without one its `v1` API is used.
    pub api_version: Option<String>,
    /// Whether the answer comes piece by piece, with progress to the caller; `true` by default.
    #[serde(default = "yes")]
    pub stream: bool,
    /// Other names by which hints find it.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// How it compares to others.
    #[serde(default)]
    pub scores: Scores,
    /// What its tokens cost.
    pub prices: Option<Prices>,
    /// What may be used up.
    #[serde(default)]
    pub limits: ModelLimits,
    /// How long to wait.
    #[serde(default)]
    pub timeouts: Timeouts,
    /// How often to try again.
    #[serde(default)]
    pub retries: Retries,
}

impl Remote {
    /// The model of this name, all else by default.
    pub fn new(model: impl Into<String>) -> Self {
        Self {
            model: model.into(),
            url: None,
            key_env: None,
            key: None,
            api: Api::default(),
            api_version: None,
            stream: true,
            aliases: Vec::new(),
            scores: Scores::default(),
            prices: None,
            limits: ModelLimits::default(),
            timeouts: Timeouts::default(),
            retries: Retries::default(),
        }
    }
}

/// Which of OpenAI's APIs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Api {
    /// `/chat/completions`.
    #[default]
    Chat,
    /// `/responses`; it knows no stop sequences, so they are applied here.
    Responses,
}

/// How a model compares to others, each from 0 to 1: what a request's priorities are weighed with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scores {
    /// 1 is the cheapest.
    pub cost: f64,
    /// 1 is the fastest.
    pub speed: f64,
    /// 1 is the cleverest.
    pub intelligence: f64,
}

/// Prices in US dollars for a million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// Of what is sent.
    pub input_usd_per_million: f64,
    /// Of what is written.
    pub output_usd_per_million: f64,
}

/// What of a model may be used up. A limit that is left out is none, but for `calls_max`, `tokens_max` and
/// `answer_bytes_max`. Limits in dollars need [`Prices`].
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelLimits {
    /// Number of calls that are at the provider at once; 16 by default. Further ones wait. `limits.calls_max` of the model
    /// changes it.
    pub calls_max: u32,
    /// Tokens of one answer; 4,096 by default. What a request asks for beyond it, it doesn't get: the answer ends with
    /// `maxTokens`. `limits.tokens_max` of the model changes it.
    pub tokens_max: u32,
    /// Bytes of one answer as the provider sends it; 4 MiB by default. A longer one is `Unavailable`.
    /// `limits.answer_bytes_max` of the model changes it.
    pub answer_bytes_max: usize,
    /// Most tokens of one call, in and out.
    pub tokens_per_call_max: Option<u64>,
    /// Most dollars of one call.
    pub usd_per_call_max: Option<f64>,
    /// Most calls a minute.
    pub requests_per_minute_max: Option<u64>,
    /// Most tokens a minute, in and out.
    pub tokens_per_minute_max: Option<u64>,
    /// Most tokens a day, in and out.
    pub tokens_per_day_max: Option<u64>,
    /// Most dollars a day.
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

/// How long a provider is waited for. The call's own deadline counts too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Timeouts {
    /// Time for the connection, in milliseconds; 10 s by default. A later one is tried again, and then `Unavailable`.
    /// `timeouts.connect_ms` of the model changes it.
    pub connect_ms: u64,
    /// Time to the first piece of a streamed answer, and between two pieces, in milliseconds; 60 s by default. After it the
    /// call is `TimedOut`. `timeouts.silence_ms` of the model changes it.
    pub silence_ms: u64,
    /// Time for the whole answer, other tries included, in milliseconds; 300 s by default. After it the call is `TimedOut`.
    /// `timeouts.whole_ms` of the model changes it.
    pub whole_ms: u64,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect_ms: 10_000,
            silence_ms: 60_000,
            whole_ms: 300_000,
        }
    }
}

/// How often a request is sent again that met a limit (429), a broken server (5xx) or no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Retries {
    /// Number of tries after the first; 2 by default. After them the last failure is told. `retries.retries_max` of the model
    /// changes it.
    pub retries_max: u32,
    /// The first pause, in milliseconds, where the provider doesn't say; 500 ms by default. It is doubled each time, with up to
    /// half of it more at random. `retries.pause_ms` of the model changes it.
    pub pause_ms: u64,
    /// The longest pause, in milliseconds; 30 s by default. A provider that asks for a longer one isn't tried again.
    /// `retries.pause_ms_max` of the model changes it.
    pub pause_ms_max: u64,
}

impl Default for Retries {
    fn default() -> Self {
        Self {
            retries_max: 2,
            pause_ms: 500,
            pause_ms_max: 30_000,
        }
    }
}

/// A model that says what was written down: for tests, and to try things without a key.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedConfig {
    /// The model's name in its answers.
    #[serde(default = "scripted")]
    pub model: String,
    /// The provider's name in its answers.
    #[serde(default = "scripted")]
    pub named_provider: String,
    /// Those with `when` answer whenever that fits, the first that does; those without take turns, and the last of them stays.
    pub answers: Vec<ScriptedAnswer>,
    /// Other names by which hints find it.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// How it compares to others.
    #[serde(default)]
    pub scores: Scores,
    /// What its tokens cost.
    pub prices: Option<Prices>,
    /// What may be used up.
    #[serde(default)]
    pub limits: ModelLimits,
}

/// One answer of a scripted model.
#[derive(derive_more::Debug, Clone, Default, Deserialize)]
// A script may hold whatever a conversation holds.
#[debug("ScriptedAnswer({} bytes)", text.len())]
#[serde(deny_unknown_fields, default)]
pub struct ScriptedAnswer {
    /// Only where the last turn of the conversation holds this text.
    pub when: Option<String>,
    /// What it says.
    pub text: String,
    /// A tool that it wants used, with its input.
    pub tool: Option<ScriptedTool>,
    /// Why it ended (`endTurn` by default, `toolUse` with a tool).
    pub stop_reason: Option<String>,
    /// The tokens used; estimated where they are left out.
    pub usage: Option<ScriptedUsage>,
    /// How long it takes, in milliseconds.
    pub delay_ms: u64,
    /// It fails in place of an answer, with this sentence.
    pub fails: Option<String>,
}

impl ScriptedAnswer {
    /// It says this.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            ..Self::default()
        }
    }
}

/// A use of a tool.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedTool {
    /// The tool's name.
    pub name: String,
    /// Its input: an object.
    #[serde(default)]
    pub input: serde_json::Map<String, serde_json::Value>,
}

/// Tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedUsage {
    /// Read.
    pub input_tokens: u64,
    /// Written.
    pub output_tokens: u64,
}

/// A model that says what was said last.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EchoConfig {
    /// The model's name in its answers; `echo` by default.
    pub model: String,
    /// Other names by which hints find it.
    pub aliases: Vec<String>,
    /// How it compares to others.
    pub scores: Scores,
}

impl Default for EchoConfig {
    fn default() -> Self {
        Self {
            model: "echo".to_owned(),
            aliases: Vec::new(),
            scores: Scores::default(),
        }
    }
}

/// Several models as one: `kind = "models"` in a topology.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelsConfig {
    /// The directory's names of the models, the preferred first.
    pub members: Vec<String>,
    /// Whether another one is tried where the chosen one fails; `true` by default.
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

/// Where a variable of the environment is looked up.
pub(super) type Keys<'a> = &'a dyn Fn(&str) -> Option<SecretString>;

/// Who provides a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Openai,
    AzureOpenai,
    OpenaiCompatible,
    Anthropic,
    Ollama,
}

impl Kind {
    /// The name in a topology and in answers; the address and the variable of the key, where it has ones of its own.
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

    /// The variable that holds the key.
    fn key_variable(self, config: &Remote) -> Option<&str> {
        if config.key.is_some() {
            None
        } else {
            config.key_env.as_deref().or(self.defaults().2)
        }
    }

    fn wire(self, api: Api) -> Result<Wire, ModelError> {
        match (self, api) {
            (Self::Openai | Self::AzureOpenai | Self::OpenaiCompatible, Api::Responses) => {
                Ok(Wire::OpenaiResponses)
            }
            (Self::Openai | Self::AzureOpenai, Api::Chat) => Ok(Wire::OpenaiChat {
                tokens_max: "max_completion_tokens",
            }),
            // The older name is the one that all of them know.
            (Self::OpenaiCompatible, Api::Chat) => Ok(Wire::OpenaiChat {
                tokens_max: "max_tokens",
            }),
            (Self::Anthropic, Api::Chat) => Ok(Wire::Anthropic),
            (Self::Ollama, Api::Chat) => Ok(Wire::Ollama),
            (Self::Anthropic | Self::Ollama, Api::Responses) => Err(ModelError::Setting {
                setting: "api",
                rule: "`responses` is OpenAI's alone",
            }),
        }
    }
}

impl ModelConfig {
    /// The environment variable that holds its key; `None` where it needs none.
    pub fn key_variable(&self) -> Option<&str> {
        match self {
            Self::Openai(remote) => Kind::Openai.key_variable(remote),
            Self::AzureOpenai(remote) => Kind::AzureOpenai.key_variable(remote),
            Self::OpenaiCompatible(remote) => Kind::OpenaiCompatible.key_variable(remote),
            Self::Anthropic(remote) => Kind::Anthropic.key_variable(remote),
            Self::Ollama(remote) => Kind::Ollama.key_variable(remote),
            Self::Scripted(_) | Self::Echo(_) => None,
        }
    }
}

/// Where requests go, and with which headers.
pub(super) struct Place {
    pub url: Url,
    pub headers: HeaderMap,
    pub wire: Wire,
}

impl Place {
    pub fn of(kind: Kind, config: &Remote, keys: Keys<'_>) -> Result<Self, ModelError> {
        let wire = kind.wire(config.api)?;
        let url = address(kind, config, wire)?;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(
            ACCEPT,
            HeaderValue::from_static("application/json, text/event-stream, application/x-ndjson"),
        );
        if kind == Kind::Anthropic {
            headers.insert(ANTHROPIC_VERSION, HeaderValue::from_static("2023-06-01"));
        }
        let variable = kind.key_variable(config);
        if config.key.is_some() || variable.is_some() {
            let is_here = url.host_str().is_some_and(is_loopback);
            if url.scheme() == "http" && !is_here {
                return Err(ModelError::Url(
                    "a key is sent over `https` only, but to this machine",
                ));
            }
            let variable = variable.unwrap_or_default();
            let key = config.key.clone().or_else(|| keys(variable));
            let (name, value) = credential(kind, variable, key)?;
            headers.insert(name, value);
        }
        Ok(Self { url, headers, wire })
    }
}

fn address(kind: Kind, config: &Remote, wire: Wire) -> Result<Url, ModelError> {
    if config.model.is_empty() {
        return Err(ModelError::Setting {
            setting: "model",
            rule: "it is the model's name at the provider",
        });
    }
    if kind != Kind::AzureOpenai && config.api_version.is_some() {
        return Err(ModelError::Setting {
            setting: "api_version",
            rule: "only Azure has one",
        });
    }
    let text = config.url.as_deref().or(kind.defaults().1);
    let text = text.ok_or(ModelError::Url("this provider has no address of its own"))?;
    let mut url = Url::parse(text).map_err(|_| ModelError::Url("it is no absolute URL"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err(ModelError::Url("its scheme is neither `http` nor `https`"));
    }
    if !url.username().is_empty()
        || url.password().is_some()
        || url.query().is_some()
        || url.fragment().is_some()
    {
        return Err(ModelError::Url(
            "it has a user, password, query or fragment",
        ));
    }
    let before: &[&str] = match (kind, &config.api_version) {
        (Kind::AzureOpenai, None) => &["openai", "v1"],
        (Kind::AzureOpenai, Some(_)) if config.api == Api::Responses => {
            return Err(ModelError::Setting {
                setting: "api_version",
                rule: "responses need Azure's `v1` API",
            });
        }
        (Kind::AzureOpenai, Some(_)) => &["openai", "deployments", &config.model],
        _ => &[],
    };
    // A scheme with a host has segments.
    if let Ok(mut segments) = url.path_segments_mut() {
        segments
            .pop_if_empty()
            .extend(before)
            .extend(wire.path().split('/'));
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

fn credential(
    kind: Kind,
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
        Kind::Anthropic => (X_API_KEY, HeaderValue::from_str(key.expose_secret())),
        Kind::AzureOpenai => (API_KEY, HeaderValue::from_str(key.expose_secret())),
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

/// Why a model can't be made of its configuration. Each variant tells the operator what to change; none holds a key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// Put the key into that variable of this process.
    #[error("failed to find the key: the environment variable `{variable}` is missing or empty")]
    KeyMissing {
        /// The variable.
        variable: String,
    },
    /// Keys are printable ASCII: see what stands in the variable, for example a line end.
    #[error("failed to use the key in `{variable}`: it has characters that no key has")]
    KeyUnusable {
        /// The variable.
        variable: String,
    },
    /// Name the API by an absolute `http` or `https` URL without user, password or query.
    #[error("failed to read `url`: {0}")]
    Url(&'static str),
    /// Add the setting, or correct it.
    #[error("failed to accept `{setting}`: {rule}")]
    Setting {
        /// Its name in the configuration.
        setting: &'static str,
        /// What it has to be.
        rule: &'static str,
    },
    /// The HTTP client can't be made: the TLS set-up of this machine is broken.
    #[error("failed to make an HTTP client")]
    Client(#[source] reqwest::Error),
}
