//! Patterns of word sets that occur near one another in a request, with scores.

use super::matcher::Hit;

/// Maximum distance, in tokens, between the words of a pattern and the word of its rarest set.
const WINDOW: usize = 14;
/// Maximum distance, in tokens, between the words of an ordered pair.
const PAIR_WINDOW: usize = 4;
/// Maximum words tried for one word set of a pattern.
const CANDIDATES_MAX: usize = 6;

/// Pattern of word sets. Its text form in the rule files is a score, followed by sets, ordered
/// pairs `a>b` and exclusions `!set`.
#[derive(Debug)]
pub(super) struct Pattern<T> {
    score: f32,
    all: Vec<T>,
    pairs: Vec<(T, T)>,
    none: Vec<T>,
}

impl<T: Copy + PartialEq> Pattern<T> {
    /// Parses a pattern. `set` looks up a set by name.
    pub(super) fn parse(text: &str, set: impl Fn(&str) -> Option<T>) -> Result<Self, String> {
        let find = |name: &str| set(name).ok_or_else(|| format!("no set is called {name}"));
        let mut parts = text.split_whitespace();
        let score = parts
            .next()
            .and_then(|score| score.parse().ok())
            .ok_or_else(|| format!("no score in {text}"))?;
        let mut pattern = Self {
            score,
            all: Vec::new(),
            pairs: Vec::new(),
            none: Vec::new(),
        };
        for part in parts {
            if let Some(name) = part.strip_prefix('!') {
                pattern.none.push(find(name)?);
            } else if let Some((first, second)) = part.split_once('>') {
                pattern.pairs.push((find(first)?, find(second)?));
            } else {
                pattern.all.push(find(part)?);
            }
        }
        Ok(pattern)
    }

    /// Returns the first token and the number of tokens of each match of the pattern's pairs.
    pub(super) fn pair_hits(&self, hits: &[Hit<T>]) -> Vec<(usize, usize)> {
        let of = |set: T| hits.iter().filter(move |hit| hit.value == set);
        let both = |(first, second): (T, T)| {
            of(first).filter_map(move |a| {
                let next = of(second).find(|b| follows(a, b))?;
                Some((a.at, next.at + next.len - a.at))
            })
        };
        self.pairs.iter().copied().flat_map(both).collect()
    }

    /// Whether the hits contain all sets and pairs of the pattern near one another, and none of its
    /// exclusions.
    fn is_in(&self, hits: &[Hit<T>]) -> bool {
        let of = |set: T| hits.iter().filter(move |hit| hit.value == set);
        if self.none.iter().any(|set| of(*set).next().is_some()) {
            return false;
        }
        if !self
            .pairs
            .iter()
            .all(|(first, second)| of(*first).any(|a| of(*second).any(|b| follows(a, b))))
        {
            return false;
        }
        // The rarest set leads: each of its words is tried with one word of each other set nearby.
        let Some(lead) = self.all.iter().min_by_key(|set| of(**set).count()) else {
            return !self.pairs.is_empty();
        };
        let others: Vec<T> = self.all.iter().copied().filter(|set| set != lead).collect();
        of(*lead).any(|lead| {
            let near = |hit: &&Hit<T>| hit.at.abs_diff(lead.at) <= WINDOW;
            let near: Vec<Hit<T>> = hits.iter().filter(near).copied().collect();
            can_match_sets(&others, &near, &mut vec![*lead])
        })
    }
}

/// Whether the second match begins at most [`PAIR_WINDOW`] tokens after the first.
fn follows<T>(a: &Hit<T>, b: &Hit<T>) -> bool {
    (a.at + a.len..a.at + a.len + PAIR_WINDOW).contains(&b.at)
}

/// Returns the score of the best matching pattern; 0 if none matches.
pub(super) fn best_score<'a, T: Copy + PartialEq + 'a>(
    patterns: impl IntoIterator<Item = &'a Pattern<T>>,
    hits: &[Hit<T>],
) -> f32 {
    patterns.into_iter().fold(0.0, |best, pattern| {
        match pattern.score > best && pattern.is_in(hits) {
            true => pattern.score,
            false => best,
        }
    })
}

/// Whether each set in `sets` can be matched by a different word in `near`. Words in `used` are
/// taken already.
fn can_match_sets<T: Copy + PartialEq>(
    sets: &[T],
    near: &[Hit<T>],
    used: &mut Vec<Hit<T>>,
) -> bool {
    let Some((set, rest)) = sets.split_first() else {
        return true;
    };
    for hit in near
        .iter()
        .filter(|hit| hit.value == *set)
        .take(CANDIDATES_MAX)
    {
        if used.iter().any(|other| hit.overlaps(other)) {
            continue;
        }
        used.push(*hit);
        if can_match_sets(rest, near, used) {
            return true;
        }
        used.pop();
    }
    false
}
