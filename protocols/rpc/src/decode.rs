use derive_more::Debug;
use std::borrow::Cow;
use std::fmt;

use callboard_message::json::{raw_ref, text};
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::json::members;
use crate::{DecodeError, Id, Limits, Refusal, RpcError};

/// One message as it came, its payload raw and borrowed from the body.
#[derive(Debug)]
pub enum Incoming<'a> {
    /// Wants a response under its id.
    Request(Request<'a>),
    /// Wants none.
    Notification(Notification<'a>),
    /// Answers a request of ours.
    Response(Response<'a>),
}

/// A call with an id.
#[derive(Debug)]
// Payloads may hold patient text: they are never printed.
#[debug("Request({id}, {} bytes)", params.map_or(0, |params| params.get().len()))]
pub struct Request<'a> {
    /// Goes back with the response, byte for byte.
    pub id: Id,
    /// What to do.
    pub method: String,
    /// An object or an array.
    pub params: Option<&'a RawValue>,
}

/// A call without an id.
#[derive(Debug)]
// Payloads may hold patient text: they are never printed.
#[debug("Notification({} bytes)", params.map_or(0, |params| params.get().len()))]
pub struct Notification<'a> {
    /// What happened.
    pub method: String,
    /// An object or an array.
    pub params: Option<&'a RawValue>,
}

/// What came back to a request.
pub struct Response<'a> {
    /// The request's id; `None` (`null`) only with an error, from a peer that couldn't read it.
    pub id: Option<Id>,
    /// The result, which may be `null`, or the error.
    pub outcome: Result<&'a RawValue, RpcError>,
}

/// Reads one message. Requests are told from responses by `method`.
///
/// The whole text, payloads included, is held to RFC 8259 and `limits`, and no object in it has a key twice: whoever
/// reads it later reads the same. Unknown members are ignored. `"error":null` beside a result is tolerated, as is
/// `"result":null` beside an error.
///
/// # Errors
/// A [`Refusal`] with the code to answer, and the id to answer it under where that could be read.
pub fn decode<'a>(body: &'a [u8], limits: &Limits) -> Result<Incoming<'a>, Refusal> {
    let mut found = Members::default();
    let text = members(body, limits, &mut |name, value| found.put(name, value))
        .map_err(|e| unknown(e.into()))?;
    match first(text) {
        Some(b'{') => found.message(limits),
        Some(b'[') => Err(unknown(DecodeError::Batch)),
        _ => Err(unknown(DecodeError::NotAnObject)),
    }
}

/// What a text begins with, white space apart.
fn first(text: &str) -> Option<u8> {
    text.bytes()
        .find(|byte| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n'))
}

fn unknown(error: DecodeError) -> Refusal {
    Refusal { id: None, error }
}

/// The members of a message, each as it is written.
#[derive(Default)]
struct Members<'a> {
    jsonrpc: Option<&'a str>,
    id: Option<&'a str>,
    method: Option<&'a str>,
    params: Option<&'a str>,
    result: Option<&'a str>,
    error: Option<&'a str>,
}

