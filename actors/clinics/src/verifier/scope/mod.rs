//! Rule R3: no diagnosing, no prescribing, no advice against seeing a doctor, no promises.
//!
//! Each sentence is judged by a linear model ([`model`]): how much its words, pairs of words and their classes speak for
//! advice, and what a small grammar finds in it: who is addressed, what is to be done or believed, and
//! whether it is reported. Clauses that stand in a record word for word are judged as a record: records may quote
//! history and plans but never address the reader. A condition that a sentence asserts of a patient or
//! the reader and no record does is a diagnosis, whatever the model says.

mod addressed_record;
mod care;
mod classes;
mod diagnosis;
mod disclaimers;
mod features;
mod frames;
mod general;
mod hit;
mod implied;
mod lexicon;
mod model;
mod orders;
mod reader;
mod reading;
mod record;
mod reports;
mod sentence;
#[cfg(test)]
mod training;

use std::borrow::Cow;
use std::hash::BuildHasher;
use std::ops::Range;

use callboard_message::is_one_of;
use foldhash::HashMap;

use super::fold;
use features::SentenceOrigin;
use hit::{Address, Hit};
use reading::SentenceReading;
use record::RangeHashes;
use sentence::Token;

pub(super) use record::RecordedText;

/// Words for people in general.
const EVERYBODY: &str = "adult adults people everyone everybody anyone anybody nobody adulto adultos pessoas todos \
    qualquer ninguem";

/// Returns the kind of medical advice in the first sentence of `text` that gives some, such as
/// "prescribing"; `None` if none does. The time is linear in the length of the text, and of the
/// records if there is advice to look up in them.
pub(super) fn find_advice(text: &str, records: &RecordedText) -> Option<&'static str> {
    read_sentences(text, records, |reading| {
        kind_of_advice(reading)
            .or_else(|| diagnosis::asserts_unrecorded(reading).then_some(diagnosis::KIND))
    })
}

/// Maximum number of words that the model judges at once. A longer sentence is judged in pieces, of which each
/// shares half of its words with the next, so that other words don't outvote the advice.
const WINDOW_WORDS_MAX: usize = 48;

/// Returns the kind of advice that the model sees in a sentence. The grammar and the records are only asked
/// if they can change its verdict.
fn kind_of_advice(reading: &SentenceReading<'_, '_>) -> Option<&'static str> {
    let whole = 0..reading.tokens.len();
    let may_be_advice = windows(&whole).any(|window| {
        let scores = reading.scores(window);
        scores.iter().any(|score| !score.is_harmless())
    });
    if !may_be_advice {
        return None;
    }
    let found = Found::new(reading);
    let is_advice = |part: &Range<usize>, place: SentenceOrigin| {
        windows(part).any(|window| {
            let inside = found.strongest(|hit| window.contains(&hit.at));
            reading.scores(window)[place as usize].is_advice(inside)
        })
    };
    let parts: Vec<_> = found.parts().collect();
    // Advice to the reader is no quotation, also if a record has a part of it.
    let is_cut = found.hits.iter().any(|hit| {
        hit.address == Address::Reader
            && !parts
                .iter()
                .any(|(part, _)| part.contains(&hit.at) && part.contains(&hit.end))
    });
    let is_advice = parts.iter().any(|(part, place)| is_advice(part, *place))
        || is_cut && is_advice(&whole, SentenceOrigin::Answer);
    is_advice.then(|| found.hits.first().map_or("medical advice", |hit| hit.kind))
}

/// Returns the pieces of a part that the model judges.
fn windows(part: &Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
    let (from, to) = (part.start, part.end);
    let last = (to - from)
        .saturating_sub(WINDOW_WORDS_MAX)
        .div_ceil(WINDOW_WORDS_MAX / 2);
    (0..=last).map(move |n| {
        let start = from + n * (WINDOW_WORDS_MAX / 2);
        start..to.min(start + WINDOW_WORDS_MAX)
    })
}

/// Reads each sentence of `text`, except for repeated ones, until `judge` returns something.
fn read_sentences<T>(
    text: &str,
    records: &RecordedText,
    mut judge: impl FnMut(&SentenceReading<'_, '_>) -> Option<T>,
) -> Option<T> {
    // Folding turns dashes into hyphens, which join words.
    let folded = match !text.is_ascii() && text.contains(['—', '–', '→']) {
        true => fold(&text.replace(['—', '–', '→'], " , ")),
        false => fold(text),
    };
    let folded = without_quoted_words(&folded);
    let text = sentence::split(&folded, &mut records.classes());
    let mut follows_address = false;
    let mut harmless = HarmlessSentences::default();
    text.sentences.iter().find_map(|sentence| {
        let tokens = &text.tokens[sentence.from..sentence.to];
        let context = (sentence.end, follows_address);
        if let Some(has_you) = harmless.has_you(tokens, context) {
            follows_address = has_you && matches!(sentence.end, ';' | '?');
            return None;
        }
        let mut reading = SentenceReading::new(tokens, sentence.end, records);
        disclaimers::cover_disclaimers(&mut reading);
        reading.follows_address = follows_address;
        follows_address = reading.has_you && matches!(sentence.end, ';' | '?');
        let judged = judge(&reading);
        if judged.is_none() {
            harmless.insert(tokens, context, reading.has_you);
        }
        judged
    })
}

