use std::collections::HashMap;

use super::vocabulary::{
    QueryToken, QueryWord, WordRole, is_specialty, singular, tokenize, word_role,
};
use crate::plan::{ClinicEntry, ClinicRegistry, STEPS_MAX};

/// Maximum number of words of a condition, medicine or other text to search for. A query with more
/// is refused with [`PlanRefusal::LongTopic`].
const TOPIC_WORDS_MAX: usize = 8;

/// Part of a query between two separators, such as commas or conjunctions. Its flags tell which
/// [`WordRole`]s its words have. Parts that it lacks, such as the clinic, may be taken from its
/// neighbours.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Fragment {
    /// Index of the sentence that holds the fragment.
    pub sentence: usize,
    pub verb: bool,
    pub patients: bool,
    pub record: bool,
    pub medication: bool,
    pub taking: bool,
    pub pronoun: bool,
    pub all: bool,
    pub both: bool,
    /// Patient ids. Each comes with the registry index of the clinic whose id prefix it has.
    pub ids: Vec<(usize, String)>,
    /// Clinics that the fragment names, as indexes in the registry.
    pub clinics: Vec<usize>,
    /// Condition, medicine or other text that the fragment asks to search for; `None` if it asks
    /// for no search, or its own words include a patient id.
    pub topic: Option<SearchTopic>,
}

/// Text to search for: conditions of the registry, and words that neither the registry nor the
/// vocabulary knows. Some other words next to these belong to it: `skin rash`, `type 2`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SearchTopic {
    /// Words of the topic in lower case with accents, separated by spaces.
    pub text: String,
    /// Clinics that list any condition in the text, as indexes in the registry; empty if there are
    /// none.
    pub seen_at: Vec<usize>,
}

impl Fragment {
    /// Returns whether the fragment names a kind of data: patients, records or medications.
    pub fn has_subject(&self) -> bool {
        self.patients || self.record || self.medication || self.taking
    }

    /// Returns whether the fragment requests nothing, such as `please`.
    pub fn is_empty(&self) -> bool {
        !self.verb
            && !self.has_subject()
            && !self.all
            && self.ids.is_empty()
            && self.clinics.is_empty()
            && self.topic.is_none()
    }

    /// Returns whether the fragment names clinics and nothing else, except perhaps a verb, a
    /// pronoun or a word such as `all`.
    pub fn has_only_clinics(&self) -> bool {
        !self.clinics.is_empty()
            && !self.has_subject()
            && self.ids.is_empty()
            && self.topic.is_none()
    }
}

/// Word of a query, or phrase that the registry knows, with its classification.
struct TaggedPhrase {
    tag: PhraseTag,
    shown: String,
    capital: bool,
}

#[derive(PartialEq)]
enum PhraseTag {
    Vocabulary(WordRole),
    /// Phrase of the registry: its kind, and the registry indexes of its clinics.
    Registry(PhraseKind, Vec<usize>),
    Id(usize, String),
    Number,
    Topic,
}

/// Splits a query into fragments, without those that request nothing. Fails if a part of the query
/// must not be planned, for example one that names a person.
pub(super) fn split_fragments(
    query: &str,
    registry: &ClinicRegistry,
    names: &RegistryPhrases,
) -> Result<Vec<Fragment>, PlanRefusal> {
    let tokens = tokenize(query);
    let shouted = !tokens
        .iter()
        .any(|t| matches!(t, QueryToken::Word(w) if !w.is_capitalized));
    let (mut fragments, mut pieces, mut sentence, mut at) = (Vec::new(), Vec::new(), 0, 0);
    while at < tokens.len() {
        let (used, piece) = next_phrase(&tokens[at..], registry, names)?;
        at += used;
        match piece {
            Some(TaggedPhrase {
                tag: PhraseTag::Vocabulary(WordRole::Join | WordRole::Stop),
                ..
            })
            | None => {
                fragments.push(build_fragment(&pieces, sentence, shouted, registry)?);
                pieces.clear();
                let stops = tokens[at - 1] == QueryToken::Stop
                    || piece.is_some_and(|p| p.tag == PhraseTag::Vocabulary(WordRole::Stop));
                sentence += usize::from(stops);
            }
            Some(piece) => pieces.push(piece),
        }
    }
    fragments.push(build_fragment(&pieces, sentence, shouted, registry)?);
    fragments.retain(|f| !f.is_empty());
    Ok(fragments)
}

