//! What each point asks of a model: what it gets to see, the shape of its answer, and how that is read.

mod before;
mod during;

use callboard_message::RawObject;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::budget::Material;
use super::read::{Line, Read};
use crate::decide::Decision;

/// A decision that a model can be shown.
pub(super) trait Shown: Decision {
    /// The most that it may write, in tokens.
    const TOKENS_MAX: u32;

    /// What the prompt may show.
    fn material(&self) -> Material;
}

/// One whose answer has a form.
pub(super) trait Posed: Shown {
    /// JSON Schema of the answer: an object.
    fn schema(&self) -> Value;

    /// The answer as an object; `None` where the object is something else.
    fn object(&self, object: &RawObject) -> Option<Read<Self::Outcome>>;

    /// The answer as a list; `None` where the list is something else.
    fn list(&self, _list: &RawValue) -> Option<Read<Self::Outcome>> {
        None
    }

    /// The answers as words.
    fn lines(&self, _lines: &[Line]) -> Vec<Read<Self::Outcome>> {
        Vec::new()
    }
}

/// An object with these members, those in `required` needed, and with room for how sure it is.
fn shape(members: &[(&str, Value)], required: &[&str]) -> Value {
    let mut properties: serde_json::Map<String, Value> =
        members.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    properties.entry("confidence").or_insert(json!({ "type": "number", "minimum": 0, "maximum": 1 }));
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

fn one_of(words: &[&str]) -> Value {
    json!({ "type": "string", "enum": words })
}

fn string() -> Value {
    json!({ "type": "string" })
}

const UNKNOWN_WORD: &str = "the model's answer isn't one of the words that it had to choose from";
