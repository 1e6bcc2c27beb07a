//! Introspection of tokens at their issuers (RFC 7662), with the answers that are remembered.
//!
//! Tokens are remembered by their hash. One request is sent for a token at a time, whatever the
//! number of requests that wait for its answer.

mod endpoint;
mod quota;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use callboard_message::Principal;
use derive_more::Debug;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::claims::{TOKEN_CLOCK_LEEWAY_S, TokenError, unix_time};
use super::issuer::{
    IntrospectionLimits, REFUSED_INTROSPECTION_AGE_DEFAULT, TokenIssuer, ValidClaims,
};
pub use endpoint::INTROSPECTION_BYTES_MAX;
use endpoint::IntrospectionEndpoint;
pub use quota::{
    ADDRESS_INTROSPECTIONS_MAX, ADDRESS_REFUSED_TOKENS_MAX, INTROSPECTIONS_MAX,
    NEW_INTROSPECTIONS_MAX, REFUSED_TOKENS_MAX, REFUSED_TOKENS_WINDOW,
};
use quota::{IntrospectionPurpose, IntrospectionQuota};

/// Maximum number of issuers that are asked about one token, one after the other. The issuers of a
/// listener beyond it aren't asked; a topology with more is refused.
pub const INTROSPECTING_ISSUERS_MAX: usize = 4;
/// Maximum number of introspected tokens that a listener remembers, accepted and refused ones each.
/// At the limit: those whose answers are too old are forgotten; if there are none, the one whose answer
/// will be too old first.
pub const INTROSPECTED_TOKENS_MAX: usize = 4_096;

/// SHA-256 hash of a token.
pub(super) type TokenHash = [u8; 32];

/// Introspection of the tokens of a listener.
#[derive(Debug)]
pub(super) struct TokenIntrospector {
    endpoints: Vec<IntrospectionEndpoint>,
    #[debug(skip)]
    state: Mutex<IntrospectorState>,
}

#[derive(Default)]
struct IntrospectorState {
    /// Tokens that were active and for this listener. An answer that is too old still shows that
    /// the token isn't a guess.
    active: TokenMemory,
    /// Tokens that weren't.
    refused: TokenMemory,
    /// Introspections in progress, each with the announcement of its end.
    running: HashMap<TokenHash, watch::Receiver<()>>,
    quota: IntrospectionQuota,
}

/// Answers about tokens.
#[derive(Default)]
struct TokenMemory(HashMap<TokenHash, IntrospectedToken>);

/// Answer of an issuer about a token.
struct IntrospectedToken {
    claims: Result<ValidClaims, TokenError>,
    /// Number of the endpoint that knows the token.
    endpoint: Option<usize>,
    /// Time at which it is too old.
    until: Instant,
}

impl TokenMemory {
    fn fresh(&self, hash: &TokenHash, now: Instant) -> Option<Result<Principal, TokenError>> {
        let token = self.0.get(hash).filter(|token| now < token.until)?;
        Some(match &token.claims {
            Ok(claims) => claims.principal.clone(),
            Err(error) => Err(*error),
        })
    }

    fn insert(&mut self, hash: TokenHash, token: IntrospectedToken, now: Instant) {
        if self.0.len() >= INTROSPECTED_TOKENS_MAX {
            self.0.retain(|_, token| now < token.until);
        }
        if self.0.len() >= INTROSPECTED_TOKENS_MAX {
            let first = self.0.iter().min_by_key(|(_, token)| token.until);
            if let Some(first) = first.map(|(hash, _)| *hash) {
                self.0.remove(&first);
            }
        }
        self.0.insert(hash, token);
    }
}

impl IntrospectorState {
    fn fresh(&self, hash: &TokenHash, now: Instant) -> Option<Result<Principal, TokenError>> {
        let active = self.active.fresh(hash, now);
        active.or_else(|| self.refused.fresh(hash, now))
    }

    /// Whether a token was active and has expired since. `now` is in seconds since the Unix epoch.
    fn has_expired(&self, hash: &TokenHash, now: f64) -> bool {
        let before = self.active.0.get(hash);
        let claims = before.and_then(|token| token.claims.as_ref().ok());
        claims.is_some_and(|claims| claims.expires <= now)
    }

    fn record(&mut self, hash: TokenHash, token: IntrospectedToken, now: Instant) {
        if token.claims.is_ok() {
            self.refused.0.remove(&hash);
            self.active.insert(hash, token, now);
        } else {
            self.active.0.remove(&hash);
            self.refused.insert(hash, token, now);
        }
    }
}

