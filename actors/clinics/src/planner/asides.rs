//! Asides of the asker: what is said beside the question, such as a greeting, a reason or a complaint.

use std::ops::Range;

use callboard_message::text::is_one_of;

use super::corrections::without_retracted;
use super::phrases::RegistryPhrases;
use super::reading::{QuestionReading, SpelledQuery};
use super::tags::{PhraseTag, next_phrase};
use super::tokens::QueryToken;
use super::vocabulary::WordRole;
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
                          peco perdao adorei";
/// Articles and possessives that may begin a statement about a thing: "the printer is broken".
const DETERMINERS: &str = "the my our your a an this that o os as um uma meu minha nosso nossa esse essa este esta";
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
    asks: bool,
    orders: bool,
    is_courtesy: bool,
    has_determiner: bool,
    has_finite_verb: bool,
}

impl SegmentWords {
    /// Reads the word at position `nth` of the segment, in folded form.
    fn read(&mut self, nth: usize, word: &str) {
        self.has_subject |= is_one_of(word, SUBJECTS);
        self.refers |= is_one_of(word, REFERENCES);
        self.wishes |= is_one_of(word, WISHES);
        self.is_courtesy |= nth == 0 && is_one_of(word, COURTESIES);
        self.has_determiner |= nth <= 1 && is_one_of(word, DETERMINERS);
        self.has_finite_verb |= nth > 0 && is_one_of(word, FINITE_VERBS);
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
        let is_told = self.is_courtesy || (self.has_subject || is_of_thing) && !self.wishes;
        is_told && !self.refers && !self.asks && !self.orders
    }
}

/// Returns the query without its asides, in one or more ways, and with each the words that it leaves out: first
/// without all parts that are asides, then each sentence that may be the question by itself. A part
/// that might narrow the question is no aside.
pub(super) fn without_asides(
    query: &SpelledQuery,
    registry: &ClinicRegistry,
    names: &RegistryPhrases,
) -> Vec<(SpelledQuery, Vec<String>)> {
    let reading = QuestionReading::new(query);
    let tokens = without_retracted(&query.tokens, registry, names, &reading);
    let segments = read_segments(&tokens, registry, names, &reading);
    if segments.iter().any(|segment| segment.is_binding) {
        return Vec::new();
    }
    let without = |leaves_out: fn(&Segment) -> bool, sentence: Option<usize>| -> Vec<bool> {
        let is_kept = |s: &Segment| sentence.is_none_or(|at| s.sentence == at) && !leaves_out(s);
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
    let read = |keeps: Vec<bool>| {
        let parts = || segments.iter().zip(&keeps);
        let matters = parts()
            .any(|(segment, kept)| *kept && (segment.has_matter || segment.has_medical_word));
        let left_out: Vec<String> = parts()
            .filter(|(segment, kept)| segment.is_quotable && !**kept)
            .map(|(segment, _)| words_of(&tokens[segment.tokens.clone()]))
            .collect();
        let rest = parts().filter(|(_, kept)| **kept).flat_map(|(segment, _)| {
            let sign = tokens.get(segment.tokens.end);
            let sign = sign.filter(|token| token.as_word().is_none());
            tokens[segment.tokens.clone()].iter().chain(sign)
        });
        let rest = query.with_tokens(rest.cloned().collect());
        (matters && keeps.contains(&false)).then_some((rest, left_out))
    };
    readings.into_iter().filter_map(read).collect()
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
        if is_sign || end > start && begins_aside(&tokens[end]) {
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

fn begins_aside(token: &QueryToken) -> bool {
    token
        .as_word()
        .is_some_and(|word| is_one_of(&word.folded, CONJUNCTIONS))
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
        match is_one_of(word, NUMERALS) {
            true => segment.has_number = true,
            false => read_tag(&phrase.tag, &mut segment),
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
    segment.is_quotable = !segment.is_binding;
    segment.is_binding &= !tells_of_others;
    segment.may_narrow |= words.refers
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
