//! First reading of a query: spellings, capitals and language.

use std::collections::HashMap;

use super::lexicon::LEXICON;
use super::phrases::RegistryPhrases;
use super::spelling::{NearWords, typing_errors};
use super::tokens::{QueryToken, QueryWord, looks_like_an_id, tokenize};
use super::vocabulary::{is_english, is_specialty, role_words, word_role};
use crate::plan::ClinicRegistry;
use crate::verifier::word_lists::{EVERYDAY, MEDICAL};

/// Maximum number of unknown words of a query for which known ones are looked up. Further ones are
/// unknown without suggestions.
const UNKNOWN_WORDS_MAX: usize = 8;

/// Words of a query with corrected spellings.
#[derive(Debug)]
pub(super) struct SpelledQuery {
    pub tokens: Vec<QueryToken>,
    /// Sentences that tell which words were read as others.
    pub notes: Vec<String>,
    /// Known words that are near to an unknown one.
    suggestions: HashMap<String, Vec<String>>,
}

impl SpelledQuery {
    /// Splits a query into words, and replaces unknown ones by the known word that they stand for, if
    /// there is only one.
    pub fn read(query: &str, registry: &ClinicRegistry, names: &RegistryPhrases) -> Self {
        let mut this = Self {
            tokens: tokenize(query),
            notes: Vec::new(),
            suggestions: HashMap::new(),
        };
        let mut looked_up = 0;
        for at in 0..this.tokens.len() {
            let Some(word) = this.tokens[at].as_word() else {
                continue;
            };
            let after_stop = at == 0 || this.tokens[at - 1] == QueryToken::Stop;
            if is_known(word, registry, names)
                || is_everyday(word.bare())
                || this.suggestions.contains_key(&word.text)
            {
                continue;
            }
            looked_up += 1;
            if looked_up > UNKNOWN_WORDS_MAX {
                break;
            }
            let word = word.clone();
            let is_name_like = word.is_capitalized && !after_stop;
            let near = near_words(&word, names, is_name_like);
            let medicine =
                || LEXICON.near_medicine(word.bare(), medicine_errors_max(&word, is_name_like));
            let (correction, shown) = match near.corrections() {
                // Quoted, it would be a medicine that no clinic has.
                [] => (medicine(), String::new()),
                [known] if LEXICON.generic_name(known).is_some() => (Some(*known), String::new()),
                [known] => (Some(*known), word.text.clone()),
                _ => (None, String::new()),
            };
            match correction {
                Some(known) => {
                    let note = match shown.is_empty() {
                        // The search shows its name.
                        true => "I read a word as a medicine that is spelled alike.".to_owned(),
                        false => format!("I read \"{shown}\" as \"{known}\"."),
                    };
                    this.notes.push(note);
                    this.tokens[at] = QueryToken::Word(QueryWord {
                        text: known.to_owned(),
                        folded: known.to_owned(),
                        ..word
                    });
                }
                None => {
                    let suggestions = near.suggestions().map(str::to_owned).collect();
                    this.suggestions.insert(word.text, suggestions);
                }
            }
        }
        this.correct_within_phrases(registry, names);
        this
    }

    /// Replaces unknown words that are one typing error away from the only word that makes a known phrase
    /// with their neighbours: `hart failure`. This holds for short words too.
    fn correct_within_phrases(&mut self, registry: &ClinicRegistry, names: &RegistryPhrases) {
        let is_unknown = |token: &QueryToken| {
            let word = token.as_word();
            word.is_some_and(|word| !is_known(word, registry, names))
        };
        let unknown = (0..self.tokens.len()).filter(|at| is_unknown(&self.tokens[*at]));
        for at in unknown.take(UNKNOWN_WORDS_MAX).collect::<Vec<_>>() {
            let phrases = || names.phrase_words().chain(LEXICON.phrase_words());
            let mut found: Vec<&str> = phrases()
                .filter_map(|phrase| word_of_phrase(&self.tokens, at, phrase))
                .collect();
            found.sort_unstable();
            found.dedup();
            if let ([known], Some(word)) = (&found[..], self.tokens[at].as_word()) {
                let note = format!("I read \"{}\" as \"{known}\".", word.text);
                let word = QueryWord {
                    text: (*known).to_owned(),
                    folded: (*known).to_owned(),
                    ..word.clone()
                };
                self.tokens[at] = QueryToken::Word(word);
                self.notes.push(note);
            }
        }
    }

    /// Returns the query with other tokens.
    pub fn with_tokens(&self, tokens: Vec<QueryToken>) -> Self {
        Self {
            tokens,
            notes: self.notes.clone(),
            suggestions: self.suggestions.clone(),
        }
    }

