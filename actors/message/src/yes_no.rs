//! Recognises consent and refusal in free text, in English and Portuguese.

use std::sync::LazyLock;

use crate::text::{WordTable, word_table};

/// Known words, in lower case, with their meaning. `Some(true)` is agreement, `Some(false)`
/// refusal, and `None` a courtesy or filler word without meaning.
static YES_NO_WORDS: WordTable<Option<bool>> = LazyLock::new(|| {
    word_table(&[
        (
            "y yes yep yeah true ok okay sure confirm confirmed agree agreed proceed approve approved ahead \
             continue s sim confirmo confirmado concordo prossiga claro continua",
            Some(true),
        ),
        (
            "n no nope false not never don't dont stop cancel decline reject abort não nao nunca pare cancele \
             cancela cancelar recuso",
            Some(false),
        ),
        (
            "please thanks thank you go it do that i e a o por favor obrigado obrigada isso eu",
            None,
        ),
    ])
});

/// Parses a person's free-text answer to a yes-or-no question, in English or Portuguese.
///
/// Returns `Some(true)` or `Some(false)` if the text has words of only this meaning and otherwise
/// known courtesy words. Returns `None` if it has words of both meanings, an unknown word or no
/// meaning, so that nothing is approved by text that isn't understood.
pub fn parse_yes_no(text: &str) -> Option<bool> {
    let folded = text.to_lowercase().replace('’', "'");
    let words = folded
        .split(|c: char| !c.is_alphanumeric() && c != '\'')
        .filter(|word| !word.is_empty());
    let mut answer = None;
    for word in words {
        let Some(meaning) = *YES_NO_WORDS.get(word)? else {
            continue;
        };
        if answer
            .replace(meaning)
            .is_some_and(|before| before != meaning)
        {
            return None;
        }
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: common ways to agree and to refuse are recognised, and ambiguous texts are neither.
    /// Method: rows.
    #[test]
    fn yes_and_no() {
        for (text, answer) in [
            ("y", Some(true)),
            ("True", Some(true)),
            (" OK. ", Some(true)),
            ("confirm", Some(true)),
            ("proceed", Some(true)),
            ("sim", Some(true)),
            ("Yes, go ahead", Some(true)),
            ("Sim, por favor!", Some(true)),
            ("n", Some(false)),
            ("false", Some(false)),
            ("não", Some(false)),
            ("No, don’t do it", Some(false)),
            ("yes and no", None),
            ("not ok", None),
            ("yes, but only the first", None),
            ("go", None),
            ("maybe", None),
            ("", None),
        ] {
            assert_eq!(parse_yes_no(text), answer, "{text:?}");
        }
    }
}
