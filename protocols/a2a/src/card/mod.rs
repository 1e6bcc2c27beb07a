//! Signatures of agent cards, and the keys for them.

mod canonical;
mod keys;
mod signature;

pub use keys::{JWKS_BYTES_MAX, JWKS_KEYS_MAX, Jwks, JwksError, SigningKey};
pub use signature::{
    FetchError, SIGNATURE_HEADER_BYTES_MAX, SIGNATURES_MAX, SignedBy, VerifyError, fetch_jwks,
    sign, verify, verify_with,
};

/// The extension whose params are `{SKILL: {"input": JSON Schema, "output": JSON Schema}}`: what a skill takes as data, and
/// what it gives. Nobody has to know it.
pub const SCHEMAS_EXTENSION: &str = "urn:callboard:schemas";
/// The header that a key may stand in, beside `Authorization`.
pub const API_KEY_HEADER: &str = "X-API-Key";
/// The tag of a skill that may destroy something.
pub const TAG_DESTRUCTIVE: &str = "destructive";
