//! A request as the rules read it: words with their stems, signs, addresses, code; pasted text apart.

use std::cell::RefCell;
use std::ops::Range;

use callboard_message::text::{fold, plain};
use rust_stemmers::{Algorithm, Stemmer};

/// How many tokens of a request are looked at; what is beyond is text to be worked on, not asked for.
pub(super) const TOKENS_MAX: usize = 600;

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Word,
    Number,
    /// An address on the web, or `host:port`.
    Address,
    /// A piece of a program or a command line.
    Code,
    /// A punctuation mark, or the end of a line.
    Sign,
}

/// One piece of a request.
#[derive(Debug, Clone)]
pub(super) struct Token {
    pub(super) kind: Kind,
    /// Lower case, without accents; of a sign, the sign.
    pub(super) folded: String,
    pub(super) english: String,
    pub(super) portuguese: String,
    /// Whether it was written with a capital letter.
    pub(super) capital: bool,
    /// Where it stands, in bytes of the plain text.
    pub(super) range: Range<usize>,
}

impl Token {
    /// Whether it is a word (a number, an address, code or a sign isn't).
    pub(super) fn is_word(&self) -> bool {
        self.kind == Kind::Word
    }

    /// Whether it is this sign.
    pub(super) fn is_sign(&self, sign: &str) -> bool {
        self.kind == Kind::Sign && self.folded == sign
    }
}

thread_local! {
    static STEMMERS: RefCell<(Stemmer, Stemmer)> =
        RefCell::new((Stemmer::create(Algorithm::English), Stemmer::create(Algorithm::Portuguese)));
}

/// What is longer is no word, and has no stem.
const STEM_BYTES_MAX: usize = 48;

/// The English and the Portuguese stem of a folded word.
pub(super) fn stems(folded: &str) -> (String, String) {
    if folded.len() > STEM_BYTES_MAX {
        return (folded.to_owned(), folded.to_owned());
    }
    STEMMERS.with_borrow(|(english, portuguese)| (english.stem(folded).into_owned(), fold(&portuguese.stem(folded))))
}

/// The text in one spelling: what token ranges are of.
pub(super) fn plain_text(text: &str) -> String {
    plain(text).replace("tl;dr", "tldr").replace("TL;DR", "TLDR")
}

/// Cuts a plain text into tokens; at most [`TOKENS_MAX`]. `emoji` says which word a picture stands for.
pub(super) fn tokenize(text: &str, emoji: impl Fn(char) -> Option<&'static str>) -> Vec<Token> {
    let mut tokens = Vec::new();
    for (start, chunk) in chunks(text) {
        if tokens.len() >= TOKENS_MAX {
            break;
        }
        if chunk == "\n" {
            push(&mut tokens, Kind::Sign, "\n".into(), start..start + 1, false);
            continue;
        }
        let bare =
            chunk.trim_matches(|c: char| matches!(c, '.' | ',' | ';' | '!' | '?' | '"' | '\'' | '(' | ')' | '<' | '>'));
        let at = start + chunk.find(bare).unwrap_or(0);
        if !bare.is_empty() && is_address(bare) {
            signs(&mut tokens, text, start..at);
            push(&mut tokens, Kind::Address, bare.to_owned(), at..at + bare.len(), false);
            signs(&mut tokens, text, at + bare.len()..start + chunk.len());
        } else if is_code(chunk) {
            push(&mut tokens, Kind::Code, chunk.to_owned(), start..start + chunk.len(), false);
        } else {
            pieces(&mut tokens, text, start..start + chunk.len(), &emoji);
        }
    }
    tokens.truncate(TOKENS_MAX);
    tokens
}

/// The runs without white space, and the ends of lines, each with where it begins.
fn chunks(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut rest = 0;
    std::iter::from_fn(move || {
        let tail = text.get(rest..)?;
        let skipped = tail.find(|c: char| c == '\n' || !c.is_whitespace())?;
        let start = rest + skipped;
        let tail = &text[start..];
        let len = if tail.starts_with('\n') { 1 } else { tail.find(char::is_whitespace).unwrap_or(tail.len()) };
        rest = start + len;
        Some((start, &text[start..rest]))
    })
}

fn push(tokens: &mut Vec<Token>, kind: Kind, folded: String, range: Range<usize>, capital: bool) {
    let (english, portuguese) = if kind == Kind::Word { stems(&folded) } else { (folded.clone(), folded.clone()) };
    tokens.push(Token { kind, folded, english, portuguese, capital, range });
}

fn signs(tokens: &mut Vec<Token>, text: &str, range: Range<usize>) {
    for (at, c) in text[range.clone()].char_indices().filter(|(_, c)| is_sign(*c)) {
        let at = range.start + at;
        push(tokens, Kind::Sign, c.to_string(), at..at + c.len_utf8(), false);
    }
}

fn is_sign(c: char) -> bool {
    matches!(c, '.' | ',' | ';' | ':' | '?' | '!' | '+' | '&' | '/' | '(' | ')' | '>' | '…')
}

