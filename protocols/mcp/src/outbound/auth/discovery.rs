//! Discovery of an upstream's authorization server: protected-resource metadata (RFC 9728), then
//! the authorization server's own (RFC 8414, OpenID Connect Discovery), in the order that the MCP
//! specification sets.

use std::ops::Deref;

use reqwest::Url;
use serde::Deserialize;

use super::fetch::OAuthHttpClient;
use super::{AuthError, OAuthDocument};

/// Maximum number of authorization servers in a resource's metadata that are considered. The rest
/// are ignored.
const AUTHORIZATION_SERVERS_MAX: usize = 8;

/// Scope by which a client requests a refresh token (OpenID Connect).
pub(crate) const OFFLINE_ACCESS: &str = "offline_access";

/// Protected-resource metadata of the upstream (RFC 9728).
#[derive(Debug, Clone)]
pub(crate) struct ProtectedResource {
    /// Resource identifier as published; sent as the `resource` parameter (RFC 8707).
    pub identifier: String,
    /// Issuers of the authorization servers whose tokens the resource accepts; at least one.
    pub issuers: Vec<String>,
    /// Supported scopes; `None` if not published.
    pub scopes: Option<ScopeSet>,
}

#[derive(Deserialize)]
struct ResourceMetadata {
    resource: String,
    #[serde(default)]
    authorization_servers: Vec<String>,
    scopes_supported: Option<Vec<String>>,
}

/// Authorization server whose token endpoint has been validated.
#[derive(Debug, Clone)]
pub(crate) struct AuthorizationServer {
    metadata: ServerMetadata,
    pub token_endpoint: Url,
}

/// Metadata of an authorization server (RFC 8414). A field is `None` if not published.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct ServerMetadata {
    pub issuer: String,
    pub authorization_endpoint: Option<String>,
    token_endpoint: Option<String>,
    pub registration_endpoint: Option<String>,
    pub scopes_supported: Option<Vec<String>>,
    pub grant_types_supported: Option<Vec<String>>,
    pub token_endpoint_auth_methods_supported: Option<Vec<String>>,
    code_challenge_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    pub client_id_metadata_document_supported: bool,
    /// True if the server's authorization responses carry the parameter `iss` (RFC 9207).
    #[serde(default)]
    pub authorization_response_iss_parameter_supported: bool,
}

impl Deref for AuthorizationServer {
    type Target = ServerMetadata;

    fn deref(&self) -> &ServerMetadata {
        &self.metadata
    }
}

impl AuthorizationServer {
    fn new(fetch: &OAuthHttpClient, metadata: ServerMetadata) -> Result<Self, AuthError> {
        let token_endpoint = metadata
            .token_endpoint
            .as_deref()
            .ok_or(AuthError::Malformed(OAuthDocument::ServerMetadata))?;
        Ok(Self {
            token_endpoint: fetch.parse_url(token_endpoint, OAuthDocument::Token)?,
            metadata,
        })
    }

    pub fn has_pkce_s256(&self) -> bool {
        self.code_challenge_methods_supported
            .as_ref()
            .is_some_and(|list| is_listed(list, "S256"))
    }
}

pub(crate) fn is_listed(list: &[String], value: &str) -> bool {
    list.iter().any(|listed| listed == value)
}

/// Fetches the protected-resource metadata of `upstream`. `named` is the metadata URL in the
/// upstream's challenge; without it, the well-known URLs are tried in turn. Fails if the metadata
/// describe another resource or name no authorization server.
pub(crate) async fn discover_resource(
    fetch: &OAuthHttpClient,
    upstream: &Url,
    named: Option<&str>,
) -> Result<ProtectedResource, AuthError> {
    let document = OAuthDocument::ResourceMetadata;
    let places = match named {
        Some(place) => vec![fetch.parse_url(place, document)?],
        None => resource_metadata_urls(upstream),
    };
    let mut found: Option<ResourceMetadata> = None;
    for place in &places {
        found = fetch.get(place, document).await?;
        if found.is_some() {
            break;
        }
    }
    let found = found.ok_or(AuthError::NoResourceMetadata)?;
    if !covers_upstream(&found.resource, upstream) {
        return Err(AuthError::ResourceMismatch);
    }
    let mut issuers = found.authorization_servers;
    issuers.truncate(AUTHORIZATION_SERVERS_MAX);
    if issuers.is_empty() {
        return Err(AuthError::Malformed(document));
    }
    let scopes = found
        .scopes_supported
        .map(|list| ScopeSet::collect(list.iter().map(String::as_str)))
        .transpose()?;
    Ok(ProtectedResource {
        identifier: found.resource,
        issuers,
        scopes,
    })
}

