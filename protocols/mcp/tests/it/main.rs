//! What the adapters promise, a module a promise. All over real loopback HTTP on free ports.

// A scripted clinic, a server around it, a raw HTTP client and a scripted peer.
mod kit;
// The document's exchanges, byte for byte.
mod golden;
// Whatever comes in is answered with the right code, and the connection stays useful.
mod bad_input;
// What HTTP itself can do wrong: foreign pages, slow and oversized bodies, clients that go away.
mod http;
// What travels with a call, and what a failure looks like on the other side.
mod call;
// What a peer can do wrong to the client.
mod bad_peer;
// A server that the test plays, for the client.
mod client_kit;
// The client in the legacy era, in the modern one, and over channels that all calls share.
mod client_channels;
mod client_legacy;
mod client_modern;
