//! Batches, which of all revisions of MCP only 2025-03-26 has.

use std::fmt;

use serde::Deserializer;
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::decode::{first, message, read, unknown};
use crate::{DecodeError, Incoming, Limits, Refusal};

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
    let (text, members) = read(body, limits)?;
    if first(text) != Some(b'[') {
        return message(text, members, limits).map(Body::One);
    }
    let entries_max = limits.batch_entries_max;
    let mut reader = serde_json::Deserializer::from_str(text);
    let entries = reader.deserialize_seq(Entries { entries_max }).map_err(|_| unknown(DecodeError::NotAnObject))?;
    match entries.len() {
        0 => Err(unknown(DecodeError::BatchEmpty)),
        many if many > entries_max => Err(unknown(DecodeError::BatchOver { entries_max })),
        _ => Ok(Body::Batch(entries.into_iter().map(|entry| one(entry.get(), limits)).collect())),
    }
}

fn one<'a>(entry: &'a str, limits: &Limits) -> Result<Incoming<'a>, Refusal> {
    let (text, members) = read(entry.as_bytes(), limits)?;
    message(text, members, limits)
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
