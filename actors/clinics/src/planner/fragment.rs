use callboard_message::text::is_one_of;

use super::phrases::{RegistryPhrases, extend_unique};
use super::reading::{QuestionReading, SpelledQuery};
use super::refusal::PlanRefusal;
use super::tags::{PhraseTag, TaggedPhrase, next_phrase};
use super::term::TopicTerm;
use super::tokens::QueryToken;
use super::topic::{SearchTopic, build_topic, is_part_of_topic};
use super::vocabulary::WordRole;
use crate::plan::ClinicRegistry;

/// Separator before a fragment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Connector {
    /// Beginning of a sentence.
    #[default]
    Start,
    /// Comma or similar sign, or a word such as `plus`.
    Comma,
    And,
    /// `or`, or `than` in a comparison.
    Or,
    /// Negation: the fragment before goes on.
    Negation,
}

/// Part of a query between two separators, such as commas or conjunctions. Its flags tell which
/// [`WordRole`]s its words have. Parts that it lacks, such as the clinic, may be taken from its
/// neighbours.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Fragment {
    /// Index of the sentence that holds the fragment.
    pub sentence: usize,
    pub connector: Connector,
    pub verb: bool,
    pub what: bool,
    /// Whether a fragment beside it, such as `list` alone, requests it.
    pub asked: bool,
    pub who: bool,
    pub cue: bool,
    /// Whether it begins with a preposition such as `of`.
    pub of: bool,
    pub patients: bool,
    /// Whether a singular word such as `patient` is all that refers to patients.
    pub one_patient: bool,
    pub record: bool,
    pub medication: bool,
    pub dose: bool,
    pub taking: bool,
    pub pronoun: bool,
    pub all: bool,
    pub both: bool,
    pub count: bool,
    pub compare: bool,
    /// Whether a plural word such as `clinics` names the clinics.
    pub clinic_words: bool,
    /// Whether it mentions names or other identifying fields.
    pub identity: bool,
    /// Negation before the fragment, or verb such as `ignore` in it; both together cancel out.
    pub left_out: Option<String>,
    /// Patient ids. Each comes with the registry index of the clinic whose id prefix it has.
    pub ids: Vec<(usize, String)>,
    /// Clinics that the fragment names, as indexes in the registry.
    pub clinics: Vec<usize>,
    /// Condition, medicine or other text that the fragment asks to search for; `None` if it asks
    /// for no search, or its own words include a patient id.
    pub topic: Option<SearchTopic>,
    /// Texts whose patients are left out of the fragment's.
    pub excluded: Vec<SearchTopic>,
    /// Whether it asks for the records or medications of the patients that the clause before found.
    pub follows: bool,
}

impl Fragment {
    /// Returns whether the fragment names a kind of data: patients, records or medications.
    pub fn has_subject(&self) -> bool {
        self.patients || self.record || self.medication || self.taking
    }

    /// Returns whether the fragment requests nothing, such as `please` or a verb alone.
    pub fn is_empty(&self) -> bool {
        !self.has_subject()
            && self.ids.is_empty()
            && self.clinics.is_empty()
            && self.topic.is_none()
    }

    /// Returns whether the fragment has a word that requests something: a verb, or a question word.
    pub fn asks(&self) -> bool {
        self.verb || self.who || self.count || self.asked
    }

    /// Returns whether the fragment names clinics and nothing else, except perhaps a verb, a
    /// pronoun or a word such as `all`.
    pub fn has_only_clinics(&self) -> bool {
        !self.clinics.is_empty()
            && !self.has_subject()
            && self.ids.is_empty()
            && self.topic.is_none()
    }

    /// Returns whether the fragment has a topic and nothing else that tells what is asked.
    pub fn has_only_topic(&self) -> bool {
        self.topic.is_some()
            && !self.verb
            && !self.patients
            && !self.record
            && !self.medication
            && self.clinics.is_empty()
    }
}

