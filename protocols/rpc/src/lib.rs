//! The JSON-RPC 2.0 envelope, framing and limits. Knows neither MCP nor A2A.
//!
//! Payloads stay raw ([`RawValue`](serde_json::value::RawValue)): they are checked once, here, and forwarded as they
//! came.

mod credential;
mod decode;
mod encode;
mod error;
mod id;
mod json;
mod limits;
mod lines;
mod sse;

pub use credential::{Credential, CredentialError, Trust};
pub use decode::{Incoming, Notification, Request, Response, decode};
pub use encode::{Nulls, encode_notification, encode_request, encode_response};
pub use error::{DecodeError, Refusal, RpcError, code};
pub use id::Id;
pub use json::{JsonError, check};
pub use limits::{
    BODY_BYTES_MAX_DEFAULT, DEPTH_MAX_DEFAULT, DIGITS_MAX_DEFAULT, ID_BYTES_MAX_DEFAULT, KEYS_MAX_DEFAULT, Limits,
    METHOD_BYTES_MAX_DEFAULT,
};
pub use lines::{LINE_BYTES_MAX_DEFAULT, Line, LineDecoder, encode_line};
pub use sse::{
    SSE_EVENT_BYTES_MAX_DEFAULT, SSE_KEEP_ALIVE, SSE_LINE_BYTES_MAX_DEFAULT, SseDecoder, SseError, SseEvent, SseLimits,
    encode_event,
};
