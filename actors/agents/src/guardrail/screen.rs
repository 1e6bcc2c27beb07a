use std::sync::LazyLock;

use callboard_macros::Message;
use callboard_message::{Failure, FailureKind};
use regex::RegexSet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::normalize::{self, DECODED_BYTES_MAX, Disguise};
use super::rules::{BEFORE, BEHIND, Concepts, INSIDE, Mark, REPORTED, RULES, Rule, SCORE_BLOCKED, SIGNS, marks};

/// Bytes of the longest text that is screened; a longer one is blocked unread.
pub const SCREEN_BYTES_MAX: usize = 1 << 20;
/// Bytes of the longest plain text: a few characters stand for whole sentences each, honest text has no room of them.
pub(super) const PLAIN_BYTES_MAX: usize = SCREEN_BYTES_MAX + (SCREEN_BYTES_MAX >> 1);
/// Words in which hits add up: in a long text, far-off hits have nothing to do with each other.
const WINDOW_WORDS: u32 = 160;
/// Words behind a chain in which the exception to its rule may stand.
const EXCEPTION_WORDS: u32 = 6;
/// Words before a chain in which the exception to its rule may stand.
const EXCEPTION_BEFORE_WORDS: u32 = 2;
/// What a hit gains for being hidden in a disguise.
const DISGUISED_WEIGHT: u32 = 40;
/// Tag characters, lookalikes or splitters in words before hiding itself is a sign.
const HIDDEN_CHARS_MIN: usize = 8;
/// Tag characters that no row of flags needs.
const TAG_CHARS_MAX: usize = 24;
/// Words around a chain in which it may be said that somebody reports it.
const REPORT_WORDS: u32 = 12;
/// Words of reporting that make a report.
const REPORT_SIGNS_MIN: usize = 2;
/// What each further rule of one family adds: they find much the same.
const SAME_FAMILY_WEIGHT: u32 = 10;

/// Screens a text for attempts to steer an assistant that will read it: injected instructions, requests for what it was
/// told, forged turns, disguises.
#[derive(derive_more::Debug, Clone, Message, Serialize, Deserialize, JsonSchema)]
// The text may hold patient data: it is never printed.
#[debug("Screen({} bytes, {:?})", text.len(), origin)]
#[message(name = "screen", reply = Screening)]
#[serde(deny_unknown_fields)]
pub struct Screen {
    /// What is to be screened. Parts of one message are joined first: an attack may be split over them.
    pub text: String,
    /// Where it came from.
    #[serde(default)]
    pub origin: Origin,
}

impl Screen {
    /// A text from `origin`.
    pub fn new(text: impl Into<String>, origin: Origin) -> Self {
        Self { text: text.into(), origin }
    }
}

/// Who wrote a text. Only the user may tell the assistant what to do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Origin {
    /// The person or program that asks.
    #[default]
    User,
    /// A tool, a clinic, another agent.
    ToolResult,
    /// A document, a resource, a file.
    Document,
    /// A description of a tool or an agent.
    Description,
}

/// What the guardrail found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Screening {
    /// The text must not go on.
    pub blocked: bool,
    /// Sum of the weights of the rules that hit close together; blocked from 100.
    pub score: u32,
    /// Ids of the rules that hit, for the audit; never text.
    pub rules: Vec<String>,
}

impl Screening {
    /// The failure that the sender of a blocked text gets; nothing if it may pass.
    pub fn failure(&self) -> Result<(), Failure> {
        if self.blocked { Err(blocked()) } else { Ok(()) }
    }

    fn unread(rule: &str) -> Self {
        Self { blocked: true, score: SCORE_BLOCKED, rules: vec![rule.to_owned()] }
    }
}

/// What whoever sent a blocked text is told: not which rule, that would help to get round it.
pub fn blocked() -> Failure {
    Failure::new(FailureKind::Blocked, "Request blocked by guardrails")
}

