//! Text without disguises, with the place of each byte in the original text, and its tokens.

use std::ops::Range;

use percent_encoding::percent_decode;

use super::class::mark_len;
use super::lexicon::{Meaning, meaning_of};
use crate::verifier::byte_classes::{DIGIT, LETTER, run_end};
use crate::verifier::push_undisguised;

/// Maximum nesting of escapes, such as `%2541`, that are undone.
const ESCAPES_DEPTH_MAX: usize = 3;

/// Text with look-alike letters as ASCII, and without accents and invisible characters.
pub(super) struct IdentityReading {
    /// Text in upper and lower case.
    pub cased: String,
    /// Text in lower case. Its characters are at the same bytes as those of `cased`.
    pub lower: String,
    /// Byte in the original text of the character that each byte came from, and at the end the
    /// original's length; `None` if the text is unchanged.
    places: Option<Vec<u32>>,
    /// Whether letters of another script were spelled in Latin ones: names are compared by sound.
    pub is_transliterated: bool,
}

impl IdentityReading {
    pub fn new(text: &str) -> Self {
        Self::placed(text, None)
    }

    /// Creates a reading of `text`, whose bytes come from the original at `places`.
    fn placed(text: &str, places: Option<Vec<u32>>) -> Self {
        if text.is_ascii() {
            return Self {
                cased: text.to_owned(),
                lower: text.to_ascii_lowercase(),
                places,
                is_transliterated: false,
            };
        }
        let mut cased = String::with_capacity(text.len());
        let mut made = Vec::with_capacity(text.len() + 1);
        let origin = |at: usize| match &places {
            Some(places) => places[at],
            None => at as u32,
        };
        for (at, c) in text.char_indices() {
            push_undisguised(digit_of(c).unwrap_or(c), &mut cased);
            made.resize(cased.len(), origin(at));
        }
        made.push(origin(text.len()));
        let mut lower = String::with_capacity(cased.len());
        for c in cased.chars() {
            let mut small = c.to_lowercase();
            match (small.next(), small.next()) {
                (Some(l), None) if l.len_utf8() == c.len_utf8() => lower.push(l),
                _ => lower.push(c),
            }
        }
        Self {
            cased,
            lower,
            places: Some(made),
            is_transliterated: false,
        }
    }

    /// Returns the place in the original text of a range of this one.
    pub fn original(&self, range: Range<usize>) -> Range<usize> {
        match &self.places {
            None => range,
            Some(places) => {
                let start = places[range.start] as usize;
                // The end is the beginning of the next character.
                let last = places[range.end - 1];
                let next = places.partition_point(|place| *place <= last);
                start
                    ..places
                        .get(next)
                        .or(places.last())
                        .map_or(start, |end| *end as usize)
            }
        }
    }

    /// Returns the readings of a text: as it is, without escapes such as `&aacute;`, `\u0041` and
    /// `%41` if it has any, and in Latin letters if it has Cyrillic or Greek ones.
    pub fn all(text: &str) -> Vec<Self> {
        let mut all = vec![Self::new(text)];
        let mut undone: Option<(String, Vec<u32>)> = None;
        for _ in 0..ESCAPES_DEPTH_MAX {
            let current = undone.as_ref().map_or(text, |(text, _)| text);
            let Some((next, mut places)) = unescaped(current) else {
                break;
            };
            if let Some((_, outer)) = &undone {
                places.iter_mut().for_each(|p| *p = outer[*p as usize]);
            }
            undone = Some((next, places));
        }
        if let Some((text, places)) = undone {
            all.push(Self::placed(&text, Some(places)));
        }
        all.extend(transliterated(text));
        all
    }
}

/// Returns the ASCII digit for a decimal digit of another script.
fn digit_of(c: char) -> Option<char> {
    let zero = match c {
        '\u{0660}'..='\u{0669}' => '\u{0660}',
        '\u{06f0}'..='\u{06f9}' => '\u{06f0}',
        '\u{0966}'..='\u{096f}' => '\u{0966}',
        '\u{09e6}'..='\u{09ef}' => '\u{09e6}',
        '\u{0e50}'..='\u{0e59}' => '\u{0e50}',
        _ => return None,
    };
    char::from_digit(c as u32 - zero as u32, 10)
}