/// Returns the length in tokens of the phrase at the start of `tokens`, and the phrase; `None` for
/// a separating sign. A separating word, such as `and`, is a phrase.
///
/// # Errors
/// [`PlanRefusal`], if the phrase names an id, specialty or clinic that isn't registered.
fn next_phrase(
    tokens: &[QueryToken],
    registry: &ClinicRegistry,
    names: &RegistryPhrases,
) -> Result<(usize, Option<TaggedPhrase>), PlanRefusal> {
    let Some(word) = tokens.first().and_then(QueryToken::as_word) else {
        return Ok((1, None));
    };
    let capital = word.is_capitalized;
    if let Some(phrase) = names.longest_match(tokens) {
        let used = phrase.words.len();
        let shown: Vec<&str> = tokens[..used]
            .iter()
            .filter_map(QueryToken::as_word)
            .map(|w| &*w.text)
            .collect();
        return Ok((
            used,
            Some(TaggedPhrase {
                tag: phrase.tag(),
                shown: shown.join(" "),
                capital,
            }),
        ));
    }
    let piece = |tag| {
        Some(TaggedPhrase {
            tag,
            shown: word.text.clone(),
            capital,
        })
    };
    if let Some(digits) = tokens.get(1).and_then(QueryToken::as_word)
        && digits.folded.bytes().all(|b| b.is_ascii_digit())
        && let Some((clinic, id)) =
            registry.parse_patient_id(&format!("{}-{}", word.folded, digits.folded))
    {
        return Ok((2, piece(PhraseTag::Id(clinic, id))));
    }
    Ok((1, piece(tag_word(word, registry, names)?)))
}

