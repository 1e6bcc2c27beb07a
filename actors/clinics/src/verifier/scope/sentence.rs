//! Splits a folded text into words and sentences.

use callboard_message::is_one_of;
use foldhash::HashMap;

use crate::verifier::byte_classes::{DIGIT, LETTER, run_end};
use crate::verifier::word_table::Key;

use super::lexicon::{
    BASE, BODY, CARE, CHANGE, COMPLAINT, Class, DENIAL, DETERMINER, GERUND, IF, LIVING, NEEDLESS,
    NUMBER, PATIENT, POLITE, REFUSE, VISIT, class_of,
};

/// Word of a text, with its classes and with what stands before it.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Token<'a> {
    pub word: &'a str,
    pub class: Class,
    /// Signs before the word: [`OPENS`], [`CELL`], [`LINE`], [`LABELLED`], [`JOINED`], [`QUOTE`],
    /// [`CLOSES`].
    pub before: u8,
}

impl Token<'_> {
    pub fn is(&self, class: Class) -> bool {
        self.class & class != 0
    }

    pub fn has(&self, sign: u8) -> bool {
        self.before & sign != 0
    }
}

/// A clause may begin at the word: it stands after a comma, colon, quotation mark or the like.
pub(super) const OPENS: u8 = 1;
/// A table cell may begin at the word: it stands after two spaces, a tab or a line break.
pub(super) const CELL: u8 = 2;
/// The word stands after a line break.
pub(super) const LINE: u8 = 4;
/// The word stands after a colon.
pub(super) const LABELLED: u8 = 8;
/// The word is joined to the one before by a hyphen.
pub(super) const JOINED: u8 = 16;

/// The word stands directly after a quotation mark.
pub(super) const QUOTE: u8 = 32;
/// A quotation mark stands between the word before and this one, with other signs behind it.
pub(super) const CLOSES: u8 = 64;

/// Range of the tokens of one sentence.
pub(super) struct Sentence {
    pub from: usize,
    pub to: usize,
    /// Sign that ends the sentence: `.`, `?`, `!` or another.
    pub end: char,
}

/// Words and sentences of a text.
#[derive(Default)]
pub(super) struct Text<'a> {
    pub tokens: Vec<Token<'a>>,
    pub sentences: Vec<Sentence>,
}

/// Classes of words that were read before.
#[derive(Default)]
pub(super) struct ClassMemo {
    /// Classes of words that their key holds as a whole; longer ones are rare.
    by_key: HashMap<Key, Class>,
    by_word: HashMap<Box<str>, Class>,
}

impl ClassMemo {
    fn class_of(&mut self, word: &str) -> Class {
        if word.len() <= Key::BYTES {
            let key = Key::new(word.as_bytes());
            return *self.by_key.entry(key).or_insert_with(|| class_of(word));
        }
        if let Some(class) = self.by_word.get(word) {
            return *class;
        }
        let class = class_of(word);
        self.by_word.insert(word.into(), class);
        class
    }
}

/// Maximum number of words of a sentence. A longer one is cut, so that judging it takes linear time.
pub(super) const SENTENCE_WORDS_MAX: usize = 400;

/// Words after which a full stop ends no sentence.
const ABBREVIATIONS: &[&str] = &[
    "dr", "dra", "drs", "sr", "sra", "mr", "mrs", "ms", "prof", "profa", "eng", "st", "vs",
    "approx", "ca", "nr", "no", "fig", "ed", "obs", "ex", "pag", "art", "av", "tel", "enf", "enfa",
    "min", "max", "aprox",
];

/// Splits a folded text. Sentences end at `.`, `!`, `?`, `;`, `|`, bullets and empty lines, except
/// for full stops of abbreviations and numbers. A single line break ends none, because a sentence
/// may be wrapped.
pub(super) fn split<'a>(folded: &'a str, classes: &mut ClassMemo) -> Text<'a> {
    let mut text = Text::default();
    let mut from = 0;
    let (mut at, mut end) = (0, 0);
    while let Some(start) = next_word(folded, at) {
        let gap = &folded[end..start];
        let stop = word_end(folded, start);
        let word = &folded[start..stop];
        let previous = text.tokens.last().map(|token| token.word);
        let (mut before, boundary) = read_gap(gap, previous, word);
        let is_full = text.tokens.len() - from >= SENTENCE_WORDS_MAX;
        if let Some(sign) = boundary.or(is_full.then_some(' ')) {
            text.close(&mut from, sign);
        }
        if text.tokens.len() == from {
            before |= OPENS;
        }
        (at, end) = (stop, stop);
        let (first, second, taken) = contraction(word, &folded[stop..]);
        text.push(first, classes.class_of(first), before);
        if !second.is_empty() {
            text.push(second, classes.class_of(second), 0);
        }
        at += taken;
        end += taken;
    }
    let sign = folded[end..].chars().find(|c| matches!(c, '?' | '!'));
    text.close(&mut from, sign.unwrap_or('.'));
    text
}

