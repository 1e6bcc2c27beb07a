use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::prelude::BASE64_STANDARD;
use base64::{Engine as _, alphabet};
use bytes::Bytes;
use callboard_message::json::{RawCursor, quote_into, raw_from_written, text};
use callboard_message::time::{UNIX_SECOND_MAX, format_rfc3339, parse_rfc3339};
use callboard_message::{RawMembers, RawObject, TaskState};
use secrecy::{ExposeSecret, SecretString};
use serde_json::value::RawValue;

/// A type that is read leniently from JSON and written as ProtoJSON.
pub trait WireType: Sized {
    /// Reads a value. `at` is the path of `raw`, for the error.
    ///
    /// # Errors
    /// [`ReadError`] for the first invalid field.
    fn read(raw: &RawValue, at: &FieldPath<'_>) -> Result<Self, ReadError>;

    /// Appends the value's JSON to `out`.
    fn write(&self, out: &mut JsonWriter<'_>);

    /// Returns whether the value is its type's default, which ProtoJSON omits.
    fn is_blank(&self) -> bool {
        false
    }

    /// Reads a value from a whole JSON text.
    ///
    /// # Errors
    /// As [`WireType::read`].
    fn from_raw(raw: &RawValue) -> Result<Self, ReadError> {
        Self::read(raw, &FieldPath::Root)
    }

    /// Returns the value's JSON.
    fn to_json(&self) -> String {
        let mut out = String::new();
        self.write(&mut JsonWriter::new(&mut out));
        out
    }

    /// Returns the value's JSON as a raw value, for embedding in other JSON.
    fn to_raw(&self) -> Box<RawValue> {
        write_json(|out| self.write(out))
    }
}

/// Path of a field within the JSON that is being read. It is formatted only for errors.
#[derive(Clone, Copy)]
pub enum FieldPath<'a> {
    /// The whole value.
    Root,
    /// A member of an object: path of the object and name of the member.
    Member(&'a FieldPath<'a>, &'a str),
    /// An entry of a list: path of the list and index of the entry.
    Entry(&'a FieldPath<'a>, usize),
}

impl FieldPath<'_> {
    /// Creates an error about the field at this path. `why` continues the sentence, for example `is
    /// missing`.
    pub fn error(&self, why: &'static str) -> ReadError {
        // Peers choose some names, which can be of any length.
        ReadError {
            field: self.to_string().chars().take(FIELD_CHARS_MAX).collect(),
            why,
        }
    }
}

/// Maximum length of a field's path in an error, in characters. Longer paths are cut.
const FIELD_CHARS_MAX: usize = 200;

impl fmt::Display for FieldPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Member(Self::Root, name) => f.write_str(name),
            Self::Member(of, name) => write!(f, "{of}.{name}"),
            Self::Entry(of, nth) => write!(f, "{of}[{nth}]"),
        }
    }
}

/// An invalid or missing field. It never contains the value, because the sender's data may be
/// confidential.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {why}")]
pub struct ReadError {
    /// Path of the field, for example `message.parts[0].text`; empty for the whole value.
    pub field: String,
    /// Problem as a predicate, for example `is missing`.
    pub why: &'static str,
}

/// Reader for the members of a JSON object. Its methods are the field kinds of the macro `wire!`,
/// except `parse`, `find`, `has` and `at`.
pub(crate) struct ObjectReader<'a> {
    all: RawMembers<'a>,
    at: &'a FieldPath<'a>,
}

impl<'a> ObjectReader<'a> {
    pub(crate) fn parse(raw: &'a RawValue, at: &'a FieldPath<'a>) -> Result<Self, ReadError> {
        let all = RawMembers::parse(raw).map_err(|_| at.error("must be an object"))?;
        Ok(Self { all, at })
    }

    /// Returns the member with this name in camel or snake case, else with one of the older names.
    /// `null` counts as absent. Fails if the name occurs in both spellings.
    pub(crate) fn find(
        &self,
        name: &'static str,
        older: &[&'static str],
    ) -> Result<Option<&'a RawValue>, ReadError> {
        let mut same = self.values_named(name);
        let found = same.next();
        if same.next().is_some() {
            return Err(self.at(name).error("occurs twice, in two spellings"));
        }
        Ok(found.or_else(|| older.iter().find_map(|name| self.values_named(name).next())))
    }

