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
use super::discovery::{OFFLINE_ACCESS, Scopes, Server};
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

/// What a token request asks for, and for whom.
pub(crate) struct Ask<'a> {
    pub server: &'a Server,
    pub client: &'a Client,
    pub resource: &'a str,
    pub scopes: &'a Scopes,
}

/// Why there should be a token.
pub(crate) enum Because<'a> {
    /// Somebody consented (RFC 6749, section 4.1.3).
    Code { code: &'a SecretString, verifier: &'a SecretString, redirect_uri: &'a str },
    /// There was one before (section 6).
    Refresh(&'a SecretString),
    /// It is the client's own (section 4.4).
    Client,
    /// Somebody vouches for it (RFC 7523, section 2.1).
    Assertion(&'a SecretString),
}

#[derive(Deserialize)]
struct Response {
    access_token: SecretString,
    token_type: String,
    /// In seconds; some servers write it as text.
    expires_in: Option<Box<RawValue>>,
    refresh_token: Option<SecretString>,
}

impl Ask<'_> {
    /// Gets a token of the server.
    pub async fn token(&self, fetch: &Fetch, because: Because<'_>) -> Result<Token, AuthError> {
        let document = Document::Token;
        let proven = self.client.proven_to(&self.server.issuer, self.server.authentication_methods.as_deref())?;
        let scope = self.scopes.parameter();
        let mut fields: Vec<(&str, &str)> = because.fields();
        fields.extend(proven.fields());
        fields.push(("resource", self.resource));
        // A code has its scopes already, and a refreshed token keeps them.
        if let (Some(scope), Because::Client | Because::Assertion(_)) = (&scope, &because) {
            fields.push(("scope", scope));
        }
        let asked_at = Instant::now();
        let endpoint = &self.server.token_endpoint;
        let answer = fetch.post_form(endpoint, document, &fields, proven.authorization.clone()).await?;
        let response: Response = answer.accepted()?;
        if !response.token_type.eq_ignore_ascii_case("bearer") {
            return Err(AuthError::Malformed(document));
        }
        let lifetime = response.expires_in.and_then(|json| lifetime(json.get()));
        let old_refresh = if let Because::Refresh(token) = because { Some(token.clone()) } else { None };
        Ok(Token {
            value: bearer(response.access_token.expose_secret())?,
            refresh: response.refresh_token.or(old_refresh),
            renew_at: lifetime.map(|lifetime| asked_at + lifetime - RENEWAL_MARGIN.min(lifetime / 2)),
            expires_at: lifetime.map(|lifetime| asked_at + lifetime),
        })
    }
}

impl<'a> Because<'a> {
    fn fields(&self) -> Vec<(&'static str, &'a str)> {
        match self {
            Self::Code { code, verifier, redirect_uri } => vec![
                ("grant_type", "authorization_code"),
                ("code", code.expose_secret()),
                ("code_verifier", verifier.expose_secret()),
                ("redirect_uri", redirect_uri),
            ],
            Self::Refresh(token) => vec![("grant_type", "refresh_token"), ("refresh_token", token.expose_secret())],
            Self::Client => vec![("grant_type", "client_credentials")],
            Self::Assertion(assertion) => vec![
                ("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"),
                ("assertion", assertion.expose_secret()),
            ],
        }
    }
}

/// `3600`, `3600.0` or `"3600"`; anything else is as if it weren't there.
fn lifetime(json: &str) -> Option<Duration> {
    let digits = json.trim_matches('"');
    let whole = digits.split_once('.').map_or(digits, |(whole, _)| whole);
    whole.parse::<u64>().ok().map(|seconds| Duration::from_secs(seconds.min(LIFETIME_S_MAX)))
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
        if let Self::Consent { identity, .. } = self { identity.check() } else { Ok(()) }
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
                if !server.pkce_s256 {
                    return Err(AuthError::NoPkce);
                }
                registrations.client(fetch, server, identity, consent.redirect_uri()).await
            }
            Self::Client(known) | Self::Assertion { client: known, .. } => registrations.known(known, server),
        }
    }

    /// A token, and it may take a person's time.
    pub(crate) async fn token(
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
            assert_eq!(lifetime(json).map(|lifetime| lifetime.as_secs()), seconds, "{json}");
        }
    }
}
