use std::fmt;

use schemars::generate::SchemaSettings;
use schemars::transform::transform_subschemas;
use schemars::{JsonSchema, Schema};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::content::TOOL_RESULT_COMMENT;
use crate::{Failure, RawObject, RawReply};

/// Typed request to an agent, with the type of its reply.
///
/// Within a process, messages are moved and never serialised. On a network, a message is JSON with
/// the name [`Message::NAME`]. A message type with a codec is one MCP tool and one A2A skill,
/// unless its name begins with [`RESERVED_PREFIX`](crate::capabilities::RESERVED_PREFIX). Implement
/// it with `#[derive(Message)]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a message",
    label = "not a message",
    note = "add `#[derive(Message)]` to its definition; `#[message(reply = T)]` sets the type of the reply, and a message with `#[message(local)]` needs no serde traits"
)]
pub trait Message: Sized + Send + 'static {
    /// Type of the agent's reply. It is `Result<T, Failure>` for messages that may fail
    /// (`#[message(fallible)]`).
    type Reply: Send + 'static;

    /// Name of the message on the network and of its MCP tool: 1 to 64 characters of
    /// `A-Za-z0-9_-.`.
    const NAME: &'static str;

    /// Returns the JSON codec of the message and its reply; `None` for a message that is only sent
    /// within a process.
    fn codec() -> Option<&'static MessageCodec<Self>> {
        None
    }
}

/// JSON codec of a message and its reply, with their descriptions and schemas.
pub struct MessageCodec<M: Message> {
    /// Description for people and models; with `#[derive(Message)]`, the doc comment of the type.
    pub description: &'static str,
    /// Decodes the message from a JSON object.
    pub decode: fn(&RawValue) -> Result<M, MessageCodecError>,
    /// Encodes the message as a JSON object.
    pub encode: fn(&M) -> Result<Box<RawValue>, MessageCodecError>,
    /// Decodes the reply from raw JSON. A failure received instead becomes part of the reply for
    /// fallible messages, and is returned as an error for others. A reply that doesn't fit its type
    /// is a failure of the kind `Internal`.
    pub decode_reply: fn(RawReply) -> Result<M::Reply, Failure>,
    /// Encodes the reply as raw JSON. The failure of a fallible message is returned as an error; a
    /// reply that JSON can't represent is one of the kind `Internal`.
    pub encode_reply: fn(M::Reply) -> RawReply,
    /// JSON Schema (2020-12) of the message.
    pub input_schema: fn() -> Value,
    /// JSON Schema (2020-12) of the reply.
    pub output_schema: fn() -> Value,
    /// Further members of the MCP tool (`title`, `annotations`, `icons`, `execution`), as pairs of
    /// name and JSON text.
    pub more: &'static [(&'static str, &'static str)],
}

impl<M: Message> MessageCodec<M> {
    /// Returns the description of the message for directories and tool lists. It has no output
    /// schema if the reply is a [`crate::ToolResult`].
    pub fn spec(&self) -> MessageSpec {
        let mut more = RawObject::new();
        for (name, json) in self.more {
            more.set_raw(
                name,
                RawValue::from_string((*json).to_owned()).unwrap_or_default(),
            );
        }
        MessageSpec {
            name: M::NAME.to_owned(),
            description: self.description.to_owned(),
            input_schema: (self.input_schema)(),
            output_schema: Some((self.output_schema)())
                .filter(|s| s.get("$comment") != Some(&TOOL_RESULT_COMMENT.into())),
            more,
        }
    }
}

/// Description of a message type that an agent accepts, for directories and tool lists.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MessageSpec {
    /// Name under which the message is sent.
    pub name: String,
    /// Description for people and models.
    pub description: String,
    /// JSON Schema (2020-12) of the message.
    pub input_schema: Value,
    /// JSON Schema (2020-12) of the reply; `None` where the reply is a [`crate::ToolResult`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// Further members of the MCP tool (`title`, `annotations`, `icons`, `execution`).
    #[serde(default, skip_serializing_if = "RawObject::is_empty")]
    pub more: RawObject,
}

/// Error of decoding a message from JSON or encoding it. Its text contains the name of the message
/// and the cause.
#[derive(Debug, thiserror::Error)]
#[error("{name}: {source}")]
pub struct MessageCodecError {
    name: &'static str,
    source: serde_json::Error,
}

/// Message of any type, as its name and its payload in raw JSON. Adapters send it, and agents that
/// represent external servers receive it.
pub struct RawMessage {
    /// Name of the message.
    pub name: String,
    /// Payload: a JSON object that is forwarded unchanged.
    pub payload: Box<RawValue>,
}

impl fmt::Debug for RawMessage {
    // The payload may hold patient text: it is never printed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Named({}, {} bytes)",
            self.name,
            self.payload.get().len()
        )
    }
}

impl Message for RawMessage {
    type Reply = RawReply;
    const NAME: &'static str = "callboard.named";
}

/// Returns the JSON Schema (2020-12) of a type. Integers and numbers have no `format`: schemars'
/// formats, for example `uint64`, aren't in JSON Schema's vocabulary, and clients warn about them.
pub fn schema_of<T: JsonSchema>() -> Value {
    SchemaSettings::draft2020_12()
        .with_transform(remove_number_formats)
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value()
}