fn tag_word(
    word: &QueryWord,
    registry: &ClinicRegistry,
    names: &RegistryPhrases,
) -> Result<PhraseTag, PlanRefusal> {
    // "CARD-001's"
    let folded = word.folded.strip_suffix("'s").unwrap_or(&word.folded);
    if let Some((clinic, id)) = registry.parse_patient_id(folded) {
        return Ok(PhraseTag::Id(clinic, id));
    }
    if let Some(known) = word_role(folded) {
        return Ok(PhraseTag::Vocabulary(known));
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
        return Ok(PhraseTag::Number);
    }
    if let Some(phrase) = names.closest_match(word) {
        return Ok(phrase.tag());
    }
    if is_specialty(folded) {
        return Err(PlanRefusal::NoSuchSpecialty {
            specialty: word.text.clone(),
            specialties: registry.specialties(),
        });
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
    Ok(PhraseTag::Topic)
}

/// Returns whether a word has the form of an id: letters, an optional hyphen, and three or more
/// digits. (`covid-19` is a condition.)
fn looks_like_an_id(folded: &str) -> bool {
    const DIGITS_MIN: usize = 3;
    let digits = folded.trim_start_matches(|c: char| c.is_ascii_lowercase());
    let letters = folded.len() - digits.len();
    let digits = digits.strip_prefix('-').unwrap_or(digits);
    letters > 0 && digits.len() >= DIGITS_MIN && digits.bytes().all(|b| b.is_ascii_digit())
}

fn build_fragment(
    pieces: &[TaggedPhrase],
    sentence: usize,
    shouted: bool,
    registry: &ClinicRegistry,
) -> Result<Fragment, PlanRefusal> {
    let mut fragment = Fragment {
        sentence,
        ..Fragment::default()
    };
    for piece in pieces {
        let word = || piece.shown.clone();
        match &piece.tag {
            PhraseTag::Vocabulary(known) => match known {
                WordRole::Verb => fragment.verb = true,
                WordRole::Patients | WordRole::OnePatient => fragment.patients = true,
                WordRole::Record => fragment.record = true,
                WordRole::Medication => fragment.medication = true,
                WordRole::Taking => fragment.taking = true,
                WordRole::Pronoun => fragment.pronoun = true,
                WordRole::All => fragment.all = true,
                WordRole::Both => (fragment.all, fragment.both) = (true, true),
                WordRole::Clinics => extend_unique(
                    &mut fragment.clinics,
                    &(0..registry.clinics().len()).collect::<Vec<_>>(),
                ),
                WordRole::Negation => return Err(PlanRefusal::Negation(word())),
                WordRole::Change => return Err(PlanRefusal::Change(word())),
                WordRole::Advice => return Err(PlanRefusal::Advice(word())),
                WordRole::Compare => return Err(PlanRefusal::Compare(word())),
                WordRole::Filter => return Err(PlanRefusal::Filter(word())),
                WordRole::NameCue
                | WordRole::Filler
                | WordRole::Of
                | WordRole::Join
                | WordRole::Stop => {}
            },
            PhraseTag::Registry(PhraseKind::Clinic | PhraseKind::Synonym, at) => {
                extend_unique(&mut fragment.clinics, at)
            }
            PhraseTag::Id(at, id) => fragment.ids.push((*at, id.clone())),
            PhraseTag::Registry(PhraseKind::Condition, _)
            | PhraseTag::Number
            | PhraseTag::Topic => {}
        }
    }
    if fragment.ids.is_empty() {
        refuse_names(pieces, shouted)?;
        fragment.topic = build_topic(pieces)?;
    }
    Ok(fragment)
}

/// Refuses a fragment that seems to contain a person's name with [`PlanRefusal::ByName`]: a word
/// such as `named`, two unknown capitalised words, or one after a word such as `patient`. Otherwise
/// the name would be sent to clinics that have no such patient. `shouted` tells that all words of
/// the query are capitalised, so that capitals don't indicate a name.
fn refuse_names(pieces: &[TaggedPhrase], shouted: bool) -> Result<(), PlanRefusal> {
    let name_like = |p: &TaggedPhrase| p.tag == PhraseTag::Topic && p.capital && !shouted;
    let pairs = || pieces.iter().zip(pieces.iter().skip(1));
    let named = pieces
        .iter()
        .any(|p| p.tag == PhraseTag::Vocabulary(WordRole::NameCue))
        || pairs().any(|(a, b)| {
            (a.tag == PhraseTag::Vocabulary(WordRole::OnePatient) || name_like(a)) && name_like(b)
        });
    if named {
        Err(PlanRefusal::ByName)
    } else {
        Ok(())
    }
}

fn build_topic(pieces: &[TaggedPhrase]) -> Result<Option<SearchTopic>, PlanRefusal> {
    let tag = |at: Option<usize>| at.and_then(|at| pieces.get(at)).map(|p| &p.tag);
    let is_plain = |at: Option<usize>| tag(at) == Some(&PhraseTag::Topic);
    let is_topic = |at: usize| match &pieces[at].tag {
        PhraseTag::Topic | PhraseTag::Registry(PhraseKind::Condition, _) => true,
        // `skin rash` is searched as a whole, while `skin patients` only names a clinic.
        PhraseTag::Registry(PhraseKind::Synonym, _) => {
            is_plain(at.checked_sub(1)) || is_plain(Some(at + 1))
        }
        // `type 2 diabetes`
        PhraseTag::Number => is_plain(at.checked_sub(1)),
        _ => false,
    };
    if let Some(number) =
        (0..pieces.len()).find(|at| pieces[*at].tag == PhraseTag::Number && !is_topic(*at))
    {
        return Err(PlanRefusal::Filter(pieces[number].shown.clone()));
    }
    let mut words: Vec<&str> = Vec::new();
    let mut seen_at = Vec::new();
    for at in 0..pieces.len() {
        let between = pieces[at].tag == PhraseTag::Vocabulary(WordRole::Of)
            && at.checked_sub(1).is_some_and(is_topic)
            && at + 1 < pieces.len()
            && is_topic(at + 1);
        if is_topic(at) || between {
            words.extend(pieces[at].shown.split(' '));
        }
        if let PhraseTag::Registry(PhraseKind::Condition, clinics) = &pieces[at].tag {
            extend_unique(&mut seen_at, clinics);
        }
    }
    if words.len() > TOPIC_WORDS_MAX {
        return Err(PlanRefusal::LongTopic {
            start: words[..3].join(" "),
        });
    }
    Ok((!words.is_empty()).then(|| SearchTopic {
        text: words.join(" "),
        seen_at,
    }))
}

/// Appends those items to `to` that it doesn't hold yet, in order.
pub(super) fn extend_unique<T: Clone + PartialEq>(to: &mut Vec<T>, from: &[T]) {
    for item in from {
        if !to.contains(item) {
            to.push(item.clone());
        }
    }
}

/// Phrases of the clinic registry, indexed by their first word.
#[derive(Debug)]
pub(super) struct RegistryPhrases {
    phrases: HashMap<String, Vec<RegistryPhrase>>,
}

#[derive(Debug)]
struct RegistryPhrase {
    /// Words of the phrase, in singular form.
    words: Vec<String>,
    means: PhraseKind,
    /// Registry indexes of the clinics that have the phrase.
    clinics: Vec<usize>,
}

impl RegistryPhrase {
    fn tag(&self) -> PhraseTag {
        PhraseTag::Registry(self.means, self.clinics.clone())
    }
}

/// Kind of a phrase of the clinic registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PhraseKind {
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
            .map(|w| singular(&w.folded).to_owned())
            .collect();
        let Some(first) = words.first().cloned() else {
            return;
        };
        let phrases = self.phrases.entry(first).or_default();
        match phrases
            .iter_mut()
            .find(|p| p.words == words && p.means == means)
        {
            Some(phrase) => extend_unique(&mut phrase.clinics, &[clinic]),
            // The first kind of a phrase takes precedence: a specialty of one clinic stays one if
            // another clinic lists it as a synonym.
            None => phrases.push(RegistryPhrase {
                words,
                means,
                clinics: vec![clinic],
            }),
        }
    }

    /// Returns the longest phrase of the registry at the start of `tokens`; `None` if there is
    /// none.
    fn longest_match(&self, tokens: &[QueryToken]) -> Option<&RegistryPhrase> {
        let word = |at: usize| tokens.get(at).and_then(QueryToken::as_word);
        let fits = |p: &&RegistryPhrase| {
            p.words
                .iter()
                .enumerate()
                .all(|(at, p)| word(at).is_some_and(|w| w.equals_singular(p)))
        };
        self.phrases
            .get(singular(&word(0)?.folded))?
            .iter()
            .find(fits)
    }

    /// Returns the one-word registry phrase that `word` probably means: a clinic's name with one
    /// typing error, or another ending of a long condition (`hypertensive`, `hipertensos`). `None`
    /// if there is none, or several with different meanings.
    fn closest_match(&self, word: &QueryWord) -> Option<&RegistryPhrase> {
        let near = |p: &&RegistryPhrase| match (p.means, &p.words[..]) {
            (PhraseKind::Clinic, [name]) => differs_by_one_typo(singular(&word.folded), name),
            (PhraseKind::Condition, [name]) => same_stem(&word.folded, name),
            _ => false,
        };
        // Two candidates with different meanings are ambiguous.
        let mut found = self.phrases.values().flatten().filter(near);
        let first = found.next()?;
        found
            .all(|p| (p.means, &p.clinics) == (first.means, &first.clinics))
            .then_some(first)
    }
}

