//! Classification of the words and phrases of a query.

use callboard_message::text::{fold, is_one_of};

use super::lexicon::LEXICON;
use super::phrases::{PhraseKind, RegistryPhrases};
use super::reading::QuestionReading;
use super::refusal::PlanRefusal;
use super::term::TopicTerm;
use super::tokens::{NUMBER_WORDS, QueryToken, QueryWord, looks_like_an_id};
use super::vocabulary::{IDIOM_WORDS_MAX, WordRole, idiom_words, is_specialty, word_role};
use crate::plan::ClinicRegistry;

/// Phrases, in folded form, with a role that none of their words has alone.
const PHRASES: [(&str, WordRole); 18] = [
    ("social security", WordRole::Identity),
    ("seguranca social", WordRole::Identity),
    ("national insurance", WordRole::Identity),
    ("national id", WordRole::Identity),
    ("national ids", WordRole::Identity),
    ("postal code", WordRole::Identity),
    ("postal codes", WordRole::Identity),
    ("codigo postal", WordRole::Identity),
    ("where they live", WordRole::Identity),
    ("where do they live", WordRole::Identity),
    ("onde moram", WordRole::Identity),
    ("onde vivem", WordRole::Identity),
    ("deixou de", WordRole::Filter),
    ("deixaram de", WordRole::Filter),
    ("deixa de", WordRole::Filter),
    ("yet to", WordRole::Negation),
    ("free of", WordRole::Negation),
    ("free from", WordRole::Negation),
];

/// Word of a query, or phrase of several, with its classification.
#[derive(Debug)]
pub(super) struct TaggedPhrase {
    pub tag: PhraseTag,
    /// Words in lower case with accents, separated by spaces.
    pub shown: String,
    pub capital: bool,
}

impl TaggedPhrase {
    /// Returns whether it is a year: `2020`.
    pub fn is_year(&self) -> bool {
        self.shown.len() == 4
            && (self.shown.starts_with("19") || self.shown.starts_with("20"))
            && self.shown.bytes().all(|b| b.is_ascii_digit())
    }

    /// Returns whether it may stand before what is asked for: a filler, a verb, or a word such as `who`
    /// or `has`.
    pub fn is_lead(&self) -> bool {
        use WordRole::{Cue, Filler, Verb, What, Who};
        matches!(
            self.tag,
            PhraseTag::Vocabulary(Filler | Verb | What | Who | Cue)
        )
    }

    pub fn is_filler(&self) -> bool {
        use WordRole::{Filler, Form};
        matches!(self.tag, PhraseTag::Vocabulary(Filler | Form))
    }
}

#[derive(Debug, PartialEq)]
pub(super) enum PhraseTag {
    Vocabulary(WordRole),
    /// Name of a clinic, or synonym of its specialty, and the registry indexes of its clinics.
    Clinic(PhraseKind, Vec<usize>),
    Id(usize, String),
    Number,
    /// Condition of the registry, or term of the lexicon.
    Term(TopicTerm),
    /// Word with an everyday meaning that counts as a topic beside another one only.
    Weak,
    Unknown,
}

