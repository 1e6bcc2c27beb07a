use crate::text::{fold, plain};

/// A piece of the user's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    Word(Word),
    /// A comma or the like: what follows may go on with what came before.
    Join,
    /// The end of a sentence.
    Stop,
}

/// One word in the forms that the rules compare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    /// Lower case, as the user wrote it otherwise: what a clinic is asked for.
    pub shown: String,
    /// Without accents as well.
    pub folded: String,
    /// Whether it was written with a capital letter.
    pub capital: bool,
}

impl Word {
    /// Whether two words differ at most by a plural `s`.
    pub fn is(&self, folded: &str) -> bool {
        singular(&self.folded) == singular(folded)
    }
}

/// The word without one plural `s`. Used on both sides of a comparison, so `diabetes` stays comparable.
pub(super) fn singular(folded: &str) -> &str {
    if folded.len() > 3 { folded.strip_suffix('s').unwrap_or(folded) } else { folded }
}

/// Abbreviations whose point doesn't end a sentence.
const TITLES: [&str; 6] = ["dr", "dra", "mr", "mrs", "sr", "sra"];

/// Splits a text into words and the signs between them.
pub(super) fn tokenize(text: &str) -> Vec<Token> {
    let chars: Vec<char> = plain(text).chars().collect();
    let mut tokens = Vec::new();
    let mut word = String::new();
    for (at, &c) in chars.iter().enumerate() {
        if in_word(&chars, at) {
            word.push(c);
            continue;
        }
        let title = c == '.' && TITLES.contains(&word.to_lowercase().as_str());
        end_word(&mut word, &mut tokens);
        match c {
            '.' if title => {}
            ',' | '&' | '/' | '+' | ':' => tokens.push(Token::Join),
            ';' | '.' | '?' | '!' | '\n' => tokens.push(Token::Stop),
            _ => {}
        }
    }
    end_word(&mut word, &mut tokens);
    tokens
}

/// Letters, digits and marks; hyphen, apostrophe and point only between two of them (`CARD-001`, `don't`, `2.5`).
fn in_word(chars: &[char], at: usize) -> bool {
    let plain = |c: &char| c.is_alphanumeric() || *c == '_' || unicode_normalization::char::is_combining_mark(*c);
    let around =
        |fits: fn(&char) -> bool| at > 0 && chars.get(at - 1).is_some_and(fits) && chars.get(at + 1).is_some_and(fits);
    match chars[at] {
        '-' | '\'' => around(|c| c.is_alphanumeric()),
        '.' => around(char::is_ascii_digit),
        c => plain(&c),
    }
}

fn end_word(word: &mut String, tokens: &mut Vec<Token>) {
    if !word.is_empty() {
        let (shown, folded) = (word.to_lowercase(), fold(word));
        let capital = word.starts_with(char::is_uppercase);
        tokens.push(Token::Word(Word { shown, folded, capital }));
        word.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: ids, contractions and numbers stay whole; signs split. Method: rows.
    #[test]
    fn words_and_signs() {
        let shown = |text: &str| {
            let token = |t| match t {
                Token::Word(w) => w.shown,
                Token::Join => ",".into(),
                Token::Stop => ".".into(),
            };
            tokenize(text).into_iter().map(token).collect::<Vec<String>>().join(" ")
        };
        for (text, expect) in [
            ("Get CARD-001, please.", "get card-001 , please ."),
            ("don’t — 2.5 mg", "don't 2.5 mg"),
            ("clinic_a: psoríase?", "clinic_a , psoríase ."),
            ("-a- 'b' a\u{0}b", "a b a b"),
            ("Dr. Silva. Next", "dr silva . next"),
            ("", ""),
        ] {
            assert_eq!(shown(text), expect, "{text:?}");
        }
    }
}
