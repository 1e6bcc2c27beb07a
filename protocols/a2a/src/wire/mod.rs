//! Wire types: A2A 1.0 (`specification/a2a.proto` at 1.0.1), read leniently and written strictly.
//!
//! The types don't derive serde's traits: the field kinds of [`macros`] decide for each field
//! whether peers may omit it, spell it otherwise or send more. Sizes, nesting depth and duplicate
//! keys are checked earlier, by [`callboard_rpc::check_json`].

mod card;
mod codec;
mod macros;
mod message;
mod request;

pub use card::*;
pub use codec::{FieldPath, JsonWriter, ReadError, WireType};
pub(crate) use codec::{
    ObjectReader, ObjectWriter, list_entries, parse_task_state, write_json, write_json_sized,
};
pub use message::*;
pub use request::*;
