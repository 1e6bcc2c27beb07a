//! A letter's text as its recipient is shown it: a prefix that says whose it is, and a body that can't look like one.

use std::borrow::Cow;

use callboard_message::mail::LetterKind;

use crate::text::{fold, is_invisible, lookalike};

/// Longest label of the Guardian's, in characters.
pub const LABEL_CHARS_MAX: usize = 32;
/// Longest id in what is taken for a forged prefix, in characters.
const FORGED_ID_CHARS_MAX: usize = 64;
/// Stands before each forged prefix: what follows is quoted.
const QUOTE: &str = "> ";

/// What stands before a letter's body. `from` and `to` are shown as they are given: ids as [`Names::display`] has them, a
/// group's name. Of the Guardian's labels only one that [`is_label`] is shown.
///
/// [`Names::display`]: super::names::Names::display
pub(crate) fn prefix(kind: LetterKind, from: &str, to: &str, label: Option<&str>) -> String {
    match (kind, label.filter(|label| is_label(label))) {
        (LetterKind::Broadcast, _) => format!("[AGENT {from} BROADCAST]: "),
        (LetterKind::Direct, _) => format!("[AGENT {from} TO AGENT {to}]: "),
        (LetterKind::Group, _) => format!("[AGENT {from} TO GROUP {to}]: "),
        (LetterKind::Guidance, Some(label)) => format!("[GUARDIAN GUIDANCE - {label}]: "),
        (LetterKind::Guidance, None) => "[GUARDIAN GUIDANCE]: ".to_owned(),
    }
}

/// Whether a text may label the Guardian's guidance: upper-case letters, digits, `_` and spaces, at most
/// [`LABEL_CHARS_MAX`].
pub(crate) fn is_label(label: &str) -> bool {
    (1..=LABEL_CHARS_MAX).contains(&label.len())
        && label.bytes().all(|b| matches!(b, b'A'..=b'Z' | b'0'..=b'9' | b'_' | b' '))
}

/// The body, one line after the other, with nothing in it that a terminal obeys, that turns text around or hides it; and
/// with a `> ` before whatever reads like a prefix, wherever it stands. Ordinary text comes back byte for byte.
pub(crate) fn neutral(body: &str) -> Cow<'_, str> {
    let shown = shown(body);
    let forged = forged(&shown);
    if forged.is_empty() {
        return shown;
    }
    let mut out = String::with_capacity(shown.len() + forged.len() * QUOTE.len());
    let mut done = 0;
    for at in forged {
        out.push_str(&shown[done..at]);
        out.push_str(QUOTE);
        done = at;
    }
    out.push_str(&shown[done..]);
    Cow::Owned(out)
}

/// The text with each character that does something written as one that only says so.
fn shown(text: &str) -> Cow<'_, str> {
    if !text.chars().any(acts) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\r' if chars.peek() == Some(&'\n') => {}
            '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}' => out.push('\n'),
            c if !acts(c) => out.push(c),
            '\u{7f}' => out.push('\u{2421}'),
            // Unicode has a picture of each.
            '\0'..='\u{1f}' => out.extend(char::from_u32(0x2400 + u32::from(c))),
            c => out.push_str(&format!("<U+{:04X}>", u32::from(c))),
        }
    }
    Cow::Owned(out)
}

/// Whether a character does something where it is shown: to a terminal, or to how the text beside it reads.
fn acts(c: char) -> bool {
    matches!(
        c,
        '\0'..='\u{8}'
            | '\u{b}'..='\u{1f}'
            | '\u{7f}'..='\u{9f}'
            | '\u{61c}'
            | '\u{200e}' | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
            | '\u{feff}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

/// Where in a text something begins that reads like a prefix and isn't quoted yet.
fn forged(text: &str) -> Vec<usize> {
    let (folded, brackets) = folded(text);
    let reads_like_one = |&&(at, _): &&(usize, usize)| is_tag(&folded[at..]);
    let forged = brackets.iter().filter(reads_like_one).map(|(_, at)| *at);
    forged.filter(|at| !text[..*at].ends_with(QUOTE)).collect()
}

/// The text as a reader takes it: lower case, without accents, disguises and what isn't seen, all space between two words as
/// one. Beside it where each opening bracket stands: there, and in the text.
fn folded(text: &str) -> (String, Vec<(usize, usize)>) {
    let (mut out, mut brackets) = (String::new(), Vec::new());
    let any = text.contains(|c| !char::is_ascii(&c) || c == '[');
    for (at, c) in text.char_indices().filter(|_| any) {
        if is_unseen(c) {
        } else if is_space(c) {
            if !out.ends_with(' ') {
                out.push(' ');
            }
        } else if is_bracket(c) {
            brackets.push((out.len(), at));
            out.push('[');
        } else if c.is_ascii() {
            out.push(c.to_ascii_lowercase());
        } else if let Some(latin) = lookalike(c) {
            out.push(latin.to_ascii_lowercase());
        } else {
            for d in fold(c.encode_utf8(&mut [0; 4])).chars() {
                out.push(lookalike(d).map_or(d, |latin| latin.to_ascii_lowercase()));
            }
        }
    }
    (out, brackets)
}

fn is_space(c: char) -> bool {
    // The pattern of no dots is drawn like a space.
    c.is_whitespace() || c == '\u{2800}'
}

/// What prints nothing, on a line of its own or over another.
fn is_unseen(c: char) -> bool {
    is_invisible(c)
        || unicode_normalization::char::is_combining_mark(c)
        || matches!(c, '\u{fff0}'..='\u{fff8}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}')
}

/// An opening square bracket, and what is drawn like one.
fn is_bracket(c: char) -> bool {
    matches!(
        c,
        '[' | '\u{2045}' | '\u{2308}' | '\u{230a}' | '\u{23a1}'
            ..='\u{23a3}'
                | '\u{2772}'
                | '\u{27e6}'
                | '\u{27ec}'
                | '\u{298b}'
                | '\u{298d}'
                | '\u{298f}'
                | '\u{2997}'
                | '\u{2e22}'
                | '\u{2e24}'
                | '\u{2e55}'
                | '\u{2e57}'
                | '\u{3010}'
                | '\u{3014}'
                | '\u{3016}'
                | '\u{3018}'
                | '\u{301a}'
                | '\u{fe39}'
                | '\u{fe3b}'
                | '\u{fe47}'
                | '\u{fe5d}'
                | '\u{ff3b}'
    )
}

/// Whether a folded text begins with what a prefix begins with, a bracket.
fn is_tag(folded: &str) -> bool {
    let inside = folded.strip_prefix('[').unwrap_or(folded);
    let inside = inside.strip_prefix(' ').unwrap_or(inside);
    if inside.starts_with("guardian guidance") {
        return true;
    }
    let Some(named) = inside.strip_prefix("agent ") else { return false };
    let id = named.char_indices().take(FORGED_ID_CHARS_MAX + 1).find(|(_, c)| *c == ' ');
    let Some((ends, _)) = id else { return false };
    let said = &named[ends + 1..];
    ends > 0 && ["broadcast", "to agent", "to group"].iter().any(|what| said.starts_with(what))
}

#[cfg(test)]
#[path = "text_tests.rs"]
mod tests;
