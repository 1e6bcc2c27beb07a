//! Patterns: which kinds of words stand near one another in a request, and what that is worth.

use super::matcher::Hit;

/// Distance of a pattern's words from the one that leads, in tokens.
const WINDOW: usize = 14;
/// Tokens after the first of an ordered pair within which the second stands.
const PAIR_WINDOW: usize = 4;
/// Words that are tried for one part of a pattern.
const CANDIDATES_MAX: usize = 6;

/// A pattern as the files describe it: a score, sets, ordered pairs `a>b` and exclusions `!set`.
#[derive(Debug)]
pub(super) struct Pattern<T> {
    score: f32,
    all: Vec<T>,
    pairs: Vec<(T, T)>,
    none: Vec<T>,
}

impl<T: Copy + PartialEq> Pattern<T> {
    /// Reads a pattern; `set` finds a set by its name.
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

    /// Whether the hits hold all of it near one another.
    fn is_in(&self, hits: &[Hit<T>]) -> bool {
        let of = |set: T| hits.iter().filter(move |hit| hit.value == set);
        if self.none.iter().any(|set| of(*set).next().is_some()) {
            return false;
        }
        let follows =
            |a: &Hit<T>, b: &Hit<T>| (a.at + a.len..a.at + a.len + PAIR_WINDOW).contains(&b.at);
        if !self
            .pairs
            .iter()
            .all(|(first, second)| of(*first).any(|a| of(*second).any(|b| follows(a, b))))
        {
            return false;
        }
        // The rarest set leads: around each of its words, one of each of the others.
        let Some(lead) = self.all.iter().min_by_key(|set| of(**set).count()) else {
            return !self.pairs.is_empty();
        };
        let others: Vec<T> = self.all.iter().copied().filter(|set| set != lead).collect();
        of(*lead).any(|lead| {
            let near = |hit: &&Hit<T>| hit.at.abs_diff(lead.at) <= WINDOW;
            let near: Vec<Hit<T>> = hits.iter().filter(near).copied().collect();
            fill(&others, &near, &mut vec![*lead])
        })
    }
}

/// The score of the best pattern that the hits hold; 0 for none.
pub(super) fn best<'a, T: Copy + PartialEq + 'a>(
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

/// Whether there is a word for each of the sets; one word can't be two parts of a pattern.
fn fill<T: Copy + PartialEq>(sets: &[T], near: &[Hit<T>], used: &mut Vec<Hit<T>>) -> bool {
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
        if fill(rest, near, used) {
            return true;
        }
        used.pop();
    }
    false
}
