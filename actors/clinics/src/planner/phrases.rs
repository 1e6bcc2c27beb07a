use std::collections::{BTreeSet, HashMap, HashSet};

use super::lexicon::{LEXICON, TermGroup};
use super::tokens::{QueryToken, QueryWord, singular, tokenize};
use crate::plan::{ClinicEntry, ClinicRegistry};

/// Phrases of the clinic registry, indexed by their first word.
#[derive(Debug)]
pub(super) struct RegistryPhrases {
    phrases: HashMap<String, Vec<RegistryPhrase>>,
    /// Words of the phrases, in folded form and in singular form.
    words: BTreeSet<String>,
    singular_words: HashSet<String>,
    /// Chapters of ICD-10 that a fifth or more of a clinic's conditions belong to.
    chapters: HashSet<char>,
}

/// Phrase of the clinic registry, and the clinics that have it.
#[derive(Debug)]
pub(super) struct RegistryPhrase {
    /// Phrase in lower case with accents, as it is sent to clinics.
    pub text: String,
    /// Words of the phrase, in singular form.
    pub words: Vec<String>,
    pub means: PhraseKind,
    /// Registry indexes of the clinics that have the phrase.
    pub clinics: Vec<usize>,
}

/// Kind of a phrase of the clinic registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PhraseKind {
    /// Id or specialty of a clinic, or a related word such as `cardiologist`.
    Clinic,
    /// Synonym of a specialty, which may also be part of a condition: `skin` in `skin rash`.
    Synonym,
    /// Condition that a clinic treats.
    Condition,
}

impl RegistryPhrases {
    pub fn new(registry: &ClinicRegistry) -> Self {
        let mut names = Self {
            phrases: HashMap::new(),
            words: BTreeSet::new(),
            singular_words: HashSet::new(),
            chapters: registry.clinics().iter().flat_map(main_chapters).collect(),
        };
        for (at, clinic) in registry.clinics().iter().enumerate() {
            let phrases = [
                (PhraseKind::Clinic, &proper_names(clinic)),
                (PhraseKind::Synonym, &clinic.synonyms),
                (PhraseKind::Condition, &clinic.conditions),
            ];
            for (means, texts) in phrases {
                texts.iter().for_each(|text| names.add(text, means, at));
            }
        }
        for phrases in names.phrases.values_mut() {
            phrases.sort_by_key(|p| std::cmp::Reverse(p.words.len()));
        }
        names
    }

    fn add(&mut self, text: &str, means: PhraseKind, clinic: usize) {
        let tokens = tokenize(text);
        let words: Vec<String> = tokens
            .iter()
            .filter_map(QueryToken::as_word)
            .map(|w| singular(w.bare()).to_owned())
            .collect();
        let shown = tokens.iter().filter_map(QueryToken::as_word);
        let shown: Vec<&str> = shown.map(|w| w.text.as_str()).collect();
        let Some(first) = words.first().cloned() else {
            return;
        };
        self.singular_words.extend(words.iter().cloned());
        let spelled = tokens.iter().filter_map(QueryToken::as_word);
        self.words.extend(spelled.map(|w| w.bare().to_owned()));
        let phrases = self.phrases.entry(first).or_default();
        match phrases
            .iter_mut()
            .find(|p| p.words == words && p.means == means)
        {
            Some(phrase) => extend_unique(&mut phrase.clinics, &[clinic]),
            // The first kind of a phrase takes precedence: a specialty of one clinic stays one if
            // another clinic lists it as a synonym.
            None => phrases.push(RegistryPhrase {
                text: shown.join(" "),
                words,
                means,
                clinics: vec![clinic],
            }),
        }
    }

    /// Returns the longest phrase of the registry at the start of `tokens`; `None` if there is
    /// none.
    pub fn longest_match(&self, tokens: &[QueryToken]) -> Option<&RegistryPhrase> {
        let word = |at: usize| tokens.get(at).and_then(QueryToken::as_word);
        let fits = |p: &&RegistryPhrase| {
            p.words
                .iter()
                .enumerate()
                .all(|(at, p)| word(at).is_some_and(|w| w.equals_singular(p)))
        };
        self.phrases
            .get(singular(word(0)?.bare()))?
            .iter()
            .find(fits)
    }

