//! Lists of names and words: sorted texts that are searched where they are, without a table.

use std::cmp::Ordering;
use std::sync::LazyLock;

/// Certainty that a word on a list of names is used as a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Listing {
    /// Word that is used only as a name.
    Plain,
    /// Name that is rare, or more often of the other sort.
    Rare,
    /// Name that is also an everyday word or a place: "Grace", "Long", "Paris".
    Everyday,
}

/// Sorted list of words in lower-case ASCII, separated by white space, each perhaps behind a `~` or `-`.
pub(super) struct WordList {
    text: &'static str,
    /// First byte of the words that begin with each pair of letters, and the end.
    pairs: Vec<u32>,
}

const LETTERS: usize = 26;

fn pair_of(word: &[u8]) -> Option<usize> {
    let letter = |b: u8| b.is_ascii_lowercase().then(|| usize::from(b - b'a'));
    Some(letter(*word.first()?)? * LETTERS + letter(*word.get(1)?)?)
}

impl WordList {
    /// Reads a list. Lines that begin with `#` may stand before the words.
    fn new(data: &'static str) -> Self {
        let text = data
            .split_inclusive('\n')
            .find(|line| !line.starts_with('#'))
            .map_or("", |line| {
                &data[line.as_ptr() as usize - data.as_ptr() as usize..]
            });
        let mut pairs = Vec::with_capacity(LETTERS * LETTERS + 1);
        let bytes = text.as_bytes();
        let mut at = 0;
        while at < bytes.len() {
            let word = &bytes[at + usize::from(matches!(bytes[at], b'~' | b'-'))..];
            if let Some(pair) = pair_of(word) {
                while pairs.len() <= pair {
                    pairs.push(at as u32);
                }
            }
            at +=
                memchr::memchr2(b' ', b'\n', &bytes[at..]).map_or(bytes.len() - at, |len| len + 1);
        }
        pairs.resize(LETTERS * LETTERS + 1, text.len() as u32);
        Self { text, pairs }
    }

    /// Returns how certainly a word in lower case is a name; `None` if it isn't listed.
    pub fn find(&self, word: &str) -> Option<Listing> {
        let pair = pair_of(word.as_bytes())?;
        let bytes = self.text.as_bytes();
        let (mut low, mut high) = (self.pairs[pair] as usize, self.pairs[pair + 1] as usize);
        while low < high {
            let middle = low + (high - low) / 2;
            // The word around the middle.
            let start =
                memchr::memrchr2(b' ', b'\n', &bytes[low..middle]).map_or(low, |p| low + p + 1);
            let end =
                memchr::memchr2(b' ', b'\n', &bytes[middle..high]).map_or(high, |p| middle + p);
            let listed = &bytes[start..end];
            let (plain, listing) = match listed {
                [b'~', plain @ ..] => (plain, Listing::Everyday),
                [b'-', plain @ ..] => (plain, Listing::Rare),
                plain => (plain, Listing::Plain),
            };
            match plain.cmp(word.as_bytes()) {
                Ordering::Equal => return Some(listing),
                Ordering::Less => low = end + 1,
                Ordering::Greater => high = start,
            }
        }
        None
    }

    pub fn contains(&self, word: &str) -> bool {
        self.find(word).is_some()
    }
}

/// Given names. Those with `~` also have another meaning, those with `-` are rare.
pub(super) static GIVEN: LazyLock<WordList> =
    LazyLock::new(|| WordList::new(include_str!("../../../data/names_given.txt")));
/// Family names. Those with `~` also have another meaning.
pub(super) static FAMILY: LazyLock<WordList> =
    LazyLock::new(|| WordList::new(include_str!("../../../data/names_family.txt")));
/// Everyday and medical words of both languages.
pub(super) static EVERYDAY: LazyLock<WordList> =
    LazyLock::new(|| WordList::new(include_str!("../../../data/words_everyday.txt")));
/// Names in diseases, signs, scores and devices.
pub(super) static EPONYMS: LazyLock<WordList> =
    LazyLock::new(|| WordList::new(include_str!("../../../data/eponyms.txt")));

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
        ] {
            let mut before = "";
            for word in list.text.split_ascii_whitespace() {
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
