//! Tests of the modern era without a transport: requests as JSON, notifications as sent.

mod header_checks;
mod kit;
mod listening;
mod metadata;
mod questions;
mod rounds;
mod visits;
