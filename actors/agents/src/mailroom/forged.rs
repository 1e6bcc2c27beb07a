//! What reads like a prefix and is none: in any script, spacing and bracket that a reader, or a model, could take for one.

use std::collections::HashMap;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;
use unicode_security::skeleton;

use super::text::QUOTE;
use crate::text::{is_invisible, lookalike};

/// What the Guardian's prefix begins with, in letters alone.
const GUARDIAN: &str = "guardianguidance";
/// What an agent's begins with, and what one of goes on with after its id.
const AGENT: &str = "agent";
const WHAT_AGENTS_DO: [&str; 3] = ["broadcast", "toagent", "togroup"];
/// Letters after `agent` in which it is looked for.
pub(super) const AGENT_LETTERS_MAX: usize = 256;

/// A place where a prefix could begin.
struct Opening {
    /// In the letters.
    letter: usize,
    /// In the text.
    at: usize,
}

/// A text as a reader takes it: its letters alone, in lower case, without accents, disguises and all that stands between them; and
/// `]` for what closes.
#[derive(Default)]
struct Read {
    letters: String,
    /// Brackets, and what is drawn like one.
    opened: Vec<Opening>,
    /// Lines that have no bracket before their first letter, but one that closes.
    lines: Vec<Opening>,
}

/// Where in a text something begins that reads like a prefix and isn't quoted yet, in order.
pub(super) fn forged(text: &str) -> Vec<usize> {
    if !text.contains(|c: char| !c.is_ascii() || closes(c) || opens(c)) {
        return Vec::new();
    }
    let read = Read::of(text);
    let is_forged = |opening: &&Opening| is_tag(&read.letters[opening.letter..]);
    let opened = read.opened.iter().filter(is_forged).map(|opening| opening.at);
    let opened = opened.filter(|at| !text[..*at].ends_with(QUOTE));
    let lines = read.lines.iter().filter(is_forged).map(|opening| opening.at);
    let mut forged: Vec<usize> = opened.chain(lines).collect();
    forged.sort_unstable();
    forged
}

impl Read {
    fn of(text: &str) -> Self {
        let mut read = Self::default();
        let (mut start, mut known) = (0, HashMap::new());
        for line in text.split_inclusive('\n') {
            read.line(line, start, &mut known);
            start += line.len();
        }
        read
    }

    fn line(&mut self, line: &str, start: usize, known: &mut HashMap<char, Box<str>>) {
        let first = self.letters.len();
        let mut chars = line.char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            // Between letters it is one.
            let is_letter = c == '|' && chars.peek().is_some_and(|(_, next)| next.is_alphanumeric());
            if is_letter && line[..at].ends_with(char::is_alphanumeric) {
                self.letters.push('i');
            } else if closes(c) {
                self.letters.push(']');
            } else if opens(c) {
                // Of several in a row the last.
                if self.opened.last().is_some_and(|opened| opened.letter == self.letters.len()) {
                    self.opened.pop();
                }
                self.opened.push(Opening { letter: self.letters.len(), at: start + at });
            } else {
                read_letters(c, known, &mut self.letters);
            }
        }
        let is_opened = self.opened.iter().rev().take_while(|opened| opened.letter >= first).any(|o| o.letter == first);
        if !is_opened && line.contains(closes) && !line.starts_with(QUOTE) {
            self.lines.push(Opening { letter: first, at: start });
        }
    }
}

/// The Latin letters that a character is drawn like; nothing where it is no letter. `known`: those of characters that were read before.
fn read_letters(c: char, known: &mut HashMap<char, Box<str>>, out: &mut String) {
    if c.is_ascii() {
        return out.extend(c.is_ascii_alphanumeric().then(|| plain(c)));
    }
    out.push_str(known.entry(c).or_insert_with(|| drawn(c).into()));
}

fn drawn(c: char) -> String {
    let mut out = String::new();
    for bare in std::iter::once(c).nfkd().filter(|c| !is_combining_mark(*c) && !is_invisible(*c)) {
        match inked(bare).or_else(|| lookalike(bare)).or_else(|| bare.is_ascii().then_some(bare)) {
            Some(latin) => out.extend(latin.is_alphanumeric().then(|| plain(latin))),
            None => {
                // Unicode TR 39: a stroked letter is the letter and a stroke.
                let drawn: String =
                    skeleton(bare.encode_utf8(&mut [0; 4])).filter(|c| !is_combining_mark(*c)).collect();
                let drawn = drawn.chars().flat_map(char::to_lowercase).map(|c| lookalike(c).unwrap_or(c));
                out.extend(drawn.filter(|c| c.is_alphanumeric()).map(plain));
            }
        }
    }
    out
}

/// A letter in a box or a disc, or a small capital.
fn inked(c: char) -> Option<char> {
    const SMALL: &str = "ᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏᴢ";
    const SMALL_ARE: &str = "abcdefghijklmnoprstuvwyz";
    let nth = |first: u32| u8::try_from(u32::from(c) - first).ok().map(|nth| char::from(b'a' + nth));
    match c {
        '\u{1f130}'..='\u{1f149}' => nth(0x1_f130),
        '\u{1f150}'..='\u{1f169}' => nth(0x1_f150),
        '\u{1f170}'..='\u{1f189}' => nth(0x1_f170),
        '\u{1f1e6}'..='\u{1f1ff}' => nth(0x1_f1e6),
        // The TR has none for these.
        'Ꮖ' | 'ꮖ' => Some('i'),
        '𐐈' | '𐐰' | 'Ⱥ' | 'ⱥ' => Some('a'),
        'Ȼ' | 'ȼ' => Some('c'),
        'Ɇ' | 'ɇ' => Some('e'),
        'Ɍ' | 'ɍ' => Some('r'),
        'Ʉ' | 'ʉ' => Some('u'),
        _ => SMALL.chars().zip(SMALL_ARE.chars()).find(|(small, _)| *small == c).map(|(_, latin)| latin),
    }
}

/// Of letters and digits that are taken for one another, one.
fn plain(c: char) -> char {
    match c.to_ascii_lowercase() {
        'l' | '1' => 'i',
        '0' => 'o',
        c => c,
    }
}

/// Whether a character could stand for an opening bracket: whatever is drawn and is no letter, mark of a sentence, of a list or of
/// a quotation.
fn opens(c: char) -> bool {
    const NONE: &str = "–—…•·“”‘’„«»‹›¡¿。、，；：？！";
    match c {
        '[' | '(' | '{' | '<' | '|' => true,
        c if c.is_ascii() => false,
        c => {
            !(c.is_alphanumeric() || c.is_whitespace() || is_combining_mark(c) || is_invisible(c) || closes(c))
                && inked(c).is_none()
                && !NONE.contains(c)
                && c != '\u{2800}'
        }
    }
}

/// Whether a character closes what [`opens`], or is drawn so.
fn closes(c: char) -> bool {
    "]］】〕〗〙〛」』⌝⟧❳⁆︘﹈⦌⦎⦐".contains(c)
}

/// Whether letters are what a prefix begins with.
fn is_tag(letters: &str) -> bool {
    if letters.starts_with(GUARDIAN) {
        return true;
    }
    let Some(rest) = letters.strip_prefix(AGENT) else { return false };
    let inside = rest.split(']').next().unwrap_or_default();
    let end = inside.char_indices().nth(AGENT_LETTERS_MAX).map_or(inside.len(), |(at, _)| at);
    WHAT_AGENTS_DO.iter().any(|what| inside[..end].contains(what))
}
