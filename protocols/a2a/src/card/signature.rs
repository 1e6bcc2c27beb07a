//! Signing and verification of cards (specification 1.0, section 8.4).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use callboard_message::RawObject;
use callboard_rpc::{DecodeLimits, EgressError, EgressPolicy, KeyPairError};
use reqwest::redirect::Policy;
use serde_json::value::RawValue;
use url::Url;

use super::canonical::{CanonicalForm, CanonicalizeError, canonicalize};
use super::keys::{CardSigningKey, JWKS_BYTES_MAX, Jwks, JwksError};
use crate::wire::{AgentCard, AgentCardSignature, WireType};

/// Maximum number of signatures of a card that are checked.
/// At the limit: the others are ignored.
pub const SIGNATURES_MAX: usize = 8;
/// Maximum size of a signature's protected header, in bytes.
/// At the limit: `Unsupported`.
pub const SIGNATURE_HEADER_BYTES_MAX: usize = 4 * 1024;
/// Timeout for fetching the key set that a card names.
const JWKS_TIMEOUT: Duration = Duration::from_secs(10);

/// The verified signature of a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardSigner {
    /// Id of the key, as the signature's header states it.
    pub key_id: Option<String>,
    /// Signature algorithm, for example `ES256`.
    pub algorithm: String,
}

/// Reason why a card isn't trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CardVerifyError {
    /// The card has no signatures. Remedy: ask the agent's operator to sign it.
    #[error("the card is not signed: ask the agent's operator to sign it")]
    NotSigned,
    /// No trusted key matches. Remedy: add the signer's key to the trusted ones.
    #[error("no signature of the card is by a trusted key: add the signer's key if you trust it")]
    UnknownKey,
    /// The card or its signature was altered after signing. Remedy: don't use the card.
    #[error("the card's signature is invalid: the card was changed after signing, don't use it")]
    InvalidSignature,
    /// The signature has expired or isn't valid yet. Remedy: fetch the card again.
    #[error("the card's signature has expired or isn't valid yet: fetch the card again")]
    Expired,
    /// The signature is malformed or of an unsupported kind. `none` and shared secrets are never
    /// accepted.
    #[error(
        "the card's signature is malformed or of an unsupported kind: have it signed by ES256, EdDSA or RS256"
    )]
    Unsupported,
}

/// Verifies that one of `keys` signed a card; one valid signature is enough.
///
/// The signature covers the 1.0 card only: members of older versions aren't covered and must not be
/// used. A signature by the Python SDK doesn't cover empty values, so removing a security
/// requirement without scopes from the card leaves it valid.
///
/// # Errors
/// If no signature is valid, the [`CardVerifyError`] that is the most specific of all signatures.
pub fn verify_card(card: &AgentCard, keys: &Jwks) -> Result<CardSigner, CardVerifyError> {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    verify_card_at(card, keys, since.as_secs_f64())
}

/// Verifies a card like [`verify_card`], also against key sets that its signatures name (`jku`). A
/// key set is used only if its host is one of `hosts` and `egress` allows its address. Its keys are
/// trusted only for the signatures that named it.
///
/// # Errors
/// As [`verify_card`].
pub async fn verify_card_with_jku(
    card: &AgentCard,
    keys: &Jwks,
    hosts: &[String],
    egress: &EgressPolicy,
) -> Result<CardSigner, CardVerifyError> {
    let mut nearest = match verify_card(card, keys) {
        Ok(signed) => return Ok(signed),
        Err(error) => error,
    };
    // Several signatures may name the same key set.
    let mut by_place: Vec<(Url, Vec<AgentCardSignature>)> = Vec::new();
    for signature in card.signatures.iter().take(SIGNATURES_MAX) {
        let named = protected_header(signature)
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
        match verify_card(
            &AgentCard {
                signatures,
                ..card.clone()
            },
            &keys,
        ) {
            Ok(signed) => return Ok(signed),
            Err(error) => nearest = more_specific(nearest, error),
        }
    }
    Err(nearest)
}

