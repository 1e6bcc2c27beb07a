use std::fmt;

use callboard_rpc::Egress;
use futures::future::BoxFuture;
use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use super::client::Client;
use super::fetch::{Fetch, REQUEST_TIMEOUT_DEFAULT};
use super::{AuthError, Document};

/// Somebody who vouches for us to an authorization server with a signed assertion (RFC 7523): the platform that our
/// workload runs on, or a company's identity provider.
pub trait Assertions: Send + Sync {
    /// An assertion for `audience`. Asked for each token anew, and never kept.
    ///
    /// # Errors
    /// Whatever keeps it from being had.
    fn assertion<'a>(
        &'a self,
        audience: Audience<'a>,
    ) -> BoxFuture<'a, Result<SecretString, AuthError>>;
}

/// Whom an assertion is to convince.
#[derive(Debug, Clone, Copy)]
pub struct Audience<'a> {
    /// The authorization server's issuer.
    pub issuer: &'a str,
    /// The upstream's resource identifier.
    pub resource: &'a str,
}

/// An assertion that somebody handed us as it is, like a workload's identity token.
#[derive(Debug, Clone)]
pub struct FixedAssertion(SecretString);

impl FixedAssertion {
    /// With the assertion, a JWT.
    #[must_use]
    pub fn new(assertion: SecretString) -> Self {
        Self(assertion)
    }
}

impl Assertions for FixedAssertion {
    fn assertion<'a>(&'a self, _: Audience<'a>) -> BoxFuture<'a, Result<SecretString, AuthError>> {
        Box::pin(async { Ok(self.0.clone()) })
    }
}

impl fmt::Debug for dyn Assertions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Assertions")
    }
}

const ID_JAG: &str = "urn:ietf:params:oauth:token-type:id-jag";
const ID_TOKEN: &str = "urn:ietf:params:oauth:token-type:id_token";

/// Assertions of an identity provider about one person.
#[derive(Debug)]
pub struct TokenExchange {
    fetch: Fetch,
    endpoint: Url,
    client: Client,
    id_token: SecretString,
}

impl TokenExchange {
    /// At the provider's token `endpoint`, which knows us as `client`, for the person whose OpenID Connect ID token this
    /// is.
    ///
    /// # Errors
    /// [`AuthError::Unreachable`] or [`AuthError::Malformed`] if the endpoint is no URL that `egress` lets us connect to;
    /// [`AuthError::Client`].
    pub fn new(
        endpoint: &str,
        client: Client,
        id_token: SecretString,
        egress: &Egress,
    ) -> Result<Self, AuthError> {
        let fetch = Fetch::new(egress, REQUEST_TIMEOUT_DEFAULT)?;
        let endpoint = fetch.url(endpoint, Document::Token)?;
        Ok(Self {
            fetch,
            endpoint,
            client,
            id_token,
        })
    }
}

#[derive(Deserialize)]
struct Response {
    access_token: SecretString,
    issued_token_type: String,
}

impl Assertions for TokenExchange {
    fn assertion<'a>(
        &'a self,
        audience: Audience<'a>,
    ) -> BoxFuture<'a, Result<SecretString, AuthError>> {
        Box::pin(async move {
            let document = Document::Token;
            let proven = self.client.proven_to(self.endpoint.as_str(), None)?;
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
            let response: Response = answer.accepted()?;
            let right = response.issued_token_type == ID_JAG;
            if right {
                Ok(response.access_token)
            } else {
                Err(AuthError::Malformed(document))
            }
        })
    }
}
