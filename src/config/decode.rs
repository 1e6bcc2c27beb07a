//! Deserialization of a [`ConfigTree`] that reports all problems with their positions. A wrong or
//! missing value is reported and replaced by a placeholder; then deserialization starts again.

use std::fmt;
use std::ops::Range;

use serde::de::value::StringDeserializer;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess,
    SeqAccess, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use super::advice::{key_advice, type_advice};
use super::problem::{
    PROBLEMS_MAX, ProblemCollector, Severity, closest_name, describe_expected, describe_found,
    describe_range, known_names_help, suggestion,
};
use super::tree::{ConfigTree, ConfigValue, PathStep, SpannedKey};

/// Deserializes `tree` as a `T`. Each problem is reported, and repaired in `tree` by a placeholder,
/// so that a value is returned in spite of errors. `None` if a problem can't be repaired. `what`
/// names the table in messages.
pub(super) fn decode<T: DeserializeOwned>(
    tree: &mut ConfigTree,
    what: &str,
    problems: &mut ProblemCollector<'_>,
) -> Option<T> {
    decode_as(tree, what, Severity::Error, problems)
}

/// Deserializes like [`decode`]. `unknown` is the severity of unknown keys: files of other programs
/// may have some.
pub(super) fn decode_as<T: DeserializeOwned>(
    tree: &mut ConfigTree,
    what: &str,
    unknown: Severity,
    problems: &mut ProblemCollector<'_>,
) -> Option<T> {
    // Keys that were misspelt or have a wrong value. They are not reported as missing too.
    let mut meant: Vec<(Vec<PathStep>, String)> = Vec::new();
    for _ in 0..=PROBLEMS_MAX {
        let mut mistake = match T::deserialize(TreeDeserializer(tree)) {
            Ok(value) => return Some(value),
            Err(mistake) => mistake,
        };
        mistake.path.reverse();
        match &mistake.kind {
            TreeDecodeErrorKind::UnknownKey { name, known } => {
                let table = mistake
                    .path
                    .split_last()
                    .map(|(_, table)| table.to_vec())
                    .unwrap_or_default();
                meant.extend(
                    closest_name(name, known.iter().copied()).map(|key| (table, key.to_owned())),
                );
                mistake.report(tree, what, unknown, problems);
            }
            TreeDecodeErrorKind::MissingKey(name)
                if meant
                    .iter()
                    .any(|(table, key)| key == name && *table == mistake.path) => {}
            _ => {
                mistake.report(tree, what, unknown, problems);
                let place = mistake
                    .path
                    .split_last()
                    .and_then(|(last, table)| Some((table, last.key_name()?)));
                meant.extend(place.map(|(table, key)| (table.to_vec(), key.to_owned())));
            }
        }
        if !mistake.repair(tree, unknown) {
            return None;
        }
    }
    None
}

/// A deserialization error and the path to its value. The last step comes first while the path is
/// built.
#[derive(Debug)]
struct TreeDecodeError {
    kind: TreeDecodeErrorKind,
    path: Vec<PathStep>,
}

#[derive(Debug)]
enum TreeDecodeErrorKind {
    UnknownKey {
        name: String,
        known: &'static [&'static str],
    },
    UnknownName {
        name: String,
        known: &'static [&'static str],
    },
    MissingKey(&'static str),
    InvalidType {
        expected: String,
        found: &'static str,
    },
    InvalidValue(String),
}

impl TreeDecodeError {
    fn from_message(message: impl Into<String>) -> Self {
        Self {
            kind: TreeDecodeErrorKind::InvalidValue(message.into()),
            path: Vec::new(),
        }
    }

    fn with_parent(mut self, step: PathStep) -> Self {
        self.path.push(step);
        self
    }

    fn with_parent_key(self, key: &SpannedKey) -> Self {
        self.with_parent(PathStep::Key(key.name.clone()))
    }

