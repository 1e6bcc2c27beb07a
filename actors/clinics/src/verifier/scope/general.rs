//! Talk about health in a form that only advice has, whatever its verbs: a modal verb or the second
//! person near a medicine, a treatment, a complaint or a condition, and claims of an effect.

use callboard_message::text::is_one_of;

use super::lexicon::*;
use super::reading::{Address, Hit, Reading};

/// Maximum distances, in words, from a modal verb or pronoun to the word about health before and
/// after it.
const BEFORE_WORDS: usize = 8;
const AFTER_WORDS: usize = 10;

/// Words that also speak of the program's own answers.
const OWN_RESULTS: &str =
    "advice conselho orientacao instructions result results resultado resultados";
/// Participles of what the program or a clinic does with a question.
const LOOKED_UP: &str = "found looked shown listed asked answered searched checked read done matched named reached given told";

/// Appends the general advice of a sentence to `hits`.
pub(super) fn find(r: &Reading<'_, '_>, hits: &mut Vec<Hit>) {
    if r.is_question {
        return;
    }
    for n in 0..r.tokens.len() {
        if !r.covered[n] {
            hits.extend(
                modal(r, n)
                    .or_else(|| personal(r, n))
                    .or_else(|| effect(r, n)),
            );
        }
    }
}

fn hit(n: usize, other: usize, reader: bool) -> Option<Hit> {
    Some(Hit {
        at: n.min(other),
        end: n.max(other),
        kind: "prescribing",
        address: Address::reader_if(reader),
    })
}

impl Reading<'_, '_> {
    fn is_health(&self, n: usize) -> bool {
        !is_one_of(self.word(n), OWN_RESULTS)
            && (self.is(n, MEDICINE | TREATMENT | LIFESTYLE | COMPLAINT)
                || is_condition(self.word(n))
                || self.is_medicine(n))
    }

    fn health_near(&self, n: usize) -> Option<usize> {
        let after = n + 1..self.tokens.len().min(n + 1 + AFTER_WORDS);
        after
            .chain(n.saturating_sub(BEFORE_WORDS)..n)
            .find(|at| self.is_health(*at))
    }
}

/// Finds a modal verb about health: "an adult can take up to 4 g", "the pills might do harm".
fn modal(r: &Reading<'_, '_>, n: usize) -> Option<Hit> {
    let is_month = r.word(n) == "may"
        && n > 0
        && (r.is(n - 1, NUMBER) || is_one_of(r.word(n - 1), "in since on of until from last by"));
    if !r.is(n, OBLIGE | ABLE | WILL) || is_month {
        return None;
    }
    let (from, until) = (n.saturating_sub(BEFORE_WORDS), n + 1 + AFTER_WORDS);
    let skipped =
        |at: usize| r.is(at, LEAD | NEG | URGENT) || is_one_of(r.word(at), "to be que de ser");
    let verb = (n + 1..r.tokens.len().min(n + 5)).find(|at| !skipped(*at))?;
    let denies = r.is(n, ABLE) && r.any(n, n + 3, NEG);
    let is_plain = denies || r.is(verb, ORDINARY | SEEK) || is_one_of(r.word(verb), LOOKED_UP);
    let is_of_others = r.any(from, n, DOCUMENT | ROLE)
        || r.any(n, until, CARE | ROLE)
        || r.any(0, n, IF) && !r.has_you;
    if is_plain || is_of_others {
        return None;
    }
    let health = r.health_near(n)?;
    hit(n, health, r.has_you)
}

/// Finds health of the reader: "your kidneys are failing", "this tea is all you need for the pain".
fn personal(r: &Reading<'_, '_>, n: usize) -> Option<Hit> {
    let is_thanks = n > 0 && matches!(r.word(n - 1), "thank" | "thanking");
    if !r.is(n, YOU) || is_thanks || r.any(0, r.tokens.len(), ORDINARY | SEEK | CARE | ROLE) {
        return None;
    }
    let health = r.health_near(n)?;
    hit(n, health, false)
}

/// Finds a claim that something acts on a condition: "garlic beats hypertension".
fn effect(r: &Reading<'_, '_>, n: usize) -> Option<Hit> {
    let from = n.saturating_sub(BEFORE_WORDS);
    let is_claim = r.is(n, HELP)
        && !r.is(n, PAST)
        && n > 0
        && !r.is(n - 1, DETERMINER | PARTICLE)
        && !r.any(from, n, PATIENT | WAS | NEG | OBLIGE | DENIAL);
    if !is_claim {
        return None;
    }
    let until = r.tokens.len().min(n + 1 + AFTER_WORDS);
    let end = (n + 1..until).find(|at| is_condition(r.word(*at)) || r.is(*at, COMPLAINT))?;
    hit(from, end, true)
}
