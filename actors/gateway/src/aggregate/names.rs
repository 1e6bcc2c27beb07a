//! Unambiguous names for the tools and prompts of several members.

use std::collections::{BTreeMap, HashMap};

use callboard_runtime::NamePatterns;

use super::{NameSeparator, ToolFilter};

/// Maximum length of a tool name, in characters. Clients of language models accept no longer ones,
/// so longer prefixed names are truncated.
pub(super) const NAME_CHARS_MAX: usize = 64;
/// Number of digits of the hash that ends a truncated name and makes it unique.
const HASH_DIGITS: usize = 8;

/// Returns the prefixed name: `member`, the separator and `name`. Characters of `member` that tool
/// names don't allow are replaced. A result longer than [`NAME_CHARS_MAX`] is truncated and ends
/// with a hash of the whole name.
pub(super) fn joined_name(member: &str, separator: NameSeparator, name: &str) -> String {
    let whole = format!("{}{}{name}", sanitize_name(member), separator.as_str());
    match whole.char_indices().nth(NAME_CHARS_MAX) {
        None => whole,
        Some(_) => {
            let kept: String = whole
                .chars()
                .take(NAME_CHARS_MAX - HASH_DIGITS - 1)
                .collect();
            format!("{kept}{}{:08x}", &separator.as_str()[..1], hash(&whole))
        }
    }
}

/// Returns whether `shown` could be a truncated name of an item of this member.
pub(super) fn may_be_name_of(shown: &str, member: &str, separator: NameSeparator) -> bool {
    let begins: String = format!("{}{}", sanitize_name(member), separator.as_str())
        .chars()
        .take(NAME_CHARS_MAX - HASH_DIGITS - 1)
        .collect();
    may_be_truncated(shown) && shown.starts_with(&begins)
}

/// Returns whether a name has the length that all truncated names have.
pub(super) fn may_be_truncated(name: &str) -> bool {
    name.chars().count() == NAME_CHARS_MAX
}

/// Replaces by `_` the characters of a member's name that tool names don't allow.
pub(super) fn sanitize_name(member: &str) -> String {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    member
        .chars()
        .map(|c| if is_fine(c) { c } else { '_' })
        .collect()
}

/// Computes the FNV-1a hash of a text. Unlike the standard library's hash, it is the same in every
/// process and version.
fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

/// Returns the shown name of each tool in `tools`, a list of pairs (member, tool). It is the tool's
/// original name if that is unique and `may_stay` allows it, else the name with the member's
/// prefix.
pub(super) fn shown_names<'a>(
    tools: &[(&'a str, &'a str)],
    separator: NameSeparator,
    may_stay: impl Fn(&str) -> bool,
) -> Vec<String> {
    let mut is_joined: Vec<bool> = tools.iter().map(|(_, tool)| !may_stay(tool)).collect();
    let name = |((member, tool), is_joined): (&(&str, &str), &bool)| match is_joined {
        true => joined_name(member, separator, tool),
        false => (*tool).to_owned(),
    };
    // A joined name may equal another's original name, which is then joined too. Each round joins
    // at least one more.
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

/// Returns the names by which patterns select a tool of a member, whatever the separator: its name
/// without prefix, and those with one.
pub(super) fn selectable_names(member: &str, name: &str) -> [String; 3] {
    [
        name.to_owned(),
        joined_name(member, NameSeparator::Dot, name),
        joined_name(member, NameSeparator::Underscores, name),
    ]
}

/// Filter that selects names by patterns to allow and to deny.
#[derive(Default)]
pub(super) struct NameFilter {
    allow: NamePatterns<()>,
    deny: NamePatterns<()>,
}

impl NameFilter {
    pub fn new(allow: &[String], deny: &[String]) -> Self {
        Self {
            allow: allow.iter().cloned().collect(),
            deny: deny.iter().cloned().collect(),
        }
    }

    pub fn passes(&self, name: &str) -> bool {
        self.passes_any(&[name])
    }

    /// Returns whether a tool of a member passes by any of its [`selectable_names`].
    pub fn selects(&self, member: &str, name: &str) -> bool {
        if self.allow.is_empty() && self.deny.is_empty() {
            return true;
        }
        let names = selectable_names(member, name);
        self.passes_any(&names.each_ref().map(String::as_str))
    }

    fn passes_any(&self, names: &[&str]) -> bool {
        (self.allow.is_empty() || self.allow.get_any(names).is_some())
            && self.deny.get_any(names).is_none()
    }
}

/// Mapping between a member's original names and the shown names without prefix.
#[derive(Default)]
pub(super) struct NameMapping {
    sieve: NameFilter,
    /// Shown name of each renamed tool, by its original name.
    shown_by_own: BTreeMap<String, String>,
    own_by_shown: HashMap<String, String>,
}

impl NameMapping {
    /// Creates the mapping of a member's tool filter.
    ///
    /// # Errors
    /// The new name that is used twice or is invalid.
    pub fn new(filter: ToolFilter) -> Result<Self, String> {
        let mut inward = HashMap::new();
        for (own, name) in &filter.rename {
            if !is_name(name) || inward.insert(name.clone(), own.clone()).is_some() {
                return Err(name.clone());
            }
        }
        Ok(Self {
            sieve: NameFilter::new(&filter.allow, &filter.deny),
            shown_by_own: filter.rename,
            own_by_shown: inward,
        })
    }

    /// Returns the shown name of an original name; `None` if the filter hides it, or another tool
    /// has been renamed to it.
    pub fn to_shown<'a>(&'a self, own: &'a str) -> Option<&'a str> {
        let renamed = self.shown_by_own.get(own).map(String::as_str);
        // Another tool may have been renamed to this name.
        let is_free = || !self.own_by_shown.contains_key(own);
        renamed
            .or_else(|| is_free().then_some(own))
            .filter(|_| self.sieve.passes(own))
    }

    /// Returns the original name of a shown name; `None` if no tool is shown under it.
    pub fn to_own<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        let own = self.own_by_shown.get(name).map_or(name, String::as_str);
        (self.to_shown(own) == Some(name)).then_some(own)
    }
}

