//! What the A2A server and client promise.

mod cards;
mod kit;
mod operations;
mod owners;
mod push;
mod receiver;
mod routes;
mod ssrf;
mod tenants;
mod tongue;