/// Fragments of a query, without those that request nothing, and what concerns all of them.
#[derive(Debug, Default)]
pub(super) struct QueryFragments {
    pub fragments: Vec<Fragment>,
    pub count: bool,
    pub compare: bool,
    /// Words that were neither understood nor searched.
    pub unused: Vec<String>,
    /// Words such as `severe`, which aren't searched.
    pub qualifiers: Vec<String>,
}

/// Units of doses. With an id they ask for the dose; else they would select by it.
const DOSE_UNITS: &str = "mg mcg ug ml";

/// Pairs of words that leave out what follows, as `except` does.
const NEGATING_PAIRS: [(&str, &str); 7] = [
    ("other", "than"),
    ("rather", "than"),
    ("apart", "from"),
    ("aside", "from"),
    ("instead", "of"),
    ("vez", "de"),
    ("fora", "os"),
];

/// Splits a query into fragments. Fails if a part of the query must not be planned, for example one
/// that names a person.
pub(super) fn split_fragments(
    query: &SpelledQuery,
    registry: &ClinicRegistry,
    names: &RegistryPhrases,
) -> Result<QueryFragments, PlanRefusal> {
    let reading = QuestionReading::new(query);
    let mut splitter = FragmentSplitter {
        query,
        registry,
        names,
        reading: &reading,
        found: QueryFragments::default(),
        pieces: Vec::new(),
        sentence: 0,
        connector: Connector::Start,
        negation: None,
        ignores: None,
        compares: false,
        last_id: None,
    };
    let tokens = &query.tokens;
    let mut at = 0;
    while at < tokens.len() {
        let (used, mut piece) = next_phrase(&tokens[at..], registry, names, &reading)?;
        at += used;
        if let Some(piece) = &mut piece {
            splitter.read_bare_number(piece);
        }
        match piece {
            Some(piece) => splitter.add(piece)?,
            None => splitter.separate(tokens[at - 1] == QueryToken::Stop, Connector::Comma)?,
        }
    }
    splitter.separate(true, Connector::Start)?;
    let mut found = splitter.found;
    found.fragments = without_empty(found.fragments);
    Ok(found)
}

/// Removes the fragments that request nothing. What a verb or question word alone asks for is in a
/// fragment of its sentence: "show me, please, the patients", "high cholesterol, who has it".
fn without_empty(fragments: Vec<Fragment>) -> Vec<Fragment> {
    let mut kept: Vec<Fragment> = Vec::new();
    let (mut asked_in, mut both_in) = (None, None);
    for mut fragment in fragments {
        if fragment.is_empty() && fragment.both {
            // "in common: aspirin and clopidogrel"
            both_in = Some(fragment.sentence);
        }
        if !fragment.is_empty() {
            fragment.both |= both_in.take() == Some(fragment.sentence);
            fragment.asked = asked_in == Some(fragment.sentence);
            asked_in = None;
            kept.push(fragment);
        } else if fragment.asks() && fragment.left_out.is_none() {
            match kept.last_mut() {
                Some(last) if last.sentence == fragment.sentence => last.asked = true,
                _ => asked_in = Some(fragment.sentence),
            }
        }
    }
    kept
}

/// State of splitting a query into fragments.
struct FragmentSplitter<'a> {
    query: &'a SpelledQuery,
    registry: &'a ClinicRegistry,
    names: &'a RegistryPhrases,
    reading: &'a QuestionReading,
    found: QueryFragments,
    /// Phrases of the fragment so far.
    pieces: Vec<TaggedPhrase>,
    sentence: usize,
    connector: Connector,
    /// Negation before the fragment.
    negation: Option<String>,
    /// Verb such as `ignore` earlier in the clause.
    ignores: Option<String>,
    /// Whether the sentence compares numbers.
    compares: bool,
    /// Sentence and text of the last patient id.
    last_id: Option<(usize, String)>,
}