fn is_name(name: &str) -> bool {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    (1..=NAME_CHARS_MAX).contains(&name.len()) && name.chars().all(is_fine)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOT: NameSeparator = NameSeparator::Dot;

    /// Goal: a unique name stays, a name of several agents is joined, in any order of the agents.
    /// Method: rows, and reversed.
    #[test]
    fn collisions_are_joined() {
        let tools = [
            ("a", "list"),
            ("a", "get"),
            ("b", "list"),
            ("c", "a.list"),
            ("c d", "put"),
        ];
        let names = shown_names(&tools, DOT, |_| true);
        assert_eq!(names, ["a.list", "get", "b.list", "c.a.list", "put"]);
        let turned: Vec<_> = tools.iter().rev().copied().collect();
        let mut again = shown_names(&turned, DOT, |_| true);
        again.reverse();
        assert_eq!(again, names);
        let kept = |tool: &str| !tool.starts_with("a.");
        assert_eq!(
            shown_names(&tools[1..4], DOT, kept),
            ["get", "list", "c.a.list"]
        );
    }

    /// Goal: names fit the limit, and truncated ones stay distinct. Method: at the limit, one over,
    /// and two that differ at the end.
    #[test]
    fn long_names_are_cut_and_stay_apart() {
        let at_limit = joined_name("m", DOT, &"t".repeat(NAME_CHARS_MAX - 2));
        assert_eq!(
            (at_limit.len(), at_limit.starts_with("m.ttt")),
            (NAME_CHARS_MAX, true)
        );
        let (one, other) = (
            joined_name("m", DOT, &format!("{}a", "t".repeat(70))),
            joined_name("m", DOT, &format!("{}b", "t".repeat(70))),
        );
        assert_eq!((one.len(), other.len()), (NAME_CHARS_MAX, NAME_CHARS_MAX));
        assert_ne!(one, other);
        // The name must be the same in every process, because clients store it.
        assert_eq!(
            joined_name("m", DOT, &"t".repeat(70)),
            joined_name("m", DOT, &"t".repeat(70))
        );
        assert!(
            may_be_name_of(&one, "m", DOT)
                && !may_be_name_of(&one, "n", DOT)
                && !may_be_name_of("m.t", "m", DOT)
        );
        let long = "m".repeat(70);
        assert!(may_be_name_of(&joined_name(&long, DOT, "x"), &long, DOT));
        assert_eq!(joined_name("ärztin 1", DOT, "x"), "_rztin_1.x");
    }

    /// Goal: with underscores every name has only characters that all models accept. Method: a
    /// short one, and a truncated one.
    #[test]
    fn underscores_are_all_that_is_added() {
        let names = [
            joined_name("m", NameSeparator::Underscores, "t"),
            joined_name("m", NameSeparator::Underscores, &"t".repeat(70)),
        ];
        assert_eq!(names[0], "m__t");
        assert_eq!(names[1].len(), NAME_CHARS_MAX);
        assert!(
            names
                .iter()
                .all(|name| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'))
        );
        assert!(may_be_name_of(&names[1], "m", NameSeparator::Underscores));
    }

    fn naming(
        allow: &[&str],
        deny: &[&str],
        rename: &[(&str, &str)],
    ) -> Result<NameMapping, String> {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let rename = rename
            .iter()
            .map(|(own, name)| ((*own).to_owned(), (*name).to_owned()))
            .collect();
        NameMapping::new(ToolFilter {
            allow: owned(allow),
            deny: owned(deny),
            rename,
        })
    }

    /// Goal: the two directions of the mapping are inverse, and a hidden name has no mapping.
    /// Method: rows of (original, shown).
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
                (names.to_shown(own), names.to_own(name)),
                (Some(name), Some(own))
            );
        }
        for own in ["write", "read_secret", ""] {
            assert_eq!(
                (names.to_shown(own), names.to_own(own)),
                (None, None),
                "{own}"
            );
        }
        // A renamed tool isn't found under its old name, and the new name has no other meaning.
        assert_eq!(
            (names.to_own("read_file"), names.to_shown("read")),
            (None, None)
        );
        let denied = naming(&[], &["read_file"], &[("read_file", "read")]).unwrap();
        assert_eq!(
            (
                denied.to_shown("read_file"),
                denied.to_own("read"),
                denied.to_shown("read")
            ),
            (None, None, None)
        );
    }

    /// Goal: invalid new names are rejected. Method: one twice, an empty one, one too long, and one
    /// with a space.
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
