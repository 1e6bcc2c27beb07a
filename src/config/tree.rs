//! A topology's text as a tree that knows where each value stands. TOML and YAML both come to this, and all that follows
//! needs to know only one of them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use saphyr_parser::{Event, Parser, ScalarStyle, Span, Tag};
use toml::de::{DeTable, DeValue};

use super::problem::Problems;

/// Deepest nesting of a topology, in tables and lists.
const DEPTH_MAX: usize = 32;

/// A value and its place, in bytes of the text.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    pub(super) span: Range<usize>,
    pub(super) value: Value,
}

/// What stands there.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    List(Vec<Tree>),
    Table(Vec<(Key, Tree)>),
    /// In place of a value that is missing or wrong, and was reported: reads as any type, so that what else is wrong
    /// shows too.
    Anything,
}

/// A key and its place.
#[derive(Debug, Clone)]
pub(super) struct Key {
    pub(super) span: Range<usize>,
    pub(super) name: String,
}

/// A step to a value further in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Key(String),
    Item(usize),
}

impl Tree {
    pub(super) fn new(span: Range<usize>, value: Value) -> Self {
        Self { span, value }
    }

    /// A table with nothing in it, for what a file leaves out.
    pub(super) fn empty() -> Self {
        Self::new(0..0, Value::Table(Vec::new()))
    }

    /// A table of texts, all of this place.
    pub(super) fn of_texts<const N: usize>(span: &Range<usize>, texts: [(&str, &str); N]) -> Self {
        let member = |(name, text): (&str, &str)| {
            let key = Key {
                span: span.clone(),
                name: name.to_owned(),
            };
            (key, Self::new(span.clone(), Value::Text(text.to_owned())))
        };
        Self::new(span.clone(), Value::Table(texts.map(member).into()))
    }

    pub(super) fn members(&self) -> &[(Key, Tree)] {
        if let Value::Table(members) = &self.value {
            members
        } else {
            &[]
        }
    }

    pub(super) fn items(&self) -> &[Self] {
        if let Value::List(items) = &self.value {
            items
        } else {
            &[]
        }
    }

    pub(super) fn text(&self) -> Option<&str> {
        if let Value::Text(text) = &self.value {
            Some(text)
        } else {
            None
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        self.members()
            .iter()
            .find(|(key, _)| key.name == name)
            .map(|(_, value)| value)
    }

    /// Takes a member out.
    pub(super) fn take(&mut self, name: &str) -> Option<(Key, Self)> {
        let Value::Table(members) = &mut self.value else {
            return None;
        };
        let at = members.iter().position(|(key, _)| key.name == name)?;
        Some(members.remove(at))
    }

    /// The value at the end of a path of names.
    pub(super) fn at(&self, names: &[&str]) -> Option<&Self> {
        names.iter().try_fold(self, |tree, name| tree.get(name))
    }

    /// Span of a member, else of this table; `None` where what is there was reported already, so that nothing more is said of it.
    pub(super) fn place(&self, name: &str) -> Option<Range<usize>> {
        self.place_at(&[name])
    }

    /// The same, of the value at the end of a path of names.
    pub(super) fn place_at(&self, names: &[&str]) -> Option<Range<usize>> {
        match self.at(names) {
            Some(found) if found.is_repaired() => None,
            found => Some(found.unwrap_or(self).span.clone()),
        }
    }

    /// Span of an item of a list.
    pub(super) fn item_place(&self, key: &str, at: usize) -> Option<Range<usize>> {
        let item = self.get(key).and_then(|list| list.items().get(at));
        item.map_or_else(|| self.place(key), |item| Some(item.span.clone()))
    }

    /// Where a member's name stands.
    pub(super) fn key_span(&self, name: &str) -> Option<Range<usize>> {
        self.members()
            .iter()
            .find(|(key, _)| key.name == name)
            .map(|(key, _)| key.span.clone())
    }

    /// Whether it stands for something that was reported already.
    pub(super) fn is_repaired(&self) -> bool {
        matches!(self.value, Value::Anything)
    }

    /// Whether it reads as nothing: null, an empty list, or what was reported already.
    pub(super) fn is_nothing(&self) -> bool {
        match &self.value {
            Value::Null | Value::Anything => true,
            Value::List(items) => items.is_empty(),
            _ => false,
        }
    }

    pub(super) fn step_mut(&mut self, step: &Step) -> Option<&mut Self> {
        match (&mut self.value, step) {
            (Value::Table(members), Step::Key(name)) => members
                .iter_mut()
                .find(|(key, _)| key.name == *name)
                .map(|(_, value)| value),
            (Value::List(items), Step::Item(at)) => items.get_mut(*at),
            _ => None,
        }
    }

    /// Takes away what a step leads to; whether it was there.
    pub(super) fn remove(&mut self, step: &Step) -> bool {
        match (&mut self.value, step) {
            (Value::Table(_), Step::Key(name)) => self.take(name).is_some(),
            (Value::List(items), Step::Item(at)) if *at < items.len() => {
                items.remove(*at);
                true
            }
            _ => false,
        }
    }

    /// The same for the same values, wherever they stand and in whatever order a table has them. Tells nothing of them.
    pub(super) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash_into(&mut hasher);
        hasher.finish()
    }

