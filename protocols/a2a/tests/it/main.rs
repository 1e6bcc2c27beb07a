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
// One value of each type.
mod samples;
// What the oldest client sends and gets.
mod golden;
// What real peers send is read, what can't be meant is refused.
mod leniency;
// Nothing is lost between versions.
mod round_trip;
// What is written, byte for byte.
mod wire;
