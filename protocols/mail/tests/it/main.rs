//! Everything about agent mail at its edge that needs a socket, a pane or both.

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
