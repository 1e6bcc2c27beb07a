//! Requests to an introspection endpoint.

use std::sync::Arc;
use std::time::{Duration, Instant};

use callboard_message::RawObject;
use derive_more::Debug;
use parking_lot::Mutex;
use reqwest::Client;
use reqwest::header::{ACCEPT, AUTHORIZATION};
use tokio::time::timeout;

use crate::basic_authorization;
use crate::tokens::issuer::{TokenIntrospection, TokenIssuer};
use crate::tokens::issuer_http::{IssuerHttp, IssuerRequestError};
use crate::tokens::jwk::parse_document;

/// Maximum size of the answer of an introspection endpoint, in bytes. With a larger one the token
/// is not introspected, and its request is answered 503.
pub const INTROSPECTION_BYTES_MAX: usize = 64 * 1024;
/// Age after which connections to an introspection endpoint aren't used for further requests, so
/// that a renewed file of authorities counts.
const CLIENT_AGE_MAX: Duration = Duration::from_secs(600);

/// Reason why a token couldn't be introspected.
#[derive(Debug, thiserror::Error)]
pub(super) enum IntrospectionError {
    #[error(transparent)]
    Request(#[from] IssuerRequestError),
    #[error("it refused the request (status {0}): check `client_id`, its secret and the URL")]
    Client(u16),
    #[error("the answer is not a JSON object with `active`")]
    Damaged,
}

/// Introspection endpoint of an issuer.
#[derive(Debug)]
pub(super) struct IntrospectionEndpoint {
    pub(super) issuer: Arc<TokenIssuer>,
    pub(super) settings: TokenIntrospection,
    #[debug(skip)]
    http: IssuerHttp,
    /// Client with open connections, and the time of its creation.
    #[debug(skip)]
    client: Mutex<Option<(Client, Instant)>>,
}

impl IntrospectionEndpoint {
    /// Creates the endpoint of an issuer; `None` if it has none. Nothing is sent yet.
    pub(super) fn of(issuer: &Arc<TokenIssuer>) -> Option<Self> {
        let settings = issuer.introspection.clone()?;
        let configured = Some(&settings.endpoint);
        let http = IssuerHttp::new(configured, &issuer.networks, issuer.ca.as_deref());
        Some(Self {
            issuer: issuer.clone(),
            settings,
            http,
            client: Mutex::default(),
        })
    }

    /// Asks about a token. Returns what the issuer tells of it; `None` if it isn't active.
    pub(super) async fn introspect(
        &self,
        token: &str,
    ) -> Result<Option<RawObject>, IntrospectionError> {
        let asked = timeout(self.settings.limits.timeout, self.ask(token)).await;
        let answer = asked.unwrap_or(Err(IssuerRequestError::Unreachable));
        if let Err(IssuerRequestError::Certificate(_) | IssuerRequestError::Unreachable) = &answer {
            // Its authorities are read anew.
            *self.client.lock() = None;
        }
        let (status, answer) = answer?;
        let told = parse_document(&answer);
        match status {
            200 => {}
            400 if told.as_ref().is_some_and(is_unsupported) => {
                let issuer = &self.issuer.name;
                callboard_message::log::warn!(by: issuer, issuer, "the introspection endpoint doesn't introspect a token of this form");
                return Ok(None);
            }
            400 | 401 | 403 => return Err(IntrospectionError::Client(status)),
            _ => return Err(IssuerRequestError::Status(status).into()),
        }
        let told = told.ok_or(IntrospectionError::Damaged)?;
        let is_active = told.read::<bool>("active");
        let is_active = is_active.ok_or(IntrospectionError::Damaged)?;
        Ok(is_active.then_some(told))
    }

    /// Returns status and body of the answer about a token.
    async fn ask(&self, token: &str) -> Result<(u16, Vec<u8>), IssuerRequestError> {
        let client = self.client()?;
        let TokenIntrospection {
            endpoint,
            client_id,
            secret,
            ..
        } = &self.settings;
        let authorization =
            basic_authorization(client_id, secret).map_err(|_| IssuerRequestError::Unreachable)?;
        let request = client
            .post(endpoint.clone())
            .header(AUTHORIZATION, authorization)
            .header(ACCEPT, "application/json")
            .form(&[("token", token), ("token_type_hint", "access_token")])
            .build()
            .map_err(|_| IssuerRequestError::Unreachable)?;
        self.http
            .exchange(&client, request, INTROSPECTION_BYTES_MAX, &[200, 400])
            .await
    }

    /// Returns the client, a new one if there is none or it is too old.
    fn client(&self) -> Result<Client, IssuerRequestError> {
        let mut current = self.client.lock();
        if let Some((client, created)) = &*current
            && created.elapsed() < CLIENT_AGE_MAX
        {
            return Ok(client.clone());
        }
        let client = self.http.client()?;
        *current = Some((client.clone(), Instant::now()));
        Ok(client)
    }
}

/// Returns whether an error of the endpoint says that it doesn't introspect tokens of this form, for
/// example signed ones (RFC 7009, section 2.2.1), so that another request won't help.
fn is_unsupported(error: &RawObject) -> bool {
    error.read::<String>("error").as_deref() == Some("unsupported_token_type")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::claims::ClaimNames;
    use crate::{IntrospectionLimits, JwsAlgorithm};

    fn issuer(endpoint: &str) -> Arc<TokenIssuer> {
        Arc::new(TokenIssuer {
            name: "corp".to_owned(),
            issuer: "https://issuer.example".to_owned(),
            audiences: Vec::new(),
            keys: None,
            introspection: Some(TokenIntrospection {
                endpoint: endpoint.parse().unwrap(),
                client_id: "client".to_owned(),
                secret: "secret".into(),
                limits: IntrospectionLimits::default(),
            }),
            networks: Vec::new(),
            ca: None,
            algorithms: JwsAlgorithm::DEFAULT.to_vec(),
            scopes_required: Vec::new(),
            claims: ClaimNames::default(),
        })
    }

    /// Goal: internal addresses aren't asked. Method: rows; the reason is the rules, not the network.
    #[tokio::test]
    async fn internal_addresses_are_not_asked() {
        for endpoint in [
            "http://10.0.0.1/introspect",
            "https://10.0.0.1/introspect",
            "https://169.254.169.254/introspect",
            "https://[fd00::1]/introspect",
        ] {
            let asked = IntrospectionEndpoint::of(&issuer(endpoint)).unwrap();
            let refused = asked.introspect("token").await;
            assert!(
                matches!(
                    refused,
                    Err(IntrospectionError::Request(IssuerRequestError::Egress(_)))
                ),
                "{endpoint}"
            );
        }
    }
}
