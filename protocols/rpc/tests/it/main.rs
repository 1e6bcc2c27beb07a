//! Integration tests of the JSON-RPC crate, one module for each guarantee.

// Ids, payloads and kinds of messages survive decoding and encoding.
mod envelope;
// Invalid input is rejected with the right code, without a panic.
mod bad_input;
// Each limit holds exactly at its value.
mod limits;
// The same guarantees over generated input.
mod properties;
// Event streams: decoded by the standard, encoded so that nothing can be forged.
mod sse;
// Lines: cut anywhere, bounded, and a bad line doesn't affect others.
mod lines;
// Batches, for the one MCP revision that has them.
mod batch;
// Keys: shown once, stored as hashes, revoked while a server runs.
mod keys;
// An authorization server within the tests.
#[cfg(all(feature = "client", feature = "serve"))]
#[path = "../../../../tests/kit/issuer.rs"]
mod issuer;
// Access tokens: verified by their issuers' keys, which are fetched within limits.
#[cfg(all(feature = "client", feature = "serve"))]
mod tokens;
// An introspection endpoint within the tests.
#[cfg(all(feature = "client", feature = "serve"))]
#[path = "../../../../tests/kit/introspection.rs"]
mod introspection_server;
// Tokens that their issuers are asked about, within limits.
#[cfg(all(feature = "client", feature = "serve"))]
mod introspection;
// Issuers that write their documents and tokens in ways of their own.
mod issuer_quirks;
// Key files of earlier versions.
mod upgrade;
// Outgoing connections to URLs of peers: to the public internet, and to configured networks.
mod egress;
// TLS: certificates verified, renewed and demanded; handshakes within limits; clients behind proxies.
#[cfg(all(feature = "client", feature = "serve"))]
mod tls;
// Certificates for these tests.
#[cfg(all(feature = "client", feature = "serve"))]
#[path = "../../../../tests/kit/certificates.rs"]
mod certificates;
