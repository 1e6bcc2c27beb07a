//! Vagueness of a request, and clarifying questions.

use std::collections::HashSet;
use std::ops::Range;

use callboard_message::Speaker;
use callboard_message::text::is_one_of;

use super::candidates::{Candidates, Ranked};
use super::lexicon::WordSet;
use super::matcher::Hit;
use super::reading::RequestReading;
use super::tokens::TokenKind;
use crate::decide::limits::QUESTION_CHARS_MAX;
use crate::decide::{TOOL_LLM, Turn};

/// Minimum evidence for an agent at which a request is clear.
const CLEAR_AGENT: f32 = 0.5;
/// The same of a request with a pronoun that stands for nothing in it.
const CLEAR_AGENT_DANGLING: f32 = 0.8;
/// Evidence that is needed more for each word of the request: long requests have words of everybody.
const CLEAR_AGENT_PER_WORD: f32 = 0.02;
/// Minimum evidence for a built-in tool at which a request is clear.
const CLEAR_TOOL: f32 = 0.6;
/// Minimum evidence for [`TOOL_LLM`] at which a request is clear.
const CLEAR_WORDS: f32 = 0.9;
/// Minimum content weight of a request. Below it, both the action and its object are missing.
const SAYS_NOTHING: f32 = 1.2;
/// Minimum content weight of a request that has a pronoun or begins with a vague verb. Below it,
/// the object is missing.
const SAYS_LITTLE: f32 = 2.5;
/// Minimum content weight per word of a request that has a pronoun. Below it, the object is
/// missing.
const SAYING_SHARE_MIN: f32 = 0.25;
/// Maximum agents suggested in a clarifying question.
const OFFERED_MAX: usize = 3;
/// Minimum evidence for an agent to be suggested in a clarifying question.
const OFFERED_FROM: f32 = 0.3;

/// Detail missing in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MissingDetail {
    /// Both the action and its object.
    Everything,
    /// The object behind a pronoun or a similar reference.
    Referent,
    /// The text to work on.
    Text,
}

/// Returns the vagueness of a request, from 0 (clear) to 1, and the missing detail. Above 0.8 the
/// user should be asked.
pub(super) fn vagueness(
    reading: &RequestReading,
    history: &[Turn],
    candidates: &Candidates,
) -> (f32, Option<MissingDetail>) {
    if continues_conversation(history) {
        return (0.3, None);
    }
    let all = &reading.wish;
    let has = |at: usize, sets: &[WordSet]| sets.iter().any(|set| reading.is_in_set(at, *set));
    let works = [
        WordSet::TranslateVerb,
        WordSet::SummarizeVerb,
        WordSet::ReviewVerb,
    ]
    .iter()
    .any(|set| reading.begins_with(*set, all));
    let has_text = reading.has_content() || reading.has_code;
    const NO_OBJECT: [WordSet; 5] = [
        WordSet::TranslateVerb,
        WordSet::SummarizeVerb,
        WordSet::ReviewVerb,
        WordSet::Languages,
        WordSet::Genre,
    ];
    if works
        && !has_text
        && !all
            .clone()
            .any(|at| weight(reading, at) >= 1.0 && !has(at, &NO_OBJECT))
    {
        return (0.9, Some(MissingDetail::Text));
    }
    let words = all
        .clone()
        .filter(|at| reading.tokens[*at].is_word())
        .count();
    let points = has_dangling_pronoun(reading, all);
    let clear_agent = if points {
        CLEAR_AGENT_DANGLING
    } else {
        CLEAR_AGENT
    };
    let mass = content_weight(reading, all);
    let ranked = candidates.rank(reading, all);
    let is_clear = |best: &Ranked<'_>| match best.candidate.is_agent {
        // Exact in `f32`: there are at most `TOKENS_MAX` words.
        true => best.evidence >= clear_agent + CLEAR_AGENT_PER_WORD * words as f32,
        false if best.candidate.id == TOOL_LLM => best.evidence >= CLEAR_WORDS && mass >= 1.0,
        false => best.evidence >= CLEAR_TOOL,
    };
    let greets = reading.has(WordSet::Greeting, all) && !reading.has(WordSet::VagueVerb, all);
    if has_text || greets || ranked.iter().any(is_clear) {
        return (0.1, None);
    }
    if mass < SAYS_NOTHING {
        return (0.95, Some(MissingDetail::Everything));
    }
    let is_named = |at: usize| {
        let after_sign = at == 0 || reading.tokens[at - 1].kind == TokenKind::Sign;
        !after_sign && reading.is_name(at)
    };
    let is_little = (points || reading.begins_with(WordSet::VagueVerb, all)) && mass < SAYS_LITTLE;
    let is_thin = points && mass < words as f32 * SAYING_SHARE_MIN;
    match (is_little || is_thin) && !all.clone().any(is_named) {
        true => (0.85, Some(MissingDetail::Referent)),
        false => (0.2, None),
    }
}

/// Whether a pronoun of the request has nothing before it that it may stand for: an indefinite
/// article with a word of content.
fn has_dangling_pronoun(reading: &RequestReading, span: &Range<usize>) -> bool {
    const ARTICLES: &str = "a an um uma some algum alguma another outro outra";
    const NOUN_WITHIN: usize = 3;
    let points = |at: usize| {
        reading.is_in_set(at, WordSet::Pronoun) || reading.is_in_set(at, WordSet::Deictic)
    };
    // "how much is it" is a phrase of a concept.
    let in_phrase = |at: usize| {
        let covers = |hit: &Hit<usize>| hit.len > 1 && (hit.at..hit.at + hit.len).contains(&at);
        reading.concepts.iter().any(covers)
    };
    let introduces = |at: usize| {
        let next = at + 1..(at + 1 + NOUN_WITHIN).min(span.end);
        is_one_of(&reading.tokens[at].folded, ARTICLES)
            && next.into_iter().any(|at| weight(reading, at) >= 1.0)
    };
    let mut pronouns = span.clone().filter(|at| points(*at) && !in_phrase(*at));
    pronouns
        .next()
        .is_some_and(|first| !(span.start..first).any(introduces))
}

