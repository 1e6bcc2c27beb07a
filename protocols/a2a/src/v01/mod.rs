//! A2A 0.1: JSON-RPC.

mod card;
mod push;
mod request;
mod task;
