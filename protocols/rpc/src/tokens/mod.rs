//! Access tokens of authorization servers: the OAuth 2.1 resource server's part (RFC 6750, RFC 7662,
//! RFC 8707, RFC 9068, RFC 9728).
//!
//! A token is a signed JWT, verified by its issuer's public keys, or its issuer is asked about it
//! (introspection). Keys are fetched when they are needed; nothing that a token names is ever
//! fetched. A token is verified here and goes no further than to an issuer that introspects it: it
//! is neither logged nor passed on.

mod claims;
mod introspection;
mod issuer;
mod issuer_http;
mod issuer_keys;
mod jwk;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use callboard_message::Principal;
use derive_more::Debug;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use crate::credential::{BearerVerifier, CredentialError, CredentialFuture};
use crate::keys::KEY_PREFIX;
use crate::token_resource::TokenResource;
pub use claims::{
    ClaimNames, ROLE_SCOPE_PREFIX, TOKEN_BYTES_MAX, TOKEN_CLOCK_LEEWAY_S, TOKEN_PRINCIPAL_BYTES_MAX,
};
use claims::{TokenError, UnverifiedToken};
pub use introspection::{
    ADDRESS_INTROSPECTIONS_MAX, ADDRESS_REFUSED_TOKENS_MAX, INTROSPECTED_TOKENS_MAX,
    INTROSPECTING_ISSUERS_MAX, INTROSPECTION_BYTES_MAX, INTROSPECTIONS_MAX, NEW_INTROSPECTIONS_MAX,
    REFUSED_TOKENS_MAX, REFUSED_TOKENS_WINDOW,
};
use introspection::{TokenHash, TokenIntrospector};
use issuer::ValidClaims;
pub use issuer::{
    INTROSPECTION_AGE_DEFAULT, INTROSPECTION_TIMEOUT, IntrospectionLimits,
    REFUSED_INTROSPECTION_AGE_DEFAULT, TokenIntrospection, TokenIssuer,
};
use issuer_keys::IssuerKeys;
pub use issuer_keys::{IssuerKeyTimes, IssuerRegistry, KeySource};
pub use jwk::{ISSUER_DOCUMENT_BYTES_MAX, ISSUER_KEYS_MAX, JwsAlgorithm, TOKEN_KEYS_TRIED_MAX};

/// Maximum number of verified tokens that a listener remembers, so that a token's signature is
/// verified once.
/// At the limit: all are forgotten.
pub const VERIFIED_TOKENS_MAX: usize = 4_096;

/// Verifier of access tokens of several issuers.
#[derive(Debug)]
pub struct TokenVerifier {
    issuers: Vec<AcceptedIssuer>,
    resource: TokenResource,
    #[debug(skip)]
    verified: Mutex<HashMap<TokenHash, VerifiedToken>>,
    /// `None` if no issuer has an introspection endpoint.
    introspector: Option<Arc<TokenIntrospector>>,
}

#[derive(Debug)]
struct AcceptedIssuer {
    settings: Arc<TokenIssuer>,
    /// `None` if its tokens are introspected.
    keys: Option<Arc<IssuerKeys>>,
}

/// A token whose signature and claims are right.
#[derive(Clone)]
struct VerifiedToken {
    /// Keys by which it was verified.
    keys: Arc<IssuerKeys>,
    /// Version of the keys.
    key_version: u64,
    claims: ValidClaims,
}

/// Way to verify a token.
enum VerificationRoute<'a> {
    /// By the keys of the issuer that it names.
    Keys {
        token: Box<UnverifiedToken<'a>>,
        issuer: &'a TokenIssuer,
        keys: &'a Arc<IssuerKeys>,
    },
    /// By introspection at the issuer that it names; `None` for a token that names none.
    Introspection(&'a Arc<TokenIntrospector>, Option<&'a str>),
}

