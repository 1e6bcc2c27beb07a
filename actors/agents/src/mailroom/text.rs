//! A letter's text as its recipient is shown it: a prefix that says whose it is, and a body that can't look like one.

use std::borrow::Cow;

use callboard_message::mail::LetterKind;

use super::forged::forged;

/// Longest label of the Guardian's, in characters.
pub const LABEL_CHARS_MAX: usize = 32;
/// Stands before each forged prefix: what follows is quoted.
pub(super) const QUOTE: &str = "> ";

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
pub fn neutral(body: &str) -> Cow<'_, str> {
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

#[cfg(test)]
#[path = "text_tests.rs"]
mod tests;
