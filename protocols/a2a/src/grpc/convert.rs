//! Protobuf messages as ProtoJSON and back. Each type is generated twice: once for gRPC, once with the mapping to JSON; both
//! have the same bytes.

use prost::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};

/// The other form has no words for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoWords;

/// The JSON of a message; `J` is its type with the mapping.
pub(super) fn to_json<J: Message + Default + Serialize>(message: &impl Message) -> Result<Box<RawValue>, NoWords> {
    let mapped = J::decode(&*message.encode_to_vec()).map_err(|_| NoWords)?;
    to_raw_value(&mapped).map_err(|_| NoWords)
}

/// The message of a JSON; `J` is its type with the mapping.
pub(super) fn from_json<J: Message + DeserializeOwned, P: Message + Default>(json: &RawValue) -> Result<P, NoWords> {
    let mapped: J = serde_json::from_str(json.get()).map_err(|_| NoWords)?;
    P::decode(&*mapped.encode_to_vec()).map_err(|_| NoWords)
}
