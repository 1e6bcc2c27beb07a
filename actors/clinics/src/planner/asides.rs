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
    /// Whether it asks for what is refused, such as advice: then nothing of the question is left out.
    is_binding: bool,
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
    let mut readings: Vec<Vec<bool>> = vec![segments.iter().map(|s| !s.is_aside()).collect()];
    let sentences = segments.last().map_or(0, |last| last.sentence + 1);
    for sentence in 0..sentences {
        let beside = segments.iter().filter(|s| s.sentence != sentence);
        if beside.clone().count() > 0 && beside.into_iter().all(Segment::asks_nothing) {
            readings.push(segments.iter().map(|s| s.sentence == sentence).collect());
        }
    }
    let read = |keeps: Vec<bool>| {
        let parts = || segments.iter().zip(&keeps);
        let matters = parts()
            .any(|(segment, kept)| *kept && (segment.has_matter || segment.has_medical_word));
        let left_out: Vec<String> = parts()
            .filter(|(_, kept)| !**kept)
            .map(|(segment, _)| words_of(&tokens[segment.tokens.clone()]))
            .collect();
        let rest = parts().filter(|(_, kept)| **kept).flat_map(|(segment, _)| {
            let sign = tokens.get(segment.tokens.end);
            let sign = sign.filter(|token| token.as_word().is_none());
            tokens[segment.tokens.clone()].iter().chain(sign)
        });
        let rest = query.with_tokens(rest.cloned().collect());
        (matters && !left_out.is_empty()).then_some((rest, left_out))
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
    use WordRole::*;
    let mut segment = Segment {
        tokens: range.clone(),
        sentence: 0,
        asks: false,
        has_matter: false,
        has_medical_word: false,
        has_object: false,
        may_narrow: false,
        is_binding: false,
        is_statement: false,
    };
    let (mut has_subject, mut refers, mut is_led) = (false, false, false);
    let mut at = range.start;
    while at < range.end {
        let word = tokens[at].as_word().map_or("", |word| word.folded.as_str());
        has_subject |= is_one_of(word, SUBJECTS);
        refers |= is_one_of(word, REFERENCES);
        // An id or specialty that isn't registered is refused.
        let Ok((used, Some(phrase))) =
            next_phrase(&tokens[at..range.end], registry, names, reading)
        else {
            segment.has_matter = true;
            at += 1;
            continue;
        };
        match &phrase.tag {
            PhraseTag::Clinic(..) | PhraseTag::Id(..) => {
                segment.has_object = true;
                segment.has_matter = true;
            }
            PhraseTag::Term(term) if term.is_medicine || !term.clinics.is_empty() => {
                segment.has_matter = true;
            }
            PhraseTag::Term(_) | PhraseTag::Weak => segment.has_medical_word = true,
            PhraseTag::Number
            | PhraseTag::Vocabulary(
                Negation | Filter | Time | Relative | Rest | Qualifier | Form | More | Than | Both,
            ) => segment.may_narrow = true,
            PhraseTag::Vocabulary(
                Advice | Combine | Change | Identity | Ignore | Send | Repeat | NameCue,
            ) => segment.is_binding = true,
            PhraseTag::Vocabulary(Who | What | Count | Verb) => segment.asks = true,
            // "with glorbix", "from Lisbon"
            PhraseTag::Unknown => {
                segment.may_narrow |= is_led || phrase.capital && at > range.start
            }
            _ => {}
        }
        is_led = matches!(phrase.tag, PhraseTag::Vocabulary(Cue | Taking | Of))
            || is_one_of(word, PREPOSITIONS);
        at += used;
    }
    segment.may_narrow |= refers;
    segment.is_statement = has_subject && !refers;
    segment
}
