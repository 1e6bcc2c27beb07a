//! What the envelope promises, a module a promise.

// Ids, payloads and kinds of message survive reading and writing.
mod envelope;
// Whatever is no message is refused with the right code, and nothing panics.
mod bad_input;
// Each limit holds at its value and not one further.
mod limits;
// The same over generated input.
mod properties;
// Event streams: read by the standard, written so that nothing can be forged.
mod sse;
// Lines: cut anywhere, bounded, and one bad line costs itself only.
mod lines;
// Batches, for the one revision that has them.
mod batch;
// Keys: shown once, stored as hashes, revoked beside a running server.
mod keys;
// Key files of earlier versions.
mod upgrade;
// Connections that a peer asks for: to the public internet, and to what is configured.
mod egress;
