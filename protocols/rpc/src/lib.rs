//! The JSON-RPC 2.0 envelope, framing and limits. Knows neither MCP nor A2A.
//!
//! Payloads stay raw ([`RawValue`](serde_json::value::RawValue)): they are checked once, here, and forwarded as they
//! came.

pub use credential::*;
pub use decode::*;
pub use egress::*;
pub use encode::*;
pub use error::*;
pub use hook::*;
pub use id::Id;
pub use json::*;
pub use key_pair::*;
pub use keys::*;
pub use lines::*;
pub use source::*;
pub use sse::*;

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
mod key_pair;
mod keys;
mod lines;
#[cfg(feature = "serve")]
pub mod serve;
mod source;
mod sse;