impl TokenVerifier {
    /// Creates a verifier of the tokens of `issuers`, whose keys are in `registry`. `origin` is that
    /// of [`TokenResource`]. Nothing is fetched before the first token.
    pub fn new(
        issuers: Vec<TokenIssuer>,
        origin: Option<url::Url>,
        registry: &IssuerRegistry,
    ) -> Self {
        let resource = TokenResource {
            origin,
            issuers: issuers.iter().map(|issuer| issuer.issuer.clone()).collect(),
            scopes: all_scopes(&issuers),
            ..TokenResource::default()
        };
        let issuers = issuers.into_iter().map(|settings| {
            let at = |keys| registry.keys(keys, &settings.networks, settings.ca.as_deref());
            AcceptedIssuer {
                keys: settings.keys.as_ref().map(at),
                settings: Arc::new(settings),
            }
        });
        let issuers: Vec<_> = issuers.collect();
        let introspector = TokenIntrospector::new(issuers.iter().map(|issuer| &issuer.settings));
        Self {
            issuers,
            resource,
            verified: Mutex::default(),
            introspector: introspector.map(Arc::new),
        }
    }

    /// Sets the scopes of what the listener serves, which clients are told besides those that each
    /// token must have: [`TokenResource::served_scopes`] and [`TokenResource::optional_scopes`].
    pub fn with_served_scopes(mut self, served: Vec<String>, optional: Vec<String>) -> Self {
        self.resource.served_scopes = served;
        self.resource.optional_scopes = optional;
        self
    }

    /// Returns what clients are told of the tokens.
    pub fn resource(&self) -> &TokenResource {
        &self.resource
    }

    /// Returns the number of verified and introspected tokens that are remembered.
    pub fn remembered_tokens(&self) -> usize {
        let introspector = self.introspector.as_ref();
        let introspected = introspector.map_or(0, |introspector| introspector.remembered_tokens());
        self.verified.lock().len() + introspected
    }

    /// Whether a bearer token may be an access token.
    fn is_access_token(&self, token: &[u8]) -> bool {
        match self.introspector {
            // An API key is nobody else's business.
            Some(_) => !token.starts_with(KEY_PREFIX.as_bytes()),
            None => claims::is_signed_token(token),
        }
    }

    /// Returns the way to verify a token.
    fn route<'a>(&'a self, token: &'a [u8]) -> Result<VerificationRoute<'a>, TokenError> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(TokenError::Malformed);
        }
        let introspector = match &self.introspector {
            Some(introspector) if !claims::has_header(token) => {
                return Ok(VerificationRoute::Introspection(introspector, None));
            }
            introspector => introspector.as_ref(),
        };
        let token = UnverifiedToken::parse(token)?;
        let named = token.claims.text("iss");
        let Some(named) = named else {
            let introspector = introspector.ok_or(TokenError::Issuer)?;
            return Ok(VerificationRoute::Introspection(introspector, None));
        };
        let mut issuers = self.issuers.iter();
        let issuer = issuers
            .find(|issuer| issuer.settings.issuer == named)
            .ok_or(TokenError::Issuer)?;
        match (&issuer.keys, introspector) {
            (Some(keys), _) => Ok(VerificationRoute::Keys {
                token: Box::new(token),
                issuer: &issuer.settings,
                keys,
            }),
            (None, Some(introspector)) => {
                let named = Some(issuer.settings.issuer.as_str());
                Ok(VerificationRoute::Introspection(introspector, named))
            }
            (None, None) => Err(TokenError::Issuer),
        }
    }

    /// Verifies a token. `now` is in seconds since the Unix epoch.
    fn verify_at(&self, token: &[u8], now: f64) -> Result<Principal, TokenError> {
        let hash: TokenHash = Sha256::digest(token).into();
        if let Some(verified) = self.remembered(&hash, now) {
            return verified;
        }
        let (token, issuer, keys) = match self.route(token)? {
            VerificationRoute::Introspection(introspector, _) => {
                return Err(introspector.unknown(&hash, now));
            }
            VerificationRoute::Keys {
                token,
                issuer,
                keys,
            } => (token, issuer, keys),
        };
        let verified = verify_signed(&token, issuer, keys, now)?;
        let principal = verified.claims.principal.clone();
        let mut all = self.verified.lock();
        if all.len() >= VERIFIED_TOKENS_MAX {
            all.clear();
        }
        all.insert(hash, verified);
        principal
    }

    /// Returns the result for a token that was verified before; `None` if it must be verified again.
    fn remembered(&self, hash: &TokenHash, now: f64) -> Option<Result<Principal, TokenError>> {
        let known = self.verified.lock().get(hash).cloned();
        let Some(known) = known else {
            return self.introspector.as_ref()?.fresh(hash);
        };
        if known.claims.expires <= now {
            return Some(Err(TokenError::Expired));
        }
        match known.keys.current() {
            None => Some(Err(TokenError::Unavailable)),
            Some(keys) if keys.version == known.key_version => Some(known.claims.principal),
            // Its key may be gone.
            Some(_) => None,
        }
    }

    /// Waits for the key that a token names, if it is an issuer's and not known yet, or for the
    /// introspection of the token.
    async fn wait_for_issuer(&self, token: &[u8], peer: Option<IpAddr>) {
        let hash: TokenHash = Sha256::digest(token).into();
        match self.remembered(&hash, 0.0) {
            None | Some(Err(TokenError::Unavailable)) => {}
            Some(_) => return,
        }
        match self.route(token) {
            Err(_) => {}
            Ok(VerificationRoute::Introspection(introspector, only)) => {
                introspector.introspect(hash, token, only, peer).await;
            }
            Ok(VerificationRoute::Keys {
                token,
                issuer,
                keys,
            }) => {
                if let Ok(algorithm) = token.allowed_algorithm(&issuer.algorithms) {
                    keys.wait_for_key(token.key_id.as_deref(), algorithm).await;
                }
            }
        }
    }
}

