//! Access tokens that a listener accepts (`[listener.auth]`).

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use callboard_rpc::{
    ClaimNames, INTROSPECTING_ISSUERS_MAX, IntrospectionLimits, JwsAlgorithm, KeySource,
    TokenIntrospection, TokenIssuer, is_loopback_host, is_valid_scope,
};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use url::Url;

use super::address::{NetworkRange, WebUrl};
use super::problem::{ProblemCollector, check_key_file};
use super::secret::{read_secret, secret_problem};
use super::tls::{client_tls, resolve_ca};
use super::tree::ConfigTree;

/// Maximum length of an issuer's short name, in bytes.
const ISSUER_NAME_BYTES_MAX: usize = 32;
/// Maximum of `introspection_age_max_s`, in seconds: a revoked token would count for longer.
const INTROSPECTION_AGE_S_MAX: u64 = 300;
/// Value of `jwks` for the key set that the issuer's metadata name.
const KEYS_OF_METADATA: &str = "metadata";

/// Access tokens that a listener accepts (`[listener.auth]`).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
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
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IssuerDeclaration {
    /// Short name, with which the ids of its principals begin: `NAME.ID`.
    pub name: String,
    /// Issuer, exactly as in its tokens and metadata.
    pub issuer: String,
    /// Audiences, of which a token must name one.
    pub audiences: Vec<String>,
    /// URL or file of its keys, relative to the topology file, or `metadata`. Default: as its
    /// metadata say; with `introspection` it has none.
    pub jwks: Option<KeySetPlace>,
    /// URL of its introspection endpoint. Default: only signed tokens are accepted.
    pub introspection: Option<WebUrl>,
    /// Client id of the listener at the introspection endpoint.
    pub client_id: Option<String>,
    /// Place of the client's secret.
    pub secret_env: Option<String>,
    /// Maximum age of an answer of the introspection endpoint, in seconds. Default:
    /// [`IntrospectionLimits::age_max`].
    pub introspection_age_max_s: Option<u64>,
    /// Signature algorithms. Default: [`JwsAlgorithm::DEFAULT`].
    pub algorithms: Option<Vec<AlgorithmName>>,
    /// Scopes that each token must have.
    #[serde(default)]
    pub scopes_required: Vec<String>,
    /// Networks in which its metadata, keys and introspection endpoint may be, in addition to the
    /// public internet.
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
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClaimsDeclaration {
    /// Claim with the id. Default: `sub`.
    pub principal: Option<String>,
    /// Claim with the tenant.
    pub tenant: Option<String>,
    /// Claim with the roles.
    pub roles: Option<String>,
    /// Claim with the only patient whose data scopes for one patient open. Default: `patient`.
    pub patient: Option<String>,
}

/// Place of an issuer's keys: its metadata, a URL, or a file.
#[derive(Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[schemars(with = "String")]
#[serde(try_from = "String")]
pub enum KeySetPlace {
    /// The issuer's metadata name it.
    Metadata,
    /// URL.
    Url(WebUrl),
    /// File, relative to the topology file.
    File(PathBuf),
}

impl fmt::Debug for KeySetPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Metadata => f.write_str(KEYS_OF_METADATA),
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
            false if written == KEYS_OF_METADATA => Ok(Self::Metadata),
            false => Ok(Self::File(written.into())),
        }
    }
}

