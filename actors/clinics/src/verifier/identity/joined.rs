//! Letters and digits of a text without what stands between them, and the search for values in that
//! form.

use std::ops::Range;

use foldhash::HashMap;

use super::class::IdentityClass;
use super::number::spoken_digit;
use super::reading::{IdentityReading, TokenKind, Tokens};

/// Minimum letters of a part of a name that is found alone in disguise.
pub(super) const DISGUISED_LETTERS_MIN: usize = 4;
/// Minimum letters and digits of a value that is found without what stands between them.
pub(super) const JOINED_CHARS_MIN: usize = 5;
/// Minimum letters and digits of a value that is found also inside a longer word or number.
const INNER_CHARS_MIN: usize = 8;
/// Maximum letters and digits of a value that are compared; further ones are ignored.
const JOINED_CHARS_MAX: usize = 60;

/// Extends a range over the digits, and the signs of telephone numbers, that directly adjoin it.
pub(super) fn whole_number(text: &str, range: Range<usize>) -> Range<usize> {
    /// Maximum number of bytes on each side.
    const REACH: usize = 16;
    let bytes = text.as_bytes();
    let digit = |b: &u8| b.is_ascii_digit();
    let part = |b: &u8| b.is_ascii_digit() || b"+() -./".contains(b);
    if !bytes[range.start].is_ascii_digit() {
        return range;
    }
    let before = &bytes[range.start.saturating_sub(REACH)..range.start];
    let signs = before.iter().rev().take_while(|b| part(b)).count();
    let kept = before[before.len() - signs..]
        .iter()
        .position(|b| digit(b) || matches!(b, b'+' | b'('));
    let start = kept.map_or(range.start, |at| range.start - signs + at);
    let after = bytes[range.end..]
        .iter()
        .take(REACH)
        .take_while(|b| digit(b))
        .count();
    start..range.end + after
}

/// Value in the form of [`joined`], with its class.
#[derive(Clone, Copy)]
pub(super) struct Needle {
    pub class: IdentityClass,
    /// Whether it is one part of a name or a date, which must stand alone.
    pub is_part: bool,
}

/// Set of values in the form of [`joined`], found by their first bytes.
#[derive(Default)]
pub(super) struct Needles {
    by_text: HashMap<Vec<u8>, Needle>,
    /// Lengths of the values that begin with the same four bytes, one bit each.
    lengths: HashMap<[u8; 4], u64>,
}

impl Needles {
    pub fn is_empty(&self) -> bool {
        self.by_text.is_empty()
    }

    /// Adds a value, unless it is too short.
    pub fn insert(&mut self, mut text: Vec<u8>, class: IdentityClass, is_part: bool) {
        text.truncate(JOINED_CHARS_MAX);
        let long = if is_part {
            DISGUISED_LETTERS_MIN
        } else {
            JOINED_CHARS_MIN
        };
        let Some(prefix) = text
            .first_chunk::<4>()
            .copied()
            .filter(|_| text.len() >= long)
        else {
            return;
        };
        *self.lengths.entry(prefix).or_default() |= 1 << text.len();
        let needle = self
            .by_text
            .entry(text)
            .or_insert(Needle { class, is_part });
        needle.is_part &= is_part;
    }

    /// Returns the longest value at the beginning of a text that `fits`.
    pub fn longest_at(
        &self,
        text: &[u8],
        fits: impl Fn(usize, &Needle) -> bool,
    ) -> Option<(usize, Needle)> {
        let mut lengths = *self.lengths.get(text.first_chunk::<4>()?)?;
        while lengths != 0 {
            let len = 63 - lengths.leading_zeros() as usize;
            lengths &= !(1 << len);
            let needle = text.get(..len).and_then(|text| self.by_text.get(text));
            if let Some(needle) = needle.filter(|needle| fits(len, needle)) {
                return Some((len, *needle));
            }
        }
        None
    }
}

/// Returns the letter that an ASCII character stands for in the comparison of letters and digits;
/// `None` for separators.
fn letter_of(b: u8) -> Option<u8> {
    Some(match b.to_ascii_lowercase() {
        b'0' => b'o',
        b'1' | b'l' => b'i',
        b'2' => b'z',
        b'3' => b'e',
        b'4' => b'a',
        b'5' => b's',
        b'6' | b'9' => b'g',
        b'7' => b't',
        b'8' => b'b',
        c @ b'a'..=b'z' => c,
        _ => return None,
    })
}

/// Returns the letters and digits of a text in lower case, digits as the letters that they look
/// like.
pub(super) fn joined(lower: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(lower.len());
    for c in lower.chars() {
        push_letter(c, &mut out);
    }
    out
}

fn push_letter(c: char, out: &mut Vec<u8>) {
    if c.is_ascii() {
        out.extend(letter_of(c as u8));
    } else if c.is_alphanumeric() {
        out.extend(c.encode_utf8(&mut [0; 4]).bytes());
    }
}

