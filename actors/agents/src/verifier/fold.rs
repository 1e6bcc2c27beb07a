//! Text made comparable: one spelling for each letter, whatever its width, case, accent or invisible company.

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

use crate::text::{is_invisible, lookalike};

/// `text` in NFKC, lower case, without accents and invisible characters. Line breaks stay.
pub(super) fn fold(text: &str) -> String {
    strip(text).chars().flat_map(char::to_lowercase).collect()
}

/// As [`fold`], but upper and lower case are kept.
pub(super) fn strip(text: &str) -> String {
    if text.is_ascii() {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            // NFKC would glue the fraction to the number before it: "2½" must not become "21/2".
            '½' => out.push_str(" 1/2"),
            '¼' => out.push_str(" 1/4"),
            '¾' => out.push_str(" 3/4"),
            'µ' | 'μ' => out.push('u'),
            'º' | '°' => out.push('o'),
            '–' | '—' | '‒' | '−' | '‐' | '‑' => out.push('-'),
            '’' | '‘' | 'ʼ' => out.push('\''),
            '“' | '”' => out.push('"'),
            '×' => out.push('x'),
            c if is_invisible(c) || is_combining_mark(c) => {}
            c if c.is_ascii() => out.push(c),
            c => out.extend(std::iter::once(c).nfkd().filter(|d| !is_combining_mark(*d)).map(like_ascii)),
        }
    }
    out
}

/// The plain letter for another Latin one that has no compatibility form, or for one that is only drawn like it: a name
/// can't hide behind a look-alike.
fn like_ascii(c: char) -> char {
    match c {
        'đ' => 'd',
        'æ' => 'a',
        'Æ' => 'A',
        '⁄' | '∕' => '/',
        '，' => ',',
        c => lookalike(c).unwrap_or(c),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: spellings that look alike compare equal. Method: a table of disguises.
    #[test]
    fn disguises_fold_to_one_spelling() {
        for text in [
            "Conceição",
            "CONCEIÇÃO",
            "Ｃｏｎｃｅｉção",
            "Con\u{200b}cei\u{00ad}ção",
            "Соnсеiçãо",
            "Coո\u{3164}cei\u{fff9}ção",
        ] {
            assert_eq!(fold(text), "conceicao", "{text}");
        }
        assert_eq!(fold("2½ µg"), "2 1/2 ug");
    }
}
