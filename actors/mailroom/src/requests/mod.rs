//! Requests to the mailroom besides sending and reading.

pub(crate) mod members;
pub(crate) mod memory;
pub(crate) mod resources;