/// Removes `format` from each schema of integers or numbers, nullable ones included.
fn remove_number_formats(schema: &mut Schema) {
    let is_number = match schema.get("type") {
        Some(Value::String(name)) => is_number_type(name),
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).any(is_number_type),
        _ => false,
    };
    if is_number {
        schema.remove("format");
    }
    transform_subschemas(&mut remove_number_formats, schema);
}

fn is_number_type(name: &str) -> bool {
    matches!(name, "integer" | "number")
}

/// Functions from which `#[derive(Message)]` builds a [`MessageCodec`].
#[doc(hidden)]
pub mod codec {
    use super::*;

    /// Decodes a message.
    ///
    /// # Errors
    /// Fails if `raw` doesn't fit the type.
    pub fn decode<M: Message + DeserializeOwned>(raw: &RawValue) -> Result<M, MessageCodecError> {
        // A message without fields is a unit struct in Rust (`null` in serde) and `{}` on the wire.
        serde_json::from_str(raw.get())
            .or_else(|e| {
                if is_empty_object(raw) {
                    serde_json::from_str("null").map_err(|_| e)
                } else {
                    Err(e)
                }
            })
            .map_err(|source| MessageCodecError {
                name: M::NAME,
                source,
            })
    }

    /// Decodes a message type that is a newtype of [`RawObject`].
    ///
    /// # Errors
    /// Fails if `raw` is not an object, or has a duplicate key.
    pub fn decode_object<M: Message>(raw: &RawValue) -> Result<RawObject, MessageCodecError> {
        RawObject::parse(raw).map_err(|source| MessageCodecError {
            name: M::NAME,
            source,
        })
    }

    /// Encodes a message; one without fields as `{}`.
    ///
    /// # Errors
    /// Fails if JSON can't represent the message.
    pub fn encode<M: Message + Serialize>(message: &M) -> Result<Box<RawValue>, MessageCodecError> {
        let raw = serde_json::value::to_raw_value(message).map_err(|source| MessageCodecError {
            name: M::NAME,
            source,
        })?;
        Ok(if raw.get() == "null" {
            RawObject::new().to_raw()
        } else {
            raw
        })
    }

    /// Decodes the reply of a message that isn't fallible.
    ///
    /// # Errors
    /// The failure in `reply`; `Internal` if the reply doesn't fit the type.
    pub fn decode_plain<R: DeserializeOwned>(reply: RawReply) -> Result<R, Failure> {
        read(&reply?)
    }

    /// Encodes the reply of a message that isn't fallible.
    ///
    /// # Errors
    /// `Internal` if JSON can't represent the reply.
    pub fn encode_plain<R: Serialize>(reply: R) -> RawReply {
        serde_json::value::to_raw_value(&reply)
            .map_err(|e| Failure::internal(format!("the reply can't be encoded as JSON: {e}")))
    }

    /// Decodes the reply of a fallible message. Always returns `Ok`: the failure in `reply`, or
    /// `Internal` if the reply doesn't fit the type, becomes part of the decoded reply.
    pub fn decode_fallible<R: DeserializeOwned>(
        reply: RawReply,
    ) -> Result<Result<R, Failure>, Failure> {
        Ok(reply.and_then(|raw| read(&raw)))
    }

    /// Encodes the reply of a fallible message.
    ///
    /// # Errors
    /// The failure in `reply`; `Internal` if JSON can't represent the reply.
    pub fn encode_fallible<R: Serialize>(reply: Result<R, Failure>) -> RawReply {
        encode_plain(reply?)
    }

    pub fn schema<T: JsonSchema>() -> Value {
        schema_of::<T>()
    }

    pub fn input_schema<M: JsonSchema>() -> Value {
        let mut schema = schema::<M>();
        if schema.get("type").is_none_or(|t| t == "null") && schema.get("$ref").is_none() {
            schema["type"] = Value::from("object");
        }
        schema
    }

    fn read<R: DeserializeOwned>(raw: &RawValue) -> Result<R, Failure> {
        serde_json::from_str(raw.get()).map_err(|e| {
            Failure::internal(format!(
                "the reply isn't of the type that the message declares: {e}"
            ))
        })
    }

    fn is_empty_object(raw: &RawValue) -> bool {
        raw.get()
            .trim_start_matches('{')
            .trim_end_matches('}')
            .trim()
            .is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: schemas of numbers are plain JSON Schema, and other formats stay. Method: integers and
    /// floats of several widths, optional, in a list and in a type of their own.
    #[test]
    fn numbers_have_no_format() {
        #[derive(JsonSchema)]
        #[expect(dead_code, reason = "only the schema is read")]
        struct Inner {
            count: u8,
        }
        #[derive(JsonSchema)]
        #[expect(dead_code, reason = "only the schema is read")]
        struct Outer {
            #[schemars(extend("format" = "uri"))]
            link: String,
            small: i32,
            part: f64,
            maybe: Option<u64>,
            list: Vec<u32>,
            inner: Inner,
        }
        let schema = schema_of::<Outer>();
        let text = schema.to_string();
        assert_eq!(text.matches("\"format\"").count(), 1, "{text}");
        assert_eq!(schema["properties"]["link"]["format"], "uri");
        assert_eq!(schema["properties"]["maybe"]["minimum"], 0);
        assert_eq!(
            schema["$defs"]["Inner"]["properties"]["count"]["maximum"],
            255
        );
    }
}
