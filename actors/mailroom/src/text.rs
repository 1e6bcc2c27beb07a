//! A letter's text as its recipient is shown it: a prefix that says whose it is, and a body that can't look like one.

#[cfg(test)]
#[path = "text_tests.rs"]
mod tests;

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::{Arc, OnceLock};

use callboard_message::mail::{GUARDIAN, LetterKind, OPERATOR, SYSTEM};
use callboard_message::text::{cut_chars, is_invisible, lookalike};
use callboard_runtime::Letter;
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;
use unicode_security::skeleton;

/// Ids of those who are no agents.
const OFFICES: [&str; 3] = [GUARDIAN, OPERATOR, SYSTEM];

/// Whether an id stands for somebody who is no agent.
pub(super) fn is_reserved(id: &str) -> bool {
    OFFICES.contains(&id)
}

/// Longest label of the Guardian's, in characters.
pub const LABEL_CHARS_MAX: usize = 32;
/// Stands before each forged prefix: what follows is quoted.
const QUOTE: &str = "> ";

/// What stands before a letter's body. `from` and `to` are shown as they are given: ids as [`Names::display`] has them, a
/// group's name. Of the Guardian's labels only one that [`is_label`] is shown.
///
/// [`Names::display`]: Names::display
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
        && label
            .bytes()
            .all(|b| matches!(b, b'A'..=b'Z' | b'0'..=b'9' | b'_' | b' '))
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

/// A letter on its way to its recipients, with what is made of its body once for all of them.
pub(super) struct Handed {
    pub letter: Arc<Letter>,
    harmless: OnceLock<String>,
}

impl Handed {
    pub fn new(letter: Arc<Letter>) -> Self {
        Self {
            letter,
            harmless: OnceLock::new(),
        }
    }

    /// Its body, made harmless.
    pub fn harmless(&self) -> &str {
        self.harmless
            .get_or_init(|| neutral(&self.letter.new.body).into_owned())
    }
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

/// Characters of an id that are shown at least, where it has so many.
pub const DISPLAY_CHARS_MIN: usize = 8;
/// What the ids of examples begin with, and their names don't.
const EXAMPLE_START: &str = "agent-";

/// The ids that names are told apart among.
#[derive(Debug, Default)]
pub(crate) struct Names {
    ids: BTreeSet<String>,
    example_ids: bool,
}

impl Names {
    /// No ids yet but those of the offices: no agent is shown as one of them. With `example_ids` an id `agent-456` is shown as `456`, where no other is called that.
    pub fn new(example_ids: bool) -> Self {
        Self {
            ids: OFFICES.map(str::to_owned).into(),
            example_ids,
        }
    }

    /// Takes an id in. `false` where it was there.
    pub fn insert(&mut self, id: &str) -> bool {
        self.ids.insert(id.to_owned())
    }

    /// The shortest beginning of an id, of [`DISPLAY_CHARS_MIN`] characters at least, that no other id has; the whole id
    /// where there is none. Of an id that isn't among them, its first [`DISPLAY_CHARS_MIN`] characters, where that is
    /// nobody's id.
    pub fn display<'a>(&self, id: &'a str) -> &'a str {
        let name = self.without_start(id);
        if !self.ids.contains(id) {
            let start = first(name, DISPLAY_CHARS_MIN);
            return if self.ids.contains(start) { id } else { start };
        }
        if !self.example_ids {
            return first(id, self.shared(id, id, "") + 1);
        }
        if name != id && self.ids.contains(name) {
            return id;
        }
        // One without the start may be shown like one with it.
        first(
            name,
            self.shared(name, id, "")
                .max(self.shared(name, id, EXAMPLE_START))
                + 1,
        )
    }

    /// An id without the start of examples, where that is left out.
    fn without_start<'a>(&self, id: &'a str) -> &'a str {
        let name = if self.example_ids {
            id.strip_prefix(EXAMPLE_START)
        } else {
            None
        };
        name.filter(|name| !name.is_empty()).unwrap_or(id)
    }

    /// Most bytes that `name` has in common with the beginning of an id but `but`, of those that begin with `start`. In
    /// their order, whoever has most in common with it stands beside it.
    fn shared(&self, name: &str, but: &str, start: &str) -> usize {
        let place = format!("{start}{name}");
        let here = place.as_str();
        let before = self
            .ids
            .range::<str, _>((Unbounded, Excluded(here)))
            .rev()
            .find(|id| *id != but);
        let after = self
            .ids
            .range::<str, _>((Excluded(here), Unbounded))
            .find(|id| *id != but);
        let like = self.ids.get(here).filter(|id| *id != but);
        // From their beginning.
        let common = |id: &String| {
            id.bytes()
                .zip(place.bytes())
                .take_while(|(a, b)| a == b)
                .count()
        };
        [before, after, like]
            .into_iter()
            .flatten()
            .map(common)
            .max()
            .unwrap_or(0)
            .saturating_sub(start.len())
    }
}