/// Name of a signature algorithm, such as `ES256`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String", extend("enum" = JwsAlgorithm::ALL.map(JwsAlgorithm::name)))]
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
                *path = resolve_ca(path, folder);
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
        let introspecting = self.issuer.iter().filter(|i| i.introspection.is_some());
        if introspecting.count() > INTROSPECTING_ISSUERS_MAX {
            wrong.push(format!(
                "at most {INTROSPECTING_ISSUERS_MAX} issuers can have `introspection`: each of them is asked about an unknown token"
            ));
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

    /// Returns the issuers as the verifier of tokens takes them. Reads their secrets.
    ///
    /// # Errors
    /// Returns the reason, without anything of a secret.
    pub(crate) fn issuers(&self) -> Result<Vec<TokenIssuer>, String> {
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
            if let Some(why) = issuer.secret_env.as_deref().and_then(secret_problem) {
                let message = format!("`auth`: the issuer {:?}: `secret_env`: {why}", issuer.name);
                problems.error(span.clone(), message);
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
        wrong.extend(self.introspection_errors());
        if self.audiences.is_empty() || self.audiences.iter().any(String::is_empty) {
            wrong.push("`audiences` must name what its tokens are for, such as the listener's URL: otherwise tokens for others would count here");
        }
        if self.algorithms.as_ref().is_some_and(Vec::is_empty) {
            wrong.push("`algorithms` is empty: leave it out for the default");
        }
        if !self
            .scopes_required
            .iter()
            .all(|scope| is_valid_scope(scope))
        {
            wrong.push("`scopes_required` has a scope with a space or another character that scopes can't have");
        }
        wrong
    }

    fn introspection_errors(&self) -> Vec<&'static str> {
        let mut wrong = Vec::new();
        let Some(endpoint) = &self.introspection else {
            if self.client_id.is_some()
                || self.secret_env.is_some()
                || self.introspection_age_max_s.is_some()
            {
                wrong.push("`client_id`, `secret_env` and `introspection_age_max_s` are for `introspection`, which is missing");
            }
            return wrong;
        };
        if endpoint.url().scheme() == "http" && !is_loopback_host(endpoint.url()) {
            wrong.push("`introspection` must be an https URL, unless it is on this machine");
        }
        if self.client_id.as_ref().is_none_or(String::is_empty) || self.secret_env.is_none() {
            wrong.push("`introspection` needs `client_id` and `secret_env`: the endpoint tells of tokens to its clients only");
        }
        let ages = 1..=INTROSPECTION_AGE_S_MAX;
        if self
            .introspection_age_max_s
            .is_some_and(|age| !ages.contains(&age))
        {
            wrong.push(
                "`introspection_age_max_s` must be 1 to 300: a revoked token counts for as long",
            );
        }
        if self.jwks.is_none() && self.algorithms.is_some() {
            wrong.push("`algorithms` is for keys, which an issuer with `introspection` has only with `jwks`: add it, or leave `algorithms` out");
        }
        wrong
    }

    /// Returns the settings of the introspection endpoint; `None` without one. Reads the secret.
    fn to_introspection(&self) -> Result<Option<TokenIntrospection>, String> {
        let Some(endpoint) = &self.introspection else {
            return Ok(None);
        };
        let secret = read_secret(self.secret_env.as_deref().unwrap_or_default());
        let default = IntrospectionLimits::default();
        let age_max = self.introspection_age_max_s.map(Duration::from_secs);
        Ok(Some(TokenIntrospection {
            endpoint: endpoint.url().clone(),
            client_id: self.client_id.clone().unwrap_or_default(),
            secret: secret
                .map_err(|why| format!("the issuer {:?}: `secret_env`: {why}", self.name))?,
            limits: IntrospectionLimits {
                age_max: age_max.unwrap_or(default.age_max),
                ..default
            },
        }))
    }

    fn to_issuer(&self) -> Result<TokenIssuer, String> {
        let default = ClaimNames::default();
        let algorithms = self.algorithms.as_ref().map_or_else(
            || JwsAlgorithm::DEFAULT.to_vec(),
            |names| names.iter().map(|AlgorithmName(name)| *name).collect(),
        );
        Ok(TokenIssuer {
            name: self.name.clone(),
            issuer: self.issuer.clone(),
            audiences: self.audiences.clone(),
            keys: match &self.jwks {
                Some(KeySetPlace::Url(url)) => Some(KeySource::Url(url.url().clone())),
                Some(KeySetPlace::File(path)) => Some(KeySource::File(path.clone())),
                None if self.introspection.is_some() => None,
                Some(KeySetPlace::Metadata) | None => {
                    Some(KeySource::Metadata(self.issuer.clone()))
                }
            },
            introspection: self.to_introspection()?,
            ca: self.ca.clone(),
            networks: self.networks.iter().map(|range| range.network()).collect(),
            algorithms,
            scopes_required: self.scopes_required.clone(),
            claims: ClaimNames {
                principal: self.claims.principal.clone().unwrap_or(default.principal),
                tenant: self.claims.tenant.clone(),
                roles: self.claims.roles.clone(),
                patient: self.claims.patient.clone().unwrap_or(default.patient),
            },
        })
    }
}
