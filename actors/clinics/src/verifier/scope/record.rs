//! Text of the records: which sentences and conditions they have.

use std::cell::{OnceCell, RefCell, RefMut};
use std::hash::BuildHasher;
use std::sync::LazyLock;

use foldhash::HashSet;
use foldhash::quality::RandomState;

use super::features::SentenceOrigin;
use super::hit::Hit;
use super::lexicon::{CONDITION, DENIAL, FAMILY};
use super::sentence::{
    CELL, ClassMemo, LABELLED, LINE, OPENS, SENTENCE_WORDS_MAX, Sentence, Text, Token, split,
};
use crate::verifier::medicine::stem;

/// Number of leading letters of their stems ([`stem`]) by which words of at least that length are
/// compared, so that the English and the Portuguese name of a condition match. Shorter words are
/// compared as a whole.
const CONDITION_LETTERS: usize = 7;
/// Number of words before a condition among which a denial or a relative's name keeps it from
/// counting as recorded: "no evidence of pneumonia", "mother with stroke".
const DENIAL_WORDS: usize = 5;
/// Maximum number of places at which a quotation may begin, and may end, that are looked up for one
/// piece of advice.
const QUOTE_PLACES_MAX: usize = 6;

/// Text of the records without echoes, in folded form. What is quoted from it word for word, as a
/// whole clause to the end of its sentence, isn't advice of the system.
pub(in crate::verifier) struct RecordedText {
    folded: Vec<String>,
    index: OnceCell<Index>,
    /// Classes of the words of all texts of the verification, which have many words in common.
    classes: RefCell<ClassMemo>,
}

/// Clauses and conditions of the records, by hashes, so that a look-up takes the same time whatever the
/// records' length.
#[derive(Default)]
struct Index {
    /// Hashes of the rest of a sentence or table cell from each place at which a clause opens.
    clauses: HashSet<u64>,
    /// Hashes of asserted conditions, and of the keys of long ones by [`stem_key`].
    conditions: HashSet<u64>,
}

impl RecordedText {
    /// Takes the records' texts, in folded form.
    pub fn new(folded: impl Iterator<Item = String>) -> Self {
        Self {
            folded: folded.collect(),
            index: OnceCell::new(),
            classes: RefCell::default(),
        }
    }

