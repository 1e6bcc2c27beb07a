//! Text from people and models: truncation, normalisation for comparison, and decoding of text
//! encodings.

use std::collections::HashMap;
use std::sync::LazyLock;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

/// Returns the first `chars_max` characters of `text`, or all of it if it is shorter.
pub fn cut_chars(text: &str, chars_max: usize) -> &str {
    text.char_indices()
        .nth(chars_max)
        .map_or(text, |(at, _)| &text[..at])
}

/// Returns the first `bytes_max` bytes of `text`, or fewer if a character would be cut in two.
pub fn cut_bytes(text: &str, bytes_max: usize) -> &str {
    (0..=bytes_max.min(text.len()))
        .rev()
        .find_map(|at| text.get(..at))
        .unwrap_or_default()
}

/// Normalises text to compatibility form (NFKC). Also unifies hyphens and apostrophes, and removes
/// invisible characters.
///
/// Control characters other than line feeds become spaces, so that words on both sides stay
/// separate.
pub fn normalize(text: &str) -> String {
    text.nfkc()
        .filter(|c| !is_invisible(*c))
        .map(|c| match c {
            '\n' => '\n',
            c if c.is_control() => ' ',
            '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
            '\u{2018}' | '\u{2019}' => '\'',
            c => c,
        })
        .collect()
}

/// Folds text for comparison: normalised as by [`normalize`], in lower case and without accents.
pub fn fold(text: &str) -> String {
    let bare = |c: &char| !is_combining_mark(*c);
    // The lower case of some letters has an accent again: "İ" is "i" and a dot.
    normalize(text)
        .nfkd()
        .filter(bare)
        .flat_map(char::to_lowercase)
        .filter(bare)
        .collect()
}

/// Splits an already folded text into words: runs of letters and digits.
pub fn words(folded: &str) -> impl Iterator<Item = &str> {
    folded
        .split(|c: char| !c.is_alphanumeric())
        .filter(|w| !w.is_empty())
}

/// Returns the words of `text` after folding (see [`fold`]).
pub fn folded_words(text: &str) -> Vec<String> {
    words(&fold(text)).map(str::to_owned).collect()
}

/// Returns whether `word` occurs in `list`, which consists of words separated by spaces.
pub fn is_one_of(word: &str, list: &str) -> bool {
    list.split_ascii_whitespace().any(|w| w == word)
}

/// Lookup table from a word to its meaning, built on first use.
pub type WordTable<T> = LazyLock<HashMap<&'static str, T>>;