/// Screens `text`. Deterministic, time linear in its length, fails closed.
pub fn screen(text: &str, origin: Origin) -> Screening {
    if text.len() > SCREEN_BYTES_MAX {
        return Screening::unread("limit.too_long");
    }
    let Ok(engine) = &*ENGINE else { return Screening::unread("limit.no_rules") };
    let plain = normalize::plain(text);
    if plain.text.len() > PLAIN_BYTES_MAX {
        return Screening::unread("limit.expands");
    }
    let mut hits = Vec::new();
    engine.read(&plain.text, Disguise::None, origin, &mut hits);
    for (disguise, reading) in normalize::readings(&plain.text) {
        engine.read(&reading, disguise, origin, &mut hits);
    }
    let decoded = normalize::decoded(text);
    if decoded.iter().map(String::len).sum::<usize>() > DECODED_BYTES_MAX {
        return Screening::unread("limit.decoded_too_long");
    }
    for reading in decoded {
        engine.read(&normalize::plain(&reading).text, Disguise::Encoded, origin, &mut hits);
    }
    if plain.tags >= HIDDEN_CHARS_MIN {
        hits.push(Hit {
            place: 0,
            id: "hidden.tags",
            weight: if plain.tags > TAG_CHARS_MAX { SCORE_BLOCKED } else { 60 },
        });
    }
    if plain.lookalikes >= HIDDEN_CHARS_MIN && plain.text.is_ascii() {
        hits.push(Hit { place: 0, id: "hidden.lookalikes", weight: 30 });
    }
    if plain.splitters >= HIDDEN_CHARS_MIN {
        hits.push(Hit { place: 0, id: "hidden.splitters", weight: 30 });
    }
    verdict(hits)
}

/// A rule that was met.
struct Hit {
    place: u32,
    id: &'static str,
    weight: u32,
}

/// The best window's score: of each family of rules its heaviest hit.
fn verdict(mut hits: Vec<Hit>) -> Screening {
    hits.sort_by_key(|h| h.place);
    let mut ids: Vec<&'static str> = hits.iter().map(|h| h.id).collect();
    ids.sort_unstable();
    ids.dedup();
    let score = if hits.iter().any(|h| h.weight >= SCORE_BLOCKED) {
        hits.iter().map(|h| h.weight).max().unwrap_or(SCORE_BLOCKED)
    } else {
        best_window(&hits, &ids)
    };
    Screening { blocked: score >= SCORE_BLOCKED, score, rules: ids.into_iter().map(str::to_owned).collect() }
}

