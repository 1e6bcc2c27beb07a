use std::fmt;
use std::time::Duration;

use callboard_rpc::Egress;
use futures::future::BoxFuture;
use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};

use super::fetch::{Fetch, REQUEST_TIMEOUT_DEFAULT};
use super::{AuthError, Document};

/// Where somebody consents to what we ask for: a browser in front of a person, as a rule.
pub trait Consent: Send + Sync {
    /// Where the authorization server sends the browser back to. Stays the same: clients are registered with it.
    fn redirect_uri(&self) -> &str;

    /// Opens `url` (https, or http on this machine) and waits for the browser to come back. Never hand it to a shell.
    ///
    /// # Errors
    /// [`AuthError::Consent`] where nobody can be asked.
    fn authorize<'a>(&'a self, url: &'a Url) -> BoxFuture<'a, Result<Redirected, AuthError>>;
}

impl fmt::Debug for dyn Consent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Consent")
    }
}

/// What the browser brought back: the parameters of an authorization response. Nothing in it is checked yet.
#[derive(Debug)]
pub struct Redirected {
    pub(super) code: Option<SecretString>,
    pub(super) state: Option<SecretString>,
    pub(super) issuer: Option<String>,
    pub(super) error: Option<String>,
}

impl Redirected {
    /// From the URL that the browser came back to.
    ///
    /// # Errors
    /// [`AuthError::Malformed`] if a parameter occurs twice (RFC 6749, section 3.1).
    pub fn from_url(url: &Url) -> Result<Self, AuthError> {
        let mut redirected = Self { code: None, state: None, issuer: None, error: None };
        for (name, value) in url.query_pairs() {
            let value = value.into_owned();
            let twice = match name.as_ref() {
                "code" => redirected.code.replace(value.into()).is_some(),
                "state" => redirected.state.replace(value.into()).is_some(),
                "iss" => redirected.issuer.replace(value).is_some(),
                "error" => redirected.error.replace(value).is_some(),
                _ => false,
            };
            if twice {
                return Err(AuthError::Malformed(Document::Authorization));
            }
        }
        Ok(redirected)
    }

    /// Whether it answers the request that `url` made.
    pub(super) fn answers(&self, url: &Url) -> bool {
        let asked = url.query_pairs().find(|(name, _)| name == "state");
        match (asked, &self.state) {
            (Some((_, asked)), Some(state)) => asked == state.expose_secret(),
            _ => false,
        }
    }
}

/// Consent without a person: asks the authorization server itself and reads where it redirects to. For servers that
/// consent to everything, as in tests.
#[derive(Debug)]
pub struct HeadlessConsent {
    fetch: Fetch,
    redirect_uri: String,
}

impl HeadlessConsent {
    /// With the redirect URI to name; nothing needs to listen there. `egress` says where the server may be.
    ///
    /// # Errors
    /// [`AuthError::Client`] if there is no HTTP client to be had.
    pub fn new(redirect_uri: impl Into<String>, egress: &Egress) -> Result<Self, AuthError> {
        Ok(Self { fetch: Fetch::new(egress, REQUEST_TIMEOUT_DEFAULT)?, redirect_uri: redirect_uri.into() })
    }
}

impl Consent for HeadlessConsent {
    fn redirect_uri(&self) -> &str {
        &self.redirect_uri
    }

    fn authorize<'a>(&'a self, url: &'a Url) -> BoxFuture<'a, Result<Redirected, AuthError>> {
        Box::pin(async move {
            let back = self.fetch.redirect_of(url, Document::Authorization).await?;
            match back {
                Some(back) if back.as_str().starts_with(&self.redirect_uri) => Redirected::from_url(&back),
                _ => Err(AuthError::Consent("the authorization server didn't redirect to us")),
            }
        })
    }
}

/// How long somebody may take to consent.
pub const CONSENT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5 * 60);