impl FragmentSplitter<'_> {
    /// Reads a number as the id that it abbreviates: "CARD-001, 002 and 003".
    fn read_bare_number(&mut self, piece: &mut TaggedPhrase) {
        if let PhraseTag::Id(_, id) = &piece.tag {
            self.last_id = Some((self.sentence, id.clone()));
        }
        let begins = self.pieces.iter().all(TaggedPhrase::is_filler);
        let digits = piece.shown.bytes().all(|b| b.is_ascii_digit());
        if piece.tag == PhraseTag::Number
            && begins
            && digits
            && let Some((sentence, id)) = &self.last_id
            && *sentence == self.sentence
            && let Some((prefix, _)) = id.rsplit_once('-')
            && let Some((clinic, id)) = self
                .registry
                .parse_patient_id(&format!("{prefix}-{}", piece.shown))
        {
            piece.tag = PhraseTag::Id(clinic, id);
        }
    }

    fn add(&mut self, piece: TaggedPhrase) -> Result<(), PlanRefusal> {
        let role = match &piece.tag {
            PhraseTag::Vocabulary(role) => *role,
            _ => {
                self.pieces.push(piece);
                return Ok(());
            }
        };
        let before = self.pieces.last().map_or("", |p| &*p.shown);
        if NEGATING_PAIRS.contains(&(before, &*piece.shown)) {
            self.pieces.pop();
            self.separate(false, Connector::Negation)?;
            self.negation = Some(piece.shown);
            return Ok(());
        }
        match role {
            // `mais` is also `more`: it compares before what is counted.
            WordRole::Join
                if piece.shown == "mais" && self.pieces.iter().all(TaggedPhrase::is_lead) =>
            {
                self.pieces.push(TaggedPhrase {
                    tag: PhraseTag::Vocabulary(WordRole::More),
                    ..piece
                });
                self.compares = true;
                Ok(())
            }
            WordRole::Join if piece.shown == "plus" => self.separate(false, Connector::Comma),
            WordRole::Join => self.separate(false, Connector::And),
            WordRole::Or => self.separate(false, Connector::Or),
            WordRole::Than => self.separate(false, Connector::Or),
            WordRole::Filler if self.compares && piece.shown == "que" && self.has_topic() => {
                self.separate(false, Connector::Or)
            }
            WordRole::Stop => self.separate(true, Connector::Start),
            WordRole::Negation => {
                self.separate(false, Connector::Negation)?;
                self.negation = Some(piece.shown);
                Ok(())
            }
            WordRole::Ignore => {
                self.ignores = Some(piece.shown);
                Ok(())
            }
            WordRole::More => {
                self.compares = true;
                self.pieces.push(piece);
                Ok(())
            }
            _ => {
                self.pieces.push(piece);
                Ok(())
            }
        }
    }

    fn has_topic(&self) -> bool {
        self.pieces
            .iter()
            .any(|p| matches!(p.tag, PhraseTag::Term(_)))
    }

    /// Ends the fragment. `stops` tells that the sentence ends too; `next` is the separator before
    /// the next fragment.
    fn separate(&mut self, stops: bool, next: Connector) -> Result<(), PlanRefusal> {
        let mut fragment = self.build()?;
        fragment.sentence = self.sentence;
        fragment.connector = self.connector;
        fragment.left_out = match (self.negation.take(), self.ignores.clone()) {
            (Some(_), Some(_)) => {
                fragment.patients = true;
                None
            }
            (one, other) => one.or(other),
        };
        self.found.count |= fragment.count;
        self.found.compare |= fragment.compare;
        self.found.fragments.push(fragment);
        self.pieces.clear();
        if stops {
            self.sentence += 1;
            self.compares = false;
        }
        if stops || next != Connector::Negation {
            self.ignores = None;
        }
        self.connector = if stops { Connector::Start } else { next };
        Ok(())
    }

    fn build(&mut self) -> Result<Fragment, PlanRefusal> {
        self.qualify_conditions();
        self.refuse_unit()?;
        let mut fragment = read_roles(&self.pieces, self.registry)?;
        let is_negated = self.negation.is_some();
        let without_ids = fragment.ids.is_empty() && !is_negated;
        for piece in &self.pieces {
            match &piece.tag {
                PhraseTag::Vocabulary(WordRole::Identity) if without_ids => {
                    return Err(PlanRefusal::Identity(piece.shown.clone()));
                }
                PhraseTag::Vocabulary(WordRole::Qualifier) => {
                    self.found.qualifiers.push(piece.shown.clone());
                }
                _ => {}
            }
        }
        if without_ids {
            refuse_names(&self.pieces, self.reading.is_title_case)?;
        }
        fragment.topic = build_topic(&self.pieces)?;
        let has_medicine = fragment
            .topic
            .as_ref()
            .is_some_and(SearchTopic::has_medicine);
        self.read_number_of_clinic(&mut fragment);
        self.check_filters(&fragment)?;
        self.check_unknown(&fragment)?;
        if !fragment.ids.is_empty() {
            fragment.topic = None;
        }
        self.refuse_own_complaint(&fragment)?;
        self.refuse_order(&fragment, has_medicine)?;
        // "and what they take"
        let asks_treatment = fragment.what && fragment.taking && fragment.topic.is_none();
        fragment.medication |= asks_treatment && !fragment.patients && fragment.ids.is_empty();
        // "on cardiology duty"
        let nothing_taken =
            fragment.topic.is_none() && !fragment.patients && !fragment.clinics.is_empty();
        fragment.taking &= !nothing_taken;
        if self.asks_definition(&fragment) {
            return Err(PlanRefusal::SayWhat {
                specialties: self.registry.specialties(),
            });
        }
        Ok(fragment)
    }

    /// Reads a number beside a clinic as the id of its patient: "patient 12 of cardiology", "show 003 from
    /// dermatology".
    fn read_number_of_clinic(&mut self, fragment: &mut Fragment) {
        const ID_DIGITS_MIN: usize = 3;
        let [clinic] = fragment.clinics[..] else {
            return;
        };
        let digits = |p: &TaggedPhrase| {
            let is_number =
                p.tag == PhraseTag::Number && p.shown.bytes().all(|b| b.is_ascii_digit());
            is_number && (fragment.one_patient || p.shown.len() >= ID_DIGITS_MIN)
        };
        if !fragment.ids.is_empty() || fragment.topic.is_some() {
            return;
        }
        let prefix = self
            .registry
            .clinics()
            .get(clinic)
            .map(|c| c.id_prefix.as_str());
        if let Some(piece) = self.pieces.iter_mut().find(|p| digits(p))
            && let Some((clinic, id)) = self.registry.parse_patient_id(&format!(
                "{}-{}",
                prefix.unwrap_or_default(),
                piece.shown
            ))
        {
            piece.tag = PhraseTag::Id(clinic, id.clone());
            fragment.ids.push((clinic, id));
        }
    }

    /// Refuses the fragment if a time, a number, or a comparison with one narrows what it asks for.
    /// Elsewhere these words are noted.
    fn check_filters(&mut self, fragment: &Fragment) -> Result<(), PlanRefusal> {
        let asks = !fragment.is_empty();
        let mut numbers = self.pieces.iter().filter(|p| p.tag == PhraseTag::Number);
        let has_number = numbers.next().is_some();
        for (at, piece) in self.pieces.iter().enumerate() {
            let next = self.pieces.get(at + 1).map(|p| &p.tag);
            let of_clinics = next == Some(&PhraseTag::Vocabulary(WordRole::Clinics));
            let filters = match piece.tag {
                PhraseTag::Number => asks && !of_clinics && !is_part_of_topic(&self.pieces, at),
                PhraseTag::Vocabulary(WordRole::Time) => asks && !fragment.has_only_clinics(),
                PhraseTag::Vocabulary(WordRole::Relative) => asks && has_number,
                _ => continue,
            };
            if filters {
                return Err(PlanRefusal::Filter(piece.shown.clone()));
            }
            if !of_clinics && !is_part_of_topic(&self.pieces, at) {
                self.found.unused.push(piece.shown.clone());
            }
        }
        Ok(())
    }

    /// Refuses the fragment if an unknown word in it narrows what is asked. Other unknown words are
    /// noted.
    fn check_unknown(&mut self, fragment: &Fragment) -> Result<(), PlanRefusal> {
        for at in 0..self.pieces.len() {
            let piece = &self.pieces[at];
            let unknown = match piece.tag {
                PhraseTag::Unknown => true,
                PhraseTag::Weak => !is_part_of_topic(&self.pieces, at),
                _ => false,
            };
            if !unknown {
                continue;
            }
            if self.is_restriction(at, fragment) {
                return Err(self.unknown_word(&piece.shown));
            }
            self.found.unused.push(piece.shown.clone());
        }
        Ok(())
    }

    /// Returns whether the unknown word at `at` narrows what is asked: it follows a word such as
    /// `with`, stands beside a word for patients or a medical one, begins with a capital letter, or
    /// is all that a verb asks for.
    fn is_restriction(&self, at: usize, fragment: &Fragment) -> bool {
        let pieces = &self.pieces;
        let is_plain = |p: &&TaggedPhrase| {
            p.is_filler() || matches!(p.tag, PhraseTag::Vocabulary(WordRole::Of))
        };
        let before = pieces[..at].iter().rev().find(|p| !is_plain(p));
        let after = pieces[at + 1..].iter().find(|p| !is_plain(p));
        let joined_by_of =
            at > 0 && matches!(pieces[at - 1].tag, PhraseTag::Vocabulary(WordRole::Of));
        let role = |p: Option<&TaggedPhrase>| match p.map(|p| &p.tag) {
            Some(PhraseTag::Vocabulary(role)) => Some(*role),
            _ => None,
        };
        let is_term =
            |p: Option<&TaggedPhrase>| matches!(p.map(|p| &p.tag), Some(PhraseTag::Term(_)));
        let is_clinic =
            |p: Option<&TaggedPhrase>| matches!(p.map(|p| &p.tag), Some(PhraseTag::Clinic(..)));
        use WordRole::{Count, Cue, OnePatient, Patients, Taking, Verb, Who};
        let is_people = matches!(role(before), Some(Who | Patients | OnePatient));
        // "been fitted with a pacemaker", "who developed psoriasis", "patients enrolled in cardiology":
        // a verb before what counts
        let leads_on = fragment.topic.is_some() && matches!(role(after), Some(Cue | Taking))
            || role(before) == Some(Who) && is_term(after)
            || is_people && is_clinic(after);
        // "I am in a hurry with this"
        let is_own = fragment.is_empty() && !fragment.verb && self.pieces.iter().any(is_of_user);
        let narrows = is_people
            || matches!(role(before), Some(Cue | Taking))
            || is_term(after)
            || (joined_by_of && is_term(before))
            || looks_medical(&pieces[at].shown);
        // A list of patients, or general knowledge about a topic: the word may be what matters.
        let is_bare_list = fragment.patients && fragment.topic.is_none() && fragment.ids.is_empty();
        let is_general = fragment.topic.is_some()
            && fragment.ids.is_empty()
            && !fragment.has_subject()
            && !fragment.who
            && !fragment.cue
            && !fragment.count
            && !fragment.compare
            && fragment.clinics.is_empty()
            && fragment.verb;
        ((narrows || is_bare_list) && !leads_on && !is_own)
            || is_general
            || matches!(role(after), Some(Patients | OnePatient))
            || (pieces[at].capital && at > 0 && !self.reading.is_title_case)
            || (matches!(role(before), Some(Verb | Count)) && fragment.is_empty())
    }

    fn unknown_word(&self, word: &str) -> PlanRefusal {
        PlanRefusal::UnknownWord {
            word: word.to_owned(),
            suggestions: self.query.suggestions_for(word),
            specialties: self.registry.specialties(),
        }
    }

    /// Refuses a complaint of the user's own, such as `I have chest pain`.
    fn refuse_own_complaint(&self, fragment: &Fragment) -> Result<(), PlanRefusal> {
        const STATES: [&str; 5] = ["have", "feel", "got", "suffer", "take"];
        let is_own = |(at, piece): (usize, &TaggedPhrase)| {
            let previous = at.checked_sub(1).map_or("", |at| &self.pieces[at].shown);
            let is_state = previous == "i" && STATES.contains(&&*piece.shown);
            (is_of_user(piece) && piece.shown != "i") || is_state
        };
        let about_patients = fragment.patients
            || fragment.who
            || !fragment.clinics.is_empty()
            || !fragment.ids.is_empty();
        match self.pieces.iter().enumerate().find(|piece| is_own(*piece)) {
            Some((_, piece)) if fragment.topic.is_some() && !about_patients => {
                Err(PlanRefusal::Advice(piece.shown.clone()))
            }
            _ => Ok(()),
        }
    }

    /// Takes a medical word beside a condition that clinics list for one of its qualities, which isn't
    /// searched: "itchy hives". A disease of another specialty is none.
    fn qualify_conditions(&mut self) {
        let is_listed = |at: Option<usize>| match at.and_then(|at| self.pieces.get(at)) {
            Some(piece) => matches!(&piece.tag, PhraseTag::Term(t) if !t.clinics.is_empty()),
            None => false,
        };
        let qualifies = |at: usize| match &self.pieces[at].tag {
            PhraseTag::Term(term) => {
                term.clinics.is_empty()
                    && !term.is_medicine
                    && !self.names.is_foreign(&term.chapters)
                    && (is_listed(at.checked_sub(1)) || is_listed(at.checked_add(1)))
            }
            _ => false,
        };
        let found: Vec<usize> = (0..self.pieces.len()).filter(|at| qualifies(*at)).collect();
        for at in found {
            self.pieces[at].tag = PhraseTag::Vocabulary(WordRole::Qualifier);
        }
    }

    /// Refuses a unit of a hospital that is no clinic here: "the kidney unit".
    fn refuse_unit(&self) -> Result<(), PlanRefusal> {
        const UNITS: &str = "unit ward department clinic centre center unidade enfermaria";
        let is_other = |p: &TaggedPhrase| {
            let seen = |t: &TopicTerm| !t.clinics.is_empty() || t.is_medicine;
            matches!(&p.tag, PhraseTag::Term(term) if !seen(term))
        };
        let pair = self.pieces.windows(2).find(|pair| {
            (is_other(&pair[0]) && is_one_of(&pair[1].shown, UNITS))
                || (is_other(&pair[1]) && is_one_of(&pair[0].shown, UNITS))
        });
        match pair {
            Some(pair) => Err(PlanRefusal::NoSuchSpecialty {
                specialty: format!("{} {}", pair[0].shown, pair[1].shown),
                specialties: self.registry.specialties(),
            }),
            None => Ok(()),
        }
    }

    /// Refuses a question whether a patient may take something, and an order to give it: "can CARD-001 take
    /// aspirin", "put CARD-001 on aspirin".
    fn refuse_order(&self, fragment: &Fragment, has_medicine: bool) -> Result<(), PlanRefusal> {
        const MAY: &str = "can could may might pode podem poderia";
        const GIVE: &str =
            "put give start move coloque coloca colocar dê dá dar ponha põe administre administer";
        let is_whom = |at: usize| {
            let role = |r| self.pieces[at].tag == PhraseTag::Vocabulary(r);
            matches!(self.pieces[at].tag, PhraseTag::Id(..))
                || role(WordRole::Patients)
                || role(WordRole::OnePatient)
        };
        let has_data = fragment.record || fragment.medication;
        for at in 1..self.pieces.len() {
            let (before, here) = (&*self.pieces[at - 1].shown, &*self.pieces[at].shown);
            let may = (is_one_of(before, MAY) && is_whom(at))
                || (is_one_of(here, MAY) && is_whom(at - 1));
            if may && fragment.taking && !has_data {
                return Err(PlanRefusal::Advice(here.to_owned()));
            }
            let gives = is_one_of(before, GIVE) && matches!(self.pieces[at].tag, PhraseTag::Id(..));
            if gives && has_medicine && !has_data {
                return Err(PlanRefusal::Change(before.to_owned()));
            }
        }
        Ok(())
    }

    /// Returns whether the fragment asks what something is: `what is psoriasis`.
    fn asks_definition(&self, fragment: &Fragment) -> bool {
        const BE: [&str; 6] = ["is", "are", "é", "são", "sao", "significa"];
        let asks = |pair: &[TaggedPhrase]| {
            matches!(&*pair[0].shown, "what" | "que" | "qual") && BE.contains(&&*pair[1].shown)
        };
        let asks = self.pieces.windows(2).any(asks)
            || self
                .pieces
                .iter()
                .any(|p| matches!(&*p.shown, "what's" | "whats"));
        asks && fragment.topic.is_some()
            && !fragment.has_subject()
            && fragment.clinics.is_empty()
            && !fragment.count
    }
}

