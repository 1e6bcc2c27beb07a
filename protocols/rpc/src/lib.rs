//! The JSON-RPC 2.0 envelope, framing and limits. Knows neither MCP nor A2A.
//!
//! Payloads stay raw ([`RawValue`](serde_json::value::RawValue)): they are checked once, here, and forwarded as they
//! came.

mod batch;
mod credential;
mod decode;
mod egress;
mod encode;
mod error;
mod hook;
#[cfg(feature = "client")]
pub mod http1;
mod id;
mod json;
mod json_error;
mod key_pair;
mod keys;
mod limits;
mod lines;
#[cfg(feature = "serve")]
pub mod serve;
mod source;
mod sse;

pub use batch::{Body, decode_body, encode_batch};
pub use credential::{AUTHORIZATION_BYTES_MAX, Access, BearerVerifier, Credential, CredentialError, Trust};
pub use decode::{Incoming, Notification, Request, Response, decode};
pub use egress::{ADDRESSES_MAX, Egress, EgressError, Network, NetworkError, REDIRECTS_MAX, Reach};
pub use encode::{
    Nulls, encode_error, encode_notification, encode_refusal, encode_request, encode_request_with, encode_response,
};
pub use error::{DecodeError, Refusal, RpcError, code};
pub use hook::{HookOptions, Hooks, Posted};
pub use id::Id;
pub use json::check;
pub use json_error::JsonError;
pub use key_pair::{KeyPair, KeyPairError, SigningAlgorithm};
pub use keys::{
    KEY_FILE_BYTES_MAX, KEY_FILE_LOOKED_AT_EVERY, KEY_NAME_BYTES_MAX, KEY_PREFIX, KEY_SCOPE_BYTES_MAX, KEY_SCOPES_MAX,
    KEYS_IN_FILE_MAX, KeyEntry, KeyError, KeyRing, KeyStore,
};
pub use limits::{
    BATCH_ENTRIES_MAX_DEFAULT, BODY_BYTES_MAX_DEFAULT, DEPTH_MAX_DEFAULT, DIGITS_MAX_DEFAULT, ID_BYTES_MAX_DEFAULT,
    KEYS_MAX_DEFAULT, Limits, METHOD_BYTES_MAX_DEFAULT,
};
pub use lines::{LINE_BYTES_MAX_DEFAULT, Line, LineDecoder, encode_line};
pub use source::{AllowListError, AllowedHosts, AllowedOrigins, SourceError, is_forwarding_header};
pub use sse::{
    SSE_EVENT_BYTES_MAX_DEFAULT, SSE_KEEP_ALIVE, SSE_LINE_BYTES_MAX_DEFAULT, SseDecoder, SseError, SseEvent, SseLimits,
    encode_event,
};
