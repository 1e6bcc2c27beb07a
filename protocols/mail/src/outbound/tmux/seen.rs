//! Whether a text is to be seen in what a pane shows.

/// How many characters of a long text's beginning and of its end are looked for.
const EDGE_CHARS: usize = 120;
/// What programs show in place of a long paste.
const FOLDED: &str = "[Pastedtext#";

/// Stands for a line break in a text that is pasted as one line.
pub(super) const LINE_BREAK: char = '\u{240a}';

/// What to look for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mark {
    begins: String,
    ends: String,
}

impl Mark {
    pub(super) fn of(text: &str) -> Self {
        let all: Vec<char> = squash(text).collect();
        if all.len() <= 2 * EDGE_CHARS {
            return Self { begins: all.iter().collect(), ends: String::new() };
        }
        let (begins, ends) = (&all[..EDGE_CHARS], &all[all.len() - EDGE_CHARS..]);
        Self { begins: begins.iter().collect(), ends: ends.iter().collect() }
    }

    /// How often a pane shows it.
    pub(super) fn count(&self, shown: &str) -> Sight {
        let shown: String = squash(shown).collect();
        let (mut whole, mut rest) = (0, &*shown);
        while let Some(after) = after(rest, &self.begins).and_then(|rest| after(rest, &self.ends)) {
            whole += 1;
            rest = after;
        }
        Sight { whole, folded: shown.matches(FOLDED).count() }
    }
}

/// What follows the first `part` of a text.
fn after<'a>(text: &'a str, part: &str) -> Option<&'a str> {
    text.find(part).map(|at| &text[at + part.len()..])
}

/// How often a pane shows a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Sight {
    pub(super) whole: usize,
    /// Pastes, whosever, of which it shows only that there are some.
    pub(super) folded: usize,
}

impl Sight {
    /// Whether it came to be shown since: that more is folded says so only of what was pasted just before.
    pub(super) fn is_more_than(self, before: Self) -> bool {
        self.whole > before.whole || self.folded > before.folded
    }
}

/// A text without what a program changes where it shows one: spaces, ends of lines and frames; without what takes no room;
/// and without what stands for a line break, so that a text is the same whether its lines were joined or not.
fn squash(text: &str) -> impl Iterator<Item = char> + '_ {
    let stays = |c: &char| {
        !c.is_whitespace()
            && !c.is_control()
            && *c != LINE_BREAK
            && !matches!(c, '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{2500}'..='\u{259f}' | '\u{fe00}'..='\u{fe0f}')
    };
    text.chars().filter(stays)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a text is seen however it is wrapped and framed, and not where only a part of it is. Method: screens.
    #[test]
    fn wrapped_and_framed() {
        let mark = Mark::of("\n[AGENT a TO AGENT b]: hello é\nsecond line\n");
        let sight = |whole, folded| Sight { whole, folded };
        for (shown, expected) in [
            ("", sight(0, 0)),
            ("[AGENT a TO AGENT b]: hello é\nsecond line", sight(1, 0)),
            ("│ > [AGENT a TO │\n│ AGENT b]:    │\n│ hello é    │\n│second li│\n│ne │", sight(1, 0)),
            ("[AGENT a TO AGENT b]: hello é", sight(0, 0)),
            ("[AGENT a TO AGENT b]: hello _ second line", sight(0, 0)),
            ("> [Pasted text #1 +12 lines]", sight(0, 1)),
        ] {
            assert_eq!(mark.count(shown), expected, "{shown}");
        }
        let joined = "[AGENT a TO AGENT b]: hello é␊ second line";
        assert_eq!((Mark::of(joined), mark.count(joined)), (mark.clone(), sight(1, 0)));
        let twice = "[AGENT a TO AGENT b]: hello é\nsecond line\n".repeat(2);
        assert_eq!(mark.count(&twice), sight(2, 0));
    }

    /// Goal: of a long text beginning and end must be there, in order. Method: one with the middle cut out, and halves.
    #[test]
    fn long_texts() {
        let begins: String = (0..EDGE_CHARS + 1).map(|n| char::from(b'a' + (n % 26) as u8)).collect();
        let ends: String = (0..EDGE_CHARS + 1).map(|n| char::from(b'A' + (n % 26) as u8)).collect();
        let text = format!("{begins} middle {ends}");
        let seen = |shown: &str| Mark::of(&text).count(shown).whole;
        assert_eq!((seen(&text), seen(&format!("{begins}…{ends}")), seen(&text.repeat(3))), (1, 1, 3));
        assert_eq!((seen(&begins), seen(&ends), seen(&format!("{ends}{begins}"))), (0, 0, 0));
    }

    /// Goal: only what came since counts. Method: pairs.
    #[test]
    fn more_than_before() {
        let of = |whole, folded| Sight { whole, folded };
        assert!(of(1, 0).is_more_than(of(0, 0)) && of(2, 1).is_more_than(of(2, 0)));
        assert!(!of(1, 1).is_more_than(of(1, 1)) && !of(0, 0).is_more_than(of(1, 0)));
    }
}