    /// The same, whatever the member of that name is.
    pub(super) fn fingerprint_without(&mut self, name: &str) -> u64 {
        let left_out = self.take(name);
        let fingerprint = self.fingerprint();
        if let (Some(left_out), Value::Table(members)) = (left_out, &mut self.value) {
            members.push(left_out);
        }
        fingerprint
    }

    fn hash_into(&self, hasher: &mut DefaultHasher) {
        match &self.value {
            Value::Null | Value::Anything => 0_u8.hash(hasher),
            Value::Bool(yes) => (1_u8, yes).hash(hasher),
            Value::Integer(number) => (2_u8, number).hash(hasher),
            Value::Float(number) => (3_u8, number.to_bits()).hash(hasher),
            Value::Text(text) => (4_u8, text).hash(hasher),
            Value::List(items) => {
                (5_u8, items.len()).hash(hasher);
                items.iter().for_each(|item| item.hash_into(hasher));
            }
            Value::Table(members) => {
                let mut members: Vec<_> = members
                    .iter()
                    .map(|(key, value)| (&key.name, value))
                    .collect();
                members.sort_by_key(|(name, _)| *name);
                (6_u8, members.len()).hash(hasher);
                for (name, value) in members {
                    name.hash(hasher);
                    value.hash_into(hasher);
                }
            }
        }
    }
}

/// Most values of a YAML file, with those that its aliases repeat.
const YAML_VALUES_MAX: usize = 50_000;

/// Reads a text; what can't be read is reported, and what can is the result.
pub(super) fn read(text: &str, is_yaml: bool, problems: &mut Problems<'_>) -> Option<Tree> {
    if is_yaml {
        yaml(text, problems)
    } else {
        Some(toml(text, problems))
    }
}

fn toml(text: &str, problems: &mut Problems<'_>) -> Tree {
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        problems.error(
            error.span().or(Some(0..text.len().min(1))),
            error.message().replace('\n', " "),
        );
    }
    let span = table.span();
    toml_table(table.into_inner(), span)
}

fn toml_table(table: DeTable<'_>, span: Range<usize>) -> Tree {
    let member = |(key, value): (toml::Spanned<Cow<'_, str>>, toml::Spanned<DeValue<'_>>)| {
        let key = Key {
            span: key.span(),
            name: key.into_inner().into_owned(),
        };
        let span = value.span();
        (key, toml_value(value.into_inner(), span))
    };
    let mut members: Vec<_> = table.into_iter().map(member).collect();
    // As they are written: what is reported first is what stands first.
    members.sort_by_key(|(key, _)| key.span.start);
    Tree::new(span, Value::Table(members))
}

fn toml_value(value: DeValue<'_>, span: Range<usize>) -> Tree {
    let value = match value {
        DeValue::String(text) => Value::Text(text.into_owned()),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Value::Integer(number),
            Err(_) => Value::Text(number.as_str().to_owned()),
        },
        DeValue::Float(number) => number.as_str().parse().map_or(Value::Null, Value::Float),
        DeValue::Boolean(yes) => Value::Bool(yes),
        DeValue::Datetime(time) => Value::Text(time.to_string()),
        DeValue::Array(items) => {
            let item = |item: toml::Spanned<DeValue<'_>>| {
                let span = item.span();
                toml_value(item.into_inner(), span)
            };
            Value::List(items.into_iter().map(item).collect())
        }
        DeValue::Table(table) => return toml_table(table, span),
    };
    Tree::new(span, value)
}

/// A table or list that isn't finished.
struct Open {
    start: usize,
    anchor: usize,
    holds: Holds,
}

enum Holds {
    List(Vec<Tree>),
    /// The members so far, and the key whose value comes next.
    Table(Vec<(Key, Tree)>, Option<Key>),
}

