//! Recognition of medicines: by the embedded list, and by typical word endings.

use std::collections::HashMap;
use std::sync::LazyLock;

use regex::Regex;

use crate::verifier::fold;

use super::token::{Token, sentences};

/// Maximum number of words in a medicine's name.
const NAME_WORDS_MAX: usize = 3;
/// Minimum letters of a word to which spelling rules, such as Portuguese endings, are applied.
/// Shorter words must match exactly.
const STEM_LETTERS_MIN: usize = 6;
/// Minimum letters of an unlisted word that is recognised as a medicine by its ending.
const ENDING_LETTERS_MIN: usize = 7;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Medicine {
    /// Medicine on the embedded list, by its index there.
    Listed(usize),
    /// Medicine that isn't on the list, by the stem of one word of its name.
    Unlisted(String),
}

/// List of medicines, embedded in the program, by name; and the word endings by which other
/// medicines are recognised.
pub(super) struct Lexicon {
    generics: Vec<String>,
    /// Index in `generics`, and whether the name counts only beside a dose, by the name's key.
    names: HashMap<String, (usize, bool)>,
    ending: Option<Regex>,
}

/// List of medicines from `data/medicines.txt`.
pub(super) static LEXICON: LazyLock<Lexicon> =
    LazyLock::new(|| Lexicon::read(include_str!("../../../data/medicines.txt")));

impl Lexicon {
    fn read(data: &str) -> Self {
        let mut lexicon = Self {
            generics: Vec::new(),
            names: HashMap::new(),
            ending: Regex::new(ENDINGS).ok(),
        };
        for line in data
            .lines()
            .map(str::trim)
            .filter(|l| !l.is_empty() && !l.starts_with('#'))
        {
            let (line, weak) = line
                .strip_prefix('~')
                .map_or((line, false), |rest| (rest, true));
            let (generic, others) = line.split_once(':').unwrap_or((line, ""));
            let index = lexicon.generics.len();
            lexicon.generics.push(generic.trim().to_owned());
            for (n, name) in std::iter::once(generic)
                .chain(others.split(','))
                .enumerate()
            {
                let key = name_key(name);
                if !key.is_empty() {
                    // Brand and chemical names have one meaning, even if the plain word has two.
                    lexicon
                        .names
                        .entry(key)
                        .or_insert((index, weak && (n == 0 || !name.trim().contains(' '))));
                }
            }
        }
        lexicon
    }

    /// Returns the medicine with the longest name at the start of `tokens`, a flag, and the number
    /// of the name's tokens. The flag is set if the name also has an everyday meaning: a claim then
    /// needs a dose beside it, but other callers ignore the flag. Without a listed name, a first
    /// word of [`ENDING_LETTERS_MIN`] letters or more counts as a medicine by its ending
    /// ([`ENDINGS`]). `None` if there is neither.
    pub fn find(&self, tokens: &[Token]) -> Option<(Medicine, bool, usize)> {
        let mut key = String::new();
        let mut best = None;
        let mut words = 0;
        for (n, token) in tokens.iter().enumerate() {
            match token {
                Token::Sign('-' | '/' | '+') if n > 0 => continue,
                Token::Sign(_) => break,
                Token::Number(_) if n == 0 => break,
                _ => append_to_key(&mut key, token),
            }
            words += 1;
            if let Some((index, weak)) = self.names.get(&key) {
                best = Some((Medicine::Listed(*index), *weak, n + 1));
            }
            if words == NAME_WORDS_MAX {
                break;
            }
        }
        best.or_else(|| self.find_by_ending(tokens.first()?.as_word()?))
    }

    fn find_by_ending(&self, word: &str) -> Option<(Medicine, bool, usize)> {
        let looks = word.len() >= ENDING_LETTERS_MIN
            && self.ending.as_ref().is_some_and(|e| e.is_match(word));
        looks.then(|| (Medicine::Unlisted(stem(word)), false, 1))
    }

    /// Returns a medicine's generic name, also for a brand, as it may be shown to a person. An
    /// unlisted word isn't shown, because it might be personal data: "an unlisted medicine" stands
    /// for it.
    pub fn display(&self, medicine: &Medicine) -> String {
        let Medicine::Listed(index) = medicine else {
            return "an unlisted medicine".to_owned();
        };
        let generic = self.generics.get(*index).map_or("", String::as_str);
        let mut letters = generic.chars();
        letters.next().map_or_else(String::new, |first| {
            first.to_uppercase().chain(letters).collect()
        })
    }
}

