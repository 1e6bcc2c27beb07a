//! Integration tests of agent mail that need sockets or tmux panes.

mod admit;
mod bad_input;
mod client;
mod events;
#[path = "../../../../tests/kit/inside.rs"]
mod inside;
mod kit;
mod letter;
mod openapi;
mod resume;
mod room;
mod routes;
mod slow;
mod tmux;
mod webhook;
