//! Rule R3: no diagnosing, no prescribing, no advice against seeing a doctor, no promises.
//!
//! Each sentence is judged by a small grammar: who is addressed, what is to be done or believed, and
//! whether it is reported. Advice is what looks like an order about medicine and neither is reported
//! ("was told to …", "Dr. Lima advised …") nor quotes a record word for word. Records may quote
//! history but never address the reader, so that a quotation which does is advice too.

mod addressed_record;
mod care;
mod classes;
mod diagnosis;
mod disclaimers;
mod frames;
mod general;
mod hit;
mod implied;
mod lexicon;
mod orders;
mod reader;
mod reading;
mod record;
mod reports;
mod sentence;

use std::borrow::Cow;
use std::hash::BuildHasher;

use callboard_message::is_one_of;
use foldhash::HashMap;

use super::fold;
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
    // Folding turns dashes into hyphens, which join words.
    let folded = match text.contains(['—', '–', '→']) {
        true => fold(&text.replace(['—', '–', '→'], " , ")),
        false => fold(text),
    };
    let folded = without_quoted_words(&folded);
    let text = sentence::split(&folded);
    let mut hits: Vec<Hit> = Vec::new();
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
        hits.clear();
        orders::find(&reading, &mut hits);
        care::find(&reading, &mut hits);
        diagnosis::find(&reading, &mut hits);
        general::find(&reading, &mut hits);
        implied::find(&reading, &mut hits);
        addressed_record::find(&reading, &mut hits);
        if hits.is_empty() {
            harmless.insert(tokens, context, reading.has_you);
            return None;
        }
        let hashes = RangeHashes::new(tokens);
        let quoted = |hit: &Hit| records.quotes(tokens, &hashes, hit);
        // What holds for everybody isn't a plan for the record's patient.
        let is_general = tokens.iter().any(|token| is_one_of!(token.word, EVERYBODY));
        let advice = hits.iter().find(|hit| match hit.address {
            Address::Nobody if is_general => true,
            Address::Reader => true,
            Address::Nobody => !quoted(hit),
            Address::RecordToReader => quoted(hit),
        });
        advice.map(|hit| hit.kind)
    })
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
