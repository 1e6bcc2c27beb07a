//! The client: A2A agents elsewhere, as agents of this system.
//!
//! [`RemoteA2a`] is the agent, [`Peer`] what it speaks through, in A2A's own words. Below them, from the outside in: `tools`
//! (skills as tools); `conversation` (one call as a task, with all that is told and asked until it ends), `story` (what has been heard so far), `questions`, `outcome`; `resolve` and `choose` (card and
//! interface), `operations` (one operation as it is asked), `bindings`, `connection`.
//!
//! # Where requests go
//!
//! The URL that an operator configures may lead anywhere. What a card names (interfaces, token endpoints, key sets) is on the
//! card's own origin, on one that the operator trusts, or must pass the guard ([`callboard_rpc::Egress`]); credentials go to
//! the first two only.

mod agent;
mod bindings;
mod choose;
mod connection;
mod conversation;
mod error;
mod operations;
mod options;
mod outcome;
mod peer;
mod push;
mod questions;
mod resolve;
mod story;
mod tools;

pub use agent::RemoteA2a;
pub use bindings::Events;
pub use conversation::Stopped;
pub use error::{AgentError, PeerError};
pub use options::{
    Auth, Binding, CALL_TIMEOUT_DEFAULT, CALLS_IN_FLIGHT_MAX, CARD_BYTES_MAX, CardTrust,
    EVENTS_MAX, HISTORY_MESSAGES_MAX, ROUNDS_MAX, RemoteError, RemoteOptions, Version,
};
pub use peer::Peer;
pub use push::PushInbox;
pub use resolve::FoundCard;
pub use tools::skill_tools;
