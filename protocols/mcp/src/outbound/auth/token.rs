use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout};

use super::assertion::{AssertionAudience, AssertionProvider};
use super::authorizer::bearer_value;
use super::client::{
    ClientIdentity, ClientRegistrations, OAuthClient, PreregisteredClient, pkce_challenge,
    random_token,
};
use super::consent::{AuthorizationResponse, ConsentProvider};
use super::discovery::{AuthorizationServer, OFFLINE_ACCESS, ScopeSet, is_listed};
use super::error::OAuthErrorCode;
use super::fetch::OAuthHttpClient;
use super::{AuthError, OAuthDocument};

/// Time before a token's expiry at which it is renewed; half its lifetime if that is shorter.
const RENEWAL_MARGIN: Duration = Duration::from_secs(30);
/// Maximum lifetime of a token in seconds: a year.
const LIFETIME_S_MAX: u64 = 366 * 24 * 3600;

/// Access token for the upstream. Never logged.
#[derive(Debug, Clone)]
pub(crate) struct UpstreamToken {
    /// The whole value of `Authorization`.
    pub value: SecretString,
    pub refresh: Option<SecretString>,
    renew_at: Option<Instant>,
    expires_at: Option<Instant>,
}

impl UpstreamToken {
    /// Returns true if the token expires soon, so that it should be renewed.
    pub fn needs_renewal(&self) -> bool {
        self.renew_at.is_some_and(|at| at <= Instant::now())
    }

    pub fn is_expired(&self) -> bool {
        self.expires_at.is_some_and(|at| at <= Instant::now())
    }

    pub fn has_value(&self, value: &SecretString) -> bool {
        self.value.expose_secret() == value.expose_secret()
    }
}

/// Parameters of token requests to one authorization server: server, client, resource and scopes.
#[derive(Clone)]
pub(crate) struct AuthorizationSession {
    pub server: AuthorizationServer,
    pub client: OAuthClient,
    pub resource: String,
    pub requested_scopes: ScopeSet,
    /// True if the latest token was obtained with a refresh token, and not by a new grant.
    pub is_refreshed: bool,
}

#[derive(Deserialize)]
struct TokenResponse {
    access_token: SecretString,
    token_type: String,
    /// Lifetime in seconds, as JSON; some servers write it as a string.
    expires_in: Option<Box<RawValue>>,
    refresh_token: Option<SecretString>,
}

impl AuthorizationSession {
    /// Sends a token request with the fields of `grant`, client authentication and the resource.
    /// `scope` is `None` for an authorization code, because its scopes were requested before.
    async fn request_token(
        &self,
        fetch: &OAuthHttpClient,
        grant: &[(&str, &str)],
        scope: Option<&str>,
    ) -> Result<UpstreamToken, AuthError> {
        let document = OAuthDocument::Token;
        let methods = self.server.token_endpoint_auth_methods_supported.as_deref();
        let proven = self.client.authenticate_to(&self.server.issuer, methods)?;
        let mut fields = grant.to_vec();
        fields.extend(proven.fields());
        fields.push(("resource", &self.resource));
        fields.extend(scope.map(|scope| ("scope", scope)));
        let asked_at = Instant::now();
        let endpoint = &self.server.token_endpoint;
        let answer = fetch
            .post_form(endpoint, document, &fields, proven.authorization.clone())
            .await?;
        let response: TokenResponse = answer.parse_success()?;
        if !response.token_type.eq_ignore_ascii_case("bearer") {
            return Err(AuthError::Malformed(document));
        }
        let lifetime = response
            .expires_in
            .and_then(|json| parse_lifetime(json.get()));
        Ok(UpstreamToken {
            value: bearer_value(response.access_token.expose_secret())?,
            refresh: response.refresh_token,
            renew_at: lifetime
                .map(|lifetime| asked_at + lifetime - RENEWAL_MARGIN.min(lifetime / 2)),
            expires_at: lifetime.map(|lifetime| asked_at + lifetime),
        })
    }

    /// Requests a new token with the refresh token `refresh`, for the same scopes (RFC 6749,
    /// section 6).
    pub async fn refresh(
        &self,
        fetch: &OAuthHttpClient,
        refresh: &SecretString,
    ) -> Result<UpstreamToken, AuthError> {
        let grant = [
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh.expose_secret()),
        ];
        let token = self.request_token(fetch, &grant, None).await?;
        Ok(UpstreamToken {
            refresh: token.refresh.or_else(|| Some(refresh.clone())),
            ..token
        })
    }
}