    pub(super) fn classes(&self) -> RefMut<'_, ClassMemo> {
        self.classes.borrow_mut()
    }

    fn index(&self) -> &Index {
        self.index.get_or_init(|| {
            let mut index = Index::default();
            for text in &self.folded {
                index.add(&split(text, &mut self.classes()));
            }
            index
        })
    }

    /// Returns whether the records assert a condition, a single folded word. Long words are
    /// compared by the first [`CONDITION_LETTERS`] letters of their stems. So names that are alike
    /// in English and Portuguese are found (hypertension, hipertensao), but also other words with
    /// the same beginning.
    pub(super) fn has_condition(&self, condition: &str) -> bool {
        let known = &self.index().conditions;
        known.contains(&hash(condition)) || known.contains(&hash(&stem_key(condition)))
    }

    /// Returns the end of the part of a sentence that begins at the word `from`, and its place: a
    /// clause of a record, word for word up to the end of both, or what stands before the next one.
    pub(super) fn part(
        &self,
        tokens: &[Token<'_>],
        hashes: &RangeHashes,
        from: usize,
    ) -> (usize, SentenceOrigin) {
        let clauses = &self.index().clauses;
        let quoted_end = |n: usize| {
            if n > 0 && !tokens[n].has(OPENS) {
                return None;
            }
            clause_ends(tokens, n).find(|to| clauses.contains(&hashes.range(n, *to)))
        };
        if clauses.is_empty() {
            return (tokens.len(), SentenceOrigin::Answer);
        }
        if let Some(end) = quoted_end(from) {
            return (end, SentenceOrigin::Record);
        }
        let end = (from + 1..tokens.len()).find(|n| quoted_end(*n).is_some());
        (end.unwrap_or(tokens.len()), SentenceOrigin::Answer)
    }

    /// Returns whether the clause of a sentence in which a piece of advice stands is a clause of a
    /// record, word for word up to the end of both. `hashes` are those of the sentence.
    pub(super) fn quotes(&self, tokens: &[Token<'_>], hashes: &RangeHashes, hit: &Hit) -> bool {
        let clauses = &self.index().clauses;
        let last = hit.end.min(tokens.len() - 1);
        // A piece of advice may seem to begin in the label or line before it, as in "notes: …".
        let starts = (0..=last)
            .rev()
            .filter(|n| tokens[*n].has(if *n > hit.at { LABELLED | LINE } else { OPENS }));
        starts.take(QUOTE_PLACES_MAX).any(|from| {
            clause_ends(tokens, hit.end).any(|to| clauses.contains(&hashes.range(from, to)))
        })
    }
}

/// Returns where a clause with the word at `n` may end: at the end of the sentence, or of one of the next table cells.
fn clause_ends(tokens: &[Token<'_>], n: usize) -> impl Iterator<Item = usize> {
    let cells = (n + 1..tokens.len()).filter(|at| tokens[*at].has(CELL));
    std::iter::once(tokens.len()).chain(cells.take(QUOTE_PLACES_MAX))
}

/// Hashes of all ranges of words of a sentence, each in constant time: a polynomial in a fixed base
/// over the words' hashes.
pub(super) struct RangeHashes {
    /// Hash of the first `n` words, at `n`.
    sums: Vec<u64>,
}

/// Prime modulus of the hashes.
const MODULUS: u64 = (1 << 61) - 1;
/// Base of the polynomial; any large number serves.
const BASE: u64 = 0x1b87_3593_cc9e_2d51;

/// Powers of [`BASE`] from 0 up to the number of words of the longest sentence, the last of which may be a
/// contraction of two.
static POWERS: [u64; SENTENCE_WORDS_MAX + 2] = {
    let mut powers = [1; SENTENCE_WORDS_MAX + 2];
    let mut n = 1;
    while n < powers.len() {
        powers[n] = times(powers[n - 1], BASE);
        n += 1;
    }
    powers
};

const fn times(a: u64, b: u64) -> u64 {
    // 2^61 is 1 by this modulus, so that no division is needed.
    let product = a as u128 * b as u128;
    ((product as u64 & MODULUS) + (product >> 61) as u64) % MODULUS
}

impl RangeHashes {
    pub fn new(tokens: &[Token<'_>]) -> Self {
        let mut sums = Vec::with_capacity(tokens.len() + 1);
        let mut sum = 0;
        sums.push(sum);
        for token in tokens {
            sum = (times(sum, BASE) + hash(token.word) % MODULUS) % MODULUS;
            sums.push(sum);
        }
        Self { sums }
    }

    /// Returns the hash of the words from `from` up to before `to`; both at most the sentence's
    /// number of words, and `from` at most `to`.
    fn range(&self, from: usize, to: usize) -> u64 {
        let before = times(self.sums[from], POWERS[to - from]);
        (self.sums[to] + MODULUS - before) % MODULUS
    }
}

impl Index {
    fn add(&mut self, text: &Text<'_>) {
        for sentence in &text.sentences {
            self.add_clauses(text, sentence);
        }
        for (n, token) in text.tokens.iter().enumerate() {
            if token.word.len() < 3 || !token.is(CONDITION) && token.word.len() < CONDITION_LETTERS
            {
                continue;
            }
            let from = n.saturating_sub(DENIAL_WORDS);
            let start = text.sentences.partition_point(|s| s.to <= n);
            let from = text.sentences.get(start).map_or(from, |s| s.from.max(from));
            if text.tokens[from..n].iter().any(|t| t.is(DENIAL | FAMILY)) {
                continue;
            }
            self.conditions.insert(hash(token.word));
            if token.word.len() >= CONDITION_LETTERS {
                self.conditions.insert(hash(&stem_key(token.word)));
            }
        }
    }

    /// Adds the clauses of a sentence, each up to the end of the sentence and of its table cell.
    fn add_clauses(&mut self, text: &Text<'_>, sentence: &Sentence) {
        let tokens = &text.tokens[sentence.from..sentence.to];
        let hashes = RangeHashes::new(tokens);
        let mut cell_end = tokens.len();
        for n in (0..tokens.len()).rev() {
            if tokens[n].has(OPENS) {
                self.clauses.insert(hashes.range(n, tokens.len()));
                self.clauses.insert(hashes.range(n, cell_end));
            }
            if tokens[n].has(CELL) {
                cell_end = n;
            }
        }
    }
}

static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::default);

fn hash(word: &str) -> u64 {
    HASHER.hash_one(word)
}

/// Returns the key under which the prefix of a word's stem is stored. It is marked, so that it never
/// equals a whole word.
fn stem_key(word: &str) -> String {
    stem(word)
        .chars()
        .take(CONDITION_LETTERS)
        .chain(['-'])
        .collect()
}