/// Returns whether a word ends as names of diseases do, in English or Portuguese.
fn looks_medical(word: &str) -> bool {
    const ENDINGS: [&str; 16] = [
        "itis", "osis", "emia", "aemia", "pathy", "algia", "plasia", "trophy", "rrhea", "pox",
        "ose", "patia", "trofia", "rreia", "oma", "ite",
    ];
    const LETTERS_MIN: usize = 7;
    word.chars().count() >= LETTERS_MIN && ENDINGS.iter().any(|ending| word.ends_with(ending))
}

/// Returns whether a phrase is about the user, such as `my`.
fn is_of_user(piece: &TaggedPhrase) -> bool {
    matches!(
        &*piece.shown,
        "i" | "i'm" | "i've" | "my" | "meu" | "minha" | "estou" | "tenho"
    )
}

/// Returns whether the phrase at `at` is a verb whose receiver is the user: `send me`, `mande-me`.
fn is_to_user(pieces: &[TaggedPhrase], at: usize) -> bool {
    let is_user = |at: Option<usize>| {
        let shown = at.and_then(|at| pieces.get(at)).map(|p| &*p.shown);
        matches!(shown, Some("me" | "us" | "nos"))
    };
    let shown = &pieces[at].shown;
    shown.ends_with("-me")
        || shown.ends_with("-nos")
        || is_user(at.checked_add(1))
        || is_user(at.checked_sub(1))
}