/// Parses a lifetime in seconds from JSON: `3600`, `3600.0` or `"3600"`. Returns `None` for
/// anything else.
fn parse_lifetime(json: &str) -> Option<Duration> {
    let digits = json.trim_matches('"');
    let whole = digits.split_once('.').map_or(digits, |(whole, _)| whole);
    whole
        .parse::<u64>()
        .ok()
        .map(|seconds| Duration::from_secs(seconds.min(LIFETIME_S_MAX)))
}

/// OAuth grant by which access tokens are obtained.
#[derive(Debug, Clone)]
pub enum OAuthGrant {
    /// Authorization code grant with PKCE: a user consents.
    Consent {
        /// User interface for the consent.
        consent: Arc<dyn ConsentProvider>,
        /// Sources of the client identity at the authorization server.
        identity: ClientIdentity,
    },
    /// Client credentials grant: the client acts for itself.
    Client(PreregisteredClient),
    /// JWT bearer grant (RFC 7523): a third party asserts on whose behalf the client acts.
    Assertion {
        /// Source of the assertions.
        assertions: Arc<dyn AssertionProvider>,
        /// Client registered at the authorization server.
        client: PreregisteredClient,
    },
}

impl OAuthGrant {
    pub(crate) fn validate(&self) -> Result<(), AuthError> {
        if let Self::Consent { identity, .. } = self {
            identity.validate()
        } else {
            Ok(())
        }
    }

    /// Returns the issuer of the preregistered client, if the configuration names one. Only that
    /// authorization server is used then.
    pub(crate) fn issuer(&self) -> Option<&str> {
        let known = match self {
            Self::Consent { identity, .. } => identity.preregistered.as_ref(),
            Self::Client(known) | Self::Assertion { client: known, .. } => Some(known),
        };
        known.and_then(|known| known.issuer.as_deref())
    }

    /// Returns the client to use at `server`, registering one dynamically if the grant permits it.
    /// A consent grant fails with [`AuthError::NoPkce`] if the server lacks PKCE with S256.
    pub(crate) async fn client_for(
        &self,
        fetch: &OAuthHttpClient,
        server: &AuthorizationServer,
        registrations: &mut ClientRegistrations,
    ) -> Result<OAuthClient, AuthError> {
        match self {
            Self::Consent { consent, identity } => {
                // Checked before a registration that couldn't be used.
                if !server.has_pkce_s256() {
                    return Err(AuthError::NoPkce);
                }
                registrations
                    .client_for(fetch, server, identity, consent.redirect_uri())
                    .await
            }
            Self::Client(known) | Self::Assertion { client: known, .. } => {
                registrations.preregistered_client(known, server)
            }
        }
    }

    /// Requests a token by this grant. A consent grant waits for the user, up to a time limit.
    pub(crate) async fn request_token(
        &self,
        fetch: &OAuthHttpClient,
        session: &AuthorizationSession,
        consent_timeout: Duration,
    ) -> Result<UpstreamToken, AuthError> {
        let scope = session.requested_scopes.to_parameter();
        match self {
            // RFC 6749, section 4.1.3.
            Self::Consent { consent, .. } => {
                let redirect_uri = consent.redirect_uri();
                let request = AuthorizationRequest::new(fetch, session, redirect_uri)?;
                let redirected = timeout(consent_timeout, consent.authorize(&request.url))
                    .await
                    .map_err(|_| {
                        AuthError::Consent("the user didn't consent in time: try again")
                    })??;
                let code = request.authorization_code(redirected, &session.server)?;
                let grant = [
                    ("grant_type", "authorization_code"),
                    ("code", code.expose_secret()),
                    ("code_verifier", request.verifier.expose_secret()),
                    ("redirect_uri", redirect_uri),
                ];
                session.request_token(fetch, &grant, None).await
            }
            // RFC 6749, section 4.4.
            Self::Client(_) => {
                session
                    .request_token(
                        fetch,
                        &[("grant_type", "client_credentials")],
                        scope.as_deref(),
                    )
                    .await
            }
            // RFC 7523, section 2.1.
            Self::Assertion { assertions, .. } => {
                let audience = AssertionAudience {
                    issuer: &session.server.issuer,
                    resource: &session.resource,
                };
                let assertion = assertions.assertion(audience).await?;
                let grant = [
                    ("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"),
                    ("assertion", assertion.expose_secret()),
                ];
                session.request_token(fetch, &grant, scope.as_deref()).await
            }
        }
    }
}

