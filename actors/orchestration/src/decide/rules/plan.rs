//! Splitting of a request into parts by target, and the plan steps made from them.

use std::ops::Range;

use callboard_message::text::{cut_bytes, fold, is_one_of};

use super::candidates::{Candidates, Ranked};
use super::reading::RequestReading;
use super::tokens::{Token, TokenKind};
use crate::decide::limits::{STEP_ID_BYTES_MAX, STEP_INPUT_BYTES_MAX, STEPS_MAX};
use crate::decide::{StepDefinition, StepMetadata};
use crate::tool_name::EXECUTE_COMMAND;

/// Minimum evidence at which a clause is assigned to a tool or agent.
const CLAUSE_FROM: f32 = 0.7;
/// Share of the best candidate's evidence. If the previous part's target has at least this share,
/// the clause is joined to that part.
const STAYS_FROM: f32 = 0.8;
/// Maximum clauses of a request that are examined separately. Further ones are joined to the last
/// clause.
const CLAUSES_MAX: usize = 12;
/// Minimum words of a clause. A shorter one is joined to the previous clause.
const CLAUSE_WORDS_MIN: usize = 3;
/// Joining words that begin a clause.
const JOINS: &str = "and n e then plus depois if caso";

/// Part of a request for one tool or agent.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RequestPart {
    pub(super) span: Range<usize>,
    /// Name of the tool or id of the agent.
    pub(super) target: String,
    pub(super) evidence: f32,
}

/// Whether a clause rules something out, as opposed to stating that the speaker can't do or doesn't
/// know something.
fn is_negated(reading: &RequestReading, span: &Range<usize>) -> bool {
    const NOT: &str = "not no dont never nao nem nada without sem";
    const OF_ONESELF: &str = "sei consigo tenho lembro posso entendo sabia temos podemos conheco idea clue sure problem longer one way";
    let word = |at: usize| reading.tokens.get(at).map_or("", |token| &*token.folded);
    let at = span.start + usize::from(is_one_of(word(span.start), "so mas but just e and"));
    is_one_of(word(at), NOT) && !is_one_of(word(at + 1), OF_ONESELF)
}

/// Splits the sentences that state the wish into clauses, at signs and joining words.
fn clauses(reading: &RequestReading) -> Vec<Range<usize>> {
    let mut clauses: Vec<Range<usize>> = Vec::new();
    let mut start = reading.wish.start;
    for at in reading.wish.start..=reading.wish.end {
        let token = reading.tokens.get(at).filter(|_| at < reading.wish.end);
        let is_sign = token.is_some_and(|token| token.kind == TokenKind::Sign);
        // "é" is a verb, "e" is a joining word.
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
        // A sign belongs to no clause; a joining word begins the next one.
        start = if is_sign { at + 1 } else { at };
    }
    clauses
}

/// Splits the request into parts with different target tools or agents, in order.
pub(super) fn split_parts(reading: &RequestReading, candidates: &Candidates) -> Vec<RequestPart> {
    let mut parts: Vec<RequestPart> = Vec::new();
    // Introductory clauses are included in the first part.
    let mut open = 0;
    for span in clauses(reading) {
        let ranked = candidates.rank(reading, &span);
        let best = ranked
            .iter()
            .find(|best| best.candidate.is_up && best.evidence >= CLAUSE_FROM);
        let best = best.filter(|_| !is_negated(reading, &span));
        let stays = |part: &RequestPart, best: &Ranked<'_>| {
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
                parts.push(RequestPart {
                    span: start..span.end,
                    target,
                    evidence: best.evidence,
                });
            }
            // A clause without a target belongs to the previous part, or to the first one.
            (Some(part), None) => part.span.end = span.end,
            (None, None) => open = open.min(span.start),
        }
    }
    parts
}

/// Whether at least two parts have different targets.
pub(super) fn is_several(parts: &[RequestPart]) -> bool {
    parts.iter().any(|part| {
        parts
            .first()
            .is_some_and(|first| first.target != part.target)
    })
}

/// Returns the plan steps for the parts: at most [`STEPS_MAX`], with the remaining parts joined to
/// the last step.
pub(super) fn steps(reading: &RequestReading, parts: &[RequestPart]) -> Vec<StepDefinition> {
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
            // Not cut: an over-long command makes the plan invalid instead of running in part.
            true => part_text(reading, &span).to_owned(),
            false => step_input(reading, parts, &span, needs.is_some()),
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

/// Whether a part depends on the previous part: it says "then", or refers to the previous part's
/// result by a pronoun.
fn builds_on(reading: &RequestReading, span: &Range<usize>) -> bool {
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

/// Returns the first token of a part after signs and joining words.
fn content_start(reading: &RequestReading, span: &Range<usize>, joins: &str) -> usize {
    let is_light = |at: &usize| {
        reading
            .tokens
            .get(*at)
            .is_some_and(|t| t.kind == TokenKind::Sign || is_one_of(&t.folded, joins))
    };
    span.clone().find(|at| !is_light(at)).unwrap_or(span.start)
}

/// Returns the original text of a part, including quotations within it and at its end.
fn part_text<'a>(reading: &'a RequestReading, span: &Range<usize>) -> &'a str {
    let first = content_start(reading, span, JOINS);
    let start = reading
        .tokens
        .get(first)
        .map_or(reading.text.len(), |token| token.range.start);
    // A trailing `, and` joins the part to the next one; other signs may belong to it.
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

/// Returns the input message of a step: its part, names from other parts that it needs, and the
/// text to work on.
fn step_input(
    reading: &RequestReading,
    parts: &[RequestPart],
    span: &Range<usize>,
    has_result: bool,
) -> String {
    let start = content_start(reading, span, "and e then plus depois");
    let mut text = reading.source_text(&(start..span.end)).to_owned();
    let own = proper_names(reading, span);
    if own.is_empty() {
        let others = parts
            .iter()
            .filter(|part| part.span.start < span.start)
            .flat_map(|part| proper_names(reading, &part.span));
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

/// Returns capitalized words that don't begin a sentence, mostly places and people.
fn proper_names<'a>(reading: &'a RequestReading, span: &Range<usize>) -> Vec<&'a str> {
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
        .map(|at| reading.source_text(&(at..at + 1)))
        .collect()
}
