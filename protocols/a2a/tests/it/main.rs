//! What the A2A server and client promise.

mod cards;
mod bad_input;
mod golden;
mod kit;
// One value of each type.
mod samples;
// Methods and versions, the oldest read and written.
mod methods;
// What real peers send is read, what can't be meant is refused.
mod leniency;
// Nothing is lost between versions.
mod round_trip;
// What is written, byte for byte.
mod wire;
mod operations;
mod owners;
mod push;
mod receiver;
mod routes;
mod ssrf;
mod tenants;
mod tongue;
