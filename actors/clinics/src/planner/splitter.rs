//! Splitting of a question into fragments.

use callboard_message::text::is_one_of;

use super::corrections::without_retracted;
use super::fragment::{Connector, Fragment, QueryFragments};
use super::fragment_roles::{read_roles, refuse_names};
use super::phrases::RegistryPhrases;
use super::reading::{QuestionReading, SpelledQuery};
use super::refusal::PlanRefusal;
use super::tags::{PhraseTag, TaggedPhrase, next_phrase};
use super::tokens::QueryToken;
use super::topic::{SearchTopic, build_topic};
use super::vocabulary::WordRole;
use crate::plan::ClinicRegistry;

/// Pairs of words that leave out what follows, as `except` does.
const NEGATING_PAIRS: [(&str, &str); 11] = [
    ("save", "for"),
    ("leaving", "out"),
    ("leave", "out"),
    ("not", "counting"),
    ("other", "than"),
    ("rather", "than"),
    ("apart", "from"),
    ("aside", "from"),
    ("instead", "of"),
    ("vez", "de"),
    ("fora", "os"),
];

/// Pairs of words that mean `both` after two conditions.
const SIMULTANEOUS_PAIRS: [(&str, &str); 2] = [("same", "time"), ("mesmo", "tempo")];

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
        refused_unless_noise: None,
        refused_unless_asked: None,
    };
    let tokens = &without_retracted(&query.tokens, registry, names, &reading);
    let mut at = 0;
    while at < tokens.len() {
        let (used, mut piece) = next_phrase(&tokens[at..], registry, names, &reading)?;
        at += used;
        if let Some(piece) = &mut piece {
            splitter.read_bare_number(piece);
            splitter.read_imperative(piece, tokens.get(at));
            splitter.read_short_form(piece, tokens.get(at));
        }
        match piece {
            Some(piece) => splitter.add(piece)?,
            None => splitter.separate(tokens[at - 1] == QueryToken::Stop, Connector::Comma)?,
        }
    }
    splitter.separate(true, Connector::Start)?;
    if let Some(refusal) = splitter.refused_unless_asked {
        return Err(refusal);
    }
    let mut found = splitter.found;
    found.fragments = without_empty(found.fragments);
    Ok(found)
}

/// Returns whether a condition is told by those who have it: `hypertensives`, `epilépticos`.
fn names_people(piece: &TaggedPhrase) -> bool {
    const ENDINGS: [&str; 12] = [
        "tensos", "tensas", "ticos", "ticas", "tics", "sives", "tados", "tadas", "nians", "nianos",
        "eurs", "erers",
    ];
    let is_condition = matches!(&piece.tag, PhraseTag::Term(term) if !term.is_medicine);
    is_condition
        && !piece.shown.contains(' ')
        && ENDINGS.iter().any(|ending| piece.shown.ends_with(ending))
}

