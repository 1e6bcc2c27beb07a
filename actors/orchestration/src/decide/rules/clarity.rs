//! How vague a request is, and what to ask.

use std::collections::HashSet;
use std::ops::Range;

use callboard_message::Speaker;
use callboard_message::text::is_one_of;

use super::candidates::{Candidates, Ranked};
use super::lexicon::Set;
use super::reading::Reading;
use super::words::Kind;
use crate::decide::limits::QUESTION_CHARS_MAX;
use crate::decide::{TOOL_LLM, Turn};

/// Evidence from which on a request is clear: for an agent, for one of our tools, for the tool that answers with words.
const CLEAR_AGENT: f32 = 0.9;
const CLEAR_TOOL: f32 = 0.6;
const CLEAR_WORDS: f32 = 0.9;
/// Weight of words below which nothing is said, and below which too little is where something is only pointed at.
const SAYS_NOTHING: f32 = 1.2;
const SAYS_LITTLE: f32 = 2.5;
/// Share of saying words below which a request that points at something says too little.
const SAYING_SHARE_MIN: f32 = 0.25;
/// Agents that are offered in a question.
const OFFERED_MAX: usize = 3;
/// Evidence from which on an agent is offered.
const OFFERED_FROM: f32 = 0.3;

/// What is missing in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    /// What is to be done with what.
    Everything,
    /// What something that is only pointed at is.
    Referent,
    /// The text to work on.
    Text,
}

/// How vague a request is, 0 to 1, and what is missing. Above 0.8 somebody should be asked.
pub(super) fn vagueness(
    reading: &Reading,
    history: &[Turn],
    candidates: &Candidates,
) -> (f32, Option<Missing>) {
    if carries_on(history) {
        return (0.3, None);
    }
    let all = &reading.wish;
    let has = |at: usize, sets: &[Set]| sets.iter().any(|set| reading.is(at, *set));
    let works = [Set::TranslateVerb, Set::SummarizeVerb, Set::ReviewVerb]
        .iter()
        .any(|set| reading.begins_with(*set, all));
    let has_text = reading.has_content() || reading.has_code;
    const NO_OBJECT: [Set; 5] = [
        Set::TranslateVerb,
        Set::SummarizeVerb,
        Set::ReviewVerb,
        Set::Languages,
        Set::Genre,
    ];
    if works
        && !has_text
        && !all
            .clone()
            .any(|at| weight(reading, at) >= 1.0 && !has(at, &NO_OBJECT))
    {
        return (0.9, Some(Missing::Text));
    }
    let mass = mass(reading, all, 1.0);
    let ranked = candidates.ranked(reading, all);
    let is_clear = |best: &Ranked<'_>| match best.candidate.is_agent {
        true => best.evidence >= CLEAR_AGENT,
        false if best.candidate.id == TOOL_LLM => best.evidence >= CLEAR_WORDS && mass >= 1.0,
        false => best.evidence >= CLEAR_TOOL,
    };
    let greets = reading.has(Set::Greeting, all) && !reading.has(Set::VagueVerb, all);
    if has_text || greets || ranked.iter().any(is_clear) {
        return (0.1, None);
    }
    let says = self::mass(reading, all, COMMON);
    if says < SAYS_NOTHING {
        return (0.95, Some(Missing::Everything));
    }
    let is_named = |at: usize| {
        let after_sign = at == 0 || reading.tokens[at - 1].kind == Kind::Sign;
        !after_sign && reading.is_name(at)
    };
    let points = all.clone().any(|at| has(at, &[Set::Pronoun, Set::Deictic]));
    let words = all
        .clone()
        .filter(|at| reading.tokens[*at].is_word())
        .count();
    let is_little = (points || reading.begins_with(Set::VagueVerb, all)) && says < SAYS_LITTLE;
    // At most TOKENS_MAX: exact in f32.
    let is_thin = points && says < words as f32 * SAYING_SHARE_MIN;
    match (is_little || is_thin) && !all.clone().any(is_named) {
        true => (0.85, Some(Missing::Referent)),
        false => (0.2, None),
    }
}