    fn values_named(&self, name: &'static str) -> impl Iterator<Item = &'a RawValue> {
        let is_it = move |(member, value): &(&str, &RawValue)| {
            matches_name(member, name) && value.get() != "null"
        };
        self.all.iter().filter(is_it).map(|(_, value)| value)
    }

    /// Returns whether the member is present, `null` included.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.all
            .iter()
            .any(|(member, _)| matches_name(member, name))
    }

    pub(crate) fn at(&self, name: &'static str) -> FieldPath<'a> {
        FieldPath::Member(self.at, name)
    }

    /// Reads a member that must be present and not blank.
    pub(crate) fn required<T: WireType>(
        &self,
        name: &'static str,
        older: &[&'static str],
    ) -> Result<T, ReadError> {
        let found: Option<T> = self.optional(name, older)?;
        found
            .filter(|found| !found.is_blank())
            .ok_or_else(|| self.at(name).error("is missing"))
    }

    /// Reads a member, or returns the default if it is absent. [`ObjectWriter::default`] omits
    /// blank values.
    pub(crate) fn default<T: WireType + Default>(
        &self,
        name: &'static str,
        older: &[&'static str],
    ) -> Result<T, ReadError> {
        Ok(self.optional(name, older)?.unwrap_or_default())
    }

    /// Reads a member, or returns the default if it is absent. [`ObjectWriter::always`] writes it
    /// even if blank.
    pub(crate) fn always<T: WireType + Default>(
        &self,
        name: &'static str,
        older: &[&'static str],
    ) -> Result<T, ReadError> {
        self.default(name, older)
    }

    /// Reads a member; `None` if it is absent. A blank value differs from an absent one.
    pub(crate) fn optional<T: WireType>(
        &self,
        name: &'static str,
        older: &[&'static str],
    ) -> Result<Option<T>, ReadError> {
        self.find(name, older)?
            .map(|raw| T::read(raw, &self.at(name)))
            .transpose()
    }

    /// Reads a member like `optional`, but returns `None` for an invalid value too. For members
    /// without which every operation works.
    pub(crate) fn hint<T: WireType>(
        &self,
        name: &'static str,
        older: &[&'static str],
    ) -> Result<Option<T>, ReadError> {
        Ok(self.optional(name, older).unwrap_or_default())
    }

    /// Reads a task state to filter by. The schema's zero value matches any state and is `None`.
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

    /// Reads the state of a task, which must be present. An unknown state is read as `working`, so
    /// that the client keeps waiting.
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

/// Returns whether `member` is `name`, which is in camel case, or its snake case form.
fn matches_name(member: &str, name: &str) -> bool {
    // The snake case form is longer.
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

/// Writer that appends JSON to a text.
pub struct JsonWriter<'a> {
    out: &'a mut String,
}

impl<'a> JsonWriter<'a> {
    /// Creates a writer that appends to `out`.
    pub fn new(out: &'a mut String) -> Self {
        Self { out }
    }

    /// Writes a string, with its quotes and escapes.
    pub fn text(&mut self, text: &str) {
        quote_into(text, self.out);
    }

    /// Writes a text that is JSON already.
    pub fn json(&mut self, json: &str) {
        self.out.push_str(json);
    }

    /// Returns the underlying text, for strings that need no escapes.
    pub(crate) fn buffer(&mut self) -> &mut String {
        self.out
    }

    pub(crate) fn object(&mut self) -> ObjectWriter<'_> {
        JsonWriter::new(self.out).into_object()
    }

    /// Begins an object and consumes this writer. The object's writer borrows the underlying text
    /// directly.
    pub(crate) fn into_object(self) -> ObjectWriter<'a> {
        self.out.push('{');
        ObjectWriter { out: self.out }
    }

    /// Writes a list; `write` writes each entry.
    pub(crate) fn list<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(T, &mut JsonWriter<'_>),
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

/// Builds a JSON value: `write` writes it.
pub(crate) fn write_json(write: impl FnOnce(&mut JsonWriter<'_>)) -> Box<RawValue> {
    write_json_sized(JSON_CAPACITY_BYTES, write)
}

/// Initial capacity for written JSON, in bytes.
const JSON_CAPACITY_BYTES: usize = 512;

/// Builds a JSON value: `write` writes it to a buffer with an initial capacity of `bytes`.
pub(crate) fn write_json_sized(
    bytes: usize,
    write: impl FnOnce(&mut JsonWriter<'_>),
) -> Box<RawValue> {
    let mut out = String::with_capacity(bytes);
    write(&mut JsonWriter::new(&mut out));
    raw_from_written(out)
}

/// An object that is being written. It must be closed by [`ObjectWriter::end`].
pub(crate) struct ObjectWriter<'a> {
    out: &'a mut String,
}

impl ObjectWriter<'_> {
    /// Begins a member; its value must follow. The name is written without escaping, so it may hold
    /// only characters that need none.
    pub(crate) fn member(&mut self, name: &'static str) -> JsonWriter<'_> {
        self.out
            .push_str(if self.is_empty() { "\"" } else { ",\"" });
        self.out.push_str(name);
        self.out.push_str("\":");
        JsonWriter::new(self.out)
    }

    /// Begins a member of any name, which is escaped.
    pub(crate) fn member_named(&mut self, name: &str) -> JsonWriter<'_> {
        if !self.is_empty() {
            self.out.push(',');
        }
        quote_into(name, self.out);
        self.out.push(':');
        JsonWriter::new(self.out)
    }

    /// Returns whether the object has no members yet: a member's value never ends with an opening
    /// brace.
    fn is_empty(&self) -> bool {
        self.out.ends_with('{')
    }

    pub(crate) fn end(self) {
        self.out.push('}');
    }

    pub(crate) fn always<T: WireType>(&mut self, name: &'static str, value: &T) {
        value.write(&mut self.member(name));
    }

    pub(crate) fn required<T: WireType>(&mut self, name: &'static str, value: &T) {
        self.always(name, value);
    }

    pub(crate) fn default<T: WireType>(&mut self, name: &'static str, value: &T) {
        if !value.is_blank() {
            self.always(name, value);
        }
    }

    pub(crate) fn optional<T: WireType>(&mut self, name: &'static str, value: &Option<T>) {
        if let Some(value) = value {
            self.always(name, value);
        }
    }

    pub(crate) fn hint<T: WireType>(&mut self, name: &'static str, value: &Option<T>) {
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

    /// Writes a member that is a list; `write` writes each entry.
    pub(crate) fn list<T>(
        &mut self,
        name: &'static str,
        items: impl IntoIterator<Item = T>,
        write: impl FnMut(T, &mut JsonWriter<'_>),
    ) {
        self.member(name).list(items, write);
    }

    /// Writes a string member unless it is empty.
    pub(crate) fn non_empty_text(&mut self, name: &'static str, value: &str) {
        if !value.is_empty() {
            self.text(name, value);
        }
    }
}

impl WireType for String {
    // Some peers send ids as numbers: the digits are taken.
    fn read(raw: &RawValue, at: &FieldPath<'_>) -> Result<Self, ReadError> {
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

    fn write(&self, out: &mut JsonWriter<'_>) {
        out.text(self);
    }

    fn is_blank(&self) -> bool {
        self.is_empty()
    }
}

impl WireType for SecretString {
    fn read(raw: &RawValue, at: &FieldPath<'_>) -> Result<Self, ReadError> {
        String::read(raw, at).map(Self::from)
    }

    // Only push configurations contain secrets, and only their owner can read them.
    fn write(&self, out: &mut JsonWriter<'_>) {
        out.text(self.expose_secret());
    }

    fn is_blank(&self) -> bool {
        self.expose_secret().is_empty()
    }
}

impl WireType for bool {
    fn read(raw: &RawValue, at: &FieldPath<'_>) -> Result<Self, ReadError> {
        match raw.get().trim_matches('"') {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(at.error("must be true or false")),
        }
    }

    fn write(&self, out: &mut JsonWriter<'_>) {
        out.json(if *self { "true" } else { "false" });
    }

    fn is_blank(&self) -> bool {
        !self
    }
}

impl WireType for i32 {
    fn read(raw: &RawValue, at: &FieldPath<'_>) -> Result<Self, ReadError> {
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

    fn write(&self, out: &mut JsonWriter<'_>) {
        out.json(&self.to_string());
    }

    fn is_blank(&self) -> bool {
        *self == 0
    }
}

impl WireType for RawObject {
    fn read(raw: &RawValue, at: &FieldPath<'_>) -> Result<Self, ReadError> {
        Self::parse(raw).map_err(|_| at.error("must be an object"))
    }

    fn write(&self, out: &mut JsonWriter<'_>) {
        self.write_with(&[], out.buffer());
    }
}

impl WireType for Box<RawValue> {
    fn read(raw: &RawValue, _: &FieldPath<'_>) -> Result<Self, ReadError> {
        Ok(raw.to_owned())
    }

    fn write(&self, out: &mut JsonWriter<'_>) {
        out.json(self.get());
    }
}

/// Options for decoding base64 with or without padding, because some peers omit it.
const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

impl WireType for Bytes {
    fn read(raw: &RawValue, at: &FieldPath<'_>) -> Result<Self, ReadError> {
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

    fn write(&self, out: &mut JsonWriter<'_>) {
        let out = out.buffer();
        out.push('"');
        BASE64_STANDARD.encode_string(self, out);
        out.push('"');
    }
}

impl WireType for SystemTime {
    // A number is taken as seconds since 1970.
    fn read(raw: &RawValue, at: &FieldPath<'_>) -> Result<Self, ReadError> {
        let of_seconds = || {
            let since = Duration::try_from_secs_f64(raw.get().parse().ok()?).ok()?;
            UNIX_EPOCH
                .checked_add(since)
                .filter(|_| since.as_secs() <= UNIX_SECOND_MAX)
        };
        let read = text(raw)
            .and_then(|text| parse_rfc3339(&text))
            .or_else(of_seconds);
        read.ok_or_else(|| at.error("must be an RFC 3339 time"))
    }

    fn write(&self, out: &mut JsonWriter<'_>) {
        out.text(&format_rfc3339(*self));
    }
}

/// Task states and their names in the schema, ordered by their numbers there, from 1.
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

impl WireType for TaskState {
    fn read(raw: &RawValue, at: &FieldPath<'_>) -> Result<Self, ReadError> {
        let numbered = || {
            Some(
                STATES
                    .get(raw.get().parse::<usize>().ok()?.checked_sub(1)?)?
                    .0,
            )
        };
        let read = text(raw)
            .and_then(|name| parse_task_state(&name))
            .or_else(numbered);
        read.ok_or_else(|| at.error("must be a task state"))
    }

    fn write(&self, out: &mut JsonWriter<'_>) {
        let name = STATES
            .iter()
            .find(|(state, _)| state == self)
            .map_or("UNSPECIFIED", |(_, name)| name);
        for part in ["\"TASK_STATE_", name, "\""] {
            out.json(part);
        }
    }
}

/// Returns the task state with this name, in the spelling of any version.
pub(crate) fn parse_task_state(name: &str) -> Option<TaskState> {
    let name = enum_constant(name, "TASK_STATE_");
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

/// Converts the name of an enum constant to upper case with `_` between words, and removes
/// `prefix`.
pub(crate) fn enum_constant<'a>(name: &str, prefix: &str) -> Cow<'a, str> {
    let name = name.to_ascii_uppercase().replace('-', "_");
    name.strip_prefix(prefix)
        .map_or_else(|| name.clone(), str::to_owned)
        .into()
}

/// Returns the entries of a JSON list without parsing them. A value that isn't a list is returned
/// as the only entry.
pub(crate) fn list_entries<'a>(
    raw: &'a RawValue,
    at: &FieldPath<'_>,
) -> Result<Vec<&'a RawValue>, ReadError> {
    match raw.get().starts_with('[') {
        true => RawCursor::list(raw)
            .map(Iterator::collect)
            .ok_or_else(|| at.error("must be a list")),
        false => Ok(vec![raw]),
    }
}

impl<T: WireType> WireType for Vec<T> {
    fn read(raw: &RawValue, at: &FieldPath<'_>) -> Result<Self, ReadError> {
        // The path of a single value has no index.
        if !raw.get().starts_with('[') {
            return Ok(vec![T::read(raw, at)?]);
        }
        list_entries(raw, at)?
            .iter()
            .enumerate()
            .map(|(nth, raw)| T::read(raw, &FieldPath::Entry(at, nth)))
            .collect()
    }

    fn write(&self, out: &mut JsonWriter<'_>) {
        out.list(self, T::write);
    }

    fn is_blank(&self) -> bool {
        self.is_empty()
    }
}

impl<T: WireType> WireType for BTreeMap<String, T> {
    fn read(raw: &RawValue, at: &FieldPath<'_>) -> Result<Self, ReadError> {
        let members = RawMembers::parse(raw).map_err(|_| at.error("must be an object"))?;
        members
            .iter()
            .map(|(name, raw)| Ok((name.to_owned(), T::read(raw, &FieldPath::Member(at, name))?)))
            .collect()
    }

    fn write(&self, out: &mut JsonWriter<'_>) {
        let mut object = out.object();
        for (name, value) in self {
            value.write(&mut object.member_named(name));
        }
        object.end();
    }

    fn is_blank(&self) -> bool {
        self.is_empty()
    }
}
