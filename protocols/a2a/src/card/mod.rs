//! Agent cards: made, served, signed, verified.

mod canonical;
mod keys;
mod serve;
mod signature;

pub(crate) use serve::{CardBody, Cards, catalog};

pub use keys::{JWKS_BYTES_MAX, JWKS_KEYS_MAX, Jwks, JwksError, SigningKey};
pub use serve::{API_KEY_HEADER, SCHEMAS_EXTENSION, TAG_DESTRUCTIVE};
pub use signature::{
    FetchError, SIGNATURE_HEADER_BYTES_MAX, SIGNATURES_MAX, SignedBy, VerifyError, fetch_jwks, sign, verify,
    verify_with,
};
