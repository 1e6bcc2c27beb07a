//! Who authorises requests to an upstream: protected-resource metadata (RFC 9728), then the authorization server's own
//! (RFC 8414, OpenID Connect Discovery), in the order that the MCP specification sets.

use std::ops::Deref;

use reqwest::Url;
use serde::Deserialize;

use super::fetch::Fetch;
use super::{AuthError, Document};

/// How many authorization servers of a resource are looked at.
const AUTHORIZATION_SERVERS_MAX: usize = 8;

/// The scope that asks for refresh tokens.
pub(crate) const OFFLINE_ACCESS: &str = "offline_access";

/// What the upstream says of itself.
#[derive(Debug, Clone)]
pub(crate) struct Resource {
    /// Its identifier, as it is published: what `resource` parameters carry (RFC 8707).
    pub identifier: String,
    /// The issuers that it takes tokens of; at least one.
    pub issuers: Vec<String>,
    /// `None` where it doesn't publish any.
    pub scopes: Option<Scopes>,
}

#[derive(Deserialize)]
struct ResourceMetadata {
    resource: String,
    #[serde(default)]
    authorization_servers: Vec<String>,
    scopes_supported: Option<Vec<String>>,
}

/// An authorization server.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    metadata: ServerMetadata,
    pub token_endpoint: Url,
}

/// What an authorization server says of itself. `None` where it says nothing.
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
    /// Its authorization responses carry `iss` (RFC 9207).
    #[serde(default)]
    pub authorization_response_iss_parameter_supported: bool,
}

impl Deref for Server {
    type Target = ServerMetadata;

    fn deref(&self) -> &ServerMetadata {
        &self.metadata
    }
}