/// Returns a text in which HTML entities, backslash escapes and percent-encoding are replaced by
/// their characters, and the place of each of its bytes; `None` if it has none.
fn unescaped(text: &str) -> Option<(String, Vec<u32>)> {
    let bytes = text.as_bytes();
    memchr::memchr3(b'&', b'\\', b'%', bytes)?;
    let (mut out, mut places) = (String::with_capacity(text.len()), Vec::new());
    let (mut at, mut changed) = (0, false);
    while at < text.len() {
        let rest = &text[at..];
        let escape = match bytes[at] {
            b'&' => html_entity(rest),
            b'\\' => backslash_escape(rest),
            b'%' => percent_run(rest),
            _ => None,
        };
        let len = match escape {
            Some((len, part)) => {
                out.push_str(&part);
                changed = true;
                len
            }
            None => {
                let c = rest.chars().next()?;
                out.push(c);
                c.len_utf8()
            }
        };
        places.resize(out.len(), at as u32);
        at += len;
    }
    places.push(text.len() as u32);
    changed.then_some((out, places))
}

/// Maximum length of an HTML entity, in bytes.
const ENTITY_BYTES_MAX: usize = 12;

fn html_entity(rest: &str) -> Option<(usize, String)> {
    let window = &rest.as_bytes()[1..rest.len().min(ENTITY_BYTES_MAX)];
    let len = window.iter().position(|b| *b == b';')?;
    let name = rest.get(1..=len)?;
    let c = if let Some(hex) = name.strip_prefix("#x").or(name.strip_prefix("#X")) {
        char::from_u32(u32::from_str_radix(hex, 16).ok()?)?
    } else if let Some(decimal) = name.strip_prefix('#') {
        char::from_u32(decimal.parse().ok()?)?
    } else {
        match name {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "apos" => '\'',
            "nbsp" => ' ',
            "commat" => '@',
            "period" => '.',
            "ccedil" | "Ccedil" => 'c',
            // Letters with accents: `&aacute;` is an `a` once accents are removed.
            _ => {
                let (letter, accent) = name.split_at_checked(1)?;
                let accents = "acute grave circ tilde uml ring cedil caron slash";
                accents
                    .split(' ')
                    .any(|known| known == accent)
                    .then(|| letter.chars().next())??
            }
        }
    };
    Some((len + 2, c.to_string()))
}

fn backslash_escape(rest: &str) -> Option<(usize, String)> {
    let kind = *rest.as_bytes().get(1)?;
    let hex =
        |from: usize, digits: usize| u32::from_str_radix(rest.get(from..from + digits)?, 16).ok();
    match kind {
        b'u' if rest.as_bytes().get(2) == Some(&b'{') => {
            let close = rest.as_bytes().iter().take(12).position(|b| *b == b'}')?;
            let c = char::from_u32(u32::from_str_radix(rest.get(3..close)?, 16).ok()?)?;
            Some((close + 1, c.to_string()))
        }
        b'u' => Some((6, char::from_u32(hex(2, 4)?)?.to_string())),
        b'U' => Some((10, char::from_u32(hex(2, 8)?)?.to_string())),
        b'x' => Some((4, char::from_u32(hex(2, 2)?)?.to_string())),
        b'n' | b't' | b'r' => Some((2, " ".to_owned())),
        _ => None,
    }
}

/// Decodes a run of percent-encoded bytes, so that characters of several bytes stay whole.
fn percent_run(rest: &str) -> Option<(usize, String)> {
    let bytes = rest.as_bytes();
    let coded = bytes
        .chunks(3)
        .take_while(|c| c.len() == 3 && c[0] == b'%' && c[1..].iter().all(u8::is_ascii_hexdigit))
        .count();
    if coded == 0 {
        return None;
    }
    let decoded: Vec<u8> = percent_decode(&bytes[..coded * 3]).collect();
    let text = String::from_utf8_lossy(&decoded).into_owned();
    Some((coded * 3, text))
}

