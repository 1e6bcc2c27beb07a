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
