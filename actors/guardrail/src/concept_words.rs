//! Words of a text: their concepts and their places.

use super::normalize::is_word_char;

/// Index of a concept in the rules. A concept is a group of words that rules treat alike.
pub(super) type ConceptId = u16;

/// Minimum letters of a known word at the start of a longer one ([`WordIndex::longest_prefix`]).
const PREFIX_LETTERS_MIN: usize = 3;
/// Number of buckets of a [`WordIndex`].
const BUCKETS: usize = 1 << 13;

struct WordEntry {
    word: String,
    concepts: Vec<ConceptId>,
}

/// Hash index from words to their concepts.
pub(super) struct WordIndex {
    buckets: Vec<Vec<WordEntry>>,
    /// Beginnings of words: entries that end in `*`.
    beginnings: Vec<WordEntry>,
    longest: usize,
}

impl Default for WordIndex {
    fn default() -> Self {
        Self {
            buckets: std::iter::repeat_with(Vec::new).take(BUCKETS).collect(),
            beginnings: Vec::new(),
            longest: 0,
        }
    }
}

impl WordIndex {
    /// Adds a word. A word that ends in `*` stands for all words with that beginning.
    pub(super) fn add(&mut self, word: &str, concept: ConceptId) {
        let (word, entries) = match word.strip_suffix('*') {
            Some(beginning) => (beginning, &mut self.beginnings),
            None => (word, &mut self.buckets[bucket(word)]),
        };
        self.longest = self.longest.max(word.len());
        match entries.iter_mut().find(|entry| entry.word == word) {
            Some(entry) => entry.concepts.push(concept),
            None => entries.push(WordEntry {
                word: word.to_owned(),
                concepts: vec![concept],
            }),
        }
    }

    /// Returns the length of the longest known word that an ASCII text begins with; 0 if there is
    /// none of [`PREFIX_LETTERS_MIN`] letters or more.
    pub(super) fn longest_prefix(&self, text: &str) -> usize {
        let longest = self.longest.min(text.len());
        let mut lengths = (PREFIX_LETTERS_MIN..=longest).rev();
        lengths
            .find(|length| self.find(&text[..*length]).is_some())
            .unwrap_or(0)
    }

    fn find(&self, word: &str) -> Option<&WordEntry> {
        self.buckets[bucket(word)]
            .iter()
            .find(|entry| entry.word == word)
    }

    /// Adds the concepts of a normalized word to `found`.
    pub(super) fn collect_concepts(&self, word: &str, found: &mut Vec<ConceptId>) {
        if word.len() > self.longest && self.beginnings.is_empty() {
            return;
        }
        let begun = self.beginnings.iter();
        let begun = begun.filter(|entry| word.starts_with(&*entry.word));
        for entry in self.find(word).into_iter().chain(begun) {
            found.extend_from_slice(&entry.concepts);
        }
    }
}

/// Returns the bucket of a word.
fn bucket(word: &str) -> usize {
    let hash = word.bytes().fold(0x811c_9dc5_u32, |hash, letter| {
        (hash ^ u32::from(letter)).wrapping_mul(0x0100_0193)
    });
    (hash ^ hash >> 15) as usize & (BUCKETS - 1)
}

/// Concepts that are added to a word by what stands before it.
pub(super) struct FormConcepts {
    /// After `@` or `://`.
    pub(super) address: Vec<ConceptId>,
    /// After `_`.
    pub(super) underscore: Vec<ConceptId>,
    /// At the start of a sentence or line.
    pub(super) sentence: Vec<ConceptId>,
    /// After any other sign that ends a clause.
    pub(super) clause: Vec<ConceptId>,
    /// After a colon.
    pub(super) colon: Vec<ConceptId>,
    /// At the start of a quotation.
    pub(super) quote: Vec<ConceptId>,
}

impl FormConcepts {
    /// Adds the concepts of a word with other concepts that stands after `gap`. `begins_sentence`
    /// tells that the gap ends a sentence or line, or that no word is before it.
    pub(super) fn collect(&self, gap: &[u8], begins_sentence: bool, found: &mut Vec<ConceptId>) {
        if let [.., b' ' | b'(', b'"' | b'\'' | b'`'] = gap {
            found.extend_from_slice(&self.quote);
        }
        let concepts = if begins_sentence {
            &self.sentence
        } else if gap.first() == Some(&b':') {
            &self.colon
        } else if gap.iter().any(|b| CLAUSE_SIGNS.contains(b)) || gap.starts_with(b" - ") {
            &self.clause
        } else {
            return;
        };
        found.extend_from_slice(concepts);
    }
}

/// Signs that end a clause. Quotation marks don't: a quotation is a part of its clause.
const CLAUSE_SIGNS: &[u8] = b",;:()[]{}<>*#|=";

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
