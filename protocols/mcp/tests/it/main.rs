//! Integration tests of the MCP adapters, one module per promise, over real loopback HTTP on free
//! ports.

// A scripted clinic, a server for it, a raw HTTP client and a scripted peer.
mod kit;
// The document's exchanges, byte for byte.
mod golden;
// Any input is answered with the right code, and the connection stays usable.
mod bad_input;
// HTTP errors: foreign pages, slow and oversized bodies, clients that disconnect.
mod http;
// Metadata of a call, and failures on the other side.
mod call;
// A client facing a faulty peer.
mod bad_peer;
// A peer played by the test, for any protocol.
#[path = "../../../../tests/kit/played.rs"]
mod played;
// A server played by the test, for the client.
mod client_kit;
// The client in the legacy era, in the modern one, and over shared channels.
mod client_channels;
mod client_legacy;
mod client_lossless;
mod client_modern;
mod client_streams;
mod client_transports;
mod client_websocket;
// Logs of one test.
#[path = "../../../../tests/kit/recording.rs"]
mod recording;
// Forwarding over two hops of any eras.
mod bridge;
// HMCP: clients that send servers sampling requests; messages that policies see.
mod hmcp;
// A client at the other end of a pipe, and an agent controlled by the test.
mod pipe;
// Requests over a pipe, one per line: all are answered, bounded, and cancelled at the end of input.
mod stdio;
// Calls as tasks of 2025-11-25.
mod tasks_legacy;
// Calls as tasks of the extension of 2026-07-28.
mod tasks_modern;
// Clients, a bridge, and the server behind it: an agent of ours, a script, or none.
mod bridge_kit;
// Many clients of one bridge, isolated from each other.
mod bridge_clients;
// Owners of a call's connection, capabilities offered on it, and addressees of questions.
mod bridge_scopes;
mod bridge_sessions;
// Roots: a server has them before its first call, and never those of another client.
mod bridge_roots;
// Servers and clients that crash, hang, return, or are slow; limits.
mod bridge_faults;
// Retries of tool calls, and cached results.
mod bridge_tools;
// Tools that can't be called, arguments that don't fit, addresses that nobody is sent to.
mod bridge_supply;
// Floods of change notifications, and gateways in a circle.
mod bridge_changes;
// Upstreams that require OAuth, honest and hostile ones.
mod auth;
// A handler that waits for the test.
#[path = "../../../../tests/kit/lingering.rs"]
mod lingering;
// An agent with all MCP features, and a server of the full protocol for it.
mod mcp_kit;
// A raw client of the legacy era over HTTP.
mod mcp_client;
// Legacy sessions from `initialize` to their end.
mod legacy_session;
// Event streams and sessions over HTTP: resumed, polled, taken over, bounded, ended.
mod http_streams;
// Per-principal shares of the limits.
mod http_shares;
// Memory of half-sent bodies and unread responses.
mod http_memory;
// Rejected HTTP requests: foreign sources, wrong headers, invalid messages, exceeded limits.
mod http_guards;
// Principals by key, without trust in other claims, until the key is revoked.
mod http_keys;
// WebSocket and HTTP+SSE, which are optional.
mod http_compat;
