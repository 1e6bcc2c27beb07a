//! Lists of names and words: sorted texts of which only those parts are read that are searched.

use std::sync::OnceLock;

/// Certainty that a word on a list of names is used as a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listing {
    /// Word that is used only as a name.
    Plain,
    /// Name that is rare, or more often of the other sort.
    Rare,
    /// Name that is also an everyday word or a place: "Grace", "Long", "Paris".
    Everyday,
}

const LETTERS: usize = 26;
/// Number of beginnings of two letters.
const PAIRS: usize = LETTERS * LETTERS;

/// Sorted list of words in lower-case ASCII, each perhaps behind a `~` or `-`.
pub(crate) struct WordList {
    text: &'static str,
    /// First byte behind the lines that begin with `#`.
    start: usize,
    /// Character between two words, beside the end of the line. What stands behind a space on the
    /// line of a word is ignored otherwise.
    separator: u8,
    /// Places of the words that begin with each pair of letters ([`Self::places`]), from its first
    /// search.
    pairs: [OnceLock<Box<[u32]>>; PAIRS],
}

/// Word of a list, with its place.
struct Entry {
    start: usize,
    /// First byte of the word, behind a `~` or `-`.
    word_start: usize,
    end: usize,
    word: &'static [u8],
}

/// Returns the slot in a hash table at which the search for a word begins, by its length and its
/// first and last eight letters. The number of slots is a power of 2.
fn slot_of(word: &[u8], slots: &[u32]) -> usize {
    let (first, last) = match (word.first_chunk(), word.last_chunk()) {
        (Some(first), Some(last)) => (u64::from_le_bytes(*first), u64::from_le_bytes(*last)),
        _ => (word.iter().fold(0, |all, b| all << 8 | u64::from(*b)), 0),
    };
    let letters = first ^ last.rotate_left(29) ^ word.len() as u64;
    let hash = letters.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    hash as usize & (slots.len() - 1)
}

fn pair_of(word: &[u8]) -> Option<usize> {
    let letter = |b: u8| b.is_ascii_lowercase().then(|| usize::from(b - b'a'));
    Some(letter(*word.first()?)? * LETTERS + letter(*word.get(1)?)?)
}

impl WordList {
    /// Creates a list. Lines that begin with `#` may stand before the words.
    const fn new(text: &'static str, separator: u8) -> Self {
        let bytes = text.as_bytes();
        let mut start = 0;
        while start < bytes.len() && bytes[start] == b'#' {
            while start < bytes.len() && bytes[start] != b'\n' {
                start += 1;
            }
            start += 1;
        }
        Self {
            text,
            start,
            separator,
            pairs: [const { OnceLock::new() }; PAIRS],
        }
    }

    /// Returns how certainly a word in lower case is a name; `None` if it isn't listed.
    pub fn find(&self, word: &str) -> Option<Listing> {
        let (text, word) = (self.text.as_bytes(), word.as_bytes());
        let places = self.pairs[pair_of(word)?].get_or_init(|| self.places(&word[..2]));
        let mut slot = slot_of(word, places);
        loop {
            let at = (places[slot] as usize).checked_sub(1)?;
            let rest = &text[at..];
            let is_end = |b: &u8| matches!(*b, b' ' | b'\n') || *b == self.separator;
            if rest.starts_with(word) && rest.get(word.len()).is_none_or(is_end) {
                return Some(match text[..at].last() {
                    Some(b'~') => Listing::Everyday,
                    Some(b'-') => Listing::Rare,
                    _ => Listing::Plain,
                });
            }
            slot = (slot + 1) & (places.len() - 1);
        }
    }