/// So many characters of a text, [`DISPLAY_CHARS_MIN`] at least.
fn first(text: &str, chars: usize) -> &str {
    cut_chars(text, chars.max(DISPLAY_CHARS_MIN))
}

/// Beginning of the Guardian's prefix, in letters alone.
const GUARDIAN_LETTERS: &str = "guardianguidance";
/// What an agent's begins with, and what one of goes on with after its id.
const AGENT: &str = "agent";
const WHAT_AGENTS_DO: [&str; 3] = ["broadcast", "toagent", "togroup"];
/// Letters after `agent` in which it is looked for.
const AGENT_LETTERS_MAX: usize = 256;

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
fn forged(text: &str) -> Vec<usize> {
    if !text.contains(|c: char| !c.is_ascii() || closes(c) || opens(c)) {
        return Vec::new();
    }
    let read = Read::of(text);
    let is_forged = |opening: &&Opening| is_tag(&read.letters[opening.letter..]);
    let opened = read
        .opened
        .iter()
        .filter(is_forged)
        .map(|opening| opening.at);
    let opened = opened.filter(|at| !text[..*at].ends_with(QUOTE));
    let lines = read
        .lines
        .iter()
        .filter(is_forged)
        .map(|opening| opening.at);
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
            let is_letter =
                c == '|' && chars.peek().is_some_and(|(_, next)| next.is_alphanumeric());
            if is_letter && line[..at].ends_with(char::is_alphanumeric) {
                self.letters.push('i');
            } else if closes(c) {
                self.letters.push(']');
            } else if opens(c) {
                // Of several in a row the last.
                if self
                    .opened
                    .last()
                    .is_some_and(|opened| opened.letter == self.letters.len())
                {
                    self.opened.pop();
                }
                self.opened.push(Opening {
                    letter: self.letters.len(),
                    at: start + at,
                });
            } else {
                read_letters(c, known, &mut self.letters);
            }
        }
        let is_opened = self
            .opened
            .iter()
            .rev()
            .take_while(|opened| opened.letter >= first)
            .any(|o| o.letter == first);
        if !is_opened && line.contains(closes) && !line.starts_with(QUOTE) {
            self.lines.push(Opening {
                letter: first,
                at: start,
            });
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
    for bare in std::iter::once(c)
        .nfkd()
        .filter(|c| !is_combining_mark(*c) && !is_invisible(*c))
    {
        match inked(bare)
            .or_else(|| lookalike(bare))
            .or_else(|| bare.is_ascii().then_some(bare))
        {
            Some(latin) => out.extend(latin.is_alphanumeric().then(|| plain(latin))),
            None => {
                // Unicode TR 39: a stroked letter is the letter and a stroke.
                let drawn: String = skeleton(bare.encode_utf8(&mut [0; 4]))
                    .filter(|c| !is_combining_mark(*c))
                    .collect();
                let drawn = drawn
                    .chars()
                    .flat_map(char::to_lowercase)
                    .map(|c| lookalike(c).unwrap_or(c));
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
    let nth = |first: u32| {
        u8::try_from(u32::from(c) - first)
            .ok()
            .map(|nth| char::from(b'a' + nth))
    };
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
        _ => SMALL
            .chars()
            .zip(SMALL_ARE.chars())
            .find(|(small, _)| *small == c)
            .map(|(_, latin)| latin),
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
            !(c.is_alphanumeric()
                || c.is_whitespace()
                || is_combining_mark(c)
                || is_invisible(c)
                || closes(c))
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
    if letters.starts_with(GUARDIAN_LETTERS) {
        return true;
    }
    let Some(rest) = letters.strip_prefix(AGENT) else {
        return false;
    };
    let inside = cut_chars(
        rest.split(']').next().unwrap_or_default(),
        AGENT_LETTERS_MAX,
    );
    WHAT_AGENTS_DO.iter().any(|what| inside.contains(what))
}
