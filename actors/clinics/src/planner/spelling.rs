//! Correction of spellings: the known word that a word probably stands for.

/// Minimum letters of the longer of two words that may differ by one typing error.
const ONE_ERROR_LETTERS_MIN: usize = 6;
/// Minimum letters of the longer of two words that may differ by two typing errors.
const TWO_ERRORS_LETTERS_MIN: usize = 9;
/// Maximum number of words that are suggested for an unknown one.
pub(super) const SUGGESTIONS_MAX: usize = 3;

/// Known words near an unknown one, while they are collected.
#[derive(Debug)]
pub(super) struct NearWords<'a> {
    word: Vec<char>,
    /// Errors of the best correction so far, then its words; several are ambiguous.
    best: Option<(usize, Vec<&'a str>)>,
    /// Errors and word of each suggestion, the nearest first.
    suggestions: Vec<(usize, &'a str)>,
}

impl<'a> NearWords<'a> {
    pub fn new(folded: &str) -> Self {
        Self {
            word: folded.chars().collect(),
            best: None,
            suggestions: Vec::new(),
        }
    }

    /// Compares the word with the known words `candidates`. A correction has at most `errors_max`
    /// errors, and fewer than one among the candidates of an earlier call.
    pub fn collect(&mut self, candidates: impl Iterator<Item = &'a str>, errors_max: usize) {
        let limit = self.best.as_ref().map_or(usize::MAX, |(errors, _)| *errors);
        for candidate in candidates {
            let Some(errors) = typing_errors(&self.word, candidate) else {
                continue;
            };
            let letters = self.word.len().max(candidate.chars().count());
            let allowed = match letters {
                _ if letters >= TWO_ERRORS_LETTERS_MIN => 2,
                _ if letters >= ONE_ERROR_LETTERS_MIN && is_scrambled(&self.word, candidate) => 2,
                _ if letters >= ONE_ERROR_LETTERS_MIN => 1,
                // Two letters of `list` changed places, `quais` lacks its `u`; other short words are ambiguous.
                4.. => usize::from(
                    is_transposed(&self.word, candidate) || lacks_u(&self.word, candidate),
                ),
                _ => 0,
            };
            if errors <= allowed.min(errors_max) && errors < limit {
                match &mut self.best {
                    Some((best, words)) if *best == errors => {
                        if !words.contains(&candidate) {
                            words.push(candidate);
                        }
                    }
                    Some((best, _)) if *best < errors => {}
                    best => *best = Some((errors, vec![candidate])),
                }
            }
            self.suggest(errors, candidate);
        }
    }

    fn suggest(&mut self, errors: usize, candidate: &'a str) {
        let is_near = errors * 3 <= self.word.len();
        if is_near && self.suggestions.iter().all(|(_, word)| *word != candidate) {
            let at = self
                .suggestions
                .partition_point(|(other, _)| *other <= errors);
            self.suggestions.insert(at, (errors, candidate));
            self.suggestions.truncate(SUGGESTIONS_MAX);
        }
    }

    /// Returns the words that the word may stand for; several if they are equally near, none if no
    /// word is near enough.
    pub fn corrections(&self) -> &[&'a str] {
        self.best.as_ref().map_or(&[], |(_, words)| words)
    }

    /// Returns the nearest known words, at most [`SUGGESTIONS_MAX`].
    pub fn suggestions(&self) -> impl Iterator<Item = &'a str> {
        self.suggestions.iter().map(|(_, word)| *word)
    }
}

