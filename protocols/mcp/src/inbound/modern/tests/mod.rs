//! The stateless era without a transport: requests as text, notifications as they were sent.

mod header_checks;
mod kit;
mod listening;
mod metadata;
mod questions;
mod rounds;
mod visits;