impl TokenIntrospector {
    /// Creates the introspection of the tokens of `issuers`; `None` if none of them has an endpoint.
    pub(super) fn new<'a>(issuers: impl Iterator<Item = &'a Arc<TokenIssuer>>) -> Option<Self> {
        let endpoints: Vec<_> = issuers.filter_map(IntrospectionEndpoint::of).collect();
        (!endpoints.is_empty()).then(|| Self {
            endpoints,
            state: Mutex::default(),
        })
    }

    /// Returns the number of tokens that are remembered.
    pub(super) fn remembered_tokens(&self) -> usize {
        let state = self.state.lock();
        state.active.0.len() + state.refused.0.len()
    }

    /// Returns the answer about a token; `None` without one that is recent enough.
    pub(super) fn fresh(&self, hash: &TokenHash) -> Option<Result<Principal, TokenError>> {
        self.state.lock().fresh(hash, Instant::now())
    }

    /// Returns the error for a token without a recent answer. `now` is in seconds since the Unix epoch.
    pub(super) fn unknown(&self, hash: &TokenHash, now: f64) -> TokenError {
        match self.state.lock().has_expired(hash, now) {
            true => TokenError::Expired,
            false => TokenError::NotIntrospected,
        }
    }

    /// Waits until there is a recent answer about a token, or it couldn't be had. `only` is the
    /// issuer to ask; `None` for all, one after the other. `peer` is the address of the request.
    pub(super) async fn introspect(
        self: &Arc<Self>,
        hash: TokenHash,
        token: &[u8],
        only: Option<&str>,
        peer: Option<IpAddr>,
    ) {
        let (Ok(runtime), Ok(token)) = (Handle::try_current(), std::str::from_utf8(token)) else {
            return;
        };
        let Some((mut ended, begun)) = self.begin(hash, peer) else {
            return;
        };
        if let Some(running) = begun {
            let token = token.to_owned();
            let asked = match running.known_to {
                Some(known) => vec![known],
                None => self.endpoints_of(only),
            };
            // Beside the request: others wait for the answer too, and its client may go away.
            runtime.spawn(async move {
                // The whole of it, not its fields.
                let mut running = running;
                let this = running.introspector.clone();
                running.is_refused = this.ask(hash, &token, &asked).await;
            });
        }
        // The sender is dropped without a message.
        let _ = ended.changed().await;
    }

    /// Returns the announcement of the end of a token's introspection, and the introspection if the
    /// caller is to perform it. `None` if there is a recent answer, or the token can't be introspected
    /// now.
    fn begin(
        self: &Arc<Self>,
        hash: TokenHash,
        peer: Option<IpAddr>,
    ) -> Option<(watch::Receiver<()>, Option<RunningIntrospection>)> {
        let now = Instant::now();
        let mut state = self.state.lock();
        if state.fresh(&hash, now).is_some() {
            return None;
        }
        if let Some(ended) = state.running.get(&hash) {
            return Some((ended.clone(), None));
        }
        if state.has_expired(&hash, unix_time()) {
            return None;
        }
        let before = state.active.0.get(&hash);
        let purpose = match before {
            Some(_) => IntrospectionPurpose::Renewal,
            None => IntrospectionPurpose::New(peer),
        };
        let known_to = before.and_then(|token| token.endpoint);
        if !state.quota.try_begin(purpose, now) {
            let peer = peer.map(|peer| peer.to_string()).unwrap_or_default();
            callboard_message::log::warn!(by: &peer, peer, "too many tokens to introspect: refused a request with another");
            return None;
        }
        let (sender, ended) = watch::channel(());
        state.running.insert(hash, ended.clone());
        let running = RunningIntrospection {
            introspector: self.clone(),
            hash,
            purpose,
            known_to,
            is_refused: false,
            _ended: sender,
        };
        Some((ended, Some(running)))
    }

    /// Returns the numbers of the endpoints to ask about a token of the issuer `only`, or of any.
    fn endpoints_of(&self, only: Option<&str>) -> Vec<usize> {
        let is_asked = |number: &usize| {
            let issuer = &self.endpoints[*number].issuer.issuer;
            only.is_none_or(|only| issuer == only)
        };
        let asked = (0..self.endpoints.len()).filter(is_asked);
        asked.take(INTROSPECTING_ISSUERS_MAX).collect()
    }

    /// Asks endpoints about a token and remembers the answer. Returns whether the token isn't
    /// accepted, or none of them could tell.
    async fn ask(&self, hash: TokenHash, token: &str, asked: &[usize]) -> bool {
        let Some(answer) = self.ask_issuers(token, asked).await else {
            return true;
        };
        let is_refused = answer.claims.is_err();
        self.state.lock().record(hash, answer, Instant::now());
        is_refused
    }

    /// Returns the answer of the first issuer that knows the token, else the reason why it isn't
    /// accepted. `None` if no issuer knows it, and not all could be asked.
    async fn ask_issuers(&self, token: &str, asked: &[usize]) -> Option<IntrospectedToken> {
        let mut age = REFUSED_INTROSPECTION_AGE_DEFAULT;
        let (mut refusal, mut is_complete) = (TokenError::Inactive, true);
        // An answer is as old as the question: the issuer may have looked at once.
        let mut began = Instant::now();
        let until = |began: Instant, age| began.checked_add(age).unwrap_or(began);
        for number in asked {
            let endpoint = &self.endpoints[*number];
            began = Instant::now();
            let (issuer, limits) = (&endpoint.issuer, &endpoint.settings.limits);
            age = age.min(limits.refused_age_max);
            let told = match endpoint.introspect(token).await {
                Ok(Some(told)) => told,
                Ok(None) => continue,
                Err(error) => {
                    let issuer = &issuer.name;
                    callboard_message::log::warn!(by: issuer, issuer, %error, "failed to introspect a token");
                    is_complete = false;
                    continue;
                }
            };
            let now = unix_time();
            let claims = issuer.judge_introspected(&told, now);
            let age = match &claims {
                Ok(claims) => answer_age(claims, limits, now),
                // It may tell of tokens that others issued.
                Err(TokenError::Issuer) => {
                    refusal = TokenError::Issuer;
                    continue;
                }
                Err(_) => limits.refused_age_max,
            };
            return Some(IntrospectedToken {
                claims,
                endpoint: Some(*number),
                until: until(began, age),
            });
        }
        is_complete.then(|| IntrospectedToken {
            claims: Err(refusal),
            endpoint: None,
            until: until(began, age),
        })
    }
}

