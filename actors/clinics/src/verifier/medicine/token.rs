//! Tokenizer: splits a folded text into sentences of words, numbers and signs.

use std::borrow::Cow;
use std::ops::Range;

use callboard_message::word_set;
use callboard_message::word_set::WordSet;

use crate::verifier::byte_classes::{LETTER, run_end};

use super::word_meanings::{WordInfo, flags, word_info};

/// Maximum number of digits of the number of a line in a list.
const LINE_NUMBER_DIGITS_MAX: usize = 2;
/// Maximum number of tokens of a line that consists of a unit.
const UNIT_TOKENS_MAX: usize = 8;

/// Token of a text about medicines.
#[derive(Debug, Clone, Copy)]
pub(super) struct Token<'t> {
    /// Text of the token, in folded form.
    pub text: &'t str,
    /// Whether neither white space nor the start of the text precedes it.
    pub is_glued: bool,
    kind: Kind,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    /// Word of letters only, with its meanings.
    Word(Option<&'static WordInfo>),
    /// Number in digits.
    Number(f64),
    /// Any other character, except white space and the end of a sentence.
    Sign(char),
}

const NO_MEANING: &WordInfo = &WordInfo {
    number: None,
    unit: None,
    period: None,
    schedule: None,
    times: 0,
    route: None,
    flags: 0,
};

impl<'t> Token<'t> {
    /// Creates the token of a text that is one word.
    pub fn of_word(text: &'t str) -> Self {
        Self {
            text,
            is_glued: false,
            kind: Kind::Word(word_info(text)),
        }
    }

    pub fn word(&self) -> Option<&'t str> {
        matches!(self.kind, Kind::Word(_)).then_some(self.text)
    }

    pub fn is_word<const SLOTS: usize>(&self, words: &WordSet<SLOTS>) -> bool {
        matches!(self.kind, Kind::Word(_)) && words.contains(self.text)
    }

    pub fn number(&self) -> Option<f64> {
        match self.kind {
            Kind::Number(value) => Some(value),
            _ => None,
        }
    }

    pub fn sign(&self) -> Option<char> {
        match self.kind {
            Kind::Sign(sign) => Some(sign),
            _ => None,
        }
    }

    pub fn is_sign(&self, sign: char) -> bool {
        matches!(self.kind, Kind::Sign(s) if s == sign)
    }

    /// Returns the meanings of a word; none for other tokens.
    pub fn info(&self) -> &'static WordInfo {
        match self.kind {
            Kind::Word(Some(info)) => info,
            _ => NO_MEANING,
        }
    }

    pub fn is(&self, flags: u32) -> bool {
        self.info().is(flags)
    }
}

/// Sentence, as a range of tokens.
#[derive(Debug, Clone)]
pub(super) struct Sentence {
    pub tokens: Range<usize>,
    /// Whether it begins a line.
    pub begins_line: bool,
}

/// Text in tokens.
///
/// A sentence ends at a line break, at a semicolon, or at `.`, `!` or `?` before white space or the
/// end. A dotted abbreviation such as `b.i.d.` is one word, and its full stops end no sentence. A
/// line that ends with a number continues with a unit on the next line.
pub(super) struct Text<'t> {
    pub tokens: Vec<Token<'t>>,
    pub sentences: Vec<Sentence>,
    /// Words that only Portuguese has, less those that only English has.
    pub portuguese: i32,
}

impl<'t> Text<'t> {
    /// Splits a text in folded form, without dots of abbreviations ([`join_dotted`]). Ambiguous
    /// numbers such as `1.500` are read as in English until [`Self::set_decimal_comma`].
    pub fn read(folded: &'t str) -> Self {
        let mut reader = Reader {
            source: folded,
            at: 0,
            text: Text {
                tokens: Vec::with_capacity(folded.len() / 4),
                sentences: Vec::new(),
                portuguese: 0,
            },
            start: 0,
            begins_line: true,
        };
        reader.run();
        let mut text = reader.text;
        text.join_units();
        text
    }

    /// Reads ambiguous numbers again: `1.500` as 1500 if `decimal_comma` is set, else as 1.5.
    pub fn set_decimal_comma(&mut self, decimal_comma: bool) {
        for token in &mut self.tokens {
            if let Kind::Number(value) = &mut token.kind {
                *value = parse_digits(token.text, decimal_comma);
            }
        }
    }

