//! Asides of the asker: what is said beside the question, such as a greeting, a reason or a complaint.

use std::ops::Range;

use callboard_message::text::is_one_of;

use super::corrections::without_retracted;
use super::phrases::RegistryPhrases;
use super::reading::{QuestionReading, SpelledQuery};
use super::tags::{PhraseTag, next_phrase};
use super::tokens::QueryToken;
use super::vocabulary::{WordRole, word_role};
use crate::plan::ClinicRegistry;

/// Words that begin an aside within a sentence, in folded form: "…, because the wholesaler rang".
const CONJUNCTIONS: &str = "because cause cos coz cuz bc since porque pq pois";
/// Words by which a sentence tells of somebody else than the patients: "I only want to print as many".
const SUBJECTS: &str = "i i'm im i've ive i'd i'll myself we've we're he's she's it's its someone somebody they've they're \
                        someone's somebody's rang phoned asked said eu minha meu minhas meus mim comigo estou sou fui \
                        vou ela ele disse alguem ligou pediu perguntou perguntando mandou";
/// Words that refer to the patients asked for: "only those that she sees".
const REFERENCES: &str = "those these them they their ones who whom whose except rest others estes esses aqueles eles elas \
                          deles delas quem cujo outros outras";

/// First words of a courtesy, such as a greeting or an apology.
const COURTESIES: &str = "hope hoping thanks thank sorry apologies apologize espero obrigado obrigada desculpa desculpe desculpas \
                          peco perdao adorei congratulations congrats parabens happy merry feliz nice great";
/// Articles and possessives that may begin a statement about a thing: "the printer is broken".
const DETERMINERS: &str =
    "the my our your a an this that o os as um uma meu minha nosso nossa esse essa este esta";
/// Verbs of such a statement.
const FINITE_VERBS: &str = "is are was were has had will isn't wasn't hasn't won't keeps went came looks seems broke rang called \
                            sent wants thinks says esta foi vai ficou caiu ligou quer pediu falou disse quebrou chegou para";
/// First words of a question that can be answered by yes or no.
const AUXILIARIES: &str = "should can could may might must do does did is are was were has have would will shall devo deve posso \
                           pode podem";
/// Words by which the asker wishes something or limits it, so that it may be part of the question.
const WISHES: &str = "want need like wish would i'd you please only interested quero queria preciso gostaria favor apenas \
                      somente";

/// Words for numbers that may be ages: "forty minutes on the phone" has none.
const NUMERALS: &str = "twenty thirty forty fifty sixty seventy eighty ninety hundred vinte trinta quarenta cinquenta sessenta \
                        setenta oitenta noventa";

/// Negations before what is left out: "I said without diabetes".
const EXCLUDING: &str = "without except excluding sem exceto excluindo";
/// Words that select patients in a question, and mean something else in a statement: "the lift stopped".
const SELECTING: &str = "old older stopped quit refused declined parou largou recusou interrompeu ano anos recent recently latest \
                         average sort";

/// Words after which an unknown one may narrow the question.
const PREPOSITIONS: &str =
    "from at in under by like named called only just em no na so somente apenas";

/// Part of a question between two signs, or from a conjunction on.
struct Segment {
    tokens: Range<usize>,
    sentence: usize,
    /// Whether it has a word that asks, such as `who` or `many`.
    asks: bool,
    /// Whether it names a clinic, a patient's id, a medicine, or a condition that clinics list.
    has_matter: bool,
    /// Whether it has another medical word: "my knee".
    has_medical_word: bool,
    /// Whether it names a clinic or a patient's id, or one that isn't registered.
    has_object: bool,
    /// Whether it may narrow what is asked for.
    may_narrow: bool,
    /// Whether it names a time or a thing that would narrow a question, and nothing in a statement.
    may_narrow_question: bool,
    has_number: bool,
    /// Whether it asks for what is refused, such as advice: then nothing of the question is left out.
    is_binding: bool,
    /// Whether it can be quoted: it has no word that must not stand in an answer, such as advice.
    is_quotable: bool,
    /// Whether it tells something of nobody who is asked for.
    tells_of_others: bool,
    /// Whether it tells of somebody else, and doesn't refer to patients.
    is_statement: bool,
}

