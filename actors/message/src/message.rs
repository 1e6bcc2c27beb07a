use std::fmt;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::content::IS_TOOL_RESULT;
use crate::{Failure, RawObject, RawReply};

/// A typed request to an agent, and what comes back.
///
/// In one process a message is moved, never serialised. On a wire it is JSON under [`Message::NAME`]: one
/// message type is one MCP tool and one A2A skill. Use `#[derive(Message)]`.
pub trait Message: Sized + Send + 'static {
    /// What the agent answers. `Result<T, Failure>` where it may refuse (`#[message(fallible)]`).
    type Reply: Send + 'static;

    /// The name on a wire, the tool name: 1 to 64 characters of `A-Za-z0-9_-.`.
    const NAME: &'static str;

    /// How the message and its reply become JSON; `None` for a message that never leaves the process.
    fn wire() -> Option<&'static Wire<Self>> {
        None
    }
}

/// How a message and its reply are written as JSON and described to others.
pub struct Wire<M: Message> {
    /// The doc comment of the message type: what a person or a model reads before using it.
    pub description: &'static str,
    /// Reads the message from a JSON object.
    pub decode: fn(&RawValue) -> Result<M, WireError>,
    /// Writes the message as a JSON object.
    pub encode: fn(&M) -> Result<Box<RawValue>, WireError>,
    /// Reads the reply, or the failure that came in its place.
    pub decode_reply: fn(RawReply) -> Result<M::Reply, Failure>,
    /// Writes the reply, or the failure that a fallible message answered.
    pub encode_reply: fn(M::Reply) -> RawReply,
    /// JSON Schema (2020-12) of the message.
    pub input_schema: fn() -> Value,
    /// JSON Schema (2020-12) of the reply.
    pub output_schema: fn() -> Value,
    /// What else is said of it: members of an MCP tool, each value JSON (`title`, `annotations`, `icons`, `execution`).
    pub more: &'static [(&'static str, &'static str)],
}

impl<M: Message> Wire<M> {
    /// Name, description and schemas, as a directory or a tool list shows them.
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
                .filter(|s| s.get("$comment") != Some(&IS_TOOL_RESULT.into())),
            more,
        }
    }
}

/// What an agent accepts, in words and schemas.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MessageSpec {
    /// The name under which the message is sent.
    pub name: String,
    /// For a person or a model.
    pub description: String,
    /// JSON Schema (2020-12) of the message.
    pub input_schema: Value,
    /// JSON Schema (2020-12) of the reply; `None` where the reply is a [`crate::ToolResult`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// What else is said of it: members of an MCP tool (`title`, `annotations`, `icons`, `execution`).
    #[serde(default, skip_serializing_if = "RawObject::is_empty")]
    pub more: RawObject,
}

/// JSON that doesn't fit the type. Tell the sender what was wrong; nothing was done.
#[derive(Debug, thiserror::Error)]
#[error("{name}: {source}")]
pub struct WireError {
    name: &'static str,
    source: serde_json::Error,
}

/// A message known only by name, with its payload as it came: what adapters send and outbound agents receive.
pub struct Named {
    /// The message's name.
    pub name: String,
    /// A JSON object; forwarded raw.
    pub payload: Box<RawValue>,
}

impl fmt::Debug for Named {
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

impl Message for Named {
    type Reply = RawReply;
    const NAME: &'static str = "callboard.named";
}

/// The functions that `#[derive(Message)]` puts in a [`Wire`].
#[doc(hidden)]
pub mod codec {
    use super::*;

    pub fn decode<M: Message + DeserializeOwned>(raw: &RawValue) -> Result<M, WireError> {
        // A message without fields is a unit struct in Rust and `{}` on a wire.
        serde_json::from_str(raw.get())
            .or_else(|e| {
                if is_empty_object(raw) {
                    serde_json::from_str("null").map_err(|_| e)
                } else {
                    Err(e)
                }
            })
            .map_err(|source| WireError {
                name: M::NAME,
                source,
            })
    }

    /// The body of a message that is one raw object.
    pub fn decode_object<M: Message>(raw: &RawValue) -> Result<RawObject, WireError> {
        RawObject::parse(raw).map_err(|source| WireError {
            name: M::NAME,
            source,
        })
    }

    pub fn encode<M: Message + Serialize>(message: &M) -> Result<Box<RawValue>, WireError> {
        let raw = serde_json::value::to_raw_value(message).map_err(|source| WireError {
            name: M::NAME,
            source,
        })?;
        Ok(if raw.get() == "null" {
            RawObject::new().to_raw()
        } else {
            raw
        })
    }

    pub fn decode_plain<R: DeserializeOwned>(reply: RawReply) -> Result<R, Failure> {
        read(&reply?)
    }

    pub fn encode_plain<R: Serialize>(reply: R) -> RawReply {
        serde_json::value::to_raw_value(&reply)
            .map_err(|e| Failure::internal(format!("reply can't be written: {e}")))
    }

    pub fn decode_fallible<R: DeserializeOwned>(
        reply: RawReply,
    ) -> Result<Result<R, Failure>, Failure> {
        Ok(reply.and_then(|raw| read(&raw)))
    }

    pub fn encode_fallible<R: Serialize>(reply: Result<R, Failure>) -> RawReply {
        encode_plain(reply?)
    }

    pub fn schema<T: JsonSchema>() -> Value {
        schemars::SchemaGenerator::default()
            .into_root_schema_for::<T>()
            .to_value()
    }

    pub fn input_schema<M: JsonSchema>() -> Value {
        let mut schema = schema::<M>();
        if schema.get("type").is_none_or(|t| t == "null") && schema.get("$ref").is_none() {
            schema["type"] = Value::from("object");
        }
        schema
    }

    fn read<R: DeserializeOwned>(raw: &RawValue) -> Result<R, Failure> {
        serde_json::from_str(raw.get())
            .map_err(|e| Failure::internal(format!("reply can't be read: {e}")))
    }

    fn is_empty_object(raw: &RawValue) -> bool {
        raw.get()
            .trim_start_matches('{')
            .trim_end_matches('}')
            .trim()
            .is_empty()
    }
}