    /// Joins a line that ends with a number to the next one if that consists of a unit, with or
    /// without a label.
    fn join_units(&mut self) {
        let mut kept = 0_usize;
        for n in 0..self.sentences.len() {
            let sentence = self.sentences[n].clone();
            match kept.checked_sub(1) {
                Some(last)
                    if sentence.begins_line
                        && self.is_unit(&sentence)
                        && self.ends_with_number(&self.sentences[last]) =>
                {
                    self.sentences[last].tokens.end = sentence.tokens.end;
                }
                _ => {
                    self.sentences[kept] = sentence;
                    kept += 1;
                }
            }
        }
        self.sentences.truncate(kept);
    }

    /// Returns whether a line has nothing but a unit or its label.
    fn is_unit(&self, line: &Sentence) -> bool {
        let tokens = &self.tokens[line.tokens.clone()];
        let is_part = |t: &Token<'_>| {
            t.sign().is_some() || t.info().unit.is_some() || t.info().period.is_some()
        };
        let first = tokens.iter().find(|t| !t.is_sign('-') && !t.is_sign('*'));
        tokens.len() <= UNIT_TOKENS_MAX
            && tokens.iter().all(is_part)
            && first.is_some_and(|t| {
                t.is_sign('%') || t.is(flags::UNIT_LABEL) || t.info().unit.is_some()
            })
    }

    /// Returns whether a line ends with a number, or with a number and the label of a unit.
    fn ends_with_number(&self, line: &Sentence) -> bool {
        let tokens = &self.tokens[line.tokens.clone()];
        match tokens {
            [.., last] if last.number().is_some() => true,
            [.., number, label] => number.number().is_some() && label.is(flags::UNIT_LABEL),
            _ => false,
        }
    }
}

struct Reader<'t> {
    source: &'t str,
    at: usize,
    text: Text<'t>,
    /// Index of the first token of the sentence.
    start: usize,
    begins_line: bool,
}

impl<'t> Reader<'t> {
    fn run(&mut self) {
        let mut is_glued = false;
        while let Some(first) = self.source.as_bytes().get(self.at) {
            let start = self.at;
            // The usual cases, in the same way as below but without decoding a character.
            if first.is_ascii_lowercase() {
                self.at += 1;
                self.read_word(start, is_glued);
                is_glued = true;
                continue;
            }
            if *first == b' ' {
                self.at += 1;
                is_glued = false;
                continue;
            }
            let Some(c) = self.peek() else { break };
            self.at += c.len_utf8();
            match c {
                '\n' => self.end_line(),
                ';' => self.end_sentence(false),
                '.' if self.is_split_unit() => {}
                '.' | '!' | '?' if self.peek().is_none_or(char::is_whitespace) => {
                    self.end_sentence(false);
                }
                c if c.is_whitespace() => {}
                _ if self.starts_number(c, start) => self.read_number(start, is_glued),
                c if c.is_alphabetic() => self.read_word(start, is_glued),
                c => self.push(start, is_glued, Kind::Sign(c)),
            }
            is_glued = !c.is_whitespace();
        }
        self.end_sentence(false);
    }

    /// Returns whether the last tokens are a number and one letter, so that a full stop may stand
    /// inside of a unit: "500 m. g".
    fn is_split_unit(&self) -> bool {
        matches!(&self.text.tokens[self.start..], [.., number, letter]
            if number.number().is_some() && letter.text.len() == 1 && letter.info().unit.is_none())
    }

    fn peek(&self) -> Option<char> {
        self.source[self.at..].chars().next()
    }

    /// Returns whether a number starts with `c`, the character before the current place: a digit,
    /// or a full stop or comma before one and not after a letter or digit.
    fn starts_number(&self, c: char, start: usize) -> bool {
        let after_word = || self.source[..start].ends_with(char::is_alphanumeric);
        c.is_ascii_digit()
            || (c == '.' && self.peek().is_some_and(|d| d.is_ascii_digit()) && !after_word())
    }