impl Segment {
    /// Returns whether it can be left out beside what is asked for.
    fn is_aside(&self) -> bool {
        !self.has_matter && !self.may_narrow && (!self.has_medical_word || self.is_statement)
    }

    /// Returns whether it can be left out beside a sentence that is a question by itself: it tells something,
    /// perhaps of the same matter.
    fn asks_nothing(&self) -> bool {
        let tells = self.is_statement && !self.has_object && !self.may_narrow;
        !self.asks && (tells || self.is_aside())
    }
}

/// Words of a segment that decide whether it only tells something.
#[derive(Default)]
struct SegmentWords {
    has_subject: bool,
    refers: bool,
    wishes: bool,
    has_people: bool,
    has_relative: bool,
    has_year: bool,
    excludes: bool,
    asks: bool,
    orders: bool,
    is_courtesy: bool,
    has_determiner: bool,
    has_possessive: bool,
    has_finite_verb: bool,
}

impl SegmentWords {
    /// Reads the word at position `nth` of the segment, in folded form.
    fn read(&mut self, nth: usize, word: &str) {
        self.has_subject |= is_one_of(word, SUBJECTS);
        self.refers |= is_one_of(word, REFERENCES);
        self.wishes |= is_one_of(word, WISHES);
        self.has_year |= word.len() == 4 && word.bytes().all(|b| b.is_ascii_digit());
        self.excludes |= is_one_of(word, EXCLUDING);
        self.is_courtesy |= nth == 0 && is_one_of(word, COURTESIES);
        self.has_determiner |= nth <= 1 && is_one_of(word, DETERMINERS);
        self.has_possessive |= nth == 0 && is_one_of(word, "my our");
        self.has_finite_verb |= nth > 0 && (is_one_of(word, FINITE_VERBS) || is_past(word));
        self.asks |= nth == 0 && is_one_of(word, AUXILIARIES);
    }

    /// Reads the role of a phrase.
    fn read_role(&mut self, tag: &PhraseTag, shown: &str) {
        use WordRole::{Count, OnePatient, Patients, Pronoun, Relative, Verb, What, Who};
        match tag {
            PhraseTag::Vocabulary(Patients | OnePatient | Pronoun) => {
                self.has_people |= !is_one_of(shown, "it its someone somebody");
            }
            PhraseTag::Vocabulary(Relative) => self.has_relative = true,
            PhraseTag::Vocabulary(Who | What | Count) => self.asks = true,
            PhraseTag::Vocabulary(Verb) => self.orders |= !self.has_subject,
            _ => {}
        }
    }

    /// Returns whether the words only tell something, ask and order nothing, and wish nothing.
    fn tell(&self) -> bool {
        let is_of_thing = self.has_determiner && self.has_finite_verb;
        let is_of_own = self.has_possessive && !self.has_people;
        let is_told =
            self.is_courtesy || (self.has_subject || is_of_thing || is_of_own) && !self.wishes;
        is_told && !self.refers && !self.asks && !self.orders
    }
}

/// Returns whether a word ends as verbs in the past do: `arrived`, `parou`.
fn is_past(word: &str) -> bool {
    const ENDINGS: [&str; 6] = ["ed", "ou", "eu", "iu", "aram", "eram"];
    const LETTERS_MIN: usize = 5;
    word.len() >= LETTERS_MIN && ENDINGS.iter().any(|ending| word.ends_with(ending))
}

/// Question with its segments.
pub(super) struct SegmentedQuestion<'a> {
    query: &'a SpelledQuery,
    tokens: Vec<QueryToken>,
    segments: Vec<Segment>,
}

impl<'a> SegmentedQuestion<'a> {
    pub fn read(
        query: &'a SpelledQuery,
        registry: &ClinicRegistry,
        names: &RegistryPhrases,
    ) -> Self {
        let reading = QuestionReading::new(query);
        let tokens = without_retracted(&query.tokens, registry, names, &reading);
        let segments = read_segments(&tokens, registry, names, &reading);
        Self {
            query,
            tokens,
            segments,
        }
    }

