//! Agent mail for clients: HTTP and WebSocket on a listener of its own.

mod admit;
mod events;
mod openapi;
mod options;
mod read;
mod reply;
mod routes;
mod server;
