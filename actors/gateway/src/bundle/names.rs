//! Names of what several agents have, so that each means one thing.

use std::collections::{BTreeMap, HashMap};

use callboard_runtime::Patterns;

use super::{Filter, Separator};

/// Longest name of a tool, in characters: what clients of models accept.
pub(super) const NAME_CHARS_MAX: usize = 64;
/// Digits that tell names apart that had to be cut.
const HASH_DIGITS: usize = 8;

/// `member.name`, cut to [`NAME_CHARS_MAX`] with a hash of the whole in place of the rest.
pub(super) fn joined(member: &str, separator: Separator, name: &str) -> String {
    let whole = format!("{}{}{name}", plain(member), separator.text());
    match whole.char_indices().nth(NAME_CHARS_MAX) {
        None => whole,
        Some(_) => {
            let kept: String = whole
                .chars()
                .take(NAME_CHARS_MAX - HASH_DIGITS - 1)
                .collect();
            format!("{kept}{}{:08x}", &separator.text()[..1], hash(&whole))
        }
    }
}

/// Whether a member's name that had to be cut could have become `shown`.
pub(super) fn may_be_of(shown: &str, member: &str, separator: Separator) -> bool {
    let begins: String = format!("{}{}", plain(member), separator.text())
        .chars()
        .take(NAME_CHARS_MAX - HASH_DIGITS - 1)
        .collect();
    may_be_cut(shown) && shown.starts_with(&begins)
}

/// Whether a name is as long as those that were cut.
pub(super) fn may_be_cut(name: &str) -> bool {
    name.chars().count() == NAME_CHARS_MAX
}

/// A member's name in the characters that names of tools have.
pub(super) fn plain(member: &str) -> String {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    member
        .chars()
        .map(|c| if is_fine(c) { c } else { '_' })
        .collect()
}

/// FNV-1a: the same in every process and version, unlike the standard library's.
fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

/// The name under which each (member, tool) is shown: its own where no other has it and `may_stay`, else joined.
pub(super) fn shown<'a>(
    tools: &[(&'a str, &'a str)],
    separator: Separator,
    may_stay: impl Fn(&str) -> bool,
) -> Vec<String> {
    let mut is_joined: Vec<bool> = tools.iter().map(|(_, tool)| !may_stay(tool)).collect();
    let name = |((member, tool), is_joined): (&(&str, &str), &bool)| match is_joined {
        true => joined(member, separator, tool),
        false => (*tool).to_owned(),
    };
    // A joined name may be another's own: then that one is joined too. Each round joins one more at least.
    loop {
        let shown: Vec<String> = tools.iter().zip(&is_joined).map(name).collect();
        let mut times: HashMap<&str, usize> = HashMap::new();
        shown
            .iter()
            .for_each(|name| *times.entry(name).or_default() += 1);
        let is_twice = |at: &usize| !is_joined[*at] && times[&*shown[*at]] > 1;
        let to_join: Vec<usize> = (0..tools.len()).filter(is_twice).collect();
        if to_join.is_empty() {
            return shown;
        }
        to_join.into_iter().for_each(|at| is_joined[at] = true);
    }
}

/// Lets names pass.
#[derive(Default)]
pub(super) struct Sieve {
    allow: Patterns<()>,
    deny: Patterns<()>,
}

impl Sieve {
    pub fn new(allow: &[String], deny: &[String]) -> Self {
        Self {
            allow: allow.iter().cloned().collect(),
            deny: deny.iter().cloned().collect(),
        }
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
        Ok(Self {
            sieve: Sieve::new(&filter.allow, &filter.deny),
            outward: filter.rename,
            inward,
        })
    }