/// Advice that the grammar found in a sentence, without that which a record excuses.
struct Found<'a, 't> {
    reading: &'a SentenceReading<'a, 't>,
    hits: Vec<Hit>,
    hashes: RangeHashes,
}

impl<'a, 't> Found<'a, 't> {
    fn new(reading: &'a SentenceReading<'a, 't>) -> Self {
        let mut hits = Vec::new();
        orders::find(reading, &mut hits);
        care::find(reading, &mut hits);
        diagnosis::find(reading, &mut hits);
        general::find(reading, &mut hits);
        implied::find(reading, &mut hits);
        addressed_record::find(reading, &mut hits);
        let (tokens, records) = (reading.tokens, reading.records);
        let hashes = RangeHashes::new(tokens);
        // What holds for everybody isn't a plan for the record's patient.
        let is_general = tokens.iter().any(|token| is_one_of!(token.word, EVERYBODY));
        hits.retain(|hit| match hit.address {
            Address::Nobody if is_general => true,
            Address::Reader => true,
            Address::Nobody => !records.quotes(tokens, &hashes, hit),
            Address::RecordToReader => records.quotes(tokens, &hashes, hit),
        });
        Self {
            reading,
            hits,
            hashes,
        }
    }

    /// Returns the strongest address among the hits that satisfy `is_meant`.
    fn strongest(&self, is_meant: impl Fn(&Hit) -> bool) -> Option<Address> {
        let meant = self.hits.iter().filter(|hit| is_meant(hit));
        meant.map(|hit| hit.address).max()
    }

    /// Returns the parts of the sentence, each in one place: clauses that a record has word for word, and what stands
    /// between them.
    fn parts(&self) -> impl Iterator<Item = (Range<usize>, SentenceOrigin)> + '_ {
        let tokens = self.reading.tokens;
        let mut at = 0;
        std::iter::from_fn(move || {
            (at < tokens.len()).then(|| {
                let (end, place) = self.reading.records.part(tokens, &self.hashes, at);
                let part = at..end;
                at = end;
                (part, place)
            })
        })
    }
}

/// Sentences of a text without any advice, so that each is judged once: answers repeat what is alike
/// of several patients.
#[derive(Default)]
struct HarmlessSentences<'a, 't> {
    /// Sentences by the hash of their words and context, and whether they address the reader.
    by_hash: HashMap<u64, (&'a [Token<'t>], SentenceContext, bool)>,
}

/// Sign that ends a sentence, and whether it follows an address.
type SentenceContext = (char, bool);

impl<'a, 't> HarmlessSentences<'a, 't> {
    /// Returns whether the same sentence before addressed the reader; `None` if there was none.
    fn has_you(&self, tokens: &[Token<'t>], context: SentenceContext) -> Option<bool> {
        let (known, known_context, has_you) = self.by_hash.get(&self.hash(tokens, context))?;
        (*known == tokens && *known_context == context).then_some(*has_you)
    }

    fn insert(&mut self, tokens: &'a [Token<'t>], context: SentenceContext, has_you: bool) {
        let hash = self.hash(tokens, context);
        self.by_hash.insert(hash, (tokens, context, has_you));
    }

    fn hash(&self, tokens: &[Token<'t>], context: SentenceContext) -> u64 {
        self.by_hash.hasher().hash_one((tokens, context))
    }
}

/// Returns a folded text without single words in quotation marks and parentheses, `("stop")`, by
/// which the program names a word of the question.
fn without_quoted_words(folded: &str) -> Cow<'_, str> {
    if memchr::memchr(b'(', folded.as_bytes()).is_none() {
        return Cow::Borrowed(folded);
    }
    let mut parts = folded.split("(\"");
    let mut kept = Cow::Borrowed(parts.next().unwrap_or_default());
    for part in parts {
        let quoted = part.split_once("\")");
        let rest = quoted.filter(|(word, _)| !word.contains(char::is_whitespace));
        kept += rest.map_or("(\"", |_| "()");
        kept += rest.map_or(part, |(_, rest)| rest);
    }
    kept
}
