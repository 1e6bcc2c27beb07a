//! Values that fields are made of.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use callboard_message::json::{Walk, text};
use callboard_message::time::{SECOND_MAX, read_rfc3339, rfc3339};
use callboard_message::{RawMembers, RawObject, TaskState};
use secrecy::{ExposeSecret, SecretString};
use serde_json::value::RawValue;

use crate::wire::{At, ReadError, Wire, Writer};

impl Wire for String {
    // A number is taken for its digits: some ids are.
    fn read(raw: &RawValue, at: &At<'_>) -> Result<Self, ReadError> {
        let digits = || raw.get().starts_with(|c: char| c == '-' || c.is_ascii_digit()).then(|| raw.get().into());
        text(raw).or_else(digits).map(Cow::into_owned).ok_or_else(|| at.error("must be a string"))
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
            (number.fract() == 0.0 && number.abs() <= f64::from(Self::MAX)).then_some(number as Self)
        };
        digits.parse().ok().or_else(whole).ok_or_else(|| at.error("must be a whole number"))
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
        let engine = if text.contains(['-', '_']) { URL_SAFE } else { STANDARD };
        engine.decode(text.as_bytes()).map(Self::from).map_err(|_| wrong())
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
            UNIX_EPOCH.checked_add(since).filter(|_| since.as_secs() <= SECOND_MAX)
        };
        let read = text(raw).and_then(|text| read_rfc3339(&text)).or_else(of_seconds);
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
        let read = text(raw).and_then(|name| {
            let name = constant(&name, "TASK_STATE_");
            let name = if name == "CANCELLED" { "CANCELED" } else { &*name };
            STATES.iter().find(|(_, of_state)| *of_state == name)
        });
        let numbered = || STATES.get(raw.get().parse::<usize>().ok()?.checked_sub(1)?);
        read.or_else(numbered).map(|(state, _)| *state).ok_or_else(|| at.error("names no state of a task"))
    }

    fn write(&self, out: &mut Writer<'_>) {
        let name = STATES.iter().find(|(state, _)| state == self).map_or("UNSPECIFIED", |(_, name)| name);
        for part in ["\"TASK_STATE_", name, "\""] {
            out.json(part);
        }
    }
}

/// A constant's name in capitals, `_` between its words, without its prefix.
pub(crate) fn constant<'a>(name: &str, prefix: &str) -> Cow<'a, str> {
    let name = name.to_ascii_uppercase().replace('-', "_");
    name.strip_prefix(prefix).map_or_else(|| name.clone(), str::to_owned).into()
}

/// A list's entries as they came. One that stands alone is a list of one.
pub(crate) fn entries<'a>(raw: &'a RawValue, at: &At<'_>) -> Result<Vec<&'a RawValue>, ReadError> {
    match raw.get().starts_with('[') {
        true => Walk::list(raw).map(Iterator::collect).ok_or_else(|| at.error("must be a list")),
        false => Ok(vec![raw]),
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn read(raw: &RawValue, at: &At<'_>) -> Result<Self, ReadError> {
        // An error in one that stands alone names no place in a list.
        if !raw.get().starts_with('[') {
            return Ok(vec![T::read(raw, at)?]);
        }
        entries(raw, at)?.iter().enumerate().map(|(nth, raw)| T::read(raw, &At::Entry(at, nth))).collect()
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
        members.iter().map(|(name, raw)| Ok((name.to_owned(), T::read(raw, &At::Member(at, name))?))).collect()
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
