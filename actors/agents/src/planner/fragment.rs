use super::lexicon::{Known, is_specialty, known};
use super::names::{Means, Names};
use super::refusal::Refusal;
use super::words::{Token, Word, tokenize};
use crate::plan::Registry;

/// How many words a condition to search for may have.
pub(super) const TOPIC_WORDS_MAX: usize = 8;

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
    /// What to search for.
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
    Named(Means),
    Id(usize, String),
    Number,
    Topic,
}

/// Cuts a query into fragments; refuses what no rule may plan.
pub(super) fn fragments(query: &str, registry: &Registry, names: &Names) -> Result<Vec<Fragment>, Refusal> {
    let tokens = tokenize(query);
    let shouted = !tokens.iter().any(|t| matches!(t, Token::Word(w) if !w.capital));
    let (mut fragments, mut pieces, mut sentence, mut at) = (Vec::new(), Vec::new(), 0, 0);
    while at < tokens.len() {
        let (used, piece) = piece(&tokens[at..], registry, names)?;
        at += used;
        match piece {
            Some(Piece { tag: Tag::Ours(Known::Join | Known::Stop), .. }) | None => {
                fragments.push(fragment(&pieces, sentence, shouted, registry)?);
                pieces.clear();
                let stops = matches!(tokens[at - 1], Token::Stop)
                    || matches!(piece, Some(Piece { tag: Tag::Ours(Known::Stop), .. }));
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
fn piece(tokens: &[Token], registry: &Registry, names: &Names) -> Result<(usize, Option<Piece>), Refusal> {
    let Some(Token::Word(word)) = tokens.first() else { return Ok((1, None)) };
    if let Some((used, means)) = names.longest(tokens) {
        let shown = tokens[..used].iter().filter_map(|t| match t {
            Token::Word(w) => Some(w.shown.as_str()),
            _ => None,
        });
        let shown = shown.collect::<Vec<_>>().join(" ");
        return Ok((used, Some(Piece { tag: Tag::Named(means), shown, capital: word.capital })));
    }
    if let Some(Token::Word(digits)) = tokens.get(1)
        && digits.folded.bytes().all(|b| b.is_ascii_digit())
        && let Some((clinic, id)) = registry.patient_id(&format!("{}-{}", word.folded, digits.folded))
    {
        return Ok((2, Some(Piece { tag: Tag::Id(clinic, id), shown: word.shown.clone(), capital: word.capital })));
    }
    let tag = tag(word, registry, names)?;
    Ok((1, Some(Piece { tag, shown: word.shown.clone(), capital: word.capital })))
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
        let prefixes = registry.clinics().iter().filter(|c| !c.id_prefix.is_empty());
        let prefixes = prefixes.map(|c| format!("{}-", c.id_prefix)).collect::<Vec<_>>().join(", ");
        return Err(Refusal::NoSuchPrefix { id: folded.to_uppercase(), prefixes });
    }
    if folded.starts_with(|c: char| c.is_ascii_digit()) {
        return Ok(Tag::Number);
    }
    if let Some(means) = names.nearly(word) {
        return Ok(Tag::Named(means));
    }
    if is_specialty(folded) {
        return Err(Refusal::NoSuchSpecialty { specialty: word.shown.clone(), specialties: registry.specialties() });
    }
    if folded.starts_with("clinic_") || folded.starts_with("clinica_") {
        let clinics = registry.clinics().iter().map(|c| c.id.as_str()).collect::<Vec<_>>().join(", ");
        return Err(Refusal::NoSuchClinic { clinic: word.shown.clone(), clinics });
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

fn fragment(pieces: &[Piece], sentence: usize, shouted: bool, registry: &Registry) -> Result<Fragment, Refusal> {
    let mut fragment = Fragment { sentence, ..Fragment::default() };
    for piece in pieces {
        let word = || piece.shown.clone();
        match &piece.tag {
            Tag::Ours(Known::Verb) => fragment.verb = true,
            Tag::Ours(Known::Patients | Known::OnePatient) => fragment.patients = true,
            Tag::Ours(Known::Record) => fragment.record = true,
            Tag::Ours(Known::Medication) => fragment.medication = true,
            Tag::Ours(Known::Taking) => fragment.taking = true,
            Tag::Ours(Known::Pronoun) => fragment.pronoun = true,
            Tag::Ours(Known::All) => fragment.all = true,
            Tag::Ours(Known::Both) => (fragment.all, fragment.both) = (true, true),
            Tag::Ours(Known::Clinics) => {
                add_all(&mut fragment.clinics, &(0..registry.clinics().len()).collect::<Vec<_>>())
            }
            Tag::Ours(Known::Negation) => return Err(Refusal::Negation { word: word() }),
            Tag::Ours(Known::Change) => return Err(Refusal::Change { word: word() }),
            Tag::Ours(Known::Advice) => return Err(Refusal::Advice { word: word() }),
            Tag::Ours(Known::Compare) => return Err(Refusal::Compare { word: word() }),
            Tag::Ours(Known::Filter) => return Err(Refusal::Filter { word: word() }),
            Tag::Named(Means::Clinic(at) | Means::Synonym(at)) => add_all(&mut fragment.clinics, at),
            Tag::Id(at, id) => fragment.ids.push((*at, id.clone())),
            Tag::Ours(Known::NameCue | Known::Filler | Known::Of | Known::Join | Known::Stop) => {}
            Tag::Named(Means::Condition(_)) | Tag::Number | Tag::Topic => {}
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
        || pairs().any(|(a, b)| (a.tag == Tag::Ours(Known::OnePatient) || name_like(a)) && name_like(b));
    if named { Err(Refusal::ByName) } else { Ok(()) }
}

fn topic(pieces: &[Piece]) -> Result<Option<Topic>, Refusal> {
    let tag = |at: Option<usize>| at.and_then(|at| pieces.get(at)).map(|p| &p.tag);
    let is_plain = |at: Option<usize>| tag(at) == Some(&Tag::Topic);
    let is_topic = |at: usize| match &pieces[at].tag {
        Tag::Topic | Tag::Named(Means::Condition(_)) => true,
        // `skin rash` is looked for as it stands, `skin patients` is only a clinic.
        Tag::Named(Means::Synonym(_)) => is_plain(at.checked_sub(1)) || is_plain(Some(at + 1)),
        // `type 2 diabetes`
        Tag::Number => is_plain(at.checked_sub(1)),
        _ => false,
    };
    if let Some(number) = (0..pieces.len()).find(|at| pieces[*at].tag == Tag::Number && !is_topic(*at)) {
        return Err(Refusal::Filter { word: pieces[number].shown.clone() });
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
        if let Tag::Named(Means::Condition(clinics)) = &pieces[at].tag {
            add_all(&mut seen_at, clinics);
        }
    }
    if words.len() > TOPIC_WORDS_MAX {
        let start = words[..3].join(" ");
        return Err(Refusal::LongTopic { start, words_max: TOPIC_WORDS_MAX });
    }
    Ok((!words.is_empty()).then(|| Topic { text: words.join(" "), seen_at }))
}

/// Adds what isn't there yet, in order.
pub(super) fn add_all<T: Clone + PartialEq>(to: &mut Vec<T>, from: &[T]) {
    for item in from {
        if !to.contains(item) {
            to.push(item.clone());
        }
    }
}
