use derive_more::Debug;
use std::borrow::Cow;
use std::fmt;

use callboard_message::json::{raw_ref, text};
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::json::for_each_member;
use crate::{DecodeError, DecodeFailure, DecodeLimits, RequestId, RpcError};

/// Decoded JSON-RPC message. Params and results are raw JSON that is borrowed from the body.
#[derive(Debug)]
pub enum RpcMessage<'a> {
    /// A call that expects a response with its id.
    Request(RpcRequest<'a>),
    /// A call without a response.
    Notification(RpcNotification<'a>),
    /// Response to a request that this side has sent.
    Response(RpcResponse<'a>),
}

/// JSON-RPC request: a call with an id.
#[derive(Debug)]
// Payloads may hold patient text: they are never printed.
#[debug("Request({id}, {} bytes)", params.map_or(0, |params| params.get().len()))]
pub struct RpcRequest<'a> {
    /// Id of the request. The response repeats it as written.
    pub id: RequestId,
    /// Name of the method.
    pub method: String,
    /// Parameters: an object or an array.
    pub params: Option<&'a RawValue>,
}

/// JSON-RPC notification: a call without an id and without a response.
#[derive(Debug)]
// Payloads may hold patient text: they are never printed.
#[debug("Notification({} bytes)", params.map_or(0, |params| params.get().len()))]
pub struct RpcNotification<'a> {
    /// Name of the method.
    pub method: String,
    /// Parameters: an object or an array.
    pub params: Option<&'a RawValue>,
}

/// JSON-RPC response.
pub struct RpcResponse<'a> {
    /// Id of the request that is answered. `None` (`null`) occurs only in error responses, if the
    /// peer couldn't read the id.
    pub id: Option<RequestId>,
    /// Result as raw JSON (possibly `null`), or the error.
    pub outcome: Result<&'a RawValue, RpcError>,
}

/// Decodes a body with one JSON-RPC message. A message with the member `method` is a request or
/// notification; others are responses.
///
/// The whole body must be JSON (RFC 8259) within `limits`, without duplicate keys in any object, so
/// that every later reader sees the same values. Unknown members are ignored. `"error":null` beside
/// a result is tolerated, as is `"result":null` beside an error.
///
/// # Errors
/// Returns a [`DecodeFailure`]: the error to reply, with the message's id if it could be read. A
/// batch is rejected with [`DecodeError::Batch`].
pub fn decode<'a>(body: &'a [u8], limits: &DecodeLimits) -> Result<RpcMessage<'a>, DecodeFailure> {
    let mut found = EnvelopeMembers::default();
    let text = for_each_member(body, limits, &mut |name, value| {
        found.set_member(name, value)
    })
    .map_err(|e| failure_without_id(e.into()))?;
    match text
        .bytes()
        .find(|byte| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n'))
    {
        Some(b'{') => {}
        Some(b'[') => return Err(failure_without_id(DecodeError::Batch)),
        _ => return Err(failure_without_id(DecodeError::NotAnObject)),
    }
    let bad_id = DecodeError::Id {
        bytes_max: limits.id_bytes_max,
    };
    let id = match found.id {
        None => Ok(None),
        Some(NULL) if limits.allows_null_id && found.method.is_some() => {
            Ok(Some(RequestId::null()))
        }
        Some(written) if written.len() > limits.id_bytes_max => Err(bad_id),
        Some(written) => RequestId::from_json(written).map(Some).ok_or(bad_id),
    };
    // The failure is reported under the id, even if another member is wrong.
    let refuse = |id: Result<Option<RequestId>, DecodeError>, error| DecodeFailure {
        id: id.ok().flatten(),
        error,
    };

    if !found.jsonrpc.is_some_and(is_version) {
        return Err(refuse(id, DecodeError::Version));
    }
    let Some(method) = found.method else {
        return found
            .into_response(id.clone(), limits)
            .map(RpcMessage::Response)
            .map_err(|error| refuse(id, error));
    };
    let Some(method) = parse_string(method).filter(|name| name.len() <= limits.method_bytes_max)
    else {
        return Err(refuse(
            id,
            DecodeError::Method {
                bytes_max: limits.method_bytes_max,
            },
        ));
    };
    let id = id.map_err(failure_without_id)?;
    if !found
        .params
        .is_none_or(|params| params.starts_with(['{', '[']))
    {
        return Err(DecodeFailure {
            id,
            error: DecodeError::Params,
        });
    }
    let params = found.params.map(raw_ref);
    Ok(match id {
        Some(id) => RpcMessage::Request(RpcRequest { id, method, params }),
        None => RpcMessage::Notification(RpcNotification { method, params }),
    })
}

fn failure_without_id(error: DecodeError) -> DecodeFailure {
    DecodeFailure { id: None, error }
}

/// JSON texts of the members of a JSON-RPC message; `None` for a missing member.
#[derive(Default)]
struct EnvelopeMembers<'a> {
    jsonrpc: Option<&'a str>,
    id: Option<&'a str>,
    method: Option<&'a str>,
    params: Option<&'a str>,
    result: Option<&'a str>,
    error: Option<&'a str>,
}

