//! Access tokens that a listener accepts (`[listener.auth]`).

use std::fmt;
use std::path::{Path, PathBuf};

use callboard_rpc::{ClaimNames, JwsAlgorithm, KeySource, TokenIssuer, is_loopback_host};
use serde::{Deserialize, Deserializer};
use url::Url;

use super::address::{NetworkRange, WebUrl};
use super::problem::{ProblemCollector, check_key_file};
use super::tls::client_tls;
use super::tree::ConfigTree;

/// Maximum length of an issuer's short name, in bytes.
const ISSUER_NAME_BYTES_MAX: usize = 32;

/// Access tokens that a listener accepts (`[listener.auth]`).
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuthDeclaration {
    /// Origin under which clients reach the listener, such as `https://agents.example`, for its
    /// metadata. Default: that of `public_url`, else that of the request.
    pub resource: Option<WebUrl>,
    /// Authorization servers whose tokens are accepted.
    #[serde(default)]
    pub issuer: Vec<IssuerDeclaration>,
}

/// An authorization server whose tokens are accepted (`[[listener.auth.issuer]]`).
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IssuerDeclaration {
    /// Short name, with which the ids of its principals begin: `NAME.ID`.
    pub name: String,
    /// Issuer, exactly as in its tokens and metadata.
    pub issuer: String,
    /// Audiences, of which a token must name one.
    pub audiences: Vec<String>,
    /// URL or file of its keys, relative to the topology file. Default: as its metadata say.
    pub jwks: Option<KeySetPlace>,
    /// Signature algorithms. Default: [`JwsAlgorithm::DEFAULT`].
    pub algorithms: Option<Vec<AlgorithmName>>,
    /// Scopes that each token must have.
    #[serde(default)]
    pub scopes_required: Vec<String>,
    /// Networks in which its metadata and keys may be, in addition to the public internet.
    #[serde(default)]
    pub networks: Vec<NetworkRange>,
    /// PEM file with the authorities of its server's certificate, relative to the topology file.
    /// Default: the public ones.
    pub ca: Option<PathBuf>,
    /// Claims that become the principal.
    #[serde(default)]
    pub claims: ClaimsDeclaration,
}

/// Claims that become the principal (`[listener.auth.issuer.claims]`).
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimsDeclaration {
    /// Claim with the id. Default: `sub`.
    pub principal: Option<String>,
    /// Claim with the tenant.
    pub tenant: Option<String>,
    /// Claim with the roles.
    pub roles: Option<String>,
}

/// Place of an issuer's keys: a URL, or a file.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum KeySetPlace {
    /// URL.
    Url(WebUrl),
    /// File, relative to the topology file.
    File(PathBuf),
}

impl fmt::Debug for KeySetPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url) => url.fmt(f),
            Self::File(path) => path.fmt(f),
        }
    }
}

impl TryFrom<String> for KeySetPlace {
    type Error = &'static str;

    fn try_from(written: String) -> Result<Self, Self::Error> {
        match written.contains("://") {
            true => WebUrl::try_from(written).map(Self::Url),
            false => Ok(Self::File(written.into())),
        }
    }
}

/// Name of a signature algorithm, such as `ES256`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AlgorithmName(pub JwsAlgorithm);

impl<'de> Deserialize<'de> for AlgorithmName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        JwsAlgorithm::from_name(&name).map(Self).ok_or_else(|| {
            let known: Vec<_> = JwsAlgorithm::ALL
                .into_iter()
                .map(JwsAlgorithm::name)
                .collect();
            serde::de::Error::custom(format!(
                "this is no algorithm that tokens may be signed by: use one of {}",
                known.join(", ")
            ))
        })
    }
}

impl AuthDeclaration {
    /// Resolves relative paths against `folder`.
    pub(super) fn resolve_paths(&mut self, folder: &Path) {
        for issuer in &mut self.issuer {
            if let Some(KeySetPlace::File(path)) = &mut issuer.jwks {
                *path = folder.join(&*path);
            }
            if let Some(path) = &mut issuer.ca {
                *path = folder.join(&*path);
            }
        }
    }

