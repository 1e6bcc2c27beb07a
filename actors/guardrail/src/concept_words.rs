//! Words of a text: their concepts and their places.

use std::ops::Range;

use super::disguises::{TurnedWords, rot13};
use super::normalize::is_word_char;

/// Index of a concept in the rules. A concept is a group of words that rules treat alike.
pub(super) type ConceptId = u16;

/// Minimum letters of a known word at the start of a longer one ([`WordIndex::longest_prefix`]).
const PREFIX_LETTERS_MIN: usize = 3;
/// Number of slots of a [`WordIndex`]: several times its words.
const SLOTS: usize = 1 << 15;
/// Number of bits of a [`WordIndex`]'s filter.
const FILTER_BITS: usize = 1 << 17;
/// Minimum letters of a word that is recognized rotated or reversed, since the shorter ones are
/// words often.
const TURNED_LETTERS_MIN: usize = 4;

struct WordEntry {
    hash: u32,
    concepts: Vec<ConceptId>,
}

/// Hash index from words to their concepts.
pub(super) struct WordIndex {
    /// Bits of the hashes of all words, by which most other words are told apart.
    filter: Vec<u64>,
    /// Index of an entry plus one, by the slot of the word's hash or the next free one; 0 if free.
    slots: Vec<u16>,
    entries: Vec<WordEntry>,
    /// Slots of the hashes of all beginnings of [`PREFIX_LETTERS_MIN`] letters.
    beginnings: Vec<bool>,
    longest: usize,
}

impl Default for WordIndex {
    fn default() -> Self {
        Self {
            filter: vec![0; FILTER_BITS / 64],
            slots: vec![0; SLOTS],
            entries: Vec::new(),
            beginnings: vec![false; SLOTS],
            longest: 0,
        }
    }
}

impl WordIndex {
    /// Adds a word.
    pub(super) fn add(&mut self, word: &str, concept: ConceptId) {
        let hash = WordHashes::of(word.as_bytes()).plain;
        if let Some(entry) = self.find(hash) {
            let concepts = &mut self.entries[entry].concepts;
            if !concepts.contains(&concept) {
                concepts.push(concept);
            }
            return;
        }
        self.longest = self.longest.max(word.len());
        if let Some(beginning) = word.as_bytes().get(..PREFIX_LETTERS_MIN) {
            self.beginnings[slot(WordHashes::of(beginning).plain)] = true;
        }
        self.filter[filter_bit(hash) / 64] |= 1 << (filter_bit(hash) % 64);
        self.entries.push(WordEntry {
            hash,
            concepts: vec![concept],
        });
        let free = self.probe(hash).find(|at| self.slots[*at] == 0);
        if let (Some(free), Ok(entry)) = (free, u16::try_from(self.entries.len())) {
            self.slots[free] = entry;
        }
    }

    fn probe(&self, hash: u32) -> impl Iterator<Item = usize> + use<> {
        (0..SLOTS).map(move |step| (slot(hash) + step) % SLOTS)
    }

    /// Returns the index of the entry with this hash. Two known words with one hash would be one word;
    /// a test rules this out.
    fn find(&self, hash: u32) -> Option<usize> {
        let bit = filter_bit(hash);
        if self.filter[bit / 64] >> (bit % 64) & 1 == 0 {
            return None;
        }
        for at in self.probe(hash) {
            let entry = usize::from(self.slots[at].checked_sub(1)?);
            if self.entries[entry].hash == hash {
                return Some(entry);
            }
        }
        None
    }

    /// Returns the length of the longest known word that an ASCII text begins with; 0 if there is
    /// none of [`PREFIX_LETTERS_MIN`] letters or more.
    pub(super) fn longest_prefix(&self, text: &[u8]) -> usize {
        let (mut hashes, mut found) = (WordHashes::default(), 0);
        for (at, byte) in text.iter().take(self.longest).enumerate() {
            hashes.add(*byte);
            let length = at + 1;
            if length < PREFIX_LETTERS_MIN {
                continue;
            }
            if length == PREFIX_LETTERS_MIN && !self.beginnings[slot(hashes.plain)] {
                break;
            }
            if self.find(hashes.plain).is_some() {
                found = length;
            }
        }
        found
    }

    /// Adds the concepts of a normalized word with these hashes to `found`.
    pub(super) fn collect_concepts(&self, hashes: &WordHashes, found: &mut Vec<ConceptId>) {
        if let Some(entry) = self.find(hashes.plain) {
            found.extend_from_slice(&self.entries[entry].concepts);
        }
    }

