//! Upstreams of revision 2025-03-26, which know no protected-resource metadata: they are their own authorization
//! servers, with metadata at their root or, failing that, endpoints at fixed paths.

use reqwest::Url;

use super::discovery::{Resource, Server};
use super::fetch::Fetch;
use super::{AuthError, Document, discovery};

pub(super) async fn discover(fetch: &Fetch, upstream: &Url) -> Result<(Resource, Server), AuthError> {
    let issuer = upstream.origin().ascii_serialization();
    let server = match discovery::server(fetch, &issuer).await {
        Err(AuthError::NoServerMetadata) => at_fixed_paths(fetch, &issuer)?,
        found => found?,
    };
    let identifier = upstream.as_str().trim_end_matches('/').to_owned();
    Ok((Resource { identifier, issuers: vec![issuer], scopes: None }, server))
}

fn at_fixed_paths(fetch: &Fetch, issuer: &str) -> Result<Server, AuthError> {
    Ok(Server {
        authorization_endpoint: Some(format!("{issuer}/authorize")),
        token_endpoint: fetch.url(&format!("{issuer}/token"), Document::Token)?,
        registration_endpoint: Some(format!("{issuer}/register")),
        issuer: issuer.to_owned(),
        offline_access: None,
        authentication_methods: None,
        // There is no place to say so, and the revision demands it of all.
        pkce_s256: true,
        client_id_documents: false,
        names_issuer: false,
        refreshes: true,
    })
}
