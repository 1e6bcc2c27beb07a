use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout};

use super::assertion::{Assertions, Audience};
use super::authorizer::bearer;
use super::client::{Client, Identity, KnownClient, Registrations, random_text, s256};
use super::consent::{Consent, Redirected};
use super::discovery::{OFFLINE_ACCESS, Scopes, Server, is_listed};
use super::error::ErrorCode;
use super::fetch::Fetch;
use super::{AuthError, Document};

/// How long before its end a token is renewed.
const RENEWAL_MARGIN: Duration = Duration::from_secs(30);
/// The longest lifetime that is believed: a year.
const LIFETIME_S_MAX: u64 = 366 * 24 * 3600;

/// A token of the upstream's. Never printed.
#[derive(Debug, Clone)]
pub(crate) struct Token {
    /// The whole value of `Authorization`.
    pub value: SecretString,
    pub refresh: Option<SecretString>,
    renew_at: Option<Instant>,
    expires_at: Option<Instant>,
}

impl Token {
    /// It ends soon.
    pub fn wants_renewal(&self) -> bool {
        self.renew_at.is_some_and(|at| at <= Instant::now())
    }

    pub fn expired(&self) -> bool {
        self.expires_at.is_some_and(|at| at <= Instant::now())
    }

    pub fn is(&self, value: &SecretString) -> bool {
        self.value.expose_secret() == value.expose_secret()
    }
}

/// What tokens are asked for with.
#[derive(Clone)]
pub(crate) struct Session {
    pub server: Server,
    pub client: Client,
    pub resource: String,
    pub requested: Scopes,
    /// The last token came of a refresh token.
    pub refreshed: bool,
}

#[derive(Deserialize)]
struct Response {
    access_token: SecretString,
    token_type: String,
    /// In seconds; some servers write it as text.
    expires_in: Option<Box<RawValue>>,
    refresh_token: Option<SecretString>,
}

impl Session {
    /// Gets a token of the server for a `grant`. With its `scope`, but for a code, which has its scopes already.
    async fn token(
        &self,
        fetch: &Fetch,
        grant: &[(&str, &str)],
        scope: Option<&str>,
    ) -> Result<Token, AuthError> {
        let document = Document::Token;
        let methods = self.server.token_endpoint_auth_methods_supported.as_deref();
        let proven = self.client.proven_to(&self.server.issuer, methods)?;
        let mut fields = grant.to_vec();
        fields.extend(proven.fields());
        fields.push(("resource", &self.resource));
        fields.extend(scope.map(|scope| ("scope", scope)));
        let asked_at = Instant::now();
        let endpoint = &self.server.token_endpoint;
        let answer = fetch
            .post_form(endpoint, document, &fields, proven.authorization.clone())
            .await?;
        let response: Response = answer.accepted()?;
        if !response.token_type.eq_ignore_ascii_case("bearer") {
            return Err(AuthError::Malformed(document));
        }
        let lifetime = response.expires_in.and_then(|json| lifetime(json.get()));
        Ok(Token {
            value: bearer(response.access_token.expose_secret())?,
            refresh: response.refresh_token,
            renew_at: lifetime
                .map(|lifetime| asked_at + lifetime - RENEWAL_MARGIN.min(lifetime / 2)),
            expires_at: lifetime.map(|lifetime| asked_at + lifetime),
        })
    }

    /// Gets a token in place of one that came with this refresh token, with the same scopes (RFC 6749, section 6).
    pub async fn refresh(&self, fetch: &Fetch, refresh: &SecretString) -> Result<Token, AuthError> {
        let grant = [
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh.expose_secret()),
        ];
        let token = self.token(fetch, &grant, None).await?;
        Ok(Token {
            refresh: token.refresh.or_else(|| Some(refresh.clone())),
            ..token
        })
    }
}

