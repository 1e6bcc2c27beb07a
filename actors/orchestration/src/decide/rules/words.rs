//! A text as tokens: words with their stems, numbers, addresses, pieces of code, signs.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::LazyLock;

use callboard_message::text::{fold, plain};
use regex::Regex;
use rust_stemmers::{Algorithm, Stemmer};

/// Tokens of a request that are looked at. What is beyond is text to be worked on, not asked for.
pub(super) const TOKENS_MAX: usize = 600;
/// What is longer is no word, and has no stem.
const STEM_BYTES_MAX: usize = 48;

/// `https://…`, `host:8080`, `10.0.0.1`, `agents.example.com/maps`.
const ADDRESS: &str = r"(?i)^(https?://\S+|[\d.-]*[a-z][a-z0-9.-]*:\d{2,5}(/\S*)?|(\d{1,3}\.){3}\d{1,3}(:\d+)?(/\S*)?|([a-z0-9-]+\.)+[a-z]{2,}/\S*|([a-z0-9-]+\.){2,}[a-z]{2,})$";
/// Signs that programs and command lines have, and sentences don't.
const CODE: &str = r#"==|!=|=>|->|&&|\|\||::|\(\)|[{}]|\[\]|\+=|</|/>|\$\(|^\.?/[A-Za-z]|^~/|[A-Za-z0-9]_[A-Za-z0-9]|^--?[A-Za-z-][\w-]*$|\w\.(sh|py|js|ts|rs|sql|log|bat|exe|ya?ml|json)$|^[$|=]$|\w\(|\w=[\w"]"#;
/// Ends of words that a call of a function doesn't have: `file(s)`.
const PLURAL: &str = r"\((s|es|a|o)\)";
/// A word or number, with what joins its parts, or one sign.
const PIECE: &str = r"[\p{L}\p{N}\p{M}]+(?:[-'][\p{L}\p{N}\p{M}]+|[.,:]\p{N}+)*|\S";
const SIGNS: &str = ".,;:?!+&/()>…";

static PATTERNS: LazyLock<Option<[Regex; 4]>> = LazyLock::new(|| {
    let [address, code, plural, piece] =
        [ADDRESS, CODE, PLURAL, PIECE].map(|pattern| Regex::new(pattern).ok());
    Some([address?, code?, plural?, piece?])
});

/// Kind of a token.
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

/// One piece of a text.
#[derive(Debug, Clone)]
pub(super) struct Token {
    pub(super) kind: Kind,
    /// Lower case, without accents; of a sign, the sign.
    pub(super) folded: String,
    pub(super) english: String,
    pub(super) portuguese: String,
    /// Whether it was written with a capital letter.
    pub(super) capital: bool,
    /// Bytes of the plain text.
    pub(super) range: Range<usize>,
}

impl Token {
    fn new(kind: Kind, folded: String, range: Range<usize>) -> Self {
        let has_stems = matches!(kind, Kind::Word | Kind::Number);
        let (english, portuguese) = if has_stems {
            stems(&folded)
        } else {
            (folded.clone(), folded.clone())
        };
        Self {
            kind,
            folded,
            english,
            portuguese,
            capital: false,
            range,
        }
    }

    /// Puts another word in its place.
    pub(super) fn mean(&mut self, word: &str) {
        word.clone_into(&mut self.folded);
        (self.english, self.portuguese) = stems(word);
    }

    /// Whether it is a word: a number, an address, code or a sign isn't.
    pub(super) fn is_word(&self) -> bool {
        self.kind == Kind::Word
    }