    /// Returns a question that offers known words near to an unknown one; empty if there are none.
    pub fn suggestions_for(&self, word: &str) -> String {
        match self.suggestions.get(word).map(Vec::as_slice) {
            None | Some([]) => String::new(),
            Some(words) => {
                let words: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
                format!(": did you mean {}?", words.join(" or "))
            }
        }
    }
}

/// Returns the word of a phrase of two or more that the word at `at` misspells, where its neighbours are the
/// phrase's other words; `None` if they aren't.
fn word_of_phrase<'a>(tokens: &[QueryToken], at: usize, phrase: &'a [String]) -> Option<&'a str> {
    let equals = |at: usize, part: &String| {
        let word = tokens.get(at).and_then(QueryToken::as_word);
        word.is_some_and(|word| word.equals_singular(part))
    };
    let letters: Vec<char> = tokens.get(at)?.as_word()?.bare().chars().collect();
    let fits = |place: usize| {
        let Some(start) = at.checked_sub(place) else {
            return false;
        };
        let mut others = phrase.iter().enumerate().filter(|(part, _)| *part != place);
        others.all(|(part, word)| equals(start + part, word))
            && typing_errors(&letters, &phrase[place]).is_some_and(|errors| errors <= 1)
    };
    let place = (0..phrase.len()).find(|place| phrase.len() > 1 && fits(*place))?;
    Some(&phrase[place])
}

fn is_known(word: &QueryWord, registry: &ClinicRegistry, names: &RegistryPhrases) -> bool {
    const LETTERS_MIN: usize = 4;
    let folded = word.bare();
    word.folded.len() < LETTERS_MIN
        || folded.contains(|c: char| c.is_ascii_digit() || c == '_')
        || word_role(&word.folded).is_some()
        || word_role(folded).is_some()
        || registry.parse_patient_id(folded).is_some()
        || looks_like_an_id(folded)
        || names.has_word(folded)
        || LEXICON.is_term_word(folded)
        || LEXICON.word(folded).is_some()
        || LEXICON.is_compound(folded)
        || names.stem_match(word).is_some()
}

/// Returns whether a word is spelled correctly but has nothing to do with medicine: `chance` is no `chancre`.
fn is_everyday(folded: &str) -> bool {
    EVERYDAY.contains(folded) && !MEDICAL.contains(folded)
}

/// Returns how many typing errors a correction of the word may have.
fn errors_max(word: &QueryWord, is_name_like: bool) -> usize {
    // `urology` isn't `neurology`.
    match is_specialty(word.bare()) || is_name_like {
        true => 1,
        false => 2,
    }
}

/// Returns how many typing errors a correction of the word to a medicine may have. Short names of medicines are near to
/// everyday words: `programa` is no `Prograf`.
fn medicine_errors_max(word: &QueryWord, is_name_like: bool) -> usize {
    const LETTERS_MIN: usize = 9;
    match word.bare().chars().count() < LETTERS_MIN {
        true => 1,
        false => errors_max(word, is_name_like),
    }
}

/// Returns the known words near to an unknown one: of the registry, of the vocabulary and of terms,
/// then other medical words. A name-like word is only compared with the registry and terms.
fn near_words<'a>(
    word: &QueryWord,
    names: &'a RegistryPhrases,
    is_name_like: bool,
) -> NearWords<'a> {
    let folded = word.bare();
    let mut near = NearWords::new(folded);
    let errors_max = errors_max(word, is_name_like);
    near.collect(names.words(), errors_max);
    near.collect(LEXICON.term_words(), errors_max);
    if !is_name_like && !is_specialty(folded) {
        let known = |word: &'static str| -> &'a str { word };
        near.collect(role_words().map(known), 1);
        near.collect(LEXICON.medical_words().map(known), 1);
    }
    near
}

/// Capitals and language of a query.
#[derive(Debug, Clone, Copy)]
pub(super) struct QuestionReading {
    /// Whether all words begin with a capital letter, so that capitals don't indicate a name.
    pub is_title_case: bool,
    /// Whether all letters are capital, so that capitals don't indicate an abbreviation.
    pub is_shouted: bool,
    pub is_english: bool,
}

impl QuestionReading {
    pub fn new(query: &SpelledQuery) -> Self {
        let words = || query.tokens.iter().filter_map(QueryToken::as_word);
        Self {
            is_title_case: words().all(|w| w.is_capitalized),
            is_shouted: words().filter(|w| w.folded.len() > 1).all(|w| w.is_upper)
                && words().count() > 1,
            is_english: is_english(words().map(|w| w.folded.as_str())),
        }
    }
}
