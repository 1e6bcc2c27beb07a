//! A [`Tree`] as any type that serde can read, with every mistake in it, each at its place: a value that is wrong or
//! missing is reported, put right for the time being, and the reading begins again.

use std::fmt;
use std::ops::Range;

use serde::de::value::StringDeserializer;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess,
    SeqAccess, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use super::problem::{
    Level, PROBLEMS_MAX, Problems, closest, did_you_mean, in_words, kind_of, one_of,
};
use super::tree::{Key, Step, Tree, Value};

/// Reads `tree` as a `T`. What is wrong is reported, and repaired in `tree`; `None` where nothing can be made of it.
/// `what` names the table in messages.
pub(super) fn decode<T: DeserializeOwned>(
    tree: &mut Tree,
    what: &str,
    problems: &mut Problems<'_>,
) -> Option<T> {
    decode_as(tree, what, Level::Error, problems)
}

/// As [`decode`]. `unknown`: how grave an unknown key is; a file that another program wrote may have some.
pub(super) fn decode_as<T: DeserializeOwned>(
    tree: &mut Tree,
    what: &str,
    unknown: Level,
    problems: &mut Problems<'_>,
) -> Option<T> {
    // Keys that others were written in place of, or that were wrong: they aren't missing as well.
    let mut meant: Vec<(Vec<Step>, String)> = Vec::new();
    for _ in 0..=PROBLEMS_MAX {
        let mut mistake = match T::deserialize(Reader(tree)) {
            Ok(value) => return Some(value),
            Err(mistake) => mistake,
        };
        mistake.path.reverse();
        match &mistake.kind {
            Kind::UnknownKey { name, known } => {
                let table = mistake
                    .path
                    .split_last()
                    .map(|(_, table)| table.to_vec())
                    .unwrap_or_default();
                meant.extend(
                    closest(name, known.iter().copied()).map(|key| (table, key.to_owned())),
                );
                mistake.report(tree, what, unknown, problems);
            }
            Kind::Missing(name)
                if meant
                    .iter()
                    .any(|(table, key)| key == name && *table == mistake.path) => {}
            _ => {
                mistake.report(tree, what, unknown, problems);
                let place = mistake
                    .path
                    .split_last()
                    .and_then(|(last, table)| Some((table, last.key()?)));
                meant.extend(place.map(|(table, key)| (table.to_vec(), key.to_owned())));
            }
        }
        if !mistake.repair(tree) {
            return None;
        }
    }
    None
}

/// What is wrong with a value, and the way to it, last step first while it is made.
#[derive(Debug)]
struct Mistake {
    kind: Kind,
    path: Vec<Step>,
}

#[derive(Debug)]
enum Kind {
    UnknownKey {
        name: String,
        known: &'static [&'static str],
    },
    UnknownName {
        name: String,
        known: &'static [&'static str],
    },
    Missing(&'static str),
    Wrong(String),
}

impl Mistake {
    fn wrong(message: impl Into<String>) -> Self {
        Self {
            kind: Kind::Wrong(message.into()),
            path: Vec::new(),
        }
    }

    fn within(mut self, step: Step) -> Self {
        self.path.push(step);
        self
    }

    fn in_key(self, key: &Key) -> Self {
        self.within(Step::Key(key.name.clone()))
    }

    fn report(&self, tree: &Tree, what: &str, unknown: Level, problems: &mut Problems<'_>) {
        let (mut at, mut key): (&Tree, Option<Range<usize>>) = (tree, None);
        for step in &self.path {
            let next = match step {
                Step::Key(name) => {
                    key = at.key_span(name);
                    at.get(name)
                }
                Step::Item(place) => at.items().get(*place),
            };
            let Some(next) = next else { break };
            at = next;
        }
        if at.is_repaired() {
            return;
        }
        let within = match self.path.iter().rev().find_map(|step| step.key()) {
            Some(name) if !matches!(self.kind, Kind::UnknownKey { .. }) => format!("`{name}`"),
            _ => what.to_owned(),
        };
        match &self.kind {
            Kind::UnknownKey { name, known } => {
                let help = did_you_mean(name, known.iter().copied()).or_else(|| one_of(known));
                problems.add(unknown, key, format!("{what} has no key `{name}`"), help);
            }
            Kind::UnknownName { name, known } => {
                problems.not_among(
                    Some(at.span.clone()),
                    format!("{within} can't be `{name}`"),
                    name,
                    known,
                );
            }
            Kind::Missing(name) => {
                problems.error(Some(at.span.clone()), format!("{within} lacks `{name}`"));
            }
            Kind::Wrong(message) => {
                problems.error(Some(at.span.clone()), format!("{within}: {message}"))
            }
        }
    }