    /// Returns a hash table of the places, from 1, of all words that begin with a pair of letters; 0 in
    /// free slots, of which there is at least one.
    fn places(&self, pair: &[u8]) -> Box<[u32]> {
        let first = self.partition(self.start, self.text.len(), |w| w < pair);
        let last = self.partition(first, self.text.len(), |w| w.starts_with(pair) || w < pair);
        let (mut at, mut found) = (first, Vec::new());
        while at < last {
            let entry = self.entry(at, last, at);
            found.push((entry.word_start, entry.word));
            at = entry.end + 1;
        }
        let mut places = vec![0; (2 * found.len() + 1).next_power_of_two()].into_boxed_slice();
        for (at, word) in found {
            let mut slot = slot_of(word, &places);
            while places[slot] > 0 {
                slot = (slot + 1) & (places.len() - 1);
            }
            places[slot] = at as u32 + 1;
        }
        places
    }

    /// Returns the first byte between two, each the beginning of a word or the end, of the words that
    /// aren't `before`.
    fn partition(&self, low: usize, high: usize, before: impl Fn(&[u8]) -> bool) -> usize {
        let (mut low, mut high) = (low, high);
        while low < high {
            let entry = self.entry(low, high, low + (high - low) / 2);
            if before(entry.word) {
                low = (entry.end + 1).min(high);
            } else {
                high = entry.start;
            }
        }
        low
    }

    /// Returns the word around a byte.
    fn entry(&self, low: usize, high: usize, middle: usize) -> Entry {
        let bytes = self.text.as_bytes();
        let start = memchr::memrchr2(self.separator, b'\n', &bytes[low..middle])
            .map_or(low, |p| low + p + 1);
        let end = memchr::memchr2(self.separator, b'\n', &bytes[middle..high])
            .map_or(high, |p| middle + p);
        let line = &bytes[start..end];
        let word = line.split(|b| *b == b' ').next().unwrap_or(line);
        let mark = usize::from(matches!(word, [b'~' | b'-', ..]));
        Entry {
            start,
            word_start: start + mark,
            end,
            word: &word[mark..],
        }
    }

    pub(crate) fn contains(&self, word: &str) -> bool {
        self.find(word).is_some()
    }
}

/// Given names. Those with `~` also have another meaning, those with `-` are rare.
pub(super) static GIVEN: WordList = WordList::new(include_str!("../../data/names_given.txt"), b' ');
/// Family names. Those with `~` also have another meaning.
pub(super) static FAMILY: WordList =
    WordList::new(include_str!("../../data/names_family.txt"), b' ');
/// Everyday and medical words of both languages.
pub(crate) static EVERYDAY: WordList =
    WordList::new(include_str!("../../data/words_everyday.txt"), b' ');
/// Names in diseases, signs, scores and devices.
pub(crate) static EPONYMS: WordList = WordList::new(include_str!("../../data/eponyms.txt"), b' ');
/// Stems of medicines that aren't on the list with brands and combinations.
pub(super) static MEDICINE_STEMS: WordList =
    WordList::new(include_str!("../../data/medicine_stems.txt"), b'\n');
/// Medical words of both languages, without plurals. Some of them are names too.
pub(crate) static MEDICAL: WordList =
    WordList::new(include_str!("../../data/words_medical.txt"), b'\n');

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every word of every list is found, and others aren't. Method: all words, each with a letter more.
    #[test]
    fn lists_are_searched() {
        for (name, list) in [
            ("given", &GIVEN),
            ("family", &FAMILY),
            ("everyday", &EVERYDAY),
            ("eponyms", &EPONYMS),
            ("medical", &MEDICAL),
            ("medicine stems", &MEDICINE_STEMS),
        ] {
            let mut before = "";
            let words = list.text[list.start..].split([char::from(list.separator), '\n']);
            for word in words.filter_map(|word| word.split_ascii_whitespace().next()) {
                let plain = word.trim_start_matches(['~', '-']);
                assert!(before < plain, "{name}: {plain} stands behind {before}");
                before = plain;
                let expect = match word.as_bytes()[0] {
                    b'~' => Listing::Everyday,
                    b'-' => Listing::Rare,
                    _ => Listing::Plain,
                };
                assert_eq!(list.find(plain), Some(expect), "{name}: {plain}");
                assert!(!list.contains(&format!("{plain}qqx")));
            }
        }
        assert!(!GIVEN.contains("") && !GIVEN.contains("m") && !GIVEN.contains("zz9"));
    }
}