    /// What stands for an own name; `None` where nothing does.
    pub fn outward<'a>(&'a self, own: &'a str) -> Option<&'a str> {
        let renamed = self.outward.get(own).map(String::as_str);
        // Another was given this one's name.
        let is_free = || !self.inward.contains_key(own);
        renamed
            .or_else(|| is_free().then_some(own))
            .filter(|_| self.sieve.passes(own))
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

    const DOT: Separator = Separator::Dot;

    /// Goal: a name that one agent alone has stays, one that several have is joined, whatever the order. Method: rows, and
    /// turned round.
    #[test]
    fn collisions_are_joined() {
        let tools = [
            ("a", "list"),
            ("a", "get"),
            ("b", "list"),
            ("c", "a.list"),
            ("c d", "put"),
        ];
        let names = shown(&tools, DOT, |_| true);
        assert_eq!(names, ["a.list", "get", "b.list", "c.a.list", "put"]);
        let turned: Vec<_> = tools.iter().rev().copied().collect();
        let mut again = shown(&turned, DOT, |_| true);
        again.reverse();
        assert_eq!(again, names);
        let kept = |tool: &str| !tool.starts_with("a.");
        assert_eq!(shown(&tools[1..4], DOT, kept), ["get", "list", "c.a.list"]);
    }

    /// Goal: names fit, and cutting keeps them apart. Method: at the limit, one over, and two that differ at the end.
    #[test]
    fn long_names_are_cut_and_stay_apart() {
        let at_limit = joined("m", DOT, &"t".repeat(NAME_CHARS_MAX - 2));
        assert_eq!(
            (at_limit.len(), at_limit.starts_with("m.ttt")),
            (NAME_CHARS_MAX, true)
        );
        let (one, other) = (
            joined("m", DOT, &format!("{}a", "t".repeat(70))),
            joined("m", DOT, &format!("{}b", "t".repeat(70))),
        );
        assert_eq!((one.len(), other.len()), (NAME_CHARS_MAX, NAME_CHARS_MAX));
        assert_ne!(one, other);
        // Stable: written down once, the name is the same in every process.
        assert_eq!(
            joined("m", DOT, &"t".repeat(70)),
            joined("m", DOT, &"t".repeat(70))
        );
        assert!(
            may_be_of(&one, "m", DOT) && !may_be_of(&one, "n", DOT) && !may_be_of("m.t", "m", DOT)
        );
        let long = "m".repeat(70);
        assert!(may_be_of(&joined(&long, DOT, "x"), &long, DOT));
        assert_eq!(joined("ärztin 1", DOT, "x"), "_rztin_1.x");
    }

    /// Goal: with underscores every name has only what all models' clients accept. Method: short, and one that is cut.
    #[test]
    fn underscores_are_all_that_is_added() {
        let names = [
            joined("m", Separator::Underscores, "t"),
            joined("m", Separator::Underscores, &"t".repeat(70)),
        ];
        assert_eq!(names[0], "m__t");
        assert_eq!(names[1].len(), NAME_CHARS_MAX);
        assert!(
            names
                .iter()
                .all(|name| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'))
        );
        assert!(may_be_of(&names[1], "m", Separator::Underscores));
    }

    fn naming(allow: &[&str], deny: &[&str], rename: &[(&str, &str)]) -> Result<Naming, String> {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let rename = rename
            .iter()
            .map(|(own, name)| ((*own).to_owned(), (*name).to_owned()))
            .collect();
        Naming::new(Filter {
            allow: owned(allow),
            deny: owned(deny),
            rename,
        })
    }

    /// Goal: each way is the other's reverse, and what doesn't pass has no name at all. Method: rows of (own, shown).
    #[test]
    fn names_there_and_back() {
        let names = naming(
            &["read_*", "list", "a", "b"],
            &["*_secret"],
            &[("read_file", "read"), ("a", "b"), ("b", "a")],
        );
        let names = names.unwrap();
        for (own, name) in [
            ("read_file", "read"),
            ("read_all", "read_all"),
            ("list", "list"),
            ("a", "b"),
            ("b", "a"),
        ] {
            assert_eq!(
                (names.outward(own), names.inward(name)),
                (Some(name), Some(own))
            );
        }
        for own in ["write", "read_secret", ""] {
            assert_eq!(
                (names.outward(own), names.inward(own)),
                (None, None),
                "{own}"
            );
        }
        // What was renamed isn't found under its old name, and its new one means nothing else.
        assert_eq!(
            (names.inward("read_file"), names.outward("read")),
            (None, None)
        );
        let denied = naming(&[], &["read_file"], &[("read_file", "read")]).unwrap();
        assert_eq!(
            (
                denied.outward("read_file"),
                denied.inward("read"),
                denied.outward("read")
            ),
            (None, None, None)
        );
    }

    /// Goal: names that can't be are refused. Method: one twice, an empty one, one too long, and one with a space.
    #[test]
    fn names_that_cannot_be() {
        assert_eq!(
            naming(&[], &[], &[("a", "x"), ("b", "x")]).err(),
            Some("x".into())
        );
        assert!(naming(&[], &[], &[("a", &"n".repeat(NAME_CHARS_MAX))]).is_ok());
        for name in ["", " ", "ä", &"n".repeat(NAME_CHARS_MAX + 1)] {
            assert_eq!(naming(&[], &[], &[("a", name)]).err(), Some(name.into()));
        }
    }
}
