use std::collections::HashMap;

use super::words::{Token, Word, singular, tokenize};
use crate::plan::{ClinicEntry, Registry};

/// The registry's words, found by their first word.
#[derive(Debug)]
pub(super) struct Names {
    phrases: HashMap<String, Vec<Phrase>>,
}

#[derive(Debug)]
struct Phrase {
    /// Singular forms.
    words: Vec<String>,
    means: Means,
}

/// What a phrase of the registry stands for. Clinics are places in the registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Means {
    /// A clinic by its id or specialty.
    Clinic(Vec<usize>),
    /// A clinic by another word, which may also be part of a condition: `skin` in `skin rash`.
    Synonym(Vec<usize>),
    /// A condition that these clinics see.
    Condition(Vec<usize>),
}

impl Means {
    fn clinics(&mut self) -> &mut Vec<usize> {
        match self {
            Self::Clinic(at) | Self::Synonym(at) | Self::Condition(at) => at,
        }
    }
}

impl Names {
    pub fn new(registry: &Registry) -> Self {
        let mut names = Self { phrases: HashMap::new() };
        for (at, clinic) in registry.clinics().iter().enumerate() {
            for text in proper_names(clinic) {
                names.add(&text, Means::Clinic(vec![at]));
            }
            for text in &clinic.synonyms {
                names.add(text, Means::Synonym(vec![at]));
            }
            for text in &clinic.conditions {
                names.add(text, Means::Condition(vec![at]));
            }
        }
        for phrases in names.phrases.values_mut() {
            phrases.sort_by_key(|p| std::cmp::Reverse(p.words.len()));
        }
        names
    }

    fn add(&mut self, text: &str, mut means: Means) {
        let words: Vec<String> = tokenize(text)
            .into_iter()
            .filter_map(|t| match t {
                Token::Word(w) => Some(singular(&w.folded).to_owned()),
                _ => None,
            })
            .collect();
        let Some(first) = words.first().cloned() else { return };
        let phrases = self.phrases.entry(first).or_default();
        match phrases.iter_mut().find(|p| p.words == words && same_kind(&p.means, &means)) {
            Some(phrase) => {
                let at = means.clinics()[0];
                if !phrase.means.clinics().contains(&at) {
                    phrase.means.clinics().push(at);
                }
            }
            // A word that is a specialty for one clinic stays one where another lists it as a synonym: first kind wins.
            None => phrases.push(Phrase { words, means }),
        }
    }

    /// The longest phrase that `tokens` begins with, and how many words it has.
    pub fn longest(&self, tokens: &[Token]) -> Option<(usize, Means)> {
        let word = |at: usize| match tokens.get(at) {
            Some(Token::Word(w)) => Some(w),
            _ => None,
        };
        let fits = |p: &&Phrase| p.words.iter().enumerate().all(|(at, p)| word(at).is_some_and(|w| w.is(p)));
        let found = self.phrases.get(singular(&word(0)?.folded))?.iter().find(fits)?;
        Some((found.words.len(), found.means.clone()))
    }

    /// A one-word name of the registry that `word` was probably meant as: one slip in a clinic's name, or another
    /// ending of a long condition (`hypertensive`, `hipertensos`).
    pub fn nearly(&self, word: &Word) -> Option<Means> {
        if word.folded.chars().count() < SLIP_LETTERS_MIN.min(STEM_LETTERS_MIN) {
            return None;
        }
        let one_word = || self.phrases.values().flatten().filter(|p| p.words.len() == 1);
        let near = |p: &&Phrase| match &p.means {
            Means::Clinic(_) => one_slip(singular(&word.folded), &p.words[0]),
            Means::Condition(_) => same_stem(&word.folded, &p.words[0]),
            Means::Synonym(_) => false,
        };
        // Two candidates of different meaning are no hint.
        let mut found = one_word().filter(near).map(|p| p.means.clone());
        let first = found.next()?;
        found.all(|m| m == first).then_some(first)
    }
}

fn same_kind(a: &Means, b: &Means) -> bool {
    std::mem::discriminant(a) == std::mem::discriminant(b)
}