/// Latin spelling of the Cyrillic letters from `а` to `я`, and of the Greek ones from `α` to `ω`.
const CYRILLIC: [&str; 32] = [
    "a", "b", "v", "g", "d", "e", "zh", "z", "i", "i", "k", "l", "m", "n", "o", "p", "r", "s", "t",
    "u", "f", "h", "ts", "ch", "sh", "sh", "", "y", "", "e", "iu", "a",
];
const GREEK: [&str; 25] = [
    "a", "v", "g", "d", "e", "z", "i", "th", "i", "k", "l", "m", "n", "x", "o", "p", "r", "s", "s",
    "t", "y", "f", "ch", "ps", "o",
];

/// Returns the text with Cyrillic and Greek letters in Latin spelling; `None` if it has none.
fn transliterated(text: &str) -> Option<IdentityReading> {
    let foreign = |c: char| matches!(c, '\u{0391}'..='\u{03c9}' | '\u{0410}'..='\u{044f}');
    if text.is_ascii() || !text.chars().any(foreign) {
        return None;
    }
    let (mut out, mut places) = (String::with_capacity(text.len()), Vec::new());
    for (at, c) in text.char_indices() {
        let small = c.to_lowercase().next().unwrap_or(c);
        let spelling = match small {
            '\u{0430}'..='\u{044f}' => CYRILLIC[small as usize - 0x430],
            '\u{03b1}'..='\u{03c9}' => GREEK[small as usize - 0x3b1],
            _ => {
                out.push(c);
                places.resize(out.len(), at as u32);
                continue;
            }
        };
        let mut letters = spelling.chars();
        if let Some(first) = letters.next() {
            let upper = c.is_uppercase();
            out.push(if upper {
                first.to_ascii_uppercase()
            } else {
                first
            });
            out.push_str(letters.as_str());
        }
        places.resize(out.len(), at as u32);
    }
    places.push(text.len() as u32);
    Some(IdentityReading {
        is_transliterated: true,
        ..IdentityReading::placed(&out, Some(places))
    })
}

/// Kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// Run of letters.
    Word,
    /// Run of ASCII digits.
    Number,
    /// Any other character but white space.
    Sign,
    /// Mark in place of personal data that was cut out, such as `[name]`.
    Redacted,
}

/// Part of a reading, with the white space before it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Token {
    pub start: usize,
    pub end: usize,
    pub kind: TokenKind,
    /// Whether white space stands before it.
    pub gap: bool,
    /// Number of line breaks before it.
    pub lines: u8,
    /// Whether it is a word that begins with a capital.
    is_capital: bool,
    meaning: Meaning,
}

/// Tokens of a reading.
pub(super) struct Tokens<'a> {
    pub reading: &'a IdentityReading,
    list: Vec<Token>,
}

impl<'a> Tokens<'a> {
    pub fn new(reading: &'a IdentityReading) -> Self {
        let text = &reading.cased;
        let bytes = text.as_bytes();
        let mut list: Vec<Token> = Vec::with_capacity(text.len() / 4);
        let (mut at, mut gap, mut lines) = (0, false, 0_u8);
        while at < bytes.len() {
            let b = bytes[at];
            if b == b'\n' {
                lines = lines.saturating_add(1);
            }
            if b.is_ascii_whitespace() || b.is_ascii_control() {
                gap = true;
                at += 1;
                continue;
            }
            let (kind, len) = token_at(text, at);
            if kind == TokenKind::Sign && text[at..].starts_with('\u{a0}') {
                gap = true;
                at += len;
                continue;
            }
            list.push(Token {
                start: at,
                end: at + len,
                kind,
                gap,
                lines,
                is_capital: match kind {
                    TokenKind::Word if b.is_ascii() => b.is_ascii_uppercase(),
                    TokenKind::Word => text[at..].starts_with(char::is_uppercase),
                    _ => false,
                },
                meaning: match kind {
                    TokenKind::Word => meaning_of(&reading.lower[at..at + len]),
                    _ => 0,
                },
            });
            (at, gap, lines) = (at + len, false, 0);
        }
        Self { reading, list }
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn get(&self, at: usize) -> Option<&Token> {
        self.list.get(at)
    }

    pub fn kind(&self, at: usize) -> Option<TokenKind> {
        self.list.get(at).map(|t| t.kind)
    }

    /// Returns whether the token is a word with one of the meanings.
    pub fn is(&self, at: usize, meaning: Meaning) -> bool {
        self.list.get(at).is_some_and(|t| t.meaning & meaning != 0)
    }

    /// Returns the token in lower case; empty after the end.
    pub fn lower(&self, at: usize) -> &'a str {
        self.list
            .get(at)
            .map_or("", |t| &self.reading.lower[t.start..t.end])
    }