/// Fetches the metadata of the authorization server `issuer` from its well-known URLs. Fails if
/// they name another issuer.
pub(crate) async fn discover_server(
    fetch: &OAuthHttpClient,
    issuer: &str,
) -> Result<AuthorizationServer, AuthError> {
    let document = OAuthDocument::ServerMetadata;
    let base = fetch.parse_url(issuer, document)?;
    if base.query().is_some() || base.fragment().is_some() {
        return Err(AuthError::Malformed(document));
    }
    let mut why = AuthError::NoServerMetadata;
    for place in server_metadata_urls(&base) {
        match fetch.get::<ServerMetadata>(&place, document).await {
            // Issuers are compared as strings: "https://a" and "https://a/" are two.
            Ok(Some(found)) if found.issuer == issuer => {
                return AuthorizationServer::new(fetch, found);
            }
            Ok(Some(_)) => why = AuthError::IssuerMismatch,
            // Invalid metadata may be a page that the server returns for all paths.
            Ok(None) | Err(AuthError::Malformed(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Err(why)
}

fn resource_metadata_urls(upstream: &Url) -> Vec<Url> {
    const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";
    let path = upstream.path().trim_end_matches('/');
    let mut places = Vec::new();
    if !path.is_empty() || upstream.query().is_some() {
        places.push(well_known_url(
            upstream,
            &format!("{WELL_KNOWN}{path}"),
            upstream.query(),
        ));
    }
    places.push(well_known_url(upstream, WELL_KNOWN, None));
    places
}

fn server_metadata_urls(issuer: &Url) -> Vec<Url> {
    let path = issuer.path().trim_end_matches('/');
    let mut paths = vec![
        format!("/.well-known/oauth-authorization-server{path}"),
        format!("/.well-known/openid-configuration{path}"),
    ];
    if !path.is_empty() {
        paths.push(format!("{path}/.well-known/openid-configuration"));
    }
    paths
        .iter()
        .map(|path| well_known_url(issuer, path, None))
        .collect()
}

fn well_known_url(base: &Url, path: &str, query: Option<&str>) -> Url {
    let mut url = base.clone();
    url.set_path(path);
    url.set_query(query);
    url.set_fragment(None);
    url
}

/// Returns true if metadata of `resource` apply to `upstream`: same origin, the same path or a
/// parent of it, and the same query if `resource` has one.
fn covers_upstream(resource: &str, upstream: &Url) -> bool {
    let Ok(resource) = Url::parse(resource) else {
        return false;
    };
    let same_query = resource.query().is_none() || resource.query() == upstream.query();
    let above = resource.path().trim_end_matches('/');
    let below = upstream
        .path()
        .strip_prefix(above)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    resource.fragment().is_none()
        && resource.username().is_empty()
        && resource.password().is_none()
        && resource.origin() == upstream.origin()
        && same_query
        && below
}

pub(crate) async fn discover_without_metadata(
    fetch: &OAuthHttpClient,
    upstream: &Url,
) -> Result<(ProtectedResource, AuthorizationServer), AuthError> {
    let issuer = upstream.origin().ascii_serialization();
    let server = match discover_server(fetch, &issuer).await {
        Err(AuthError::NoServerMetadata) => default_endpoints(fetch, &issuer)?,
        found => found?,
    };
    let identifier = upstream.as_str().trim_end_matches('/').to_owned();
    Ok((
        ProtectedResource {
            identifier,
            issuers: vec![issuer],
            scopes: None,
        },
        server,
    ))
}

fn default_endpoints(
    fetch: &OAuthHttpClient,
    issuer: &str,
) -> Result<AuthorizationServer, AuthError> {
    let at = |path: &str| Some(format!("{issuer}/{path}"));
    let metadata = ServerMetadata {
        issuer: issuer.to_owned(),
        authorization_endpoint: at("authorize"),
        token_endpoint: at("token"),
        registration_endpoint: at("register"),
        // Without metadata it can't be declared, and the revision requires it of all servers.
        code_challenge_methods_supported: Some(vec!["S256".to_owned()]),
        ..ServerMetadata::default()
    };
    AuthorizationServer::new(fetch, metadata)
}

/// Maximum number of scopes in one token or authorization request. One more fails with
/// [`AuthError::TooManyScopes`].
const SCOPES_MAX: usize = 64;

/// Set of scopes (RFC 6749, section 3.3), in order of insertion.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ScopeSet(Vec<String>);

impl ScopeSet {
    /// Parses a space-separated list of scopes. Invalid ones are dropped. Fails with
    /// [`AuthError::TooManyScopes`] above [`SCOPES_MAX`].
    pub fn parse(text: &str) -> Result<Self, AuthError> {
        Self::collect(text.split_ascii_whitespace())
    }

    fn collect<'a>(scopes: impl IntoIterator<Item = &'a str>) -> Result<Self, AuthError> {
        let mut all = Self::default();
        for scope in scopes {
            all.insert(scope)?;
        }
        Ok(all)
    }

    /// Adds a scope. One that is invalid or already present is ignored. Fails with
    /// [`AuthError::TooManyScopes`] above [`SCOPES_MAX`].
    pub fn insert(&mut self, scope: &str) -> Result<(), AuthError> {
        let token = |b: u8| b.is_ascii_graphic() && !matches!(b, b'"' | b'\\');
        if scope.is_empty() || !scope.bytes().all(token) || self.contains(scope) {
            return Ok(());
        }
        if self.0.len() == SCOPES_MAX {
            return Err(AuthError::TooManyScopes(SCOPES_MAX));
        }
        self.0.push(scope.to_owned());
        Ok(())
    }

    pub fn remove(&mut self, scope: &str) {
        self.0.retain(|held| held != scope);
    }

    pub fn union(mut self, other: &Self) -> Result<Self, AuthError> {
        for scope in &other.0 {
            self.insert(scope)?;
        }
        Ok(self)
    }

    pub fn contains(&self, scope: &str) -> bool {
        self.0.iter().any(|held| held == scope)
    }

    pub fn contains_all(&self, other: &Self) -> bool {
        other.0.iter().all(|scope| self.contains(scope))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the scopes joined by spaces, as value of a `scope` parameter; `None` if the set is
    /// empty.
    pub fn to_parameter(&self) -> Option<String> {
        (!self.0.is_empty()).then(|| self.0.join(" "))
    }
}

#[cfg(test)]
mod discovery_tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).expect(text)
    }

    fn texts(urls: &[Url]) -> Vec<&str> {
        urls.iter().map(Url::as_str).collect()
    }

    /// Goal: well-known URLs come in the specification's order. Method: issuers and upstreams with
    /// and without path.
    #[test]
    fn places_are_in_order() {
        assert_eq!(
            texts(&resource_metadata_urls(&url(
                "https://m.example/public/mcp"
            ))),
            [
                "https://m.example/.well-known/oauth-protected-resource/public/mcp",
                "https://m.example/.well-known/oauth-protected-resource",
            ]
        );
        assert_eq!(
            texts(&resource_metadata_urls(&url("https://m.example/"))),
            ["https://m.example/.well-known/oauth-protected-resource"]
        );
        assert_eq!(
            texts(&server_metadata_urls(&url("https://a.example/tenant1"))),
            [
                "https://a.example/.well-known/oauth-authorization-server/tenant1",
                "https://a.example/.well-known/openid-configuration/tenant1",
                "https://a.example/tenant1/.well-known/openid-configuration",
            ]
        );
        assert_eq!(
            texts(&server_metadata_urls(&url("https://a.example"))),
            [
                "https://a.example/.well-known/oauth-authorization-server",
                "https://a.example/.well-known/openid-configuration",
            ]
        );
    }

    /// Goal: metadata of another resource are detected. Method: neighbours in host, port, scheme,
    /// path and query.
    #[test]
    fn resource_covers_itself_only() {
        let upstream = url("https://m.example/a/mcp?t=1");
        for resource in [
            "https://m.example",
            "https://M.example/",
            "https://m.example:443/a",
            "https://m.example/a/mcp?t=1",
        ] {
            assert!(covers_upstream(resource, &upstream), "{resource}");
        }
        for resource in [
            "https://evil.example/a/mcp",
            "http://m.example/a/mcp",
            "https://m.example:8443/a/mcp",
            "https://m.example/a/mc",
            "https://m.example/b",
            "https://m.example/a/mcp/more",
            "https://m.example/a/mcp?t=2",
            "https://m.example/a/mcp#x",
            "https://u@m.example/a/mcp",
            "m.example",
            "",
        ] {
            assert!(!covers_upstream(resource, &upstream), "{resource}");
        }
    }
}

#[cfg(test)]
mod scopes_tests {
    use super::*;

    /// Goal: lists are ordered sets of valid scopes. Method: doubles, quotes, spaces.
    #[test]
    fn lists_are_ordered_sets() -> Result<(), AuthError> {
        let scopes = ScopeSet::parse(" a  b a c\"d é b ")?;
        assert_eq!(scopes.to_parameter().as_deref(), Some("a b"));
        assert_eq!(
            scopes
                .union(&ScopeSet::parse("b z")?)?
                .to_parameter()
                .as_deref(),
            Some("a b z")
        );
        assert_eq!(ScopeSet::parse("")?.to_parameter(), None);
        Ok(())
    }

    /// Goal: an upstream can't make us request an unbounded number of scopes. Method: the limit,
    /// and one more.
    #[test]
    fn number_is_bounded() -> Result<(), AuthError> {
        let names: Vec<String> = (0..=SCOPES_MAX).map(|n| format!("s{n}")).collect();
        let all = ScopeSet::collect(names[..SCOPES_MAX].iter().map(String::as_str))?;
        let one_more = ScopeSet::parse(&names[SCOPES_MAX])?;
        assert!(matches!(
            all.union(&one_more),
            Err(AuthError::TooManyScopes(SCOPES_MAX))
        ));
        Ok(())
    }
}
