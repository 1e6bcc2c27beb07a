use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{DeserializeOwned, Error as _, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

use crate::json::{self, RawCursor, quote_into};

/// A JSON object that keeps its members in order and each value byte for byte as received.
///
/// Adapters read or replace the members they know by name and forward the others unchanged.
#[derive(Clone, Default)]
pub struct RawObject {
    members: Vec<(String, Box<RawValue>)>,
}

impl RawObject {
    /// Creates an empty object, `{}`.
    pub fn new() -> Self {
        Self::default()
    }

    /// Parses an object.
    ///
    /// # Errors
    /// Fails if `raw` is not an object, or has a duplicate key.
    pub fn parse(raw: &RawValue) -> Result<Self, serde_json::Error> {
        let RawMembers(members) = RawMembers::parse(raw)?;
        let own = |(name, value): (Cow<'_, str>, &RawValue)| (name.into_owned(), value.to_owned());
        Ok(Self {
            members: members.into_iter().map(own).collect(),
        })
    }

    /// Serialises the object as raw JSON.
    pub fn to_raw(&self) -> Box<RawValue> {
        let mut out = String::with_capacity(self.bytes().max(1) + 1);
        self.write_with(&[], &mut out);
        // Names and raw values are always JSON.
        json::raw_from_written(out)
    }

    /// Appends the serialised object to `out`, with other values for some members. `put` has their
    /// names and JSON texts; new members come last. The object itself is unchanged.
    pub fn write_with(&self, put: &[(&str, &str)], out: &mut String) {
        write_with(self.iter(), put, out);
    }

    /// Returns a member's value as raw JSON; `None` if it is missing.
    pub fn get(&self, name: &str) -> Option<&RawValue> {
        self.members
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, value)| &**value)
    }

    /// Deserialises a member; `None` if it is missing or doesn't fit the type.
    pub fn read<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        serde_json::from_str(self.get(name)?.get()).ok()
    }

    /// Returns the text of a member that is a string; `None` if it is missing or not a string.
    pub fn text(&self, name: &str) -> Option<String> {
        json::text(self.get(name)?).map(Cow::into_owned)
    }

    /// Returns a member that is an object; `None` if it is missing, not an object, or has a
    /// duplicate key.
    pub fn object(&self, name: &str) -> Option<RawObject> {
        Self::parse(self.get(name)?).ok()
    }

    /// Returns whether the member exists, even if its value is `null`.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Sets a member. An existing one keeps its position; a new one is appended.
    pub fn set_raw(&mut self, name: &str, value: Box<RawValue>) {
        match self.members.iter_mut().find(|(n, _)| n == name) {
            Some((_, old)) => *old = value,
            None => self.members.push((name.to_owned(), value)),
        }
    }

    /// Sets a member to a serialisable value. A value that JSON can't represent, such as a map
    /// whose keys aren't strings, becomes `null`.
    pub fn set(&mut self, name: &str, value: impl Serialize) {
        self.set_raw(name, to_raw_value(&value).unwrap_or_default());
    }

    /// Sets a member to a string.
    pub fn set_text(&mut self, name: &str, text: &str) {
        self.set_raw(name, json::quote_raw(text));
    }

    /// Sets a member if `value` is `Some`; else leaves the object unchanged.
    pub fn set_some(&mut self, name: &str, value: &Option<impl Serialize>) {
        value.iter().for_each(|value| self.set(name, value));
    }

    /// Creates an object with one member, set as by [`set`](Self::set).
    pub fn single(name: &str, value: impl Serialize) -> Self {
        Self::new().with(name, value)
    }

    /// Sets a member as [`set`](Self::set) does, and returns the object.
    pub fn with(mut self, name: &str, value: impl Serialize) -> Self {
        self.set(name, value);
        self
    }

    /// Removes a member and returns its value; `None` if it is missing.
    pub fn remove(&mut self, name: &str) -> Option<Box<RawValue>> {
        let at = self.members.iter().position(|(n, _)| n == name)?;
        Some(self.members.remove(at).1)
    }

    /// Iterates over the members, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &RawValue)> + Clone {
        self.members.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Returns the approximate size of the serialised object, in bytes.
    pub fn bytes(&self) -> usize {
        self.iter()
            .map(|(name, value)| name.len() + value.get().len() + 4)
            .sum()
    }

    /// Returns the number of members.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns whether the object has no members.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }
}