/// Whether something was said before that the request can go on from.
pub(super) fn carries_on(history: &[Turn]) -> bool {
    let newest = history
        .iter()
        .rev()
        .filter(|turn| turn.by == Speaker::User)
        .take(2);
    newest
        .map(|turn| Reading::new(&turn.text))
        .any(|before| before.has_content() || mass(&before, &before.all(), 1.0) >= 1.0)
}

/// Share of a word of every day.
const COMMON: f32 = 0.4;

/// Weight of the words that tell what it is about, each once; `common` is the share of words of every day.
pub(super) fn mass(reading: &Reading, span: &Range<usize>, common: f32) -> f32 {
    let mut counted = HashSet::new();
    let new = span
        .clone()
        .filter(|at| counted.insert(&reading.tokens[*at].english));
    new.map(|at| match weight(reading, at) {
        full if full == 1.0 && reading.is(at, Set::Common) => common,
        weight => weight,
    })
    .sum()
}

fn weight(reading: &Reading, at: usize) -> f32 {
    const NOTHING: [Set; 10] = [
        Set::Governs,
        Set::PlanVerb,
        Set::Context,
        Set::Stop,
        Set::Filler,
        Set::VagueVerb,
        Set::Thinking,
        Set::Pronoun,
        Set::Deictic,
        Set::Greeting,
    ];
    match reading.tokens[at].kind {
        Kind::Sign => 0.0,
        Kind::Code | Kind::Address => 2.0,
        Kind::Number => 0.6,
        Kind::Word if reading.is(at, Set::TimeWord) => 0.6,
        Kind::Word
            if NOTHING
                .iter()
                .chain([&Set::Accept])
                .any(|set| reading.is(at, *set)) =>
        {
            0.0
        }
        Kind::Word if reading.tokens[at].folded.chars().count() < 2 => 0.0,
        Kind::Word if reading.is(at, Set::Generic) => 0.1,
        Kind::Word => 1.0,
    }
}

/// The question that asks for what is missing. Agents that fit somewhat are offered, as many as it has
/// room for.
pub(super) fn question(reading: &Reading, missing: Missing, candidates: &Candidates) -> String {
    let all = reading.all();
    let translates = reading.has(Set::TranslateVerb, &all);
    let reviews = reading.has(Set::ReviewVerb, &all) && !reading.has(Set::SummarizeVerb, &all);
    let question = match (missing, reading.portuguese) {
        (Missing::Text, false) if translates => {
            "Which text should I translate, and into which language?"
        }
        (Missing::Text, true) if translates => "Qual texto devo traduzir, e para qual idioma?",
        (Missing::Text, false) if reviews => "What should I look at? Please paste or name it.",
        (Missing::Text, true) if reviews => "O que devo olhar? Cole ou diga qual é, por favor.",
        (Missing::Text, false) => "Which text should I shorten?",
        (Missing::Text, true) => "Qual texto devo resumir?",
        (Missing::Referent, true) => "A que você se refere exatamente, e o que devo fazer?",
        (Missing::Everything, true) => "O que exatamente você quer que eu faça, e com o quê?",
        (_, false) => match verb(reading) {
            Some(verb) => &format!("What should I {verb}?"),
            None => "What exactly do you mean, and what should I do?",
        },
    };
    let ranked = candidates.ranked(reading, &all);
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

/// The verb that the request begins with, where a question can be made of it.
fn verb(reading: &Reading) -> Option<&str> {
    const VERBS: &str = "fix handle sort solve finish change update continue repeat start stop try check send move cancel undo redo improve tweak adjust correct restore \
        resend open close show run keep remove delete add rename reset swap";
    let first = reading.of(Set::VagueVerb, &reading.all()).next()?;
    let verb = reading.tokens.get(first.at)?.folded.as_str();
    is_one_of(verb, VERBS).then_some(verb)
}
