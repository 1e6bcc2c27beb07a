use callboard_message::text::fold;

use super::lexicon::{LEXICON, TermGroup};
use super::phrases::{RegistryPhrases, extend_unique};
use super::tokens::singular;

/// Maximum number of words of a condition, medicine or other text to search for. A query with more
/// is refused.
pub(super) const TOPIC_WORDS_MAX: usize = 8;

/// Condition, medicine or other medical word of a query.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TopicTerm {
    /// Texts of which one must match; the first is the one that the user knows.
    pub alternatives: Vec<String>,
    /// Clinics that list it as a condition, as indexes in the registry.
    pub clinics: Vec<usize>,
    pub is_medicine: bool,
    /// Chapters of ICD-10 that it belongs to, a letter each; empty if they aren't known.
    pub chapters: String,
}

impl TopicTerm {
    /// Creates the term for a condition that clinics list.
    pub fn listed(text: &str, clinics: &[usize]) -> Self {
        Self {
            alternatives: vec![text.to_owned()],
            clinics: clinics.to_vec(),
            ..Self::default()
        }
    }

    /// Creates the term for a medicine. Records may have its generic name or the typed spelling.
    pub fn medicine(generic: &str, typed: &str) -> Self {
        let mut alternatives = vec![typed.to_owned()];
        extend_unique(&mut alternatives, &[generic.replace('/', " ")]);
        Self {
            alternatives,
            is_medicine: true,
            ..Self::default()
        }
    }

    /// Creates the term for a medical word.
    pub fn word(text: &str, chapters: &str) -> Self {
        Self {
            alternatives: vec![text.to_owned()],
            chapters: chapters.to_owned(),
            ..Self::default()
        }
    }

    /// Creates the term for a word of the lexicon. Records may have it in the other language, and clinics may list
    /// conditions that it is a part of: `fibrilação`.
    pub fn medical_word(text: &str, chapters: &str, names: &RegistryPhrases) -> Self {
        let mut term = Self::word(text, chapters);
        extend_unique(&mut term.alternatives, &names.conditions_with(&fold(text)));
        let cognates = LEXICON.cognates(&fold(text));
        let cognates: Vec<String> = cognates.iter().map(|word| (*word).to_owned()).collect();
        let typed = fold(text);
        let is_same = |other: &String| singular(&typed) == singular(other);
        let others: Vec<String> = cognates.into_iter().filter(|w| !is_same(w)).collect();
        extend_unique(&mut term.alternatives, &others);
        term
    }

    /// Creates the term for a group of terms that the user mentioned as `typed`: the phrase that
    /// clinics list, else the group's own and the typed one, or its narrower terms.
    pub fn of_group(group: &TermGroup, typed: &str, names: &RegistryPhrases) -> Self {
        let first = group.phrases.first().copied().unwrap_or_default();
        let listed = names.conditions_of(group);
        let is_medicine = group
            .narrower
            .first()
            .is_some_and(|narrower| LEXICON.generic_name(narrower).is_some());
        let mut alternatives: Vec<String> = match (&listed, &group.narrower[..]) {
            (Some((text, _)), []) => vec![(*text).to_owned()],
            (None, []) => vec![first.to_owned()],
            (_, narrower) => narrower.iter().map(|text| (*text).to_owned()).collect(),
        };
        if listed.is_none() && group.narrower.is_empty() {
            extend_unique(&mut alternatives, &[typed.to_owned()]);
        }
        Self {
            alternatives,
            chapters: if is_medicine {
                String::new()
            } else {
                LEXICON.chapters(first)
            },
            clinics: listed.map_or_else(Vec::new, |(_, clinics)| clinics),
            is_medicine,
        }
    }
}
