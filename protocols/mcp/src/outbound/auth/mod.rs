//! What authorises our requests to an upstream MCP server: a fixed token, or OAuth 2.1.
//!
//! The HTTP transports know [`Authorizer`] and nothing else of it: before each request they ask for the value of
//! `Authorization`, and when the upstream refuses it they hand over the [`Challenge`] and learn whether to send the
//! request again.

mod assertion;
mod authorizer;
mod bearer;
mod client;
mod consent;
mod discovery;
mod error;
mod fallback;
mod fetch;
mod grant;
mod keys;
mod loopback;
mod oauth;
mod reach;
mod registration;
mod scopes;
mod token;

pub use assertion::{Assertions, Audience, FixedAssertion};
pub use authorizer::{Authorizer, Challenge, StaticBearer};
pub use client::Client;
pub use consent::{CONSENT_TIMEOUT_DEFAULT, Consent, HeadlessConsent, Redirected};
pub use discovery::AUTHORIZATION_SERVERS_MAX;
pub use error::{AuthError, Document, ErrorCode};
pub use fetch::{BODY_BYTES_MAX, CONNECT_TIMEOUT_DEFAULT, REQUEST_TIMEOUT_DEFAULT};
pub use grant::Grant;
pub use keys::{SigningAlgorithm, SigningKey};
pub use loopback::{CONNECTIONS_MAX, HEAD_BYTES_MAX, HEAD_TIMEOUT, LoopbackConsent};
pub use oauth::{OAuth, OAuthOptions, REFUSALS_MAX};
pub use reach::Reach;
pub use registration::{Identity, KnownClient};
pub use scopes::SCOPES_MAX;
