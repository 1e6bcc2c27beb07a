//! The parts of a request, each with who it is for, and the steps that they come to.

use std::ops::Range;

use callboard_message::text::{cut_bytes, fold, is_one_of};

use super::candidates::{Candidates, Ranked};
use super::reading::Reading;
use super::words::{Kind, Token};
use crate::decide::limits::{STEP_ID_BYTES_MAX, STEP_INPUT_BYTES_MAX, STEPS_MAX};
use crate::decide::{StepDefinition, StepMetadata};
use crate::tool_name::EXECUTE_COMMAND;

/// Evidence from which on a clause is for somebody.
const CLAUSE_FROM: f32 = 0.7;
/// A clause stays with the part before where that part's target has this share of the best evidence.
const STAYS_FROM: f32 = 0.8;
/// Clauses that are looked at one by one. What is beyond is of the last.
const CLAUSES_MAX: usize = 12;
/// A clause of fewer words is of the one before.
const CLAUSE_WORDS_MIN: usize = 3;
/// Words that a clause begins with.
const JOINS: &str = "and n e then plus depois if caso";

/// A part of a request that is for one tool or agent.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Part {
    pub(super) span: Range<usize>,
    /// The tool's name or the agent's id.
    pub(super) target: String,
    pub(super) evidence: f32,
}

/// Whether a clause says what isn't wanted, and not what somebody can't or doesn't know.
fn refuses(reading: &Reading, span: &Range<usize>) -> bool {
    const NOT: &str = "not no dont never nao nem nada without sem";
    const OF_ONESELF: &str = "sei consigo tenho lembro posso entendo sabia temos podemos conheco idea clue sure problem longer one way";
    let word = |at: usize| reading.tokens.get(at).map_or("", |token| &*token.folded);
    let at = span.start + usize::from(is_one_of(word(span.start), "so mas but just e and"));
    is_one_of(word(at), NOT) && !is_one_of(word(at + 1), OF_ONESELF)
}

/// The spans between signs and joining words.
fn clauses(reading: &Reading) -> Vec<Range<usize>> {
    let mut clauses: Vec<Range<usize>> = Vec::new();
    let mut start = reading.wish.start;
    for at in reading.wish.start..=reading.wish.end {
        let token = reading.tokens.get(at).filter(|_| at < reading.wish.end);
        let is_sign = token.is_some_and(|token| token.kind == Kind::Sign);
        // "é" is a verb, "e" joins.
        let is_verb = |token: &Token| reading.text.get(token.range.clone()) == Some("é");
        let joins = token.is_none_or(|token| {
            is_sign || token.is_word() && is_one_of(&token.folded, JOINS) && !is_verb(token)
        });
        if !joins {
            continue;
        }
        let words = (start..at)
            .filter(|at| reading.tokens[*at].is_word())
            .count();
        let is_full = clauses.len() >= CLAUSES_MAX;
        match clauses.last_mut() {
            Some(last) if words < CLAUSE_WORDS_MIN || is_full => last.end = at,
            _ if start < at => clauses.push(start..at),
            _ => {}
        }
        // A sign is of no clause, a joining word begins the next.
        start = if is_sign { at + 1 } else { at };
    }
    clauses
}

/// The parts that are for different ones, in order.
pub(super) fn parts(reading: &Reading, candidates: &Candidates) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    // What led to it is told to whoever does the first part.
    let mut open = 0;
    for span in clauses(reading) {
        let ranked = candidates.ranked(reading, &span);
        let best = ranked
            .iter()
            .find(|best| best.candidate.is_up && best.evidence >= CLAUSE_FROM);
        let best = best.filter(|_| !refuses(reading, &span));
        let stays = |part: &Part, best: &Ranked<'_>| {
            let own = ranked
                .iter()
                .find(|own| own.candidate.id == part.target)
                .map_or(0.0, |own| own.evidence);
            own >= best.evidence * STAYS_FROM
        };
        match (parts.last_mut(), best) {
            (Some(part), Some(best)) if stays(part, best) => part.span.end = span.end,
            (_, Some(best)) => {
                let start = if parts.is_empty() { open } else { span.start };
                let target = best.candidate.id.clone();
                parts.push(Part {
                    span: start..span.end,
                    target,
                    evidence: best.evidence,
                });
            }
            // What is for nobody in particular belongs to what came before, or to the first part.
            (Some(part), None) => part.span.end = span.end,
            (None, None) => open = open.min(span.start),
        }
    }
    parts
}

/// Whether at least two parts are for different ones.
pub(super) fn is_several(parts: &[Part]) -> bool {
    parts.iter().any(|part| {
        parts
            .first()
            .is_some_and(|first| first.target != part.target)
    })
}

