//! Integration tests of the A2A server and client.

mod bad_input;
mod bad_peer;
mod bad_peer_cards;
mod blocking;
mod card_hints;
mod cards;
mod client;
mod client_kit;
mod everything;
mod follow_up;
mod golden;
#[cfg(feature = "grpc")]
mod grpc;
#[cfg(feature = "grpc")]
mod grpc_connections;
#[path = "../../../../tests/kit/inside.rs"]
mod inside;
mod interim;
mod kit;
mod leniency;
#[path = "../../../../tests/kit/lingering.rs"]
mod lingering;
mod methods;
mod operations;
mod owners;
mod parts;
#[path = "../../../../tests/kit/played.rs"]
mod played;
mod push;
mod receiver;
mod restart;
mod round_trip;
mod routes;
mod samples;
mod ssrf;
mod streams;
mod tenants;
mod tongue;
mod wire;
