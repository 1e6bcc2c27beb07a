//! One sentence as the rules read it.

use std::ops::Range;

#[cfg(test)]
use super::features::SentenceOrigin;
use super::lexicon::{Class, DOCUMENT_VERB, INTERROGATIVE};
use super::model::{SentenceScores, scores};
use super::reader::{addresses_reader, has_you, names_reader};
use super::record::RecordedText;
use super::reports::reported;
use super::sentence::{OPENS, Token};

/// Number of words at the beginning of a sentence among which a question may open, after a label
/// such as "Doctor:".
const QUESTION_WORDS: usize = 4;

/// Sentence with what the rules ask about it.
pub(super) struct SentenceReading<'a, 't> {
    pub tokens: &'a [Token<'t>],
    /// Whether a report covers each token, see [`reported`].
    pub covered: Vec<bool>,
    pub is_question: bool,
    /// Whether the sentence addresses the reader, by a pronoun or a name such as "assistant".
    pub has_you: bool,
    /// Whether it does so by a name, or speaks of whoever asks.
    pub names_reader: bool,
    /// Whether it addresses whoever reads, by a vocative or a relative clause.
    pub is_addressed: bool,
    /// Whether the sentence before, up to a semicolon or question mark, addresses the reader.
    pub follows_address: bool,
    /// Sign that ends the sentence.
    pub end: char,
    pub records: &'a RecordedText,
}

impl<'a, 't> SentenceReading<'a, 't> {
    pub fn new(tokens: &'a [Token<'t>], end: char, records: &'a RecordedText) -> Self {
        let asks = |(n, token): (usize, &Token<'_>)| {
            token.has(OPENS) && token.is(INTERROGATIVE) && !(n > 0 && token.is(DOCUMENT_VERB))
        };
        let is_addressed = addresses_reader(tokens);
        let names_reader = is_addressed || names_reader(tokens);
        Self {
            tokens,
            covered: reported(tokens),
            is_question: end == '?' && tokens.iter().enumerate().take(QUESTION_WORDS).any(asks),
            has_you: names_reader || has_you(tokens),
            names_reader,
            is_addressed,
            follows_address: false,
            end,
            records,
        }
    }

    /// Returns the scores of a part of the sentence.
    pub fn scores(&self, part: Range<usize>) -> SentenceScores {
        let (tokens, covered) = (&self.tokens[part.clone()], &self.covered[part]);
        scores(tokens, covered, self.end)
    }

    /// Returns the features of a part of the sentence with an origin.
    #[cfg(test)]
    pub fn features(&self, part: Range<usize>, place: SentenceOrigin) -> Vec<u32> {
        let (tokens, covered) = (&self.tokens[part.clone()], &self.covered[part]);
        let mut features = Vec::new();
        super::features::read(tokens, covered, self.end, |of, feature| {
            features.extend((of.is_none() || of == Some(place)).then_some(feature));
        });
        features
    }

    /// Returns whether the word at `n` has one of the classes; `false` beyond the end.
    pub fn is(&self, n: usize, class: Class) -> bool {
        self.tokens.get(n).is_some_and(|token| token.is(class))
    }

    /// Returns the word at `n`; empty beyond the end.
    pub fn word(&self, n: usize) -> &'t str {
        self.tokens.get(n).map_or("", |token| token.word)
    }

    /// Returns whether one of the words in a range, cut to the sentence, has one of the classes.
    pub fn any(&self, from: usize, to: usize, class: Class) -> bool {
        let to = to.min(self.tokens.len());
        self.tokens[from.min(to)..to]
            .iter()
            .any(|token| token.is(class))
    }
}