/// Initial capacity of the list of members, sufficient for ordinary objects.
const MEMBERS_CAPACITY: usize = 8;

/// Members of a JSON object, borrowed from its JSON text. Cheaper than [`RawObject`] if few members
/// are read.
#[derive(Default)]
pub struct RawMembers<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> RawMembers<'a> {
    /// Parses an object.
    ///
    /// # Errors
    /// Fails if `raw` is not an object, or has a duplicate key.
    pub fn parse(raw: &'a RawValue) -> Result<Self, serde_json::Error> {
        // Invalid input is parsed once more by serde_json, which reports the reason.
        Self::parse_walked(raw).map_or_else(|| serde_json::from_str(raw.get()), Ok)
    }

    fn parse_walked(raw: &'a RawValue) -> Option<Self> {
        let mut members: Vec<(Cow<'a, str>, &'a RawValue)> = Vec::with_capacity(MEMBERS_CAPACITY);
        for (name, value) in RawCursor::object(raw)? {
            if members.iter().any(|(earlier, _)| *earlier == name) {
                return None;
            }
            members.push((name, value));
        }
        Some(Self(members))
    }

    /// Returns a member's value as raw JSON; `None` if it is missing.
    pub fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, value)| *value)
    }

    /// Deserialises a member; `None` if it is missing or doesn't fit the type.
    pub fn read<T: Deserialize<'a>>(&self, name: &str) -> Option<T> {
        serde_json::from_str(self.get(name)?.get()).ok()
    }

    /// Iterates over the members, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.0.iter().map(|(name, value)| (&**name, *value))
    }

    /// Removes all members except those for whose names `keep` returns `true`.
    pub fn retain(&mut self, mut keep: impl FnMut(&str) -> bool) {
        self.0.retain(|(name, _)| keep(name));
    }

    /// Returns whether there are no members.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends the serialised object to `out`, with other values for the members in `put`, like
    /// [`RawObject::write_with`].
    pub fn write_with(&self, put: &[(&str, &str)], out: &mut String) {
        write_with(
            self.0.iter().map(|(name, value)| (&**name, *value)),
            put,
            out,
        );
    }
}

fn write_with<'a>(
    own: impl Iterator<Item = (&'a str, &'a RawValue)> + Clone,
    put: &[(&'a str, &'a str)],
    out: &mut String,
) {
    let replaced = |name: &str| {
        put.iter()
            .find(|(n, _)| *n == name)
            .map(|(_, value)| *value)
    };
    let is_new = |name: &str| own.clone().all(|(n, _)| n != name);
    let kept = own
        .clone()
        .map(|(name, value)| (name, replaced(name).unwrap_or(value.get())));
    let mut before = '{';
    for (name, value) in kept.chain(put.iter().copied().filter(|(name, _)| is_new(name))) {
        out.push(before);
        quote_into(name, out);
        out.push(':');
        out.push_str(value);
        before = ',';
    }
    out.push_str(if before == '{' { "{}" } else { "}" });
}

/// Visitor that collects the members of an object and rejects duplicate names.
struct MembersVisitor<N, V>(PhantomData<(N, V)>);

impl<'de, N: Deserialize<'de> + PartialEq, V: Deserialize<'de>> Visitor<'de>
    for MembersVisitor<N, V>
{
    type Value = Vec<(N, V)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members: Self::Value = Vec::new();
        while let Some((name, value)) = map.next_entry()? {
            if members.iter().any(|(earlier, _)| *earlier == name) {
                return Err(A::Error::custom("duplicate key"));
            }
            members.push((name, value));
        }
        Ok(members)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for RawMembers<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // serde never borrows for a bare `Cow`; the wrapper does.
        #[derive(Deserialize, PartialEq)]
        struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

        let members = deserializer
            .deserialize_map(MembersVisitor::<Name<'de>, &'de RawValue>(PhantomData))?;
        Ok(Self(
            members
                .into_iter()
                .map(|(Name(name), value)| (name, value))
                .collect(),
        ))
    }
}

