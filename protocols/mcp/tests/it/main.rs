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
// A peer that the test plays, whatever its protocol.
#[path = "../../../../tests/kit/played.rs"]
mod played;
// A server that the test plays, for the client.
mod client_kit;
// The client in the legacy era, in the modern one, and over channels that all calls share.
mod client_channels;
mod client_legacy;
mod client_lossless;
mod client_modern;
mod client_streams;
mod client_websocket;
// What two hops of any eras hand on.
mod bridge;
// HMCP: clients that ask servers as they would ask a model; what policies see beside messages.
mod hmcp;
// A client at the other end of a pipe, and an agent that does as the test says.
mod pipe;
// Over a pipe a line is a message: all are answered, bounded, cancelled at the pipe's end.
mod stdio;
// A call as a task, in the words of 2025-11-25.
mod tasks_legacy;
// A call as a task, in the words of the extension of 2026-07-28.
mod tasks_modern;
// Clients, a bridge, and the server behind it: an agent of ours, a script, or nobody.
mod bridge_kit;
// Many clients of one bridge: nothing of one reaches another.
mod bridge_clients;
// Whose connection a call goes by, what is offered on it, and who is asked.
mod bridge_scopes;
// Roots, which a server must have before its first call, and never of another client.
mod bridge_roots;
// Servers and clients that die, hang, come back, are slow; limits.
mod bridge_faults;
// Calls of tools that are sent again, and results that are known already.
mod bridge_tools;
// Upstreams that want OAuth: what an honest one sees, and what a dishonest one gets.
mod auth;
// A handler that waits for the test.
#[path = "../../../../tests/kit/lingering.rs"]
mod lingering;
// An agent that shows everything, and a server of the full protocol around it.
mod mcp_kit;
// A raw client of the legacy era over HTTP.
mod mcp_client;
// What a legacy session does between `initialize` and its end.
mod legacy_session;
// Event streams and sessions over HTTP: resumed, polled, taken over, bounded, ended.
mod http_streams;
// What one peer takes leaves room for others.
mod http_shares;
// What comes over HTTP that shouldn't: foreign sources, wrong headers, broken messages, too much of everything.
mod http_guards;
// Who asks: by its key, never by what it says beside that, and as long as the key counts.
mod http_keys;
// WebSocket and HTTP+SSE, as far as they are wanted.
mod http_compat;