/// Verifies a token by the keys of its issuer. `now` is in seconds since the Unix epoch.
fn verify_signed(
    token: &UnverifiedToken<'_>,
    issuer: &TokenIssuer,
    keys: &Arc<IssuerKeys>,
    now: f64,
) -> Result<VerifiedToken, TokenError> {
    let algorithm = token.allowed_algorithm(&issuer.algorithms)?;
    let current = keys.current().ok_or(TokenError::Unavailable)?;
    let key_id = token.key_id.as_deref();
    let (message, signature) = (token.message, &token.signature);
    if !current.keys.verify(key_id, algorithm, message, signature) {
        return Err(TokenError::Signature);
    }
    Ok(VerifiedToken {
        keys: keys.clone(),
        key_version: current.version,
        claims: issuer.judge(&token.claims, now)?,
    })
}

impl BearerVerifier for Arc<TokenVerifier> {
    fn verify(&self, token: &[u8]) -> Option<Result<Principal, CredentialError>> {
        if !self.is_access_token(token) {
            return None;
        }
        let verified = self.verify_at(token, claims::unix_time());
        Some(verified.map_err(|error| {
            callboard_message::log::debug!(%error, "refused an access token");
            match error {
                TokenError::Scope => CredentialError::InsufficientScope,
                TokenError::Unavailable | TokenError::NotIntrospected => {
                    CredentialError::Unavailable
                }
                _ => CredentialError::Wrong,
            }
        }))
    }

    fn prepare<'a>(
        &'a self,
        token: &'a [u8],
        peer: Option<IpAddr>,
    ) -> Option<CredentialFuture<'a>> {
        self.is_access_token(token)
            .then(|| Box::pin(self.wait_for_issuer(token, peer)) as CredentialFuture<'a>)
    }

    fn token_resource(&self) -> Option<&TokenResource> {
        Some(&self.resource)
    }
}

/// Returns the scopes that tokens of any issuer must have, each once.
fn all_scopes(issuers: &[TokenIssuer]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for scope in issuers.iter().flat_map(|issuer| &issuer.scopes_required) {
        if !all.contains(scope) {
            all.push(scope.clone());
        }
    }
    all
}
