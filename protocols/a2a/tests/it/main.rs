//! What the A2A server and client promise.

mod blocking;
mod follow_up;
mod kit;
mod operations;
mod owners;
mod restart;
mod routes;
mod streams;
mod tenants;
mod tongue;