    /// Returns the one-word condition of which `word` is another form: `hypertensive`, `hipertensos`.
    /// `None` if there is none, or several of different clinics.
    pub fn stem_match(&self, word: &QueryWord) -> Option<&RegistryPhrase> {
        let near = |p: &&RegistryPhrase| match (p.means, &p.words[..]) {
            (PhraseKind::Condition, [name]) => same_stem(&word.folded, name),
            _ => false,
        };
        // Two candidates of different clinics are ambiguous. The nearest in the alphabet is the
        // same in each process.
        let mut found: Vec<_> = self.phrases.values().flatten().filter(near).collect();
        found.sort_unstable_by_key(|p| &p.words);
        let first = *found.first()?;
        found
            .iter()
            .all(|p| p.clinics == first.clinics)
            .then_some(first)
    }

    /// Returns the conditions of the registry that mean the same as a group of terms, or are
    /// narrower: the phrase to search for, and the clinics that list any of them. `None` if no
    /// clinic does.
    pub fn conditions_of(&self, group: &TermGroup) -> Option<(&str, Vec<usize>)> {
        let mut text = None;
        let mut clinics = Vec::new();
        for (at, phrase) in group.phrases.iter().chain(&group.narrower).enumerate() {
            let tokens = tokenize(phrase);
            let Some(found) = self.longest_match(&tokens) else {
                continue;
            };
            if found.means == PhraseKind::Condition && found.words.len() == tokens.len() {
                extend_unique(&mut clinics, &found.clinics);
                if at < group.phrases.len() {
                    text = text.or(Some(found.text.as_str()));
                }
            }
        }
        clinics.sort_unstable();
        let canonical = group.phrases.first()?;
        (!clinics.is_empty()).then(|| (text.unwrap_or(canonical), clinics))
    }

    /// Returns the conditions of two or more words that begin with a word in folded form, sorted: `fibrilação atrial`
    /// for `fibrilacao`. Empty if there are more than a search has room for.
    pub fn conditions_with(&self, folded: &str) -> Vec<String> {
        const CONDITIONS_MAX: usize = 3;
        let word = singular(folded);
        let has_word = |p: &&RegistryPhrase| {
            p.means == PhraseKind::Condition && p.words.len() > 1 && p.words[0] == word
        };
        let mut found: Vec<String> = { self.phrases.values().flatten() }
            .filter(has_word)
            .map(|p| p.text.clone())
            .collect();
        found.sort_unstable();
        if found.len() > CONDITIONS_MAX {
            found.clear();
        }
        found
    }

    /// Returns the words of every phrase of the registry, in singular form.
    pub fn phrase_words(&self) -> impl Iterator<Item = &[String]> {
        self.phrases.values().flatten().map(|p| p.words.as_slice())
    }

    /// Returns whether a word in folded form is part of a phrase of the registry.
    pub fn has_word(&self, folded: &str) -> bool {
        self.singular_words.contains(singular(folded))
    }

    /// Returns every word of the registry's phrases in folded form, sorted.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        self.words.iter().map(String::as_str)
    }

    /// Returns whether diseases of these chapters of ICD-10 are none that the clinics treat: the
    /// chapters are known, and no clinic has a main one among them.
    pub fn is_foreign(&self, chapters: &str) -> bool {
        /// Symptoms and injuries, which every specialty sees.
        const EVERYBODYS: [char; 2] = ['R', 'S'];
        !chapters.is_empty()
            && !self.chapters.is_empty()
            && !chapters.contains(EVERYBODYS)
            && !chapters
                .chars()
                .any(|chapter| self.chapters.contains(&chapter))
    }
}

/// Appends those items to `to` that it doesn't hold yet, in order.
pub(super) fn extend_unique<T: Clone + PartialEq>(to: &mut Vec<T>, from: &[T]) {
    for item in from {
        if !to.contains(item) {
            to.push(item.clone());
        }
    }
}

/// Returns the chapters of ICD-10 that a fifth or more of a clinic's conditions belong to, of those
/// that belong to any.
fn main_chapters(clinic: &ClinicEntry) -> Vec<char> {
    let found: Vec<String> = clinic
        .conditions
        .iter()
        .map(|condition| LEXICON.chapters(condition))
        .filter(|chapters| !chapters.is_empty())
        .collect();
    let mut counts: HashMap<char, usize> = HashMap::new();
    for chapters in &found {
        for chapter in chapters.chars().collect::<HashSet<_>>() {
            *counts.entry(chapter).or_default() += 1;
        }
    }
    let is_main = |count: usize| count * 5 >= found.len();
    counts
        .into_iter()
        .filter_map(|(chapter, count)| is_main(count).then_some(chapter))
        .collect()
}

