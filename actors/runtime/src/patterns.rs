//! Names in groups: `read_*` is all names that begin so.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;

use wildmatch::WildMatch;

/// Values under names and patterns of names: `*` stands for any characters, `?` for one. Where several fit, the name
/// itself goes first, then the pattern that says most of the name.
#[derive(Clone)]
pub struct Patterns<T> {
    exact: HashMap<String, T>,
    /// What says most comes first.
    globs: Vec<(WildMatch, T)>,
}

impl<T> Patterns<T> {
    /// What `name` has.
    pub fn get(&self, name: &str) -> Option<&T> {
        self.get_any(&[name])
    }

    /// What something with several names has.
    pub fn get_any(&self, names: &[&str]) -> Option<&T> {
        let exact = names.iter().find_map(|name| self.exact.get(*name));
        exact.or_else(|| {
            let mut globs = self.globs.iter();
            globs.find(|(glob, _)| names.iter().any(|name| glob.matches(name))).map(|(_, value)| value)
        })
    }

    /// Whether anything fits `name`.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Whether nothing fits any name.
    pub fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.globs.is_empty()
    }
}

impl<T> Default for Patterns<T> {
    fn default() -> Self {
        Self { exact: HashMap::new(), globs: Vec::new() }
    }
}

impl<T> FromIterator<(String, T)> for Patterns<T> {
    fn from_iter<I: IntoIterator<Item = (String, T)>>(all: I) -> Self {
        let (mut exact, mut globs) = (HashMap::new(), Vec::new());
        for (pattern, value) in all {
            match pattern.contains(['*', '?']) {
                true => globs.push((pattern, value)),
                false => drop(exact.insert(pattern, value)),
            }
        }
        // A map gives them in any order: the pattern itself breaks ties.
        globs.sort_by_cached_key(|(pattern, _)| (Reverse(said(pattern)), pattern.clone()));
        Self { exact, globs: globs.into_iter().map(|(pattern, value)| (WildMatch::new(&pattern), value)).collect() }
    }
}

/// A set.
impl FromIterator<String> for Patterns<()> {
    fn from_iter<I: IntoIterator<Item = String>>(all: I) -> Self {
        all.into_iter().map(|pattern| (pattern, ())).collect()
    }
}

fn said(pattern: &str) -> usize {
    pattern.chars().filter(|c| !matches!(c, '*' | '?')).count()
}

impl<T: fmt::Debug> fmt::Debug for Patterns<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let globs = self.globs.iter().map(|(glob, value)| (glob.to_string(), value));
        f.debug_map().entries(&self.exact).entries(globs).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: one pattern decides, whatever the order they came in. Method: rows, forwards and backwards.
    #[test]
    fn what_says_most_decides() {
        let rows = [("*", 1), ("read_*", 2), ("read_file", 3), ("*_file", 4), ("read_?", 5), ("a*b*c", 6)];
        let of = |rows: &[(&str, u32)]| rows.iter().map(|(p, n)| ((*p).to_owned(), *n)).collect::<Patterns<u32>>();
        let (there, back) = (of(&rows), of(&rows.iter().rev().copied().collect::<Vec<_>>()));
        for patterns in [there, back] {
            for (name, value) in
                [("x", 1), ("read_all", 2), ("read_file", 3), ("write_file", 4), ("read_x", 2), ("a-b-c", 6)]
            {
                // `*_file` and `read_*` say five characters each, as does `read_?`: the text decides among them.
                assert_eq!(patterns.get(name), Some(&value), "{name}");
            }
        }
        assert_eq!(of(&rows).get_any(&["write_x", "read_file"]), Some(&3));
    }

    /// Goal: no pattern, nothing. Method: an empty set, and one that doesn't fit.
    #[test]
    fn what_does_not_fit() {
        assert!(Patterns::<()>::default().is_empty() && !Patterns::<()>::default().has(""));
        let set: Patterns<()> = ["a.*".to_owned()].into_iter().collect();
        assert!(set.has("a.") && !set.has("a") && !set.has("b.a.c") && !set.is_empty());
    }
}
