use std::fmt;

use callboard_message::{RawMembers, TaskState};
use serde_json::value::RawValue;

use crate::wire::{Writer, written};

/// What stands on the wire: read leniently, written as ProtoJSON.
pub trait Wire: Sized {
    /// Reads it; `at` says where `raw` stands, for the error.
    ///
    /// # Errors
    /// The first field that doesn't fit.
    fn read(raw: &RawValue, at: &At<'_>) -> Result<Self, ReadError>;

    /// Writes it at the end of `out`.
    fn write(&self, out: &mut Writer<'_>);

    /// Whether it is what ProtoJSON leaves out.
    fn is_blank(&self) -> bool {
        false
    }

    /// Reads a whole text.
    ///
    /// # Errors
    /// As [`Wire::read`].
    fn from_raw(raw: &RawValue) -> Result<Self, ReadError> {
        Self::read(raw, &At::Root)
    }

    /// Its JSON.
    fn to_json(&self) -> String {
        let mut out = String::new();
        self.write(&mut Writer::new(&mut out));
        out
    }

    /// Its JSON, to be put into another.
    fn to_raw(&self) -> Box<RawValue> {
        written(|out| self.write(out))
    }
}

/// A place in what is read. Only errors spell it out.
#[derive(Clone, Copy)]
pub enum At<'a> {
    /// All of it.
    Root,
    /// A member of an object.
    Member(&'a At<'a>, &'a str),
    /// An entry of a list.
    Entry(&'a At<'a>, usize),
}

impl At<'_> {
    /// An error here.
    pub fn error(&self, why: &'static str) -> ReadError {
        // A name that a peer chose can be of any length.
        ReadError { field: self.to_string().chars().take(FIELD_CHARS_MAX).collect(), why }
    }
}

/// Longest name of a field in an error, in characters.
const FIELD_CHARS_MAX: usize = 200;

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Member(Self::Root, name) => f.write_str(name),
            Self::Member(of, name) => write!(f, "{of}.{name}"),
            Self::Entry(of, nth) => write!(f, "{of}[{nth}]"),
        }
    }
}

/// A field that doesn't fit. It never holds a value: what was sent may be anybody's data.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {why}")]
pub struct ReadError {
    /// For example `message.parts[0].text`; empty is all of it.
    pub field: String,
    /// What is wrong with it, for example `is missing`.
    pub why: &'static str,
}

/// An object that is being read, member by member; a method is a kind of member.
pub(crate) struct Members<'a> {
    all: RawMembers<'a>,
    at: &'a At<'a>,
}

impl<'a> Members<'a> {
    pub(crate) fn of(raw: &'a RawValue, at: &'a At<'a>) -> Result<Self, ReadError> {
        let all = RawMembers::parse(raw).map_err(|_| at.error("must be an object"))?;
        Ok(Self { all, at })
    }

    /// The member of a name, or of an older one; `null` is none.
    pub(crate) fn find(&self, name: &'static str, older: &[&'static str]) -> Result<Option<&'a RawValue>, ReadError> {
        let mut present = self.all.iter().filter(|(_, value)| value.get() != "null");
        let mut same = present.by_ref().filter(|(member, _)| is_named(member, name));
        let found = same.next();
        if same.next().is_some() {
            return Err(self.at(name).error("stands twice, in two spellings"));
        }
        let of_older =
            |name: &&str| self.all.iter().find(|(member, value)| is_named(member, name) && value.get() != "null");
        Ok(found.or_else(|| older.iter().find_map(of_older)).map(|(_, value)| value))
    }

    /// Whether a member is there, `null` included.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.all.iter().any(|(member, _)| is_named(member, name))
    }

    pub(crate) fn at(&self, name: &'static str) -> At<'a> {
        At::Member(self.at, name)
    }

    /// Must be there, and not empty.
    pub(crate) fn required<T: Wire>(&self, name: &'static str, older: &[&'static str]) -> Result<T, ReadError> {
        let at = self.at(name);
        let found = self.find(name, older)?.map(|raw| T::read(raw, &at)).transpose()?;
        found.filter(|found| !found.is_blank()).ok_or_else(|| at.error("is missing"))
    }

    /// May be left out, is written unless blank.
    pub(crate) fn default<T: Wire + Default>(
        &self,
        name: &'static str,
        older: &[&'static str],
    ) -> Result<T, ReadError> {
        Ok(self.optional(name, older)?.unwrap_or_default())
    }

    /// May be left out, is always written.
    pub(crate) fn always<T: Wire + Default>(&self, name: &'static str, older: &[&'static str]) -> Result<T, ReadError> {
        self.default(name, older)
    }

    /// May be left out; blank isn't the same as left out.
    pub(crate) fn optional<T: Wire>(&self, name: &'static str, older: &[&'static str]) -> Result<Option<T>, ReadError> {
        self.find(name, older)?.map(|raw| T::read(raw, &self.at(name))).transpose()
    }

    /// As `optional`, but what can't be read is none: nothing depends on it.
    pub(crate) fn hint<T: Wire>(&self, name: &'static str, older: &[&'static str]) -> Result<Option<T>, ReadError> {
        Ok(self.optional(name, older).unwrap_or_default())
    }

    /// A state to look for; the schema's zero is any.
    pub(crate) fn filter(&self, name: &'static str, older: &[&'static str]) -> Result<Option<TaskState>, ReadError> {
        let any = |raw: &&RawValue| !matches!(raw.get(), "\"TASK_STATE_UNSPECIFIED\"" | "\"\"" | "0");
        self.find(name, older)?.filter(any).map(|raw| TaskState::read(raw, &self.at(name))).transpose()
    }

    /// A task's state. One that nobody knows is taken for `working`: more is to come.
    pub(crate) fn state(&self, name: &'static str, older: &[&'static str]) -> Result<TaskState, ReadError> {
        let raw = self.find(name, older)?.ok_or_else(|| self.at(name).error("is missing"))?;
        Ok(TaskState::read(raw, &self.at(name)).unwrap_or(TaskState::Working))
    }
}

/// Whether a member has the name, in camel or in snake case.
pub(crate) fn is_named(member: &str, name: &str) -> bool {
    // In snake case it is longer.
    if member.len() <= name.len() {
        return member == name;
    }
    let mut left = member.bytes();
    let is_next = |byte: u8, left: &mut std::str::Bytes<'_>| match byte.is_ascii_uppercase() {
        true => left.next() == Some(b'_') && left.next() == Some(byte.to_ascii_lowercase()),
        false => left.next() == Some(byte),
    };
    name.bytes().all(|byte| is_next(byte, &mut left)) && left.next().is_none()
}
