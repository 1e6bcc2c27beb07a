//! Splits a folded text into words and sentences.

use callboard_message::is_one_of;
use foldhash::HashMap;

use super::lexicon::{
    BASE, BREAK, CHANGE, Class, DETERMINER, DOCUMENT, DOCUMENT_VERB, GERUND, IS, LEAD, NUMBER,
    PATIENT, RECOMMENDED, RECORDED, ROLE, SAID, TOLD, VISIT, WAS, YOU, class_of,
};

/// Word of a text, with its classes and with what stands before it.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Token<'a> {
    pub word: &'a str,
    pub class: Class,
    /// Signs before the word: [`OPENS`], [`CELL`], [`LINE`], [`LABELLED`], [`JOINED`].
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

/// The word stands after a quotation mark.
pub(super) const QUOTE: u8 = 32;

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
    /// Classes of the words so far.
    classes: HashMap<&'a str, Class>,
}

/// Maximum number of words of a sentence. A longer one is cut, so that judging it takes linear time.
const SENTENCE_WORDS_MAX: usize = 400;

/// Words after which a full stop ends no sentence.
const ABBREVIATIONS: &[&str] = &[
    "dr", "dra", "drs", "sr", "sra", "mr", "mrs", "ms", "prof", "profa", "eng", "st", "vs",
    "approx", "ca", "nr", "no", "fig", "ed", "obs", "ex", "pag", "art", "av", "tel", "enf", "enfa",
    "min", "max", "aprox",
];

/// Splits a folded text. Sentences end at `.`, `!`, `?`, `;`, `|`, bullets and empty lines, except
/// for full stops of abbreviations and numbers. A single line break ends none, because a sentence
/// may be wrapped.
pub(super) fn split(folded: &str) -> Text<'_> {
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
        text.push(first, before);
        if !second.is_empty() {
            text.push(second, 0);
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

    fn push(&mut self, word: &'a str, before: u8) {
        let mut class = *self.classes.entry(word).or_insert_with(|| class_of(word));
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
        self.tokens.push(Token {
            word,
            class,
            before,
        });
    }
}

fn next_word(text: &str, at: usize) -> Option<usize> {
    text[at..].find(char::is_alphanumeric).map(|n| at + n)
}

fn word_end(text: &str, start: usize) -> usize {
    text[start..]
        .find(|c: char| !c.is_alphanumeric())
        .map_or(text.len(), |n| start + n)
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
            '"' => before |= OPENS | QUOTE,
            _ => before |= OPENS,
        }
    }
    if spaces > 1 {
        before |= OPENS | CELL;
    }
    if lines > 1 {
        end = end.or(Some('\n'));
    }
    (before, end)
}

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

