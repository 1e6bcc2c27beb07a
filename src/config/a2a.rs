//! Agents elsewhere that speak A2A, and what a listener in that protocol says of itself.

use std::fmt;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use callboard_gateway::bundle::Filter;
use callboard_message::DataClass;
use callboard_rpc::Network;
use serde::Deserialize;
use url::Url;

/// An agent elsewhere that speaks A2A (`[[agent]]` of the kind `a2a`).
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoteDeclaration {
    /// Its name in the directory, in rules and in names of tools.
    pub id: String,
    /// Where it is, or where its card is.
    pub url: WebUrl,
    /// How it is spoken to, where it has no card: `url` is the endpoint then.
    pub interface: Option<InterfaceDeclaration>,
    /// What its messages and replies may hold: where it is `clinical`, tasks of them are never on a disk.
    #[serde(default)]
    pub class: DataClass,
    /// How many seconds a call may take that has no deadline of its own.
    pub call_timeout_s: Option<NonZeroU64>,
    /// The variable that holds a bearer token.
    pub bearer_env: Option<String>,
    /// The variable that holds an API key.
    pub api_key_env: Option<String>,
    /// The header that the API key is sent in; `X-API-Key` where it isn't said.
    pub api_key_header: Option<String>,
    /// OAuth 2, by client credentials.
    pub oauth: Option<OauthDeclaration>,
    /// Networks that its card may lead to, beside the public internet and its own origin.
    #[serde(default)]
    pub networks: Vec<Range>,
    /// Keys (a JWK set) of which one must have signed its card. Relative to the topology file.
    pub trusted_keys: Option<PathBuf>,
    /// Where it may tell how its tasks go: an A2A listener of this node, as the agent reaches it.
    pub push_url: Option<WebUrl>,
    /// Which of its skills are shown, and as what.
    #[serde(default)]
    pub tools: Filter,
}

/// How an agent without a card is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterfaceDeclaration {
    /// The binding.
    #[serde(default)]
    pub binding: BindingName,
    /// The version of A2A.
    pub version: VersionName,
}

/// A binding of A2A.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BindingName {
    /// JSON-RPC.
    #[default]
    Jsonrpc,
    /// HTTP+JSON.
    Http,
}

/// A version of A2A.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum VersionName {
    /// 1.0.
    #[serde(rename = "1.0")]
    V10,
    /// 0.3.
    #[serde(rename = "0.3")]
    V03,
    /// 0.1.
    #[serde(rename = "0.1")]
    V01,
}

/// Client credentials of OAuth 2.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OauthDeclaration {
    /// The client's name at the authorization server.
    pub client_id: String,
    /// The variable that holds its secret.
    pub secret_env: String,
    /// Where tokens are; by default what the card says.
    pub token_url: Option<WebUrl>,
    /// What is asked for.
    #[serde(default)]
    pub scopes: Vec<String>,
}

/// Who provides an agent, in its card.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderDeclaration {
    /// The organization's name.
    pub organization: String,
    /// Its address.
    pub url: WebUrl,
}

impl RemoteDeclaration {
    /// What doesn't fit together: the key at fault, and why.
    pub(super) fn mistakes(&self) -> Vec<(&'static str, &'static str)> {
        let mut wrong = Vec::new();
        let ways = [
            ("bearer_env", self.bearer_env.is_some()),
            ("api_key_env", self.api_key_env.is_some()),
            ("oauth", self.oauth.is_some()),
        ];
        let more = ways.into_iter().filter(|(_, is_set)| *is_set).skip(1);
        wrong.extend(more.map(|(key, _)| (key, "write one of `bearer_env`, `api_key_env` and `oauth`")));
        if let Some(header) = &self.api_key_header {
            if self.api_key_env.is_none() {
                wrong.push(("api_key_header", "it names the header of a key: write `api_key_env` too"));
            } else if actix_web::http::header::HeaderName::try_from(header.as_str()).is_err() {
                wrong.push(("api_key_header", "this is not a header's name"));
            }
        }
        if self.interface.is_some() && self.trusted_keys.is_some() {
            wrong.push(("trusted_keys", "with `interface` no card is read, so that no signature is"));
        }
        wrong
    }

    /// The variables that it names: the key, and the name.
    pub(super) fn variables(&self) -> impl Iterator<Item = (&'static [&'static str], &str)> {
        const BEARER: &[&str] = &["bearer_env"];
        const KEY: &[&str] = &["api_key_env"];
        const SECRET: &[&str] = &["oauth", "secret_env"];
        // Where it isn't written it has been missed already.
        let secret = self.oauth.as_ref().map(|oauth| (SECRET, &*oauth.secret_env)).filter(|(_, name)| !name.is_empty());
        let bearer = self.bearer_env.as_deref().map(|name| (BEARER, name));
        bearer.into_iter().chain(self.api_key_env.as_deref().map(|name| (KEY, name))).chain(secret)
    }

    /// Paths as this process sees them.
    pub(super) fn resolve(&mut self, folder: &Path) {
        self.trusted_keys = self.trusted_keys.take().map(|keys| folder.join(keys));
    }
}

/// An `http` or `https` URL, without user, password or fragment.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct WebUrl(Url);

impl WebUrl {
    /// The URL.
    pub fn url(&self) -> &Url {
        &self.0
    }
}

// A query may be a secret.
impl fmt::Debug for WebUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.origin().ascii_serialization())
    }
}

impl TryFrom<String> for WebUrl {
    type Error = &'static str;

    fn try_from(written: String) -> Result<Self, Self::Error> {
        let url = Url::parse(&written).map_err(|_| "this is not a URL")?;
        match url.scheme() {
            "http" | "https" if url.host().is_none() => Err("this is not a URL"),
            "http" | "https" if !url.username().is_empty() || url.password().is_some() => {
                Err("a URL can't have user and password here")
            }
            "http" | "https" if url.fragment().is_some() => Err("a URL can't have a fragment here"),
            "http" | "https" => Ok(Self(url)),
            _ => Err("this is not an http or https URL"),
        }
    }
}

/// A range of addresses, as [`Network`] reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Range(Network);

impl Range {
    /// The range.
    pub fn network(self) -> Network {
        self.0
    }
}

impl TryFrom<String> for Range {
    type Error = &'static str;

    fn try_from(written: String) -> Result<Self, Self::Error> {
        // The error of a network repeats what is written.
        let network = written.parse().map(Self);
        network.map_err(|_| "write an address, or an address / its leading bits with all others zero")
    }
}
