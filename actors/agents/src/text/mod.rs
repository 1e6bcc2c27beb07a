//! Text made comparable, as planner, clinic, verifier and guardrail share it: one spelling for what looks like one.

mod encoded;
mod lookalike;

use std::collections::HashMap;
use std::sync::LazyLock;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

pub(crate) use encoded::{base32, base64, printable};
pub(crate) use lookalike::lookalike;

/// The text in compatibility form (NFKC), with one kind of hyphen and apostrophe and without invisible characters.
///
/// Control characters become spaces, so that none hides a word boundary.
pub(crate) fn plain(text: &str) -> String {
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

/// The text for comparing: compatibility form, lower case, no accents.
pub(crate) fn fold(text: &str) -> String {
    let bare = |c: &char| !is_combining_mark(*c);
    // The lower case of some letters has an accent again: "İ" is "i" and a dot.
    plain(text).nfkd().filter(bare).flat_map(char::to_lowercase).filter(bare).collect()
}

/// The words of an already folded text: runs of letters and digits.
pub(crate) fn words(folded: &str) -> impl Iterator<Item = &str> {
    folded.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty())
}

/// Whether `word` is in `list`, whose words have spaces between them.
pub(crate) fn is_one_of(word: &str, list: &str) -> bool {
    list.split_ascii_whitespace().any(|w| w == word)
}

/// What words mean, by word.
pub(crate) type Meanings<T> = LazyLock<HashMap<&'static str, T>>;

/// Meanings from rows of words, with spaces between them, and what they all mean.
pub(crate) fn meanings<T: Copy>(rows: &[(&'static str, T)]) -> HashMap<&'static str, T> {
    rows.iter().flat_map(|(words, means)| words.split_ascii_whitespace().map(|word| (word, *means))).collect()
}

/// Characters that take no room on a screen: they hide words from readers, not from programs.
pub(crate) fn is_invisible(c: char) -> bool {
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
}
