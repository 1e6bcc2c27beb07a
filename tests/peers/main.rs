//! Round trips with the programs of others: every tool, questions in mid-call included. `cargo xtask test` installs those
//! programs and names their folder in `CALLBOARD_PEERS`; without it these tests say that they are skipped.

// Where the peers are; their processes, ended with the test.
mod kit;
// Callboard, as a person starts it.
mod gateway;
// What a whole round comes to, whoever drives it.
mod round;

// A2A: its SDKs.
mod a2a;

// Our client, driven through a round.
mod client;
// Our server: an agent that asks back.
mod server;

// The reference server with all features, over stdio, streamable HTTP and HTTP+SSE.
mod everything;
// The Python SDK: its client, its server in both eras, its WebSocket.
mod python;
// Agent mail between clients of two SDKs, in both eras.
mod mail;
// rmcp, in both eras and both directions.
mod rmcp;
// The TypeScript SDK's client, in both eras.
mod typescript;
// A server for files, which works under its client's roots.
mod filesystem;
// FastMCP 3 and 4: sessions with tools of their own.
mod fastmcp;
// The inspector's command line.
mod inspector;
// An ACME authority.
#[cfg(feature = "acme")]
mod acme;
// An authorization server.
mod oidc;

// Applications that read the settings of `callboard connect`.
mod connect;
// The console, in a browser.
mod console;
// Authorities, and certificates that they issue.
#[path = "../kit/certificates.rs"]
mod certificates;
// Reverse proxies, with the settings of the documentation.
mod proxies;
// A client's pipe to a server elsewhere.
mod remote;

// Callboard in between: a client of one SDK in front of it, a server of another behind it.
mod bridge;