/// Letters and digits of a text, with their places.
pub(super) struct JoinedText {
    pub bytes: Vec<u8>,
    /// First byte, and byte behind, of the character that each byte stands for.
    places: Vec<(u32, u32)>,
}

impl JoinedText {
    pub fn new(reading: &IdentityReading) -> Self {
        let text = &reading.lower;
        let mut bytes = Vec::with_capacity(text.len());
        let mut places = Vec::with_capacity(text.len());
        let raw = text.as_bytes();
        for (at, c) in text.char_indices() {
            let inner = |at: usize| raw.get(at).is_some_and(|b| b.is_ascii_alphanumeric());
            let sign = match c {
                '@' => Some(b'a'),
                '$' => Some(b's'),
                '!' | '|' if inner(at + 1) => Some(b'i'),
                _ => None,
            };
            match sign {
                Some(letter) => bytes.push(letter),
                None => push_letter(c, &mut bytes),
            }
            places.resize(bytes.len(), (at as u32, (at + c.len_utf8()) as u32));
        }
        Self { bytes, places }
    }

    /// Returns the digits of a text in which some are spoken: `None` without them.
    pub fn spoken(tokens: &Tokens<'_>) -> Option<Self> {
        let digit = |at: usize| match tokens.kind(at) {
            Some(TokenKind::Word) => spoken_digit(tokens.lower(at)).map(|d| d.to_string()),
            Some(TokenKind::Number) => Some(tokens.cased(at).to_owned()),
            _ => None,
        };
        let spoken = (0..tokens.len()).filter(|at| spoken_digit(tokens.lower(*at)).is_some());
        if spoken.take(JOINED_CHARS_MIN).count() < JOINED_CHARS_MIN {
            return None;
        }
        let (mut bytes, mut places) = (Vec::new(), Vec::new());
        for at in 0..tokens.len() {
            match digit(at) {
                Some(digits) => {
                    let range = tokens.range(at, at);
                    bytes.extend(digits.bytes().filter_map(letter_of));
                    places.resize(bytes.len(), (range.start as u32, range.end as u32));
                }
                // Another word ends a number; it is no letter that any value has.
                None if tokens.is_word(at) && tokens.lower(at).len() > 1 => {
                    bytes.push(0);
                    let range = tokens.range(at, at);
                    places.resize(bytes.len(), (range.start as u32, range.end as u32));
                }
                None => {}
            }
        }
        Some(Self { bytes, places })
    }

    pub fn range(&self, at: usize, len: usize) -> Range<usize> {
        self.places[at].0 as usize..self.places[at + len - 1].1 as usize
    }

    /// Returns whether a value of `len` bytes at `at` stands as it must: at the edges of words if
    /// it is short, and alone if it is one part of a name.
    pub fn fits(&self, tokens: &Tokens<'_>, at: usize, len: usize, needle: &Needle) -> bool {
        // A house number would pass for a letter at the edge of a word.
        let edges = needle.is_part || needle.class == IdentityClass::Address;
        if len >= INNER_CHARS_MIN && !edges {
            return true;
        }
        let range = self.range(at, len);
        let text = &tokens.reading.lower;
        let before = text[..range.start].chars().next_back();
        let after = text[range.end..].chars().next();
        let is_inner = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        if !text[range.clone()].is_ascii() && !needle.is_part {
            return true;
        }
        if is_inner(before) || is_inner(after) {
            return false;
        }
        if !needle.is_part {
            return true;
        }
        // One word, or single letters with signs or spaces between them.
        let inside = &text[range];
        let mut pieces = inside
            .split(|c: char| c.is_whitespace() || "-_.,/*·•".contains(c))
            .filter(|p| !p.is_empty());
        let one = !inside
            .chars()
            .any(|c| c.is_whitespace() || "-_.,/*·•".contains(c));
        one || pieces.all(|piece| piece.chars().count() == 1)
            || needle.class == IdentityClass::BirthDate
            || inside.contains("-\n")
    }
}

/// Returns the consonants of a word as classes of similar sounds, and its first vowel if it begins
/// with one: the same for a name and for its spelling in another script and back.
pub(super) fn sound_of(word: &str) -> String {
    let mut out = String::new();
    let mut letters = word.chars().peekable();
    while let Some(c) = letters.next() {
        let next = letters.peek().copied();
        let class = match c {
            'z' if next == Some('h') => 'j',
            'z' | 's' | 'x' => 's',
            'c' if matches!(next, Some('h' | 'e' | 'i' | 's')) => 's',
            't' if next == Some('s') => continue,
            'c' | 'q' | 'k' => 'k',
            'p' if next == Some('h') => 'f',
            'g' if matches!(next, Some('e' | 'i')) => 'j',
            'w' => 'v',
            'h' => continue,
            'a' | 'e' | 'i' | 'o' | 'u' | 'y' if out.is_empty() => 'a',
            'a' | 'e' | 'i' | 'o' | 'u' | 'y' => continue,
            c => c,
        };
        if !out.ends_with(class) {
            out.push(class);
        }
    }
    out
}