    pub fn cased(&self, at: usize) -> &'a str {
        self.list
            .get(at)
            .map_or("", |t| &self.reading.cased[t.start..t.end])
    }

    /// Returns the sign at an index, if the token there is one.
    pub fn sign(&self, at: usize) -> Option<u8> {
        let token = self.list.get(at)?;
        (token.kind == TokenKind::Sign).then(|| self.reading.cased.as_bytes()[token.start])
    }

    pub fn is_word(&self, at: usize) -> bool {
        self.kind(at) == Some(TokenKind::Word)
    }

    pub fn is_number(&self, at: usize) -> bool {
        self.kind(at) == Some(TokenKind::Number)
    }

    pub fn is_capital(&self, at: usize) -> bool {
        self.list.get(at).is_some_and(|t| t.is_capital)
    }

    /// Returns whether white space stands before the token; `true` after the end.
    pub fn gap(&self, at: usize) -> bool {
        self.list.get(at).is_none_or(|t| t.gap)
    }

    pub fn lines(&self, at: usize) -> u8 {
        self.list.get(at).map_or(0, |t| t.lines)
    }

    /// Returns whether the token begins the text, a sentence, or a line, or stands behind a colon
    /// or a quotation mark.
    pub fn opens(&self, at: usize) -> bool {
        let Some(before) = at.checked_sub(1) else {
            return true;
        };
        match self.sign(before) {
            _ if self.lines(at) > 0 => true,
            // The full stop of an initial or a short title doesn't end a sentence.
            Some(b'.') => before == 0 || self.lower(before - 1).len() > 2,
            Some(sign) => b"!?\":;>*([".contains(&sign),
            None => false,
        }
    }

    /// Returns the index of the first token that ends at a byte or behind it.
    pub fn ending_at(&self, byte: usize) -> usize {
        self.list.partition_point(|token| token.end < byte)
    }

    /// Returns the bytes from the first to the last of two tokens.
    pub fn range(&self, first: usize, last: usize) -> Range<usize> {
        self.list[first].start..self.list[last].end
    }
}

fn token_at(text: &str, at: usize) -> (TokenKind, usize) {
    let bytes = text.as_bytes();
    let run = |classes| run_end(bytes, at, classes) - at;
    match bytes[at] {
        b if b.is_ascii_digit() => (TokenKind::Number, run(DIGIT)),
        b if b.is_ascii_alphabetic() => {
            let ascii = run(LETTER);
            let more = match bytes.get(at + ascii) {
                Some(b) if !b.is_ascii() => letters_len(&text[at + ascii..]),
                _ => 0,
            };
            (TokenKind::Word, ascii + more)
        }
        b if b.is_ascii() => match mark_len(&text[at..]) {
            0 => (TokenKind::Sign, 1),
            len => (TokenKind::Redacted, len),
        },
        _ => match letters_len(&text[at..]) {
            0 => (
                TokenKind::Sign,
                text[at..].chars().next().map_or(1, char::len_utf8),
            ),
            len => (TokenKind::Word, len),
        },
    }
}

fn letters_len(text: &str) -> usize {
    text.char_indices()
        .find(|(_, c)| !c.is_alphabetic())
        .map_or(text.len(), |(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a place in a reading is found in the original. Method: the word "Maria" in disguises,
    /// between others.
    #[test]
    fn places_lead_back() {
        for disguise in [
            "Maria",
            "M\u{e1}ria",
            "Ma\u{200b}ria",
            "\u{41c}\u{430}ria",
            "M&aacute;ria",
            "M&#97;ria",
            "\\u004daria",
            "%4Daria",
            "%254Daria",
            "M%C3%A1ria",
        ] {
            let text = format!("é {disguise} ok");
            let found = IdentityReading::all(&text).into_iter().find_map(|reading| {
                let at = reading.lower.find("maria")?;
                Some(text[reading.original(at..at + 5)].to_owned())
            });
            assert_eq!(found.as_deref(), Some(disguise));
        }
    }
}
