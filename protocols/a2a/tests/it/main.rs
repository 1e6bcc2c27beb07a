//! What the A2A server and client promise.

mod kit;
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