/// Returns whether a phrase may stand before `mais` that compares: "toma-se mais losartana ou enalapril".
fn may_compare(piece: &TaggedPhrase) -> bool {
    piece.is_lead() || piece.tag == PhraseTag::Vocabulary(WordRole::Taking)
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
        } else if fragment.all
            && fragment.pronoun
            && let Some(last) = kept.last_mut()
            && last.sentence == fragment.sentence
            && last.has_only_clinics()
        {
            // "dermatology, all of it"
            last.all = true;
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
pub(super) struct FragmentSplitter<'a> {
    pub query: &'a SpelledQuery,
    pub registry: &'a ClinicRegistry,
    pub names: &'a RegistryPhrases,
    pub reading: &'a QuestionReading,
    pub found: QueryFragments,
    /// Phrases of the fragment so far.
    pub pieces: Vec<TaggedPhrase>,
    pub sentence: usize,
    connector: Connector,
    /// Negation before the fragment.
    negation: Option<String>,
    /// Verb such as `ignore` earlier in the clause.
    ignores: Option<String>,
    /// Whether the sentence compares numbers.
    compares: bool,
    /// Sentence and text of the last patient id.
    last_id: Option<(usize, String)>,
    /// Refusal of an unknown word of the sentence, unless the sentence requests nothing.
    pub refused_unless_noise: Option<PlanRefusal>,
    /// Refusal of an unknown word of a statement, unless a question about its medicine follows.
    pub refused_unless_asked: Option<PlanRefusal>,
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

    /// Reads a word that begins a sentence as the order that it also is: "bypass the list of …".
    fn read_imperative(&self, piece: &mut TaggedPhrase, next: Option<&QueryToken>) {
        const IMPERATIVES: [(&str, WordRole); 6] = [
            ("schedule", WordRole::Change),
            ("order", WordRole::Change),
            ("close", WordRole::Change),
            ("bypass", WordRole::Ignore),
            ("scan", WordRole::Verb),
            ("screen", WordRole::Verb),
        ];
        const DETERMINERS: &str = "a an the our my all every this that these those";
        let begins = self.pieces.iter().all(TaggedPhrase::is_filler);
        let next = next.and_then(QueryToken::as_word);
        let is_before_object = next.is_some_and(|word| is_one_of(&word.folded, DETERMINERS));
        let order = IMPERATIVES
            .into_iter()
            .find(|(word, _)| *word == piece.shown);
        if let (true, true, Some((_, role))) = (begins, is_before_object, order) {
            piece.tag = PhraseTag::Vocabulary(role);
        }
    }

    /// Reads `depois de` as a comparison with a time, and `c` or `w` after patients as `com` or `with`.
    fn read_short_form(&self, piece: &mut TaggedPhrase, next: Option<&QueryToken>) {
        let next = next.and_then(QueryToken::as_word);
        let is_before = |words| next.is_some_and(|word| is_one_of(&word.folded, words));
        let role = |p: &TaggedPhrase| match p.tag {
            PhraseTag::Vocabulary(role) => Some(role),
            _ => None,
        };
        let before = self.pieces.last().and_then(role);
        if piece.shown == "depois" && is_before("de do da dos das") {
            piece.tag = PhraseTag::Vocabulary(WordRole::Relative);
        }
        let is_people = matches!(before, Some(WordRole::Patients | WordRole::OnePatient));
        if is_one_of(&piece.shown, "c w") && piece.tag == PhraseTag::Unknown && is_people {
            piece.tag = PhraseTag::Vocabulary(WordRole::Cue);
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
        // "as well as"
        let is_well = self.pieces.len() > 1 && before == "well" && piece.shown == "as";
        if is_well || matches!((before, &*piece.shown), ("bem" | "assim", "como")) {
            self.pieces.pop();
            return self.separate(false, Connector::And);
        }
        if NEGATING_PAIRS.contains(&(before, &*piece.shown)) {
            self.pieces.pop();
            self.separate(false, Connector::Negation)?;
            self.negation = Some(piece.shown);
            return Ok(());
        }
        // "more common"
        if role == WordRole::Both && matches!(before, "more" | "most" | "less" | "mais" | "menos") {
            self.pieces.push(TaggedPhrase {
                tag: PhraseTag::Vocabulary(WordRole::Filler),
                ..piece
            });
            return Ok(());
        }
        if SIMULTANEOUS_PAIRS.contains(&(before, &*piece.shown)) {
            self.pieces.push(TaggedPhrase {
                tag: PhraseTag::Vocabulary(WordRole::Both),
                ..piece
            });
            return Ok(());
        }
        match role {
            // `mais` is also `more`: it compares before what is counted.
            WordRole::Join if piece.shown == "mais" && self.pieces.iter().all(may_compare) => {
                self.pieces.push(TaggedPhrase {
                    tag: PhraseTag::Vocabulary(WordRole::More),
                    ..piece
                });
                self.compares = true;
                Ok(())
            }
            WordRole::Join if piece.shown == "plus" && !self.has_topic() => {
                self.separate(false, Connector::Comma)
            }
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
                let separates = is_one_of(&piece.shown, "vs versus") && !self.pieces.is_empty();
                self.pieces.push(piece);
                match separates {
                    true => self.separate(false, Connector::Or),
                    false => Ok(()),
                }
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
        let stated = self.refused_unless_asked.take();
        let mut fragment = self.build()?;
        if let Some(refusal) = stated {
            self.settle_statement(refusal, &fragment)?;
        }
        fragment.sentence = self.sentence;
        fragment.connector = self.connector;
        fragment.left_out = match (self.negation.take(), self.ignores.clone()) {
            (Some(_), Some(_)) => {
                (fragment.patients, fragment.unignored) = (true, true);
                None
            }
            (one, other) => one.or(other),
        };
        self.found.count |= fragment.count;
        self.found.compare |= fragment.compare;
        self.found.fragments.push(fragment);
        self.pieces.clear();
        if stops {
            let of_sentence = self.found.fragments.iter().rev();
            let requests = of_sentence
                .take_while(|fragment| fragment.sentence == self.sentence)
                .any(|fragment| !fragment.is_empty() || fragment.asks());
            if let (true, Some(refusal)) = (requests, self.refused_unless_noise.take()) {
                return Err(refusal);
            }
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
        self.qualify_medicines();
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
        // "the medication of hypertensives"
        fragment.patients |= self.pieces.iter().any(names_people);
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
        // "did CARD-001 get losartan"
        fragment.medication |= has_medicine && !fragment.ids.is_empty() && !fragment.record;
        if has_medicine {
            self.refuse_general_taking(&fragment)?;
        }
        // "and what they take"
        // "and everything they take"
        let asks_everything = fragment.clinics.is_empty()
            && self
                .pieces
                .iter()
                .any(|p| matches!(&*p.shown, "everything" | "tudo"));
        let asks_treatment =
            (fragment.what || asks_everything) && fragment.taking && fragment.topic.is_none();
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
}
