//! Tokenizer: words with their stems, numbers, addresses, code and signs.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::LazyLock;

use callboard_message::text::{fold, normalize};
use regex::Regex;
use rust_stemmers::{Algorithm, Stemmer};

/// Maximum whitespace-separated chunks of a request that are tokenized. The remaining text isn't
/// interpreted as an instruction.
pub(super) const TOKENS_MAX: usize = 600;
/// Maximum bytes of a word that is stemmed.
const STEM_BYTES_MAX: usize = 48;

/// Pattern of an address: `https://…`, `host:8080`, `10.0.0.1`, `agents.example.com/maps`.
const ADDRESS: &str = r"(?i)^(https?://\S+|[\d.-]*[a-z][a-z0-9.-]*:\d{2,5}(/\S*)?|(\d{1,3}\.){3}\d{1,3}(:\d+)?(/\S*)?|([a-z0-9-]+\.)+[a-z]{2,}/\S*|([a-z0-9-]+\.){2,}[a-z]{2,})$";
/// Pattern of code and command lines, by signs that sentences don't have.
const CODE: &str = r#"==|!=|=>|->|&&|\|\||::|\(\)|[{}]|\[\]|\+=|</|/>|\$\(|^\.?/[A-Za-z]|^~/|[A-Za-z0-9]_[A-Za-z0-9]|^--?[A-Za-z-][\w-]*$|\w\.(sh|py|js|ts|rs|sql|log|bat|exe|ya?ml|json)$|^[$|=]$|\w\(|\w=[\w"]"#;
/// Pattern of plural endings that look like a function call: `file(s)`.
const PLURAL: &str = r"\((s|es|a|o)\)";
/// Pattern of a token: a word or number with its joined parts, or a single sign.
const PIECE: &str = r"[\p{L}\p{N}\p{M}]+(?:[-'][\p{L}\p{N}\p{M}]+|[.,:]\p{N}+)*|\S";
const SIGNS: &str = ".,;:?!+&/()>…";

static PATTERNS: LazyLock<Option<[Regex; 4]>> = LazyLock::new(|| {
    let [address, code, plural, piece] =
        [ADDRESS, CODE, PLURAL, PIECE].map(|pattern| Regex::new(pattern).ok());
    Some([address?, code?, plural?, piece?])
});

/// Kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenKind {
    Word,
    Number,
    /// Web address, or `host:port`.
    Address,
    /// Piece of code or of a command line.
    Code,
    /// Punctuation mark, or the end of a line.
    Sign,
}

/// Token of a text.
#[derive(Debug, Clone)]
pub(super) struct Token {
    pub(super) kind: TokenKind,
    /// Text in lower case without accents. Signs and code are unchanged.
    pub(super) folded: String,
    pub(super) english: String,
    pub(super) portuguese: String,
    /// Whether the word begins with a capital letter.
    pub(super) capital: bool,
    /// Byte range in the normalized text.
    pub(super) range: Range<usize>,
}

impl Token {
    fn new(kind: TokenKind, folded: String, range: Range<usize>) -> Self {
        let has_stems = matches!(kind, TokenKind::Word | TokenKind::Number);
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

    /// Replaces the word of the token and its stems.
    pub(super) fn replace_word(&mut self, word: &str) {
        word.clone_into(&mut self.folded);
        (self.english, self.portuguese) = stems(word);
    }

    pub(super) fn is_word(&self) -> bool {
        self.kind == TokenKind::Word
    }

    /// Whether the token is a word, or a number with letters such as `3d-print`.
    pub(super) fn has_letters(&self) -> bool {
        self.is_word()
            || self.kind == TokenKind::Number && self.folded.contains(char::is_alphabetic)
    }

    pub(super) fn is_sign(&self, sign: &str) -> bool {
        self.kind == TokenKind::Sign && self.folded == sign
    }
}

thread_local! {
    static STEMMERS: RefCell<(Stemmer, Stemmer)> =
        RefCell::new((Stemmer::create(Algorithm::English), Stemmer::create(Algorithm::Portuguese)));
}

/// Returns the English and the Portuguese stem of a folded word.
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

/// Normalizes a text. Token ranges refer to the result.
pub(super) fn plain_text(text: &str) -> String {
    normalize(text)
        .replace("tl;dr", "tldr")
        .replace("TL;DR", "TLDR")
}

/// Splits a normalized text into at most [`TOKENS_MAX`] chunks and tokenizes them. `emoji` maps an
/// emoji to a word.
pub(super) fn tokenize(text: &str, emoji: impl Fn(char) -> Option<&'static str>) -> Vec<Token> {
    let mut tokens = Vec::new();
    let Some([address, code, plural, piece]) = PATTERNS.as_ref() else {
        return tokens;
    };
    for (start, chunk) in chunks(text).take(TOKENS_MAX) {
        let bare = chunk.trim_matches(['.', ',', ';', '!', '?', '"', '\'', '(', ')', '<', '>']);
        let at = start + chunk.find(bare).unwrap_or(0);
        if chunk == "\n" {
            tokens.push(Token::new(
                TokenKind::Sign,
                chunk.to_owned(),
                start..start + 1,
            ));
        } else if address.is_match(bare) {
            tokens.push(Token::new(
                TokenKind::Address,
                bare.to_owned(),
                at..at + bare.len(),
            ));
            tokens.extend(sign_at(text, at + bare.len()));
        } else if code.is_match(chunk.trim_matches(['`', ',', '.'])) && !plural.is_match(chunk) {
            // In `-l.` the point ends a sentence; `..` is a directory.
            let bare = chunk.trim_end_matches(['.', ',', '!', '?', ';', ':']);
            let bare = if bare.ends_with(char::is_alphanumeric) {
                bare
            } else {
                chunk
            };
            tokens.push(Token::new(
                TokenKind::Code,
                bare.to_owned(),
                start..start + bare.len(),
            ));
            let end = start + bare.len();
            tokens.extend(sign_at(text, end).filter(|_| bare.len() < chunk.len()));
        } else {
            tokens.extend(piece.find_iter(chunk).filter_map(|found| {
                let range = start + found.start()..start + found.end();
                parse_token(found.as_str(), range, &emoji)
            }));
        }
    }
    tokens.truncate(TOKENS_MAX);
    tokens
}

fn sign_at(text: &str, at: usize) -> Option<Token> {
    let sign = text.get(at..at + 1).filter(|sign| SIGNS.contains(sign))?;
    Some(Token::new(TokenKind::Sign, sign.to_owned(), at..at + 1))
}

/// Parses one token. Drops a possessive or contracted `'s`, and other apostrophes: `it's` becomes
/// "it", `o'clock` becomes "oclock".
fn parse_token(
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
            TokenKind::Number
        } else {
            TokenKind::Word
        };
        return Some(Token {
            capital: first.is_uppercase(),
            ..Token::new(kind, folded, range)
        });
    }
    let word = emoji(first).map(|word| Token::new(TokenKind::Word, word.to_owned(), range.clone()));
    word.or_else(|| {
        SIGNS
            .contains(first)
            .then(|| Token::new(TokenKind::Sign, shown.to_owned(), range))
    })
}

/// Splits a text into runs without white space and line ends, each with its byte offset.
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
