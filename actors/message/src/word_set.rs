//! Sets of words that are laid out when the program is compiled.

/// Set of the words of a text, as a hash table of their places in it.
///
/// [`word_set!`](crate::word_set!) creates one where it is needed.
pub struct WordSet<const SLOTS: usize> {
    list: &'static str,
    /// First byte and length of each word, at its hash or behind it; the length 0 if the slot is
    /// free.
    slots: [(u16, u8); SLOTS],
    /// Lengths of the words, one bit each.
    lengths: u64,
}

impl<const SLOTS: usize> WordSet<SLOTS> {
    /// Creates the set of the words in `list`, which are separated by ASCII white space. `SLOTS`
    /// must be [`slots_of`] the list.
    pub const fn new(list: &'static str) -> Self {
        let bytes = list.as_bytes();
        assert!(bytes.len() <= u16::MAX as usize, "a list is shorter");
        let (mut slots, mut lengths) = ([(0, 0); SLOTS], 0);
        let mut at = 0;
        while at < bytes.len() {
            let len = word_len(bytes, at);
            if len > 0 {
                assert!(len < u64::BITS as usize, "a word is shorter");
                lengths |= 1 << len;
                let mut slot = hash(bytes, at, len) % SLOTS;
                while slots[slot].1 > 0 {
                    slot = (slot + 1) % SLOTS;
                }
                slots[slot] = (at as u16, len as u8);
            }
            at += len + 1;
        }
        Self {
            list,
            slots,
            lengths,
        }
    }

    /// Returns whether a word is in the set.
    #[inline]
    pub fn contains(&self, word: &str) -> bool {
        let word = word.as_bytes();
        if word.is_empty() {
            return false;
        }
        let mut slot = hash(word, 0, word.len()) % SLOTS;
        loop {
            let (at, len) = self.slots[slot];
            let (at, len) = (usize::from(at), usize::from(len));
            if len == 0 {
                return false;
            }
            if len == word.len() && self.list.as_bytes()[at..at + len] == *word {
                return true;
            }
            slot = (slot + 1) % SLOTS;
        }
    }

    /// Returns whether a word ends with one of the set, behind at least `before` other bytes.
    pub fn ends(&self, word: &str, before: usize) -> bool {
        let mut lengths = self.lengths;
        while lengths != 0 {
            let len = lengths.trailing_zeros() as usize;
            lengths &= lengths - 1;
            let Some(at) = word.len().checked_sub(len).filter(|at| *at >= before) else {
                return false;
            };
            if word.get(at..).is_some_and(|end| self.contains(end)) {
                return true;
            }
        }
        false
    }
}

/// Returns the number of slots of the set of the words in `list`: a power of 2, at least twice the
/// number of words.
pub const fn slots_of(list: &str) -> usize {
    let bytes = list.as_bytes();
    let (mut at, mut count) = (0, 1_usize);
    while at < bytes.len() {
        let len = word_len(bytes, at);
        count += (len > 0) as usize;
        at += len + 1;
    }
    (2 * count).next_power_of_two()
}

/// Returns the length of the word at `at`; 0 at white space.
const fn word_len(bytes: &[u8], at: usize) -> usize {
    let mut end = at;
    while end < bytes.len() && !bytes[end].is_ascii_whitespace() {
        end += 1;
    }
    end - at
}

/// Returns a hash of a word of at least one byte, by some of its letters.
#[inline]
const fn hash(bytes: &[u8], at: usize, len: usize) -> usize {
    let (first, middle) = (bytes[at] as u32, bytes[at + len / 2] as u32);
    let last = bytes[at + len - 1] as u32;
    let letters = first | middle << 8 | last << 16 | (len as u32) << 24;
    (letters.wrapping_mul(0x9e37_79b1) >> 16) as usize
}

/// Returns the [`WordSet`](crate::word_set::WordSet) of a constant list of words separated by spaces.
#[macro_export]
macro_rules! word_set {
    ($list:expr) => {{
        static SET: $crate::word_set::WordSet<{ $crate::word_set::slots_of($list) }> =
            $crate::word_set::WordSet::new($list);
        &SET
    }};
}

/// Returns whether a word occurs in a list of words separated by spaces: like
/// [`text::is_one_of`](crate::text::is_one_of) in constant time, for a list that is a constant.
#[macro_export]
macro_rules! is_one_of {
    ($word:expr, $list:expr $(,)?) => {
        $crate::word_set!($list).contains($word)
    };
}

#[cfg(test)]
mod tests {
    use crate::text::is_one_of;

    const LIST: &str = "a an and  are\nas at be by for from has he in is it its of on that the to was were will with ção";

    /// Goal: a set has exactly the words of its list. Method: each, with a letter more or less, as
    /// a search of the list finds it.
    #[test]
    fn sets_have_the_words_of_their_list() {
        for word in LIST
            .split_ascii_whitespace()
            .chain(["", " ", "zebra", "an and"])
        {
            for word in [
                word.to_owned(),
                format!("{word}s"),
                word.chars().skip(1).collect(),
            ] {
                assert_eq!(is_one_of!(&word, LIST), is_one_of(&word, LIST), "{word:?}");
            }
        }
        assert!(!is_one_of!("a", "") && is_one_of!("a", "a"));
        let ends = |word, before| word_set!("as ition o").ends(word, before);
        assert!(ends("condition", 4) && !ends("condition", 5) && ends("as", 0) && !ends("é", 0));
    }
}
