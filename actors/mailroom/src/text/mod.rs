//! Display of a message's text: a prefix that names the sender, and a body that can't forge such a
//! prefix.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::{Arc, OnceLock};

use callboard_message::mail::{GUARDIAN_ID, MailMessageKind, OPERATOR_ID, SYSTEM_ID};
use callboard_message::text::{cut_chars, is_invisible, latin_lookalike};
use callboard_runtime::MailMessage;
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;
use unicode_security::skeleton;

/// Ids that are reserved for principals that aren't agents.
const RESERVED_IDS: [&str; 3] = [GUARDIAN_ID, OPERATOR_ID, SYSTEM_ID];

/// Returns whether an id is reserved for the Guardian, the operator or the system.
pub(crate) fn is_reserved(id: &str) -> bool {
    RESERVED_IDS.contains(&id)
}

/// Maximum length of a label of the Guardian's guidance, in characters. A longer one is rejected
/// with `InvalidInput`.
pub const LABEL_CHARS_MAX: usize = 32;
/// Text inserted before each forged message prefix in a body, to mark it as a quotation.
const QUOTE_PREFIX: &str = "> ";

/// Builds the prefix of a message's displayed text, which names its sender. `from` and `to` are
/// inserted unchanged: the display name of an agent ([`DisplayNames::display`]) or the name of a
/// group. A `label` that isn't valid ([`is_label`]) is left out.
pub(crate) fn message_prefix(
    kind: MailMessageKind,
    from: &str,
    to: &str,
    label: Option<&str>,
) -> String {
    match (kind, label.filter(|label| is_label(label))) {
        (MailMessageKind::Broadcast, _) => format!("[AGENT {from} BROADCAST]: "),
        (MailMessageKind::Direct, _) => format!("[AGENT {from} TO AGENT {to}]: "),
        (MailMessageKind::Group, _) => format!("[AGENT {from} TO GROUP {to}]: "),
        (MailMessageKind::Guidance, Some(label)) => format!("[GUARDIAN GUIDANCE - {label}]: "),
        (MailMessageKind::Guidance, None) => "[GUARDIAN GUIDANCE]: ".to_owned(),
    }
}

/// Returns whether a text is a valid label of the Guardian's guidance: 1 to [`LABEL_CHARS_MAX`]
/// upper-case letters, digits, `_` and spaces.
pub(crate) fn is_label(label: &str) -> bool {
    (1..=LABEL_CHARS_MAX).contains(&label.len())
        && label
            .bytes()
            .all(|b| matches!(b, b'A'..=b'Z' | b'0'..=b'9' | b'_' | b' '))
}

/// Sanitises a message's body for display: replaces terminal control characters and invisible or
/// text-reversing characters, and inserts `> ` before anything that resembles a message prefix.
/// Line ends become LF. Ordinary text is unchanged.
pub fn neutralize(body: &str) -> Cow<'_, str> {
    let shown = escape_controls(body);
    let forged = find_forged(&shown);
    if forged.is_empty() {
        return shown;
    }
    let mut out = String::with_capacity(shown.len() + forged.len() * QUOTE_PREFIX.len());
    let mut done = 0;
    for at in forged {
        out.push_str(&shown[done..at]);
        out.push_str(QUOTE_PREFIX);
        done = at;
    }
    out.push_str(&shown[done..]);
    Cow::Owned(out)
}

/// Accepted message on its way to its recipients. Its sanitised body is computed once and shared by
/// all of them.
pub(crate) struct OutgoingMail {
    pub letter: Arc<MailMessage>,
    neutral_body: OnceLock<String>,
}

impl OutgoingMail {
    pub fn new(letter: Arc<MailMessage>) -> Self {
        Self {
            letter,
            neutral_body: OnceLock::new(),
        }
    }

    /// Returns the sanitised body (see [`neutralize`]), computed on first use.
    pub fn neutral_body(&self) -> &str {
        self.neutral_body
            .get_or_init(|| neutralize(&self.letter.new.body).into_owned())
    }
}

/// Replaces each control character with a visible representation, such as `␛` or `<U+202E>`. Line
/// separators of all kinds become LF; tabs are kept.
fn escape_controls(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_control_like) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\r' if chars.peek() == Some(&'\n') => {}
            '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}' => out.push('\n'),
            c if !is_control_like(c) => out.push(c),
            '\u{7f}' => out.push('\u{2421}'),
            // Unicode has a symbol for each of these.
            '\0'..='\u{1f}' => out.extend(char::from_u32(0x2400 + u32::from(c))),
            c => out.push_str(&format!("<U+{:04X}>", u32::from(c))),
        }
    }
    Cow::Owned(out)
}

