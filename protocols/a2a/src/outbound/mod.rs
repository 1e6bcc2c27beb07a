//! The client: remote A2A agents as agents of this system.
//!
//! [`RemoteA2aAgent`] is the agent; [`A2aClient`] is the client that it uses. The modules below
//! them, from the outside in: `tools` (skills as tools); `conversation` (one call as a task, from
//! first message to result), `task_state` (state of a remote task), `questions`, `call_result`;
//! `resolve` and `interface_selection` (card and interface), `operations` (one operation of the
//! protocol), `bindings`, `connection`.
//!
//! # Request destinations
//!
//! The URL that an operator configures may lead anywhere. A URL that a card names (interface, token
//! endpoint, key set) must be on the card's own origin or on one that the operator trusts, else the
//! egress policy ([`callboard_rpc::EgressPolicy`]) must allow it. Credentials are sent to the first
//! two only.

mod agent;
mod bindings;
mod call_result;
mod catalog;
mod client;
mod connection;
mod conversation;
mod conversation_request;
mod error;
mod interface_selection;
mod operations;
mod options;
mod push;
mod questions;
mod remote_contexts;
mod resolve;
mod task_state;
mod tools;

pub use agent::RemoteA2aAgent;
pub use bindings::RemoteEventStream;
pub use catalog::CatalogEntry;
pub use client::A2aClient;
pub use conversation::ConversationError;
pub use error::{A2aClientError, RemoteAgentError};
pub use options::{
    CALL_EVENTS_MAX, CALL_TIMEOUT_DEFAULT, CARD_BYTES_MAX, CardTrust, HISTORY_MESSAGES_MAX,
    PENDING_CALLS_MAX, ProtocolBinding, ProtocolVersion, QUESTION_ROUNDS_MAX, RemoteAuth,
    RemoteOptions, RemoteOptionsError,
};
pub use push::PushInbox;
pub use resolve::ResolvedCard;
pub use tools::skill_tools;
