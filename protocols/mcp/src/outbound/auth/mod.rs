//! Authorization of requests to an upstream MCP server: a fixed token, or OAuth 2.1.
//!
//! The HTTP transports use the [`Authorizer`] only. Before each request they call it for the value
//! of `Authorization`. After a rejection they pass it the [`AuthChallenge`], and it decides whether
//! the request is sent again.
//!
//! ```no_run
//! # async fn upstream() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//!
//! use callboard_mcp::outbound::auth::{ClientIdentity, LoopbackConsent, OAuthAuthorizer, OAuthGrant, OAuthOptions};
//!
//! // A user at this machine consents in their browser.
//! let consent = LoopbackConsent::bind(0, |url| eprintln!("Please open {url}")).await?;
//! let grant = OAuthGrant::Consent { consent: Arc::new(consent), identity: ClientIdentity::default() };
//! let authorizer = Arc::new(OAuthAuthorizer::new("https://mcp.example.com/mcp", grant, OAuthOptions::default())?);
//! # Ok(())
//! # }
//! ```

pub use assertion::{AssertionAudience, AssertionProvider, FixedAssertion, TokenExchange};
pub use authorizer::{AuthChallenge, Authorizer, StaticBearer};
pub use client::{
    ClientIdentity, ClientSigningKey, OAuthClient, PreregisteredClient, SigningAlgorithm,
};
pub use consent::{
    AuthorizationResponse, ConsentProvider, HeadlessConsent, LOOPBACK_CONNECTIONS_MAX,
    LoopbackConsent, REQUEST_HEAD_BYTES_MAX,
};
pub use error::{AuthError, OAuthDocument, OAuthErrorCode};
pub use fetch::DOCUMENT_BYTES_MAX;
pub use oauth::{OAuthAuthorizer, OAuthOptions};
pub use token::OAuthGrant;

mod assertion;
mod authorizer;
mod client;
mod consent;
mod discovery;
mod error;
mod fetch;
mod oauth;
mod token;
