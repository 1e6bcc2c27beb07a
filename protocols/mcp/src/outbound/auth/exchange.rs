//! A company's identity provider vouches for somebody who signed in there (MCP's enterprise-managed authorization): the
//! proof of their signing in is exchanged (RFC 8693) for an assertion that the upstream's authorization server takes.

use callboard_rpc::Egress;
use futures::future::BoxFuture;
use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use super::assertion::{Assertions, Audience};
use super::client::Client;
use super::fetch::{Fetch, REQUEST_TIMEOUT_DEFAULT};
use super::{AuthError, Document};

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
    pub fn new(endpoint: &str, client: Client, id_token: SecretString, egress: &Egress) -> Result<Self, AuthError> {
        let fetch = Fetch::new(egress, REQUEST_TIMEOUT_DEFAULT)?;
        let endpoint = fetch.url(endpoint, Document::Token)?;
        Ok(Self { fetch, endpoint, client, id_token })
    }
}

#[derive(Deserialize)]
struct Response {
    access_token: SecretString,
    issued_token_type: String,
}

impl Assertions for TokenExchange {
    fn assertion<'a>(&'a self, audience: Audience<'a>) -> BoxFuture<'a, Result<SecretString, AuthError>> {
        Box::pin(async move {
            let document = Document::Token;
            let proven = self.client.proven_to(self.endpoint.as_str(), None)?;
            let mut fields = vec![
                ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
                ("requested_token_type", ID_JAG),
                ("subject_token_type", ID_TOKEN),
                ("subject_token", self.id_token.expose_secret()),
                ("audience", audience.issuer),
                ("resource", audience.resource),
            ];
            fields.extend(proven.fields());
            let answer = self.fetch.post_form(&self.endpoint, document, &fields, proven.authorization.clone()).await?;
            let response: Response = answer.accepted()?;
            let right = response.issued_token_type == ID_JAG;
            if right { Ok(response.access_token) } else { Err(AuthError::Malformed(document)) }
        })
    }
}
