use std::collections::HashMap;

use super::vocabulary::{Known, Token, Word, is_specialty, known, singular, tokenize};
use crate::plan::{ClinicEntry, Registry, STEPS_MAX};

/// Maximum words of a condition to search for.
const TOPIC_WORDS_MAX: usize = 8;

/// What stands between two joins: the parts of a clause, some of which may come from its neighbours.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Fragment {
    /// Which sentence it is in.
    pub sentence: usize,
    pub verb: bool,
    pub patients: bool,
    pub record: bool,
    pub medication: bool,
    pub taking: bool,
    pub pronoun: bool,
    pub all: bool,
    pub both: bool,
    /// Patients: the place of the clinic whose prefix it is, and the id.
    pub ids: Vec<(usize, String)>,
    /// Clinics that are named, as places in the registry.
    pub clinics: Vec<usize>,
    /// Text to search for.
    pub topic: Option<Topic>,
}

/// A condition, a medicine, or what else isn't a word of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Topic {
    /// As the user wrote it, in lower case.
    pub text: String,
    /// Clinics that list it as a condition, as places in the registry; empty if it isn't registered.
    pub seen_at: Vec<usize>,
}

impl Fragment {
    /// Whether it says what kind of thing is asked for.
    pub fn noun(&self) -> bool {
        self.patients || self.record || self.medication || self.taking
    }

    /// Whether it asks for nothing: `please`.
    pub fn is_empty(&self) -> bool {
        !self.verb
            && !self.noun()
            && !self.all
            && self.ids.is_empty()
            && self.clinics.is_empty()
            && self.topic.is_none()
    }

    /// Whether all it has is a clinic (and perhaps a verb).
    pub fn only_clinics(&self) -> bool {
        !self.clinics.is_empty() && !self.noun() && self.ids.is_empty() && self.topic.is_none()
    }
}

/// A word, or a phrase of the registry, with what it is.
struct Piece {
    tag: Tag,
    shown: String,
    capital: bool,
}

#[derive(PartialEq)]
enum Tag {
    Ours(Known),
    /// A phrase of the registry, and its clinics.
    Named(Means, Vec<usize>),
    Id(usize, String),
    Number,
    Topic,
}

/// Cuts a query into fragments; refuses what no rule may plan.
pub(super) fn fragments(
    query: &str,
    registry: &Registry,
    names: &Names,
) -> Result<Vec<Fragment>, Refusal> {
    let tokens = tokenize(query);
    let shouted = !tokens
        .iter()
        .any(|t| matches!(t, Token::Word(w) if !w.capital));
    let (mut fragments, mut pieces, mut sentence, mut at) = (Vec::new(), Vec::new(), 0, 0);
    while at < tokens.len() {
        let (used, piece) = piece(&tokens[at..], registry, names)?;
        at += used;
        match piece {
            Some(Piece {
                tag: Tag::Ours(Known::Join | Known::Stop),
                ..
            })
            | None => {
                fragments.push(fragment(&pieces, sentence, shouted, registry)?);
                pieces.clear();
                let stops = tokens[at - 1] == Token::Stop
                    || piece.is_some_and(|p| p.tag == Tag::Ours(Known::Stop));
                sentence += usize::from(stops);
            }
            Some(piece) => pieces.push(piece),
        }
    }
    fragments.push(fragment(&pieces, sentence, shouted, registry)?);
    fragments.retain(|f| !f.is_empty());
    Ok(fragments)
}

