//! What agents are called on a screen: as few characters as tell them apart.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

use super::members::OFFICES;

/// Characters of an id that are shown at least, where it has so many.
pub const DISPLAY_CHARS_MIN: usize = 8;
/// What the ids of examples begin with, and their names don't.
const EXAMPLE_START: &str = "agent-";

/// The ids that names are told apart among.
#[derive(Debug, Default)]
pub(crate) struct Names {
    ids: BTreeSet<String>,
    example_ids: bool,
}

impl Names {
    /// No ids yet but those of the offices: no agent is shown as one of them. With `example_ids` an id `agent-456` is shown as `456`, where no other is called that.
    pub(crate) fn new(example_ids: bool) -> Self {
        Self { ids: OFFICES.map(str::to_owned).into(), example_ids }
    }

    /// Takes an id in. `false` where it was there.
    pub(crate) fn insert(&mut self, id: &str) -> bool {
        self.ids.insert(id.to_owned())
    }

    /// The shortest beginning of an id, of [`DISPLAY_CHARS_MIN`] characters at least, that no other id has; the whole id
    /// where there is none. Of an id that isn't among them, its first [`DISPLAY_CHARS_MIN`] characters, where that is
    /// nobody's id.
    pub(crate) fn display<'a>(&self, id: &'a str) -> &'a str {
        let name = self.without_start(id);
        if !self.ids.contains(id) {
            let start = first(name, DISPLAY_CHARS_MIN);
            return if self.ids.contains(start) { id } else { start };
        }
        if !self.example_ids {
            return first(id, self.shared(id, id, "") + 1);
        }
        if name != id && self.ids.contains(name) {
            return id;
        }
        // One without the start may be shown like one with it.
        first(name, self.shared(name, id, "").max(self.shared(name, id, EXAMPLE_START)) + 1)
    }

    /// An id without the start of examples, where that is left out.
    fn without_start<'a>(&self, id: &'a str) -> &'a str {
        let name = if self.example_ids { id.strip_prefix(EXAMPLE_START) } else { None };
        name.filter(|name| !name.is_empty()).unwrap_or(id)
    }

    /// Most bytes that `name` has in common with the beginning of an id but `but`, of those that begin with `start`. In
    /// their order, whoever has most in common with it stands beside it.
    fn shared(&self, name: &str, but: &str, start: &str) -> usize {
        let place = format!("{start}{name}");
        let here = place.as_str();
        let before = self.ids.range::<str, _>((Unbounded, Excluded(here))).rev().find(|id| *id != but);
        let after = self.ids.range::<str, _>((Excluded(here), Unbounded)).find(|id| *id != but);
        let like = self.ids.get(here).filter(|id| *id != but);
        [before, after, like]
            .into_iter()
            .flatten()
            .map(|id| common(id, &place))
            .max()
            .map_or(0, |most| most.saturating_sub(start.len()))
    }
}

/// Bytes that two have in common from their beginning.
fn common(one: &str, other: &str) -> usize {
    one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count()
}

/// So many characters of a text, [`DISPLAY_CHARS_MIN`] at least.
fn first(text: &str, chars: usize) -> &str {
    text.char_indices().nth(chars.max(DISPLAY_CHARS_MIN)).map_or(text, |(at, _)| &text[..at])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(example_ids: bool, ids: &[&str]) -> Names {
        let mut names = Names::new(example_ids);
        assert!(ids.iter().all(|id| names.insert(id)));
        names
    }

    /// Goal: eight characters, and more only where two would be shown alike. Method: rows.
    #[test]
    fn as_few_as_tell_them_apart() {
        let names = of(false, &["agent-123", "agent-124", "agent-9", "12345678-aa", "12345678-ab", "87654321-x", "a"]);
        for (id, shown) in [
            ("agent-123", "agent-123"),
            ("agent-9", "agent-9"),
            ("12345678-aa", "12345678-aa"),
            ("87654321-x", "87654321"),
            ("a", "a"),
            ("agent-456", "agent-45"),
            ("87654321-y", "87654321"),
            ("", ""),
            ("ééééééééé", "éééééééé"),
        ] {
            assert_eq!(names.display(id), shown, "{id}");
        }
        assert_eq!(of(false, &["agent-45", "agent-456"]).display("agent-45"), "agent-45");
    }

    /// Goal: the examples' ids are shown as the examples do, and still told apart. Method: rows.
    #[test]
    fn ids_of_examples() {
        let names = of(true, &["agent-456", "agent-457", "agent-7", "7", "agent-123456789a", "123456789b", "agent-"]);
        for (id, shown) in [
            ("agent-456", "456"),
            ("agent-457", "457"),
            ("agent-7", "agent-7"),
            ("7", "7"),
            ("agent-123456789a", "123456789a"),
            ("123456789b", "123456789b"),
            ("agent-", "agent-"),
            ("agent-999", "999"),
        ] {
            assert_eq!(names.display(id), shown, "{id}");
        }
    }

    /// Goal: no agent is shown as one of the offices, member or not. Method: rows.
    #[test]
    fn offices_are_told_apart() {
        for (example_ids, id, shown) in [
            (false, "operator", "operator"),
            (false, "guardian", "guardian"),
            (false, "operator-x", "operator-"),
            (false, "guardian-x", "guardian-"),
            (false, "system-x", "system-x"),
            (true, "agent-operator", "agent-operator"),
            (true, "agent-guardian-x", "guardian-"),
        ] {
            let mut names = Names::new(example_ids);
            names.insert(id);
            assert_eq!(names.display(id), shown, "{id}");
        }
        assert_eq!(Names::new(false).display("operator-x"), "operator-x");
    }

    proptest! {
        /// Goal: no two of the members and the offices are shown alike, and none is shown as what isn't part of it. Method:
        /// ids that have much in common with each other and with the offices.
        #[test]
        fn no_two_are_shown_alike(
            ids in proptest::collection::btree_set("(agent-)?(operator|guardian|system)?-?[01]{1,12}", 1..40),
            example_ids in any::<bool>(),
        ) {
            let mut names = Names::new(example_ids);
            ids.iter().for_each(|id| { names.insert(id); });
            let all = ids.iter().map(String::as_str).chain(OFFICES);
            let shown: BTreeSet<_> = all.map(|id| names.display(id)).collect();
            prop_assert_eq!(shown.len(), ids.len() + OFFICES.len());
            for id in &ids {
                let shown = names.display(id);
                prop_assert!(id.starts_with(shown) || (example_ids && id.strip_prefix("agent-").unwrap().starts_with(shown)));
                prop_assert!(shown.len() >= DISPLAY_CHARS_MIN.min(id.len()) || example_ids);
            }
        }
    }
}
