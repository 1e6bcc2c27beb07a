//! What a request shows, as signs to be weighed: its words and pairs of words, the sets and fields they are of, what the rules
//! make of it, and its shape. None of it depends on who is in the world.

use std::ops::Range;

use super::super::clauses::clauses;
use super::super::index::{Seen, lead_field};
use super::super::lexicon::{Set, lexicon};
use super::super::reading::Reading;
use super::super::refusal::{concepts, refusal};
use super::super::tools::{composes, explains, intent};
use super::super::vague::vagueness;
use super::super::weights::{CLAUSE_MIN, TOOL_MIN};
use super::super::words::{Kind, Token};

/// How many words of a request are looked at one by one: what is beyond tells little more.
const WORDS_MAX: usize = 80;

/// Gives every sign of the request to `sign`: the group that it is of, and up to two words that tell it from others of the group.
pub(in super::super) fn signs(reading: &Reading, mut sign: impl FnMut(&str, &str, &str)) {
    let all = reading.wish.clone();
    words(reading, &mut sign);
    background(reading, &mut sign);
    for (name, set) in Set::all() {
        if reading.has(set, &all) {
            sign("set", name, "");
            if reading.begins_with(set, &all) {
                sign("first-set", name, "");
            }
        }
    }
    for (name, wished) in concepts(reading) {
        sign(if wished { "harm" } else { "bharm" }, name, "");
    }
    fields(reading, &all, &mut sign);
    if let Some(intent) = intent(reading, &all) {
        sign("tool", intent.tool.name(), tenths(intent.score, 2));
    }
    if let Some(refusal) = refusal(reading) {
        sign("refused", tenths(refusal.score, 2), "");
    }
    let (vague, missing) = vagueness(reading, &[]);
    sign("vague", missing.name(), tenths(vague, 1));
    if composes(reading, &all) {
        sign("composes", "", "");
    }
    if explains(reading, &all) {
        sign("explains", "", "");
    }
    shape(reading, &mut sign);
    parts(reading, &mut sign);
}

/// The word as it is compared: by its stem in the request's language.
fn stem<'a>(reading: &Reading, token: &'a Token) -> &'a str {
    match token.kind {
        Kind::Number => "0",
        Kind::Address => "address",
        Kind::Code => "code",
        Kind::Sign => &token.folded,
        Kind::Word if reading.portuguese => &token.portuguese,
        Kind::Word => &token.english,
    }
}

fn words(reading: &Reading, sign: &mut impl FnMut(&str, &str, &str)) {
    let mut before = "^";
    let wish = reading.tokens.get(reading.wish.clone()).unwrap_or_default();
    let said = wish.iter().filter(|token| token.folded != "\n").take(WORDS_MAX);
    for token in said {
        let stem = stem(reading, token);
        sign("w", stem, "");
        sign("2", before, stem);
        before = stem;
    }
    sign("2", before, "$");
    let last = wish.iter().rev().find(|token| token.is_word());
    if let Some(last) = last {
        sign("last", stem(reading, last), "");
    }
}

/// What led to the wish: its words and fields by themselves, for they say less.
fn background(reading: &Reading, sign: &mut impl FnMut(&str, &str, &str)) {
    let rest = [0..reading.wish.start, reading.wish.end..reading.tokens.len()];
    for span in rest.into_iter().filter(|span| !span.is_empty()) {
        for token in reading.tokens[span.clone()].iter().filter(|token| token.is_word()).take(WORDS_MAX) {
            sign("bw", stem(reading, token), "");
        }
        let seen = Seen::of(reading, &span, &Default::default());
        for field in 0..lexicon().fields_count() {
            let evidence = seen.of_field(reading, field);
            if evidence >= CLAUSE_MIN {
                sign("bfield", lexicon().name(field), level(evidence));
            }
        }
        sign("background", "", "");
    }
}

