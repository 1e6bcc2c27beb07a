//! Access tokens of authorization servers: the OAuth 2.1 resource server's part (RFC 6750, RFC 8707,
//! RFC 9068, RFC 9728).
//!
//! A token is a signed JWT. Its issuer's public keys are fetched when they are needed; nothing that
//! a token names is ever fetched. A token is verified here and goes no further: it is neither logged
//! nor passed on.

mod claims;
mod issuer_keys;
mod jwk;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use callboard_message::Principal;
use derive_more::Debug;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use crate::credential::{BearerVerifier, CredentialError, CredentialFuture};
use crate::egress::IpNetwork;
use crate::token_resource::TokenResource;
pub use claims::{
    ClaimNames, ROLE_SCOPE_PREFIX, TENANT_SCOPE_PREFIX, TOKEN_BYTES_MAX, TOKEN_CLOCK_LEEWAY_S,
    TOKEN_PRINCIPAL_BYTES_MAX,
};
use claims::{TokenError, UnverifiedToken};
use issuer_keys::IssuerKeys;
pub use issuer_keys::{IssuerKeyTimes, IssuerRegistry, KeySource};
pub use jwk::{ISSUER_DOCUMENT_BYTES_MAX, ISSUER_KEYS_MAX, JwsAlgorithm, TOKEN_KEYS_TRIED_MAX};

/// Maximum number of verified tokens that a listener remembers, so that a token's signature is
/// verified once.
/// At the limit: all are forgotten.
pub const VERIFIED_TOKENS_MAX: usize = 4_096;

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
    /// Place of its keys.
    pub keys: KeySource,
    /// Networks in which its metadata and keys may be, in addition to the public internet.
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

/// Verifier of access tokens of several issuers.
#[derive(Debug)]
pub struct TokenVerifier {
    issuers: Vec<AcceptedIssuer>,
    resource: TokenResource,
    #[debug(skip)]
    verified: Mutex<HashMap<[u8; 32], VerifiedToken>>,
}

#[derive(Debug)]
struct AcceptedIssuer {
    settings: TokenIssuer,
    keys: Arc<IssuerKeys>,
}

/// A token whose signature and claims are right.
#[derive(Clone)]
struct VerifiedToken {
    /// Position of its issuer.
    issuer: usize,
    /// Version of the keys by which it was verified.
    key_version: u64,
    /// Expiry, with the leeway, in seconds since the Unix epoch.
    expires: f64,
    principal: Result<Principal, TokenError>,
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
        };
        let issuers = issuers.into_iter().map(|settings| AcceptedIssuer {
            keys: registry.keys(&settings.keys, &settings.networks, settings.ca.as_deref()),
            settings,
        });
        Self {
            issuers: issuers.collect(),
            resource,
            verified: Mutex::default(),
        }
    }

    /// Returns what clients are told of the tokens.
    pub fn resource(&self) -> &TokenResource {
        &self.resource
    }

    /// Returns the number of verified tokens that are remembered.
    pub fn remembered_tokens(&self) -> usize {
        self.verified.lock().len()
    }

    fn verify_at(&self, token: &[u8], now: f64) -> Result<Principal, TokenError> {
        let hash: [u8; 32] = Sha256::digest(token).into();
        if let Some(verified) = self.remembered(&hash, now) {
            return verified;
        }
        let verified = self.verify_signed(token, now)?;
        let principal = verified.principal.clone();
        let mut all = self.verified.lock();
        if all.len() >= VERIFIED_TOKENS_MAX {
            all.clear();
        }
        all.insert(hash, verified);
        principal
    }

    /// Returns the result for a token that was verified before; `None` if it must be verified again.
    fn remembered(&self, hash: &[u8; 32], now: f64) -> Option<Result<Principal, TokenError>> {
        let known = self.verified.lock().get(hash).cloned()?;
        if known.expires <= now {
            return Some(Err(TokenError::Expired));
        }
        match self.issuers.get(known.issuer)?.keys.current() {
            None => Some(Err(TokenError::Unavailable)),
            Some(keys) if keys.version == known.key_version => Some(known.principal),
            // Its key may be gone.
            Some(_) => None,
        }
    }

    fn verify_signed(&self, token: &[u8], now: f64) -> Result<VerifiedToken, TokenError> {
        let token = UnverifiedToken::parse(token)?;
        let (position, issuer) = self.issuer_of(&token)?;
        let settings = &issuer.settings;
        let algorithm = token.allowed_algorithm(&settings.algorithms)?;
        let keys = issuer.keys.current().ok_or(TokenError::Unavailable)?;
        let key_id = token.key_id.as_deref();
        if !keys
            .keys
            .verify(key_id, algorithm, token.message, &token.signature)
        {
            return Err(TokenError::Signature);
        }
        let expires = claims::check_times(&token.claims, now)?;
        claims::check_audience(&token.claims, &settings.audiences)?;
        let principal = claims::principal_of(&token.claims, &settings.name, &settings.claims)?;
        let has = |scope: &String| principal.scopes.contains(scope);
        let principal = match settings.scopes_required.iter().all(has) {
            true => Ok(principal),
            false => Err(TokenError::Scope),
        };
        Ok(VerifiedToken {
            issuer: position,
            key_version: keys.version,
            expires,
            principal,
        })
    }

    /// Returns the issuer that a token names, and its position.
    fn issuer_of(
        &self,
        token: &UnverifiedToken<'_>,
    ) -> Result<(usize, &AcceptedIssuer), TokenError> {
        let named = token.claims.text("iss").ok_or(TokenError::Issuer)?;
        let mut issuers = self.issuers.iter().enumerate();
        issuers
            .find(|(_, issuer)| issuer.settings.issuer == named)
            .ok_or(TokenError::Issuer)
    }

    /// Waits for the key that a token names, if it is an issuer's and not known yet.
    async fn wait_for_key(&self, token: &[u8]) {
        let hash: [u8; 32] = Sha256::digest(token).into();
        match self.remembered(&hash, 0.0) {
            None | Some(Err(TokenError::Unavailable)) => {}
            Some(_) => return,
        }
        let Ok(token) = UnverifiedToken::parse(token) else {
            return;
        };
        let Ok((_, issuer)) = self.issuer_of(&token) else {
            return;
        };
        let Ok(algorithm) = token.allowed_algorithm(&issuer.settings.algorithms) else {
            return;
        };
        let key_id = token.key_id.as_deref();
        issuer.keys.wait_for_key(key_id, algorithm).await;
    }
}

impl BearerVerifier for TokenVerifier {
    fn verify(&self, token: &[u8]) -> Option<Result<Principal, CredentialError>> {
        if !claims::is_signed_token(token) {
            return None;
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let verified = self.verify_at(token, since.unwrap_or_default().as_secs_f64());
        Some(verified.map_err(|error| {
            callboard_message::log::debug!(%error, "refused an access token");
            match error {
                TokenError::Scope => CredentialError::InsufficientScope,
                TokenError::Unavailable => CredentialError::Unavailable,
                _ => CredentialError::Wrong,
            }
        }))
    }

    fn prepare<'a>(&'a self, token: &'a [u8]) -> Option<CredentialFuture<'a>> {
        claims::is_signed_token(token)
            .then(|| Box::pin(self.wait_for_key(token)) as CredentialFuture<'a>)
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