/// The piece that `tokens` begins with, and how many tokens it is; no piece for a sign.
fn piece(
    tokens: &[Token],
    registry: &Registry,
    names: &Names,
) -> Result<(usize, Option<Piece>), Refusal> {
    let Some(word) = tokens.first().and_then(Token::word) else {
        return Ok((1, None));
    };
    let capital = word.capital;
    if let Some(phrase) = names.longest(tokens) {
        let used = phrase.words.len();
        let shown: Vec<&str> = tokens[..used]
            .iter()
            .filter_map(Token::word)
            .map(|w| &*w.shown)
            .collect();
        return Ok((
            used,
            Some(Piece {
                tag: phrase.tag(),
                shown: shown.join(" "),
                capital,
            }),
        ));
    }
    let piece = |tag| {
        Some(Piece {
            tag,
            shown: word.shown.clone(),
            capital,
        })
    };
    if let Some(digits) = tokens.get(1).and_then(Token::word)
        && digits.folded.bytes().all(|b| b.is_ascii_digit())
        && let Some((clinic, id)) =
            registry.patient_id(&format!("{}-{}", word.folded, digits.folded))
    {
        return Ok((2, piece(Tag::Id(clinic, id))));
    }
    Ok((1, piece(tag(word, registry, names)?)))
}