/// Reason why a key set couldn't be fetched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JwksFetchError {
    /// The URL isn't allowed, see the inner error.
    #[error(transparent)]
    Egress(#[from] EgressError),
    /// The server didn't respond with a key set. Remedy: retry later.
    #[error("the key set could not be fetched: try again later")]
    Unavailable,
    /// The response isn't a valid key set, see the inner error.
    #[error(transparent)]
    Jwks(#[from] JwksError),
}

/// Fetches a key set without following redirects. The URL must be `https`, except on this machine.
///
/// # Errors
/// [`JwksFetchError`].
pub async fn fetch_jwks(url: &Url, egress: &EgressPolicy) -> Result<Jwks, JwksFetchError> {
    let egress = egress.clone().https_only();
    egress.check_url(url)?;
    let unavailable = |error: reqwest::Error| {
        EgressError::find_in_causes(&error)
            .map_or(JwksFetchError::Unavailable, JwksFetchError::Egress)
    };
    let client = egress
        .http_client_builder()
        .redirect(Policy::none())
        .timeout(JWKS_TIMEOUT)
        .build()
        .map_err(unavailable)?;
    let mut answer = client.get(url.clone()).send().await.map_err(unavailable)?;
    if answer.status() != 200 {
        return Err(JwksFetchError::Unavailable);
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

fn verify_card_at(card: &AgentCard, keys: &Jwks, now: f64) -> Result<CardSigner, CardVerifyError> {
    if card.signatures.is_empty() {
        return Err(CardVerifyError::NotSigned);
    }
    let payloads = CanonicalForm::ALL.map(|form| signing_payload(card, form));
    let payloads = payloads
        .into_iter()
        .collect::<Result<Vec<_>, CanonicalizeError>>();
    let payloads = payloads.map_err(|_| CardVerifyError::Unsupported)?;
    let mut nearest = CardVerifyError::Unsupported;
    for signature in card.signatures.iter().take(SIGNATURES_MAX) {
        match verify_one(signature, &payloads, keys, now) {
            Ok(signed) => return Ok(signed),
            Err(error) => nearest = more_specific(nearest, error),
        }
    }
    Err(nearest)
}

/// Returns the more specific of two reasons why a card isn't trusted.
fn more_specific(one: CardVerifyError, other: CardVerifyError) -> CardVerifyError {
    let rank = |error| match error {
        CardVerifyError::NotSigned => 0,
        CardVerifyError::Unsupported => 1,
        CardVerifyError::UnknownKey => 2,
        CardVerifyError::Expired => 3,
        CardVerifyError::InvalidSignature => 4,
    };
    if rank(other) > rank(one) { other } else { one }
}

fn verify_one(
    signature: &AgentCardSignature,
    payloads: &[String],
    keys: &Jwks,
    now: f64,
) -> Result<CardSigner, CardVerifyError> {
    let header = protected_header(signature)?;
    let algorithm = header.text("alg").ok_or(CardVerifyError::Unsupported)?;
    // Reject critical headers, because none are supported (RFC 7515, section 4.1.11); `b64`, which
    // would change the payload; and callboard's signatures over another form, which are for other
    // clients.
    if header.has("crit") || header.has("b64") || header.has(FORM_HEADER) {
        return Err(CardVerifyError::Unsupported);
    }
    let time = |name: &str| match header.get(name) {
        Some(_) => header
            .read::<f64>(name)
            .map(Some)
            .ok_or(CardVerifyError::Unsupported),
        None => Ok(None),
    };
    if time("exp")?.is_some_and(|until| until <= now) || time("nbf")?.is_some_and(|from| from > now)
    {
        return Err(CardVerifyError::Expired);
    }
    let made = URL_SAFE_NO_PAD.decode(signature.signature.trim_end_matches('='));
    let made = made.map_err(|_| CardVerifyError::Unsupported)?;
    let key_id = header.text("kid");
    let mut is_known = false;
    for key in keys.matching_keys(key_id.as_deref(), now) {
        is_known = true;
        for payload in payloads {
            let message = format!("{}.{payload}", signature.protected);
            if key.verify_signature(&algorithm, message.as_bytes(), &made) {
                return Ok(CardSigner {
                    key_id: key_id.clone(),
                    algorithm,
                });
            }
        }
    }
    match (is_known, matches!(&*algorithm, "ES256" | "EdDSA" | "RS256")) {
        (_, false) => Err(CardVerifyError::Unsupported),
        (true, true) => Err(CardVerifyError::InvalidSignature),
        (false, true) => Err(CardVerifyError::UnknownKey),
    }
}

/// Returns the protected header of a signature. The unprotected `header` is ignored, because
/// anybody can alter it.
fn protected_header(signature: &AgentCardSignature) -> Result<RawObject, CardVerifyError> {
    let decoded = URL_SAFE_NO_PAD.decode(signature.protected.trim_end_matches('='));
    let decoded = decoded.map_err(|_| CardVerifyError::Unsupported)?;
    let limits = DecodeLimits {
        body_bytes_max: SIGNATURE_HEADER_BYTES_MAX,
        ..DecodeLimits::default()
    };
    let text =
        callboard_rpc::check_json(&decoded, &limits).map_err(|_| CardVerifyError::Unsupported)?;
    serde_json::from_str(text).map_err(|_| CardVerifyError::Unsupported)
}

/// Returns the payload of a signature: the card without signatures in a canonical form, in
/// base64url.
fn signing_payload(card: &AgentCard, form: CanonicalForm) -> Result<String, CanonicalizeError> {
    let unsigned = AgentCard {
        signatures: Vec::new(),
        ..card.clone()
    };
    canonicalize(&unsigned.to_raw(), form).map(|text| URL_SAFE_NO_PAD.encode(text))
}

/// Member of the protected header that names the canonical form of an additional signature, if it
/// isn't the specification's. The form serves clients that verify no other one. It doesn't cover
/// empty values, so callboard itself rejects signatures with this member.
const FORM_HEADER: &str = "callboard/form";

/// Signs a card and replaces its signatures. `jku` is the URL of the key set with the public key.
///
/// The first signature covers the canonical form of the specification. The Python SDK (at least
/// 1.3) verifies a form of its own. If the two forms of the card differ, a second signature covers
/// the SDK's form, so that the SDK's users can verify the card too.
///
/// # Errors
/// [`KeyPairError`] if signing fails or the card is nested too deeply.
pub fn sign_card(
    card: &mut AgentCard,
    key: &CardSigningKey,
    jku: Option<&Url>,
) -> Result<(), KeyPairError> {
    let header = signature_header(key, jku);
    let payload = |form| signing_payload(card, form).map_err(|_| KeyPairError);
    let (own, pythons) = (
        payload(CanonicalForm::Jcs)?,
        payload(CanonicalForm::PythonSdk)?,
    );
    let mut signatures = vec![sign_payload(key, &header, &own)?];
    if pythons != own {
        let header = header.with(FORM_HEADER, "a2a-python");
        signatures.push(sign_payload(key, &header, &pythons)?);
    }
    card.signatures = signatures;
    Ok(())
}

/// Member of a card with its signatures.
const SIGNATURES_MEMBER: &str = "signatures";

/// Adds a signature to a card that is served with members of several versions. It covers the
/// canonical form of the JSON as it is, without `signatures`, and comes first. The card's other
/// signatures cover only the members of 1.0, so that readers of 1.0 can verify them.
///
/// # Errors
/// As [`sign_card`].
pub(crate) fn sign_document(
    document: &RawValue,
    key: &CardSigningKey,
    jku: Option<&Url>,
) -> Result<Box<RawValue>, KeyPairError> {
    let mut object = RawObject::parse(document).map_err(|_| KeyPairError)?;
    let others: Vec<RawObject> = object.read(SIGNATURES_MEMBER).unwrap_or_default();
    object.remove(SIGNATURES_MEMBER);
    let payload = canonicalize(&object.to_raw(), CanonicalForm::Jcs).map_err(|_| KeyPairError)?;
    let payload = URL_SAFE_NO_PAD.encode(payload);
    let own = sign_payload(key, &signature_header(key, jku), &payload)?.to_raw();
    let own = RawObject::parse(&own).map_err(|_| KeyPairError)?;
    let signatures: Vec<_> = [own].into_iter().chain(others).collect();
    Ok(object.with(SIGNATURES_MEMBER, signatures).to_raw())
}

fn signature_header(key: &CardSigningKey, jku: Option<&Url>) -> RawObject {
    let mut header = RawObject::single("alg", key.algorithm())
        .with("kid", key.id())
        .with("typ", "JOSE");
    header.set_some("jku", &jku.map(Url::as_str));
    header
}

/// Signs a payload, which is in base64url.
fn sign_payload(
    key: &CardSigningKey,
    header: &RawObject,
    payload: &str,
) -> Result<AgentCardSignature, KeyPairError> {
    let protected = URL_SAFE_NO_PAD.encode(header.to_raw().get());
    let signature = key.sign(format!("{protected}.{payload}").as_bytes())?;
    Ok(AgentCardSignature {
        protected,
        signature: URL_SAFE_NO_PAD.encode(signature),
        header: None,
    })
}
