//! The canonical types: A2A 1.0 (`specification/a2a.proto` at 1.0.1), read leniently and written strictly.
//!
//! Nothing here derives serde's traits: what a peer may leave out, spell otherwise or send besides is decided field by
//! field, by the kinds of [`read`]'s macro. Sizes, depth and doubled keys are [`callboard_rpc::check`]'s, before.

mod card;
mod macros;
mod message;
mod push;
mod read;
mod request;
mod security;
mod stream;
mod task;
mod values;
mod write;

pub use card::*;
pub use message::*;
pub use push::*;
pub(crate) use read::Members;
pub use read::{At, ReadError, Wire};
pub use request::*;
pub use security::*;
pub use stream::*;
pub use task::*;
pub(crate) use values::entries;
pub use write::Writer;
pub(crate) use write::{ObjectWriter, written, written_about};