/// Endings that INNs share by class of medicine (WHO stem book), in English and Portuguese.
const ENDINGS: &str = "(?:mab|mabe|tinib|tinibe|pril|sartan|sartana|olol|vastatin|vastatina|conazole?|cillin|cilina|thromycin|tromicina\
    |floxacin|floxacino|cycline|ciclina|prazole?|gliptin|gliptina|gliflozin|gliflozina|glutide|glutida|triptan\
    |triptano|setron|setrona|azepam|zolam|dipine|dipino|parin|parina|xaban|xabana|agrel|grelor|oxetine|oxetina\
    |lukast|thiazide|tiazida|semide|semida|platin|platina|rubicin|rubicina|taxel|trexate|trexato|fenac|fenaco\
    |profen|profeno|oxicam|coxib|coxibe|fibrate|fibrato|glitazone|glitazona|tropium|tropio|dronate|dronato|ciclovir\
    |cyclovir|ciclib|ciclibe|parib|paribe|citabine|citabina|terol|asone|asona|solone|solona|barbital|caine|caina)$";

/// Appends the stem of a word, or a number, to a lookup key of the list; signs are skipped.
fn append_to_key(key: &mut String, token: &Token) {
    let part = match token {
        Token::Word(word) => stem(word),
        Token::Number(value) => value.to_string(),
        Token::Sign(_) => return,
    };
    if !key.is_empty() {
        key.push(' ');
    }
    key.push_str(&part);
}

fn name_key(name: &str) -> String {
    let mut key = String::new();
    sentences(&fold(name))
        .iter()
        .flatten()
        .for_each(|token| append_to_key(&mut key, token));
    key
}

/// Returns the stem of a folded word, which the English, Portuguese and Spanish form of a
/// medicine's name share: amiodarone and amiodarona, warfarin and varfarina, hydrochlorothiazide
/// and hidroclorotiazida. Words that are shorter than [`STEM_LETTERS_MIN`] or not ASCII are
/// returned unchanged.
pub(in crate::verifier) fn stem(word: &str) -> String {
    if word.len() < STEM_LETTERS_MIN || !word.is_ascii() {
        return word.to_owned();
    }
    let mut out = String::with_capacity(word.len());
    let mut letters = word.chars().peekable();
    while let Some(c) = letters.next() {
        let next = letters.peek().copied();
        if matches!(c, 'p' | 't' | 'c' | 'r') && next == Some('h') {
            letters.next();
        }
        let c = match (c, next) {
            ('p', Some('h')) => 'f',
            ('y', _) => 'i',
            ('w', _) => 'v',
            ('k', _) => 'c',
            _ => c,
        };
        if !out.ends_with(c) {
            out.push(c);
        }
    }
    let kept = out.trim_end_matches(['a', 'e', 'o']).len();
    out.truncate(kept.max(STEM_LETTERS_MIN - 2).min(out.len()));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(text: &str) -> Option<String> {
        let tokens = sentences(&fold(text)).concat();
        LEXICON
            .find(&tokens)
            .map(|(medicine, ..)| LEXICON.display(&medicine))
    }

    /// Goal: brand, generic and Portuguese names are the same medicine. Method: a table.
    #[test]
    fn names_meet() {
        for (text, expect) in [
            ("amiodarone", Some("Amiodarone")),
            ("Amiodarona", Some("Amiodarone")),
            ("Cordarone", Some("Amiodarone")),
            ("varfarina", Some("Warfarin")),
            ("hidroclorotiazida", Some("Hydrochlorothiazide")),
            ("levotiroxina", Some("Levothyroxine")),
            ("metotrexato", Some("Methotrexate")),
            ("AAS", Some("Aspirin")),
            ("ácido acetilsalicílico", Some("Aspirin")),
            ("amoxicillin-clavulanate", Some("Amoxicillin/clavulanate")),
            ("insulin glargine", Some("Insulin glargine")),
            ("vitamin B12", Some("Cyanocobalamin")),
            ("zorbafloxacin", Some("an unlisted medicine")),
            ("hydralazine", Some("Hydralazine")),
            ("hydroxyzine", Some("Hydroxyzine")),
            ("patient", None),
            ("medication", None),
        ] {
            assert_eq!(find(text).as_deref(), expect, "{text}");
        }
    }

    /// Goal: no name stands for two medicines. Method: every generic name finds its own line.
    #[test]
    fn no_name_is_two_medicines() {
        for (index, generic) in LEXICON.generics.iter().enumerate() {
            let tokens = sentences(&fold(generic)).concat();
            let found = LEXICON.find(&tokens).map(|(medicine, ..)| medicine);
            assert_eq!(found, Some(Medicine::Listed(index)), "{generic}");
        }
    }
}
