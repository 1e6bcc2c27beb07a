//! Matcher for lists of words and phrases, by word stem, in English and Portuguese.

use std::collections::{HashMap, HashSet};

use super::tokens::{Token, stems};

/// Match of a word or phrase of a [`Matcher`] in a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Hit<T> {
    /// Index of the first matched token.
    pub(super) at: usize,
    /// Number of matched tokens.
    pub(super) len: usize,
    pub(super) value: T,
}

impl<T> Hit<T> {
    /// Whether two matches share a token.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.at < other.at + other.len && other.at < self.at + self.len
    }
}

/// Matcher for words and phrases, each of which has a value.
#[derive(Debug)]
pub(super) struct Matcher<T> {
    /// Phrases by the English stem of their first word.
    english: HashMap<String, Vec<Phrase<T>>>,
    /// Phrases by the Portuguese stem of their first word.
    portuguese: HashMap<String, Vec<Phrase<T>>>,
    /// Phrases by their first word, if it is compared exactly.
    exact: HashMap<String, Vec<Phrase<T>>>,
    /// Words of phrases after the first: exact forms, English stems, Portuguese stems.
    later: [HashSet<String>; 3],
}

#[derive(Debug, Clone)]
struct Phrase<T> {
    /// Words of the phrase after the first.
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

    /// Whether the term matches the token. Short words are compared exactly, because in the other
    /// language they may be a stem.
    fn fits(&self, token: &Token, is_english: bool) -> bool {
        if self.exact || self.folded.len() <= EXACT_LETTERS_MAX {
            return self.folded == token.folded;
        }
        self.english == token.english || !is_english && self.portuguese == token.portuguese
    }
}

/// Maximum bytes of a word that is compared exactly; longer ones are compared by stem.
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
    /// Adds the words and phrases of `list`, all with the same value. Entries are separated by
    /// spaces, words of a phrase by `_`. A leading `=` marks an entry to be compared exactly.
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
    pub(super) fn begins_with(&self, token: &Token) -> bool {
        self.exact.contains_key(&token.folded)
            || self.english.contains_key(&token.english)
            || self.portuguese.contains_key(&token.portuguese)
    }

    /// Whether any entry contains this word.
    pub(super) fn contains_word(&self, token: &Token) -> bool {
        let forms = [&token.folded, &token.english, &token.portuguese];
        self.begins_with(token)
            || self
                .later
                .iter()
                .zip(forms)
                .any(|(known, form)| known.contains(form))
    }

    /// Finds all entries in the request, in order, each value at most once per position. English
    /// text isn't compared by Portuguese stems, because words such as `fare` and `Faro` share one.
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
                let Some(len) = phrase_length(&phrase.rest, &tokens[at..], is_english) else {
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

/// Returns the number of tokens of a phrase whose first word matches the first token. `None` if the
/// remaining words don't match.
fn phrase_length(rest: &[Term], tokens: &[Token], is_english: bool) -> Option<usize> {
    let fits = rest
        .iter()
        .zip(tokens.iter().skip(1))
        .filter(|(term, token)| term.fits(token, is_english))
        .count();
    (fits == rest.len()).then_some(rest.len() + 1)
}