impl Serialize for RawObject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.members.len()))?;
        for (name, value) in &self.members {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for RawObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer
            .deserialize_map(MembersVisitor(PhantomData))
            .map(|members| Self { members })
    }
}

impl PartialEq for RawObject {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len()
            && self
                .iter()
                .zip(other.iter())
                .all(|(a, b)| a.0 == b.0 && a.1.get() == b.1.get())
    }
}

impl JsonSchema for RawObject {
    fn schema_name() -> Cow<'static, str> {
        "Object".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object" })
    }
}

// Values may be confidential: only names and sizes are printed.
impl fmt::Debug for RawObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.iter().map(|(name, value)| (name, value.get().len())))
            .finish()
    }
}

/// Declares newtypes of [`RawObject`] that serialise as the object itself. Their `Debug` output
/// shows only names and sizes, because values may be confidential.
macro_rules! raw_object_types {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(transparent)]
        pub struct $name(pub $crate::RawObject);

        // Values may be confidential.
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!(stringify!($name), "({:?})"), self.0)
            }
        }
    )*};
}
pub(crate) use raw_object_types;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what isn't touched keeps its bytes and place. Method: numbers and escapes that a `Value` would change.
    #[test]
    fn untouched_members_keep_their_bytes() {
        let text =
            r#"{"b":1.0,"a":123456789012345678901234567890,"c":"\u00e9","d":{"z":1e2,"y":[ ]}}"#;
        let mut object: RawObject = serde_json::from_str(text).unwrap();
        assert_eq!(object.to_raw().get(), text);
        object.set("a", "new");
        object.set("e", 1);
        assert_eq!(
            object.to_raw().get(),
            r#"{"b":1.0,"a":"new","c":"\u00e9","d":{"z":1e2,"y":[ ]},"e":1}"#
        );
        assert_eq!(object.remove("b").unwrap().get(), "1.0");
        assert_eq!(object.text("c").unwrap(), "é");
        assert!(!format!("{object:?}").contains("new"));
    }

    /// Goal: an object is written with additional members as if they had been set. Method: one that
    /// replaces, one that is new, none; an empty object.
    #[test]
    fn members_are_put_on_the_way_out() {
        let object: RawObject = serde_json::from_str(r#"{"a":1.0,"\u0062\"":[ ],"c":3}"#).unwrap();
        let written = |object: &RawObject, put: &[(&str, &str)]| {
            let mut out = String::from(">");
            object.write_with(put, &mut out);
            out
        };
        assert_eq!(
            written(&object, &[("d", "{}"), ("a", "2")]),
            r#">{"a":2,"b\"":[ ],"c":3,"d":{}}"#
        );
        assert_eq!(written(&object, &[]), format!(">{}", object.to_raw().get()));
        assert_eq!(
            written(&RawObject::new(), &[("a", "1"), ("b", "2")]),
            r#">{"a":1,"b":2}"#
        );
        assert_eq!(written(&RawObject::new(), &[]), ">{}");
        let raw = RawValue::from_string(r#"{"\u0061":1.0,"b":[ ],"c":"d"}"#.into()).unwrap();
        let mut borrowed = RawMembers::parse(&raw).unwrap();
        assert_eq!(
            (
                borrowed.get("a").unwrap().get(),
                borrowed.read("c"),
                borrowed.read::<u8>("c")
            ),
            ("1.0", Some("d"), None)
        );
        borrowed.retain(|name| name != "c");
        let mut out = String::new();
        borrowed.write_with(&[("b", "2")], &mut out);
        assert_eq!(out, r#"{"a":1.0,"b":2}"#);
    }

    /// Goal: only objects, each key once. Method: rows.
    #[test]
    fn others_are_refused() {
        for text in ["[]", "1", "null", r#"{"a":1,"a":2}"#] {
            assert!(serde_json::from_str::<RawObject>(text).is_err(), "{text}");
            assert!(
                serde_json::from_str::<RawMembers<'_>>(text).is_err(),
                "{text}"
            );
        }
    }
}
