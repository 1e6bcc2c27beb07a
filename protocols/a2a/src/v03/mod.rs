//! A2A 0.3, over JSON-RPC (`specification/json/a2a.json` at 0.3.0) and HTTP+JSON (the ProtoJSON of
//! `specification/grpc/a2a.proto`), and what 0.1 shares with it.

mod card;
mod message;
mod push;
mod request;
mod task;

pub(crate) use card::*;
pub(crate) use message::*;
pub(crate) use push::*;
pub(crate) use request::*;
pub(crate) use task::*;