/// Returns the phrases that name a clinic: its id, as it is, with spaces, and with `clínica`; and
/// its specialty. For a specialty with `-logy`, also related words in both languages, and short
/// forms.
fn proper_names(clinic: &ClinicEntry) -> Vec<String> {
    let spaced = clinic.id.replace(['_', '-', '.'], " ");
    let mut names = vec![
        spaced.replace("clinic ", "clínica "),
        spaced,
        clinic.id.clone(),
        clinic.specialty.clone(),
    ];
    if let Some(stem) = clinic.specialty.to_lowercase().strip_suffix("logy") {
        let endings = "logia logist logista logic logical logico logica".split(' ');
        names.extend(endings.map(|ending| format!("{stem}{ending}")));
        names.push(stem.to_owned());
    }
    // `derm`, which is also the beginning of the specialty.
    const PREFIX_LETTERS_MIN: usize = 4;
    let prefix = clinic.id_prefix.to_lowercase();
    if prefix.len() >= PREFIX_LETTERS_MIN && clinic.specialty.to_lowercase().starts_with(&prefix) {
        // `derma`, which is longer, and no whole stem.
        let longer = prefix.len() + 1..clinic.specialty.len().min(prefix.len() + 2);
        let specialty = clinic.specialty.to_lowercase();
        names.extend(longer.filter_map(|len| specialty.get(..len).map(str::to_owned)));
        names.push(prefix);
    }
    names
}

/// Minimum length of the common prefix, in letters, of two words that count as forms of the same
/// word.
const STEM_LETTERS_MIN: usize = 8;
/// Maximum length of the ending after the common prefix, in letters, of two forms of the same word.
const STEM_ENDING_LETTERS_MAX: usize = 5;

fn same_stem(a: &str, b: &str) -> bool {
    let (a_letters, b_letters) = (a.chars().count(), b.chars().count());
    let stem = a.chars().zip(b.chars()).take_while(|(x, y)| x == y).count();
    stem >= STEM_LETTERS_MIN && a_letters.max(b_letters) - stem <= STEM_ENDING_LETTERS_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::samples::three_clinics;

    /// Goal: the longest phrase wins and says what it is; a condition of two clinics names both. Method: rows.
    #[test]
    fn phrases() {
        let names = RegistryPhrases::new(&three_clinics());
        for (text, expect) in [
            (
                "cardiology patients",
                Some((1, PhraseKind::Clinic, vec![0])),
            ),
            ("dermatologista", Some((1, PhraseKind::Clinic, vec![1]))),
            ("clinic_c", Some((1, PhraseKind::Clinic, vec![2]))),
            ("clinic c now", Some((2, PhraseKind::Clinic, vec![2]))),
            ("skin cancer", Some((2, PhraseKind::Condition, vec![1]))),
            ("skin rash", Some((1, PhraseKind::Synonym, vec![1]))),
            ("hearts", Some((1, PhraseKind::Synonym, vec![0]))),
            ("Psoriase", Some((1, PhraseKind::Condition, vec![1]))),
            ("eczemas", Some((1, PhraseKind::Condition, vec![1, 2]))),
            ("neurosis", None),
            (", skin", None),
        ] {
            let found = names
                .longest_match(&tokenize(text))
                .map(|p| (p.words.len(), p.means, p.clinics.clone()));
            assert_eq!(found, expect, "{text}");
        }
    }

    /// Goal: other endings of long conditions are understood, short words never. Method: rows.
    #[test]
    fn other_endings() {
        let names = RegistryPhrases::new(&three_clinics());
        for (text, expect) in [
            ("hypertensive", Some("hypertension")),
            ("hipertensos", Some("hipertensão")),
            ("psoriatic", None),
            ("hypertrophic", None),
            ("heard", None),
            ("acme", None),
        ] {
            let tokens = tokenize(text);
            let word = tokens.first().and_then(QueryToken::as_word);
            let found = word.and_then(|word| names.stem_match(word));
            assert_eq!(found.map(|p| p.text.as_str()), expect, "{text}");
        }
    }

    /// Goal: a disease of another specialty is told from one that nobody has. Method: diseases of the
    /// clinics' chapters of ICD-10 and of others.
    #[test]
    fn foreign_diseases() {
        let names = RegistryPhrases::new(&three_clinics());
        for (word, is_foreign) in [
            ("diabetes", true),
            ("cataract", true),
            ("endocarditis", false),
            ("vitiligo", false),
            ("pain", false),
            ("", false),
        ] {
            let chapters = LEXICON.chapters(word);
            assert_eq!(
                names.is_foreign(&chapters),
                is_foreign,
                "{word}: {chapters}"
            );
        }
    }
}
