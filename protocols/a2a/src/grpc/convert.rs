//! Protobuf messages as ProtoJSON and back. Each type is generated twice: once for gRPC, once with the mapping to JSON; both
//! have the same bytes.

use prost::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Number, Value};

/// The other form has no words for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoWords;

/// The JSON of a message; `J` is its type with the mapping.
pub(super) fn to_json<J: Message + Default + Serialize>(message: &impl Message) -> Result<Box<RawValue>, NoWords> {
    let mapped = J::decode(&*message.encode_to_vec()).map_err(|_| NoWords)?;
    let mut json = serde_json::to_value(&mapped).map_err(|_| NoWords)?;
    whole_numbers(&mut json);
    to_raw_value(&json).map_err(|_| NoWords)
}

/// Protobuf's values have no integers: `20` comes as `20.0`, which no integer of ours would read. (How deep a message goes is
/// bounded by its decoder.)
fn whole_numbers(json: &mut Value) {
    match json {
        Value::Array(entries) => entries.iter_mut().for_each(whole_numbers),
        Value::Object(members) => members.values_mut().for_each(whole_numbers),
        Value::Number(number) => {
            if let Some(whole) = number.as_f64().filter(|n| n.fract() == 0.0 && n.abs() <= EXACT_MAX) {
                // It is exact there.
                *number = Number::from(whole as i64);
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// Up to here every integer is a double.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// The message of a JSON; `J` is its type with the mapping.
pub(super) fn from_json<J: Message + DeserializeOwned, P: Message + Default>(json: &RawValue) -> Result<P, NoWords> {
    let mapped: J = serde_json::from_str(json.get()).map_err(|_| NoWords)?;
    P::decode(&*mapped.encode_to_vec()).map_err(|_| NoWords)
}