fn tag(word: &Word, registry: &Registry, names: &Names) -> Result<Tag, Refusal> {
    // "CARD-001's"
    let folded = word.folded.strip_suffix("'s").unwrap_or(&word.folded);
    if let Some((clinic, id)) = registry.patient_id(folded) {
        return Ok(Tag::Id(clinic, id));
    }
    if let Some(known) = known(folded) {
        return Ok(Tag::Ours(known));
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
        return Err(Refusal::NoSuchPrefix {
            id: folded.to_uppercase(),
            prefixes,
        });
    }
    if folded.starts_with(|c: char| c.is_ascii_digit()) {
        return Ok(Tag::Number);
    }
    if let Some(phrase) = names.nearly(word) {
        return Ok(phrase.tag());
    }
    if is_specialty(folded) {
        return Err(Refusal::NoSuchSpecialty {
            specialty: word.shown.clone(),
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
        return Err(Refusal::NoSuchClinic {
            clinic: word.shown.clone(),
            clinics,
        });
    }
    Ok(Tag::Topic)
}

/// Letters, perhaps a hyphen, and three or more digits. (`covid-19` is a condition.)
fn looks_like_an_id(folded: &str) -> bool {
    const DIGITS_MIN: usize = 3;
    let digits = folded.trim_start_matches(|c: char| c.is_ascii_lowercase());
    let letters = folded.len() - digits.len();
    let digits = digits.strip_prefix('-').unwrap_or(digits);
    letters > 0 && digits.len() >= DIGITS_MIN && digits.bytes().all(|b| b.is_ascii_digit())
}

fn fragment(
    pieces: &[Piece],
    sentence: usize,
    shouted: bool,
    registry: &Registry,
) -> Result<Fragment, Refusal> {
    let mut fragment = Fragment {
        sentence,
        ..Fragment::default()
    };
    for piece in pieces {
        let word = || piece.shown.clone();
        match &piece.tag {
            Tag::Ours(known) => match known {
                Known::Verb => fragment.verb = true,
                Known::Patients | Known::OnePatient => fragment.patients = true,
                Known::Record => fragment.record = true,
                Known::Medication => fragment.medication = true,
                Known::Taking => fragment.taking = true,
                Known::Pronoun => fragment.pronoun = true,
                Known::All => fragment.all = true,
                Known::Both => (fragment.all, fragment.both) = (true, true),
                Known::Clinics => add_all(
                    &mut fragment.clinics,
                    &(0..registry.clinics().len()).collect::<Vec<_>>(),
                ),
                Known::Negation => return Err(Refusal::Negation(word())),
                Known::Change => return Err(Refusal::Change(word())),
                Known::Advice => return Err(Refusal::Advice(word())),
                Known::Compare => return Err(Refusal::Compare(word())),
                Known::Filter => return Err(Refusal::Filter(word())),
                Known::NameCue | Known::Filler | Known::Of | Known::Join | Known::Stop => {}
            },
            Tag::Named(Means::Clinic | Means::Synonym, at) => add_all(&mut fragment.clinics, at),
            Tag::Id(at, id) => fragment.ids.push((*at, id.clone())),
            Tag::Named(Means::Condition, _) | Tag::Number | Tag::Topic => {}
        }
    }
    if fragment.ids.is_empty() {
        refuse_names(pieces, shouted)?;
        fragment.topic = topic(pieces)?;
    }
    Ok(fragment)
}

/// Nobody is looked for by name: the name would travel to clinics that have no such patient.
fn refuse_names(pieces: &[Piece], shouted: bool) -> Result<(), Refusal> {
    let name_like = |p: &Piece| p.tag == Tag::Topic && p.capital && !shouted;
    let pairs = || pieces.iter().zip(pieces.iter().skip(1));
    let named = pieces.iter().any(|p| p.tag == Tag::Ours(Known::NameCue))
        || pairs()
            .any(|(a, b)| (a.tag == Tag::Ours(Known::OnePatient) || name_like(a)) && name_like(b));
    if named { Err(Refusal::ByName) } else { Ok(()) }
}

fn topic(pieces: &[Piece]) -> Result<Option<Topic>, Refusal> {
    let tag = |at: Option<usize>| at.and_then(|at| pieces.get(at)).map(|p| &p.tag);
    let is_plain = |at: Option<usize>| tag(at) == Some(&Tag::Topic);
    let is_topic = |at: usize| match &pieces[at].tag {
        Tag::Topic | Tag::Named(Means::Condition, _) => true,
        // `skin rash` is looked for as it stands, `skin patients` is only a clinic.
        Tag::Named(Means::Synonym, _) => is_plain(at.checked_sub(1)) || is_plain(Some(at + 1)),
        // `type 2 diabetes`
        Tag::Number => is_plain(at.checked_sub(1)),
        _ => false,
    };
    if let Some(number) =
        (0..pieces.len()).find(|at| pieces[*at].tag == Tag::Number && !is_topic(*at))
    {
        return Err(Refusal::Filter(pieces[number].shown.clone()));
    }
    let mut words: Vec<&str> = Vec::new();
    let mut seen_at = Vec::new();
    for at in 0..pieces.len() {
        let between = pieces[at].tag == Tag::Ours(Known::Of)
            && at.checked_sub(1).is_some_and(is_topic)
            && at + 1 < pieces.len()
            && is_topic(at + 1);
        if is_topic(at) || between {
            words.extend(pieces[at].shown.split(' '));
        }
        if let Tag::Named(Means::Condition, clinics) = &pieces[at].tag {
            add_all(&mut seen_at, clinics);
        }
    }
    if words.len() > TOPIC_WORDS_MAX {
        return Err(Refusal::LongTopic {
            start: words[..3].join(" "),
        });
    }
    Ok((!words.is_empty()).then(|| Topic {
        text: words.join(" "),
        seen_at,
    }))
}

/// Adds what isn't there yet, in order.
pub(super) fn add_all<T: Clone + PartialEq>(to: &mut Vec<T>, from: &[T]) {
    for item in from {
        if !to.contains(item) {
            to.push(item.clone());
        }
    }
}

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
    /// Whose phrase it is, as places in the registry.
    clinics: Vec<usize>,
}

impl Phrase {
    fn tag(&self) -> Tag {
        Tag::Named(self.means, self.clinics.clone())
    }
}

/// Meaning of a phrase of the registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Means {
    /// A clinic by its id or specialty.
    Clinic,
    /// A clinic by another word, which may also be part of a condition: `skin` in `skin rash`.
    Synonym,
    /// A condition that its clinics see.
    Condition,
}

