//! The legacy era: sessions that begin with `initialize` (2024-11-05 … 2025-11-25), whatever carries them.
//!
//! A transport opens a [`Session`] for a peer, hands it what the peer sends, and writes what it answers. What a request
//! causes meanwhile (progress, log lines, questions) goes by the link that the transport gave with the request.

mod batch;
mod caller;
mod handshake;
mod questions;
mod session;

pub(crate) use batch::batch;
pub(crate) use session::Session;

/// Most requests of one session that run at once.
pub const REQUESTS_IN_FLIGHT_MAX: usize = 256;
/// Most questions of one session that wait for an answer.
pub const QUESTIONS_PENDING_MAX: usize = 64;
/// Most resources that one session subscribes to.
pub const SUBSCRIPTIONS_MAX: usize = 1_000;
/// Most bytes of a resource's address that a session subscribes to.
pub const SUBSCRIPTION_URI_BYTES_MAX: usize = 8 * 1024;
