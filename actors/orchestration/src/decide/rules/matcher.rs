//! Finds words and phrases of lists in a request, by stem, in English and Portuguese.

use std::collections::{HashMap, HashSet};

use super::words::{Token, stems};

/// Where something of a list stands in a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Hit<T> {
    /// Which token it begins at.
    pub(super) at: usize,
    /// How many tokens it is.
    pub(super) len: usize,
    pub(super) value: T,
}

impl<T> Hit<T> {
    /// Whether both have a token in common.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.at < other.at + other.len && other.at < self.at + self.len
    }
}

/// Words and phrases, each with what it stands for.
#[derive(Debug)]
pub(super) struct Matcher<T> {
    /// By the first word's English stem, its Portuguese one, and as it stands.
    english: HashMap<String, Vec<Phrase<T>>>,
    portuguese: HashMap<String, Vec<Phrase<T>>>,
    exact: HashMap<String, Vec<Phrase<T>>>,
    /// Words after the first of phrases: as they stand, their English stems, their Portuguese ones.
    later: [HashSet<String>; 3],
}

#[derive(Debug, Clone)]
struct Phrase<T> {
    /// The words after the first.
    rest: Vec<Term>,
    value: T,
}

#[derive(Debug, Clone)]
struct Term {
    folded: String,
    english: String,
    portuguese: String,
    exact: bool,
}

impl Term {
    fn new(folded: &str, exact: bool) -> Self {
        let (english, portuguese) = stems(folded);
        Self {
            folded: folded.to_owned(),
            english,
            portuguese,
            exact,
        }
    }

    /// Short words of one language are others' beginnings in the next: they are compared as they stand.
    fn fits(&self, token: &Token, is_english: bool) -> bool {
        if self.exact || self.folded.len() <= EXACT_LETTERS_MAX {
            return self.folded == token.folded;
        }
        self.english == token.english || !is_english && self.portuguese == token.portuguese
    }
}

/// Words of at most so many letters are compared as they stand, longer ones by stem.
const EXACT_LETTERS_MAX: usize = 3;

impl<T> Default for Matcher<T> {
    fn default() -> Self {
        Self {
            english: HashMap::new(),
            portuguese: HashMap::new(),
            exact: HashMap::new(),
            later: Default::default(),
        }
    }
}

impl<T: Copy + PartialEq> Matcher<T> {
    /// Adds a list: words with spaces between them, `_` within a phrase, `=` before a word to be compared as it stands.
    pub(super) fn add(&mut self, list: &str, value: T) {
        for entry in list.split_whitespace() {
            let (entry, exact) = entry
                .strip_prefix('=')
                .map_or((entry, false), |word| (word, true));
            let mut words = entry
                .split('_')
                .filter(|word| !word.is_empty())
                .map(|word| Term::new(word, exact));
            let Some(first) = words.next() else { continue };
            let phrase = Phrase {
                rest: words.collect(),
                value,
            };
            for Term {
                folded,
                english,
                portuguese,
                ..
            } in &phrase.rest
            {
                let forms = [folded, english, portuguese];
                self.later
                    .iter_mut()
                    .zip(forms)
                    .for_each(|(known, form)| _ = known.insert(form.clone()));
            }
            if exact || first.folded.chars().count() <= EXACT_LETTERS_MAX {
                self.exact.entry(first.folded).or_default().push(phrase);
            } else {
                self.portuguese
                    .entry(first.portuguese)
                    .or_default()
                    .push(phrase.clone());
                self.english.entry(first.english).or_default().push(phrase);
            }
        }
    }

    /// Whether an entry begins with this word.
    pub(super) fn has(&self, token: &Token) -> bool {
        self.exact.contains_key(&token.folded)
            || self.english.contains_key(&token.english)
            || self.portuguese.contains_key(&token.portuguese)
    }

    /// Whether the word is anywhere in an entry.
    pub(super) fn knows(&self, token: &Token) -> bool {
        let forms = [&token.folded, &token.english, &token.portuguese];
        self.has(token)
            || self
                .later
                .iter()
                .zip(forms)
                .any(|(known, form)| known.contains(form))
    }

    /// Everything of the lists that stands in the request, in order; one value at most once at a place. What is surely English
    /// isn't compared by Portuguese stems: `fare` and `Faro` have the same.
    pub(super) fn find(&self, tokens: &[Token], is_english: bool) -> Vec<Hit<T>> {
        let mut hits: Vec<Hit<T>> = Vec::new();
        for (at, token) in tokens
            .iter()
            .enumerate()
            .filter(|(_, token)| token.has_letters())
        {
            let from = hits.len();
            let is_short = token.folded.chars().count() <= EXACT_LETTERS_MAX;
            let portuguese = self
                .portuguese
                .get(&token.portuguese)
                .filter(|_| !is_english && !is_short);
            let english = self.english.get(&token.english).filter(|_| !is_short);
            let lists = [self.exact.get(&token.folded), english, portuguese];
            for phrase in lists.into_iter().flatten().flatten() {
                let Some(len) = fits(&phrase.rest, &tokens[at..], is_english) else {
                    continue;
                };
                match hits[from..]
                    .iter_mut()
                    .find(|hit| hit.value == phrase.value)
                {
                    Some(hit) => hit.len = hit.len.max(len),
                    None => hits.push(Hit {
                        at,
                        len,
                        value: phrase.value,
                    }),
                }
            }
        }
        hits
    }
}

/// How many of `tokens` the phrase is, of which the first word is there; `None`: it isn't there.
fn fits(rest: &[Term], tokens: &[Token], is_english: bool) -> Option<usize> {
    let fits = rest
        .iter()
        .zip(tokens.iter().skip(1))
        .filter(|(term, token)| term.fits(token, is_english))
        .count();
    (fits == rest.len()).then_some(rest.len() + 1)
}
