//! The canonical types: A2A 1.0, read leniently and written strictly.

mod card;
mod macros;
mod message;
mod push;
mod read;
mod request;
mod security;
mod stream;
mod task;
mod time;
mod write;
