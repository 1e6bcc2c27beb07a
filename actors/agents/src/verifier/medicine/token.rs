//! Words, numbers and signs of a folded text, in sentences.

use std::sync::LazyLock;

use regex::Regex;

use super::number;
use crate::text::{is_one_of, words};

/// One piece of a sentence.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    /// Letters only.
    Word(String),
    /// Digits, with what they are worth.
    Number(f64),
    /// Anything else that isn't space.
    Sign(char),
}

impl Token {
    pub fn word(&self) -> Option<&str> {
        match self {
            Self::Word(w) => Some(w),
            _ => None,
        }
    }

    pub fn is_sign(&self, sign: char) -> bool {
        matches!(self, Self::Sign(s) if *s == sign)
    }
}

/// The sentences of a folded text. A line break, a semicolon and a full stop before space end one.
pub(super) fn sentences(folded: &str) -> Vec<Vec<Token>> {
    let joined = join_dotted(folded);
    let decimal_comma = reads_portuguese(&joined);
    let mut sentences = vec![Vec::new()];
    let chars: Vec<char> = joined.chars().collect();
    let mut i = 0;
    while i < chars.len() {
        let c = chars[i];
        let next_is_digit = chars.get(i + 1).is_some_and(char::is_ascii_digit);
        let start = i;
        i += 1;
        match c {
            c if c.is_ascii_digit() || (c == '.' && next_is_digit && !starts_after_word(&chars, start)) => {
                while i < chars.len() && continues_number(&chars, i) {
                    i += 1;
                }
                let digits: String = chars[start..i].iter().collect();
                push(&mut sentences, number::read(&digits, decimal_comma).map(Token::Number));
            }
            c if c.is_alphabetic() => {
                while i < chars.len() && chars[i].is_alphabetic() {
                    i += 1;
                }
                push(&mut sentences, Some(Token::Word(chars[start..i].iter().collect())));
            }
            '\n' | ';' => sentences.push(Vec::new()),
            '.' | '!' | '?' if chars.get(i).is_none_or(|n| n.is_whitespace()) => sentences.push(Vec::new()),
            c if c.is_whitespace() => {}
            c => push(&mut sentences, Some(Token::Sign(c))),
        }
    }
    sentences.retain(|s| !s.is_empty());
    sentences
}

fn push(sentences: &mut [Vec<Token>], token: Option<Token>) {
    if let (Some(sentence), Some(token)) = (sentences.last_mut(), token) {
        sentence.push(token);
    }
}

fn starts_after_word(chars: &[char], at: usize) -> bool {
    at > 0 && chars[at - 1].is_alphanumeric()
}

fn continues_number(chars: &[char], at: usize) -> bool {
    let c = chars[at];
    c.is_ascii_digit() || (matches!(c, '.' | ',') && chars.get(at + 1).is_some_and(char::is_ascii_digit))
}

/// `b.i.d.` is one word, not three sentences.
fn join_dotted(folded: &str) -> String {
    static DOTTED: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"(?-u:\b)([a-z])\.\s?([a-z])\.(?:\s?([a-z])\.)?").ok());
    match &*DOTTED {
        Some(dotted) => dotted.replace_all(folded, "$1$2$3 ").into_owned(),
        None => folded.to_owned(),
    }
}

/// Whether a folded text is Portuguese (or Spanish) rather than English: it has more of its small words.
fn reads_portuguese(folded: &str) -> bool {
    const PORTUGUESE: &str = "de do da ao dia vez vezes por com comprimido comprimidos paciente cada \
        uma um para horas noite manha em toma tomar via oral";
    const ENGLISH: &str = "the of and daily patient is with for twice every once \
        day takes was tablet tablets per hours at by mouth";
    let of = |list| words(folded).filter(|word| is_one_of(word, list)).count();
    of(PORTUGUESE) > of(ENGLISH)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: sentences end where people end them, not inside numbers or `b.i.d.`. Method: count them.
    #[test]
    fn sentence_ends() {
        for (text, expect) in [("amiodarone 200 mg b.i.d. then stop. next", 2), ("0.5 mg; 1.5 mg\n.25 mg", 3), ("", 0)]
        {
            assert_eq!(sentences(text).len(), expect, "{text}");
        }
    }

    /// Goal: units glued to numbers come apart. Method: tokens of "200mg".
    #[test]
    fn glued_units() {
        let tokens = sentences("200mg");
        assert_eq!(tokens, [vec![Token::Number(200.0), Token::Word("mg".into())]]);
    }
}