    /// Adds the place of a word to `turned` if it is a known one rotated or reversed.
    pub(super) fn collect_turned(
        &self,
        word: Range<usize>,
        hashes: &WordHashes,
        turned: &mut TurnedWords,
    ) {
        if word.len() < TURNED_LETTERS_MIN {
            return;
        }
        if self.find(hashes.rotated).is_some() {
            turned.rotated.push(word.start);
        }
        if self.find(hashes.reversed).is_some() {
            turned.reversed.push(word.start);
        }
    }
}

/// Hashes of a word as it is, rotated by 13 letters and reversed, computed in one pass.
pub(super) struct WordHashes {
    plain: u32,
    rotated: u32,
    reversed: u32,
    power: u32,
}

impl Default for WordHashes {
    fn default() -> Self {
        Self {
            plain: 0,
            rotated: 0,
            reversed: 0,
            power: 1,
        }
    }
}

impl WordHashes {
    const FACTOR: u32 = 0x0100_0193;

    pub(super) fn of(word: &[u8]) -> Self {
        let mut hashes = Self::default();
        word.iter().for_each(|byte| hashes.add(*byte));
        hashes
    }

    /// Adds the next byte of the word.
    pub(super) fn add(&mut self, byte: u8) {
        let join = |hash: u32, byte: u8| {
            hash.wrapping_mul(Self::FACTOR)
                .wrapping_add(u32::from(byte))
        };
        self.plain = join(self.plain, byte);
        self.rotated = join(self.rotated, ROTATED[usize::from(byte)]);
        self.reversed = self
            .reversed
            .wrapping_add(self.power.wrapping_mul(u32::from(byte)));
        self.power = self.power.wrapping_mul(Self::FACTOR);
    }
}

/// Bytes rotated by 13 letters.
static ROTATED: [u8; 256] = {
    let mut rotated = [0; 256];
    let mut byte = 0_u8;
    loop {
        rotated[byte as usize] = rot13(byte);
        if byte == u8::MAX {
            break rotated;
        }
        byte += 1;
    }
};

/// Returns the bit of the filter for a hash.
fn filter_bit(hash: u32) -> usize {
    (hash.wrapping_mul(0x9e37_79b1) >> (u32::BITS - FILTER_BITS.ilog2())) as usize
}

/// Returns the first slot for a hash.
fn slot(hash: u32) -> usize {
    (hash.wrapping_mul(0x9e37_79b1) >> (u32::BITS - SLOTS.ilog2())) as usize
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
        let concepts = if begins_sentence && gap.ends_with(b"\"") {
            &self.clause
        } else if begins_sentence {
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
    pub turned: TurnedWords,
}

impl TaggedWords {
    /// Creates an empty list with room for the words of an ordinary text of this many bytes.
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self {
            words: Vec::with_capacity(bytes / 12),
            concepts: Vec::with_capacity(bytes / 4),
            turned: TurnedWords::default(),
        }
    }

    pub(super) fn concepts_of(&self, mark: &TaggedWord) -> &[ConceptId] {
        &self.concepts[mark.from..mark.to]
    }

    /// Returns the position of the last word with concepts that begins before the byte `at`; 0 if there is
    /// none.
    pub(super) fn position_before(&self, at: usize) -> u32 {
        let words = self.words.partition_point(|word| word.at < at);
        let last = words.checked_sub(1).and_then(|last| self.words.get(last));
        last.map_or(0, |word| word.word_position)
    }
}

/// Word with concepts, and its position in the text.
pub(super) struct TaggedWord {
    /// Position in words. The end of a sentence counts as [`SENTENCE_END_WORDS`] words.
    pub word_position: u32,
    /// First byte.
    pub at: usize,
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

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// Goal: known words are told apart by their hashes alone. Method: all words of the built-in rules.
    #[test]
    fn words_have_hashes_of_their_own() {
        let mut words: HashMap<u32, &str> = HashMap::new();
        let lines = include_str!("words.toml").lines();
        let lines = lines.filter(|line| !line.starts_with('#'));
        for word in lines.flat_map(|line| line.split(|c: char| !c.is_ascii_alphanumeric())) {
            let other = words.insert(WordHashes::of(word.as_bytes()).plain, word);
            assert!(other.is_none_or(|other| other == word), "{word} {other:?}");
        }
        assert!(words.len() > 1_000);
    }

    /// Goal: the hashes of a word rotated or reversed are those of the other word. Method: one word.
    #[test]
    fn turned_words_have_the_hashes_of_words() {
        let ignore = WordHashes::of(b"ignore").plain;
        assert_eq!(WordHashes::of(b"vtaber").rotated, ignore);
        assert_eq!(WordHashes::of(b"erongi").reversed, ignore);
    }
}
