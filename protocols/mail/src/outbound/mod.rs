//! Delivery methods for recipients that are not agents of this process.

pub mod tmux;
pub mod webhook;
