//! Signatures of agent cards, and the keys for them.

mod canonical;
mod keys;
mod signature;

pub(crate) use signature::sign_document;

pub use keys::{CardSigningKey, JWKS_BYTES_MAX, JWKS_KEYS_MAX, Jwks, JwksError};
pub use signature::{
    CardSigner, CardVerifyError, JwksFetchError, SIGNATURE_HEADER_BYTES_MAX, SIGNATURES_MAX,
    fetch_jwks, sign_card, verify_card, verify_card_with_jku,
};

/// URI of callboard's protocol extension for skill schemas. Its params are `{SKILL: {"input": JSON
/// Schema, "output": JSON Schema}}`: the data that a skill takes and returns. Clients may ignore
/// it.
pub const SCHEMAS_EXTENSION: &str = "urn:callboard:schemas";
/// Request header for an API key, as an alternative to `Authorization`.
pub const API_KEY_HEADER: &str = "X-API-Key";
/// Tag of skills that may destroy something.
pub const TAG_DESTRUCTIVE: &str = "destructive";
