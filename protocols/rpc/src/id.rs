use derive_more::Debug;
use std::fmt;
use std::hash::{Hash, Hasher};

use callboard_message::json::quote;
use serde_json::value::RawValue;

use crate::json::unescaped;

/// JSON-RPC id, which pairs a response with its request: a string or an integer, kept as written,
/// or `null` where [`DecodeLimits::allows_null_id`](crate::DecodeLimits::allows_null_id) permits
/// it.
///
/// The integer `1` and the string `"1"` differ; `1.0` is not a valid id. Integers may have any
/// size. String ids are equal if their unescaped values are.
#[derive(Debug, Clone)]
#[debug("Id({written})")]
pub struct RequestId {
    written: Box<str>,
    /// Unescaped value of a string id that was written with escapes; `None` for all other ids.
    unescaped: Option<Box<str>>,
}

impl RequestId {
    /// Creates a string id.
    pub fn text(value: &str) -> Self {
        let written = quote(value).into_boxed_str();
        let unescaped = unescaped(&written).is_none().then(|| value.into());
        Self { written, unescaped }
    }

    /// Creates an integer id.
    pub fn integer(value: i64) -> Self {
        Self {
            written: value.to_string().into_boxed_str(),
            unescaped: None,
        }
    }

    /// Creates the id `null`.
    pub(crate) fn null() -> Self {
        Self {
            written: "null".into(),
            unescaped: None,
        }
    }

    /// Parses an id from its JSON value; `None` if it is neither a string nor an integer.
    pub fn from_raw(raw: &RawValue) -> Option<Self> {
        Self::from_json(raw.get())
    }

    /// Parses an id from JSON text, which must be one JSON value; `None` if it is neither a string
    /// nor an integer.
    pub(crate) fn from_json(written: &str) -> Option<Self> {
        let unescaped = match written.starts_with('"') {
            true if unescaped(written).is_some() => None,
            true => Some(
                serde_json::from_str::<String>(written)
                    .ok()?
                    .into_boxed_str(),
            ),
            false if is_integer(written) => None,
            false => return None,
        };
        Some(Self {
            written: written.into(),
            unescaped,
        })
    }

    /// Returns the id as JSON text, with quotes and escapes.
    pub fn as_json(&self) -> &str {
        &self.written
    }

    /// Returns the value of a string id; `None` for an integer or `null`.
    pub fn as_text(&self) -> Option<&str> {
        self.unescaped
            .as_deref()
            .or_else(|| unescaped(&self.written))
    }

    /// Returns the key for equality and hashing: whether the id is a string, and its unescaped
    /// value.
    fn key(&self) -> (bool, &str) {
        match (self.as_text(), &*self.written) {
            (Some(text), _) => (true, text),
            (None, "-0") => (false, "0"),
            (None, digits) => (false, digits),
        }
    }
}

fn is_integer(written: &str) -> bool {
    let digits = written.strip_prefix('-').unwrap_or(written);
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
}

impl PartialEq for RequestId {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for RequestId {}

impl Hash for RequestId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_json())
    }
}