    /// Whether it is a word, or a number with letters: `3d-print`.
    pub(super) fn has_letters(&self) -> bool {
        self.is_word() || self.kind == Kind::Number && self.folded.contains(char::is_alphabetic)
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

/// The English and the Portuguese stem of a folded word.
pub(super) fn stems(folded: &str) -> (String, String) {
    if folded.len() > STEM_BYTES_MAX {
        return (folded.to_owned(), folded.to_owned());
    }
    STEMMERS.with_borrow(|(english, portuguese)| {
        (
            english.stem(folded).into_owned(),
            fold(&portuguese.stem(folded)),
        )
    })
}

/// The text in one spelling: what token ranges are of.
pub(super) fn plain_text(text: &str) -> String {
    plain(text)
        .replace("tl;dr", "tldr")
        .replace("TL;DR", "TLDR")
}

/// Cuts a plain text into tokens; at most [`TOKENS_MAX`]. `emoji` says which word a picture stands for.
pub(super) fn tokenize(text: &str, emoji: impl Fn(char) -> Option<&'static str>) -> Vec<Token> {
    let mut tokens = Vec::new();
    let Some([address, code, plural, piece]) = PATTERNS.as_ref() else {
        return tokens;
    };
    for (start, chunk) in chunks(text).take(TOKENS_MAX) {
        let bare = chunk.trim_matches(['.', ',', ';', '!', '?', '"', '\'', '(', ')', '<', '>']);
        let at = start + chunk.find(bare).unwrap_or(0);
        if chunk == "\n" {
            tokens.push(Token::new(Kind::Sign, chunk.to_owned(), start..start + 1));
        } else if address.is_match(bare) {
            tokens.push(Token::new(
                Kind::Address,
                bare.to_owned(),
                at..at + bare.len(),
            ));
            tokens.extend(sign_at(text, at + bare.len()));
        } else if code.is_match(chunk.trim_matches(['`', ',', '.'])) && !plural.is_match(chunk) {
            // `-l.` ends a sentence, `..` is a folder.
            let bare = chunk.trim_end_matches(['.', ',', '!', '?', ';', ':']);
            let bare = if bare.ends_with(char::is_alphanumeric) {
                bare
            } else {
                chunk
            };
            tokens.push(Token::new(
                Kind::Code,
                bare.to_owned(),
                start..start + bare.len(),
            ));
            let end = start + bare.len();
            tokens.extend(sign_at(text, end).filter(|_| bare.len() < chunk.len()));
        } else {
            tokens.extend(piece.find_iter(chunk).filter_map(|found| {
                let range = start + found.start()..start + found.end();
                token(found.as_str(), range, &emoji)
            }));
        }
    }
    tokens.truncate(TOKENS_MAX);
    tokens
}

fn sign_at(text: &str, at: usize) -> Option<Token> {
    let sign = text.get(at..at + 1).filter(|sign| SIGNS.contains(sign))?;
    Some(Token::new(Kind::Sign, sign.to_owned(), at..at + 1))
}

/// `it's` is "it", `o'clock` "oclock": a possessive or short verb is dropped, another apostrophe is passed over.
fn token(
    shown: &str,
    range: Range<usize>,
    emoji: &impl Fn(char) -> Option<&'static str>,
) -> Option<Token> {
    let first = shown.chars().next()?;
    if first.is_alphanumeric() {
        let folded = fold(shown);
        let folded = folded
            .strip_suffix("'s")
            .unwrap_or(&folded)
            .replace('\'', "");
        let kind = if folded.starts_with(|c: char| c.is_ascii_digit()) {
            Kind::Number
        } else {
            Kind::Word
        };
        return Some(Token {
            capital: first.is_uppercase(),
            ..Token::new(kind, folded, range)
        });
    }
    let word = emoji(first).map(|word| Token::new(Kind::Word, word.to_owned(), range.clone()));
    word.or_else(|| {
        SIGNS
            .contains(first)
            .then(|| Token::new(Kind::Sign, shown.to_owned(), range))
    })
}

/// Runs without white space, and the ends of lines, each with the byte that it begins at.
fn chunks(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.split_inclusive(|c: char| c.is_whitespace())
        .scan(0, |end, run| {
            let start = *end;
            *end += run.len();
            let word = run.trim_end();
            let line = run.ends_with('\n').then(|| (start + run.len() - 1, "\n"));
            Some(
                (!word.is_empty())
                    .then_some((start, word))
                    .into_iter()
                    .chain(line),
            )
        })
        .flatten()
}
