//! What authorises our requests to an upstream MCP server: a fixed token, or OAuth 2.1.
//!
//! The HTTP transports know [`Authorizer`] and nothing else of it: before each request they ask for the value of
//! `Authorization`, and when the upstream refuses it they hand over the [`Challenge`] and learn whether to send the
//! request again.
//!
//! ```no_run
//! # async fn upstream() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//!
//! use callboard_mcp::outbound::auth::{Grant, Identity, LoopbackConsent, OAuth, OAuthOptions};
//!
//! // Somebody at this machine consents in their browser.
//! let consent = LoopbackConsent::bind(0, |url| eprintln!("Please open {url}")).await?;
//! let grant = Grant::Consent { consent: Arc::new(consent), identity: Identity::default() };
//! let authorizer = Arc::new(OAuth::new("https://mcp.example.com/mcp", grant, OAuthOptions::default())?);
//! # Ok(())
//! # }
//! ```

pub use assertion::{Assertions, Audience, FixedAssertion, TokenExchange};
pub use authorizer::{Authorizer, Challenge, StaticBearer};
pub use client::{Client, Identity, KnownClient, SigningAlgorithm, SigningKey};
pub use consent::{
    CONNECTIONS_MAX, Consent, HEAD_BYTES_MAX, HeadlessConsent, LoopbackConsent, Redirected,
};
pub use error::{AuthError, Document, ErrorCode};
pub use fetch::BODY_BYTES_MAX;
pub use oauth::{OAuth, OAuthOptions};
pub use token::Grant;

mod assertion;
mod authorizer;
mod client;
mod consent;
mod discovery;
mod error;
mod fetch;
mod oauth;
mod token;