    /// Makes the tree such that the same mistake isn't found again; false where that can't be.
    fn repair(mut self, tree: &mut Tree) -> bool {
        match self.kind {
            Kind::UnknownKey { .. } => return remove(tree, &self.path),
            Kind::Missing(name) => {
                let Some(table) = follow(tree, &self.path) else {
                    return false;
                };
                if let Value::Table(members) = &mut table.value {
                    let span = table.span.clone();
                    members.push((
                        Key {
                            span: span.clone(),
                            name: name.to_owned(),
                        },
                        Tree::new(span, Value::Anything),
                    ));
                    return true;
                }
            }
            Kind::UnknownName { .. } | Kind::Wrong(_) => {
                let Some(wrong) = follow(tree, &self.path) else {
                    return false;
                };
                if !wrong.is_repaired() {
                    wrong.value = Value::Anything;
                    return true;
                }
            }
        }
        // Nothing can stand in for it: then nothing is there, or what it is a part of isn't.
        while !self.path.is_empty() {
            if remove(tree, &self.path) {
                return true;
            }
            self.path.pop();
        }
        false
    }
}

impl Step {
    fn key(&self) -> Option<&str> {
        if let Self::Key(name) = self {
            Some(name)
        } else {
            None
        }
    }
}

fn follow<'a>(tree: &'a mut Tree, path: &[Step]) -> Option<&'a mut Tree> {
    path.iter().try_fold(tree, |tree, step| tree.step_mut(step))
}

fn remove(tree: &mut Tree, path: &[Step]) -> bool {
    let Some((last, before)) = path.split_last() else {
        return false;
    };
    follow(tree, before).is_some_and(|tree| tree.remove(last))
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::UnknownKey { name, .. } => write!(f, "unknown key `{name}`"),
            Kind::UnknownName { name, .. } => write!(f, "unknown name `{name}`"),
            Kind::Missing(name) => write!(f, "`{name}` is missing"),
            Kind::Wrong(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for Mistake {}

impl de::Error for Mistake {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::wrong(message.to_string())
    }

    // Not the value itself: it may be a secret.
    fn invalid_type(found: de::Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::wrong(format!(
            "it must be {}, not {}",
            in_words(expected),
            kind_of(&found)
        ))
    }

    fn invalid_value(found: de::Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        match found {
            de::Unexpected::Signed(number) => {
                Self::wrong(format!("it must be {}, not {number}", in_words(expected)))
            }
            de::Unexpected::Unsigned(number) => {
                Self::wrong(format!("it must be {}, not {number}", in_words(expected)))
            }
            _ => Self::wrong(format!("it must be {}", in_words(expected))),
        }
    }

    fn unknown_variant(name: &str, known: &'static [&'static str]) -> Self {
        Self {
            kind: Kind::UnknownName {
                name: name.to_owned(),
                known,
            },
            path: Vec::new(),
        }
    }

    fn unknown_field(name: &str, known: &'static [&'static str]) -> Self {
        Self {
            kind: Kind::UnknownKey {
                name: name.to_owned(),
                known,
            },
            path: Vec::new(),
        }
    }

    fn missing_field(name: &'static str) -> Self {
        Self {
            kind: Kind::Missing(name),
            path: Vec::new(),
        }
    }
}

struct Reader<'a>(&'a Tree);

impl Reader<'_> {
    /// Reads what is there, or has `repaired` stand for what was wrong.
    fn or<'de, V: Visitor<'de>>(
        self,
        visitor: V,
        repaired: impl FnOnce(V) -> Result<V::Value, Mistake>,
    ) -> Result<V::Value, Mistake> {
        if self.0.is_repaired() {
            repaired(visitor)
        } else {
            self.deserialize_any(visitor)
        }
    }
}

