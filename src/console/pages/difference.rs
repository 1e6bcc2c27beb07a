//! Difference of two texts, line by line.

use super::elements::visible_lines;

/// Maximum number of pairs of lines that are compared: 250,000, such as 500 by 500 lines. Beyond it, all lines between
/// the first and the last difference are shown as removed and added.
const COMPARED_PAIRS_MAX: usize = 250_000;

/// Fate of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineChange {
    /// In both texts.
    Same,
    /// In the old text alone.
    Removed,
    /// In the new text alone.
    Added,
}

/// Returns the lines of both texts in order, removed ones before added ones. Hidden characters are escaped.
pub(super) fn difference(old: &str, new: &str) -> Vec<(LineChange, String)> {
    let (old, new) = (visible_lines(old), visible_lines(new));
    let old: Vec<&str> = old.lines().collect();
    let new: Vec<&str> = new.lines().collect();
    let pairs = old.iter().zip(&new);
    let same_at_start = pairs.take_while(|(one, other)| one == other).count();
    let (old_rest, new_rest) = (&old[same_at_start..], &new[same_at_start..]);
    let same_at_end = old_rest
        .iter()
        .rev()
        .zip(new_rest.iter().rev())
        .take_while(|(one, other)| one == other)
        .count();
    let old_middle = &old_rest[..old_rest.len() - same_at_end];
    let new_middle = &new_rest[..new_rest.len() - same_at_end];

    let mut lines = Vec::with_capacity(old.len() + new_middle.len());
    let mut add = |change: LineChange, texts: &[&str]| {
        lines.extend(texts.iter().map(|text| (change, (*text).to_owned())));
    };
    add(LineChange::Same, &old[..same_at_start]);
    if old_middle.len() * new_middle.len() > COMPARED_PAIRS_MAX {
        add(LineChange::Removed, old_middle);
        add(LineChange::Added, new_middle);
    } else {
        for (change, text) in compare(old_middle, new_middle) {
            add(change, &[text]);
        }
    }
    add(LineChange::Same, &old_rest[old_middle.len()..]);
    lines
}

/// Compares lines by their longest common subsequence.
fn compare<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<(LineChange, &'a str)> {
    let width = new.len() + 1;
    // Length of the longest common subsequence from each pair of positions to the ends.
    let mut common = vec![0_u32; (old.len() + 1) * width];
    for (o, old_line) in old.iter().enumerate().rev() {
        for (n, new_line) in new.iter().enumerate().rev() {
            common[o * width + n] = match old_line == new_line {
                true => common[(o + 1) * width + n + 1] + 1,
                false => common[(o + 1) * width + n].max(common[o * width + n + 1]),
            };
        }
    }
    let (mut o, mut n) = (0, 0);
    let mut lines = Vec::with_capacity(old.len() + new.len());
    while o < old.len() || n < new.len() {
        let is_same = o < old.len() && n < new.len() && old[o] == new[n];
        let is_removed = n == new.len()
            || (o < old.len() && common[(o + 1) * width + n] >= common[o * width + n + 1]);
        if is_same {
            lines.push((LineChange::Same, old[o]));
            (o, n) = (o + 1, n + 1);
        } else if is_removed {
            lines.push((LineChange::Removed, old[o]));
            o += 1;
        } else {
            lines.push((LineChange::Added, new[n]));
            n += 1;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::{COMPARED_PAIRS_MAX, LineChange, difference};

    /// Difference as a text with a sign before each line.
    fn shown(old: &str, new: &str) -> Vec<String> {
        let line = |(change, text): (LineChange, String)| match change {
            LineChange::Same => format!(" {text}"),
            LineChange::Removed => format!("-{text}"),
            LineChange::Added => format!("+{text}"),
        };
        difference(old, new).into_iter().map(line).collect()
    }

    /// Goal: a change is found where it is. Method: changed, added and removed lines at each place.
    #[test]
    fn changes_are_found() {
        for (old, new, expected) in [
            ("a\nb\nc", "a\nx\nc", &[" a", "-b", "+x", " c"][..]),
            ("", "a", &["+a"]),
            ("a", "", &["-a"]),
            ("a\nb", "a\nb", &[" a", " b"]),
            ("a\na", "a\na\na", &[" a", " a", "+a"]),
            ("a\nb\nc\nd", "b\nx\nd", &["-a", " b", "-c", "+x", " d"]),
        ] {
            assert_eq!(shown(old, new), expected, "{old:?} {new:?}");
        }
    }

    /// Goal: a hidden character is seen. Method: a zero-width space as the only change.
    #[test]
    fn hidden_characters_are_seen() {
        assert_eq!(shown("ab", "a\u{200b}b"), ["-ab", "+a\\u{200b}b"]);
    }

    /// Goal: long texts cost no more than a bound. Method: more pairs of lines than are compared.
    #[test]
    fn long_texts_are_replaced_as_a_whole() {
        let text = |name: &str, count: usize| {
            let lines = (0..count).map(|nth| format!("{name}{}", nth % 2));
            lines.collect::<Vec<_>>().join("\n")
        };
        let count = COMPARED_PAIRS_MAX.isqrt() + 1;
        let lines = shown(&text("a", count), &text("b", count));
        assert_eq!(lines.len(), 2 * count);
    }
}