    /// Returns the question without its sentences that only tell something with a medical word, which would be
    /// searched, and the words that are left out: "I hardly sleep. Who has acne?". `None` if there are none.
    pub fn without_told(&self) -> Option<(SpelledQuery, Vec<String>)> {
        let is_told = |sentence: usize| {
            let mut of_sentence = self.segments.iter().filter(|s| s.sentence == sentence);
            let has_word = { of_sentence.clone() }.any(|s| s.has_medical_word);
            has_word && of_sentence.all(|s| s.tells_of_others && !s.has_matter && !s.may_narrow)
        };
        let keeps = self.segments.iter().map(|s| !is_told(s.sentence));
        self.keep(&keeps.collect::<Vec<_>>())
    }

    /// Returns the question without its asides, in one or more ways, and with each the words that it leaves
    /// out: first without all parts that are asides, then each sentence that may be the question by itself. A
    /// part that might narrow the question is no aside.
    pub fn left_out(&self) -> Vec<(SpelledQuery, Vec<String>)> {
        let segments = &self.segments;
        if segments.iter().any(|segment| segment.is_binding) {
            return Vec::new();
        }
        let without = |leaves_out: fn(&Segment) -> bool, sentence: Option<usize>| -> Vec<bool> {
            let is_kept =
                |s: &Segment| sentence.is_none_or(|at| s.sentence == at) && !leaves_out(s);
            segments.iter().map(is_kept).collect()
        };
        let mut readings: Vec<Vec<bool>> = vec![without(Segment::is_aside, None)];
        let sentences = segments.last().map_or(0, |last| last.sentence + 1);
        for sentence in 0..sentences {
            let beside = segments.iter().filter(|s| s.sentence != sentence);
            if beside.clone().count() > 0 && beside.into_iter().all(Segment::asks_nothing) {
                readings.push(without(|_| false, Some(sentence)));
                readings.push(without(Segment::is_aside, Some(sentence)));
            }
        }
        readings.push(without(Segment::asks_nothing, None));
        readings
            .iter()
            .filter_map(|keeps| self.keep(keeps))
            .collect()
    }

    /// Returns the question with these segments, and the words of the others; `None` if these ask for nothing,
    /// or are all.
    fn keep(&self, keeps: &[bool]) -> Option<(SpelledQuery, Vec<String>)> {
        let parts = || self.segments.iter().zip(keeps);
        let kept = || {
            parts()
                .filter(|(_, kept)| **kept)
                .map(|(segment, _)| segment)
        };
        let matters = kept().any(|segment| segment.has_matter || segment.has_medical_word);
        if !matters || !keeps.contains(&false) {
            return None;
        }
        let left_out = parts()
            .filter(|(segment, kept)| segment.is_quotable && !**kept)
            .map(|(segment, _)| words_of(&self.tokens[segment.tokens.clone()]));
        let rest = kept().flat_map(|segment| {
            let sign = self.tokens.get(segment.tokens.end);
            let sign = sign.filter(|token| token.as_word().is_none());
            self.tokens[segment.tokens.clone()].iter().chain(sign)
        });
        let rest = self.query.with_tokens(rest.cloned().collect());
        Some((rest, left_out.collect()))
    }
}

fn words_of(tokens: &[QueryToken]) -> String {
    let words = tokens.iter().filter_map(QueryToken::as_word);
    words
        .map(|word| word.text.as_str())
        .collect::<Vec<_>>()
        .join(" ")
}

fn read_segments(
    tokens: &[QueryToken],
    registry: &ClinicRegistry,
    names: &RegistryPhrases,
    reading: &QuestionReading,
) -> Vec<Segment> {
    let mut segments = Vec::new();
    let (mut start, mut sentence) = (0, 0);
    for end in 0..=tokens.len() {
        let is_sign = tokens
            .get(end)
            .is_none_or(|token| token.as_word().is_none());
        if is_sign || end > start && begins_aside(&tokens[end..]) {
            if end > start {
                let segment = read_segment(tokens, start..end, registry, names, reading);
                segments.push(Segment {
                    sentence,
                    ..segment
                });
            }
            sentence += usize::from(tokens.get(end) == Some(&QueryToken::Stop));
            start = if is_sign { end + 1 } else { end };
        }
    }
    segments
}