fn yaml(text: &str, problems: &mut Problems<'_>) -> Option<Tree> {
    // The parser counts characters.
    let starts: Option<Vec<usize>> =
        (!text.is_ascii()).then(|| text.char_indices().map(|(at, _)| at).collect());
    let byte = |at: usize| {
        starts
            .as_ref()
            .map_or(at, |starts| starts.get(at).copied().unwrap_or(text.len()))
    };
    let bytes = |span: Span| byte(span.start.index())..byte(span.end.index());
    let (mut open, mut anchors, mut root) =
        (Vec::<Open>::new(), HashMap::<usize, Tree>::new(), None);
    let (mut values, mut documents) = (0_usize, 0_usize);
    for event in Parser::new_from_str(text) {
        let (event, span) = match event {
            Ok((event, span)) => (event, bytes(span)),
            Err(error) => {
                let at = byte(error.marker().index());
                problems.error(Some(at..(at + 1).max(1)), error.info());
                return None;
            }
        };
        let done = match event {
            Event::DocumentStart(_) => {
                documents += 1;
                if documents > 1 {
                    problems.error(Some(span), "a topology is one YAML document");
                    return root;
                }
                continue;
            }
            Event::SequenceStart(anchor, _) => {
                open.push(Open {
                    start: span.start,
                    anchor,
                    holds: Holds::List(Vec::new()),
                });
                None
            }
            Event::MappingStart(anchor, _) => {
                open.push(Open {
                    start: span.start,
                    anchor,
                    holds: Holds::Table(Vec::new(), None),
                });
                None
            }
            Event::Scalar(scalar, style, anchor, tag) => {
                values += 1;
                Some((
                    Tree::new(span.clone(), scalar_value(scalar, style, tag.as_deref())),
                    anchor,
                ))
            }
            Event::SequenceEnd | Event::MappingEnd => {
                values += 1;
                let Some(ended) = open.pop() else { continue };
                let value = match ended.holds {
                    Holds::List(items) => Value::List(items),
                    Holds::Table(members, _) => Value::Table(members),
                };
                Some((
                    Tree::new(ended.start..span.end.max(ended.start + 1), value),
                    ended.anchor,
                ))
            }
            Event::Alias(anchor) => {
                let repeated = anchors.get(&anchor).cloned();
                values += repeated.as_ref().map_or(1, count);
                Some((
                    repeated.unwrap_or_else(|| Tree::new(span.clone(), Value::Null)),
                    0,
                ))
            }
            _ => None,
        };
        if open.len() > DEPTH_MAX {
            problems.error(Some(span), format!("nested deeper than {DEPTH_MAX} levels"));
            return None;
        }
        if values > YAML_VALUES_MAX {
            problems.error(
                Some(span),
                format!("more than {YAML_VALUES_MAX} values, with what aliases repeat"),
            );
            return None;
        }
        let Some((tree, anchor)) = done else { continue };
        if anchor > 0 {
            anchors.insert(anchor, tree.clone());
        }
        match open.last_mut().map(|open| &mut open.holds) {
            None => root = Some(tree),
            Some(Holds::List(items)) => items.push(tree),
            Some(Holds::Table(members, key)) => match key.take() {
                Some(key) if members.iter().any(|(other, _)| other.name == key.name) => {
                    problems.error(Some(key.span), format!("`{}` is there twice", key.name));
                }
                Some(key) => members.push((key, tree)),
                None => *key = Some(as_key(tree, problems)),
            },
        }
    }
    Some(root.unwrap_or_else(Tree::empty))
}

fn count(tree: &Tree) -> usize {
    match &tree.value {
        Value::List(items) => 1 + items.iter().map(count).sum::<usize>(),
        Value::Table(members) => 1 + members.iter().map(|(_, value)| count(value)).sum::<usize>(),
        _ => 1,
    }
}

fn as_key(tree: Tree, problems: &mut Problems<'_>) -> Key {
    let name = match tree.value {
        Value::Text(text) => text,
        Value::Bool(yes) => yes.to_string(),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        _ => {
            problems.error(Some(tree.span.clone()), "a key must be a text");
            String::new()
        }
    };
    Key {
        span: tree.span,
        name,
    }
}

/// The core schema of YAML 1.2 (10.3.2): only plain scalars are anything but text.
fn scalar_value(scalar: Cow<'_, str>, style: ScalarStyle, tag: Option<&Tag>) -> Value {
    let is_text = tag.is_some_and(|tag| tag.is_yaml_core_schema() && tag.suffix == "str");
    if style != ScalarStyle::Plain || is_text {
        return Value::Text(scalar.into_owned());
    }
    let number = || {
        let radix = [("0x", 16), ("0o", 8)]
            .into_iter()
            .find_map(|(prefix, radix)| {
                i64::from_str_radix(scalar.strip_prefix(prefix)?, radix).ok()
            });
        radix.or_else(|| scalar.parse().ok())
    };
    let is_float =
        || scalar.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.'));
    match &*scalar {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        text => match number() {
            Some(number) => Value::Integer(number),
            None if is_float() => text
                .parse()
                .map_or_else(|_| Value::Text(text.to_owned()), Value::Float),
            None => Value::Text(text.to_owned()),
        },
    }
}