/// `3600`, `3600.0` or `"3600"`; anything else is as if it weren't there.
fn lifetime(json: &str) -> Option<Duration> {
    let digits = json.trim_matches('"');
    let whole = digits.split_once('.').map_or(digits, |(whole, _)| whole);
    whole
        .parse::<u64>()
        .ok()
        .map(|seconds| Duration::from_secs(seconds.min(LIFETIME_S_MAX)))
}

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
    pub(crate) fn check(&self) -> Result<(), AuthError> {
        if let Self::Consent { identity, .. } = self {
            identity.check()
        } else {
            Ok(())
        }
    }

    /// The issuer that the configuration binds us to.
    pub(crate) fn issuer(&self) -> Option<&str> {
        let known = match self {
            Self::Consent { identity, .. } => identity.known.as_ref(),
            Self::Client(known) | Self::Assertion { client: known, .. } => Some(known),
        };
        known.and_then(|known| known.issuer.as_deref())
    }

    /// Who we are to `server`.
    pub(crate) async fn client(
        &self,
        fetch: &Fetch,
        server: &Server,
        registrations: &mut Registrations,
    ) -> Result<Client, AuthError> {
        match self {
            Self::Consent { consent, identity } => {
                // Before anything is registered that couldn't be used.
                if !server.has_pkce_s256() {
                    return Err(AuthError::NoPkce);
                }
                registrations
                    .client(fetch, server, identity, consent.redirect_uri())
                    .await
            }
            Self::Client(known) | Self::Assertion { client: known, .. } => {
                registrations.known(known, server)
            }
        }
    }

    /// A token, and it may take a person's time.
    pub(crate) async fn token(
        &self,
        fetch: &Fetch,
        session: &Session,
        consent_timeout: Duration,
    ) -> Result<Token, AuthError> {
        let scope = session.requested.parameter();
        match self {
            // RFC 6749, section 4.1.3.
            Self::Consent { consent, .. } => {
                let redirect_uri = consent.redirect_uri();
                let request = Request::new(fetch, session, redirect_uri)?;
                let redirected = timeout(consent_timeout, consent.authorize(&request.url))
                    .await
                    .map_err(|_| AuthError::Consent("nobody consented in time"))??;
                let code = request.code(redirected, &session.server)?;
                let grant = [
                    ("grant_type", "authorization_code"),
                    ("code", code.expose_secret()),
                    ("code_verifier", request.verifier.expose_secret()),
                    ("redirect_uri", redirect_uri),
                ];
                session.token(fetch, &grant, None).await
            }
            // RFC 6749, section 4.4.
            Self::Client(_) => {
                session
                    .token(
                        fetch,
                        &[("grant_type", "client_credentials")],
                        scope.as_deref(),
                    )
                    .await
            }
            // RFC 7523, section 2.1.
            Self::Assertion { assertions, .. } => {
                let audience = Audience {
                    issuer: &session.server.issuer,
                    resource: &session.resource,
                };
                let assertion = assertions.assertion(audience).await?;
                let grant = [
                    ("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"),
                    ("assertion", assertion.expose_secret()),
                ];
                session.token(fetch, &grant, scope.as_deref()).await
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
    fn new(fetch: &Fetch, session: &Session, redirect_uri: &str) -> Result<Self, AuthError> {
        let endpoint = session.server.authorization_endpoint.as_deref();
        let endpoint = endpoint.ok_or(AuthError::Malformed(Document::ServerMetadata))?;
        // Someone's browser will open it: no javascript:, no file:, no router's address.
        let mut url = fetch
            .url(endpoint, Document::Authorization)
            .map_err(|_| AuthError::AuthorizationUrl)?;
        url.set_fragment(None);
        let (verifier, state) = (random_text()?, random_text()?);
        let scopes = with_offline_access(session)?;
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", session.client.id())
            .append_pair("redirect_uri", redirect_uri)
            .append_pair("code_challenge", &s256(&verifier))
            .append_pair("code_challenge_method", "S256")
            .append_pair("state", state.expose_secret())
            .append_pair("resource", &session.resource);
        if let Some(scope) = scopes.parameter() {
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

    /// The code, if the response is the one to this request and by this server. The order matters: of a response that
    /// isn't, not even the error is looked at.
    fn code(&self, redirected: Redirected, server: &Server) -> Result<SecretString, AuthError> {
        let ours = redirected
            .state
            .is_some_and(|state| state.expose_secret() == self.state.expose_secret());
        if !ours {
            return Err(AuthError::State);
        }
        // RFC 9207, section 2.4: character by character.
        let by_server = match &redirected.issuer {
            Some(issuer) => *issuer == server.issuer,
            None => !server.authorization_response_iss_parameter_supported,
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
fn with_offline_access(session: &Session) -> Result<Scopes, AuthError> {
    let mut scopes = session.requested.clone();
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
                lifetime(json).map(|lifetime| lifetime.as_secs()),
                seconds,
                "{json}"
            );
        }
    }
}