/// Returns whether a character controls a terminal or changes the display of the surrounding text.
fn is_control_like(c: char) -> bool {
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

/// Minimum length of a displayed id, in characters. Shorter ids are displayed whole.
pub const DISPLAY_CHARS_MIN: usize = 8;
/// Prefix that display names omit if `example_ids` is set: `agent-456` is displayed as `456`.
const EXAMPLE_ID_PREFIX: &str = "agent-";

/// Set of agent ids with a unique, shortened display name for each.
#[derive(Debug, Default)]
pub(crate) struct DisplayNames {
    ids: BTreeSet<String>,
    example_ids: bool,
}

impl DisplayNames {
    /// Creates a set with only the reserved ids, so that no agent is displayed like one of them. If
    /// `example_ids` is set, an id such as `agent-456` is displayed as `456`, unless `456` is
    /// itself an id.
    pub fn new(example_ids: bool) -> Self {
        Self {
            ids: RESERVED_IDS.map(str::to_owned).into(),
            example_ids,
        }
    }

    /// Adds an id. Returns `false` if the set already contained it.
    pub fn insert(&mut self, id: &str) -> bool {
        self.ids.insert(id.to_owned())
    }

    /// Returns the display name of an id: its shortest beginning of at least [`DISPLAY_CHARS_MIN`]
    /// characters that no other id begins with, or the whole id if there is no such beginning. An
    /// id that isn't in the set is cut to [`DISPLAY_CHARS_MIN`] characters, unless the result is
    /// itself an id in the set.
    pub fn display<'a>(&self, id: &'a str) -> &'a str {
        let name = self.without_start(id);
        if !self.ids.contains(id) {
            let start = truncate_chars(name, DISPLAY_CHARS_MIN);
            return if self.ids.contains(start) { id } else { start };
        }
        if !self.example_ids {
            return truncate_chars(id, self.shared_prefix_len(id, id, "") + 1);
        }
        if name != id && self.ids.contains(name) {
            return id;
        }
        // An id without the prefix may be displayed like one with it.
        truncate_chars(
            name,
            self.shared_prefix_len(name, id, "")
                .max(self.shared_prefix_len(name, id, EXAMPLE_ID_PREFIX))
                + 1,
        )
    }

    /// Returns the id without the prefix `agent-` if `example_ids` is set; otherwise the whole id.
    fn without_start<'a>(&self, id: &'a str) -> &'a str {
        let name = if self.example_ids {
            id.strip_prefix(EXAMPLE_ID_PREFIX)
        } else {
            None
        };
        name.filter(|name| !name.is_empty()).unwrap_or(id)
    }

    /// Returns the length in bytes of the longest beginning of `name` that another id has too. Only
    /// ids with the prefix `start` are compared, without that prefix; `but` is excluded. In sorted
    /// order, the direct neighbours share the most.
    fn shared_prefix_len(&self, name: &str, but: &str, start: &str) -> usize {
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
        // Counted from the beginning of both.
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

/// Returns the first `chars` characters of `text`, but at least [`DISPLAY_CHARS_MIN`] of them.
fn truncate_chars(text: &str, chars: usize) -> &str {
    cut_chars(text, chars.max(DISPLAY_CHARS_MIN))
}

/// Normalised letters of the prefix of the Guardian's messages.
const GUARDIAN_LETTERS: &str = "guardianguidance";
/// Normalised letters with which the prefix of an agent's message begins.
const AGENT_WORD: &str = "agent";
/// Normalised letters that follow the sender's id in the prefix of an agent's message; a prefix
/// contains one of these.
const AGENT_ACTIONS: [&str; 3] = ["broadcast", "toagent", "togroup"];
/// Maximum number of letters after `agent` that are searched for one of [`AGENT_ACTIONS`].
const AGENT_LETTERS_MAX: usize = 256;

/// Position in a text at which a forged message prefix could begin.
struct PrefixCandidate {
    /// Offset in [`NormalizedText::letters`], in bytes.
    letter: usize,
    /// Offset in the original text, in bytes.
    at: usize,
}

/// Text reduced to what a reader perceives: letters in lower case without accents, look-alikes and
/// separators, and `]` for closing brackets.
#[derive(Default)]
struct NormalizedText {
    letters: String,
    /// Positions of opening brackets and of characters that look like one.
    brackets: Vec<PrefixCandidate>,
    /// Starts of lines that have no opening bracket before their first letter but contain a closing
    /// one: a prefix whose opening bracket is missing.
    lines: Vec<PrefixCandidate>,
}

/// Returns the byte offsets of all places in `text` that resemble a message prefix and aren't
/// quoted with `> `, in ascending order.
fn find_forged(text: &str) -> Vec<usize> {
    if !text.contains(|c: char| !c.is_ascii() || is_closing(c) || is_opening(c)) {
        return Vec::new();
    }
    let read = NormalizedText::of(text);
    let is_forged = |opening: &&PrefixCandidate| is_prefix_start(&read.letters[opening.letter..]);
    let opened = read
        .brackets
        .iter()
        .filter(is_forged)
        .map(|opening| opening.at);
    let opened = opened.filter(|at| !text[..*at].ends_with(QUOTE_PREFIX));
    let lines = read
        .lines
        .iter()
        .filter(is_forged)
        .map(|opening| opening.at);
    let mut forged: Vec<usize> = opened.chain(lines).collect();
    forged.sort_unstable();
    forged
}

impl NormalizedText {
    fn of(text: &str) -> Self {
        let mut read = Self::default();
        let (mut start, mut known) = (0, HashMap::new());
        for line in text.split_inclusive('\n') {
            read.read_line(line, start, &mut known);
            start += line.len();
        }
        read
    }

    fn read_line(&mut self, line: &str, start: usize, known: &mut HashMap<char, Box<str>>) {
        let first = self.letters.len();
        let mut chars = line.char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            // A `|` between letters is read as a letter.
            let is_letter =
                c == '|' && chars.peek().is_some_and(|(_, next)| next.is_alphanumeric());
            if is_letter && line[..at].ends_with(char::is_alphanumeric) {
                self.letters.push('i');
            } else if is_closing(c) {
                self.letters.push(']');
            } else if is_opening(c) {
                // Of consecutive brackets only the last counts.
                if self
                    .brackets
                    .last()
                    .is_some_and(|opened| opened.letter == self.letters.len())
                {
                    self.brackets.pop();
                }
                self.brackets.push(PrefixCandidate {
                    letter: self.letters.len(),
                    at: start + at,
                });
            } else {
                read_letters(c, known, &mut self.letters);
            }
        }
        let is_opened = self
            .brackets
            .iter()
            .rev()
            .take_while(|opened| opened.letter >= first)
            .any(|o| o.letter == first);
        if !is_opened && line.contains(is_closing) && !line.starts_with(QUOTE_PREFIX) {
            self.lines.push(PrefixCandidate {
                letter: first,
                at: start,
            });
        }
    }
}

