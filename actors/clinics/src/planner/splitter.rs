//! Splitting of a question into fragments.

use callboard_message::text::is_one_of;

use super::corrections::without_retracted;
use super::fragment::{Connector, Fragment, QueryFragments};
use super::fragment_roles::{read_roles, refuse_names};
use super::orders::{begins_with, folded, refuse_causative, refuse_medicine_count};
use super::phrases::{PhraseKind, RegistryPhrases, extend_unique};
use super::reading::{QuestionReading, SpelledQuery};
use super::refusal::PlanRefusal;
use super::tags::{PhraseTag, TaggedPhrase, next_phrase};
use super::tokens::{QueryToken, QueryWord};
use super::topic::{SearchTopic, build_topic};
use super::vocabulary::{WordRole, word_role};
use crate::plan::ClinicRegistry;

/// Pairs of words that leave out what follows, as `except` does.
const NEGATING_PAIRS: [(&str, &str); 20] = [
    ("bar", "those"),
    ("bar", "the"),
    ("bar", "anyone"),
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
    ("fora", "as"),
    ("fora", "de"),
    ("fora", "da"),
    ("fora", "do"),
    ("fora", "das"),
    ("fora", "dos"),
];

/// Words after which `but` leaves out what follows: "anywhere but cardiology".
const WHOLES: &str =
    "all any anywhere everywhere anybody everybody anyone everyone every clinic clinics patients";

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
        also: None,
        but: false,
        is_unfinished: false,
        negation: None,
        may_negate_before: false,
        ignores: None,
        compares: false,
        last_id: None,
        refused_unless_noise: None,
        refused_unless_asked: None,
    };
    let tokens = without_retracted(&query.tokens, registry, names, &reading);
    refuse_medicine_count(&tokens)?;
    refuse_causative(&tokens)?;
    let tokens = &with_comparisons(tokens);
    let mut at = 0;
    while at < tokens.len() {
        let (used, mut piece) = next_phrase(&tokens[at..], registry, names, &reading)?;
        at += used;
        if let Some(piece) = &mut piece {
            splitter.read_bare_number(piece);
            splitter.read_imperative(piece, tokens.get(at));
            splitter.read_kind(piece, tokens.get(at));
            splitter.read_fewer(piece, tokens.get(at));
            splitter.read_mobile(piece, tokens.get(at));
            splitter.read_short_form(piece, tokens.get(at));
            splitter.read_contraction(piece);
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
    refuse_joined_clinics(&found.fragments)?;
    found.fragments = without_empty(found.fragments);
    Ok(found)
}

/// Returns the role of a word by the one before it: "more common", "same time". `None` if the pair has none of
/// its own.
fn role_of_pair(before: &str, shown: &str, role: WordRole) -> Option<WordRole> {
    if role == WordRole::Both && is_one_of(before, "more most less mais menos") {
        return Some(WordRole::Filler);
    }
    match (before, shown) {
        ("other", "ones") => Some(WordRole::Rest),
        ("personal" | "dados", "pessoais" | "data" | "details" | "information" | "info") => {
            Some(WordRole::Identity)
        }
        pair if SIMULTANEOUS_PAIRS.contains(&pair) => Some(WordRole::Both),
        _ => None,
    }
}

/// Returns whether a word tells to whom patients belong: `are`, `frequentam`.
fn is_being(piece: &TaggedPhrase) -> bool {
    const BEING: &str = "is are was were be being seen go goes attend attends attending visit visits belong belongs \
         registered enrolled followed são sao é estão estao está esta vão vao frequentam frequenta seguidos seguidas \
         atendidos atendidas acompanhados acompanhadas";
    is_one_of(&piece.shown, BEING)
}

/// Returns the tokens with "as many … as" read as "more … than": the numbers of both are told.
fn with_comparisons(mut tokens: Vec<QueryToken>) -> Vec<QueryToken> {
    let words: Vec<&str> = tokens.iter().map(folded).collect();
    let starts = (0..words.len()).filter(|at| begins_with(&words[*at..], "as many"));
    let mut pairs = starts.filter_map(|start| {
        let within = tokens[start + 2..]
            .iter()
            .take_while(|t| t.as_word().is_some());
        let second = within.clone().position(|token| folded(token) == "as")?;
        let is_open = |token: &QueryToken| !matches!(folded(token), "possible" | "you" | "needed");
        let after = tokens.get(start + 2 + second + 1)?;
        (second > 0 && is_open(after)).then_some((start, start + 2 + second))
    });
    let pair = pairs.next_back();
    if let Some((start, second)) = pair {
        let word = |text: &str, token: &QueryToken| {
            token.as_word().map(|word| QueryWord {
                text: text.to_owned(),
                folded: text.to_owned(),
                ..word.clone()
            })
        };
        let (more, than) = (
            word("more", &tokens[start + 1]),
            word("than", &tokens[second]),
        );
        if let (Some(more), Some(than)) = (more, than) {
            tokens[start + 1] = QueryToken::Word(more);
            tokens[second] = QueryToken::Word(than);
            tokens.remove(start);
        }
    }
    tokens
}

/// Refuses the question who is a patient of two clinics at once: "which cardiology patients are also patients of
/// dermatology". No clinic knows the ids of another.
fn refuse_joined_clinics(fragments: &[Fragment]) -> Result<(), PlanRefusal> {
    for fragment in fragments.iter().filter(|f| f.also) {
        let of_sentence = || fragments.iter().filter(|f| f.sentence == fragment.sentence);
        let mut clinics = Vec::new();
        of_sentence().for_each(|f| extend_unique(&mut clinics, &f.clinics));
        let names_only_clinics =
            of_sentence().all(|f| f.topic.is_none() && f.ids.is_empty() && f.left_out.is_none());
        if clinics.len() > 1 && names_only_clinics && of_sentence().any(|f| f.patients || f.who) {
            return Err(PlanRefusal::Join("also".to_owned()));
        }
    }
    Ok(())
}

fn names_condition(piece: &TaggedPhrase) -> bool {
    is_one_of(
        &piece.shown,
        "condition diagnosis disease illness sickness problem diagnostico diagnóstico doenca doença problema",
    )
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
    /// Whether a word such as `also` stands before the fragment, behind a form of `be` or not.
    also: Option<bool>,
    /// Whether a word such as `but` stands before the fragment.
    but: bool,
    /// Whether a fragment of the sentence ends before what patients have: "patients with the, you know, …".
    is_unfinished: bool,
    /// Negation before the fragment.
    negation: Option<String>,
    /// Whether that negation stands right behind what it may leave out: "acne não".
    may_negate_before: bool,
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
        const IMPERATIVES: [(&str, WordRole); 10] = [
            ("mark", WordRole::Change),
            ("flag", WordRole::Change),
            ("tick", WordRole::Change),
            ("sign", WordRole::Change),
            ("schedule", WordRole::Change),
            ("order", WordRole::Change),
            ("close", WordRole::Change),
            ("bypass", WordRole::Ignore),
            ("scan", WordRole::Verb),
            ("screen", WordRole::Verb),
        ];
        const DETERMINERS: &str =
            "a an the our my his her its their all every this that these those";
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

    /// Reads a word for a kind before `of` as a filler: "some form of dermatitis".
    fn read_kind(&self, piece: &mut TaggedPhrase, next: Option<&QueryToken>) {
        const KINDS: &str = "form forms sort sorts variety varieties variant stage degree type types forma formas \
             tipo tipos variedade grau";
        // "I am compiling a cohort"
        let is_group = is_one_of(&piece.shown, "cohort population");
        let is_indefinite = self
            .pieces
            .last()
            .is_some_and(|p| is_one_of(&p.shown, "a an"));
        if is_group && is_indefinite && !next.is_some_and(|next| is_one_of(folded(next), "of with"))
        {
            piece.tag = PhraseTag::Vocabulary(WordRole::Filler);
        }
        let is_before_of = next.is_some_and(|next| is_one_of(folded(next), "of de da do"));
        if is_before_of && is_one_of(&piece.shown, KINDS) {
            piece.tag = PhraseTag::Vocabulary(WordRole::Filler);
        }
    }

    /// Reads `menos` between a verb and a word for patients as `fewer`: "qual clínica tem menos pacientes". After
    /// patients it leaves out what follows.
    fn read_fewer(&self, piece: &mut TaggedPhrase, next: Option<&QueryToken>) {
        let is_verb = |p: &TaggedPhrase| {
            matches!(
                p.tag,
                PhraseTag::Vocabulary(WordRole::Cue | WordRole::Taking)
            ) || is_one_of(&p.shown, "há ha temos existem")
        };
        let counts = next.is_some_and(|next| {
            word_role(folded(next)) == Some(WordRole::Patients) || folded(next) == "gente"
        });
        if piece.shown == "menos" && counts && self.pieces.last().is_some_and(is_verb) {
            piece.tag = PhraseTag::Vocabulary(WordRole::More);
        }
    }

    /// Reads `mobile` as a telephone before a word for its number, or after an article and before whose it is. Other
    /// patients are mobile.
    fn read_mobile(&self, piece: &mut TaggedPhrase, next: Option<&QueryToken>) {
        let next = next.map_or("", folded);
        let before = self.pieces.last().map_or("", |p| &*p.shown);
        let is_number = is_one_of(next, "number numbers no nr phone phones");
        let is_noun = is_one_of(before, "the a their his her s") && is_one_of(next, "of for");
        if piece.shown == "mobiles" || piece.shown == "mobile" && (is_number || is_noun) {
            piece.tag = PhraseTag::Vocabulary(WordRole::Identity);
        }
    }

    /// Reads a contraction behind those who are asked for as a negation, or as what isn't selected by: "who didn't take
    /// aspirin", "who can't take it".
    fn read_contraction(&self, piece: &mut TaggedPhrase) {
        use WordRole::{Filler, Filter, Negation, OnePatient, Patients, Who};
        const PAST: &str =
            "didn't didnt wasn't wasnt weren't werent hadn't hadnt couldn't couldnt ain't aint";
        const FUTURE: &str = "can't cant cannot won't wont wouldn't wouldnt shouldn't mustn't";
        // "the patients that we couldn't reach"
        let is_subject = |p: &TaggedPhrase| is_one_of(&p.shown, "i we he she they you");
        let before = self
            .pieces
            .iter()
            .rfind(|p| p.tag != PhraseTag::Vocabulary(Filler) || is_subject(p));
        let is_asked_for = before
            .is_some_and(|p| matches!(p.tag, PhraseTag::Vocabulary(Who | Patients | OnePatient)));
        if is_asked_for && is_one_of(&piece.shown, PAST) {
            piece.tag = PhraseTag::Vocabulary(Negation);
        } else if is_asked_for && is_one_of(&piece.shown, FUTURE) {
            piece.tag = PhraseTag::Vocabulary(Filter);
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
        if is_one_of(&piece.shown, "c w cm") && piece.tag == PhraseTag::Unknown && is_people {
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
            return self.negate(piece.shown);
        }
        if piece.shown == "but" && is_one_of(before, WHOLES) {
            return self.negate(piece.shown);
        }
        if let Some(role) = role_of_pair(before, &piece.shown, role) {
            self.pieces.push(TaggedPhrase {
                tag: PhraseTag::Vocabulary(role),
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
            WordRole::Join if is_one_of(&piece.shown, "also também tambem") => {
                let is_said = self.pieces.last().is_some_and(is_being);
                self.separate(false, Connector::And)?;
                self.also = Some(is_said);
                Ok(())
            }
            WordRole::Join => {
                self.separate(false, Connector::And)?;
                self.but = is_one_of(&piece.shown, "but mas porem porém");
                Ok(())
            }
            WordRole::Or => self.separate(false, Connector::Or),
            WordRole::Than => self.separate(false, Connector::Or),
            WordRole::Filler if self.compares && piece.shown == "que" && self.has_topic() => {
                self.separate(false, Connector::Or)
            }
            WordRole::Stop => self.separate(true, Connector::Start),
            WordRole::Negation => self.negate(piece.shown),
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

    /// Returns whether a verb such as `ignore` stands before in the clause.
    pub fn is_ignored(&self) -> bool {
        self.ignores.is_some()
    }

    /// Ends the fragment before a word that leaves out what follows.
    fn negate(&mut self, word: String) -> Result<(), PlanRefusal> {
        let ends_object = self.pieces.last().is_some_and(|p| {
            matches!(
                p.tag,
                PhraseTag::Term(_) | PhraseTag::Clinic(..) | PhraseTag::Id(..)
            )
        });
        // "not without names"
        let is_denied = { self.negation.as_deref() }
            .is_some_and(|before| is_one_of(before, "not don't never não nao nunca"));
        let is_twice = is_one_of(&word, "without sem except exceto excluding excluindo out");
        if is_denied && is_twice && self.pieces.iter().all(TaggedPhrase::is_filler) {
            return Err(PlanRefusal::Negation(word));
        }
        self.separate(false, Connector::Negation)?;
        self.may_negate_before = ends_object && is_one_of(&word, "no não nao");
        self.negation = Some(word);
        Ok(())
    }

    /// Returns whether the fragment tells that something holds at once, with a pair of words such as `same time`,
    /// or of a person: "anyone seen in both", "which patients attend both".
    fn is_at_once(&self) -> bool {
        let is_person = |p: &TaggedPhrase| {
            is_one_of(&p.shown, "any anyone anybody someone alguém alguem algum")
        };
        let is_both = |p: &TaggedPhrase| p.tag == PhraseTag::Vocabulary(WordRole::Both);
        let has = |fits: &dyn Fn(&TaggedPhrase) -> bool| self.pieces.iter().any(fits);
        if has(&is_person) && has(&is_both) && has(&is_being) {
            return true;
        }
        self.pieces.windows(2).any(|pair| {
            SIMULTANEOUS_PAIRS.contains(&(&*pair[0].shown, &*pair[1].shown))
                || is_being(&pair[0]) && is_both(&pair[1])
        })
    }

    /// Returns the last word of the fragment if it leaves the fragment out: "warfarin aside".
    fn left_aside(&self, fragment: &Fragment) -> Option<String> {
        let last = self.pieces.last()?;
        let is_aside = is_one_of(&last.shown, "aside apart excepted");
        (is_aside && !fragment.has_no_object()).then(|| last.shown.clone())
    }

    /// Returns whether the fragment ends with a word such as `with`, before what its patients have.
    fn ends_before_topic(&self, fragment: &Fragment) -> bool {
        let last = self.pieces.iter().rev().find(|p| !p.is_filler());
        fragment.patients
            && fragment.has_no_object()
            && last.is_some_and(|p| is_one_of(&p.shown, "with com"))
    }

    fn has_topic(&self) -> bool {
        self.pieces
            .iter()
            .any(|p| matches!(p.tag, PhraseTag::Term(_)))
    }

    /// Ends the fragment. `stops` tells that the sentence ends too; `next` is the separator before
    /// the next fragment.
    fn separate(&mut self, stops: bool, next: Connector) -> Result<(), PlanRefusal> {
        if std::mem::take(&mut self.may_negate_before)
            && self.pieces.is_empty()
            && let Some(word) = self.negation.take()
        {
            return Err(PlanRefusal::Negation(word));
        }
        let stated = self.refused_unless_asked.take();
        let mut fragment = self.build()?;
        if let Some(refusal) = stated {
            self.settle_statement(refusal, &fragment)?;
        }
        let begins_being = self.pieces.first().is_some_and(is_being);
        let also = self.also.take();
        fragment.also = also.is_some_and(|is_said| is_said || begins_being) || self.is_at_once();
        self.is_unfinished |= self.ends_before_topic(&fragment);
        self.is_unfinished &= fragment.topic.is_none();
        fragment.but = std::mem::take(&mut self.but);
        fragment.sentence = self.sentence;
        fragment.connector = self.connector;
        fragment.left_out = match (self.negation.take(), self.ignores.clone()) {
            (Some(_), Some(_)) => {
                (fragment.patients, fragment.unignored) = (true, true);
                None
            }
            (one, other) => one.or(other).or_else(|| self.left_aside(&fragment)),
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
            if std::mem::take(&mut self.is_unfinished) {
                return Err(self.say_what());
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
        self.read_purpose();
        self.refuse_permission()?;
        self.read_eponyms();
        self.search_routes();
        self.qualify_conditions();
        self.qualify_medicines();
        self.refuse_unit()?;
        let mut fragment = read_roles(&self.pieces, self.registry)?;
        // "don't forget the names"
        let is_negated = self.negation.is_some() && self.ignores.is_none();
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
        fragment.is_body_part = self.names_body_part();
        fragment.topic = build_topic(&self.pieces)?;
        // "the medication of hypertensives"
        fragment.patients |= self.pieces.iter().any(names_people);
        let has_medicine = fragment
            .topic
            .as_ref()
            .is_some_and(SearchTopic::has_medicine);
        self.read_number_of_clinic(&mut fragment);
        if !is_negated {
            self.refuse_identity(&fragment)?;
        }
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
        fragment.medication |=
            asks_treatment && !fragment.patients && !fragment.compare && fragment.ids.is_empty();
        // "CARD-001, what is his condition"
        let asks_condition = fragment.what
            && fragment.pronoun
            && fragment.topic.is_none()
            && (fragment.cue || self.pieces.iter().any(names_condition));
        fragment.record |= asks_condition && fragment.has_no_object();
        // "what is CARD-001 being treated for"
        if !fragment.ids.is_empty() && !has_medicine && self.asks_reason() {
            (fragment.record, fragment.taking) = (true, false);
        }
        // "on cardiology duty"
        let nothing_taken =
            fragment.topic.is_none() && !fragment.patients && !fragment.clinics.is_empty();
        fragment.taking &= !nothing_taken;
        if self.asks_definition(&fragment) {
            return Err(self.say_what());
        }
        Ok(fragment)
    }

    /// Returns whether the fragment names clinics by a part of the body only, and tells something of it: "brain gone", but
    /// not "the heart clinic".
    fn names_body_part(&self) -> bool {
        const PLACE_WORDS: &str = "the in at of from for on only please clinic clinics unit ward department side patients \
             a o na no da do em clinica clínica só so";
        let is_clinic = |p: &&TaggedPhrase| matches!(p.tag, PhraseTag::Clinic(..));
        let is_synonym =
            |p: &TaggedPhrase| matches!(p.tag, PhraseTag::Clinic(PhraseKind::Synonym, _));
        let mut clinics = self.pieces.iter().filter(is_clinic);
        let mut others = self.pieces.iter().filter(|p| !is_clinic(p));
        self.pieces.iter().any(is_synonym)
            && clinics.all(is_synonym)
            && others.any(|p| !is_one_of(&p.shown, PLACE_WORDS))
    }

    /// Returns whether the fragment asks what somebody is treated for.
    fn asks_reason(&self) -> bool {
        const TREATED: &str = "treated medicated seen followed tratado tratada";
        let has = |words| self.pieces.iter().any(|p| is_one_of(&p.shown, words));
        let ends_open = self.pieces.last().is_some_and(|p| p.shown == "for");
        has(TREATED) && (ends_open || has("why motivo razão"))
    }

    fn say_what(&self) -> PlanRefusal {
        PlanRefusal::SayWhat {
            specialties: self.registry.specialties(),
        }
    }

    /// Reads a number beside a clinic as the id of its patient: "patient 12 of cardiology", "show 003 from
    /// dermatology".
    fn read_number_of_clinic(&mut self, fragment: &mut Fragment) {
        const ID_DIGITS_MIN: usize = 3;
        let [clinic] = fragment.clinics[..] else {
            return;
        };
        // "patients seen before 2020", "em 2023"
        let is_compared = |p: &TaggedPhrase| p.tag == PhraseTag::Vocabulary(WordRole::Relative);
        if self.pieces.iter().any(is_compared) {
            return;
        }
        let digits = |p: &TaggedPhrase| {
            let is_number = p.tag == PhraseTag::Number
                && !p.is_year()
                && p.shown.bytes().all(|b| b.is_ascii_digit());
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