/// Returns whether a fragment asks for patients: "repeat the list of cardiology patients".
fn has_request(pieces: &[TaggedPhrase]) -> bool {
    let is_asked_for = |p: &TaggedPhrase| {
        matches!(
            p.tag,
            PhraseTag::Clinic(..)
                | PhraseTag::Term(_)
                | PhraseTag::Id(..)
                | PhraseTag::Vocabulary(WordRole::Patients)
        )
    };
    pieces.iter().any(is_asked_for)
}

fn is_before_id(pieces: &[TaggedPhrase], at: usize) -> bool {
    matches!(pieces.get(at + 1).map(|p| &p.tag), Some(PhraseTag::Id(..)))
}

/// Returns a fragment with the flags, clinics and ids of its phrases, without a topic.
///
/// # Errors
/// The refusal of a phrase that must not be planned.
fn read_roles(pieces: &[TaggedPhrase], registry: &ClinicRegistry) -> Result<Fragment, PlanRefusal> {
    let mut fragment = Fragment::default();
    let has_id = pieces.iter().any(|p| matches!(p.tag, PhraseTag::Id(..)));
    let mut plural = false;
    for (at, piece) in pieces.iter().enumerate() {
        let word = || piece.shown.clone();
        let role = match &piece.tag {
            PhraseTag::Vocabulary(role) => *role,
            PhraseTag::Clinic(_, clinics) => {
                extend_unique(&mut fragment.clinics, clinics);
                continue;
            }
            PhraseTag::Id(clinic, id) => {
                fragment.ids.push((*clinic, id.clone()));
                continue;
            }
            _ => continue,
        };
        match role {
            WordRole::Patients => (fragment.patients, plural) = (true, true),
            // "on file", "on our records"
            WordRole::Record if at > 0 && pieces[at - 1].shown == "on" => fragment.taking = false,
            // "everything on CARD-001"
            WordRole::Taking if piece.shown == "on" && is_before_id(pieces, at) => {}
            WordRole::Clinics => {
                fragment.clinic_words = true;
                let all: Vec<usize> = (0..registry.clinics().len()).collect();
                extend_unique(&mut fragment.clinics, &all);
            }
            // "send me the list"
            WordRole::Send if is_to_user(pieces, at) => fragment.verb = true,
            WordRole::Repeat if has_request(pieces) => fragment.verb = true,
            WordRole::Change | WordRole::Send | WordRole::Repeat => {
                return Err(PlanRefusal::Change(word()));
            }
            WordRole::Advice => return Err(PlanRefusal::Advice(word())),
            // "overlap between losartan and amlodipine"
            WordRole::Combine if pieces.iter().any(|p| matches!(p.tag, PhraseTag::Term(_))) => {
                (fragment.all, fragment.both) = (true, true);
            }
            WordRole::Combine => return Err(PlanRefusal::Join(word())),
            // "how many mg of losartan does CARD-001 take"
            WordRole::Filter if has_id && is_one_of(&piece.shown, DOSE_UNITS) => {
                (fragment.medication, fragment.dose) = (true, true);
            }
            WordRole::Filter => return Err(PlanRefusal::Filter(word())),
            // "que remédios tomam …", "o que toma …", "how are … treated"
            WordRole::Filler if matches!(&*piece.shown, "que" | "how" | "como") => {
                let asks = at == 0 || (at == 1 && matches!(&*pieces[0].shown, "o" | "com"));
                fragment.what |= asks;
                fragment.verb |= asks;
            }
            role => set_flags(&mut fragment, role),
        }
    }
    let first = pieces.first().map(|piece| &piece.tag);
    fragment.of = first == Some(&PhraseTag::Vocabulary(WordRole::Of));
    fragment.one_patient = fragment.patients && !plural && !fragment.all;
    fragment.record |= fragment.identity && !fragment.ids.is_empty();
    Ok(fragment)
}

