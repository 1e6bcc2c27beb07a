//! What the A2A server and client promise.

mod bad_input;
mod cards;
mod golden;
mod kit;
mod leniency;
mod methods;
mod operations;
mod owners;
mod push;
mod receiver;
mod round_trip;
mod routes;
mod samples;
mod ssrf;
mod tenants;
mod tongue;
mod wire;