impl<'a> Text<'a> {
    fn close(&mut self, from: &mut usize, end: char) {
        let to = self.tokens.len();
        if to > *from {
            self.sentences.push(Sentence {
                from: *from,
                to,
                end,
            });
        }
        *from = to;
    }

    fn push(&mut self, word: &'a str, mut class: Class, before: u8) {
        // A patient's id, such as "card-001".
        if before & JOINED != 0
            && class & NUMBER != 0
            && word.len() >= 3
            && let Some(prefix) = self.tokens.last_mut()
        {
            prefix.class |= PATIENT;
            class |= PATIENT;
        }
        // "come off", "going on": verbs of treatment by their particle.
        if matches!(word, "off" | "on" | "up" | "down")
            && let Some(verb) = self.tokens.last_mut()
        {
            match verb.word {
                "follow" | "check" if before & JOINED != 0 => verb.class |= VISIT,
                "come" | "go" | "get" | "stay" | "carry" => verb.class |= CHANGE | BASE,
                "coming" | "going" | "getting" | "staying" => verb.class |= CHANGE | GERUND,
                _ => {}
            }
        }
        // "Waiting room", "out-of-hours line": places of care by the word before.
        if let Some(before) = self.tokens.last()
            && (word == "room" && matches!(before.word, "waiting" | "emergency" | "consulting")
                || word == "line" && matches!(before.word, "hours" | "help" | "advice" | "crisis"))
        {
            class |= CARE;
        }
        // "O seu caso", "dor no peito": neither a condition nor a denial.
        if let Some(before) = self.tokens.last() {
            if word == "caso" && before.class & DETERMINER != 0 {
                class &= !IF;
            }
            if word == "no" && before.class & (COMPLAINT | BODY) != 0 {
                class &= !DENIAL;
            }
        }
        // "Call off the scan".
        if word == "off"
            && let Some(verb) = self.tokens.last_mut()
            && verb.word == "call"
        {
            verb.class |= REFUSE | BASE;
        }
        // "De" is an imperative of "dar" only where a clause begins.
        if word == "de" && before & OPENS == 0 {
            class &= !(LIVING | POLITE);
        }
        if word == "tempo"
            && let Some(before) = self.tokens.last()
            && matches!(
                before.word,
                "perder" | "perda" | "perde" | "perca" | "percam"
            )
        {
            class |= NEEDLESS;
        }
        self.tokens.push(Token {
            word,
            class,
            before,
        });
    }
}

fn next_word(text: &str, at: usize) -> Option<usize> {
    let rest = &text.as_bytes()[at..];
    let is_gap = |b: &&u8| b.is_ascii() && !b.is_ascii_alphanumeric();
    let start = at + rest.iter().take_while(is_gap).count();
    let word = text[start..].find(char::is_alphanumeric)?;
    Some(start + word)
}

fn word_end(text: &str, start: usize) -> usize {
    let bytes = text.as_bytes();
    let end = run_end(bytes, start, LETTER | DIGIT);
    match bytes.get(end) {
        Some(next) if !next.is_ascii() => text[end..]
            .find(|c: char| !c.is_alphanumeric())
            .map_or(text.len(), |n| end + n),
        _ => end,
    }
}

/// Returns what the characters between two words mean: the signs of the next word, and the sign
/// that ends a sentence, if one does.
fn read_gap(gap: &str, previous: Option<&str>, next: &str) -> (u8, Option<char>) {
    if gap == " " {
        return (0, None);
    }
    if gap == "-" {
        return (JOINED, None);
    }
    let (mut before, mut end) = (0, None);
    let (mut lines, mut spaces) = (0, 0);
    for (n, c) in gap.char_indices() {
        match c {
            '\n' | '\r' | '\u{2028}' | '\u{2029}' | '\u{b}' | '\u{c}' => {
                lines += u32::from(c != '\r');
                before |= OPENS | CELL | LINE;
            }
            '\t' => before |= OPENS | CELL,
            ' ' => spaces += 1,
            '!' | '?' | ';' | '|' | '\u{2022}' | '\u{b7}' | '\u{25aa}' | '\u{25cf}' => {
                end = Some(if end == Some('?') { '?' } else { c });
            }
            '.' => match ends_sentence(&gap[n + 1..], previous, next) {
                true => end = end.or(Some('.')),
                false => before |= OPENS,
            },
            '-' if lines > 0 => end = end.or(Some('-')),
            '*' if lines > 0 && gap[n + 1..].starts_with(' ') => end = end.or(Some('*')),
            ':' => before |= OPENS | LABELLED,
            '\'' => {}
            '"' if n + 1 == gap.len() => before |= OPENS | QUOTE,
            '"' => before |= OPENS | CLOSES,
            _ => before |= OPENS,
        }
    }
    if spaces > 1 {
        before |= OPENS | CELL;
    }
    // "Will it heal?", she asked.
    let goes_on = match end {
        Some('?' | '!') => gap.contains("\",") || is_one_of!(next, CONTINUATIONS),
        Some('.') => gap.contains("\","),
        _ => false,
    };
    if before & CLOSES != 0 && lines == 0 && goes_on {
        end = None;
    }
    if lines > 1 {
        end = end.or(Some('\n'));
    }
    (before, end)
}