    fn report(
        &self,
        tree: &ConfigTree,
        what: &str,
        unknown: Severity,
        problems: &mut ProblemCollector<'_>,
    ) {
        let (mut at, mut key): (&ConfigTree, Option<Range<usize>>) = (tree, None);
        for step in &self.path {
            let next = match step {
                PathStep::Key(name) => {
                    key = at.key_span(name);
                    at.get(name)
                }
                PathStep::Item(place) => at.items().get(*place),
            };
            let Some(next) = next else { break };
            at = next;
        }
        if at.is_placeholder() {
            return;
        }
        let written_key = self.path.iter().rev().find_map(|step| step.key_name());
        let within = match written_key {
            Some(name) if !matches!(self.kind, TreeDecodeErrorKind::UnknownKey { .. }) => {
                format!("`{name}`")
            }
            _ => what.to_owned(),
        };
        match &self.kind {
            TreeDecodeErrorKind::UnknownKey { name, known } => {
                let help = key_advice(name, known)
                    .or_else(|| suggestion(name, known.iter().copied()))
                    .or_else(|| known_names_help(known));
                problems.add(unknown, key, format!("{what} has no key `{name}`"), help);
            }
            TreeDecodeErrorKind::UnknownName { name, known } => {
                problems.not_one_of(
                    Some(at.span.clone()),
                    format!("{within} can't be `{name}`"),
                    name,
                    known,
                );
            }
            TreeDecodeErrorKind::MissingKey(name) => {
                problems.error(Some(at.span.clone()), format!("{within} lacks `{name}`"));
            }
            TreeDecodeErrorKind::InvalidType { expected, .. } => {
                let help = written_key.and_then(|key| type_advice(key, expected, &at.value));
                problems.error_with(Some(at.span.clone()), format!("{within}: {self}"), help);
            }
            TreeDecodeErrorKind::InvalidValue(message) => {
                problems.error(Some(at.span.clone()), format!("{within}: {message}"))
            }
        }
    }

    /// Changes the tree so that this error can't occur again. Returns false if that is impossible.
    /// A misspelt key becomes a placeholder under the name that was meant, unless unknown keys are
    /// only warnings: then the value under that name counts.
    fn repair(mut self, tree: &mut ConfigTree, unknown: Severity) -> bool {
        match self.kind {
            TreeDecodeErrorKind::UnknownKey { name, known } => {
                let is_removed = remove_at_path(tree, &self.path);
                self.path.pop();
                let meant = closest_name(&name, known.iter().copied());
                if let Some(meant) = meant.filter(|_| unknown == Severity::Error)
                    && let Some(table) = value_at_path(tree, &self.path)
                    && table.get(meant).is_none()
                {
                    insert_placeholder(table, meant);
                }
                return is_removed;
            }
            TreeDecodeErrorKind::MissingKey(name) => {
                let Some(table) = value_at_path(tree, &self.path) else {
                    return false;
                };
                if insert_placeholder(table, name) {
                    return true;
                }
            }
            TreeDecodeErrorKind::UnknownName { .. }
            | TreeDecodeErrorKind::InvalidType { .. }
            | TreeDecodeErrorKind::InvalidValue(_) => {
                let Some(wrong) = value_at_path(tree, &self.path) else {
                    return false;
                };
                if !wrong.is_placeholder() {
                    wrong.value = ConfigValue::Placeholder;
                    return true;
                }
            }
        }
        // No placeholder fits: remove the value, or else the nearest parent that can be removed.
        while !self.path.is_empty() {
            if remove_at_path(tree, &self.path) {
                return true;
            }
            self.path.pop();
        }
        false
    }
}

impl PathStep {
    fn key_name(&self) -> Option<&str> {
        if let Self::Key(name) = self {
            Some(name)
        } else {
            None
        }
    }
}

fn value_at_path<'a>(tree: &'a mut ConfigTree, path: &[PathStep]) -> Option<&'a mut ConfigTree> {
    path.iter()
        .try_fold(tree, |tree, step| tree.child_mut(step))
}

/// Adds a placeholder to a table. Returns false if `table` is none.
fn insert_placeholder(table: &mut ConfigTree, name: &str) -> bool {
    let ConfigValue::Table(members) = &mut table.value else {
        return false;
    };
    let key = SpannedKey {
        span: table.span.clone(),
        name: name.to_owned(),
    };
    let value = ConfigTree::new(table.span.clone(), ConfigValue::Placeholder);
    members.push((key, value));
    true
}

