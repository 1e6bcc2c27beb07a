//! What the A2A server and client promise.

mod kit;
