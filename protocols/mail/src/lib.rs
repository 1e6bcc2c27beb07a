//! Agent mail over HTTP and WebSocket, and its delivery to webhooks and tmux panes.
//!
//! The mailroom itself is an agent of `callboard_mailroom`. It shares only the messages of
//! [`callboard_message::mail`] with this crate, so another agent that handles them can replace it.

pub mod client;
mod error;
pub mod inbound;
pub mod outbound;

pub use error::MailClientError;

/// Response header of the event socket's WebSocket handshake, with the sequence number of the
/// newest event.
const EVENT_SEQUENCE_HEADER: &str = "x-event-sequence";
