//! Agent mail over HTTP and WebSocket, and its ways out: webhooks and tmux panes.
//!
//! The mailroom itself is an agent of `callboard_mailroom`; it, its carriers and this crate share the messages of
//! [`callboard_message::mail`] and nothing else. So another agent that handles them can stand in its place.

pub mod client;
mod error;
pub mod inbound;
pub mod outbound;

pub use error::ClientError;

/// The header of the answer to an event socket's handshake: the number of the newest event.
const EVENT_SEQUENCE: &str = "x-event-sequence";
