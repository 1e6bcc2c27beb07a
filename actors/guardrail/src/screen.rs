//! Screening: each reading of a text against the rules, and the score of what hits close together.

use callboard_macros::Message;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::normalize::{self, DECODED_BYTES_MAX, Disguise, PLAIN_BYTES_MAX, SCREEN_BYTES_MAX};
use super::rules::{Concept, Mark, Marks, Rule, Rules, SCORE_BLOCKED};

/// Rule that is told where the built-in rules can't be read.
pub(super) const NO_RULES: &str = "limit.no_rules";
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
    pub(super) fn unread(rule: &str) -> Self {
        Self {
            blocked: true,
            score: SCORE_BLOCKED,
            rules: vec![rule.to_owned()],
        }
    }
}

impl Rules {
    /// Screens `text`. Deterministic, time linear in its length, fails closed.
    pub fn screen(&self, text: &str, origin: Origin) -> Screening {
        if text.len() > SCREEN_BYTES_MAX {
            return Screening::unread("limit.too_long");
        }
        let plain = normalize::plain(text);
        if plain.text.len() > PLAIN_BYTES_MAX {
            return Screening::unread("limit.expands");
        }
        let mut hits = Vec::new();
        self.read(&plain.text, Disguise::None, &[], origin, &mut hits);
        let seen: Vec<&str> = hits.iter().map(|hit| hit.id).collect();
        for (disguise, reading) in normalize::readings(&plain.text) {
            self.read(&reading, disguise, &seen, origin, &mut hits);
        }
        let decoded = normalize::decoded(text);
        if decoded.iter().map(String::len).sum::<usize>() > DECODED_BYTES_MAX {
            return Screening::unread("limit.decoded_too_long");
        }
        for reading in decoded {
            self.read(
                &normalize::plain(&reading).text,
                Disguise::Hidden,
                &[],
                origin,
                &mut hits,
            );
        }
        let tags_weight = if plain.tags > TAG_CHARS_MAX {
            SCORE_BLOCKED
        } else {
            60
        };
        let lookalikes = if plain.text.is_ascii() {
            plain.lookalikes
        } else {
            0
        };
        for (count, id, weight) in [
            (plain.tags, "hidden.tags", tags_weight),
            (lookalikes, "hidden.lookalikes", 30),
            (plain.splitters, "hidden.splitters", 30),
        ] {
            if count >= HIDDEN_CHARS_MIN {
                hits.push(Hit {
                    place: 0,
                    id,
                    weight,
                });
            }
        }
        verdict(hits)
    }

    /// Adds what a reading of the text hits. `seen` are the rules that the undisguised text hits: a reading has all of that text in
    /// it, so that they are no sign of a disguise.
    fn read<'a>(
        &'a self,
        plain: &str,
        disguise: Disguise,
        seen: &[&str],
        origin: Origin,
        hits: &mut Vec<Hit<'a>>,
    ) {
        let is_users = origin == Origin::User;
        let from = hits.len();
        self.chains(&self.marks(plain), is_users, hits);
        // A disguised text is read for its signs too, but turned text has none.
        if disguise != Disguise::Turned {
            let found = self.patterns.matches(plain);
            let signs = found.iter().filter_map(|n| self.signs.get(n));
            hits.extend(signs.map(|sign| Hit {
                place: 0,
                id: &sign.id,
                weight: sign.weight.of(is_users),
            }));
        }
        if disguise != Disguise::None {
            let disguised = hits[from..]
                .iter_mut()
                .filter(|hit| !seen.contains(&hit.id));
            disguised.for_each(|hit| hit.weight += DISGUISED_WEIGHT);
        }
    }

    fn chains<'a>(&'a self, text: &Marks, is_users: bool, hits: &mut Vec<Hit<'a>>) {
        let mut state = vec![Step::default(); self.steps];
        let mut last_hit = vec![0_u32; self.rules.len()];
        for (m, mark) in text.marks.iter().enumerate() {
            let steps = text
                .of(mark)
                .iter()
                .flat_map(|concept| &self.steps_of[usize::from(*concept)]);
            for (r, s) in steps {
                let rule = &self.rules[*r];
                let reached = match s.checked_sub(1) {
                    None => Some(m),
                    Some(before) => {
                        let step = state[rule.first_step + before];
                        let gap = mark.place.saturating_sub(step.place);
                        (step.place != 0 && gap > 0 && gap <= rule.within[*s]).then_some(step.start)
                    }
                };
                let Some(start) = reached else { continue };
                state[rule.first_step + s] = Step {
                    place: mark.place,
                    start,
                };
                let complete = s + 1 == rule.within.len();
                // One hit a window is enough: a text that repeats itself costs no more.
                let fresh = last_hit[*r] == 0 || mark.place - last_hit[*r] > WINDOW_WORDS / 4;
                if complete && fresh && !excepted(rule, text, start, m) {
                    last_hit[*r] = mark.place;
                    let share = if rule.is_quotable && self.is_reported(text, start, m) {
                        2
                    } else {
                        1
                    };
                    hits.push(Hit {
                        place: mark.place,
                        id: &rule.id,
                        weight: rule.weight.of(is_users) / share,
                    });
                }
            }
        }
    }

    /// Whether a chain stands in a report about attacks rather than in one.
    fn is_reported(&self, text: &Marks, start: usize, end: usize) -> bool {
        let marks = &text.marks;
        let from = marks[start].place.saturating_sub(REPORT_WORDS);
        let until = marks[end].place + REPORT_WORDS;
        let before = marks[..start].iter().rev().take_while(|m| m.place >= from);
        let behind = marks[end..].iter().take_while(|m| m.place <= until);
        before
            .chain(behind)
            .filter(|m| text.of(m).contains(&self.reported))
            .count()
            >= REPORT_SIGNS_MIN
    }
}