/// Steps of the parts: at most [`STEPS_MAX`], what is beyond is joined to the last.
pub(super) fn steps(reading: &Reading, parts: &[Part]) -> Vec<StepDefinition> {
    let mut steps: Vec<StepDefinition> = Vec::new();
    let (kept, rest) = parts.split_at(parts.len().min(STEPS_MAX));
    for (at, part) in kept.iter().enumerate() {
        let is_last = at + 1 == kept.len();
        let end = if is_last {
            rest.last().map_or(part.span.end, |last| last.span.end)
        } else {
            part.span.end
        };
        let span = part.span.start..end;
        let before = steps.last().map(|step: &StepDefinition| step.id.clone());
        let needs = before.filter(|_| builds_on(reading, &span));
        let id = step_id(&part.target, &steps);
        let input_message = match part.target == EXECUTE_COMMAND {
            // One that is too long makes no plan: a part of a command isn't run.
            true => whole(reading, &span).to_owned(),
            false => input(reading, parts, &span, needs.is_some()),
        };
        let metadata = StepMetadata {
            depends_on: needs.into_iter().collect(),
        };
        steps.push(StepDefinition {
            id,
            input_message,
            metadata,
        });
    }
    steps
}

/// Whether a part goes on from the one before: it says "then", or only points at what it is about.
fn builds_on(reading: &Reading, span: &Range<usize>) -> bool {
    const THEN: &str = "then depois seguida afterwards next finally entao";
    const POINT: &str =
        "it that them those this tudo isso ele ela deles dela whichever whoever whatever esse essa";
    let mut words = reading.tokens[span.clone()]
        .iter()
        .map(|token| &*token.folded);
    words.clone().take(3).any(|word| is_one_of(word, THEN))
        || words.any(|word| is_one_of(word, POINT))
}

fn step_id(target: &str, steps: &[StepDefinition]) -> String {
    let words: String = fold(target)
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    let words = words
        .split('-')
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join("-");
    const NUMBER_BYTES: usize = 2;
    let base = cut_bytes(&words, STEP_ID_BYTES_MAX - NUMBER_BYTES)
        .trim_matches('-')
        .to_owned();
    let base = if base.is_empty() {
        "step".to_owned()
    } else {
        base
    };
    let mut id = base.clone();
    let mut number = 1;
    while steps.iter().any(|step| step.id == id) {
        number += 1;
        id = format!("{base}-{number}");
    }
    id
}

/// Where a part begins behind signs and joining words.
fn beginning(reading: &Reading, span: &Range<usize>, joins: &str) -> usize {
    let is_light = |at: &usize| {
        reading
            .tokens
            .get(*at)
            .is_some_and(|t| t.kind == Kind::Sign || is_one_of(&t.folded, joins))
    };
    span.clone().find(|at| !is_light(at)).unwrap_or(span.start)
}

/// A part in the request's own words, with what is quoted in it, also at its end.
fn whole<'a>(reading: &'a Reading, span: &Range<usize>) -> &'a str {
    let first = beginning(reading, span, JOINS);
    let start = reading
        .tokens
        .get(first)
        .map_or(reading.text.len(), |token| token.range.start);
    // `, and` joins it to the next part; other signs may be of it.
    let mut next = span.end;
    for joins in [["and", "e"], [",", "\n"]] {
        let before = next
            .checked_sub(1)
            .filter(|at| *at > first)
            .and_then(|at| reading.tokens.get(at));
        let is_joint = before.is_some_and(|token| joins.contains(&&*token.folded));
        next -= usize::from(is_joint && span.end < reading.tokens.len());
    }
    let end = reading
        .tokens
        .get(next)
        .map_or(reading.text.len(), |token| token.range.start);
    reading.text.get(start..end).unwrap_or_default().trim()
}

/// What a step is told: its part, the names that it needs from the others, and the text to work on.
fn input(reading: &Reading, parts: &[Part], span: &Range<usize>, has_result: bool) -> String {
    let start = beginning(reading, span, "and e then plus depois");
    let mut text = reading.shown(&(start..span.end)).to_owned();
    let own = names(reading, span);
    if own.is_empty() {
        let others = parts
            .iter()
            .filter(|part| part.span.start < span.start)
            .flat_map(|part| names(reading, &part.span));
        let others = others.collect::<Vec<_>>().join(" ");
        if !others.is_empty() {
            text = format!("{text} ({others})");
        }
    }
    if reading.has_content() && !has_result && !text.contains(reading.content.trim()) {
        text = format!("{text}: \"{}\"", reading.content.trim());
    }
    cut_bytes(&text, STEP_INPUT_BYTES_MAX).to_owned()
}

/// Words with a capital that a sentence doesn't begin with: mostly places and people.
fn names<'a>(reading: &'a Reading, span: &Range<usize>) -> Vec<&'a str> {
    let is_name = |at: &usize| {
        let first = *at == 0
            || reading
                .tokens
                .get(at - 1)
                .is_some_and(|t| t.is_sign(".") || t.is_sign("?") || t.is_sign("!"));
        !first && reading.is_name(*at)
    };
    const NAMES_MAX: usize = 4;
    span.clone()
        .filter(is_name)
        .take(NAMES_MAX)
        .map(|at| reading.shown(&(at..at + 1)))
        .collect()
}