/// A clinic's id, its specialty, and for an `-ology` the words that come with it in both languages.
fn proper_names(clinic: &ClinicEntry) -> Vec<String> {
    let spaced = clinic.id.replace(['_', '-', '.'], " ");
    let mut names = vec![spaced.replace("clinic ", "clínica "), spaced, clinic.id.clone(), clinic.specialty.clone()];
    if let Some(stem) = clinic.specialty.to_lowercase().strip_suffix("logy") {
        let endings = ["logia", "logist", "logista", "logic", "logical", "logico", "logica"];
        names.extend(endings.iter().map(|e| format!("{stem}{e}")));
    }
    names
}

/// How many letters a name must have before a slip in it is forgiven.
const SLIP_LETTERS_MIN: usize = 8;
/// How many letters two words must begin with alike to count as forms of one.
const STEM_LETTERS_MIN: usize = 8;
/// How much longer one form may be, in letters.
const STEM_ENDING_LETTERS_MAX: usize = 5;

/// Whether two long words differ by one letter that is wrong, missing, too much, or swapped with its neighbour.
fn one_slip(a: &str, b: &str) -> bool {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    if a.len().min(b.len()) < SLIP_LETTERS_MIN || a.len().abs_diff(b.len()) > 1 {
        return false;
    }
    let front = a.iter().zip(&b).take_while(|(x, y)| x == y).count();
    let back = a.iter().rev().zip(b.iter().rev()).take_while(|(x, y)| x == y).count();
    let (left_a, left_b) = (a.len().saturating_sub(front + back), b.len().saturating_sub(front + back));
    left_a.max(left_b) <= 1 || (left_a == 2 && left_b == 2 && a[front] == b[front + 1] && a[front + 1] == b[front])
}

fn same_stem(a: &str, b: &str) -> bool {
    let (a_letters, b_letters) = (a.chars().count(), b.chars().count());
    let stem = a.chars().zip(b.chars()).take_while(|(x, y)| x == y).count();
    stem >= STEM_LETTERS_MIN && a_letters.max(b_letters) - stem <= STEM_ENDING_LETTERS_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::samples::three_clinics;

    fn longest(text: &str) -> Option<(usize, Means)> {
        Names::new(&three_clinics()).longest(&tokenize(text))
    }

    /// Goal: the longest phrase wins and says what it is; a condition of two clinics names both. Method: rows.
    #[test]
    fn phrases() {
        for (text, expect) in [
            ("cardiology patients", Some((1, Means::Clinic(vec![0])))),
            ("dermatologista", Some((1, Means::Clinic(vec![1])))),
            ("clinic_c", Some((1, Means::Clinic(vec![2])))),
            ("clinic c now", Some((2, Means::Clinic(vec![2])))),
            ("skin cancer", Some((2, Means::Condition(vec![1])))),
            ("skin rash", Some((1, Means::Synonym(vec![1])))),
            ("hearts", Some((1, Means::Synonym(vec![0])))),
            ("Psoriase", Some((1, Means::Condition(vec![1])))),
            ("eczemas", Some((1, Means::Condition(vec![1, 2])))),
            ("neurosis", None),
            (", skin", None),
        ] {
            assert_eq!(longest(text), expect, "{text}");
        }
    }

    /// Goal: slips in clinics' names and other endings of long conditions are understood, short words never.
    /// Method: rows.
    #[test]
    fn near_misses() {
        let names = Names::new(&three_clinics());
        let nearly = |text: &str| match tokenize(text).first() {
            Some(Token::Word(w)) => names.nearly(w),
            _ => None,
        };
        assert_eq!(nearly("cardiolgy"), Some(Means::Clinic(vec![0])));
        assert_eq!(nearly("dermatolgoy"), Some(Means::Clinic(vec![1])));
        assert_eq!(nearly("hypertensive"), Some(Means::Condition(vec![0])));
        assert_eq!(nearly("hipertensos"), Some(Means::Condition(vec![0])));
        for none in ["urology", "psoriatic", "hypertrophic", "heard", "skim", "acme", "oncology"] {
            assert_eq!(nearly(none), None, "{none}");
        }
    }
}
