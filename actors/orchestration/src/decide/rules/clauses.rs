//! The parts of a request, each with who it is for: whether there are several, and which steps they come to.

use std::ops::Range;

use callboard_message::text::cut_bytes;
use callboard_message::text::{fold, is_one_of};

use super::aim::{Aim, aim};
use super::index::Index;
use super::kinds::{CLARIFY, Likely, REJECT, SEVERAL};
use super::lexicon::Set;
use super::reading::Reading;
use super::weights::{CLAUSE_FROM, CLAUSE_FROM_LIKELY, CLAUSE_FROM_UNLIKELY, CLAUSE_MIN, SEVERAL_FROM, SEVERAL_SURELY};
use super::words::Kind;
use crate::decide::limits::{STEP_ID_BYTES_MAX, STEP_INPUT_BYTES_MAX, STEPS_MAX};
use crate::decide::{StepDefinition, StepMetadata, TOOL_LLM, World};
use crate::tools::EXECUTE_COMMAND;

/// A part of a request that is for one tool or agent.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Part {
    pub(super) span: Range<usize>,
    /// The tool's name or the agent's id.
    pub(super) target: String,
    /// How clearly, 0 to 1.
    pub(super) score: f32,
}

/// The spans between signs and joining words, where something is wanted.
pub(super) fn clauses(reading: &Reading) -> Vec<Range<usize>> {
    let mut clauses = Vec::new();
    let mut start = reading.wish.start;
    for at in reading.wish.clone() {
        let Some(token) = reading.tokens.get(at) else { break };
        let joins = match token.kind {
            Kind::Sign => true,
            Kind::Word => is_one_of(&token.folded, JOINS) || begins_sequence(reading, at),
            Kind::Number | Kind::Address | Kind::Code => false,
        };
        if joins {
            if start < at {
                clauses.push(start..at);
            }
            // A sign is of no clause, a joining word begins the next.
            start = if token.kind == Kind::Sign { at + 1 } else { at };
        }
    }
    if start < reading.wish.end {
        clauses.push(start..reading.wish.end);
    }
    clauses
}

/// Words that a clause begins with.
const JOINS: &str = "and n e then plus depois if caso";

fn begins_sequence(reading: &Reading, at: usize) -> bool {
    reading.hits.iter().any(|hit| hit.value == Set::Sequence && hit.at == at)
}

/// The parts that are for different ones, in order. One part: nothing to split.
pub(super) fn parts(reading: &Reading, likely: &Likely, index: &Index, world: &World) -> Vec<Part> {
    let several = likely.share_but(SEVERAL, &[CLARIFY, REJECT]);
    if several < SEVERAL_FROM {
        return Vec::new();
    }
    let is_likely = likely.ranked_but(&[CLARIFY, REJECT]).first().is_some_and(|(kind, _)| *kind == SEVERAL);
    let from = if is_likely { CLAUSE_FROM } else { CLAUSE_FROM_UNLIKELY };
    let aims = aims(reading, index, world);
    let mut found = joined(&aims, from);
    // Several are likely, and yet one is clear: then less has to speak for the others.
    for (at, from) in CLAUSE_FROM_LIKELY.into_iter().enumerate() {
        if is_likely && !is_several(&found) && (at == 0 || several >= SEVERAL_SURELY) {
            found = joined(&aims, from);
        }
    }
    // What led to it is told to whoever does the first part.
    if let Some(first) = found.first_mut() {
        first.span.start = 0;
    }
    found
}

/// A clause, and who it is for, how clearly.
type Aimed = (Range<usize>, Option<(String, f32)>);

/// The clauses, each with who it is for.
pub(super) fn aims(reading: &Reading, index: &Index, world: &World) -> Vec<Aimed> {
    let aim = |span: Range<usize>| (span.clone(), aim_of(reading, &span, index, world));
    bounded(reading, clauses(reading)).into_iter().map(aim).collect()
}

