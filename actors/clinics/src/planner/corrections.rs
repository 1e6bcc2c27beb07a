//! Corrections of the asker: "dermatology, no wait, cardiology".

use callboard_message::text::is_one_of;

use super::phrases::RegistryPhrases;
use super::reading::QuestionReading;
use super::tags::{PhraseTag, next_phrase};
use super::tokens::{QueryToken, looks_like_an_id};
use super::vocabulary::{WordRole, word_role};
use crate::plan::ClinicRegistry;

/// Words by which an asker takes the phrase before them back for the one after them, in folded form.
const CUES: [&str; 27] = [
    "no hang on",
    "hang on",
    "no wait",
    "wait no",
    "scratch that",
    "strike that",
    "i mean",
    "i meant",
    "or rather",
    "quer dizer",
    "quero dizer",
    "queria dizer",
    "ou melhor",
    "ou antes",
    "digo",
    "errei",
    "me enganei",
    "enganei-me",
    "minto",
    "corrigindo",
    "espera nao",
    "nao espera",
    "actually no",
    "no sorry",
    "sorry no",
    "nao desculpa",
    "desculpa nao",
];
/// Words that take a phrase back before a sign: "DERM-011, no, DERM-012", "acne não, rosácea".
const NEGATIONS: [&str; 3] = ["no", "nao", "nope"];
/// Beginning of cues that also introduce what narrows a question: "I mean those with angina". The new
/// phrase follows them at once.
const WEAK_CUE: &str = "i";
/// Words that may stand between a phrase and the cue that takes it back, beside fillers and words for what is
/// asked: "CARD-019 record please. No wait, …".
const INTERJECTIONS: &str = "hmm hm uh um er ah ai oh ops oops";
/// Maximum tokens between a cue and the phrase that it takes back, and between it and the new one.
const TOKENS_BETWEEN_MAX: usize = 6;
/// Number of tokens before a phrase in which a negation refers to it.
const NEGATION_TOKENS: usize = 3;

/// Kind of a phrase that may be taken back. One is corrected by another of the same kind.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Clinic,
    Id,
    Condition,
    Medicine,
}

/// Phrase of a question, from its first token to behind its last one.
struct Phrase {
    kind: Kind,
    start: usize,
    end: usize,
}

/// Removes what the asker takes back, with the words that say so. Only fillers may stand between, and no
/// negation before: else the question is left as it is.
pub(super) fn without_retracted(
    tokens: &[QueryToken],
    registry: &ClinicRegistry,
    names: &RegistryPhrases,
    reading: &QuestionReading,
) -> Vec<QueryToken> {
    let cues: Vec<(usize, usize)> = (0..tokens.len())
        .filter_map(|at| Some((at, at + cue_tokens(tokens, at)?)))
        .collect();
    if cues.is_empty() {
        return tokens.to_vec();
    }
    let phrases = read_phrases(tokens, registry, names, reading);
    let mut kept = Vec::with_capacity(tokens.len());
    let mut from = 0;
    for (start, end) in cues {
        let before = phrases
            .iter()
            .rev()
            .find(|p| p.end <= start && p.start >= from);
        let after = phrases.iter().find(|p| p.start >= end);
        if let (Some(old), Some(new)) = (before, after)
            && old.kind == new.kind
            && start - old.end <= TOKENS_BETWEEN_MAX
            && new.start - end <= between_max(&tokens[start..end])
            && tokens[old.end..start].iter().all(may_stand_between)
            && !is_negated(tokens, old.start)
            && (!is_negated_behind(tokens, start) || is_sole(&phrases, tokens, (old, new), from))
        {
            let is_apart = !tokens[old.end..start].iter().all(is_filler);
            if is_apart && !tokens[end..new.start].iter().all(may_lead) {
                continue;
            }
            kept.extend_from_slice(&tokens[from..old.start]);
            if is_apart {
                // What is asked stands between: the new phrase takes the place of the old one.
                kept.extend_from_slice(&tokens[new.start..new.end]);
                kept.extend_from_slice(&tokens[old.end..start]);
                from = new.end;
                continue;
            }
            let is_sign = |token: &&QueryToken| token.as_word().is_none();
            from = end + tokens[end..].iter().take_while(is_sign).count();
        }
    }
    kept.extend_from_slice(&tokens[from..]);
    kept
}

/// Returns whether the cue at `at` is a negation that follows a word at once: "acne não, rosácea".
fn is_negated_behind(tokens: &[QueryToken], at: usize) -> bool {
    let word = |at: usize| tokens.get(at).and_then(QueryToken::as_word);
    at > 0
        && word(at - 1).is_some()
        && word(at).is_some_and(|word| NEGATIONS.contains(&&*word.folded))
}