/// Returns whether a conjunction begins an aside. `since` before a date or time narrows the question.
fn begins_aside(tokens: &[QueryToken]) -> bool {
    let word = |at: usize| tokens.get(at).and_then(QueryToken::as_word);
    let is_time = word(1).is_some_and(|word| {
        word.folded.starts_with(|c: char| c.is_ascii_digit())
            || matches!(
                word_role(&word.folded),
                Some(WordRole::Time | WordRole::Relative)
            )
    });
    word(0).is_some_and(|word| is_one_of(&word.folded, CONJUNCTIONS)) && !is_time
}

fn read_segment(
    tokens: &[QueryToken],
    range: Range<usize>,
    registry: &ClinicRegistry,
    names: &RegistryPhrases,
    reading: &QuestionReading,
) -> Segment {
    use WordRole::{Cue, Of, Taking};
    let mut segment = Segment {
        tokens: range.clone(),
        sentence: 0,
        asks: false,
        has_matter: false,
        has_medical_word: false,
        has_object: false,
        may_narrow: false,
        may_narrow_question: false,
        has_number: false,
        is_binding: false,
        is_quotable: true,
        tells_of_others: false,
        is_statement: false,
    };
    let mut words = SegmentWords::default();
    let (mut is_led, mut at) = (false, range.start);
    while at < range.end {
        let word = tokens[at].as_word().map_or("", |word| word.folded.as_str());
        words.read(at - range.start, word);
        // An id or specialty that isn't registered is refused.
        let Ok((used, Some(phrase))) =
            next_phrase(&tokens[at..range.end], registry, names, reading)
        else {
            (segment.has_matter, segment.has_object) = (true, true);
            at += 1;
            continue;
        };
        words.read_role(&phrase.tag, &phrase.shown);
        match word {
            word if is_one_of(word, NUMERALS) => segment.has_number = true,
            word if is_one_of(word, SELECTING) => segment.may_narrow_question = true,
            _ => read_tag(&phrase.tag, &mut segment),
        }
        // "with glorbix", "from Lisbon"
        segment.may_narrow_question |=
            phrase.tag == PhraseTag::Unknown && (is_led || phrase.capital && at > range.start);
        is_led = matches!(phrase.tag, PhraseTag::Vocabulary(Cue | Taking | Of))
            || is_one_of(word, PREPOSITIONS);
        at += used;
    }
    let tells = words.tell() && !segment.has_object;
    // "the printer is broken", of nobody who is asked for
    let tells_of_others = tells && !words.has_people;
    segment.asks &= !tells;
    segment.tells_of_others = tells_of_others;
    segment.is_quotable = !segment.is_binding;
    segment.is_binding &= !tells_of_others;
    segment.may_narrow |= words.refers
        || words.has_year
        || words.excludes && segment.has_medical_word
        || segment.has_number && words.has_relative
        || (segment.may_narrow_question || segment.has_number || words.has_relative)
            && !tells_of_others;
    segment.is_statement = (words.has_subject || tells) && !words.refers;
    segment
}

/// Adds what the tag of a phrase tells to its segment.
fn read_tag(tag: &PhraseTag, segment: &mut Segment) {
    use WordRole::*;
    match tag {
        PhraseTag::Clinic(..) | PhraseTag::Id(..) => {
            (segment.has_object, segment.has_matter) = (true, true);
        }
        PhraseTag::Term(term) if term.is_medicine || !term.clinics.is_empty() => {
            segment.has_matter = true;
        }
        PhraseTag::Term(_) | PhraseTag::Weak => segment.has_medical_word = true,
        PhraseTag::Vocabulary(Filter | Rest | More | Both) => segment.may_narrow = true,
        PhraseTag::Number => segment.has_number = true,
        PhraseTag::Vocabulary(Time | Negation | Than | Qualifier | Form) => {
            segment.may_narrow_question = true;
        }
        PhraseTag::Vocabulary(
            Advice | Combine | Change | Identity | Ignore | Send | Repeat | NameCue,
        ) => segment.is_binding = true,
        PhraseTag::Vocabulary(Who | What | Count | Verb) => segment.asks = true,
        _ => {}
    }
}