    /// Returns what is wrong, one sentence for each mistake.
    pub(super) fn errors(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let is_origin = |url: &Url| url.path() == "/" && url.query().is_none();
        if let Some(resource) = &self.resource
            && !is_origin(resource.url())
        {
            wrong.push(
                "`resource` must be scheme, host and port only, as in https://agents.example"
                    .to_owned(),
            );
        }
        if self.issuer.is_empty() {
            wrong.push("no token would be accepted: add an [[listener.auth.issuer]]".to_owned());
        }
        for (at, issuer) in self.issuer.iter().enumerate() {
            let earlier = self.issuer.iter().take(at);
            let mut same =
                earlier.filter(|other| other.issuer == issuer.issuer || other.name == issuer.name);
            if let Some(other) = same.next() {
                wrong.push(format!(
                    "the issuers {:?} and {:?} need different names and URLs",
                    other.name, issuer.name
                ));
            }
            let errors = issuer.errors().into_iter();
            wrong.extend(errors.map(|why| format!("the issuer {:?}: {why}", issuer.name)));
        }
        wrong
    }

    /// Returns the issuers as the verifier of tokens takes them.
    pub(crate) fn issuers(&self) -> Vec<TokenIssuer> {
        self.issuer
            .iter()
            .map(IssuerDeclaration::to_issuer)
            .collect()
    }

    /// Returns the declared origin for the metadata.
    pub(crate) fn origin(&self) -> Option<Url> {
        self.resource.as_ref().map(|url| url.url().clone())
    }

    /// Reports files that this machine lacks, or that can't be used. `tree` is the listener's table.
    pub(super) fn check_machine(&self, tree: &ConfigTree, problems: &mut ProblemCollector<'_>) {
        let span = tree.span_of("auth");
        for issuer in &self.issuer {
            if let Some(KeySetPlace::File(path)) = &issuer.jwks {
                check_key_file(Some(path), span.clone(), problems);
            }
            if let Err(why) = client_tls(issuer.ca.as_deref()) {
                let message = format!("`auth`: the issuer {:?}: `ca`: {why}", issuer.name);
                problems.error(span.clone(), message);
            }
        }
    }
}

impl IssuerDeclaration {
    fn errors(&self) -> Vec<&'static str> {
        let mut wrong = Vec::new();
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let lengths = 1..=ISSUER_NAME_BYTES_MAX;
        if !lengths.contains(&self.name.len()) || !self.name.chars().all(is_part) {
            wrong.push("`name` must have 1 to 32 letters, digits, - and _");
        }
        match WebUrl::try_from(self.issuer.clone()) {
            Ok(url) if url.url().query().is_some() => wrong.push("`issuer` can't have a query"),
            Ok(url) if url.url().scheme() == "http" && !is_loopback_host(url.url()) => {
                wrong.push("`issuer` must be an https URL, unless it is on this machine");
            }
            Ok(_) => {}
            Err(_) => wrong.push("`issuer` must be an https URL, as in https://login.example"),
        }
        if let Some(KeySetPlace::Url(url)) = &self.jwks
            && url.url().scheme() == "http"
            && !is_loopback_host(url.url())
        {
            wrong.push("`jwks` must be an https URL, unless it is on this machine");
        }
        if self.audiences.is_empty() || self.audiences.iter().any(String::is_empty) {
            wrong.push("`audiences` must name what its tokens are for, such as the listener's URL: otherwise tokens for others would count here");
        }
        if self.algorithms.as_ref().is_some_and(Vec::is_empty) {
            wrong.push("`algorithms` is empty: leave it out for the default");
        }
        let is_scope = |scope: &String| {
            !scope.is_empty()
                && scope
                    .chars()
                    .all(|c| c.is_ascii_graphic() && c != '"' && c != '\\')
        };
        if !self.scopes_required.iter().all(is_scope) {
            wrong.push("`scopes_required` has a scope with a space or another character that scopes can't have");
        }
        wrong
    }

    fn to_issuer(&self) -> TokenIssuer {
        let default = ClaimNames::default();
        let algorithms = self.algorithms.as_ref().map_or_else(
            || JwsAlgorithm::DEFAULT.to_vec(),
            |names| names.iter().map(|AlgorithmName(name)| *name).collect(),
        );
        TokenIssuer {
            name: self.name.clone(),
            issuer: self.issuer.clone(),
            audiences: self.audiences.clone(),
            keys: match &self.jwks {
                Some(KeySetPlace::Url(url)) => KeySource::Url(url.url().clone()),
                Some(KeySetPlace::File(path)) => KeySource::File(path.clone()),
                None => KeySource::Metadata(self.issuer.clone()),
            },
            ca: self.ca.clone(),
            networks: self.networks.iter().map(|range| range.network()).collect(),
            algorithms,
            scopes_required: self.scopes_required.clone(),
            claims: ClaimNames {
                principal: self.claims.principal.clone().unwrap_or(default.principal),
                tenant: self.claims.tenant.clone(),
                roles: self.claims.roles.clone(),
            },
        }
    }
}