/// Deserialises a member so that only a missing member is `None`, and `null` is `Some`.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl<'a> EnvelopeMembers<'a> {
    fn set_member(&mut self, name: &str, value: &'a str) {
        let place = match name {
            "jsonrpc" => &mut self.jsonrpc,
            "id" => &mut self.id,
            "method" => &mut self.method,
            "params" => &mut self.params,
            "result" => &mut self.result,
            "error" => &mut self.error,
            _ => return,
        };
        *place = Some(value);
    }

    fn into_response(
        self,
        id: Result<Option<RequestId>, DecodeError>,
        limits: &DecodeLimits,
    ) -> Result<RpcResponse<'a>, DecodeError> {
        let error = self.error.filter(|error| *error != NULL);
        match (self.result, error) {
            (None, None) if self.error.is_none() => Err(DecodeError::Method {
                bytes_max: limits.method_bytes_max,
            }),
            (None, None) => Err(DecodeError::Outcome),
            (Some(result), Some(_)) if result != NULL => Err(DecodeError::Outcome),
            (_, Some(error)) => {
                let id = if self.id.is_none_or(|id| id == NULL) {
                    None
                } else {
                    id?
                };
                Ok(RpcResponse {
                    id,
                    outcome: Err(read_error(error).ok_or(DecodeError::Error)?),
                })
            }
            (Some(result), None) => match id? {
                Some(id) => Ok(RpcResponse {
                    id: Some(id),
                    outcome: Ok(raw_ref(result)),
                }),
                None => Err(DecodeError::Id {
                    bytes_max: limits.id_bytes_max,
                }),
            },
        }
    }
}

const NULL: &str = "null";

fn is_version(written: &str) -> bool {
    // The version may be written with escapes, like any string.
    written == "\"2.0\"" || parse_string(written).as_deref() == Some("2.0")
}

fn parse_string(written: &str) -> Option<String> {
    text(raw_ref(written)).map(Cow::into_owned)
}

fn read_error(written: &str) -> Option<RpcError> {
    #[derive(Deserialize)]
    struct ErrorMembers<'a> {
        code: i64,
        message: String,
        // `null` counts as data.
        #[serde(borrow, default, deserialize_with = "present")]
        data: Option<&'a RawValue>,
    }
    // serde also reads a struct from an array, which is not a valid error object.
    let members: ErrorMembers<'_> = written
        .starts_with('{')
        .then(|| serde_json::from_str(written).ok())
        .flatten()?;
    Some(RpcError {
        data: members.data.map(RawValue::to_owned),
        ..RpcError::new(members.code, members.message)
    })
}

// Payloads may hold patient text: they are never printed.
impl fmt::Debug for RpcResponse<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.outcome {
            Ok(result) => write!(f, "Response({:?}, {} bytes)", self.id, result.get().len()),
            Err(error) => write!(f, "Response({:?}, {error:?})", self.id),
        }
    }
}

/// Decoded JSON-RPC body: one message or a batch.
#[derive(Debug)]
pub enum RpcBody<'a> {
    /// Single message. Its response must not be a batch.
    One(RpcMessage<'a>),
    /// Batch: its messages in order. An invalid entry is replaced by the failure to reply.
    Batch(Vec<Result<RpcMessage<'a>, DecodeFailure>>),
}

/// Decodes a body with one message or a batch, for protocol revisions that permit batches.
/// ([`decode`](crate::decode) rejects them.) An invalid entry of a batch is reported in its place
/// and doesn't affect the others.
///
/// # Errors
/// Returns a [`DecodeFailure`] for the whole body if it isn't JSON, exceeds `limits`, or is an
/// empty batch or an invalid single message.
pub fn decode_body<'a>(
    body: &'a [u8],
    limits: &DecodeLimits,
) -> Result<RpcBody<'a>, DecodeFailure> {
    match decode(body, limits) {
        Err(DecodeFailure {
            error: DecodeError::Batch,
            ..
        }) => {}
        one => return one.map(RpcBody::One),
    }
    let entries_max = limits.batch_entries_max;
    let mut reader = serde_json::Deserializer::from_slice(body);
    let entries = reader
        .deserialize_seq(BatchVisitor { entries_max })
        .map_err(|_| failure_without_id(DecodeError::NotAnObject))?;
    let one = |entry: &'a RawValue| match decode(entry.get().as_bytes(), limits) {
        // A nested batch is not a message.
        Err(DecodeFailure {
            error: DecodeError::Batch,
            ..
        }) => Err(failure_without_id(DecodeError::NotAnObject)),
        one => one,
    };
    match entries.len() {
        0 => Err(failure_without_id(DecodeError::BatchEmpty)),
        many if many > entries_max => {
            Err(failure_without_id(DecodeError::BatchOver { entries_max }))
        }
        _ => Ok(RpcBody::Batch(entries.into_iter().map(one).collect())),
    }
}

/// Joins encoded messages to a JSON array. Returns `None` if there are no messages, because an
/// empty batch must not be sent.
pub fn encode_batch(messages: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    for message in messages {
        out.push(if out.is_empty() { b'[' } else { b',' });
        out.extend_from_slice(message.as_ref());
    }
    if out.is_empty() {
        return None;
    }
    out.push(b']');
    Some(out)
}

/// Visitor that collects the entries of a batch. It stores at most one entry more than
/// `entries_max`, by which the caller detects that there are too many.
struct BatchVisitor {
    entries_max: usize,
}

impl<'de> Visitor<'de> for BatchVisitor {
    type Value = Vec<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut kept = Vec::new();
        while kept.len() <= self.entries_max {
            match entries.next_element()? {
                Some(entry) => kept.push(entry),
                None => return Ok(kept),
            }
        }
        while entries.next_element::<IgnoredAny>()?.is_some() {}
        Ok(kept)
    }
}