fn remove_at_path(tree: &mut ConfigTree, path: &[PathStep]) -> bool {
    let Some((last, before)) = path.split_last() else {
        return false;
    };
    value_at_path(tree, before).is_some_and(|tree| tree.remove(last))
}

impl fmt::Display for TreeDecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            TreeDecodeErrorKind::UnknownKey { name, .. } => write!(f, "unknown key `{name}`"),
            TreeDecodeErrorKind::UnknownName { name, .. } => write!(f, "unknown name `{name}`"),
            TreeDecodeErrorKind::MissingKey(name) => write!(f, "`{name}` is missing"),
            TreeDecodeErrorKind::InvalidType { expected, found } => {
                write!(f, "it must be {expected}, not {found}")
            }
            TreeDecodeErrorKind::InvalidValue(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for TreeDecodeError {}

impl de::Error for TreeDecodeError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::from_message(message.to_string())
    }

    // The value is left out: it may be a secret.
    fn invalid_type(found: de::Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self {
            kind: TreeDecodeErrorKind::InvalidType {
                expected: describe_expected(expected),
                found: describe_found(&found),
            },
            path: Vec::new(),
        }
    }

    fn invalid_value(found: de::Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        let number = match found {
            de::Unexpected::Signed(number) => i128::from(number),
            de::Unexpected::Unsigned(number) => i128::from(number),
            _ => {
                let expected = describe_expected(expected);
                return Self::from_message(format!("it must be {expected}"));
            }
        };
        let range = describe_range(expected, number);
        Self::from_message(format!("it must be {range}, not {number}"))
    }

    fn unknown_variant(name: &str, known: &'static [&'static str]) -> Self {
        Self {
            kind: TreeDecodeErrorKind::UnknownName {
                name: name.to_owned(),
                known,
            },
            path: Vec::new(),
        }
    }

    fn unknown_field(name: &str, known: &'static [&'static str]) -> Self {
        Self {
            kind: TreeDecodeErrorKind::UnknownKey {
                name: name.to_owned(),
                known,
            },
            path: Vec::new(),
        }
    }

    fn missing_field(name: &'static str) -> Self {
        Self {
            kind: TreeDecodeErrorKind::MissingKey(name),
            path: Vec::new(),
        }
    }
}

struct TreeDeserializer<'a>(&'a ConfigTree);

impl TreeDeserializer<'_> {
    /// Deserializes the value. For a placeholder (a value that was already reported as wrong),
    /// returns what `repaired` makes of the visitor.
    fn deserialize_or<'de, V: Visitor<'de>>(
        self,
        visitor: V,
        repaired: impl FnOnce(V) -> Result<V::Value, TreeDecodeError>,
    ) -> Result<V::Value, TreeDecodeError> {
        if self.0.is_placeholder() {
            repaired(visitor)
        } else {
            self.deserialize_any(visitor)
        }
    }
}

