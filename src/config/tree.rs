//! A topology's text as a tree that knows where each value stands. TOML and YAML both come to this, and all that follows
//! needs to know only one of them.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

/// Deepest nesting of a topology, in tables and lists.
pub(super) const DEPTH_MAX: usize = 32;

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
            let key = Key { span: span.clone(), name: name.to_owned() };
            (key, Self::new(span.clone(), Value::Text(text.to_owned())))
        };
        Self::new(span.clone(), Value::Table(texts.map(member).into()))
    }

    pub(super) fn members(&self) -> &[(Key, Tree)] {
        if let Value::Table(members) = &self.value { members } else { &[] }
    }

    pub(super) fn items(&self) -> &[Self] {
        if let Value::List(items) = &self.value { items } else { &[] }
    }

    pub(super) fn text(&self) -> Option<&str> {
        if let Value::Text(text) = &self.value { Some(text) } else { None }
    }

    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        self.members().iter().find(|(key, _)| key.name == name).map(|(_, value)| value)
    }

    /// Takes a member out.
    pub(super) fn take(&mut self, name: &str) -> Option<(Key, Self)> {
        let Value::Table(members) = &mut self.value else { return None };
        let at = members.iter().position(|(key, _)| key.name == name)?;
        Some(members.remove(at))
    }

    /// The value at the end of a path of names.
    pub(super) fn at(&self, names: &[&str]) -> Option<&Self> {
        names.iter().try_fold(self, |tree, name| tree.get(name))
    }

    /// Where a member's name stands.
    pub(super) fn key_span(&self, name: &str) -> Option<Range<usize>> {
        self.members().iter().find(|(key, _)| key.name == name).map(|(key, _)| key.span.clone())
    }

    /// Whether it stands for something that was reported already.
    pub(super) fn is_repaired(&self) -> bool {
        matches!(self.value, Value::Anything)
    }

    pub(super) fn step_mut(&mut self, step: &Step) -> Option<&mut Self> {
        match (&mut self.value, step) {
            (Value::Table(members), Step::Key(name)) => {
                members.iter_mut().find(|(key, _)| key.name == *name).map(|(_, value)| value)
            }
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
                let mut members: Vec<_> = members.iter().map(|(key, value)| (&key.name, value)).collect();
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