    fn read_number(&mut self, start: usize, is_glued: bool) {
        let bytes = self.source.as_bytes();
        let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
        while is_digit(self.at)
            || (matches!(bytes.get(self.at), Some(b'.' | b',' | b'\'' | b'_'))
                && is_digit(self.at + 1))
        {
            self.at += 1;
        }
        let digits = &self.source[start..self.at];
        if self.is_line_number(digits) {
            self.at += 1;
            return;
        }
        self.push(start, is_glued, Kind::Number(parse_digits(digits, false)));
    }

    /// Returns whether the digits before the current place number a line of a list: "1. Losartan".
    fn is_line_number(&self, digits: &str) -> bool {
        let rest = &self.source.as_bytes()[self.at..];
        self.begins_line
            && self.text.tokens.len() == self.start
            && digits.len() <= LINE_NUMBER_DIGITS_MAX
            && matches!(rest, [b'.' | b')', b' ', ..])
    }

    fn read_word(&mut self, start: usize, is_glued: bool) {
        let bytes = self.source.as_bytes();
        let end = run_end(bytes, self.at, LETTER);
        self.at = match bytes.get(end) {
            Some(next) if !next.is_ascii() => {
                let more = self.source[end..].find(|c: char| !c.is_alphabetic());
                more.map_or(bytes.len(), |more| end + more)
            }
            _ => end,
        };
        let word = &self.source[start..self.at];
        let info = word_info(word);
        self.text.portuguese += language_of(word, info);
        self.push(start, is_glued, Kind::Word(info));
    }

    fn push(&mut self, start: usize, is_glued: bool, kind: Kind) {
        self.text.tokens.push(Token {
            text: &self.source[start..self.at],
            is_glued,
            kind,
        });
    }

    fn end_line(&mut self) {
        self.end_sentence(true);
        self.begins_line = true;
    }

    fn end_sentence(&mut self, ends_line: bool) {
        let end = self.text.tokens.len();
        if end == self.start {
            return;
        }
        self.text.sentences.push(Sentence {
            tokens: self.start..end,
            begins_line: self.begins_line,
        });
        self.start = end;
        self.begins_line = ends_line;
    }
}

/// Returns 1 for a word of Portuguese only, -1 for one of English only, else 0.
fn language_of(word: &str, info: Option<&WordInfo>) -> i32 {
    match info {
        Some(info) if info.is(flags::PORTUGUESE) && !info.is(flags::ENGLISH) => 1,
        Some(info) if info.is(flags::ENGLISH) && !info.is(flags::PORTUGUESE) => -1,
        // The last letters are those of these endings.
        _ if word.len() > 6
            && word.ends_with(['o', 's', 'e'])
            && word_set!("cao coes mente ario").ends(word, 0) =>
        {
            1
        }
        _ => 0,
    }
}

/// Removes the full stops of dotted abbreviations of two or three letters, also with a space
/// between them, so that `b.i.d.` is one word. The last full stop of one thus ends no sentence.
pub(super) fn join_dotted(folded: &str) -> Cow<'_, str> {
    let bytes = folded.as_bytes();
    if !folded.contains('.') {
        return Cow::Borrowed(folded);
    }
    let mut out = String::new();
    let mut copied = 0;
    let mut at = 0;
    while at < bytes.len() {
        let starts_word = bytes.get(at + 1) == Some(&b'.')
            && (at == 0 || !bytes[at - 1].is_ascii_alphanumeric() && bytes[at - 1].is_ascii());
        match starts_word.then(|| dotted_letters(&bytes[at..])).flatten() {
            Some((letters, taken)) => {
                out.push_str(&folded[copied..at]);
                out.push_str(&letters);
                out.push(' ');
                at += taken;
                copied = at;
            }
            None => at += 1,
        }
    }
    if copied == 0 {
        return Cow::Borrowed(folded);
    }
    out.push_str(&folded[copied..]);
    Cow::Owned(out)
}