/// Sets the flags of a word whose meaning doesn't depend on the words around it.
fn set_flags(fragment: &mut Fragment, role: WordRole) {
    match role {
        WordRole::Verb => fragment.verb = true,
        WordRole::What => (fragment.verb, fragment.what) = (true, true),
        WordRole::Who => fragment.who = true,
        WordRole::Cue => fragment.cue = true,
        WordRole::Count => fragment.count = true,
        WordRole::More => fragment.compare = true,
        WordRole::OnePatient => fragment.patients = true,
        WordRole::Record => fragment.record = true,
        WordRole::Medication => fragment.medication = true,
        WordRole::Dose => (fragment.medication, fragment.dose) = (true, true),
        WordRole::Taking => fragment.taking = true,
        WordRole::Pronoun => fragment.pronoun = true,
        WordRole::All => fragment.all = true,
        WordRole::Both => (fragment.all, fragment.both) = (true, true),
        WordRole::NameCue | WordRole::Identity => fragment.identity = true,
        _ => {}
    }
}

/// Refuses a fragment that seems to contain a person's name with [`PlanRefusal::ByName`]: a word
/// such as `named`, two unknown capitalised words, or one after a word such as `patient`. Otherwise
/// the name would be sent to clinics that have no such patient. `is_title_case` tells that all words
/// of the query are capitalised, so that capitals don't indicate a name.
fn refuse_names(pieces: &[TaggedPhrase], is_title_case: bool) -> Result<(), PlanRefusal> {
    let name_like = |p: &TaggedPhrase| {
        matches!(p.tag, PhraseTag::Unknown | PhraseTag::Weak) && p.capital && !is_title_case
    };
    let pairs = || pieces.iter().zip(pieces.iter().skip(1));
    // "name all patients with acne"; "names of the medicines"
    let has = |role| pieces.iter().any(|p| p.tag == PhraseTag::Vocabulary(role));
    let of_medicines = has(WordRole::Medication);
    let cue = |(at, p): (usize, &TaggedPhrase)| {
        let is_verb = at == 0 && p.shown == "name";
        p.tag == PhraseTag::Vocabulary(WordRole::NameCue) && !is_verb && !of_medicines
    };
    let named = pieces.iter().enumerate().any(cue)
        || pairs().any(|(a, b)| {
            (a.tag == PhraseTag::Vocabulary(WordRole::OnePatient) || name_like(a)) && name_like(b)
        });
    if named {
        Err(PlanRefusal::ByName)
    } else {
        Ok(())
    }
}
