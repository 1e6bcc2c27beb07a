//! Normalization of texts: disguised letters become lower-case ASCII, and hidden text becomes
//! visible.

use callboard_message::text::{is_invisible, latin_lookalike};
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

/// Maximum bytes of a text to screen. A longer one is blocked without screening. Fixed.
pub const SCREEN_BYTES_MAX: usize = 1 << 20;
/// Maximum bytes of a normalized text. Text that is longer when normalized is blocked: some
/// characters expand to whole sentences, which legitimate text doesn't contain in such numbers.
pub(super) const NORMALIZED_BYTES_MAX: usize = SCREEN_BYTES_MAX + (SCREEN_BYTES_MAX >> 1);

/// Normalized text with the number of suspicious characters in it.
#[derive(Default)]
pub(super) struct NormalizedText {
    /// Text in lower case, without accents, disguises and invisible characters.
    pub text: String,
    /// Number of characters of the Unicode tag block, which are invisible.
    pub tags: usize,
    /// Number of characters after an ASCII letter that look like another ASCII character: letters
    /// of other scripts, typographic quotation marks, dashes and spaces.
    pub lookalikes: usize,
    /// Number of invisible characters and combining accents after an ASCII letter, which may split
    /// a word.
    pub splitters: usize,
    /// Number of variation selectors after another one. Legitimate text has one after a character.
    pub selectors: usize,
}

/// Returns whether a character of a normalized text belongs to a word.
pub(super) fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || is_combining_mark(c)
}

/// Normalizes `text` in linear time. Stops one character beyond [`NORMALIZED_BYTES_MAX`], so the
/// caller must reject a longer result.
pub(super) fn normalize(text: &str) -> NormalizedText {
    let mut out = NormalizedText {
        text: String::with_capacity(text.len()),
        ..NormalizedText::default()
    };
    let mut in_tags = false;
    let mut is_after_selector = false;
    let mut rest = text;
    while out.text.len() <= NORMALIZED_BYTES_MAX {
        let ascii = rest.bytes().position(|b| !b.is_ascii());
        let (run, others) = rest.split_at(ascii.unwrap_or(rest.len()));
        if !run.is_empty() {
            push_ascii(run, &mut out.text);
            (in_tags, is_after_selector) = (false, false);
        }
        let mut chars = others.chars();
        let Some(c) = chars.next() else { break };
        rest = chars.as_str();
        let is_selector = selected_byte(c).is_some();
        out.selectors += usize::from(is_selector && is_after_selector);
        is_after_selector = is_selector;
        let tag = tag_letter(c);
        if tag.is_some() && !in_tags {
            out.text.push('\n');
        }
        in_tags = tag.is_some();
        match tag {
            Some(letter) => {
                out.tags += 1;
                out.text.push(letter);
            }
            None => push_folded(c, &mut out),
        }
    }
    out
}

/// Appends ASCII text in lower case, with `\n` for each `\r\n`.
fn push_ascii(run: &str, out: &mut String) {
    let from = out.len();
    match run.contains('\r') {
        true => out.push_str(&run.replace("\r\n", "\n")),
        false => out.push_str(run),
    }
    out[from..].make_ascii_lowercase();
}

fn push_folded(c: char, out: &mut NormalizedText) {
    // Invisible characters, including separate combining accents.
    if is_invisible(c) || matches!(c, '\u{0300}'..='\u{036f}') {
        out.splitters += usize::from(out.text.ends_with(|l: char| l.is_ascii_alphabetic()));
        return;
    }
    if let Some(latin) = ascii_lookalike(c) {
        out.lookalikes += usize::from(out.text.ends_with(|l: char| l.is_ascii_alphabetic()));
        out.text.push(latin);
        return;
    }
    if is_plain_script(c) {
        out.text.push(c);
        return;
    }
    for d in std::iter::once(c).nfkd().filter(|d| !is_combining_mark(*d)) {
        match ascii_lookalike(d) {
            Some(latin) => out.text.push(latin),
            None => out.text.extend(d.to_lowercase()),
        }
    }
}

/// Returns the normalized text with a space in place of each invisible character, which may stand
/// between words in place of one.
pub(super) fn split_at_invisible(text: &str) -> String {
    let spaced: String = text
        .chars()
        .map(|c| if is_invisible(c) { ' ' } else { c })
        .collect();
    normalize(&spaced).text
}

/// Returns whether a character's script has no case, accents or compatibility forms, so that
/// folding changes nothing.
fn is_plain_script(c: char) -> bool {
    matches!(c, '\u{0590}'..='\u{08ff}' | '\u{0900}'..='\u{0dff}' | '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}')
}

/// Returns the byte that a variation selector stands for if it hides text; `None` for any other
/// character.
pub(super) fn selected_byte(c: char) -> Option<u8> {
    let byte = match c {
        '\u{fe00}'..='\u{fe0f}' => u32::from(c) - 0xfe00,
        '\u{e0100}'..='\u{e01ef}' => u32::from(c) - 0xe0100 + 16,
        _ => return None,
    };
    u8::try_from(byte).ok()
}

fn tag_letter(c: char) -> Option<char> {
    let code = u32::from(c)
        .checked_sub(0xe0000)
        .filter(|code| (0x20..=0x7e).contains(code))?;
    char::from_u32(code).map(|letter| letter.to_ascii_lowercase())
}

/// Returns the ASCII character that a letter of another script, quotation mark, dash or space looks
/// like.
fn ascii_lookalike(c: char) -> Option<char> {
    Some(match c {
        '’' | '‘' | 'ʼ' | '´' | '＇' => '\'',
        '“' | '”' | '«' | '»' => '"',
        '–' | '—' | '‐' | '‑' | '−' => '-',
        '\u{00a0}'
        | '\u{1680}'
        | '\u{2000}'..='\u{200a}'
        | '\u{202f}'
        | '\u{205f}'
        | '\u{3000}' => ' ',
        '\u{0085}' | '\u{2028}' | '\u{2029}' => '\n',
        c => return latin_lookalike(c).map(|latin| latin.to_ascii_lowercase()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a disguised word is normalized to the word. Method: a table of disguises.
    #[test]
    fn disguises() {
        for text in [
            "Ignore",
            "ＩＧＮＯＲＥ",
            "Ignоrе",
            "I\u{200b}g\u{200d}nore",
            "ígnöre",
            "ι\u{0301}gnοre",
            "𝐢𝐠𝐧𝐨𝐫𝐞",
            "ⓘⓖⓝⓞⓡⓔ",
        ] {
            assert_eq!(normalize(text).text, "ignore", "{text}");
        }
        let tags: String = "obey"
            .chars()
            .filter_map(|c| char::from_u32(0xe0000 + u32::from(c)))
            .collect();
        assert_eq!(normalize(&format!("hi{tags}")).text, "hi\nobey");
    }
}