impl Names {
    pub fn new(registry: &Registry) -> Self {
        let mut names = Self {
            phrases: HashMap::new(),
        };
        for (at, clinic) in registry.clinics().iter().enumerate() {
            let phrases = [
                (Means::Clinic, &proper_names(clinic)),
                (Means::Synonym, &clinic.synonyms),
                (Means::Condition, &clinic.conditions),
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

    fn add(&mut self, text: &str, means: Means, clinic: usize) {
        let tokens = tokenize(text);
        let words: Vec<String> = tokens
            .iter()
            .filter_map(Token::word)
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
            Some(phrase) => add_all(&mut phrase.clinics, &[clinic]),
            // A word that is a specialty for one clinic stays one where another lists it as a synonym: first kind wins.
            None => phrases.push(Phrase {
                words,
                means,
                clinics: vec![clinic],
            }),
        }
    }

    /// The longest phrase that `tokens` begins with.
    fn longest(&self, tokens: &[Token]) -> Option<&Phrase> {
        let word = |at: usize| tokens.get(at).and_then(Token::word);
        let fits = |p: &&Phrase| {
            p.words
                .iter()
                .enumerate()
                .all(|(at, p)| word(at).is_some_and(|w| w.is(p)))
        };
        self.phrases
            .get(singular(&word(0)?.folded))?
            .iter()
            .find(fits)
    }

    /// A one-word name of the registry that `word` was probably meant as: one slip in a clinic's name, or another
    /// ending of a long condition (`hypertensive`, `hipertensos`).
    fn nearly(&self, word: &Word) -> Option<&Phrase> {
        let near = |p: &&Phrase| match (p.means, &p.words[..]) {
            (Means::Clinic, [name]) => one_slip(singular(&word.folded), name),
            (Means::Condition, [name]) => same_stem(&word.folded, name),
            _ => false,
        };
        // Two candidates of different meaning are no hint.
        let mut found = self.phrases.values().flatten().filter(near);
        let first = found.next()?;
        found
            .all(|p| (p.means, &p.clinics) == (first.means, &first.clinics))
            .then_some(first)
    }
}

/// A clinic's id, its specialty, and for an `-ology` the words that come with it in both languages.
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

/// Minimum letters of a name in which a slip is forgiven.
const SLIP_LETTERS_MIN: usize = 8;
/// Minimum letters with which two words both begin to count as forms of one.
const STEM_LETTERS_MIN: usize = 8;
/// Maximum difference in length of two forms, in letters.
const STEM_ENDING_LETTERS_MAX: usize = 5;

/// Whether two long words differ by one letter that is wrong, missing, too much, or swapped with its neighbour.
fn one_slip(a: &str, b: &str) -> bool {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    if a.len().min(b.len()) < SLIP_LETTERS_MIN || a.len().abs_diff(b.len()) > 1 {
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

/// Why a query is not planned, as the sentence that the user reads. Each says what to ask instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
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
        let names = Names::new(&three_clinics());
        for (text, expect) in [
            ("cardiology patients", Some((1, Means::Clinic, vec![0]))),
            ("dermatologista", Some((1, Means::Clinic, vec![1]))),
            ("clinic_c", Some((1, Means::Clinic, vec![2]))),
            ("clinic c now", Some((2, Means::Clinic, vec![2]))),
            ("skin cancer", Some((2, Means::Condition, vec![1]))),
            ("skin rash", Some((1, Means::Synonym, vec![1]))),
            ("hearts", Some((1, Means::Synonym, vec![0]))),
            ("Psoriase", Some((1, Means::Condition, vec![1]))),
            ("eczemas", Some((1, Means::Condition, vec![1, 2]))),
            ("neurosis", None),
            (", skin", None),
        ] {
            let found = names
                .longest(&tokenize(text))
                .map(|p| (p.words.len(), p.means, p.clinics.clone()));
            assert_eq!(found, expect, "{text}");
        }
    }

    /// Goal: slips in clinics' names and other endings of long conditions are understood, short words never.
    /// Method: rows.
    #[test]
    fn near_misses() {
        let names = Names::new(&three_clinics());
        for (text, expect) in [
            ("cardiolgy", Some((Means::Clinic, 0))),
            ("dermatolgoy", Some((Means::Clinic, 1))),
            ("hypertensive", Some((Means::Condition, 0))),
            ("hipertensos", Some((Means::Condition, 0))),
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
                .and_then(Token::word)
                .and_then(|word| names.nearly(word));
            let expect = expect.map(|(means, clinic)| (means, vec![clinic]));
            assert_eq!(
                found.map(|p| (p.means, p.clinics.clone())),
                expect,
                "{text}"
            );
        }
    }
}