fn joined(aims: &[Aimed], from: f32) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let mut open: Option<usize> = None;
    for (span, aim) in aims {
        let aim = aim.clone().filter(|(_, score)| *score >= from && !goes_on(span, parts.last()));
        match aim {
            Some((target, score)) if parts.last().is_none_or(|part| part.target != target) => {
                let start = open.take().unwrap_or(span.start);
                parts.push(Part { span: start..span.end, target, score });
            }
            Some((_, score)) => {
                if let Some(part) = parts.last_mut() {
                    part.span.end = span.end;
                    part.score = part.score.max(score);
                }
            }
            // What is for nobody in particular belongs to what came before, or to the first part.
            None => match parts.last_mut() {
                Some(part) => part.span.end = span.end,
                None => open = open.or(Some(span.start)),
            },
        }
    }
    parts
}

/// A word or two after a piece of writing that is asked for are what it is about: `a poem on rain, trains and tea`.
fn goes_on(span: &Range<usize>, before: Option<&Part>) -> bool {
    const TOKENS_MAX: usize = 3;
    span.len() <= TOKENS_MAX && before.is_some_and(|part| part.target == TOOL_LLM)
}

/// At most [`CLAUSES_MAX`] clauses of some words each: shorter ones are of the one before, what is beyond is of the last.
fn bounded(reading: &Reading, clauses: Vec<Range<usize>>) -> Vec<Range<usize>> {
    let mut out: Vec<Range<usize>> = Vec::new();
    for span in clauses {
        let words = span.clone().filter(|at| reading.tokens.get(*at).is_some_and(|token| token.is_word())).count();
        let is_full = out.len() >= CLAUSES_MAX;
        match out.last_mut() {
            Some(last) if words < CLAUSE_WORDS_MIN || is_full => last.end = span.end,
            _ => out.push(span),
        }
    }
    out
}

/// How many clauses are looked at one by one.
const CLAUSES_MAX: usize = 12;
/// A clause of fewer words says too little.
const CLAUSE_WORDS_MIN: usize = 2;

/// Whether at least two parts are for different ones.
pub(super) fn is_several(parts: &[Part]) -> bool {
    parts.iter().any(|part| parts.first().is_some_and(|first| first.target != part.target))
}

/// Who a clause is for by itself, if that is clear. Text to be worked on is of every clause that works on a text.
fn aim_of(reading: &Reading, span: &Range<usize>, index: &Index, world: &World) -> Option<(String, f32)> {
    const WORKS_ON: [Set; 3] = [Set::SummarizeVerb, Set::TranslateVerb, Set::Languages];
    let shown = cut_bytes(reading.shown(span), CLAUSE_BYTES_MAX);
    let has_text = reading.has_content() && WORKS_ON.iter().any(|set| reading.has(*set, span));
    let clause = match has_text {
        true => Reading::new(&format!("{shown}: \"{}\"", cut_bytes(reading.content.trim(), TEXT_BYTES_MAX))),
        false => Reading::new(shown),
    };
    let likely = Likely::of(&clause);
    let nobody = likely.share(CLARIFY) * VAGUE_CLAUSE + likely.share(REJECT);
    let Aim { target, score, .. } = aim(&clause, &likely, index, &world.tools, CLAUSE_MIN);
    target.map(|target| (target.id, score * (1.0 - nobody)))
}

/// How much of a clause is read.
const CLAUSE_BYTES_MAX: usize = 1_024;
/// So much of a text shows that there is one.
const TEXT_BYTES_MAX: usize = 400;

/// How much a clause's vagueness takes from it: it may point at what the one before says.
const VAGUE_CLAUSE: f32 = 0.5;

/// Steps of the parts: at most [`STEPS_MAX`], what is beyond is joined to the last.
pub(super) fn steps(reading: &Reading, parts: &[Part]) -> Vec<StepDefinition> {
    let mut steps: Vec<StepDefinition> = Vec::new();
    let (kept, rest) = parts.split_at(parts.len().min(STEPS_MAX));
    for (at, part) in kept.iter().enumerate() {
        let is_last = at + 1 == kept.len();
        let end = if is_last { rest.last().map_or(part.span.end, |last| last.span.end) } else { part.span.end };
        let span = part.span.start..end;
        let before = steps.last().map(|step: &StepDefinition| step.id.clone());
        let needs = before.filter(|_| builds_on(reading, &span));
        let id = step_id(&part.target, &steps);
        let input_message = match part.target == EXECUTE_COMMAND {
            // One that is too long makes no plan: a part of a command isn't run.
            true => whole(reading, &span).to_owned(),
            false => input(reading, parts, &span, needs.is_some()),
        };
        let metadata = StepMetadata { depends_on: needs.into_iter().collect() };
        steps.push(StepDefinition { id, input_message, metadata });
    }
    steps
}

