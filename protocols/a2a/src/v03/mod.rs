//! A2A 0.3: JSON-RPC and HTTP+JSON.

mod card;
mod error;
mod message;
mod push;
mod request;
mod rest;
mod task;
