//! Agent cards: made, served, signed, verified.

mod build;
mod canonical;
mod catalog;
mod keys;
mod serve;
mod sign;
mod verify;

pub(crate) use catalog::catalog;
pub(crate) use serve::{CardBody, Cards};

pub use build::{API_KEY_HEADER, SCHEMAS_EXTENSION, TAG_DESTRUCTIVE};
pub use keys::{JWKS_BYTES_MAX, JWKS_KEYS_MAX, Jwks, JwksError, SigningKey};
pub use sign::sign;
pub use verify::{
    FetchError, SIGNATURE_HEADER_BYTES_MAX, SIGNATURES_MAX, SignedBy, VerifyError, fetch_jwks, verify, verify_with,
};