/// Progress of a chain: the place of a step's last word, and the mark at which the chain began.
#[derive(Clone, Copy, Default)]
struct Step {
    /// 0: never.
    place: u32,
    start: usize,
}

fn excepted(rule: &Rule, text: &Marks, start: usize, end: usize) -> bool {
    let marks = &text.marks;
    let (first, last) = (marks[start].place, marks[end].place);
    let behind = marks[start + 1..]
        .iter()
        .take_while(|m| m.place <= last + EXCEPTION_WORDS);
    let before = marks[..start]
        .iter()
        .rev()
        .take_while(|m| m.place + EXCEPTION_BEFORE_WORDS >= first);
    holds(text, behind, &rule.unless_behind)
        || holds(text, before, &rule.unless_before)
        || holds(text, marks[start..end].iter(), &rule.unless_inside)
}

fn holds<'a>(
    text: &Marks,
    mut marks: impl Iterator<Item = &'a Mark>,
    concepts: &[Concept],
) -> bool {
    !concepts.is_empty()
        && marks.any(|m| text.of(m).iter().any(|concept| concepts.contains(concept)))
}

/// A rule that was met.
struct Hit<'a> {
    place: u32,
    id: &'a str,
    weight: u32,
}

/// The best window's score: of each family of rules its heaviest hit.
fn verdict(mut hits: Vec<Hit<'_>>) -> Screening {
    hits.sort_by_key(|h| h.place);
    let mut ids: Vec<&str> = hits.iter().map(|h| h.id).collect();
    ids.sort_unstable();
    ids.dedup();
    let score = if hits.iter().any(|h| h.weight >= SCORE_BLOCKED) {
        hits.iter().map(|h| h.weight).max().unwrap_or(SCORE_BLOCKED)
    } else {
        best_window(&hits, &ids)
    };
    Screening {
        blocked: score >= SCORE_BLOCKED,
        score,
        rules: ids.into_iter().map(str::to_owned).collect(),
    }
}

/// Windows that start half a window apart cover every stretch of half a window.
fn best_window(hits: &[Hit<'_>], ids: &[&str]) -> u32 {
    let mut best = 0;
    let mut from = 0;
    while from < hits.len() {
        let start = hits[from].place;
        let mut heaviest = vec![0; ids.len()];
        for hit in hits[from..]
            .iter()
            .take_while(|h| h.place - start <= WINDOW_WORDS)
        {
            if let Ok(n) = ids.binary_search(&hit.id) {
                heaviest[n] = heaviest[n].max(hit.weight);
            }
        }
        best = best.max(families(ids, &heaviest));
        from += hits[from..]
            .iter()
            .take_while(|h| h.place - start <= WINDOW_WORDS / 2)
            .count()
            .max(1);
    }
    best
}

fn family(id: &str) -> &str {
    id.split('.').next().unwrap_or(id)
}

fn families(ids: &[&str], heaviest: &[u32]) -> u32 {
    let mut sum = 0;
    let mut at = 0;
    while at < ids.len() {
        let same = ids[at..]
            .iter()
            .take_while(|id| family(id) == family(ids[at]))
            .count();
        let hit = heaviest[at..at + same].iter().filter(|w| **w > 0).count() as u32;
        sum += heaviest[at..at + same].iter().max().copied().unwrap_or(0)
            + hit.saturating_sub(1) * SAME_FAMILY_WEIGHT;
        at += same;
    }
    sum
}