impl<'de> Deserializer<'de> for Reader<'_> {
    type Error = Mistake;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        match &self.0.value {
            Value::Null | Value::Anything => visitor.visit_unit(),
            Value::Bool(yes) => visitor.visit_bool(*yes),
            Value::Integer(number) => visitor.visit_i64(*number),
            Value::Float(number) => visitor.visit_f64(*number),
            Value::Text(text) => visitor.visit_str(text),
            Value::List(items) => visitor.visit_seq(Items { items, next: 0 }),
            Value::Table(members) => visitor.visit_map(Members { members, next: 0 }),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        match &self.0.value {
            Value::Null | Value::Anything => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        self.or(visitor, |visitor| visitor.visit_bool(false))
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        self.or(visitor, |visitor| visitor.visit_u64(1))
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        self.or(visitor, |visitor| visitor.visit_f64(1.0))
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        self.deserialize_u64(visitor)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        self.or(visitor, |visitor| visitor.visit_str(""))
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        self.deserialize_string(visitor)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        self.or(visitor, |visitor| {
            visitor.visit_seq(Items {
                items: &[],
                next: 0,
            })
        })
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        self.or(visitor, |visitor| {
            visitor.visit_map(Members {
                members: &[],
                next: 0,
            })
        })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        match &self.0.value {
            Value::Text(name) => visitor.visit_enum(name.as_str().into_deserializer()),
            Value::Anything => visitor.visit_enum(
                names
                    .first()
                    .copied()
                    .unwrap_or_default()
                    .into_deserializer(),
            ),
            Value::Table(members) if let [(key, value)] = members.as_slice() => {
                visitor.visit_enum(Variant(key, value))
            }
            _ => Err(Mistake::wrong(one_of(names).unwrap_or_default())),
        }
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u128 f32 char bytes byte_buf unit unit_struct tuple tuple_struct identifier
        ignored_any
    }
}

struct Items<'a> {
    items: &'a [Tree],
    next: usize,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Mistake;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Mistake> {
        let Some(item) = self.items.get(self.next) else {
            return Ok(None);
        };
        let at = self.next;
        self.next += 1;
        seed.deserialize(Reader(item))
            .map(Some)
            .map_err(|mistake| mistake.within(Step::Item(at)))
    }
}

struct Members<'a> {
    members: &'a [(Key, Tree)],
    next: usize,
}

impl<'de> MapAccess<'de> for Members<'_> {
    type Error = Mistake;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Mistake> {
        let Some((key, _)) = self.members.get(self.next) else {
            return Ok(None);
        };
        let name: StringDeserializer<Mistake> = key.name.clone().into_deserializer();
        seed.deserialize(name)
            .map(Some)
            .map_err(|mistake| mistake.in_key(key))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Mistake> {
        let (key, value) = self
            .members
            .get(self.next)
            .ok_or_else(|| Mistake::wrong("a value was read before its key"))?;
        self.next += 1;
        seed.deserialize(Reader(value))
            .map_err(|mistake| mistake.in_key(key))
    }
}

/// A variant with something in it: a table of one member.
struct Variant<'a>(&'a Key, &'a Tree);

impl<'de> EnumAccess<'de> for Variant<'_> {
    type Error = Mistake;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Mistake> {
        let name: StringDeserializer<Mistake> = self.0.name.clone().into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_> {
    type Error = Mistake;

    fn unit_variant(self) -> Result<(), Mistake> {
        Err(Mistake::wrong(format!("`{}` stands alone", self.0.name)))
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Mistake> {
        seed.deserialize(Reader(self.1))
            .map_err(|mistake| mistake.in_key(self.0))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Mistake> {
        Reader(self.1)
            .deserialize_any(visitor)
            .map_err(|mistake| mistake.in_key(self.0))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        Reader(self.1)
            .deserialize_map(visitor)
            .map_err(|mistake| mistake.in_key(self.0))
    }
}