/// Returns whether a phrase and the one that may correct it have only a negation and a sign between them, and no
/// other phrase of their kind stands before: "psoríase, acne não, rosácea" leaves acne out.
fn is_sole(
    phrases: &[Phrase],
    tokens: &[QueryToken],
    (old, new): (&Phrase, &Phrase),
    from: usize,
) -> bool {
    let is_other = |p: &Phrase| p.kind == old.kind && p.start >= from && p.end <= old.start;
    let between = &tokens[old.end..new.start];
    let is_led = |token: &QueryToken| {
        is_filler(token)
            || token
                .as_word()
                .is_some_and(|w| NEGATIONS.contains(&&*w.folded))
    };
    !phrases.iter().any(is_other) && between.iter().all(is_led)
}

/// Returns how many tokens may stand between a cue and the new phrase.
fn between_max(cue: &[QueryToken]) -> usize {
    let first = cue.first().and_then(QueryToken::as_word);
    match first.is_some_and(|word| word.folded == WEAK_CUE) {
        true => 1,
        false => TOKENS_BETWEEN_MAX,
    }
}

/// Returns whether a token may stand between a phrase and the cue that takes it back.
fn may_stand_between(token: &QueryToken) -> bool {
    use WordRole::{Medication, Patients, Record};
    let role = token.as_word().and_then(|word| word_role(&word.folded));
    is_filler(token) || matches!(role, Some(Patients | Record | Medication))
}

/// Returns whether a token may stand between a cue and the new phrase: "or rather the ones with …".
fn may_lead(token: &QueryToken) -> bool {
    use WordRole::{Cue, Patients};
    let role = token.as_word().and_then(|word| word_role(&word.folded));
    is_filler(token) || matches!(role, Some(Patients | Cue))
}

fn is_filler(token: &QueryToken) -> bool {
    token.as_word().is_none_or(|word| {
        word_role(&word.folded) == Some(WordRole::Filler) || is_one_of(&word.folded, INTERJECTIONS)
    })
}

fn is_negated(tokens: &[QueryToken], at: usize) -> bool {
    let before = &tokens[at.saturating_sub(NEGATION_TOKENS)..at];
    let mut words = before.iter().filter_map(QueryToken::as_word);
    words.any(|word| {
        let role = word_role(&word.folded);
        matches!(role, Some(WordRole::Negation | WordRole::Ignore)) || word.folded == "no"
    })
}

/// Returns the number of tokens of the cue at `at`; `None` if there is none. A cue stands
/// after a sign, or begins with `or`. Signs within it don't count as words: "no, wait".
fn cue_tokens(tokens: &[QueryToken], at: usize) -> Option<usize> {
    let word = |at: usize| tokens.get(at)?.as_word().map(|word| word.folded.as_str());
    word(at)?;
    let is_cue = |cue: &str| {
        let mut next = at;
        cue.split(' ').enumerate().try_for_each(|(nth, part)| {
            if nth > 0 && tokens.get(next) == Some(&QueryToken::Join) {
                next += 1;
            }
            (word(next) == Some(part)).then(|| next += 1)
        })?;
        Some(next - at)
    };
    let before = at.checked_sub(1).map(|at| &tokens[at]);
    let is_apart = before.is_some_and(|token| token.as_word().is_none())
        || word(at).is_some_and(|word| matches!(word, "or" | "ou"));
    if let (true, Some(used)) = (is_apart, CUES.iter().find_map(|cue| is_cue(cue))) {
        return Some(used);
    }
    let is_join = |token: Option<&QueryToken>| token == Some(&QueryToken::Join);
    let is_negation = word(at).is_some_and(|word| NEGATIONS.contains(&word));
    (is_negation && before.is_some() && is_join(tokens.get(at + 1))).then_some(1)
}

fn read_phrases(
    tokens: &[QueryToken],
    registry: &ClinicRegistry,
    names: &RegistryPhrases,
    reading: &QuestionReading,
) -> Vec<Phrase> {
    let mut phrases = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let (used, kind) = match next_phrase(&tokens[at..], registry, names, reading) {
            Ok((used, Some(phrase))) => {
                let kind = match phrase.tag {
                    PhraseTag::Clinic(..) => Some(Kind::Clinic),
                    PhraseTag::Id(..) => Some(Kind::Id),
                    PhraseTag::Term(term) if term.is_medicine => Some(Kind::Medicine),
                    PhraseTag::Term(_) => Some(Kind::Condition),
                    _ => None,
                };
                (used, kind)
            }
            Ok((used, None)) => (used, None),
            // An id or specialty that isn't registered may be what is taken back.
            Err(_) => {
                let word = tokens[at].as_word().map_or("", |word| word.bare());
                let kind = match looks_like_an_id(word) {
                    true => Kind::Id,
                    false => Kind::Clinic,
                };
                (1, Some(kind))
            }
        };
        phrases.extend(kind.map(|kind| Phrase {
            kind,
            start: at,
            end: at + used,
        }));
        at += used;
    }
    phrases
}
