//! A card's signatures are made (specification 1.0, section 8.4).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use callboard_message::RawObject;
use callboard_rpc::KeyPairError;
use url::Url;

use super::canonical::{Form, NotCanonical, canonical};
use super::keys::SigningKey;
use crate::wire::{AgentCard, AgentCardSignature, Wire};

/// What a signature is over: the card in a form, without signatures.
pub(super) fn payload(card: &AgentCard, form: Form) -> Result<String, NotCanonical> {
    let unsigned = AgentCard { signatures: Vec::new(), ..card.clone() };
    canonical(&unsigned.to_raw(), form).map(|text| URL_SAFE_NO_PAD.encode(text))
}

/// Marks a signature over another form than the specification's, made for those who know no other. It doesn't cover what
/// is empty there, so nobody who knows better takes it.
pub(super) const FORM: &str = "callboard/form";

/// Signs a card in the place of the signatures that it has. `jku` is where the key's set can be had.
///
/// The signature is over the specification's form. The Python SDK takes another (its 1.3 at least); where that differs, a
/// second signature is over it, so that its users can verify the card too.
///
/// # Errors
/// [`KeyPairError`] where the system gives no random numbers, or the card is nested too deeply.
pub fn sign(card: &mut AgentCard, key: &SigningKey, jku: Option<&Url>) -> Result<(), KeyPairError> {
    let header = RawObject::new().with("alg", key.algorithm()).with("kid", key.id()).with("typ", "JOSE");
    let header = match jku {
        Some(jku) => header.with("jku", jku.as_str()),
        None => header,
    };
    let signed = |header: &RawObject, payload: &str| {
        let protected = URL_SAFE_NO_PAD.encode(header.to_raw().get());
        let signature = key.sign(format!("{protected}.{payload}").as_bytes())?;
        let signature = URL_SAFE_NO_PAD.encode(signature);
        Ok(AgentCardSignature { protected, signature, header: None })
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