/// Builds a lookup table from rows. Each row has words separated by spaces, and the meaning that
/// they share. A word in several rows has the meaning of the last one.
pub fn word_table<T: Copy>(rows: &[(&'static str, T)]) -> HashMap<&'static str, T> {
    rows.iter()
        .flat_map(|(words, means)| words.split_ascii_whitespace().map(|word| (word, *means)))
        .collect()
}

/// Returns whether a character is one of those that show nothing on a screen, such as zero-width
/// and filler characters. They can hide text from readers but not from programs. Control characters
/// and ordinary white space don't count.
pub fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{00ad}'
            | '\u{034f}'
            | '\u{061c}'
            | '\u{115f}'
            | '\u{1160}'
            | '\u{17b4}'
            | '\u{17b5}'
            | '\u{180b}'..='\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Decodes base64 in the standard or URL-safe alphabet, with or without padding. Returns `None` if
/// `run` contains another character, or nothing but padding.
pub fn decode_base64(run: &[u8]) -> Option<Vec<u8>> {
    join_bits(run, 6, |b| {
        Some(match b {
            b'A'..=b'Z' => b - b'A',
            b'a'..=b'z' => b - b'a' + 26,
            b'0'..=b'9' => b - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        })
    })
}

/// Decodes base32 in upper or lower case, with or without padding. Returns `None` if `run` contains
/// another character, or nothing but padding.
pub fn decode_base32(run: &[u8]) -> Option<Vec<u8>> {
    join_bits(run, 5, |b| {
        Some(match b.to_ascii_uppercase() {
            b @ b'A'..=b'Z' => b - b'A',
            b @ b'2'..=b'7' => b - b'2' + 26,
            _ => return None,
        })
    })
}

/// Returns the bytes as text if they are UTF-8 without control characters other than white space;
/// otherwise `None`.
pub fn printable_text(bytes: Vec<u8>) -> Option<String> {
    let text = String::from_utf8(bytes).ok()?;
    text.chars()
        .all(|c| !c.is_control() || c.is_whitespace())
        .then_some(text)
}

/// Decodes characters that stand for `width` bits each, and joins the bits to bytes. `value` maps a
/// character to its bits. Padding (`=`) at the end and an incomplete last byte are dropped. Returns
/// `None` for an unknown character, or if there is nothing but padding.
fn join_bits(run: &[u8], width: u32, value: fn(u8) -> Option<u8>) -> Option<Vec<u8>> {
    let end = run.iter().rposition(|b| *b != b'=')? + 1;
    let (mut out, mut held, mut count) = (Vec::with_capacity(end), 0_u32, 0);
    for byte in &run[..end] {
        held = (held << width | u32::from(value(*byte)?)) & 0xffff;
        count += width;
        if count >= 8 {
            count -= 8;
            out.push((held >> count) as u8);
        }
    }
    Some(out)
}

/// Basic Latin letters, each followed by letters of other scripts and special Latin ones that look
/// like it (the common ones of Unicode TR 39).
const LATIN_LOOKALIKES: &str = "aаαɑ AАΑᎪ bвβЬь BВΒᏴ cсϲ CСϹᏟ dԁɗ DԀᎠ eеεҽ EЕΕᎬ fғ FϜ gɡց GᏀ hһнհ HҺНΗᎻ iіιıɩᎥӏ \
    IІΙӀ jјϳ JЈ kкκ KКΚᏦ lⅼł LᏞʟŁ mм MМΜᎷ nոп NΝ oоοօσø OОΟØ pрρ PРΡᏢ qԛ QԚ rг RʀᏒ \
    sѕʂß SЅᏚ tтτ TТΤᎢ uυսц vνѵ VᏙ wԝѡω WᎳ xхχ XХΧ yуγү YУΥ zᴢ ZΖᏃ";

static LATIN: LazyLock<HashMap<char, char>> = LazyLock::new(|| {
    let others = |row: &'static str| row.chars().skip(1).zip(row.chars().take(1).cycle());
    LATIN_LOOKALIKES
        .split_ascii_whitespace()
        .flat_map(others)
        .collect()
});

/// Returns the basic Latin letter that another letter looks like, in the same case; `None` if there
/// is none. The other letter is of another script, or a special Latin one such as `ø` or `ß`.
pub fn latin_lookalike(c: char) -> Option<char> {
    LATIN.get(&c).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the spellings of one word compare as equal. Method: accents, case, width, dashes, zero width.
    #[test]
    fn spellings_of_one_word_are_equal() {
        for (text, expect) in [
            ("Psoríase", "psoriase"),
            ("PSORI\u{0301}ASE", "psoriase"),
            ("ｐｓｏｒｉａｓｉｓ", "psoriasis"),
            ("CARD\u{2011}001", "card-001"),
            ("car\u{200B}dio", "cardio"),
            ("car\u{3164}dio", "cardio"),
            ("coração", "coracao"),
            ("İSTANBUL", "istanbul"),
        ] {
            assert_eq!(fold(text), expect, "{text:?}");
        }
    }

    /// Goal: texts are cut between characters. Method: limits before, in and after one of several bytes.
    #[test]
    fn cuts_are_between_characters() {
        assert_eq!(
            (
                cut_chars("aäb", 2),
                cut_chars("aäb", 3),
                cut_chars("aäb", 9)
            ),
            ("aä", "aäb", "aäb")
        );
        assert_eq!(
            (
                cut_bytes("aäb", 2),
                cut_bytes("aäb", 3),
                cut_bytes("aäb", 9)
            ),
            ("a", "aä", "aäb")
        );
    }
}
