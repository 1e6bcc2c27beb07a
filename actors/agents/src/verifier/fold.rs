//! Text made comparable: one spelling for each letter, whatever its width, case, accent or invisible company.

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

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
            c if is_invisible(c) => {}
            c if c.is_ascii() => out.push(c),
            c => out.extend(std::iter::once(c).nfkd().filter(|d| !is_combining_mark(*d)).map(like_ascii)),
        }
    }
    out
}

/// Characters that print nothing and only serve to split a word.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{00ad}' | '\u{034f}' | '\u{061c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{2064}' | '\u{2066}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{e0000}'..='\u{e0fff}')
        || is_combining_mark(c)
}

/// The Latin letter that a Cyrillic or Greek one is drawn like: a name can't hide behind a look-alike.
fn like_ascii(c: char) -> char {
    match c {
        'а' | 'α' => 'a',
        'е' | 'ε' => 'e',
        'о' | 'ο' => 'o',
        'р' | 'ρ' => 'p',
        'с' | 'ϲ' => 'c',
        'х' | 'χ' => 'x',
        'у' | 'γ' => 'y',
        'і' | 'ι' | 'ı' => 'i',
        'ѕ' => 's',
        'ј' => 'j',
        'ԁ' => 'd',
        'һ' => 'h',
        'ԛ' => 'q',
        'ԝ' => 'w',
        'к' | 'κ' => 'k',
        'А' | 'Α' => 'A',
        'В' | 'Β' => 'B',
        'Е' | 'Ε' => 'E',
        'Н' | 'Η' => 'H',
        'І' | 'Ι' => 'I',
        'Ј' => 'J',
        'К' | 'Κ' => 'K',
        'М' | 'Μ' => 'M',
        'Ν' => 'N',
        'О' | 'Ο' => 'O',
        'Р' | 'Ρ' => 'P',
        'Ѕ' => 'S',
        'С' => 'C',
        'Т' | 'Τ' => 'T',
        'Х' | 'Χ' => 'X',
        'У' | 'Υ' => 'Y',
        'Ζ' => 'Z',
        'ß' => 's',
        'ø' => 'o',
        'Ø' => 'O',
        'ł' => 'l',
        'Ł' => 'L',
        'đ' => 'd',
        'æ' => 'a',
        'Æ' => 'A',
        '⁄' | '∕' => '/',
        '，' => ',',
        _ => c,
    }
}

/// The words of an already folded text: runs of letters and digits.
pub(super) fn words(folded: &str) -> impl Iterator<Item = &str> {
    folded.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty())
}

/// Whether `word` is in `list`, whose words have spaces between them.
pub(super) fn is_one_of(word: &str, list: &str) -> bool {
    list.split_ascii_whitespace().any(|w| w == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: spellings that look alike compare equal. Method: a table of disguises.
    #[test]
    fn disguises_fold_to_one_spelling() {
        for text in ["Conceição", "CONCEIÇÃO", "Ｃｏｎｃｅｉção", "Con\u{200b}cei\u{00ad}ção", "Соnсеiçãо"]
        {
            assert_eq!(fold(text), "conceicao", "{text}");
        }
        assert_eq!(fold("2½ µg"), "2 1/2 ug");
    }
}
