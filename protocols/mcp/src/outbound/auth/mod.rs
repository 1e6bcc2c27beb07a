//! What authorises our requests to an upstream MCP server: a fixed token, or OAuth 2.1.
//!
//! The HTTP transports know [`Authorizer`] and nothing else of it: before each request they ask for the value of
//! `Authorization`, and when the upstream refuses it they hand over the [`Challenge`] and learn whether to send the
//! request again.

mod authorizer;
mod error;

pub use authorizer::{Authorizer, Challenge, StaticBearer};
pub use error::AuthError;