/// Words by which a sentence goes on after a quotation that ends with a sign of its own.
const CONTINUATIONS: &str = "is was asked said wrote he she they her his their ele ela wondered reads stands perguntou disse quis escreveu foi pergunta";

/// Returns whether a full stop ends a sentence. `rest` is what stands between it and the next word.
fn ends_sentence(rest: &str, previous: Option<&str>, next: &str) -> bool {
    let Some(previous) = previous else {
        return false;
    };
    if rest.is_empty() {
        // "pain.Stop", but not "2.5", "p.o." and "i.v."
        return previous.len() > 2
            && next.len() > 2
            && !previous.bytes().any(|b| b.is_ascii_digit())
            && !next.starts_with(|c: char| c.is_ascii_digit());
    }
    let is_letter = previous.len() == 1 && previous.bytes().all(|b| b.is_ascii_lowercase());
    !is_letter && !ABBREVIATIONS.contains(&previous)
}

/// Splits a contraction, such as `don't` or `youre`, into two words. Returns the words, the second
/// empty if there is none, and the length of the part after the apostrophe with it.
fn contraction<'a>(word: &'a str, rest: &str) -> (&'a str, &'static str, usize) {
    if let Some((_, first, second)) = BARE_CONTRACTIONS.iter().find(|(bare, ..)| *bare == word) {
        return (first, second, 0);
    }
    let Some(suffix) = rest.strip_prefix('\'') else {
        return (word, "", 0);
    };
    let suffix = &suffix[..word_end(suffix, 0)];
    let second = match suffix {
        "t" => {
            let first = match word {
                "won" => "will",
                "can" => "can",
                "shan" => "shall",
                _ => word.strip_suffix('n').unwrap_or(word),
            };
            return (first, "not", 2);
        }
        "re" => "are",
        "ve" => "have",
        "ll" => "will",
        "d" => "would",
        "m" => "am",
        "s" if word == "let" => "us",
        "s" if matches!(
            word,
            "it" | "that" | "he" | "she" | "there" | "here" | "what" | "this"
        ) =>
        {
            "is"
        }
        "s" => "",
        _ => return (word, "", 0),
    };
    (word, second, 1 + suffix.len())
}

const BARE_CONTRACTIONS: &[(&str, &str, &str)] = &[
    ("dont", "do", "not"),
    ("doesnt", "does", "not"),
    ("didnt", "did", "not"),
    ("isnt", "is", "not"),
    ("arent", "are", "not"),
    ("wasnt", "was", "not"),
    ("shouldnt", "should", "not"),
    ("mustnt", "must", "not"),
    ("neednt", "need", "not"),
    ("cant", "can", "not"),
    ("cannot", "can", "not"),
    ("wont", "will", "not"),
    ("youre", "you", "are"),
    ("youve", "you", "have"),
    ("youll", "you", "will"),
    ("youd", "you", "would"),
    ("thats", "that", "is"),
    ("lets", "let", "us"),
];

/// Returns whether an imperative at `n` is a noun in fact: "increase in dose", "start date".
pub(super) fn is_nominal(tokens: &[Token<'_>], n: usize) -> bool {
    let next = tokens.get(n + 1).map_or("", |t| t.word);
    tokens[n].is(CHANGE)
        && matches!(
            next,
            "in" | "of"
                | "date"
                | "dates"
                | "time"
                | "points"
                | "em"
                | "do"
                | "da"
                | "de"
                | "dos"
                | "das"
        )
        && tokens[n].word != "pare"
        && tokens[n].word != "deixe"
        && tokens[n].word != "passe"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentences(text: &str) -> Vec<String> {
        let text = split(text, &mut ClassMemo::default());
        let words = |s: &Sentence| {
            let tokens = &text.tokens[s.from..s.to];
            tokens.iter().map(|t| t.word).collect::<Vec<_>>().join(" ")
        };
        text.sentences.iter().map(words).collect()
    }

    /// Goal: sentences end where a reader ends them. Method: abbreviations, numbers, bullets, table
    /// cells, line breaks.
    #[test]
    fn sentences_end() {
        for (text, expect) in [
            (
                "seen by dr. lima. stop it",
                &["seen by dr lima", "stop it"][..],
            ),
            ("takes 2.5 mg. no pain", &["takes 2 5 mg", "no pain"]),
            ("e.g. rest p.o. daily", &["e g rest p o daily"]),
            ("no pain.stop it", &["no pain", "stop it"]),
            ("rest; sleep! eat? walk", &["rest", "sleep", "eat", "walk"]),
            ("- rest\n- sleep\n* eat", &["rest", "sleep", "eat"]),
            ("one | two", &["one", "two"]),
            ("rest and\nsleep\n\neat", &["rest and sleep", "eat"]),
            ("don't, you're, card-001's", &["do not you are card 001"]),
            ("", &[]),
        ] {
            assert_eq!(sentences(text), expect, "{text}");
        }
    }
}
