//! What a request shows without naming it: a language to put something into, a place to go from and to, a day and an hour.

use std::ops::Range;

use callboard_message::text::is_one_of;

use super::lexicon::{Set, lexicon};
use super::reading::Reading;
use super::words::{Kind, Token};

/// How much these signs say, by field.
pub(super) fn signs(reading: &Reading, span: &Range<usize>) -> Vec<f32> {
    let mut signs = vec![0.0; lexicon().fields_count()];
    let mut add = |field: &str, weight: f32| {
        if let Some(sum) = lexicon().field(field).and_then(|at| signs.get_mut(at)) {
            *sum += weight;
        }
    };
    add("translation", to_a_language(reading, span));
    add("code", code(reading, span));
    add("calendar", day_and_hour(reading, span));
    add("travel", from_to(reading, span));
    // When and where: weather, journeys and news are asked for with it, general knowledge mostly isn't.
    let day = if reading.has(Set::TimeWord, span) { SAID } else { 0.0 };
    let (at_place, to_place) = places(reading, span);
    add("weather", day + if at_place { SAID } else { 0.0 });
    add("travel", day + if to_place { 2.0 * SAID } else { 0.0 });
    add("research", day);
    signs
}

/// A day, an hour or a place, where it is only said.
const SAID: f32 = 0.1;

/// Whether there is a place to be in, and one to go to.
fn places(reading: &Reading, span: &Range<usize>) -> (bool, bool) {
    let named = |at: usize| {
        span.contains(&at)
            && reading.tokens.get(at).is_some_and(|t| t.capital && t.is_word())
            && !reading.is(at, Set::Languages)
            && !reading.is(at, Set::TimeWord)
    };
    let after = |list: &str| {
        span.clone().any(|at| reading.tokens.get(at).is_some_and(|t| is_one_of(&t.folded, list)) && named(at + 1))
    };
    (after("in at around near em no na por"), after("to for para pra pro ate"))
}

/// `into Finnish`, `pro inglês`: nearly enough by itself; a language alone is a hint.
fn to_a_language(reading: &Reading, span: &Range<usize>) -> f32 {
    const INTO: f32 = 0.8;
    const ALONE: f32 = 0.25;
    let weigh = |at: usize| {
        let before = at.checked_sub(1).filter(|at| span.contains(at)).and_then(|at| reading.tokens.get(at));
        let before_that = at.checked_sub(2).filter(|at| span.contains(at)).and_then(|at| reading.tokens.get(at));
        let after = reading.tokens.get(at + 1).filter(|_| span.contains(&(at + 1)));
        let to = |t: &Token| is_one_of(&t.folded, "in into to em para pro pra ao");
        let article = |t: &Token| is_one_of(&t.folded, "o a the proper good plain simple");
        match (before_that, before) {
            (_, Some(before)) if to(before) => INTO,
            // "what's Japanese for …"
            _ if after.is_some_and(|t| t.folded == "for") => INTO,
            (Some(before_that), Some(before)) if article(before) && to(before_that) => INTO,
            _ => ALONE,
        }
    };
    reading.of(Set::Languages, span).map(|hit| weigh(hit.at)).fold(0.0, f32::max)
}

/// A program text, or `PR 31`.
fn code(reading: &Reading, span: &Range<usize>) -> f32 {
    const PIECE: f32 = 0.6;
    const NUMBERED: f32 = 0.6;
    let numbered = span.clone().any(|at| {
        reading.tokens.get(at).is_some_and(|t| matches!(t.folded.as_str(), "pr" | "mr" | "commit"))
            && reading.tokens.get(at + 1).is_some_and(|t| t.kind == Kind::Number)
    });
    let runs = reading.has(Set::RunVerb, span) || reading.has(Set::EchoVerb, span);
    let piece = if reading.has_code && !runs { PIECE } else { 0.0 };
    piece + if numbered { NUMBERED } else { 0.0 }
}

/// A day or an hour, better with something that is done to a date.
fn day_and_hour(reading: &Reading, span: &Range<usize>) -> f32 {
    const PUT: f32 = 0.45;
    let hour = |at: usize| {
        reading.tokens.get(at).is_some_and(|t| t.kind == Kind::Number && is_hour(&t.folded))
            || reading.tokens.get(at).is_some_and(|t| t.kind == Kind::Number)
                && reading
                    .tokens
                    .get(at + 1)
                    .is_some_and(|t| matches!(t.folded.as_str(), "am" | "pm" | "oclock" | "h" | "horas"))
    };
    let hours = span.clone().any(hour);
    let days = reading.has(Set::TimeWord, span);
    if !hours && !days {
        return 0.0;
    }
    match (reading.has(Set::PlanVerb, span), hours && days) {
        (true, _) => PUT,
        (false, true) => PUT / 2.0,
        (false, false) => SAID,
    }
}

/// `9am`, `15h`, `15h30`.
fn is_hour(folded: &str) -> bool {
    let rest = folded.trim_start_matches(|c: char| c.is_ascii_digit());
    let digits = folded.len() - rest.len();
    (1..=2).contains(&digits)
        && (matches!(rest, "am" | "pm")
            || rest.strip_prefix('h').is_some_and(|m| m.bytes().all(|b| b.is_ascii_digit())))
}

/// `Cairo to Athens`, `de Recife para São Paulo`: two names with a way between them.
fn from_to(reading: &Reading, span: &Range<usize>) -> f32 {
    const WAY: f32 = 0.4;
    let named = |at: usize| {
        span.contains(&at)
            && reading.tokens.get(at).is_some_and(|t| t.capital && t.is_word() && t.folded.chars().count() > 2)
            && !reading.is(at, Set::Languages)
            && !reading.is(at, Set::TimeWord)
    };
    let shouted = reading.tokens.iter().filter(|t| t.is_word()).all(|t| t.capital);
    let way = |at: &usize| {
        let between =
            reading.tokens.get(*at).is_some_and(|t| matches!(t.folded.as_str(), "to" | "para" | "pra" | "ate"));
        between && at.checked_sub(1).is_some_and(named) && named(at + 1)
    };
    if !shouted && span.clone().any(|at| way(&at)) { WAY } else { 0.0 }
}
