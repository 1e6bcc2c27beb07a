//! Who of the world a request, or a part of it, is for: its likely kinds, matched with who is there, and what others say of
//! themselves.

use callboard_message::text::is_one_of;

use super::index::{Found, Index, Target};
use super::kinds::{CLARIFY, Likely, REJECT, SEVERAL};
use super::lexicon::Set;
use super::reading::Reading;
use super::tools::{composes, explains, intent, is_ours};
use super::weights::{
    CONFIDENCE_ELSE, KIND_MIN, ONLY_SUBJECT, REMOTE_MIN, REMOTE_MIN_OF_QUESTION, SAID_BY_ITSELF, score,
};
use crate::decide::{TOOL_LLM, ToolView};

/// Who it is for.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Aim {
    /// `None`: nobody in particular.
    pub(super) target: Option<Target>,
    /// How clearly, 0 to 1.
    pub(super) score: f32,
    /// The same of the next best.
    pub(super) next: f32,
    /// Who would have been it, but is down.
    pub(super) down: Option<String>,
}

/// Who the request is for. `least` is how much has to speak for one whose field isn't known.
pub(super) fn aim(reading: &Reading, likely: &Likely, index: &Index, tools: &[ToolView], least: f32) -> Aim {
    let found = index.find(reading, &reading.all());
    let mut aim = Aim::default();
    let mut shares = Vec::new();
    for (kind, share) in likely.ranked_but(&[CLARIFY, REJECT, SEVERAL]) {
        if share < KIND_MIN && aim.target.is_some() {
            break;
        }
        let Some(target) = taker(kind, index, tools, &found) else { continue };
        if !target.is_up {
            aim.down.get_or_insert(target.id);
            continue;
        }
        if aim.target.is_none() && share >= KIND_MIN {
            (aim.target, aim.score) = (Some(target), share);
        }
        shares.push(share);
    }
    aim.next = shares.get(1).copied().unwrap_or(0.0);
    let Some(other) = other(reading, index, &found, least) else { return aim };
    let own = aim.target.as_ref().and_then(|target| found.iter().find(|found| found.target == *target));
    let said = intent(reading, &reading.wish).filter(|intent| aim.is_for(intent.tool.name())).map_or(0.0, |i| i.score);
    let is_words = aim.is_for(TOOL_LLM) || aim.target.is_none();
    let clearer = other.evidence > own.map_or(0.0, |own| own.evidence) && score(other.evidence) > said;
    if !other.target.is_up {
        aim.down.get_or_insert_with(|| other.target.id.clone());
    } else if clearer && (is_words || other.evidence >= SAID_BY_ITSELF) {
        aim = Aim { next: aim.score, target: Some(other.target.clone()), score: score(other.evidence), ..aim };
    }
    aim
}

impl Aim {
    fn is_for(&self, id: &str) -> bool {
        self.target.as_ref().is_some_and(|target| target.id == id)
    }
}

/// Of those whose field isn't known the one whom most speaks for: their own words tell, but where they are only written about.
fn other(reading: &Reading, index: &Index, found: &[Found], least: f32) -> Option<Found> {
    let wish = &reading.wish;
    let is_words = composes(reading, wish) || explains(reading, wish);
    let share = if is_words { ONLY_SUBJECT } else { 1.0 };
    let others = found.iter().filter(|found| !index.is_of_a_kind(&found.target.id));
    let mut enough = others.filter(|found| found.evidence * share >= least);
    let first = enough.next()?;
    let up = if first.target.is_up { None } else { enough.find(|found| found.target.is_up) };
    let other = up.unwrap_or(first);
    Some(Found { target: other.target.clone(), evidence: other.evidence * share })
}

/// The one of the world for a kind: our tool of that name, or of the agents of that field whom most speaks for, the first that is up.
fn taker(kind: &str, index: &Index, tools: &[ToolView], found: &[Found]) -> Option<Target> {
    if is_ours(kind) {
        let tool = tools.iter().find(|tool| tool.name == kind);
        return tool.map(|tool| Target { id: tool.name.clone(), is_agent: false, is_up: true });
    }
    let mut of_field = found.iter().map(|found| &found.target).filter(|target| index.is_of_field(&target.id, kind));
    let first = of_field.next();
    let up = first.filter(|target| target.is_up).or_else(|| of_field.find(|target| target.is_up));
    up.or(first).cloned().or_else(|| index.first_of_field(kind))
}

/// How much has to speak for an agent: more where the request begins like a question of general knowledge, with no day or place.
pub(super) fn least_of(reading: &Reading) -> f32 {
    const GENERAL: &str = "why how is are does do can who whose porque como quem sera";
    let first = reading.tokens.iter().find(|token| token.is_word()).map_or("", |token| token.folded.as_str());
    let all = reading.all();
    let dated = reading.has(Set::TimeWord, &all) || reading.has_code;
    if is_one_of(first, GENERAL) && !dated { REMOTE_MIN_OF_QUESTION } else { REMOTE_MIN }
}

/// Which of the tools, and how surely.
pub(super) fn of_tools(reading: &Reading, likely: &Likely, tools: &[ToolView]) -> (Option<String>, f32) {
    let aim = aim(reading, likely, &Index::of_tools(tools), tools, least_of(reading));
    match aim.target {
        Some(target) => (Some(target.id), aim.score.max(CONFIDENCE_ELSE)),
        None => (None, CONFIDENCE_ELSE),
    }
}
