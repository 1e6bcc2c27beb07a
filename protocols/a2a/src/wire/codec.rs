use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::prelude::BASE64_STANDARD;
use base64::{Engine as _, alphabet};
use bytes::Bytes;
use callboard_message::json::{Walk, quote_to, raw, text};
use callboard_message::time::{SECOND_MAX, read_rfc3339, rfc3339};
use callboard_message::{RawMembers, RawObject, TaskState};
use secrecy::{ExposeSecret, SecretString};
use serde_json::value::RawValue;

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
        ReadError {
            field: self.to_string().chars().take(FIELD_CHARS_MAX).collect(),
            why,
        }
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
    pub(crate) fn find(
        &self,
        name: &'static str,
        older: &[&'static str],
    ) -> Result<Option<&'a RawValue>, ReadError> {
        let mut same = self.named(name);
        let found = same.next();
        if same.next().is_some() {
            return Err(self.at(name).error("stands twice, in two spellings"));
        }
        Ok(found.or_else(|| older.iter().find_map(|name| self.named(name).next())))
    }

    fn named(&self, name: &'static str) -> impl Iterator<Item = &'a RawValue> {
        let is_it = move |(member, value): &(&str, &RawValue)| {
            is_named(member, name) && value.get() != "null"
        };
        self.all.iter().filter(is_it).map(|(_, value)| value)
    }

    /// Whether a member is there, `null` included.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.all.iter().any(|(member, _)| is_named(member, name))
    }

    pub(crate) fn at(&self, name: &'static str) -> At<'a> {
        At::Member(self.at, name)
    }

    /// Must be there, and not empty.
    pub(crate) fn required<T: Wire>(
        &self,
        name: &'static str,
        older: &[&'static str],
    ) -> Result<T, ReadError> {
        let found: Option<T> = self.optional(name, older)?;
        found
            .filter(|found| !found.is_blank())
            .ok_or_else(|| self.at(name).error("is missing"))
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
    pub(crate) fn always<T: Wire + Default>(
        &self,
        name: &'static str,
        older: &[&'static str],
    ) -> Result<T, ReadError> {
        self.default(name, older)
    }

    /// May be left out; blank isn't the same as left out.
    pub(crate) fn optional<T: Wire>(
        &self,
        name: &'static str,
        older: &[&'static str],
    ) -> Result<Option<T>, ReadError> {
        self.find(name, older)?
            .map(|raw| T::read(raw, &self.at(name)))
            .transpose()
    }

    /// As `optional`, but what can't be read is none: nothing depends on it.
    pub(crate) fn hint<T: Wire>(
        &self,
        name: &'static str,
        older: &[&'static str],
    ) -> Result<Option<T>, ReadError> {
        Ok(self.optional(name, older).unwrap_or_default())
    }

    /// A state to look for; the schema's zero is any.
    pub(crate) fn filter(
        &self,
        name: &'static str,
        older: &[&'static str],
    ) -> Result<Option<TaskState>, ReadError> {
        let any =
            |raw: &&RawValue| !matches!(raw.get(), "\"TASK_STATE_UNSPECIFIED\"" | "\"\"" | "0");
        self.find(name, older)?
            .filter(any)
            .map(|raw| TaskState::read(raw, &self.at(name)))
            .transpose()
    }

    /// A task's state. One that nobody knows is taken for `working`: more is to come.
    pub(crate) fn state(
        &self,
        name: &'static str,
        older: &[&'static str],
    ) -> Result<TaskState, ReadError> {
        let raw = self
            .find(name, older)?
            .ok_or_else(|| self.at(name).error("is missing"))?;
        Ok(TaskState::read(raw, &self.at(name)).unwrap_or(TaskState::Working))
    }
}

/// Whether a member has the name, in camel or in snake case.
fn is_named(member: &str, name: &str) -> bool {
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

/// Writes JSON at the end of a text.
pub struct Writer<'a> {
    out: &'a mut String,
}

impl<'a> Writer<'a> {
    /// At the end of `out`.
    pub fn new(out: &'a mut String) -> Self {
        Self { out }
    }

    /// A string.
    pub fn text(&mut self, text: &str) {
        quote_to(text, self.out);
    }

    /// What is JSON already.
    pub fn json(&mut self, json: &str) {
        self.out.push_str(json);
    }

    /// The text itself, for who writes strings that need no escapes.
    pub(crate) fn out(&mut self) -> &mut String {
        self.out
    }

    pub(crate) fn object(&mut self) -> ObjectWriter<'_> {
        Writer::new(self.out).into_object()
    }

    /// An object that outlives this writer.
    pub(crate) fn into_object(self) -> ObjectWriter<'a> {
        self.out.push('{');
        ObjectWriter { out: self.out }
    }

    /// A list whose entries `write` writes.
    pub(crate) fn list<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(T, &mut Writer<'_>),
    ) {
        self.out.push('[');
        for (nth, item) in items.into_iter().enumerate() {
            if nth > 0 {
                self.out.push(',');
            }
            write(item, self);
        }
        self.out.push(']');
    }
}

/// JSON that `write` writes.
pub(crate) fn written(write: impl FnOnce(&mut Writer<'_>)) -> Box<RawValue> {
    written_about(WRITTEN_ROOM_BYTES, write)
}

/// Room for what is written, in bytes, until it turns out to be more.
const WRITTEN_ROOM_BYTES: usize = 512;

/// The same, of about so many bytes.
pub(crate) fn written_about(bytes: usize, write: impl FnOnce(&mut Writer<'_>)) -> Box<RawValue> {
    let mut out = String::with_capacity(bytes);
    write(&mut Writer::new(&mut out));
    // What a writer writes is JSON.
    raw(out)
}

/// An object that is being written. Ends with [`ObjectWriter::end`].
pub(crate) struct ObjectWriter<'a> {
    out: &'a mut String,
}

impl ObjectWriter<'_> {
    /// A member's name, of letters and the like only; its value follows.
    pub(crate) fn member(&mut self, name: &'static str) -> Writer<'_> {
        self.out
            .push_str(if self.is_empty() { "\"" } else { ",\"" });
        self.out.push_str(name);
        self.out.push_str("\":");
        Writer::new(self.out)
    }

    /// The same with any name.
    pub(crate) fn named(&mut self, name: &str) -> Writer<'_> {
        if !self.is_empty() {
            self.out.push(',');
        }
        quote_to(name, self.out);
        self.out.push(':');
        Writer::new(self.out)
    }

    /// No value ends like the object's beginning.
    fn is_empty(&self) -> bool {
        self.out.ends_with('{')
    }

    pub(crate) fn end(self) {
        self.out.push('}');
    }

    pub(crate) fn always<T: Wire>(&mut self, name: &'static str, value: &T) {
        value.write(&mut self.member(name));
    }

    pub(crate) fn required<T: Wire>(&mut self, name: &'static str, value: &T) {
        self.always(name, value);
    }

    pub(crate) fn default<T: Wire>(&mut self, name: &'static str, value: &T) {
        if !value.is_blank() {
            self.always(name, value);
        }
    }

    pub(crate) fn optional<T: Wire>(&mut self, name: &'static str, value: &Option<T>) {
        if let Some(value) = value {
            self.always(name, value);
        }
    }

    pub(crate) fn hint<T: Wire>(&mut self, name: &'static str, value: &Option<T>) {
        self.optional(name, value);
    }

    pub(crate) fn filter(&mut self, name: &'static str, value: &Option<TaskState>) {
        self.optional(name, value);
    }

    pub(crate) fn state(&mut self, name: &'static str, value: &TaskState) {
        self.always(name, value);
    }

    pub(crate) fn text(&mut self, name: &'static str, value: &str) {
        self.member(name).text(value);
    }

    /// A list whose entries `write` writes.
    pub(crate) fn list<T>(
        &mut self,
        name: &'static str,
        items: impl IntoIterator<Item = T>,
        write: impl FnMut(T, &mut Writer<'_>),
    ) {
        self.member(name).list(items, write);
    }

    /// A string, unless it is empty.
    pub(crate) fn words(&mut self, name: &'static str, value: &str) {
        if !value.is_empty() {
            self.text(name, value);
        }
    }
}

impl Wire for String {
    // A number is taken for its digits: some ids are.
    fn read(raw: &RawValue, at: &At<'_>) -> Result<Self, ReadError> {
        let digits = || {
            raw.get()
                .starts_with(|c: char| c == '-' || c.is_ascii_digit())
                .then(|| raw.get().into())
        };
        text(raw)
            .or_else(digits)
            .map(Cow::into_owned)
            .ok_or_else(|| at.error("must be a string"))
    }

    fn write(&self, out: &mut Writer<'_>) {
        out.text(self);
    }

    fn is_blank(&self) -> bool {
        self.is_empty()
    }
}

impl Wire for SecretString {
    fn read(raw: &RawValue, at: &At<'_>) -> Result<Self, ReadError> {
        String::read(raw, at).map(Self::from)
    }

    // Only push configurations hold secrets, and only their owner is given them.
    fn write(&self, out: &mut Writer<'_>) {
        out.text(self.expose_secret());
    }

    fn is_blank(&self) -> bool {
        self.expose_secret().is_empty()
    }
}

impl Wire for bool {
    fn read(raw: &RawValue, at: &At<'_>) -> Result<Self, ReadError> {
        match raw.get().trim_matches('"') {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(at.error("must be true or false")),
        }
    }

    fn write(&self, out: &mut Writer<'_>) {
        out.json(if *self { "true" } else { "false" });
    }

    fn is_blank(&self) -> bool {
        !self
    }
}

impl Wire for i32 {
    fn read(raw: &RawValue, at: &At<'_>) -> Result<Self, ReadError> {
        let digits = raw.get().trim_matches('"');
        let whole = || {
            let number: f64 = digits.parse().ok()?;
            (number.fract() == 0.0 && number.abs() <= f64::from(Self::MAX))
                .then_some(number as Self)
        };
        digits
            .parse()
            .ok()
            .or_else(whole)
            .ok_or_else(|| at.error("must be a whole number"))
    }

    fn write(&self, out: &mut Writer<'_>) {
        out.json(&self.to_string());
    }

    fn is_blank(&self) -> bool {
        *self == 0
    }
}

impl Wire for RawObject {
    fn read(raw: &RawValue, at: &At<'_>) -> Result<Self, ReadError> {
        Self::parse(raw).map_err(|_| at.error("must be an object"))
    }

    fn write(&self, out: &mut Writer<'_>) {
        self.write_with(&[], out.out());
    }
}

impl Wire for Box<RawValue> {
    fn read(raw: &RawValue, _: &At<'_>) -> Result<Self, ReadError> {
        Ok(raw.to_owned())
    }

    fn write(&self, out: &mut Writer<'_>) {
        out.json(self.get());
    }
}

/// Whichever alphabet a peer writes, it may leave the padding out.
const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

impl Wire for Bytes {
    fn read(raw: &RawValue, at: &At<'_>) -> Result<Self, ReadError> {
        let wrong = || at.error("must be base64");
        let text = text(raw).ok_or_else(wrong)?;
        let engine = if text.contains(['-', '_']) {
            URL_SAFE
        } else {
            STANDARD
        };
        engine
            .decode(text.as_bytes())
            .map(Self::from)
            .map_err(|_| wrong())
    }

    fn write(&self, out: &mut Writer<'_>) {
        let out = out.out();
        out.push('"');
        BASE64_STANDARD.encode_string(self, out);
        out.push('"');
    }
}

impl Wire for SystemTime {
    // A number is of seconds.
    fn read(raw: &RawValue, at: &At<'_>) -> Result<Self, ReadError> {
        let of_seconds = || {
            let since = Duration::try_from_secs_f64(raw.get().parse().ok()?).ok()?;
            UNIX_EPOCH
                .checked_add(since)
                .filter(|_| since.as_secs() <= SECOND_MAX)
        };
        let read = text(raw)
            .and_then(|text| read_rfc3339(&text))
            .or_else(of_seconds);
        read.ok_or_else(|| at.error("must be a time as of RFC 3339"))
    }

    fn write(&self, out: &mut Writer<'_>) {
        out.text(&rfc3339(*self));
    }
}

/// In the order of their numbers in the schema, from 1 on.
const STATES: [(TaskState, &str); 8] = [
    (TaskState::Submitted, "SUBMITTED"),
    (TaskState::Working, "WORKING"),
    (TaskState::Completed, "COMPLETED"),
    (TaskState::Failed, "FAILED"),
    (TaskState::Canceled, "CANCELED"),
    (TaskState::InputRequired, "INPUT_REQUIRED"),
    (TaskState::Rejected, "REJECTED"),
    (TaskState::AuthRequired, "AUTH_REQUIRED"),
];

impl Wire for TaskState {
    fn read(raw: &RawValue, at: &At<'_>) -> Result<Self, ReadError> {
        let numbered = || {
            Some(
                STATES
                    .get(raw.get().parse::<usize>().ok()?.checked_sub(1)?)?
                    .0,
            )
        };
        let read = text(raw).and_then(|name| state_of(&name)).or_else(numbered);
        read.ok_or_else(|| at.error("names no state of a task"))
    }

    fn write(&self, out: &mut Writer<'_>) {
        let name = STATES
            .iter()
            .find(|(state, _)| state == self)
            .map_or("UNSPECIFIED", |(_, name)| name);
        for part in ["\"TASK_STATE_", name, "\""] {
            out.json(part);
        }
    }
}

/// The state that a name is of, in any version's spelling.
pub(crate) fn state_of(name: &str) -> Option<TaskState> {
    let name = constant(name, "TASK_STATE_");
    let name = if name == "CANCELLED" {
        "CANCELED"
    } else {
        &*name
    };
    STATES
        .iter()
        .find(|(_, of_state)| *of_state == name)
        .map(|(state, _)| *state)
}

/// A constant's name in capitals, `_` between its words, without its prefix.
pub(crate) fn constant<'a>(name: &str, prefix: &str) -> Cow<'a, str> {
    let name = name.to_ascii_uppercase().replace('-', "_");
    name.strip_prefix(prefix)
        .map_or_else(|| name.clone(), str::to_owned)
        .into()
}

/// A list's entries as they came. One that stands alone is a list of one.
pub(crate) fn entries<'a>(raw: &'a RawValue, at: &At<'_>) -> Result<Vec<&'a RawValue>, ReadError> {
    match raw.get().starts_with('[') {
        true => Walk::list(raw)
            .map(Iterator::collect)
            .ok_or_else(|| at.error("must be a list")),
        false => Ok(vec![raw]),
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn read(raw: &RawValue, at: &At<'_>) -> Result<Self, ReadError> {
        // An error in one that stands alone names no place in a list.
        if !raw.get().starts_with('[') {
            return Ok(vec![T::read(raw, at)?]);
        }
        entries(raw, at)?
            .iter()
            .enumerate()
            .map(|(nth, raw)| T::read(raw, &At::Entry(at, nth)))
            .collect()
    }

    fn write(&self, out: &mut Writer<'_>) {
        out.list(self, T::write);
    }

    fn is_blank(&self) -> bool {
        self.is_empty()
    }
}

impl<T: Wire> Wire for BTreeMap<String, T> {
    fn read(raw: &RawValue, at: &At<'_>) -> Result<Self, ReadError> {
        let members = RawMembers::parse(raw).map_err(|_| at.error("must be an object"))?;
        members
            .iter()
            .map(|(name, raw)| Ok((name.to_owned(), T::read(raw, &At::Member(at, name))?)))
            .collect()
    }

    fn write(&self, out: &mut Writer<'_>) {
        let mut object = out.object();
        for (name, value) in self {
            value.write(&mut object.named(name));
        }
        object.end();
    }

    fn is_blank(&self) -> bool {
        self.is_empty()
    }
}