/// Tells a member that is `null` from one that is missing.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl<'a> Members<'a> {
    fn put(&mut self, name: &str, value: &'a str) {
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

    fn message(self, limits: &Limits) -> Result<Incoming<'a>, Refusal> {
        let bad_id = DecodeError::Id {
            bytes_max: limits.id_bytes_max,
        };
        let id = match self.id {
            None => Ok(None),
            Some(written) if written.len() > limits.id_bytes_max => Err(bad_id),
            Some(written) => Id::parse(written).map(Some).ok_or(bad_id),
        };
        // A refusal goes under the id even when it is about another member.
        let refuse = |id: Result<Option<Id>, DecodeError>, error| Refusal {
            id: id.ok().flatten(),
            error,
        };

        if !self.jsonrpc.is_some_and(is_version) {
            return Err(refuse(id, DecodeError::Version));
        }
        let Some(method) = self.method else {
            return self
                .response(id.clone(), limits)
                .map(Incoming::Response)
                .map_err(|error| refuse(id, error));
        };
        let Some(method) = string(method).filter(|name| name.len() <= limits.method_bytes_max)
        else {
            return Err(refuse(
                id,
                DecodeError::Method {
                    bytes_max: limits.method_bytes_max,
                },
            ));
        };
        let id = id.map_err(unknown)?;
        if !self
            .params
            .is_none_or(|params| params.starts_with(['{', '[']))
        {
            return Err(Refusal {
                id,
                error: DecodeError::Params,
            });
        }
        let params = self.params.map(raw_ref);
        Ok(match id {
            Some(id) => Incoming::Request(Request { id, method, params }),
            None => Incoming::Notification(Notification { method, params }),
        })
    }

    fn response(
        self,
        id: Result<Option<Id>, DecodeError>,
        limits: &Limits,
    ) -> Result<Response<'a>, DecodeError> {
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
                Ok(Response {
                    id,
                    outcome: Err(read_error(error).ok_or(DecodeError::Error)?),
                })
            }
            (Some(result), None) => match id? {
                Some(id) => Ok(Response {
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
    // An escaped one is a string like any other.
    written == "\"2.0\"" || string(written).as_deref() == Some("2.0")
}

fn string(written: &str) -> Option<String> {
    text(raw_ref(written)).map(Cow::into_owned)
}

fn read_error(written: &str) -> Option<RpcError> {
    #[derive(Deserialize)]
    struct ErrorMembers<'a> {
        code: i64,
        message: String,
        // `null` is data too.
        #[serde(borrow, default, deserialize_with = "present")]
        data: Option<&'a RawValue>,
    }
    // A struct can be read from an array too, which no error is.
    let members: ErrorMembers<'_> = written
        .starts_with('{')
        .then(|| serde_json::from_str(written).ok())
        .flatten()?;
    Some(RpcError {
        code: members.code,
        message: members.message,
        data: members.data.map(RawValue::to_owned),
    })
}

// Payloads may hold patient text: they are never printed.
impl fmt::Debug for Response<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.outcome {
            Ok(result) => write!(f, "Response({:?}, {} bytes)", self.id, result.get().len()),
            Err(error) => write!(f, "Response({:?}, {error:?})", self.id),
        }
    }
}

/// A body that may hold several messages.
#[derive(Debug)]
pub enum Body<'a> {
    /// One message, not in a batch: its answer is in none either.
    One(Incoming<'a>),
    /// A batch, in its order: each entry a message or the refusal to answer it with.
    Batch(Vec<Result<Incoming<'a>, Refusal>>),
}

/// Reads one message, or a batch of them: for revisions that have batches. [`decode`](crate::decode) refuses them.
///
/// An entry that is no message costs only itself.
///
/// # Errors
/// A [`Refusal`] of the whole body: no JSON, over `limits`, an empty batch, or one message that is none.
pub fn decode_body<'a>(body: &'a [u8], limits: &Limits) -> Result<Body<'a>, Refusal> {
    match decode(body, limits) {
        Err(Refusal {
            error: DecodeError::Batch,
            ..
        }) => {}
        one => return one.map(Body::One),
    }
    let entries_max = limits.batch_entries_max;
    let mut reader = serde_json::Deserializer::from_slice(body);
    let entries = reader
        .deserialize_seq(Entries { entries_max })
        .map_err(|_| unknown(DecodeError::NotAnObject))?;
    let one = |entry: &'a RawValue| match decode(entry.get().as_bytes(), limits) {
        // A batch in a batch is no message.
        Err(Refusal {
            error: DecodeError::Batch,
            ..
        }) => Err(unknown(DecodeError::NotAnObject)),
        one => one,
    };
    match entries.len() {
        0 => Err(unknown(DecodeError::BatchEmpty)),
        many if many > entries_max => Err(unknown(DecodeError::BatchOver { entries_max })),
        _ => Ok(Body::Batch(entries.into_iter().map(one).collect())),
    }
}

/// Writes a batch of messages that are written already; `None` when there is none, for then nothing may be sent.
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

/// Keeps one entry more than are allowed, however many there are.
struct Entries {
    entries_max: usize,
}

impl<'de> Visitor<'de> for Entries {
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