/// Windows that start half a window apart cover every stretch of half a window.
fn best_window(hits: &[Hit], ids: &[&'static str]) -> u32 {
    let mut best = 0;
    let mut from = 0;
    while from < hits.len() {
        let start = hits[from].place;
        let mut heaviest = vec![0; ids.len()];
        for hit in hits[from..].iter().take_while(|h| h.place - start <= WINDOW_WORDS) {
            if let Ok(n) = ids.binary_search(&hit.id) {
                heaviest[n] = heaviest[n].max(hit.weight);
            }
        }
        best = best.max(families(ids, &heaviest));
        from += hits[from..].iter().take_while(|h| h.place - start <= WINDOW_WORDS / 2).count().max(1);
    }
    best
}

fn families(ids: &[&'static str], heaviest: &[u32]) -> u32 {
    let family = |id: &'static str| id.split('.').next().unwrap_or(id);
    let mut sum = 0;
    let mut at = 0;
    while at < ids.len() {
        let same = ids[at..].iter().take_while(|id| family(id) == family(ids[at])).count();
        let hit = heaviest[at..at + same].iter().filter(|w| **w > 0).count() as u32;
        sum += heaviest[at..at + same].iter().max().copied().unwrap_or(0) + hit.saturating_sub(1) * SAME_FAMILY_WEIGHT;
        at += same;
    }
    sum
}

/// The rules, arranged by concept.
struct Engine {
    /// For each concept's bit: (rule, step) pairs, later steps first.
    by_bit: Vec<Vec<(usize, usize)>>,
    signs: RegexSet,
}

static ENGINE: LazyLock<Result<Engine, regex::Error>> = LazyLock::new(|| {
    let mut by_bit = vec![Vec::new(); Concepts::BITS as usize];
    for (r, rule) in RULES.iter().enumerate() {
        for (s, (concepts, _)) in rule.steps.iter().enumerate().rev() {
            (0..Concepts::BITS)
                .filter(|bit| concepts >> bit & 1 == 1)
                .for_each(|bit| by_bit[bit as usize].push((r, s)));
        }
    }
    let signs = RegexSet::new(SIGNS.iter().map(|s| s.pattern))?;
    Ok(Engine { by_bit, signs })
});

/// How far a rule's chain has come: where each step was last met, and where its chain began.
#[derive(Clone, Copy, Default)]
struct Step {
    /// 0: never.
    place: u32,
    start: usize,
}

/// Maximum steps of a rule. Fixed.
const STEPS_MAX: usize = 4;

impl Engine {
    fn read(&self, plain: &str, disguise: Disguise, origin: Origin, hits: &mut Vec<Hit>) {
        let marks = marks(plain);
        let from = hits.len();
        self.chains(&marks, origin, hits);
        // A disguised text is read for its signs too, but turned text has none.
        if !matches!(disguise, Disguise::Rot13 | Disguise::Reversed) {
            let found = self.signs.matches(plain);
            hits.extend(found.iter().filter_map(|n| SIGNS.get(n)).map(|sign| {
                let weight = if origin == Origin::User { sign.weight } else { sign.weight.max(sign.outside) };
                Hit { place: 0, id: sign.id, weight }
            }));
        }
        if disguise != Disguise::None {
            hits[from..].iter_mut().for_each(|h| h.weight += DISGUISED_WEIGHT);
        }
    }

    fn chains(&self, marks: &[Mark], origin: Origin, hits: &mut Vec<Hit>) {
        let mut state = vec![[Step::default(); STEPS_MAX]; RULES.len()];
        let mut last_hit = vec![0_u32; RULES.len()];
        for (m, mark) in marks.iter().enumerate() {
            let mut bits = mark.concepts;
            while bits != 0 {
                let bit = bits.trailing_zeros() as usize;
                bits &= bits - 1;
                for (r, s) in &self.by_bit[bit] {
                    let Some(rule) = RULES.get(*r) else { continue };
                    let reached = match s.checked_sub(1) {
                        None => Some(m),
                        Some(before) => {
                            let step = state[*r][before];
                            let gap = mark.place.saturating_sub(step.place);
                            (step.place != 0 && gap > 0 && gap <= rule.steps[*s].1).then_some(step.start)
                        }
                    };
                    let Some(start) = reached else { continue };
                    state[*r][*s] = Step { place: mark.place, start };
                    let complete = s + 1 == rule.steps.len();
                    // One hit a window is enough: a text that repeats itself costs no more.
                    let fresh = last_hit[*r] == 0 || mark.place - last_hit[*r] > WINDOW_WORDS / 4;
                    if complete && fresh && !excepted(rule, marks, start, m) {
                        last_hit[*r] = mark.place;
                        let share = if rule.is_quotable() && reported(marks, start, m) { 2 } else { 1 };
                        hits.push(Hit { place: mark.place, id: rule.id, weight: rule.weight(origin) / share });
                    }
                }
            }
        }
    }
}

fn excepted(rule: &Rule, marks: &[Mark], start: usize, end: usize) -> bool {
    let (first, last) = (marks[start].place, marks[end].place);
    let behind = marks[start + 1..].iter().take_while(|m| m.place <= last + EXCEPTION_WORDS);
    let before = marks[..start].iter().rev().take_while(|m| m.place + EXCEPTION_BEFORE_WORDS >= first);
    let inside = marks[start..end].iter();
    holds(behind, rule.unless & BEHIND) || holds(before, rule.unless & BEFORE) || holds(inside, rule.unless & INSIDE)
}

fn holds<'a>(mut marks: impl Iterator<Item = &'a Mark>, concepts: Concepts) -> bool {
    concepts != 0 && marks.any(|m| m.concepts & concepts != 0)
}

/// Whether a chain stands in a report about attacks rather than in one.
fn reported(marks: &[Mark], start: usize, end: usize) -> bool {
    let from = marks[start].place.saturating_sub(REPORT_WORDS);
    let until = marks[end].place + REPORT_WORDS;
    let before = marks[..start].iter().rev().take_while(|m| m.place >= from);
    let behind = marks[end..].iter().take_while(|m| m.place <= until);
    before.chain(behind).filter(|m| m.concepts & REPORTED != 0).count() >= REPORT_SIGNS_MIN
}
