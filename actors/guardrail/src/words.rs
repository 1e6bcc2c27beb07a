//! Words of a text: their concepts and their places.

use super::normalize::is_word_char;
use super::rules::ConceptId;

/// Number of a word's first letters that select its bucket.
const KEY_LETTERS: usize = 3;
const BUCKETS: usize = 1 << 12;

struct WordEntry {
    word: String,
    begins: bool,
    concepts: Vec<ConceptId>,
}

/// Hash index from words to their concepts, by the first letters of the word.
pub(super) struct WordIndex(Vec<Vec<WordEntry>>);

impl Default for WordIndex {
    fn default() -> Self {
        Self(std::iter::repeat_with(Vec::new).take(BUCKETS).collect())
    }
}

impl WordIndex {
    /// Adds a word. A word that ends in `*` stands for all words with that beginning.
    pub(super) fn add(&mut self, word: &str, concept: ConceptId) {
        let (word, begins) = word
            .strip_suffix('*')
            .map_or((word, false), |word| (word, true));
        let entries = &mut self.0[bucket(word)];
        match entries
            .iter_mut()
            .find(|entry| entry.word == word && entry.begins == begins)
        {
            Some(entry) => entry.concepts.push(concept),
            None => entries.push(WordEntry {
                word: word.to_owned(),
                begins,
                concepts: vec![concept],
            }),
        }
    }

    /// Adds the concepts of a normalized word to `found`.
    pub(super) fn collect_concepts(&self, word: &str, found: &mut Vec<ConceptId>) {
        for entry in &self.0[bucket(word)] {
            if entry.word == word || entry.begins && word.starts_with(&*entry.word) {
                found.extend_from_slice(&entry.concepts);
            }
        }
    }
}

/// Returns the bucket of words with these first letters.
fn bucket(word: &str) -> usize {
    let letters = word.as_bytes().iter().take(KEY_LETTERS);
    letters.fold(0x9e37, |hash: usize, letter| {
        (hash ^ usize::from(*letter)).wrapping_mul(0x0100_0193)
    }) >> 7
        & (BUCKETS - 1)
}

/// Words of a normalized text that have concepts, in order.
#[derive(Default)]
pub(super) struct TaggedWords {
    pub words: Vec<TaggedWord>,
    pub(super) concepts: Vec<ConceptId>,
}

impl TaggedWords {
    pub(super) fn concepts_of(&self, mark: &TaggedWord) -> &[ConceptId] {
        &self.concepts[mark.from..mark.to]
    }
}

/// Word with concepts, and its position in the text.
pub(super) struct TaggedWord {
    /// Position in words. The end of a sentence counts as [`SENTENCE_END_WORDS`] words.
    pub word_position: u32,
    pub(super) from: usize,
    pub(super) to: usize,
}

/// Number of words that the end of a sentence counts as in distances, because words of two
/// sentences are less related.
pub(super) const SENTENCE_END_WORDS: u32 = 3;

/// Maximum number of words in a line that doesn't end a sentence. Short lines may be the pieces of
/// one that was cut to hide it.
pub(super) const SHORT_LINE_WORDS: u32 = 2;

/// Returns the length in bytes of the character at `at` if it belongs to a word, otherwise 0.
pub(super) fn word_char_len(text: &str, at: usize) -> usize {
    match text.as_bytes().get(at) {
        Some(byte) if byte.is_ascii() => usize::from(byte.is_ascii_alphanumeric()),
        _ => text
            .get(at..)
            .and_then(|rest| rest.chars().next())
            .filter(|c| is_word_char(*c))
            .map_or(0, char::len_utf8),
    }
}

/// Returns the length in bytes of the character that begins with this byte.
pub(super) fn char_len(first: u8) -> usize {
    match first {
        0..=0xbf => 1,
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        _ => 4,
    }
}