/// Returns the length in tokens of the phrase at the start of `tokens`, and the phrase; `None` for
/// a separating sign. A separating word, such as `and`, is a phrase.
///
/// # Errors
/// [`PlanRefusal`], if the phrase names an id, specialty or clinic that isn't registered.
pub(super) fn next_phrase(
    tokens: &[QueryToken],
    registry: &ClinicRegistry,
    names: &RegistryPhrases,
    reading: &QuestionReading,
) -> Result<(usize, Option<TaggedPhrase>), PlanRefusal> {
    let Some(word) = tokens.first().and_then(QueryToken::as_word) else {
        return Ok((1, None));
    };
    let phrase = |used: usize, tag| {
        let words = tokens[..used].iter().filter_map(QueryToken::as_word);
        let shown: Vec<&str> = words
            .map(|w| w.text.strip_suffix("'s").unwrap_or(&w.text))
            .collect();
        let phrase = TaggedPhrase {
            tag,
            shown: shown.join(" "),
            capital: word.is_capitalized,
        };
        (used, Some(phrase))
    };
    let typed = |used: usize| {
        let (_, phrase) = phrase(used, PhraseTag::Unknown);
        phrase.map(|p| p.shown).unwrap_or_default()
    };
    if let Some(used) = idiom_at(tokens) {
        return Ok(phrase(used, PhraseTag::Vocabulary(WordRole::Filler)));
    }
    if let Some((used, role)) = role_phrase_at(tokens) {
        return Ok(phrase(used, PhraseTag::Vocabulary(role)));
    }
    // "card 7", "CARD no. 7"
    let after = |at: usize| tokens.get(at).and_then(QueryToken::as_word);
    let between = usize::from(after(1).is_some_and(|w| is_one_of(&w.folded, NUMBER_WORDS)));
    if let Some(digits) = after(1 + between)
        && digits.folded.bytes().all(|b| b.is_ascii_digit())
        && let Some((clinic, id)) =
            registry.parse_patient_id(&format!("{}-{}", word.folded, digits.folded))
    {
        return Ok(phrase(2 + between, PhraseTag::Id(clinic, id)));
    }
    if let Some((used, clinic, id)) = spoken_id(tokens, registry) {
        return Ok(phrase(used, PhraseTag::Id(clinic, id)));
    }
    let listed = names.longest_match(tokens);
    let listed_words = listed.map_or(0, |found| found.words.len());
    let group = LEXICON
        .find_group(tokens, reading.is_shouted)
        .filter(|(_, used)| *used > listed_words);
    if let Some((group, used)) = group {
        let term = TopicTerm::of_group(group, &typed(used), names);
        return Ok(phrase(used, PhraseTag::Term(term)));
    }
    if let Some(found) = listed {
        let tag = match found.means {
            PhraseKind::Condition => {
                let typed = typed(found.words.len());
                // Clinics know their conditions as they are listed: `eczema`, not `eczemas`.
                let is_listed = fold(&typed) == fold(&found.text);
                let text = if is_listed { &typed } else { &found.text };
                PhraseTag::Term(TopicTerm::listed(text, &found.clinics))
            }
            means => PhraseTag::Clinic(means, found.clinics.clone()),
        };
        return Ok(phrase(found.words.len(), tag));
    }
    let tag = tag_known(word, registry, reading)?;
    if let Some(tag) = tag {
        return Ok(phrase(1, tag));
    }
    if let Some((generic, used)) = LEXICON.find_medicine(tokens) {
        let term = TopicTerm::medicine(generic, &typed(used));
        return Ok(phrase(used, PhraseTag::Term(term)));
    }
    Ok(phrase(1, tag_other(word, registry, names)?))
}

/// Returns the length in tokens of an id that is spelled out, its clinic and the id: "card dash zero two two". `None` if
/// there is none.
fn spoken_id(tokens: &[QueryToken], registry: &ClinicRegistry) -> Option<(usize, usize, String)> {
    const DIGITS_MIN: usize = 2;
    const DASHES: &str = "dash hyphen traco hifen";
    const DIGITS: [&str; 20] = [
        "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "zero",
        "um", "dois", "tres", "quatro", "cinco", "seis", "sete", "oito", "nove",
    ];
    let word = |at: usize| tokens.get(at).and_then(QueryToken::as_word);
    let prefix = word(0)?;
    let start = 1 + usize::from(word(1).is_some_and(|w| is_one_of(&w.folded, DASHES)));
    let digit = |at: usize| {
        DIGITS
            .iter()
            .position(|digit| word(at).is_some_and(|w| w.folded == *digit))
    };
    let digits: Vec<String> = (start..)
        .map_while(digit)
        .map(|at| (at % 10).to_string())
        .collect();
    if digits.len() < DIGITS_MIN {
        return None;
    }
    let (clinic, id) =
        registry.parse_patient_id(&format!("{}-{}", prefix.folded, digits.concat()))?;
    Some((start + digits.len(), clinic, id))
}

