//! Names of what several agents have, so that each means one thing.

use std::collections::{HashMap, HashSet};

use super::options::Separator;

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
            let kept: String = whole.chars().take(NAME_CHARS_MAX - HASH_DIGITS - 1).collect();
            format!("{kept}{}{:08x}", separator.before_hash(), hash(&whole))
        }
    }
}

/// Whether a member's name that had to be cut could have become `shown`.
pub(super) fn may_be_of(shown: &str, member: &str, separator: Separator) -> bool {
    let begins: String =
        format!("{}{}", plain(member), separator.text()).chars().take(NAME_CHARS_MAX - HASH_DIGITS - 1).collect();
    may_be_cut(shown) && shown.starts_with(&begins)
}

/// Whether a name is as long as those that were cut.
pub(super) fn may_be_cut(name: &str) -> bool {
    name.chars().count() == NAME_CHARS_MAX
}

/// A member's name in the characters that names of tools have.
pub(super) fn plain(member: &str) -> String {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    member.chars().map(|c| if is_fine(c) { c } else { '_' }).collect()
}

/// FNV-1a: the same in every process and version, unlike the standard library's.
fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
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
    let mut shown: Vec<String> = tools.iter().zip(&is_joined).map(name).collect();
    // A joined name may be another's own: then that one is joined too. Each round joins one more at least.
    loop {
        let mut seen: HashMap<&str, usize> = HashMap::new();
        shown.iter().for_each(|name| *seen.entry(name).or_default() += 1);
        let twice: HashSet<String> =
            seen.into_iter().filter(|(_, times)| *times > 1).map(|(name, _)| name.to_owned()).collect();
        let to_join: Vec<usize> =
            (0..tools.len()).filter(|at| !is_joined[*at] && twice.contains(&shown[*at])).collect();
        if to_join.is_empty() {
            return shown;
        }
        for at in to_join {
            let (member, tool) = tools[at];
            shown[at] = joined(member, separator, tool);
            is_joined[at] = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOT: Separator = Separator::Dot;

    /// Goal: a name that one agent alone has stays, one that several have is joined, whatever the order. Method: rows, and
    /// turned round.
    #[test]
    fn collisions_are_joined() {
        let tools = [("a", "list"), ("a", "get"), ("b", "list"), ("c", "a.list"), ("c d", "put")];
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
        assert_eq!((at_limit.len(), at_limit.starts_with("m.ttt")), (NAME_CHARS_MAX, true));
        let (one, other) =
            (joined("m", DOT, &format!("{}a", "t".repeat(70))), joined("m", DOT, &format!("{}b", "t".repeat(70))));
        assert_eq!((one.len(), other.len()), (NAME_CHARS_MAX, NAME_CHARS_MAX));
        assert_ne!(one, other);
        // Stable: written down once, the name is the same in every process.
        assert_eq!(joined("m", DOT, &"t".repeat(70)), joined("m", DOT, &"t".repeat(70)));
        assert!(may_be_of(&one, "m", DOT) && !may_be_of(&one, "n", DOT) && !may_be_of("m.t", "m", DOT));
        let long = "m".repeat(70);
        assert!(may_be_of(&joined(&long, DOT, "x"), &long, DOT));
        assert_eq!(joined("ärztin 1", DOT, "x"), "_rztin_1.x");
    }

    /// Goal: with underscores every name has only what all models' clients accept. Method: short, and one that is cut.
    #[test]
    fn underscores_are_all_that_is_added() {
        let names = [joined("m", Separator::Underscores, "t"), joined("m", Separator::Underscores, &"t".repeat(70))];
        assert_eq!(names[0], "m__t");
        assert_eq!(names[1].len(), NAME_CHARS_MAX);
        assert!(names.iter().all(|name| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')));
        assert!(may_be_of(&names[1], "m", Separator::Underscores));
    }
}
