//! Which names pass, and what they become.

use std::collections::{BTreeMap, HashMap};

use callboard_runtime::Patterns;

use super::names::NAME_CHARS_MAX;
use super::options::Filter;

/// Lets names pass.
#[derive(Default)]
pub(super) struct Sieve {
    allow: Patterns<()>,
    deny: Patterns<()>,
}

impl Sieve {
    pub fn new(allow: &[String], deny: &[String]) -> Self {
        Self { allow: allow.iter().cloned().collect(), deny: deny.iter().cloned().collect() }
    }

    pub fn passes(&self, name: &str) -> bool {
        (self.allow.is_empty() || self.allow.has(name)) && !self.deny.has(name)
    }
}

/// A member's names and those that stand for them outside.
#[derive(Default)]
pub(super) struct Naming {
    sieve: Sieve,
    /// Own name → what stands for it.
    outward: BTreeMap<String, String>,
    inward: HashMap<String, String>,
}

impl Naming {
    /// # Errors
    /// A name that two have, or that can't be one.
    pub fn new(filter: Filter) -> Result<Self, String> {
        let mut inward = HashMap::new();
        for (own, name) in &filter.rename {
            if !is_name(name) || inward.insert(name.clone(), own.clone()).is_some() {
                return Err(name.clone());
            }
        }
        Ok(Self { sieve: Sieve::new(&filter.allow, &filter.deny), outward: filter.rename, inward })
    }

    /// What stands for an own name; `None` where nothing does.
    pub fn outward<'a>(&'a self, own: &'a str) -> Option<&'a str> {
        let renamed = self.outward.get(own).map(String::as_str);
        // Another was given this one's name.
        let is_free = || !self.inward.contains_key(own);
        renamed.or_else(|| is_free().then_some(own)).filter(|_| self.sieve.passes(own))
    }

    /// Which own name a name stands for.
    pub fn inward<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        let own = self.inward.get(name).map_or(name, String::as_str);
        (self.outward(own) == Some(name)).then_some(own)
    }
}

fn is_name(name: &str) -> bool {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    (1..=NAME_CHARS_MAX).contains(&name.len()) && name.chars().all(is_fine)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn naming(allow: &[&str], deny: &[&str], rename: &[(&str, &str)]) -> Result<Naming, String> {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let rename = rename.iter().map(|(own, name)| ((*own).to_owned(), (*name).to_owned())).collect();
        Naming::new(Filter { allow: owned(allow), deny: owned(deny), rename })
    }

    /// Goal: each way is the other's reverse, and what doesn't pass has no name at all. Method: rows of (own, shown).
    #[test]
    fn names_there_and_back() {
        let names =
            naming(&["read_*", "list", "a", "b"], &["*_secret"], &[("read_file", "read"), ("a", "b"), ("b", "a")]);
        let names = names.unwrap();
        for (own, name) in [("read_file", "read"), ("read_all", "read_all"), ("list", "list"), ("a", "b"), ("b", "a")] {
            assert_eq!((names.outward(own), names.inward(name)), (Some(name), Some(own)));
        }
        for own in ["write", "read_secret", ""] {
            assert_eq!((names.outward(own), names.inward(own)), (None, None), "{own}");
        }
        // What was renamed isn't found under its old name, and its new one means nothing else.
        assert_eq!((names.inward("read_file"), names.outward("read")), (None, None));
        let denied = naming(&[], &["read_file"], &[("read_file", "read")]).unwrap();
        assert_eq!((denied.outward("read_file"), denied.inward("read"), denied.outward("read")), (None, None, None));
    }

    /// Goal: names that can't be are refused. Method: one twice, an empty one, one too long, and one with a space.
    #[test]
    fn names_that_cannot_be() {
        assert_eq!(naming(&[], &[], &[("a", "x"), ("b", "x")]).err(), Some("x".into()));
        assert!(naming(&[], &[], &[("a", &"n".repeat(NAME_CHARS_MAX))]).is_ok());
        for name in ["", " ", "ä", &"n".repeat(NAME_CHARS_MAX + 1)] {
            assert_eq!(naming(&[], &[], &[("a", name)]).err(), Some(name.into()));
        }
    }
}
