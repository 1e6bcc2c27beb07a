use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{DeserializeOwned, Error as _, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

use crate::json::{self, Walk, quote_to};

/// A JSON object whose members stay as they came: in order, each value in the very bytes of its sender.
///
/// What an adapter doesn't know it forwards untouched; what it does know it reads or rewrites by name.
#[derive(Clone, Default)]
pub struct RawObject {
    members: Vec<(String, Box<RawValue>)>,
}

impl RawObject {
    /// `{}`.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads an object.
    ///
    /// # Errors
    /// Where `raw` is no object, or has a key twice.
    pub fn parse(raw: &RawValue) -> Result<Self, serde_json::Error> {
        let RawMembers(members) = RawMembers::parse(raw)?;
        let own = |(name, value): (Cow<'_, str>, &RawValue)| (name.into_owned(), value.to_owned());
        Ok(Self {
            members: members.into_iter().map(own).collect(),
        })
    }

    /// Writes it.
    pub fn to_raw(&self) -> Box<RawValue> {
        let mut out = String::with_capacity(self.bytes().max(1) + 1);
        self.write_with(&[], &mut out);
        // Names and raw values are always JSON.
        json::raw(out)
    }

    /// Writes it at the end of `out`, with the members of `put`: names and JSON texts, each in the place of the one of its
    /// name or at the end. The object stays as it is.
    pub fn write_with(&self, put: &[(&str, &str)], out: &mut String) {
        write_with(self.iter(), put, out);
    }

    /// A member as it came.
    pub fn get(&self, name: &str) -> Option<&RawValue> {
        self.members
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, value)| &**value)
    }

    /// A member as a type; `None` where it is missing or doesn't fit.
    pub fn read<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        serde_json::from_str(self.get(name)?.get()).ok()
    }

    /// A member that is a string.
    pub fn text(&self, name: &str) -> Option<String> {
        json::text(self.get(name)?).map(Cow::into_owned)
    }

    /// A member that is an object.
    pub fn object(&self, name: &str) -> Option<RawObject> {
        Self::parse(self.get(name)?).ok()
    }

    /// Whether it has the member, `null` included.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Puts a member, in the place of the one of that name or at the end.
    pub fn set_raw(&mut self, name: &str, value: Box<RawValue>) {
        match self.members.iter_mut().find(|(n, _)| n == name) {
            Some((_, old)) => *old = value,
            None => self.members.push((name.to_owned(), value)),
        }
    }

    /// Puts a member. A value that JSON can't hold (a map with keys that aren't strings) becomes `null`.
    pub fn set(&mut self, name: &str, value: impl Serialize) {
        self.set_raw(name, to_raw_value(&value).unwrap_or_default());
    }

    /// Puts a member that is a string.
    pub fn set_text(&mut self, name: &str, text: &str) {
        self.set_raw(name, json::quoted(text));
    }

    /// Puts a member where there is a value for it.
    pub fn set_some(&mut self, name: &str, value: &Option<impl Serialize>) {
        value.iter().for_each(|value| self.set(name, value));
    }

    /// An object with one member.
    pub fn of(name: &str, value: impl Serialize) -> Self {
        Self::new().with(name, value)
    }

    /// The same object with a member more.
    pub fn with(mut self, name: &str, value: impl Serialize) -> Self {
        self.set(name, value);
        self
    }

    /// Takes a member out.
    pub fn remove(&mut self, name: &str) -> Option<Box<RawValue>> {
        let at = self.members.iter().position(|(n, _)| n == name)?;
        Some(self.members.remove(at).1)
    }

    /// Its members, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &RawValue)> + Clone {
        self.members.iter().map(|(name, value)| (&**name, &**value))
    }

    /// How large it is as it is written, about: its names and values, in bytes.
    pub fn bytes(&self) -> usize {
        self.iter()
            .map(|(name, value)| name.len() + value.get().len() + 4)
            .sum()
    }

    /// How many members it has.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether it is `{}`.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }
}

/// Room for the members of an ordinary object.
const MEMBERS_ROOM: usize = 8;

/// The members of a JSON object, borrowed from its text: for who looks at some, or forwards the others.
#[derive(Default)]
pub struct RawMembers<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> RawMembers<'a> {
    /// Reads an object.
    ///
    /// # Errors
    /// Where `raw` is no object, or has a key twice.
    pub fn parse(raw: &'a RawValue) -> Result<Self, serde_json::Error> {
        // What isn't an object with each key once is read by who can say why not.
        Self::walked(raw).map_or_else(|| serde_json::from_str(raw.get()), Ok)
    }

    fn walked(raw: &'a RawValue) -> Option<Self> {
        let mut members: Vec<(Cow<'a, str>, &'a RawValue)> = Vec::with_capacity(MEMBERS_ROOM);
        for (name, value) in Walk::object(raw)? {
            if members.iter().any(|(earlier, _)| *earlier == name) {
                return None;
            }
            members.push((name, value));
        }
        Some(Self(members))
    }

    /// A member as it came.
    pub fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, value)| *value)
    }

    /// A member as a type; `None` where it is missing or doesn't fit.
    pub fn read<T: Deserialize<'a>>(&self, name: &str) -> Option<T> {
        serde_json::from_str(self.get(name)?.get()).ok()
    }

    /// Its members, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.0.iter().map(|(name, value)| (&**name, *value))
    }

    /// Takes members out.
    pub fn retain(&mut self, mut keep: impl FnMut(&str) -> bool) {
        self.0.retain(|(name, _)| keep(name));
    }

    /// Whether none are left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Writes them as [`RawObject::write_with`] does.
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
        quote_to(name, out);
        out.push(':');
        out.push_str(value);
        before = ',';
    }
    out.push_str(if before == '{' { "{}" } else { "}" });
}

/// Reads an object's members, each name once.
struct Members<N, V>(PhantomData<(N, V)>);

impl<'de, N: Deserialize<'de> + PartialEq, V: Deserialize<'de>> Visitor<'de> for Members<N, V> {
    type Value = Vec<(N, V)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members: Self::Value = Vec::new();
        while let Some((name, value)) = map.next_entry()? {
            if members.iter().any(|(earlier, _)| *earlier == name) {
                return Err(A::Error::custom("a key stands twice"));
            }
            members.push((name, value));
        }
        Ok(members)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for RawMembers<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // A `Cow` itself is never read as a borrowed text.
        #[derive(Deserialize, PartialEq)]
        struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

        let members =
            deserializer.deserialize_map(Members::<Name<'de>, &'de RawValue>(PhantomData))?;
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
            .deserialize_map(Members(PhantomData))
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

// Values may be anybody's data: only names and sizes are printed.
impl fmt::Debug for RawObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.iter().map(|(name, value)| (name, value.get().len())))
            .finish()
    }
}

/// Types that are one raw object: serialised as it is, printed by names and sizes only.
macro_rules! raw_bodies {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(transparent)]
        pub struct $name(pub $crate::RawObject);

        // What is said may be anybody's data.
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!(stringify!($name), "({:?})"), self.0)
            }
        }
    )*};
}
pub(crate) use raw_bodies;

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

    /// Goal: an object is written with members more as if they had been set. Method: one that replaces, one that is new,
    /// none; an empty object.
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
