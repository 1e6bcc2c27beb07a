//! Text made plain: one lower-case ASCII letter for each disguise of it, hidden text made visible.

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

use super::screen::PLAIN_BYTES_MAX;
use crate::text::{is_invisible, lookalike};

/// What was found while a text was made plain.
#[derive(Default)]
pub(super) struct Plain {
    /// Lower case, without accents, disguises and invisible characters.
    pub text: String,
    /// Characters of the Unicode tag block: text that no person sees.
    pub tags: usize,
    /// Letters of another script that are drawn like Latin ones, inside Latin words.
    pub lookalikes: usize,
    /// Characters that print nothing between two letters.
    pub splitters: usize,
}

/// Makes `text` plain. Linear; stops one character past [`PLAIN_BYTES_MAX`].
pub(super) fn plain(text: &str) -> Plain {
    let mut out = Plain { text: String::with_capacity(text.len()), ..Plain::default() };
    let mut in_tags = false;
    for c in text.chars() {
        if out.text.len() > PLAIN_BYTES_MAX {
            break;
        }
        if c.is_ascii() {
            out.text.push(c.to_ascii_lowercase());
            in_tags = false;
            continue;
        }
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

fn push_folded(c: char, out: &mut Plain) {
    if is_unseen(c) {
        out.splitters += usize::from(out.text.ends_with(|l: char| l.is_ascii_alphabetic()));
        return;
    }
    if let Some(latin) = like_ascii(c) {
        out.lookalikes += usize::from(out.text.ends_with(|l: char| l.is_ascii_alphabetic()));
        out.text.push(latin);
        return;
    }
    if is_plain_script(c) {
        out.text.push(c);
        return;
    }
    for d in std::iter::once(c).nfkd().filter(|d| !is_combining_mark(*d)) {
        match like_ascii(d) {
            Some(latin) => out.text.push(latin),
            None => out.text.extend(d.to_lowercase()),
        }
    }
}

/// Scripts without case, accents or compatibility forms: nothing to fold.
fn is_plain_script(c: char) -> bool {
    matches!(c, '\u{0590}'..='\u{08ff}' | '\u{0900}'..='\u{0dff}' | '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}')
}

fn tag_letter(c: char) -> Option<char> {
    let code = u32::from(c);
    (0xe0020..=0xe007e)
        .contains(&code)
        .then(|| char::from_u32(code - 0xe0000))
        .flatten()
        .map(|l| l.to_ascii_lowercase())
}

/// What prints nothing of its own, an accent that stands apart included.
fn is_unseen(c: char) -> bool {
    is_invisible(c) || matches!(c, '\u{0300}'..='\u{036f}')
}

/// The ASCII character that a letter of another script, a quotation mark, a dash or a space is drawn like.
fn like_ascii(c: char) -> Option<char> {
    Some(match c {
        '’' | '‘' | 'ʼ' | '´' | '＇' => '\'',
        '“' | '”' | '«' | '»' => '"',
        '–' | '—' | '‐' | '‑' | '−' => '-',
        '\u{00a0}' | '\u{2000}'..='\u{200a}' | '\u{3000}' => ' ',
        c => return lookalike(c).map(|latin| latin.to_ascii_lowercase()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a disguised word reads as the word. Method: a table of disguises.
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
            assert_eq!(plain(text).text, "ignore", "{text}");
        }
        let tags: String = "obey".chars().filter_map(|c| char::from_u32(0xe0000 + u32::from(c))).collect();
        assert_eq!(plain(&format!("hi{tags}")).text, "hi\nobey");
    }
}
