//! JSON-RPC 2.0 messages and their transport: encoding, framing, limits, authentication, HTTP
//! client and server. Independent of MCP and A2A.
//!
//! Payloads stay raw ([`RawValue`](serde_json::value::RawValue)): they are validated once, here,
//! and forwarded unchanged.

pub use auth_failures::*;
pub use buffer_budget::*;
pub use certificate_clients::*;
pub use client_authorization::basic_authorization;
pub use credential::*;
pub use decode::*;
pub use egress::*;
pub use encode::*;
pub use envelope_scan::EnvelopeScan;
pub use error::*;
pub use file_version::FileVersion;
pub use id::RequestId;
pub use json::*;
pub use key_pair::*;
pub use keys::*;
pub use lines::*;
pub use read_pacer::{READS_PER_SECOND_MAX, ReadPacer};
pub use source_check::*;
pub use sse::*;
pub use tls::*;
pub use token_resource::*;
pub use tokens::*;
pub use webhook::*;

mod auth_failures;
mod buffer_budget;
mod certificate_clients;
// Certificates for the tests.
#[cfg(all(test, feature = "serve"))]
#[path = "../../../tests/kit/certificates.rs"]
mod certificates;
mod client_authorization;
mod credential;
mod decode;
mod egress;
mod encode;
mod envelope_scan;
mod error;
mod file_version;
#[cfg(feature = "client")]
pub mod http1;
mod id;
mod json;
mod key_pair;
mod keys;
mod lines;
mod read_pacer;
#[cfg(feature = "serve")]
pub mod serve;
mod source_check;
mod sse;
mod tls;
mod token_resource;
mod tokens;
#[cfg(feature = "tower")]
pub mod tower;
mod webhook;

/// Former name of [`AccessControl`].
#[deprecated(note = "renamed to `AccessControl`")]
pub type Access = AccessControl;

/// Former name of [`EgressPolicy`].
#[deprecated(note = "renamed to `EgressPolicy`")]
pub type Egress = EgressPolicy;

/// Former name of [`UnauthenticatedAccess`].
#[deprecated(note = "renamed to `UnauthenticatedAccess`")]
pub type Trust = UnauthenticatedAccess;
