//! The canonical types: A2A 1.0 (`specification/a2a.proto` at 1.0.1), read leniently and written strictly.
//!
//! Nothing here derives serde's traits: what a peer may leave out, spell otherwise or send besides is decided field by
//! field, by the kinds of [`macros`]'s fields. Sizes, depth and doubled keys are [`callboard_rpc::check`]'s, before.

mod card;
mod codec;
mod macros;
mod message;
mod request;

pub use card::*;
pub use codec::{At, ReadError, Wire, Writer};
pub(crate) use codec::{Members, ObjectWriter, entries, state_of, written, written_about};
pub use message::*;
pub use request::*;
