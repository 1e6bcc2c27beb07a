use derive_more::Debug;
use std::fmt;
use std::hash::{Hash, Hasher};

use callboard_message::json::quote;
use serde_json::value::RawValue;

use crate::json::unescaped;

/// What pairs a response with its request: a string or an integer, kept as it was written.
///
/// `1` and `"1"` differ; so do `1` and `1.0`, which is no id at all. Integers may have any size. Two ids are equal when
/// their values are, however a string was escaped.
#[derive(Debug, Clone)]
#[debug("Id({written})")]
pub struct Id {
    written: Box<str>,
    /// The value of a string that was written with escapes.
    unescaped: Option<Box<str>>,
}

impl Id {
    /// A string id.
    pub fn text(value: &str) -> Self {
        let written = quote(value).into_boxed_str();
        let unescaped = unescaped(&written).is_none().then(|| value.into());
        Self { written, unescaped }
    }

    /// An integer id.
    pub fn integer(value: i64) -> Self {
        Self {
            written: value.to_string().into_boxed_str(),
            unescaped: None,
        }
    }

    /// Reads an id as it stands in a message; `None` when it is neither a string nor an integer.
    pub fn read(raw: &RawValue) -> Option<Self> {
        Self::parse(raw.get())
    }

    /// The same, from one JSON value.
    pub(crate) fn parse(written: &str) -> Option<Self> {
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

    /// As it is written in a message, quotes and escapes included.
    pub fn as_json(&self) -> &str {
        &self.written
    }

    /// A string's value; `None` for an integer.
    pub fn as_text(&self) -> Option<&str> {
        self.unescaped
            .as_deref()
            .or_else(|| unescaped(&self.written))
    }

    /// What makes two ids equal: whether it is a string, and its value.
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

impl PartialEq for Id {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Id {}

impl Hash for Id {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_json())
    }
}
