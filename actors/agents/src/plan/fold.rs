use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

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
    plain(text).nfkd().filter(|c| !is_combining_mark(*c)).flat_map(char::to_lowercase).collect()
}

/// Characters that take no room on a screen: they hide words from readers, not from programs.
pub(crate) fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{00AD}' | '\u{034F}' | '\u{061C}' | '\u{180E}' | '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}'
        | '\u{2060}'..='\u{206F}' | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}' | '\u{E0000}'..='\u{E0FFF}')
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
            ("coração", "coracao"),
        ] {
            assert_eq!(fold(text), expect, "{text:?}");
        }
    }
}
