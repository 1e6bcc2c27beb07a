//! Signatures of cards: made and verified (specification 1.0, section 8.4).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use callboard_message::RawObject;
use callboard_rpc::{Egress, EgressError, KeyPairError, Limits};
use reqwest::redirect::Policy;
use url::Url;

use super::canonical::{Form, NotCanonical, canonical};
use super::keys::{JWKS_BYTES_MAX, Jwks, JwksError, SigningKey};
use crate::wire::{AgentCard, AgentCardSignature, Wire};

/// Most signatures of a card that are looked at.
/// At the limit: the others aren't.
pub const SIGNATURES_MAX: usize = 8;
/// Largest header of a signature, in bytes.
/// At the limit: `Unsupported`.
pub const SIGNATURE_HEADER_BYTES_MAX: usize = 4 * 1024;
/// How long the key set that a card names may take to arrive.
const JWKS_TIMEOUT: Duration = Duration::from_secs(10);

/// Who signed a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedBy {
    /// The key's id, as the signature names it.
    pub key_id: Option<String>,
    /// For example `ES256`.
    pub algorithm: String,
}

/// Why a card isn't trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// Ask whoever runs the agent to sign its card.
    #[error("the card is not signed")]
    NotSigned,
    /// Take the signer's key into the trusted ones, if it is meant.
    #[error("no signature of the card is by a trusted key")]
    UnknownKey,
    /// The card was altered after it was signed, or the signature was: don't use it.
    #[error("the card's signature is wrong")]
    Wrong,
    /// Get the card again: the signature counts no more, or not yet.
    #[error("the card's signature has expired, or does not count yet")]
    Expired,
    /// Nothing here verifies such signatures: `none` and shared secrets never count.
    #[error("the card's signature is malformed, or of a kind that does not count")]
    Unsupported,
}

/// Verifies a card that one of `keys` signed: one good signature is enough. It is read as a 1.0 card, so members of older
/// versions beside it are not covered, and not to be used. Of a card that the Python SDK signed, what is empty isn't covered
/// either: a security requirement without scopes could be taken away unseen.
///
/// # Errors
/// [`VerifyError`]: that of the signature that came nearest.
pub fn verify(card: &AgentCard, keys: &Jwks) -> Result<SignedBy, VerifyError> {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    verify_at(card, keys, since.as_secs_f64())
}

/// The same with key sets that signatures name (`jku`), where their host is one of `hosts` and their place one that `egress`
/// allows. Their keys count as trusted for the signature that named them.
///
/// # Errors
/// As [`verify`].
pub async fn verify_with(
    card: &AgentCard,
    keys: &Jwks,
    hosts: &[String],
    egress: &Egress,
) -> Result<SignedBy, VerifyError> {
    let mut nearest = match verify(card, keys) {
        Ok(signed) => return Ok(signed),
        Err(error) => error,
    };
    // Several signatures may name one place.
    let mut by_place: Vec<(Url, Vec<AgentCardSignature>)> = Vec::new();
    for signature in card.signatures.iter().take(SIGNATURES_MAX) {
        let named = header_of(signature)
            .ok()
            .and_then(|header| header.text("jku"));
        let place = named.and_then(|url| Url::parse(&url).ok());
        let is_trusted = |host: &str| {
            hosts
                .iter()
                .any(|trusted| trusted.eq_ignore_ascii_case(host))
        };
        let Some(place) = place.filter(|url| url.host_str().is_some_and(is_trusted)) else {
            continue;
        };
        match by_place.iter_mut().find(|(known, _)| *known == place) {
            Some((_, signatures)) => signatures.push(signature.clone()),
            None => by_place.push((place, vec![signature.clone()])),
        }
    }
    for (place, signatures) in by_place {
        let Ok(keys) = fetch_jwks(&place, egress).await else {
            continue;
        };
        match verify(
            &AgentCard {
                signatures,
                ..card.clone()
            },
            &keys,
        ) {
            Ok(signed) => return Ok(signed),
            Err(error) => nearest = nearer(nearest, error),
        }
    }
    Err(nearest)
}