/// Returns the phrases that name a clinic: its id, as it is, with spaces, and with `clínica`; and
/// its specialty. For a specialty with `-logy`, also related words in both languages.
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
    }
    names
}

/// Minimum letters both of a clinic's name and of a word that may be it with one typing error.
const TYPO_LETTERS_MIN: usize = 8;
/// Minimum length of the common prefix, in letters, of two words that count as forms of the same
/// word.
const STEM_LETTERS_MIN: usize = 8;
/// Maximum length of the ending after the common prefix, in letters, of two forms of the same word.
const STEM_ENDING_LETTERS_MAX: usize = 5;

/// Returns whether two words of at least [`TYPO_LETTERS_MIN`] letters differ by at most one letter:
/// wrong, missing, extra, or swapped with its neighbour. `false` for shorter words.
fn differs_by_one_typo(a: &str, b: &str) -> bool {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    if a.len().min(b.len()) < TYPO_LETTERS_MIN || a.len().abs_diff(b.len()) > 1 {
        return false;
    }
    let front = a.iter().zip(&b).take_while(|(x, y)| x == y).count();
    let back = a
        .iter()
        .rev()
        .zip(b.iter().rev())
        .take_while(|(x, y)| x == y)
        .count();
    let (left_a, left_b) = (
        a.len().saturating_sub(front + back),
        b.len().saturating_sub(front + back),
    );
    left_a.max(left_b) <= 1
        || (left_a == 2 && left_b == 2 && a[front] == b[front + 1] && a[front + 1] == b[front])
}