/// Returns for each token of a sentence whether a report covers it: "was told to …", "Dr. Lima
/// advised …", "foi orientada a …", "according to the record, …". A report ends at a word such as
/// `so`, at a word that addresses the reader, and at a line break after a complete phrase.
pub(super) fn reported(tokens: &[Token<'_>]) -> Vec<bool> {
    let mut covered = Vec::with_capacity(tokens.len());
    let (mut is_covered, mut concedes, mut is_quoted) = (false, false, false);
    for (n, token) in tokens.iter().enumerate() {
        // Speech that is reported in quotation marks may address anybody.
        if token.has(QUOTE) {
            let speaks = |at: usize| is_one_of!(tokens[at].word, SPEAKING) || tokens[at].is(SAID);
            is_quoted = !is_quoted && (n.saturating_sub(3)..n).any(speaks);
        }
        let wraps = n > 0 && tokens[n - 1].word.len() <= 4;
        if token.is(BREAK) || token.has(LINE) && !wraps {
            is_covered = false;
        }
        concedes |= is_one_of!(token.word, CONCESSIONS);
        // "Although Dr. Lima advised rest, start …": the report ends with its clause.
        if concedes && n > 0 && token.has(OPENS) {
            (is_covered, concedes) = (false, false);
        }
        covered.push(is_covered || is_quoted);
        is_covered = is_covered || is_report(tokens, n);
    }
    covered
}

/// Words before speech in quotation marks, beside past forms of saying.
const SPEAKING: &str = "says say quote quotes form leaflet states reports diz refere relata bula folheto termo consent";

/// Conjunctions whose clause may report something that the rest of the sentence goes against.
const CONCESSIONS: &str = "although though despite while embora apesar mesmo";

/// Returns whether a report begins with the token at `n`.
pub(super) fn is_report(tokens: &[Token<'_>], n: usize) -> bool {
    let token = &tokens[n];
    let before = |distance: usize| n.checked_sub(distance).map(|at| &tokens[at]);
    let near = |class: Class| (1..=2).any(|d| before(d).is_some_and(|t| t.is(class)));
    let is_present = near(IS) && !near(WAS);
    if token.is(TOLD) {
        return !is_present || before(1).is_some_and(|t| t.word == "been");
    }
    if token.is(RECOMMENDED) {
        let has_subject = before(1)
            .is_some_and(|t| !t.is(IS) && !t.is(LEAD) && !matches!(t.word, "mais" | "most"));
        return !is_present && has_subject || near(WAS);
    }
    if token.is(RECORDED) {
        // "The recorded dose should be doubled."
        return !before(1).is_some_and(|t| t.is(DETERMINER));
    }
    if token.is(SAID) {
        return n > 0;
    }
    if token.is(DOCUMENT_VERB) {
        return (1..=3).any(|d| before(d).is_some_and(|t| t.is(DOCUMENT)))
            || matches!(token.word, "says" | "reports" | "diz" | "refere")
                && n < 4
                && near(PATIENT)
            || (1..=4).any(|d| before(d).is_some_and(|t| t.is(ROLE)) && names_one(tokens, n - d));
    }
    let next = tokens.get(n + 1);
    match token.word {
        "according" => next.is_some_and(|t| t.word == "to"),
        "per" | "segundo" | "conforme" => {
            let source = |t: &Token<'_>| t.is(DOCUMENT | ROLE);
            next.is_some_and(|t| source(t) || t.is(DETERMINER))
                && tokens[n + 1..].iter().take(3).any(source)
        }
        "acordo" => next.is_some_and(|t| t.word == "com"),
        _ => false,
    }
}

/// Returns whether the role at `n` is one person's: "Dr. Lima", "her cardiologist", "o medico", but
/// not "doctors" or "a doctor".
fn names_one(tokens: &[Token<'_>], n: usize) -> bool {
    let titled = matches!(tokens[n].word, "dr" | "dra");
    let one = n.checked_sub(1).is_some_and(|at| {
        matches!(
            tokens[at].word,
            "the"
                | "her"
                | "his"
                | "their"
                | "o"
                | "pelo"
                | "pela"
                | "treating"
                | "attending"
                | "referring"
        ) && !tokens[at].is(YOU)
    });
    titled || one && !tokens[n].word.ends_with('s')
}

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
        let text = split(text);
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

    /// Goal: a report covers what it reports and nothing else. Method: whether the last word is
    /// covered.
    #[test]
    fn reports_cover() {
        for (text, expect) in [
            ("patient was told to stop warfarin", true),
            ("dr. lima advised stopping warfarin", true),
            ("advised to stop warfarin", true),
            ("orientada a suspender varfarina", true),
            ("foi prescrito iniciar varfarina", true),
            ("according to the record, stop warfarin", true),
            ("the note says to stop warfarin", true),
            ("her cardiologist recommends stopping warfarin", true),
            ("it is advised to stop warfarin", false),
            ("recommended to stop warfarin", false),
            ("doctors recommend to stop warfarin", false),
            ("dr. lima advised rest, so stop warfarin", false),
            ("she was advised that you stop warfarin", false),
            ("stop warfarin", false),
        ] {
            let text_ = split(text);
            assert_eq!(reported(&text_.tokens).last(), Some(&expect), "{text}");
        }
    }
}
