use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::authorizer::bearer;
use super::client::Client;
use super::discovery::Server;
use super::fetch::Fetch;
use super::scopes::Scopes;
use super::{AuthError, Document};

/// How long before its end a token is renewed.
const RENEWAL_MARGIN: Duration = Duration::from_secs(30);
/// The longest lifetime that is believed: a year.
const LIFETIME_S_MAX: u64 = 366 * 24 * 3600;

/// A token of the upstream's. Never printed.
#[derive(Debug, Clone)]
pub(super) struct Token {
    /// The whole value of `Authorization`.
    pub(super) value: SecretString,
    pub(super) refresh: Option<SecretString>,
    renew_at: Option<Instant>,
    expires_at: Option<Instant>,
}

impl Token {
    /// It ends soon.
    pub(super) fn wants_renewal(&self) -> bool {
        self.renew_at.is_some_and(|at| at <= Instant::now())
    }

    pub(super) fn expired(&self) -> bool {
        self.expires_at.is_some_and(|at| at <= Instant::now())
    }

    pub(super) fn is(&self, value: &SecretString) -> bool {
        self.value.expose_secret() == value.expose_secret()
    }
}

/// What a token request asks for, and for whom.
pub(super) struct Ask<'a> {
    pub(super) server: &'a Server,
    pub(super) client: &'a Client,
    pub(super) resource: &'a str,
    pub(super) scopes: &'a Scopes,
}

/// Why there should be a token.
pub(super) enum Because<'a> {
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
    pub(super) async fn token(&self, fetch: &Fetch, because: Because<'_>) -> Result<Token, AuthError> {
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
