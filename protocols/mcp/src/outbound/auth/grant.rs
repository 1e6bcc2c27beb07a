//! Getting a token where there is none.

use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};
use tokio::time::timeout;

use super::assertion::{Assertions, Audience};
use super::client::Client;
use super::consent::{Consent, Redirected};
use super::discovery::{OFFLINE_ACCESS, Server};
use super::error::ErrorCode;
use super::fetch::Fetch;
use super::keys::{random_text, s256};
use super::registration::{Identity, KnownClient, Registrations};
use super::scopes::Scopes;
use super::token::{Ask, Because, Token};
use super::{AuthError, Document};

/// On what grounds we are given tokens.
#[derive(Debug, Clone)]
pub enum Grant {
    /// Somebody consents: the authorization code grant with PKCE.
    Consent {
        /// Who, or how they are asked.
        consent: Arc<dyn Consent>,
        /// Who we are to the authorization server.
        identity: Identity,
    },
    /// We are who we are: the client credentials grant.
    Client(KnownClient),
    /// Somebody vouches for us: the JWT bearer grant.
    Assertion {
        /// Who.
        assertions: Arc<dyn Assertions>,
        /// Who we are to the authorization server.
        client: KnownClient,
    },
}

impl Grant {
    pub(super) fn check(&self) -> Result<(), AuthError> {
        if let Self::Consent { identity, .. } = self { identity.check() } else { Ok(()) }
    }

    /// The issuer that the configuration binds us to.
    pub(super) fn issuer(&self) -> Option<&str> {
        let known = match self {
            Self::Consent { identity, .. } => identity.known.as_ref(),
            Self::Client(known) | Self::Assertion { client: known, .. } => Some(known),
        };
        known.and_then(|known| known.issuer.as_deref())
    }

    /// Who we are to `server`.
    pub(super) async fn client(
        &self,
        fetch: &Fetch,
        server: &Server,
        registrations: &mut Registrations,
    ) -> Result<Client, AuthError> {
        match self {
            Self::Consent { consent, identity } => {
                // Before anything is registered that couldn't be used.
                if !server.pkce_s256 {
                    return Err(AuthError::NoPkce);
                }
                registrations.client(fetch, server, identity, consent.redirect_uri()).await
            }
            Self::Client(known) | Self::Assertion { client: known, .. } => registrations.known(known, server),
        }
    }

    /// A token, and it may take a person's time.
    pub(super) async fn token(
        &self,
        fetch: &Fetch,
        ask: &Ask<'_>,
        consent_timeout: Duration,
    ) -> Result<Token, AuthError> {
        match self {
            Self::Consent { consent, .. } => {
                let consent = consent.as_ref();
                let request = Request::new(fetch, ask, consent.redirect_uri())?;
                let redirected = timeout(consent_timeout, consent.authorize(&request.url))
                    .await
                    .map_err(|_| AuthError::Consent("nobody consented in time"))??;
                let code = request.code(redirected, ask.server)?;
                let (verifier, redirect_uri) = (&request.verifier, consent.redirect_uri());
                ask.token(fetch, Because::Code { code: &code, verifier, redirect_uri }).await
            }
            Self::Client(_) => ask.token(fetch, Because::Client).await,
            Self::Assertion { assertions, .. } => {
                let audience = Audience { issuer: &ask.server.issuer, resource: ask.resource };
                let assertion = assertions.assertion(audience).await?;
                ask.token(fetch, Because::Assertion(&assertion)).await
            }
        }
    }
}

/// An authorization request, and what its response is held to.
struct Request {
    url: Url,
    verifier: SecretString,
    state: SecretString,
}

impl Request {
    fn new(fetch: &Fetch, ask: &Ask<'_>, redirect_uri: &str) -> Result<Self, AuthError> {
        let endpoint = ask.server.authorization_endpoint.as_deref();
        let endpoint = endpoint.ok_or(AuthError::Malformed(Document::ServerMetadata))?;
        // Someone's browser will open it: no javascript:, no file:, no router's address.
        let mut url = fetch.url(endpoint, Document::Authorization).map_err(|_| AuthError::AuthorizationUrl)?;
        url.set_fragment(None);
        let (verifier, state) = (random_text()?, random_text()?);
        let scopes = with_offline_access(ask)?;
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", ask.client.id())
            .append_pair("redirect_uri", redirect_uri)
            .append_pair("code_challenge", &s256(&verifier))
            .append_pair("code_challenge_method", "S256")
            .append_pair("state", state.expose_secret())
            .append_pair("resource", ask.resource);
        if let Some(scope) = scopes.parameter() {
            url.query_pairs_mut().append_pair("scope", &scope);
        }
        if scopes.contains(OFFLINE_ACCESS) {
            // OpenID Connect Core, section 11: without it the scope is ignored.
            url.query_pairs_mut().append_pair("prompt", "consent");
        }
        Ok(Self { url, verifier, state })
    }

    /// The code, if the response is the one to this request and by this server. The order matters: of a response that
    /// isn't, not even the error is looked at.
    fn code(&self, redirected: Redirected, server: &Server) -> Result<SecretString, AuthError> {
        let ours = redirected.state.is_some_and(|state| state.expose_secret() == self.state.expose_secret());
        if !ours {
            return Err(AuthError::State);
        }
        // RFC 9207, section 2.4: character by character.
        let by_server = match &redirected.issuer {
            Some(issuer) => *issuer == server.issuer,
            None => !server.names_issuer,
        };
        if !by_server {
            return Err(AuthError::ResponseIssuer);
        }
        match (redirected.error, redirected.code) {
            (Some(error), _) => Err(AuthError::Denied(ErrorCode::new(&error))),
            (None, Some(code)) => Ok(code),
            (None, None) => Err(AuthError::Malformed(Document::Authorization)),
        }
    }
}

/// Asks for refresh tokens where the server lists that it has them. On its own the scope would take the place of those
/// that the server gives by default.
fn with_offline_access(ask: &Ask<'_>) -> Result<Scopes, AuthError> {
    let mut scopes = ask.scopes.clone();
    match ask.server.offline_access {
        Some(true) if !scopes.is_empty() && ask.server.refreshes => scopes.insert(OFFLINE_ACCESS)?,
        Some(false) => scopes.remove(OFFLINE_ACCESS),
        _ => {}
    }
    Ok(scopes)
}