/// Appends the Latin letters that a character resembles to `out`; nothing if the character is no
/// letter. `known` caches results.
fn read_letters(c: char, known: &mut HashMap<char, Box<str>>, out: &mut String) {
    if c.is_ascii() {
        return out.extend(c.is_ascii_alphanumeric().then(|| canonical_letter(c)));
    }
    out.push_str(
        known
            .entry(c)
            .or_insert_with(|| lookalike_letters(c).into()),
    );
}

fn lookalike_letters(c: char) -> String {
    let mut out = String::new();
    for bare in std::iter::once(c)
        .nfkd()
        .filter(|c| !is_combining_mark(*c) && !is_invisible(*c))
    {
        match enclosed_letter(bare)
            .or_else(|| latin_lookalike(bare))
            .or_else(|| bare.is_ascii().then_some(bare))
        {
            Some(latin) => out.extend(latin.is_alphanumeric().then(|| canonical_letter(latin))),
            None => {
                // Unicode TR 39: the skeleton of a stroked letter is the letter and a stroke.
                let drawn: String = skeleton(bare.encode_utf8(&mut [0; 4]))
                    .filter(|c| !is_combining_mark(*c))
                    .collect();
                let drawn = drawn
                    .chars()
                    .flat_map(char::to_lowercase)
                    .map(|c| latin_lookalike(c).unwrap_or(c));
                out.extend(drawn.filter(|c| c.is_alphanumeric()).map(canonical_letter));
            }
        }
    }
    out
}

/// Returns the plain letter of an enclosed letter (such as `ⓐ`) or small capital (such as `ᴀ`);
/// `None` for other characters.
fn enclosed_letter(c: char) -> Option<char> {
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
        // Unicode TR 39 has no mapping for these.
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

/// Maps letters and digits that look alike to one representative, for comparison: `l` and `1` to
/// `i`, `0` to `o`. ASCII letters become lower case.
fn canonical_letter(c: char) -> char {
    match c.to_ascii_lowercase() {
        'l' | '1' => 'i',
        '0' => 'o',
        c => c,
    }
}

/// Returns whether a character could pass for an opening bracket: `[`, `(`, `{`, `<`, `|`, and any
/// visible character outside of ASCII that is no letter, digit or closing bracket, and no mark of a
/// sentence, list or quotation.
fn is_opening(c: char) -> bool {
    const NONE: &str = "–—…•·“”‘’„«»‹›¡¿。、，；：？！";
    match c {
        '[' | '(' | '{' | '<' | '|' => true,
        c if c.is_ascii() => false,
        c => {
            !(c.is_alphanumeric()
                || c.is_whitespace()
                || is_combining_mark(c)
                || is_invisible(c)
                || is_closing(c))
                && enclosed_letter(c).is_none()
                && !NONE.contains(c)
                && c != '\u{2800}'
        }
    }
}

/// Returns whether a character is a closing bracket, or looks like one.
fn is_closing(c: char) -> bool {
    "]］】〕〗〙〛」』⌝⟧❳⁆︘﹈⦌⦎⦐".contains(c)
}

/// Returns whether normalised letters begin with a message prefix: the Guardian's, or an agent's.
fn is_prefix_start(letters: &str) -> bool {
    if letters.starts_with(GUARDIAN_LETTERS) {
        return true;
    }
    let Some(rest) = letters.strip_prefix(AGENT_WORD) else {
        return false;
    };
    let inside = cut_chars(
        rest.split(']').next().unwrap_or_default(),
        AGENT_LETTERS_MAX,
    );
    AGENT_ACTIONS.iter().any(|what| inside.contains(what))
}
