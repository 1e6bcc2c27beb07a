//! What the A2A server and client promise.

mod bad_input;
mod golden;
mod kit;
mod operations;
mod owners;
mod routes;
mod tenants;
mod tongue;