fn fields(reading: &Reading, span: &Range<usize>, sign: &mut impl FnMut(&str, &str, &str)) {
    let seen = Seen::of(reading, span, &Default::default());
    let (mut best, mut best_field) = (0.0, 0);
    for field in 0..lexicon().fields_count() {
        let evidence = seen.of_field(reading, field);
        if evidence > 0.0 {
            sign("field", lexicon().name(field), level(evidence));
        }
        if evidence > best {
            (best, best_field) = (evidence, field);
        }
    }
    if best > 0.0 {
        sign("most", lexicon().name(best_field), "");
    } else {
        sign("most", "none", "");
    }
}

/// Evidence in steps.
fn level(evidence: f32) -> &'static str {
    match evidence {
        e if e < 0.3 => "a",
        e if e < 0.6 => "b",
        e if e < 1.2 => "c",
        _ => "d",
    }
}

fn tenths(score: f32, step: usize) -> &'static str {
    const NAMES: [&str; 11] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10"];
    // A score is 0 to 1.
    let tenths = (score.clamp(0.0, 1.0) * 10.0).round() as usize;
    NAMES.get(tenths / step * step).copied().unwrap_or("10")
}

fn shape(reading: &Reading, sign: &mut impl FnMut(&str, &str, &str)) {
    let wish = reading.tokens.get(reading.wish.clone()).unwrap_or_default();
    let words = wish.iter().filter(|token| token.is_word()).count();
    let length = match words {
        0 => "0",
        1 => "1",
        2 => "2",
        3 => "3",
        4..=5 => "5",
        6..=8 => "8",
        9..=13 => "13",
        14..=21 => "21",
        22..=34 => "34",
        _ => "more",
    };
    sign("words", length, "");
    let content = reading.content.split_whitespace().take(12).count();
    match content {
        0 => {}
        1..=3 => sign("text", "3", ""),
        4..=11 => sign("text", "11", ""),
        _ => sign("text", "more", ""),
    }
    if reading.has_code {
        sign("code", "", "");
    }
    if reading.address.is_some() {
        sign("address", "", "");
    }
    if wish.iter().any(|token| token.kind == Kind::Number) {
        sign("number", "", "");
    }
    if wish.iter().any(|token| token.is_sign("?")) {
        sign("asked", "", "");
    }
    let named = wish.iter().skip(1).any(|token| token.is_word() && token.capital);
    if named {
        sign("named", "", "");
    }
}

/// For how many different ones the clauses seem to be.
fn parts(reading: &Reading, sign: &mut impl FnMut(&str, &str, &str)) {
    const FIELDS_FROM: usize = 100;
    let mut aims: Vec<usize> = Vec::new();
    let mut clauses_count = 0;
    for span in clauses(reading) {
        clauses_count += 1;
        let tool = intent(reading, &span).filter(|intent| intent.score >= TOOL_MIN).map(|intent| intent.tool as usize);
        let field = || {
            let seen = Seen::of(reading, &span, &Default::default());
            let of = |field: usize| (field, seen.of_field(reading, field));
            let best = (0..lexicon().fields_count()).map(of).max_by(|a, b| a.1.total_cmp(&b.1));
            best.filter(|(_, evidence)| *evidence >= CLAUSE_MIN).map(|(field, _)| FIELDS_FROM + field)
        };
        if let Some(aim) = tool.or_else(field)
            && aims.last() != Some(&aim)
        {
            aims.push(aim);
        }
    }
    aims.sort_unstable();
    aims.dedup();
    const COUNTS: [&str; 5] = ["0", "1", "2", "3", "4"];
    let count = |count: usize| COUNTS.get(count).copied().unwrap_or("more");
    let (aims, clauses) = (count(aims.len()), count(clauses_count));
    sign("aims", aims, "");
    sign("clauses", clauses, "");
    sign("aims-clauses", aims, clauses);
    // "Remind me to buy flour, ask about the hotel and …" is one thing for one.
    if let Some(field) = lead_field(reading, &reading.wish) {
        sign("lead", lexicon().name(field), "");
        sign("lead-aims", lexicon().name(field), aims);
    }
}
