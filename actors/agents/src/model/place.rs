//! Where a provider is, and what proves that we may.

use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};

use super::config::{Api, ModelConfig, Remote};
use super::error::ModelError;
use super::remote::headers_of_all;
use super::wire::Wire;

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
    /// As in a topology, and in answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Openai => "openai",
            Self::AzureOpenai => "azure_openai",
            Self::OpenaiCompatible => "openai_compatible",
            Self::Anthropic => "anthropic",
            Self::Ollama => "ollama",
        }
    }

    fn url(self) -> Option<&'static str> {
        match self {
            Self::Openai => Some("https://api.openai.com/v1"),
            Self::Anthropic => Some("https://api.anthropic.com/v1"),
            Self::Ollama => Some("http://127.0.0.1:11434"),
            Self::AzureOpenai | Self::OpenaiCompatible => None,
        }
    }

    fn key_env(self) -> Option<&'static str> {
        match self {
            Self::Openai => Some("OPENAI_API_KEY"),
            Self::AzureOpenai => Some("AZURE_OPENAI_API_KEY"),
            Self::Anthropic => Some("ANTHROPIC_API_KEY"),
            Self::OpenaiCompatible | Self::Ollama => None,
        }
    }

    /// The variable that holds the key.
    fn key_variable(self, config: &Remote) -> Option<&str> {
        if config.key.is_some() {
            return None;
        }
        config.key_env.as_deref().or(self.key_env())
    }

    fn wire(self, api: Api) -> Result<Wire, ModelError> {
        match (self, api) {
            (Self::Openai | Self::AzureOpenai | Self::OpenaiCompatible, Api::Responses) => Ok(Wire::OpenaiResponses),
            (Self::Openai | Self::AzureOpenai, Api::Chat) => {
                Ok(Wire::OpenaiChat { tokens_max: "max_completion_tokens" })
            }
            // The older name is the one that all of them know.
            (Self::OpenaiCompatible, Api::Chat) => Ok(Wire::OpenaiChat { tokens_max: "max_tokens" }),
            (Self::Anthropic, Api::Chat) => Ok(Wire::Anthropic),
            (Self::Ollama, Api::Chat) => Ok(Wire::Ollama),
            (Self::Anthropic | Self::Ollama, Api::Responses) => {
                Err(ModelError::Setting { setting: "api", rule: "`responses` is OpenAI's alone" })
            }
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
        let mut headers = headers_of_all();
        if kind == Kind::Anthropic {
            headers.insert(ANTHROPIC_VERSION, HeaderValue::from_static("2023-06-01"));
        }
        let variable = kind.key_variable(config);
        if config.key.is_some() || variable.is_some() {
            let is_here = url.host_str().is_some_and(is_loopback);
            if url.scheme() == "http" && !is_here {
                return Err(ModelError::Url("a key is sent over `https` only, but to this machine"));
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
        return Err(ModelError::Setting { setting: "model", rule: "it is the model's name at the provider" });
    }
    if kind != Kind::AzureOpenai && config.api_version.is_some() {
        return Err(ModelError::Setting { setting: "api_version", rule: "only Azure has one" });
    }
    let text =
        config.url.as_deref().or(kind.url()).ok_or(ModelError::Url("this provider has no address of its own"))?;
    let mut url = Url::parse(text).map_err(|_| ModelError::Url("it is no absolute URL"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err(ModelError::Url("its scheme is neither `http` nor `https`"));
    }
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() || url.fragment().is_some() {
        return Err(ModelError::Url("it has a user, password, query or fragment"));
    }
    let before: &[&str] = match (kind, &config.api_version) {
        (Kind::AzureOpenai, None) => &["openai", "v1"],
        (Kind::AzureOpenai, Some(_)) if config.api == Api::Responses => {
            return Err(ModelError::Setting { setting: "api_version", rule: "responses need Azure's `v1` API" });
        }
        (Kind::AzureOpenai, Some(_)) => &["openai", "deployments", &config.model],
        _ => &[],
    };
    // A scheme with a host has segments.
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().extend(before).extend(wire.path().split('/'));
    }
    if let Some(version) = &config.api_version {
        url.query_pairs_mut().append_pair("api-version", version);
    }
    Ok(url)
}

fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn credential(kind: Kind, variable: &str, key: Option<SecretString>) -> Result<(HeaderName, HeaderValue), ModelError> {
    let missing = || ModelError::KeyMissing { variable: variable.to_owned() };
    let key = key.filter(|key| !key.expose_secret().is_empty()).ok_or_else(missing)?;
    let (name, value) = match kind {
        Kind::Anthropic => (X_API_KEY, HeaderValue::from_str(key.expose_secret())),
        Kind::AzureOpenai => (API_KEY, HeaderValue::from_str(key.expose_secret())),
        _ => (AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {}", key.expose_secret()))),
    };
    let mut value = value.map_err(|_| ModelError::KeyUnusable { variable: variable.to_owned() })?;
    value.set_sensitive(true);
    Ok((name, value))
}
