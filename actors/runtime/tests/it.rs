//! The kernel's contracts, a module a promise.

#[path = "it/messages.rs"]
mod messages;

// A message reaches its handler, typed or by name, and its reply comes back.
#[path = "it/asking.rs"]
mod asking;
