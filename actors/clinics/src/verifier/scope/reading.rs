//! One sentence as the rules read it.

use callboard_message::is_one_of;

use super::lexicon::{Class, DOCUMENT_VERB, INTERROGATIVE, TELL, YOU};
use super::record::RecordedText;
use super::sentence::{JOINED, OPENS, Token, reported};

/// Number of words at the beginning of a sentence among which a question may open, after a label
/// such as "Doctor:".
const QUESTION_WORDS: usize = 4;

/// Sentence with what the rules ask about it.
pub(super) struct SentenceReading<'a, 't> {
    pub tokens: &'a [Token<'t>],
    /// Whether a report covers each token, see [`reported`].
    pub covered: Vec<bool>,
    pub is_question: bool,
    /// Whether the sentence addresses the reader, by a pronoun or a name such as "assistant".
    pub has_you: bool,
    /// Whether it does so by a name, or speaks of whoever asks.
    pub names_reader: bool,
    /// Whether the sentence before, up to a semicolon, addresses the reader.
    pub follows_address: bool,
    /// Sign that ends the sentence.
    pub end: char,
    pub records: &'a RecordedText,
}

impl<'a, 't> SentenceReading<'a, 't> {
    pub fn new(tokens: &'a [Token<'t>], end: char, records: &'a RecordedText) -> Self {
        let asks = |(n, token): (usize, &Token<'_>)| {
            token.has(OPENS) && token.is(INTERROGATIVE) && !(n > 0 && token.is(DOCUMENT_VERB))
        };
        let names_reader = names_reader(tokens);
        Self {
            tokens,
            covered: reported(tokens),
            is_question: end == '?' && tokens.iter().enumerate().take(QUESTION_WORDS).any(asks),
            has_you: names_reader || has_you(tokens),
            names_reader,
            follows_address: false,
            end,
            records,
        }
    }

    /// Returns whether the word at `n` has one of the classes; `false` beyond the end.
    pub fn is(&self, n: usize, class: Class) -> bool {
        self.tokens.get(n).is_some_and(|token| token.is(class))
    }

    /// Returns the word at `n`; empty beyond the end.
    pub fn word(&self, n: usize) -> &'t str {
        self.tokens.get(n).map_or("", |token| token.word)
    }

    /// Returns whether one of the words in a range, cut to the sentence, has one of the classes.
    pub fn any(&self, from: usize, to: usize, class: Class) -> bool {
        let to = to.min(self.tokens.len());
        self.tokens[from.min(to)..to]
            .iter()
            .any(|token| token.is(class))
    }
}

/// Names by which a text addresses a program or a person who reads it.
const READERS: &str = "ai assistant assistants chatbot bot llm reader readers asker assistente assistentes leitor \
    leitora leitores ia";

/// Returns whether a sentence addresses the reader by a name, or tells something to whoever asks.
fn names_reader(tokens: &[Token<'_>]) -> bool {
    let asks = |n: usize| {
        let next = tokens.get(n + 1).map_or("", |next| next.word);
        tokens[n].is(TELL) && matches!(next, "quem" | "whoever" | "anyone")
            || matches!(tokens[n].word, "quem" | "whoever" | "anyone")
                && is_one_of!(
                    next,
                    "le ler leia esta estiver reads reading is opens abrir perguntar",
                )
    };
    (0..tokens.len()).any(|n| is_one_of!(tokens[n].word, READERS) || asks(n))
}

/// Returns whether a sentence addresses the reader by a pronoun, "thank you" aside.
fn has_you(tokens: &[Token<'_>]) -> bool {
    tokens.iter().enumerate().any(|(n, token)| {
        let is_clitic = token.has(JOINED) && matches!(token.word, "te" | "vos" | "lhe");
        (token.is(YOU) || is_clitic)
            && !(n > 0 && matches!(tokens[n - 1].word, "thank" | "thanking"))
    })
}
