//! Settings of a token issuer, and its judgement of claims.

use std::path::PathBuf;
use std::time::Duration;

use callboard_message::{Principal, RawObject};
use derive_more::Debug;
use secrecy::SecretString;
use url::Url;

use super::claims::{self, ClaimNames, TokenError};
use super::issuer_keys::KeySource;
use super::jwk::JwsAlgorithm;
use crate::egress::IpNetwork;

/// Default of [`IntrospectionLimits::age_max`].
pub const INTROSPECTION_AGE_DEFAULT: Duration = Duration::from_secs(30);
/// Default of [`IntrospectionLimits::refused_age_max`].
pub const REFUSED_INTROSPECTION_AGE_DEFAULT: Duration = Duration::from_secs(5);
/// Default of [`IntrospectionLimits::timeout`].
pub const INTROSPECTION_TIMEOUT: Duration = Duration::from_secs(5);

/// An authorization server whose tokens are accepted.
#[derive(Debug, Clone)]
pub struct TokenIssuer {
    /// Short name, which begins the ids of its principals (`NAME.ID`). Letters, digits, `-` and `_`;
    /// no other issuer may have it.
    pub name: String,
    /// Issuer, exactly as in its tokens (`iss`).
    pub issuer: String,
    /// Audiences (`aud`), of which a token must name one, exactly as here.
    pub audiences: Vec<String>,
    /// Place of its keys, which verify its signed tokens. `None` for an issuer whose tokens are
    /// introspected, signed ones too.
    pub keys: Option<KeySource>,
    /// Endpoint that tells of its tokens that aren't verified by keys. `None` if only signed tokens
    /// are accepted.
    pub introspection: Option<TokenIntrospection>,
    /// Networks in which its metadata, keys and introspection endpoint may be, in addition to the
    /// public internet.
    #[debug(skip)]
    pub networks: Vec<IpNetwork>,
    /// PEM file with the authorities that may have issued its server's certificate. `None` for the
    /// public ones.
    pub ca: Option<PathBuf>,
    /// Signature algorithms. Default of a listener: [`JwsAlgorithm::DEFAULT`].
    pub algorithms: Vec<JwsAlgorithm>,
    /// Scopes that each token must have.
    pub scopes_required: Vec<String>,
    /// Claims by which the principal is known.
    pub claims: ClaimNames,
}

/// Introspection endpoint of an issuer (RFC 7662).
#[derive(Debug, Clone)]
pub struct TokenIntrospection {
    /// URL of the endpoint.
    #[debug("{}", endpoint.origin().ascii_serialization())]
    pub endpoint: Url,
    /// Client id by which the listener authenticates at the endpoint, with HTTP Basic.
    pub client_id: String,
    /// Secret of the client.
    pub secret: SecretString,
    /// Limits of its answers.
    pub limits: IntrospectionLimits,
}

/// Limits of the answers of an introspection endpoint.
#[derive(Debug, Clone, Copy)]
pub struct IntrospectionLimits {
    /// Maximum age of the answer that a token is active, which is never used past the token's
    /// expiry. A revoked token counts for as long. Default: 30 s.
    pub age_max: Duration,
    /// Maximum age of the answer that a token isn't active, or of one by which it isn't accepted.
    /// Default: 5 s.
    pub refused_age_max: Duration,
    /// Timeout of one request to the endpoint. Default: 5 s.
    pub timeout: Duration,
}

impl Default for IntrospectionLimits {
    fn default() -> Self {
        Self {
            age_max: INTROSPECTION_AGE_DEFAULT,
            refused_age_max: REFUSED_INTROSPECTION_AGE_DEFAULT,
            timeout: INTROSPECTION_TIMEOUT,
        }
    }
}

/// Claims of a token that is valid.
#[derive(Debug, Clone)]
pub(super) struct ValidClaims {
    /// Expiry, with the leeway, in seconds since the Unix epoch.
    pub(super) expires: f64,
    /// Principal, or [`TokenError::Scope`] if the token lacks a scope that the listener requires.
    pub(super) principal: Result<Principal, TokenError>,
}

impl TokenIssuer {
    /// Judges the claims of a token of this issuer. `now` is in seconds since the Unix epoch.
    pub(super) fn judge(&self, claims: &RawObject, now: f64) -> Result<ValidClaims, TokenError> {
        let expires = claims::check_times(claims, now)?;
        claims::check_audience(claims, &self.audiences)?;
        claims::check_unbound(claims)?;
        let principal = claims::principal_of(claims, &self.name, &self.claims)?;
        let has = |scope: &String| principal.scopes.contains(scope);
        let principal = match self.scopes_required.iter().all(has) {
            true => Ok(principal),
            false => Err(TokenError::Scope),
        };
        Ok(ValidClaims { expires, principal })
    }

    /// Judges what the issuer's introspection endpoint tells of an active token: like
    /// [`Self::judge`], and it must be an access token of this issuer, if that is told.
    pub(super) fn judge_introspected(
        &self,
        claims: &RawObject,
        now: f64,
    ) -> Result<ValidClaims, TokenError> {
        if claims.has("iss") && claims.text("iss").as_deref() != Some(&self.issuer) {
            return Err(TokenError::Issuer);
        }
        claims::check_use(claims)?;
        let mut judged = self.judge(claims, now)?;
        if let Ok(principal) = &mut judged.principal {
            // An answer may list them in another order each time, and its principal is still the same.
            principal.scopes.sort_unstable();
        }
        Ok(judged)
    }
}