/// Words, numbers, pictures and signs of a run without white space.
fn pieces(tokens: &mut Vec<Token>, text: &str, range: Range<usize>, emoji: &impl Fn(char) -> Option<&'static str>) {
    let mut word: Option<usize> = None;
    let chunk = &text[range.clone()];
    for (at, c) in chunk.char_indices().chain([(chunk.len(), ' ')]) {
        let next = chunk.get(at + c.len_utf8()..).and_then(|rest| rest.chars().next());
        let joins = matches!(c, '-' | '\'') || matches!(c, '.' | ',' | ':') && next.is_some_and(|c| c.is_ascii_digit());
        let inside = c.is_alphanumeric()
            || unicode_normalization::char::is_combining_mark(c) && word.is_some()
            || joins && word.is_some() && next.is_some_and(char::is_alphanumeric);
        match (inside, word) {
            (true, None) => word = Some(at),
            (false, Some(start)) => {
                end_word(tokens, text, range.start + start..range.start + at);
                word = None;
            }
            _ => {}
        }
        if !inside && at < chunk.len() {
            let here = range.start + at..range.start + at + c.len_utf8();
            if is_sign(c) {
                push(tokens, Kind::Sign, c.to_string(), here, false);
            } else if let Some(word) = emoji(c) {
                push(tokens, Kind::Word, word.to_owned(), here, false);
            }
        }
    }
}

/// `it's` is "it", `o'clock` "oclock": a possessive or short verb is dropped, another apostrophe is passed over.
fn end_word(tokens: &mut Vec<Token>, text: &str, range: Range<usize>) {
    let shown = &text[range.clone()];
    let capital = shown.starts_with(char::is_uppercase);
    let folded = fold(shown);
    let folded = folded.strip_suffix("'s").unwrap_or(&folded).replace('\'', "");
    let kind = if folded.starts_with(|c: char| c.is_ascii_digit()) { Kind::Number } else { Kind::Word };
    push(tokens, kind, folded, range, capital);
}

/// `https://…`, `host:8080`, `10.0.0.1`, `agents.example.com/maps`.
pub(super) fn is_address(chunk: &str) -> bool {
    let lower = chunk.to_ascii_lowercase();
    if lower.starts_with("http://") || lower.starts_with("https://") {
        return lower.len() > "https://".len();
    }
    let (host, rest) = match lower.find([':', '/']) {
        Some(at) => (&lower[..at], &lower[at..]),
        None => (lower.as_str(), ""),
    };
    let named = !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'));
    let digits = rest.strip_prefix(':').map(|port| port.split('/').next().unwrap_or_default());
    let port = digits.is_some_and(|port| port.len() >= 2 && port.bytes().all(|b| b.is_ascii_digit()));
    let letters = host.chars().any(|c| c.is_ascii_alphabetic());
    let is_ip = host.split('.').count() == 4 && host.split('.').all(|part| part.parse::<u8>().is_ok());
    let domain = host.split('.').count() >= 2
        && host.split('.').all(|part| !part.is_empty())
        && host.rsplit('.').next().is_some_and(|end| end.len() >= 2 && end.chars().all(|c| c.is_ascii_alphabetic()));
    named && (is_ip || port && letters || domain && (rest.starts_with('/') || host.split('.').count() >= 3))
}

/// Signs that programs and command lines have, and sentences don't.
fn is_code(chunk: &str) -> bool {
    const MARKS: [&str; 16] =
        ["==", "!=", "=>", "->", "&&", "||", "::", "();", "()", "{", "}", "[]", "+=", "</", "/>", "$("];
    let chars: Vec<char> = chunk.chars().take(200).collect();
    let plural = chunk.contains("(s)") || chunk.contains("(es)") || chunk.contains("(a)");
    let call = !plural
        && chars.windows(2).any(|pair| matches!(pair, [a, '('] if a.is_ascii_alphanumeric() || *a == '_'))
        && chars.iter().position(|c| *c == '(').is_some_and(|at| at > 0);
    let snake = chars
        .windows(3)
        .any(|three| matches!(three, [a, '_', b] if a.is_ascii_alphanumeric() && b.is_ascii_alphanumeric()));
    let flag = chars.first() == Some(&'-')
        && chars.get(1).is_some_and(|c| c.is_ascii_alphabetic() || *c == '-')
        && chars.last().is_some_and(char::is_ascii_alphanumeric);
    let path = chunk.starts_with("./")
        || chunk.starts_with("~/")
        || (chunk.starts_with('/') && chars.get(1).is_some_and(char::is_ascii_alphabetic));
    const ENDINGS: [&str; 12] =
        [".sh", ".py", ".js", ".ts", ".rs", ".sql", ".log", ".bat", ".exe", ".yml", ".yaml", ".json"];
    let bare = chunk.trim_end_matches([',', '.', ';', ':', '?', '!']);
    let file = ENDINGS.iter().any(|ending| bare.len() > ending.len() && bare.ends_with(ending));
    let equals = chunk == "=" || chars.windows(3).any(|three| matches!(three, [a, '=', b] if a.is_ascii_alphanumeric() && (b.is_ascii_alphanumeric() || *b == '"')));
    let shell = chunk == "$" || chunk == "|";
    MARKS.iter().any(|mark| chunk.contains(mark)) || call || snake || flag || path || file || equals || shell
}