/// Returns the number of words of the phrase with a role of its own at the start of `tokens`, and the role; `None` if
/// there is none.
fn role_phrase_at(tokens: &[QueryToken]) -> Option<(usize, WordRole)> {
    let word = |at: usize| tokens.get(at).and_then(QueryToken::as_word);
    let begins = |phrase: &str| {
        let mut words = phrase.split(' ').enumerate();
        words.all(|(at, expected)| word(at).is_some_and(|w| w.folded == expected))
    };
    let (text, role) = PHRASES.iter().find(|(text, _)| begins(text))?;
    Some((text.split(' ').count(), *role))
}

/// Returns the number of words of the idiom at the start of `tokens`; `None` if there is none.
fn idiom_at(tokens: &[QueryToken]) -> Option<usize> {
    let ahead = tokens.iter().take(IDIOM_WORDS_MAX);
    let ahead: Vec<&str> = ahead
        .map_while(QueryToken::as_word)
        .map(|word| word.folded.as_str())
        .collect();
    idiom_words(&ahead)
}

/// Returns the tag of an id, a vocabulary word or a number; `None` for another word.
fn tag_known(
    word: &QueryWord,
    registry: &ClinicRegistry,
    reading: &QuestionReading,
) -> Result<Option<PhraseTag>, PlanRefusal> {
    // "CARD-001's"
    let folded = word.bare();
    if let Some((clinic, id)) = registry.parse_patient_id(folded) {
        return Ok(Some(PhraseTag::Id(clinic, id)));
    }
    // Portuguese "é" (is) is no "e" (and), and its "no" (in the) no negation.
    if word.text == "é" {
        return Ok(Some(PhraseTag::Vocabulary(WordRole::Filler)));
    }
    if folded == "no" && reading.is_english {
        return Ok(Some(PhraseTag::Vocabulary(WordRole::Negation)));
    }
    if let Some(known) = word_role(&word.folded).or_else(|| word_role(folded)) {
        return Ok(Some(PhraseTag::Vocabulary(known)));
    }
    if looks_like_an_id(folded) {
        let prefixes = registry
            .clinics()
            .iter()
            .filter(|c| !c.id_prefix.is_empty());
        let prefixes = prefixes
            .map(|c| format!("{}-", c.id_prefix))
            .collect::<Vec<_>>()
            .join(", ");
        return Err(PlanRefusal::NoSuchPrefix {
            id: folded.to_uppercase(),
            prefixes,
        });
    }
    if folded.starts_with(|c: char| c.is_ascii_digit()) {
        return Ok(Some(PhraseTag::Number));
    }
    Ok(None)
}

/// Returns the tag of a word that is neither in the vocabulary nor a medicine.
fn tag_other(
    word: &QueryWord,
    registry: &ClinicRegistry,
    names: &RegistryPhrases,
) -> Result<PhraseTag, PlanRefusal> {
    let folded = word.bare();
    if let Some(found) = names.stem_match(word) {
        return Ok(PhraseTag::Term(TopicTerm::listed(
            &found.text,
            &found.clinics,
        )));
    }
    if is_specialty(folded) {
        return Err(PlanRefusal::NoSuchSpecialty {
            specialty: word.text.clone(),
            specialties: registry.specialties(),
        });
    }
    if let Some(found) = LEXICON.word(folded) {
        return Ok(match found.is_weak {
            true => PhraseTag::Weak,
            false => PhraseTag::Term(TopicTerm::medical_word(&word.text, found.chapters, names)),
        });
    }
    if LEXICON.is_compound(folded) {
        let chapters = LEXICON.chapters(folded);
        return Ok(PhraseTag::Term(TopicTerm::word(&word.text, &chapters)));
    }
    if folded.starts_with("clinic_") || folded.starts_with("clinica_") {
        let clinics = registry
            .clinics()
            .iter()
            .map(|c| c.id.as_str())
            .collect::<Vec<_>>()
            .join(", ");
        return Err(PlanRefusal::NoSuchClinic {
            clinic: word.text.clone(),
            clinics,
        });
    }
    Ok(PhraseTag::Unknown)
}