impl<'de> Deserializer<'de> for TreeDeserializer<'_> {
    type Error = TreeDecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TreeDecodeError> {
        match &self.0.value {
            ConfigValue::Null | ConfigValue::Placeholder => visitor.visit_unit(),
            ConfigValue::Bool(yes) => visitor.visit_bool(*yes),
            ConfigValue::Integer(number) => visitor.visit_i64(*number),
            ConfigValue::Float(number) => visitor.visit_f64(*number),
            ConfigValue::Text(text) => visitor.visit_str(text),
            ConfigValue::List(items) => visitor.visit_seq(ListAccess { items, next: 0 }),
            ConfigValue::Table(members) => visitor.visit_map(TableAccess { members, next: 0 }),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TreeDecodeError> {
        match &self.0.value {
            ConfigValue::Null | ConfigValue::Placeholder => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, TreeDecodeError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TreeDecodeError> {
        self.deserialize_or(visitor, |visitor| visitor.visit_bool(false))
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TreeDecodeError> {
        self.deserialize_or(visitor, |visitor| visitor.visit_u64(1))
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TreeDecodeError> {
        self.deserialize_or(visitor, |visitor| visitor.visit_f64(1.0))
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TreeDecodeError> {
        self.deserialize_u64(visitor)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TreeDecodeError> {
        self.deserialize_or(visitor, |visitor| visitor.visit_str(""))
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TreeDecodeError> {
        self.deserialize_string(visitor)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TreeDecodeError> {
        self.deserialize_or(visitor, |visitor| {
            visitor.visit_seq(ListAccess {
                items: &[],
                next: 0,
            })
        })
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TreeDecodeError> {
        self.deserialize_or(visitor, |visitor| {
            visitor.visit_map(TableAccess {
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
    ) -> Result<V::Value, TreeDecodeError> {
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, TreeDecodeError> {
        match &self.0.value {
            ConfigValue::Text(name) => visitor.visit_enum(name.as_str().into_deserializer()),
            ConfigValue::Placeholder => visitor.visit_enum(
                names
                    .first()
                    .copied()
                    .unwrap_or_default()
                    .into_deserializer(),
            ),
            ConfigValue::Table(members) if let [(key, value)] = members.as_slice() => {
                visitor.visit_enum(TableVariantAccess(key, value))
            }
            _ => Err(TreeDecodeError::from_message(
                known_names_help(names).unwrap_or_default(),
            )),
        }
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u128 f32 char bytes byte_buf unit unit_struct tuple tuple_struct identifier
        ignored_any
    }
}

struct ListAccess<'a> {
    items: &'a [ConfigTree],
    next: usize,
}

impl<'de> SeqAccess<'de> for ListAccess<'_> {
    type Error = TreeDecodeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, TreeDecodeError> {
        let Some(item) = self.items.get(self.next) else {
            return Ok(None);
        };
        let at = self.next;
        self.next += 1;
        seed.deserialize(TreeDeserializer(item))
            .map(Some)
            .map_err(|mistake| mistake.with_parent(PathStep::Item(at)))
    }
}

struct TableAccess<'a> {
    members: &'a [(SpannedKey, ConfigTree)],
    next: usize,
}

impl<'de> MapAccess<'de> for TableAccess<'_> {
    type Error = TreeDecodeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, TreeDecodeError> {
        let Some((key, _)) = self.members.get(self.next) else {
            return Ok(None);
        };
        let name: StringDeserializer<TreeDecodeError> = key.name.clone().into_deserializer();
        seed.deserialize(name)
            .map(Some)
            .map_err(|mistake| mistake.with_parent_key(key))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(
        &mut self,
        seed: V,
    ) -> Result<V::Value, TreeDecodeError> {
        let (key, value) = self
            .members
            .get(self.next)
            .ok_or_else(|| TreeDecodeError::from_message("a value was read before its key"))?;
        self.next += 1;
        seed.deserialize(TreeDeserializer(value))
            .map_err(|mistake| mistake.with_parent_key(key))
    }
}

/// An enum variant with content: a table of one member.
struct TableVariantAccess<'a>(&'a SpannedKey, &'a ConfigTree);

impl<'de> EnumAccess<'de> for TableVariantAccess<'_> {
    type Error = TreeDecodeError;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(
        self,
        seed: V,
    ) -> Result<(V::Value, Self), TreeDecodeError> {
        let name: StringDeserializer<TreeDecodeError> = self.0.name.clone().into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'de> VariantAccess<'de> for TableVariantAccess<'_> {
    type Error = TreeDecodeError;

    fn unit_variant(self) -> Result<(), TreeDecodeError> {
        Err(TreeDecodeError::from_message(format!(
            "`{}` must be written as a text, without a value of its own",
            self.0.name
        )))
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(
        self,
        seed: T,
    ) -> Result<T::Value, TreeDecodeError> {
        seed.deserialize(TreeDeserializer(self.1))
            .map_err(|mistake| mistake.with_parent_key(self.0))
    }

    fn tuple_variant<V: Visitor<'de>>(
        self,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, TreeDecodeError> {
        TreeDeserializer(self.1)
            .deserialize_any(visitor)
            .map_err(|mistake| mistake.with_parent_key(self.0))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, TreeDecodeError> {
        TreeDeserializer(self.1)
            .deserialize_map(visitor)
            .map_err(|mistake| mistake.with_parent_key(self.0))
    }
}
