use std::fmt;

use callboard_rpc::EgressPolicy;
use futures::future::BoxFuture;
use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use super::client::OAuthClient;
use super::fetch::{OAuthHttpClient, REQUEST_TIMEOUT_DEFAULT};
use super::{AuthError, OAuthDocument};

/// Source of signed assertions that are exchanged for access tokens at an authorization server (RFC
/// 7523). Implementations ask, for instance, a workload platform or a company's identity provider.
pub trait AssertionProvider: Send + Sync {
    /// Returns an assertion for `audience`. It is called for each token request; assertions aren't
    /// cached.
    ///
    /// # Errors
    /// Any [`AuthError`] that prevents an assertion. The token request then fails with it.
    fn assertion<'a>(
        &'a self,
        audience: AssertionAudience<'a>,
    ) -> BoxFuture<'a, Result<SecretString, AuthError>>;
}

/// Audience of an assertion: the authorization server and the resource that it is for.
#[derive(Debug, Clone, Copy)]
pub struct AssertionAudience<'a> {
    /// Issuer identifier of the authorization server that will receive the assertion.
    pub issuer: &'a str,
    /// Resource identifier of the upstream MCP server.
    pub resource: &'a str,
}

/// Assertion provider that always returns the same assertion, such as a workload's identity token.
#[derive(Debug, Clone)]
pub struct FixedAssertion(SecretString);

impl FixedAssertion {
    /// Creates a provider that returns `assertion`, a JWT.
    #[must_use]
    pub fn new(assertion: SecretString) -> Self {
        Self(assertion)
    }
}

impl AssertionProvider for FixedAssertion {
    fn assertion<'a>(
        &'a self,
        _: AssertionAudience<'a>,
    ) -> BoxFuture<'a, Result<SecretString, AuthError>> {
        Box::pin(async { Ok(self.0.clone()) })
    }
}

impl fmt::Debug for dyn AssertionProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AssertionProvider")
    }
}

const ID_JAG: &str = "urn:ietf:params:oauth:token-type:id-jag";
const ID_TOKEN: &str = "urn:ietf:params:oauth:token-type:id_token";

/// Assertion provider for one user. It obtains assertions (ID-JAG) from an identity provider in
/// exchange for the user's ID token.
#[derive(Debug)]
pub struct TokenExchange {
    fetch: OAuthHttpClient,
    endpoint: Url,
    client: OAuthClient,
    id_token: SecretString,
}

impl TokenExchange {
    /// Creates a provider that sends token exchange requests to the identity provider's token
    /// `endpoint`. `client` is this program's client registration there, and `id_token` the user's
    /// OpenID Connect ID token.
    ///
    /// # Errors
    /// [`AuthError::Unreachable`] or [`AuthError::Malformed`] if `endpoint` is no URL that `egress`
    /// permits; [`AuthError::Client`] if the HTTP client can't be built.
    pub fn new(
        endpoint: &str,
        client: OAuthClient,
        id_token: SecretString,
        egress: &EgressPolicy,
    ) -> Result<Self, AuthError> {
        let fetch = OAuthHttpClient::new(egress, REQUEST_TIMEOUT_DEFAULT)?;
        let endpoint = fetch.parse_url(endpoint, OAuthDocument::Token)?;
        Ok(Self {
            fetch,
            endpoint,
            client,
            id_token,
        })
    }
}

#[derive(Deserialize)]
struct TokenExchangeResponse {
    access_token: SecretString,
    issued_token_type: String,
}

impl AssertionProvider for TokenExchange {
    fn assertion<'a>(
        &'a self,
        audience: AssertionAudience<'a>,
    ) -> BoxFuture<'a, Result<SecretString, AuthError>> {
        Box::pin(async move {
            let document = OAuthDocument::Token;
            let proven = self.client.authenticate_to(self.endpoint.as_str(), None)?;
            let mut fields = vec![
                (
                    "grant_type",
                    "urn:ietf:params:oauth:grant-type:token-exchange",
                ),
                ("requested_token_type", ID_JAG),
                ("subject_token_type", ID_TOKEN),
                ("subject_token", self.id_token.expose_secret()),
                ("audience", audience.issuer),
                ("resource", audience.resource),
            ];
            fields.extend(proven.fields());
            let answer = self
                .fetch
                .post_form(
                    &self.endpoint,
                    document,
                    &fields,
                    proven.authorization.clone(),
                )
                .await?;
            let response: TokenExchangeResponse = answer.parse_success()?;
            let right = response.issued_token_type == ID_JAG;
            if right {
                Ok(response.access_token)
            } else {
                Err(AuthError::Malformed(document))
            }
        })
    }
}