fn same_stem(a: &str, b: &str) -> bool {
    let (a_letters, b_letters) = (a.chars().count(), b.chars().count());
    let stem = a.chars().zip(b.chars()).take_while(|(x, y)| x == y).count();
    stem >= STEM_LETTERS_MIN && a_letters.max(b_letters) - stem <= STEM_ENDING_LETTERS_MAX
}

/// Reason a query isn't planned, as a sentence for the user that suggests an alternative.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum PlanRefusal {
    #[error("There is nothing to ask. Try: list all cardiology patients.")]
    Empty,
    #[error(
        "I did not understand what to ask of which clinic. Name a specialty ({specialties}), a condition or \
         a patient id."
    )]
    NotUnderstood { specialties: String },
    #[error(
        "I can list patients, show one by id, check one's medications, or search for a condition. Say which you want."
    )]
    SayWhat,
    #[error("No clinic here treats {specialty}. Registered are: {specialties}.")]
    NoSuchSpecialty {
        specialty: String,
        specialties: String,
    },
    #[error("No clinic here is called {clinic}. Registered are: {clinics}.")]
    NoSuchClinic { clinic: String, clinics: String },
    #[error("No clinic here has patient ids like {id}. Known are: {prefixes}.")]
    NoSuchPrefix { id: String, prefixes: String },
    #[error(
        "{id} is a patient of {owner}, not of the clinic that you named. Ask one clinic at a time about its \
         own patients."
    )]
    WrongClinic { id: String, owner: String },
    #[error("That needs a patient id, such as {example}. List the clinic's patients to find it.")]
    NeedsId { example: String },
    #[error(
        "Patients are found by id or condition, never by name. List the clinic's patients to find the id."
    )]
    ByName,
    #[error("I can't leave anything out (\"{0}\"). Say what you want to see instead.")]
    Negation(String),
    #[error(
        "The clinics can only be read (\"{0}\" is not possible). Ask to list, show, check or search."
    )]
    Change(String),
    #[error(
        "That is a physician's judgement (\"{0}\"). I can show what the clinics have recorded."
    )]
    Advice(String),
    #[error("Clinics are never compared or joined (\"{0}\"). Ask each of them by itself.")]
    Compare(String),
    #[error(
        "The clinics can't select by age, date, number or order (\"{0}\"). List patients or search for a condition."
    )]
    Filter(String),
    #[error(
        "\"{start} …\" is too long for a condition. Search for one to {TOPIC_WORDS_MAX} words."
    )]
    LongTopic { start: String },
    #[error("That is {steps} steps, more than {STEPS_MAX}. Ask for less at once.")]
    TooManySteps { steps: usize },
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

    /// Goal: slips in clinics' names and other endings of long conditions are understood, short words never.
    /// Method: rows.
    #[test]
    fn near_misses() {
        let names = RegistryPhrases::new(&three_clinics());
        for (text, expect) in [
            ("cardiolgy", Some((PhraseKind::Clinic, 0))),
            ("dermatolgoy", Some((PhraseKind::Clinic, 1))),
            ("hypertensive", Some((PhraseKind::Condition, 0))),
            ("hipertensos", Some((PhraseKind::Condition, 0))),
            ("urology", None),
            ("psoriatic", None),
            ("hypertrophic", None),
            ("heard", None),
            ("skim", None),
            ("acme", None),
            ("oncology", None),
        ] {
            let found = tokenize(text)
                .first()
                .and_then(QueryToken::as_word)
                .and_then(|word| names.closest_match(word));
            let expect = expect.map(|(means, clinic)| (means, vec![clinic]));
            assert_eq!(
                found.map(|p| (p.means, p.clinics.clone())),
                expect,
                "{text}"
            );
        }
    }
}