/// Whether a part goes on from the one before: it says "then", or only points at what it is about.
fn builds_on(reading: &Reading, span: &Range<usize>) -> bool {
    let begins = |at: usize| {
        reading
            .tokens
            .get(at)
            .is_some_and(|t| is_one_of(&t.folded, "then depois seguida afterwards next finally entao"))
    };
    let sequence = (span.start..(span.start + 3).min(span.end)).any(begins);
    let points = |at: usize| {
        reading.tokens.get(at).is_some_and(|t| {
            is_one_of(
                &t.folded,
                "it that them those this tudo isso ele ela deles dela whichever whoever whatever esse essa",
            )
        })
    };
    sequence || span.clone().any(points)
}

fn step_id(target: &str, steps: &[StepDefinition]) -> String {
    let words: String = fold(target).chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let words = words.split('-').filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-");
    const NUMBER_BYTES: usize = 2;
    let base = cut_bytes(&words, STEP_ID_BYTES_MAX - NUMBER_BYTES).trim_matches('-').to_owned();
    let base = if base.is_empty() { "step".to_owned() } else { base };
    let mut id = base.clone();
    let mut number = 1;
    while steps.iter().any(|step| step.id == id) {
        number += 1;
        id = format!("{base}-{number}");
    }
    id
}

/// A part in the request's own words, with what is quoted in it, also at its end.
fn whole<'a>(reading: &'a Reading, span: &Range<usize>) -> &'a str {
    let is_light =
        |at: &usize| reading.tokens.get(*at).is_some_and(|t| t.kind == Kind::Sign || is_one_of(&t.folded, JOINS));
    let first = span.clone().find(|at| !is_light(at)).unwrap_or(span.start);
    let start = reading.tokens.get(first).map_or(reading.text.len(), |token| token.range.start);
    // `, and` joins it to the next part; other signs may be of it.
    let mut next = span.end;
    for joins in [["and", "e"], [",", "\n"]] {
        let before = next.checked_sub(1).filter(|at| *at > first).and_then(|at| reading.tokens.get(at));
        let is_joint = before.is_some_and(|token| joins.contains(&&*token.folded));
        next -= usize::from(is_joint && span.end < reading.tokens.len());
    }
    let end = reading.tokens.get(next).map_or(reading.text.len(), |token| token.range.start);
    reading.text.get(start..end).unwrap_or_default().trim()
}

/// What a step is told: its part, the names that it needs from the others, and the text to work on.
fn input(reading: &Reading, parts: &[Part], span: &Range<usize>, has_result: bool) -> String {
    let light = |at: &usize| {
        reading.tokens.get(*at).is_some_and(|t| t.kind == Kind::Sign || is_one_of(&t.folded, "and e then plus depois"))
    };
    let start = span.clone().find(|at| !light(at)).unwrap_or(span.start);
    let mut text = reading.shown(&(start..span.end)).to_owned();
    let own = names(reading, span);
    if own.is_empty() {
        let others =
            parts.iter().filter(|part| part.span.start < span.start).flat_map(|part| names(reading, &part.span));
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
        let first =
            *at == 0 || reading.tokens.get(at - 1).is_some_and(|t| t.is_sign(".") || t.is_sign("?") || t.is_sign("!"));
        !first
            && reading.tokens.get(*at).is_some_and(|t| t.is_word() && t.capital && t.folded.chars().count() > 1)
            && !reading.is(*at, Set::Stop)
            && !reading.is(*at, Set::TimeWord)
            && !reading.is(*at, Set::Languages)
    };
    const NAMES_MAX: usize = 4;
    span.clone().filter(is_name).take(NAMES_MAX).map(|at| reading.shown(&(at..at + 1))).collect()
}