/// Authorization request, with the values that the response must match.
struct AuthorizationRequest {
    url: Url,
    verifier: SecretString,
    state: SecretString,
}

impl AuthorizationRequest {
    fn new(
        fetch: &OAuthHttpClient,
        session: &AuthorizationSession,
        redirect_uri: &str,
    ) -> Result<Self, AuthError> {
        let endpoint = session.server.authorization_endpoint.as_deref();
        let endpoint = endpoint.ok_or(AuthError::Malformed(OAuthDocument::ServerMetadata))?;
        // A user's browser will open it: no javascript:, file: or internal address.
        let mut url = fetch
            .parse_url(endpoint, OAuthDocument::Authorization)
            .map_err(|_| AuthError::AuthorizationUrl)?;
        url.set_fragment(None);
        let (verifier, state) = (random_token()?, random_token()?);
        let scopes = with_offline_access(session)?;
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", session.client.id())
            .append_pair("redirect_uri", redirect_uri)
            .append_pair("code_challenge", &pkce_challenge(&verifier))
            .append_pair("code_challenge_method", "S256")
            .append_pair("state", state.expose_secret())
            .append_pair("resource", &session.resource);
        if let Some(scope) = scopes.to_parameter() {
            url.query_pairs_mut().append_pair("scope", &scope);
        }
        if scopes.contains(OFFLINE_ACCESS) {
            // OpenID Connect Core, section 11: without it the scope is ignored.
            url.query_pairs_mut().append_pair("prompt", "consent");
        }
        Ok(Self {
            url,
            verifier,
            state,
        })
    }

    /// Returns the authorization code in `redirected` if the response belongs to this request and
    /// to `server`. `state` and issuer are checked first, so that even an error in a foreign
    /// response is ignored.
    fn authorization_code(
        &self,
        redirected: AuthorizationResponse,
        server: &AuthorizationServer,
    ) -> Result<SecretString, AuthError> {
        let ours = redirected
            .state
            .is_some_and(|state| state.expose_secret() == self.state.expose_secret());
        if !ours {
            return Err(AuthError::State);
        }
        // RFC 9207, section 2.4: issuers are compared character by character.
        let by_server = match &redirected.issuer {
            Some(issuer) => *issuer == server.issuer,
            None => !server.authorization_response_iss_parameter_supported,
        };
        if !by_server {
            return Err(AuthError::ResponseIssuer);
        }
        match (redirected.error, redirected.code) {
            (Some(error), _) => Err(AuthError::Denied(OAuthErrorCode::new(&error))),
            (None, Some(code)) => Ok(code),
            (None, None) => Err(AuthError::Malformed(OAuthDocument::Authorization)),
        }
    }
}

/// Returns the scopes to request, with `offline_access` added if the server lists it, so that a
/// refresh token is issued. It is removed if the server lists only other scopes. It is never
/// requested alone, because it would replace the server's default scopes.
fn with_offline_access(session: &AuthorizationSession) -> Result<ScopeSet, AuthError> {
    let mut scopes = session.requested_scopes.clone();
    let offers = session
        .server
        .scopes_supported
        .as_ref()
        .map(|list| is_listed(list, OFFLINE_ACCESS));
    let refreshes = session
        .server
        .grant_types_supported
        .as_ref()
        .is_none_or(|list| is_listed(list, "refresh_token"));
    match offers {
        Some(true) if !scopes.is_empty() && refreshes => scopes.insert(OFFLINE_ACCESS)?,
        Some(false) => scopes.remove(OFFLINE_ACCESS),
        _ => {}
    }
    Ok(scopes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: lifetimes are read as servers write them, and none overflows. Method: a table.
    #[test]
    fn lifetimes_are_read() {
        for (json, seconds) in [
            ("3600", Some(3600)),
            ("\"3600\"", Some(3600)),
            ("3600.5", Some(3600)),
            ("0", Some(0)),
            ("18446744073709551615", Some(LIFETIME_S_MAX)),
            ("-1", None),
            ("null", None),
            ("\"soon\"", None),
        ] {
            assert_eq!(
                parse_lifetime(json).map(|lifetime| lifetime.as_secs()),
                seconds,
                "{json}"
            );
        }
    }
}