/// Returns the number of letters that are wrong, missing, extra, or swapped with their neighbour;
/// `None` if there are more than two.
pub(super) fn typing_errors(word: &[char], candidate: &str) -> Option<usize> {
    const ERRORS_MAX: usize = 2;
    // Cheap: bytes are at least as many as letters, and known words are nearly all ASCII.
    if candidate.len() + ERRORS_MAX < word.len() {
        return None;
    }
    let other: Vec<char> = candidate
        .chars()
        .take(word.len() + ERRORS_MAX + 1)
        .collect();
    if word.len().abs_diff(other.len()) > ERRORS_MAX {
        return None;
    }
    let front = word.iter().zip(&other).take_while(|(a, b)| a == b).count();
    let (word, other) = (&word[front..], &other[front..]);
    let back = word
        .iter()
        .rev()
        .zip(other.iter().rev())
        .take_while(|(a, b)| a == b)
        .count();
    let (word, other) = (&word[..word.len() - back], &other[..other.len() - back]);
    // Optimal string alignment over what differs.
    let mut rows = vec![(0..=other.len()).collect::<Vec<usize>>()];
    for (at, a) in word.iter().enumerate() {
        let mut row = vec![at + 1];
        for (to, b) in other.iter().enumerate() {
            let before = &rows[at];
            let mut errors = (before[to] + usize::from(a != b))
                .min(before[to + 1] + 1)
                .min(row[to] + 1);
            if at > 0 && to > 0 && *a == other[to - 1] && word[at - 1] == *b {
                errors = errors.min(rows[at - 1][to - 1] + 1);
            }
            row.push(errors);
        }
        if row.iter().all(|errors| *errors > ERRORS_MAX) {
            return None;
        }
        rows.push(row);
    }
    let errors = *rows.last()?.last()?;
    (errors <= ERRORS_MAX).then_some(errors)
}

/// Returns whether the candidate has the same letters with two neighbours swapped, after the first.
fn is_transposed(word: &[char], candidate: &str) -> bool {
    let other: Vec<char> = candidate.chars().take(word.len() + 1).collect();
    let differ: Vec<usize> = match word.len() == other.len() {
        true => (0..word.len())
            .filter(|at| word[*at] != other[*at])
            .collect(),
        false => return false,
    };
    matches!(&differ[..], [a, b] if *a > 0 && a + 1 == *b && word[*a] == other[*b] && word[*b] == other[*a])
}

/// Returns whether the word only lacks the `u` of the candidate's `qu`: `qais`.
fn lacks_u(word: &[char], candidate: &str) -> bool {
    match (word, candidate.strip_prefix("qu")) {
        (['q', rest @ ..], Some(ending)) => ending.chars().eq(rest.iter().copied()),
        _ => false,
    }
}

/// Returns whether the candidate has the same letters in another order, after the first: `vitiglio`.
fn is_scrambled(word: &[char], candidate: &str) -> bool {
    let mut other: Vec<char> = candidate.chars().take(word.len() + 1).collect();
    if word.len() != other.len() || word.first() != other.first() {
        return false;
    }
    let mut word = word.to_vec();
    word.sort_unstable();
    other.sort_unstable();
    word == other
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: errors are counted, up to two. Method: rows of a letter wrong, missing, extra, swapped;
    /// three errors.
    #[test]
    fn errors_are_counted() {
        for (word, known, errors) in [
            ("psoriasis", "psoriasis", Some(0)),
            ("psoriasys", "psoriasis", Some(1)),
            ("psoriass", "psoriasis", Some(1)),
            ("psooriasis", "psoriasis", Some(1)),
            ("psoraisis", "psoriasis", Some(1)),
            ("pzoriasys", "psoriasis", Some(2)),
            ("pzoryasys", "psoriasis", None),
            ("", "ab", Some(2)),
            ("", "abc", None),
            ("é", "e", Some(1)),
        ] {
            let letters: Vec<char> = word.chars().collect();
            assert_eq!(typing_errors(&letters, known), errors, "{word}");
        }
    }

    /// Goal: long words may have two errors, shorter ones one, short ones none but a swap; what is
    /// ambiguous isn't corrected. Method: rows, at each length and one letter less.
    #[test]
    fn corrections_need_length() {
        let known = [
            "psoriasis",
            "eczema",
            "acne",
            "list",
            "heart",
            "marker",
            "market",
        ];
        let corrected = |word: &str| {
            let mut near = NearWords::new(word);
            near.collect(known.into_iter(), 2);
            near.corrections().to_vec()
        };
        assert_eq!(corrected("pzoriasys"), ["psoriasis"]);
        assert_eq!(corrected("eczma"), ["eczema"]);
        assert_eq!(corrected("mzecea"), [""; 0]);
        assert_eq!(corrected("ecmeza"), ["eczema"]);
        assert_eq!(corrected("ecma"), [""; 0]);
        assert_eq!(corrected("heard"), [""; 0]);
        assert_eq!(corrected("lsit"), ["list"]);
        assert_eq!(corrected("acme"), [""; 0]);
        assert_eq!(corrected("ilst"), [""; 0]);
        assert_eq!(corrected("markes"), ["marker", "market"]);
    }
}