impl Server {
    fn new(fetch: &Fetch, metadata: ServerMetadata) -> Result<Self, AuthError> {
        let token_endpoint = metadata
            .token_endpoint
            .as_deref()
            .ok_or(AuthError::Malformed(Document::ServerMetadata))?;
        Ok(Self {
            token_endpoint: fetch.url(token_endpoint, Document::Token)?,
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

/// The upstream's metadata: from `named`, the place that its challenge names, or else from the well-known ones.
pub(crate) async fn resource(
    fetch: &Fetch,
    upstream: &Url,
    named: Option<&str>,
) -> Result<Resource, AuthError> {
    let document = Document::ResourceMetadata;
    let places = match named {
        Some(place) => vec![fetch.url(place, document)?],
        None => resource_places(upstream),
    };
    let mut found: Option<ResourceMetadata> = None;
    for place in &places {
        found = fetch.get(place, document).await?;
        if found.is_some() {
            break;
        }
    }
    let found = found.ok_or(AuthError::NoResourceMetadata)?;
    if !covers(&found.resource, upstream) {
        return Err(AuthError::ResourceMismatch);
    }
    let mut issuers = found.authorization_servers;
    issuers.truncate(AUTHORIZATION_SERVERS_MAX);
    if issuers.is_empty() {
        return Err(AuthError::Malformed(document));
    }
    let scopes = found
        .scopes_supported
        .map(|list| Scopes::collect(list.iter().map(String::as_str)))
        .transpose()?;
    Ok(Resource {
        identifier: found.resource,
        issuers,
        scopes,
    })
}

/// The metadata of the authorization server `issuer`; held to be its own.
pub(crate) async fn server(fetch: &Fetch, issuer: &str) -> Result<Server, AuthError> {
    let document = Document::ServerMetadata;
    let base = fetch.url(issuer, document)?;
    if base.query().is_some() || base.fragment().is_some() {
        return Err(AuthError::Malformed(document));
    }
    let mut why = AuthError::NoServerMetadata;
    for place in server_places(&base) {
        match fetch.get::<ServerMetadata>(&place, document).await {
            // Character by character, as it was published: "https://a" and "https://a/" are two issuers.
            Ok(Some(found)) if found.issuer == issuer => return Server::new(fetch, found),
            Ok(Some(_)) => why = AuthError::IssuerMismatch,
            // What isn't metadata may be a page that answers for all paths.
            Ok(None) | Err(AuthError::Malformed(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Err(why)
}

fn resource_places(upstream: &Url) -> Vec<Url> {
    const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";
    let path = upstream.path().trim_end_matches('/');
    let mut places = Vec::new();
    if !path.is_empty() || upstream.query().is_some() {
        places.push(at_path(
            upstream,
            &format!("{WELL_KNOWN}{path}"),
            upstream.query(),
        ));
    }
    places.push(at_path(upstream, WELL_KNOWN, None));
    places
}

fn server_places(issuer: &Url) -> Vec<Url> {
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
        .map(|path| at_path(issuer, path, None))
        .collect()
}

fn at_path(base: &Url, path: &str, query: Option<&str>) -> Url {
    let mut url = base.clone();
    url.set_path(path);
    url.set_query(query);
    url.set_fragment(None);
    url
}

/// Whether metadata of `resource` speak for `upstream`: the same origin, and the same path or one above it.
fn covers(resource: &str, upstream: &Url) -> bool {
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
    fetch: &Fetch,
    upstream: &Url,
) -> Result<(Resource, Server), AuthError> {
    let issuer = upstream.origin().ascii_serialization();
    let server = match server(fetch, &issuer).await {
        Err(AuthError::NoServerMetadata) => at_fixed_paths(fetch, &issuer)?,
        found => found?,
    };
    let identifier = upstream.as_str().trim_end_matches('/').to_owned();
    Ok((
        Resource {
            identifier,
            issuers: vec![issuer],
            scopes: None,
        },
        server,
    ))
}

fn at_fixed_paths(fetch: &Fetch, issuer: &str) -> Result<Server, AuthError> {
    let at = |path: &str| Some(format!("{issuer}/{path}"));
    let metadata = ServerMetadata {
        issuer: issuer.to_owned(),
        authorization_endpoint: at("authorize"),
        token_endpoint: at("token"),
        registration_endpoint: at("register"),
        // There is no place to say so, and the revision demands it of all.
        code_challenge_methods_supported: Some(vec!["S256".to_owned()]),
        ..ServerMetadata::default()
    };
    Server::new(fetch, metadata)
}

/// How many scopes are asked for at most.
const SCOPES_MAX: usize = 64;

/// A set of scopes (RFC 6749, section 3.3), in the order in which they came.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Scopes(Vec<String>);

impl Scopes {
    /// From a space-separated list; what is no scope token is dropped.
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

    /// Adds one.
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

    /// The value of a `scope` parameter; `None` where it is left out.
    pub fn parameter(&self) -> Option<String> {
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

    /// Goal: well-known places come in the specification's order. Method: issuers and upstreams with and without path.
    #[test]
    fn places_are_in_order() {
        assert_eq!(
            texts(&resource_places(&url("https://m.example/public/mcp"))),
            [
                "https://m.example/.well-known/oauth-protected-resource/public/mcp",
                "https://m.example/.well-known/oauth-protected-resource",
            ]
        );
        assert_eq!(
            texts(&resource_places(&url("https://m.example/"))),
            ["https://m.example/.well-known/oauth-protected-resource"]
        );
        assert_eq!(
            texts(&server_places(&url("https://a.example/tenant1"))),
            [
                "https://a.example/.well-known/oauth-authorization-server/tenant1",
                "https://a.example/.well-known/openid-configuration/tenant1",
                "https://a.example/tenant1/.well-known/openid-configuration",
            ]
        );
        assert_eq!(
            texts(&server_places(&url("https://a.example"))),
            [
                "https://a.example/.well-known/oauth-authorization-server",
                "https://a.example/.well-known/openid-configuration",
            ]
        );
    }

    /// Goal: metadata of another resource are told. Method: neighbours in host, port, scheme, path and query.
    #[test]
    fn resource_covers_itself_only() {
        let upstream = url("https://m.example/a/mcp?t=1");
        for resource in [
            "https://m.example",
            "https://M.example/",
            "https://m.example:443/a",
            "https://m.example/a/mcp?t=1",
        ] {
            assert!(covers(resource, &upstream), "{resource}");
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
            assert!(!covers(resource, &upstream), "{resource}");
        }
    }
}

#[cfg(test)]
mod scopes_tests {
    use super::*;

    /// Goal: lists are sets in order, and nothing gets in that isn't a scope. Method: doubles, quotes, spaces.
    #[test]
    fn lists_are_ordered_sets() -> Result<(), AuthError> {
        let scopes = Scopes::parse(" a  b a c\"d é b ")?;
        assert_eq!(scopes.parameter().as_deref(), Some("a b"));
        assert_eq!(
            scopes.union(&Scopes::parse("b z")?)?.parameter().as_deref(),
            Some("a b z")
        );
        assert_eq!(Scopes::parse("")?.parameter(), None);
        Ok(())
    }

    /// Goal: an upstream can't make us ask for ever more. Method: the limit, and one more.
    #[test]
    fn number_is_bounded() -> Result<(), AuthError> {
        let names: Vec<String> = (0..=SCOPES_MAX).map(|n| format!("s{n}")).collect();
        let all = Scopes::collect(names[..SCOPES_MAX].iter().map(String::as_str))?;
        let one_more = Scopes::parse(&names[SCOPES_MAX])?;
        assert!(matches!(
            all.union(&one_more),
            Err(AuthError::TooManyScopes(SCOPES_MAX))
        ));
        Ok(())
    }
}
