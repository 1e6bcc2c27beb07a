//! Hash table from words to their meanings, which is filled once and then only searched.

/// Table with a value for each of its words.
///
/// A search is several times faster than in a general hash map: two loads cover a word of up to 16
/// bytes, so that most words are hashed and compared without a loop. The hash isn't seeded: only lists
/// of the program may be inserted, no words of a text.
pub(super) struct WordTable<T> {
    /// Numbers of entries, from 1, at the hash of their word or behind it; 0 in free slots, of which
    /// there is at least one.
    slots: Vec<u32>,
    entries: Vec<Entry<T>>,
    /// All words, one behind the other.
    text: String,
}

struct Entry<T> {
    key: Key,
    /// First byte of the word in the text of all words.
    start: usize,
    value: T,
}

/// First and last bytes of a word, which together are all of a word of up to [`Self::BYTES`], and its length.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    first: u64,
    last: u64,
    len: usize,
}

impl Key {
    /// Maximum length of a word that its key holds as a whole, in bytes.
    pub const BYTES: usize = 16;

    #[inline]
    pub fn new(word: &[u8]) -> Self {
        let (first, last) = match (word.first_chunk(), word.last_chunk()) {
            (Some(first), Some(last)) => (u64::from_le_bytes(*first), u64::from_le_bytes(*last)),
            _ => match (word.first_chunk(), word.last_chunk()) {
                (Some(first), Some(last)) => (
                    u64::from(u32::from_le_bytes(*first)),
                    u64::from(u32::from_le_bytes(*last)),
                ),
                _ => (word.iter().fold(0, |all, b| all << 8 | u64::from(*b)), 0),
            },
        };
        let len = word.len();
        Self { first, last, len }
    }

    #[inline]
    fn slot(self, slots: usize) -> usize {
        let letters = self.first ^ self.last.rotate_left(29) ^ self.len as u64;
        let hash = letters.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        hash as usize & (slots - 1)
    }
}

impl<T> WordTable<T> {
    /// Creates an empty table with room for `words`; more make it grow.
    pub fn with_capacity(words: usize) -> Self {
        Self {
            slots: vec![0; (2 * words.max(1)).next_power_of_two()],
            entries: Vec::with_capacity(words),
            text: String::new(),
        }
    }

    /// Returns the value of a word; `None` if it has none.
    #[inline]
    pub fn get(&self, word: &str) -> Option<&T> {
        let key = Key::new(word.as_bytes());
        let at = self.slots[self.find(word, key)].checked_sub(1)?;
        self.entries.get(at as usize).map(|entry| &entry.value)
    }

    pub fn contains(&self, word: &str) -> bool {
        self.get(word).is_some()
    }

    /// Returns the slot of a word; a free one if the table hasn't the word.
    #[inline]
    fn find(&self, word: &str, key: Key) -> usize {
        let mut slot = key.slot(self.slots.len());
        while let Some(at) = self.slots[slot].checked_sub(1) {
            let entry = &self.entries[at as usize];
            if entry.key == key
                && (key.len <= Key::BYTES || self.text[entry.start..].starts_with(word))
            {
                break;
            }
            slot = (slot + 1) & (self.slots.len() - 1);
        }
        slot
    }

    fn grow(&mut self) {
        let slots = 2 * self.slots.len();
        self.slots.clear();
        self.slots.resize(slots, 0);
        for (number, entry) in (1..).zip(&self.entries) {
            let mut slot = entry.key.slot(slots);
            while self.slots[slot] != 0 {
                slot = (slot + 1) & (slots - 1);
            }
            self.slots[slot] = number;
        }
    }
}

impl<T: Default> WordTable<T> {
    /// Returns the value of a word, which is inserted with the default value if it is new.
    pub fn or_default(&mut self, word: &str) -> &mut T {
        let key = Key::new(word.as_bytes());
        let mut slot = self.find(word, key);
        if self.slots[slot] == 0 {
            if 2 * (self.entries.len() + 1) > self.slots.len() {
                self.grow();
                slot = self.find(word, key);
            }
            let start = self.text.len();
            self.text.push_str(word);
            let value = T::default();
            self.entries.push(Entry { key, start, value });
            self.slots[slot] = self.entries.len() as u32;
        }
        &mut self.entries[self.slots[slot] as usize - 1].value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a table has exactly the words that were inserted, of every length. Method: words that differ
    /// in one byte at each place, every second one inserted.
    #[test]
    fn inserted_words_are_found() {
        let mut words = vec![String::new()];
        for len in 1..40 {
            for place in 0..len {
                let mut word = vec![b'a'; len];
                word[place] = b'b' + (place % 2) as u8;
                words.push(String::from_utf8(word).unwrap());
            }
        }
        let mut table = WordTable::with_capacity(4);
        for (n, word) in words.iter().enumerate().step_by(2) {
            *table.or_default(word) = n;
        }
        *table.or_default(&words[2]) += 1_000;
        for (n, word) in words.iter().enumerate() {
            let expect = match n {
                2 => Some(1_002),
                _ => (n % 2 == 0).then_some(n),
            };
            assert_eq!(table.get(word).copied(), expect, "{word:?}");
        }
    }
}