/// Why a key set wasn't had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// See what it says.
    #[error(transparent)]
    Egress(#[from] EgressError),
    /// Its server doesn't answer, or answers otherwise than with a key set: try again later.
    #[error("the key set could not be fetched")]
    Unavailable,
    /// See what it says.
    #[error(transparent)]
    Jwks(#[from] JwksError),
}

/// Fetches a key set, over `https` but on this machine, without redirects.
///
/// # Errors
/// [`FetchError`].
pub async fn fetch_jwks(url: &Url, egress: &Egress) -> Result<Jwks, FetchError> {
    let egress = egress.clone().https_only();
    egress.check(url)?;
    let unavailable = |error: reqwest::Error| {
        EgressError::among_causes(&error).map_or(FetchError::Unavailable, FetchError::Egress)
    };
    let client = egress
        .client_builder()
        .redirect(Policy::none())
        .timeout(JWKS_TIMEOUT)
        .build()
        .map_err(unavailable)?;
    let mut answer = client.get(url.clone()).send().await.map_err(unavailable)?;
    if answer.status() != 200 {
        return Err(FetchError::Unavailable);
    }
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(unavailable)? {
        if body.len() + chunk.len() > JWKS_BYTES_MAX {
            return Err(JwksError.into());
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Jwks::parse(&body)?)
}

fn verify_at(card: &AgentCard, keys: &Jwks, now: f64) -> Result<SignedBy, VerifyError> {
    if card.signatures.is_empty() {
        return Err(VerifyError::NotSigned);
    }
    let payloads = Form::ALL.map(|form| payload(card, form));
    let payloads = payloads
        .into_iter()
        .collect::<Result<Vec<_>, NotCanonical>>();
    let payloads = payloads.map_err(|_| VerifyError::Unsupported)?;
    let mut nearest = VerifyError::Unsupported;
    for signature in card.signatures.iter().take(SIGNATURES_MAX) {
        match verify_one(signature, &payloads, keys, now) {
            Ok(signed) => return Ok(signed),
            Err(error) => nearest = nearer(nearest, error),
        }
    }
    Err(nearest)
}

/// The one that tells more.
fn nearer(one: VerifyError, other: VerifyError) -> VerifyError {
    let rank = |error| match error {
        VerifyError::NotSigned => 0,
        VerifyError::Unsupported => 1,
        VerifyError::UnknownKey => 2,
        VerifyError::Expired => 3,
        VerifyError::Wrong => 4,
    };
    if rank(other) > rank(one) { other } else { one }
}

fn verify_one(
    signature: &AgentCardSignature,
    payloads: &[String],
    keys: &Jwks,
    now: f64,
) -> Result<SignedBy, VerifyError> {
    let header = header_of(signature)?;
    let algorithm = header.text("alg").ok_or(VerifyError::Unsupported)?;
    // What must be understood isn't (RFC 7515, section 4.1.11); `b64` would make the payload another; and what is marked was
    // made for others.
    if header.has("crit") || header.has("b64") || header.has(FORM) {
        return Err(VerifyError::Unsupported);
    }
    let time = |name: &str| match header.get(name) {
        Some(_) => header
            .read::<f64>(name)
            .map(Some)
            .ok_or(VerifyError::Unsupported),
        None => Ok(None),
    };
    if time("exp")?.is_some_and(|until| until <= now) || time("nbf")?.is_some_and(|from| from > now)
    {
        return Err(VerifyError::Expired);
    }
    let made = URL_SAFE_NO_PAD.decode(signature.signature.trim_end_matches('='));
    let made = made.map_err(|_| VerifyError::Unsupported)?;
    let key_id = header.text("kid");
    let mut is_known = false;
    for key in keys.fitting(key_id.as_deref(), now) {
        is_known = true;
        for payload in payloads {
            let message = format!("{}.{payload}", signature.protected);
            if key.verifies(&algorithm, message.as_bytes(), &made) {
                return Ok(SignedBy {
                    key_id: key_id.clone(),
                    algorithm,
                });
            }
        }
    }
    match (is_known, matches!(&*algorithm, "ES256" | "EdDSA" | "RS256")) {
        (_, false) => Err(VerifyError::Unsupported),
        (true, true) => Err(VerifyError::Wrong),
        (false, true) => Err(VerifyError::UnknownKey),
    }
}

/// The part of a signature that it covers itself. What is beside it (`header`) counts for nothing: anybody can alter it.
fn header_of(signature: &AgentCardSignature) -> Result<RawObject, VerifyError> {
    let decoded = URL_SAFE_NO_PAD.decode(signature.protected.trim_end_matches('='));
    let decoded = decoded.map_err(|_| VerifyError::Unsupported)?;
    let limits = Limits {
        body_bytes_max: SIGNATURE_HEADER_BYTES_MAX,
        ..Limits::default()
    };
    let text = callboard_rpc::check(&decoded, &limits).map_err(|_| VerifyError::Unsupported)?;
    serde_json::from_str(text).map_err(|_| VerifyError::Unsupported)
}

/// What a signature is over: the card in a form, without signatures.
fn payload(card: &AgentCard, form: Form) -> Result<String, NotCanonical> {
    let unsigned = AgentCard {
        signatures: Vec::new(),
        ..card.clone()
    };
    canonical(&unsigned.to_raw(), form).map(|text| URL_SAFE_NO_PAD.encode(text))
}

/// Marks a signature over another form than the specification's, made for those who know no other. It doesn't cover what
/// is empty there, so nobody who knows better takes it.
const FORM: &str = "callboard/form";

/// Signs a card in the place of the signatures that it has. `jku` is where the key's set can be had.
///
/// The signature is over the specification's form. The Python SDK takes another (its 1.3 at least); where that differs, a
/// second signature is over it, so that its users can verify the card too.
///
/// # Errors
/// [`KeyPairError`] where the system gives no random numbers, or the card is nested too deeply.
pub fn sign(card: &mut AgentCard, key: &SigningKey, jku: Option<&Url>) -> Result<(), KeyPairError> {
    let header = RawObject::of("alg", key.algorithm())
        .with("kid", key.id())
        .with("typ", "JOSE");
    let header = match jku {
        Some(jku) => header.with("jku", jku.as_str()),
        None => header,
    };
    let signed = |header: &RawObject, payload: &str| {
        let protected = URL_SAFE_NO_PAD.encode(header.to_raw().get());
        let signature = key.sign(format!("{protected}.{payload}").as_bytes())?;
        let signature = URL_SAFE_NO_PAD.encode(signature);
        Ok(AgentCardSignature {
            protected,
            signature,
            header: None,
        })
    };
    let payload = |form| payload(card, form).map_err(|_| KeyPairError);
    let (own, pythons) = (payload(Form::Jcs)?, payload(Form::Lean)?);
    let mut signatures = vec![signed(&header, &own)?];
    if pythons != own {
        signatures.push(signed(&header.with(FORM, "a2a-python"), &pythons)?);
    }
    card.signatures = signatures;
    Ok(())
}
