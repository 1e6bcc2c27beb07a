//! The server: an agent under an A2A address.

mod admit;
mod calls;
mod jsonrpc;
mod operations;
mod options;
mod page;
mod push;
mod query;
mod reply;
mod rest;
mod server;
mod sse;