/// Returns the time for which the answer that a token is active counts: not past its expiry. If that
/// has passed already, by clocks that differ, the answer counts shortly. `now` is in seconds since
/// the Unix epoch.
fn answer_age(claims: &ValidClaims, limits: &IntrospectionLimits, now: f64) -> Duration {
    let expires = claims.expires - f64::from(TOKEN_CLOCK_LEEWAY_S);
    let (until, age_max) = match expires > now {
        true => (expires, limits.age_max),
        false => (claims.expires, limits.refused_age_max),
    };
    // A time that is too far away for a duration.
    Duration::try_from_secs_f64(until - now).map_or(age_max, |left| left.min(age_max))
}

/// An introspection in progress. Its end, also by an abort, is announced when it is dropped.
struct RunningIntrospection {
    introspector: Arc<TokenIntrospector>,
    hash: TokenHash,
    purpose: IntrospectionPurpose,
    /// Number of the endpoint that knew the token before, which alone is asked.
    known_to: Option<usize>,
    /// Whether the token isn't accepted, or no issuer could tell.
    is_refused: bool,
    _ended: watch::Sender<()>,
}

impl Drop for RunningIntrospection {
    fn drop(&mut self) {
        let mut state = self.introspector.state.lock();
        state.running.remove(&self.hash);
        state.quota.end(self.purpose, self.is_refused);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(until: Instant) -> IntrospectedToken {
        let claims = Err(TokenError::Inactive);
        IntrospectedToken {
            claims,
            endpoint: None,
            until,
        }
    }

    fn hash(number: usize) -> TokenHash {
        let mut hash = [0; 32];
        hash[..8].copy_from_slice(&number.to_le_bytes());
        hash
    }

    /// Goal: remembered tokens are bounded; at the limit the oldest answer is forgotten, whether it still
    /// counts or not. Method: the limit and one more, once with an answer that is too old and once without.
    #[test]
    fn remembered_tokens_are_bounded() {
        let now = Instant::now();
        let later = now + Duration::from_secs(2);
        for oldest in [now, now + Duration::from_secs(1)] {
            let mut memory = TokenMemory::default();
            memory.insert(hash(0), answer(oldest), now);
            for number in 1..INTROSPECTED_TOKENS_MAX {
                memory.insert(hash(number), answer(later), now);
            }
            assert_eq!(memory.0.len(), INTROSPECTED_TOKENS_MAX);
            memory.insert(hash(INTROSPECTED_TOKENS_MAX), answer(later), now);
            assert_eq!(memory.0.len(), INTROSPECTED_TOKENS_MAX);
            assert!(memory.fresh(&hash(INTROSPECTED_TOKENS_MAX), now).is_some());
            assert!(memory.fresh(&hash(0), now).is_none());
        }
    }

    /// Goal: an answer counts for its age, never past the token's expiry, and shortly if that has passed
    /// within the leeway. Method: rows of the time that is left.
    #[test]
    fn ages_of_answers() {
        let (limits, now) = (IntrospectionLimits::default(), 1_000_000.0);
        let leeway = f64::from(TOKEN_CLOCK_LEEWAY_S);
        let (age, short) = (limits.age_max, limits.refused_age_max);
        for (left, counts) in [
            (f64::MAX, age),
            (age.as_secs_f64() + 1.0, age),
            (10.0, Duration::from_secs(10)),
            (0.0, short),
            (-30.0, short),
            (-leeway + 1.0, Duration::from_secs(1)),
        ] {
            let claims = ValidClaims {
                expires: now + left + leeway,
                principal: Ok(Principal::anonymous()),
            };
            assert_eq!(answer_age(&claims, &limits, now), counts, "{left}");
        }
    }
}