/// Whether one of the user's last two turns has content that a new request can refer to.
pub(super) fn continues_conversation(history: &[Turn]) -> bool {
    let newest = history
        .iter()
        .rev()
        .filter(|turn| turn.by == Speaker::User)
        .take(2);
    newest
        .map(|turn| RequestReading::new(&turn.text))
        .any(|before| before.has_content() || content_weight(&before, &before.full_span()) >= 1.0)
}

/// Returns the total weight of the content words in `span`. A repeated word counts once.
pub(super) fn content_weight(reading: &RequestReading, span: &Range<usize>) -> f32 {
    let mut counted = HashSet::new();
    let new = span
        .clone()
        .filter(|at| counted.insert(&reading.tokens[*at].english));
    new.map(|at| weight(reading, at)).sum()
}

fn weight(reading: &RequestReading, at: usize) -> f32 {
    const NOTHING: [WordSet; 10] = [
        WordSet::Governs,
        WordSet::PlanVerb,
        WordSet::Context,
        WordSet::Stop,
        WordSet::Filler,
        WordSet::VagueVerb,
        WordSet::Thinking,
        WordSet::Pronoun,
        WordSet::Deictic,
        WordSet::Greeting,
    ];
    match reading.tokens[at].kind {
        TokenKind::Sign => 0.0,
        TokenKind::Code | TokenKind::Address => 2.0,
        TokenKind::Number => 0.6,
        TokenKind::Word if reading.is_in_set(at, WordSet::TimeWord) => 0.6,
        TokenKind::Word
            if NOTHING
                .iter()
                .chain([&WordSet::Accept])
                .any(|set| reading.is_in_set(at, *set)) =>
        {
            0.0
        }
        TokenKind::Word if reading.tokens[at].folded.chars().count() < 2 => 0.0,
        TokenKind::Word if reading.is_in_set(at, WordSet::Generic) => 0.1,
        TokenKind::Word => 1.0,
    }
}

/// Returns a clarifying question for the missing detail. Suggests up to [`OFFERED_MAX`] agents with
/// evidence of at least [`OFFERED_FROM`], as far as the length limit of questions allows.
pub(super) fn clarifying_question(
    reading: &RequestReading,
    missing: MissingDetail,
    candidates: &Candidates,
) -> String {
    let all = reading.full_span();
    let translates = reading.has(WordSet::TranslateVerb, &all);
    let reviews =
        reading.has(WordSet::ReviewVerb, &all) && !reading.has(WordSet::SummarizeVerb, &all);
    let question = match (missing, reading.portuguese) {
        (MissingDetail::Text, false) if translates => {
            "Which text should I translate, and into which language?"
        }
        (MissingDetail::Text, true) if translates => {
            "Qual texto devo traduzir, e para qual idioma?"
        }
        (MissingDetail::Text, false) if reviews => {
            "What should I look at? Please paste or name it."
        }
        (MissingDetail::Text, true) if reviews => {
            "O que devo olhar? Cole ou diga qual é, por favor."
        }
        (MissingDetail::Text, false) => "Which text should I shorten?",
        (MissingDetail::Text, true) => "Qual texto devo resumir?",
        (MissingDetail::Referent, true) => "A que você se refere exatamente, e o que devo fazer?",
        (MissingDetail::Everything, true) => "O que exatamente você quer que eu faça, e com o quê?",
        (_, false) => match verb(reading) {
            Some(verb) => &format!("What should I {verb}?"),
            None => "What exactly do you mean, and what should I do?",
        },
    };
    let ranked = candidates.rank(reading, &all);
    let fit = ranked.iter().filter(|each| {
        each.candidate.is_agent && each.candidate.is_up && each.evidence >= OFFERED_FROM
    });
    let names: Vec<&str> = fit
        .take(OFFERED_MAX)
        .map(|each| &*each.candidate.name)
        .collect();
    let asked = |names: &[&str]| match (names.split_last(), reading.portuguese) {
        (None, _) => question.to_owned(),
        (Some((only, [])), false) => format!("{question} Is it for {only}?"),
        (Some((only, [])), true) => format!("{question} É para {only}?"),
        (Some((last, others)), false) => {
            format!("{question} Is it for {} or {last}?", others.join(", "))
        }
        (Some((last, others)), true) => {
            format!("{question} É para {} ou {last}?", others.join(", "))
        }
    };
    let mut shorter = (0..=names.len()).rev().map(|count| asked(&names[..count]));
    shorter
        .find(|asked| asked.chars().count() <= QUESTION_CHARS_MAX)
        .unwrap_or_else(|| question.to_owned())
}

/// Returns the first vague verb of the request, if a clarifying question can be formed with it.
fn verb(reading: &RequestReading) -> Option<&str> {
    const VERBS: &str = "fix handle sort solve finish change update continue repeat start stop try check send move cancel undo redo improve tweak adjust correct restore \
        resend open close show run keep remove delete add rename reset swap";
    let first = reading
        .hits_in(WordSet::VagueVerb, &reading.full_span())
        .next()?;
    let verb = reading.tokens.get(first.at)?.folded.as_str();
    is_one_of(verb, VERBS).then_some(verb)
}