/// Returns the letters of a dotted abbreviation at the start of `bytes`, and its number of bytes;
/// `None` if there is none.
fn dotted_letters(bytes: &[u8]) -> Option<(String, usize)> {
    let mut letters = String::new();
    let mut at = 0;
    while letters.len() < 3 {
        let from = at + usize::from(!letters.is_empty() && bytes.get(at) == Some(&b' '));
        match (bytes.get(from), bytes.get(from + 1)) {
            (Some(letter), Some(b'.')) if letter.is_ascii_alphabetic() => {
                letters.push(char::from(*letter));
                at = from + 2;
            }
            _ => break,
        }
    }
    (letters.len() > 1).then_some((letters, at))
}

/// Parses a number in digits with separators. Of two different separators, the last is the decimal
/// one; several equal ones separate thousands. A lone separator between one to three digits, the
/// first not 0, and three digits is ambiguous, and `decimal_comma` decides: `1,500` is 1.5 in a
/// Portuguese text and 1500 in an English one; `1.500` is the reverse.
fn parse_digits(digits: &str, decimal_comma: bool) -> f64 {
    let separators = || digits.chars().filter(|c| matches!(c, '.' | ','));
    let last = separators().next_back();
    let is_lone = separators().count() == 1;
    let is_mixed = separators().any(|c| Some(c) != last);
    let decimal =
        last.filter(|last| is_mixed || is_lone && separates_decimals(digits, *last, decimal_comma));
    let (mut value, mut scale, mut in_fraction) = (0.0, 1.0, false);
    for c in digits.chars() {
        match c.to_digit(10) {
            Some(digit) => {
                value = value * 10.0 + f64::from(digit);
                scale *= if in_fraction { 10.0 } else { 1.0 };
            }
            None => in_fraction |= Some(c) == decimal,
        }
    }
    value / scale
}

/// Returns whether `separator`, the only separator in `digits`, separates decimals and not
/// thousands.
fn separates_decimals(digits: &str, separator: char, decimal_comma: bool) -> bool {
    let Some((whole, part)) = digits.split_once(separator) else {
        return false;
    };
    let thousands_shape =
        part.len() == 3 && (1..=3).contains(&whole.len()) && !whole.starts_with('0');
    !thousands_shape || (separator == ',') == decimal_comma
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: sentences end at sentence ends, not inside numbers or `b.i.d.`. Method: count them.
    #[test]
    fn sentence_ends() {
        for (text, expect) in [
            ("amiodarone 200 mg b.i.d. then stop. next", 2),
            ("0.5 mg; 1.5 mg\n.25 mg", 3),
            ("dose\n500\nmg\nonce daily", 3),
            ("dose\n25\nunit\nmcg/h\nonce daily", 3),
            ("dose: 25\n- unit: mcg/h\nonce daily", 2),
            ("1. losartan\n2. 50\n3. mg", 2),
            ("", 0),
        ] {
            let joined = join_dotted(text);
            assert_eq!(Text::read(&joined).sentences.len(), expect, "{text}");
        }
    }

    /// Goal: a unit without a space is split from its number. Method: tokens of "200mg".
    #[test]
    fn glued_units() {
        let text = Text::read("200mg");
        assert_eq!(text.tokens[0].number(), Some(200.0));
        assert_eq!(text.tokens[1].word(), Some("mg"));
    }

    /// Goal: dots of abbreviations go, others stay. Method: a table.
    #[test]
    fn dotted() {
        for (text, expect) in [
            ("b.i.d. now", "bid  now"),
            ("p.o. x", "po  x"),
            ("vitamin d. ok.", "vitamin d. ok."),
            ("é.b.c.", "é.bc "),
        ] {
            assert_eq!(join_dotted(text), expect);
        }
    }

    /// Goal: a separator is read by the text's language. Method: a table.
    #[test]
    fn separators() {
        for (digits, decimal_comma, expect) in [
            ("1,500", false, 1500.0),
            ("1,500", true, 1.5),
            ("1.500", false, 1.5),
            ("1.500", true, 1500.0),
            ("0.125", true, 0.125),
            ("0,125", false, 0.125),
            ("2,5", false, 2.5),
            ("1.234,5", false, 1234.5),
            ("1,234.5", true, 1234.5),
            ("1.200.000", false, 1_200_000.0),
            ("1'500", false, 1500.0),
        ] {
            assert_eq!(
                parse_digits(digits, decimal_comma),
                expect,
                "{digits} {decimal_comma}"
            );
        }
    }
}
