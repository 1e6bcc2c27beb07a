//! Whether words say yes or no.

use std::sync::LazyLock;

use crate::text::{Meanings, meanings};

/// Words that agree and words that don't, English and Portuguese; `None`: courtesies, which say neither beside those.
static MEANINGS: Meanings<Option<bool>> = LazyLock::new(|| {
    meanings(&[
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

/// What a person's words say to a question of yes or no: one word of the one kind and none of the other, with nothing but
/// courtesies beside them. `None` is neither: nothing is agreed to by words that nobody here knows.
pub fn assent(text: &str) -> Option<bool> {
    let folded = text.to_lowercase().replace('’', "'");
    let words = folded
        .split(|c: char| !c.is_alphanumeric() && c != '\'')
        .filter(|word| !word.is_empty());
    let mut said = None;
    for word in words {
        let Some(means) = *MEANINGS.get(word)? else {
            continue;
        };
        if said.replace(means).is_some_and(|before| before != means) {
            return None;
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: people agree and refuse as they speak, and what could be read in two ways is neither. Method: rows.
    #[test]
    fn yes_and_no() {
        for (text, said) in [
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
            assert_eq!(assent(text), said, "{text:?}");
        }
    }
}
