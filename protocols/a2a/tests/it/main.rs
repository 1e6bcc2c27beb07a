//! What the A2A server and client promise.

mod kit;
mod operations;
mod routes;
mod tongue;
