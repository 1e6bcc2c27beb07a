//! Rules that decide without a model and without a key: English and Portuguese, the same answer to the same question.
//!
//! Requests are matched with what tools and agents say of themselves, and with everyday words (`lexicon.toml`); what nobody here
//! does is in `refusals.toml`. No rule reads text that is only quoted, but to know that there is something to work on.

mod clauses;
mod decider;
mod index;
mod lexicon;
mod matcher;
mod reading;
mod refusal;
pub mod run_time;
mod signs;
#[cfg(test)]
mod tests;
mod tools;
mod vague;
mod weights;
mod words;

use std::sync::Arc;

use callboard_message::Speaker;

pub use self::decider::RulesDecider;
use self::index::{Found, Index};
use self::lexicon::Set;
use self::reading::Reading;
use self::refusal::refusal;
use self::tools::{composes, explains, intent};
use self::vague::{Missing, vagueness};
use self::weights::{BEFORE, CLAUSE_MIN, ONLY_SUBJECT, REMOTE_MIN, REMOTE_MIN_OF_QUESTION, TOOL_MIN, score};
use crate::text::is_one_of;
use crate::tools::Tool;

use super::{Clarity, Decided, Route, Split, StepPlan, StepPlanError, TOOL_LLM, ToolChoice, ToolView, Turn, World};

/// How sure a decision for the tool that answers with words is where nothing else fits: enough not to ask again.
const CONFIDENCE_ELSE: f32 = 0.5;
/// A request vaguer than this is asked about, 0 to 1.
const VAGUE_ABOVE: f32 = 0.8;

/// The rules, and the world that they last saw, ready to be matched.
#[derive(Debug)]
struct Rules {
    index: Index,
}

impl Default for Rules {
    fn default() -> Self {
        Self { index: Index::empty() }
    }
}

/// How vague a request is, 0 to 1: above 0.8 somebody should be asked.
pub fn vague(request: &str, history: &[Turn]) -> f32 {
    vagueness(&Reading::new(request), history).0
}

impl Rules {
    /// The index of this world: made anew only where it is another.
    fn index(&mut self, world: &Arc<World>) -> &Index {
        if !self.index.is_of(world) {
            self.index = Index::new(world);
        }
        &self.index
    }

    /// NP1.
    fn clarity(request: &str, history: &[Turn]) -> Decided<Clarity> {
        let reading = Reading::new(request);
        if refusal(&reading).is_some() {
            return Decided::sure(Clarity::Clear, 0.9, "it is to be refused, not asked about");
        }
        let (vague, missing) = vagueness(&reading, history);
        if vague > VAGUE_ABOVE && missing != Missing::Nothing {
            let question = vague::question(&reading, missing);
            return Decided::sure(
                Clarity::NeedsClarify { question },
                vague,
                format!("vagueness {vague:.2}: {missing:?}"),
            );
        }
        Decided::sure(Clarity::Clear, 1.0 - vague, format!("vagueness {vague:.2}"))
    }

    /// NP2.A.
    fn split(&mut self, request: &str, world: &Arc<World>) -> Decided<Split> {
        let reading = Reading::new(request);
        if refusal(&reading).is_some() {
            return Decided::sure(Split::No, 0.9, "it is to be refused as a whole");
        }
        let index = self.index(world);
        let parts = clauses::parts(&reading, index, |name| world.tool(name).is_some());
        let sure = parts.iter().map(|part| part.score).fold(1.0, f32::min);
        let targets = parts.iter().map(|part| part.target.as_str()).collect::<Vec<_>>().join(", ");
        match clauses::is_several(&parts) {
            true => Decided::sure(Split::Yes, sure, format!("parts for {targets}")),
            false => Decided::sure(Split::No, 0.7, "one part"),
        }
    }

    /// NP2.B.
    fn steps(&mut self, request: &str, world: &Arc<World>) -> Decided<StepPlan> {
        let reading = Reading::new(request);
        let index = self.index(world);
        let parts = clauses::parts(&reading, index, |name| world.tool(name).is_some());
        let sure = parts.iter().map(|part| part.score).fold(1.0, f32::min);
        match StepPlan::checked(clauses::steps(&reading, &parts)) {
            Ok(plan) => Decided::sure(plan, sure, "a step for each part"),
            Err(StepPlanError::Empty) => Decided::unclear("no part of it is for anybody in particular"),
            Err(error) => Decided::unclear(error.to_string()),
        }
    }

    /// DP2.
    fn route(&mut self, request: &str, history: &[Turn], world: &Arc<World>) -> Decided<Route> {
        let reading = Reading::new(request);
        if let Some(refusal) = refusal(&reading) {
            let reason = refusal.reason;
            return Decided::sure(Route::Reject { reason }, refusal.score, format!("refused: {}", refusal.class));
        }
        let index = self.index(world);
        let found = evidence(index, &reading, history);
        let tool = intent(&reading, &reading.all());
        let tool = tool.filter(|intent| intent.score >= TOOL_MIN && world.tool(intent.tool.name()).is_some());
        let down = found.first().filter(|best| !best.target.is_up).map(|best| format!("; {} is down", best.target.id));
        let down = down.unwrap_or_default();
        let mut standing = found.into_iter().filter(|found| found.target.is_up);
        let least = least(&reading);
        let best = standing.next().filter(|best| best.evidence >= least);
        let second = standing.next().map_or(0.0, |second| score(second.evidence));
        match (best, tool) {
            (best, Some(tool)) if best.as_ref().is_none_or(|best| score(best.evidence) <= tool.score) => {
                Decided::sure(Route::Local, tool.score, format!("the tool {}{down}", tool.tool.name()))
            }
            (Some(best), _) if best.target.is_agent => {
                let own = score(best.evidence);
                let sure = margin(own, second);
                Decided::sure(
                    Route::Remote { agent: best.target.id },
                    sure,
                    format!("score {own:.2}, next {second:.2}{down}"),
                )
            }
            (Some(best), _) => Decided::sure(
                Route::Local,
                margin(score(best.evidence), second),
                format!("the tool {}{down}", best.target.id),
            ),
            (None, _) => Decided::sure(Route::Local, CONFIDENCE_ELSE, format!("nobody's skill{down}")),
        }
    }

    /// DP3.
    fn tool(request: &str, history: &[Turn], tools: &[ToolView]) -> Decided<ToolChoice> {
        let reading = Reading::new(request);
        let has = |name: &str| tools.iter().any(|tool| tool.name == name);
        let wanted =
            intent(&reading, &reading.all()).filter(|intent| intent.score >= TOOL_MIN && has(intent.tool.name()));
        let world = Arc::new(World { tools: tools.to_vec(), agents: Vec::new() });
        let found = evidence(&Index::new(&world), &reading, history);
        let best = found.into_iter().next().filter(|best| best.evidence >= REMOTE_MIN);
        let name = match (&best, wanted) {
            (Some(best), Some(wanted)) if score(best.evidence) > wanted.score => best.target.id.as_str(),
            (_, Some(wanted)) => wanted.tool.name(),
            (Some(best), None) => best.target.id.as_str(),
            (None, None) => TOOL_LLM,
        };
        let sure = wanted.map_or(CONFIDENCE_ELSE, |wanted| wanted.score);
        let text = with_text_before(&reading, request, history);
        match tools::choose(&reading, &text, tools, name) {
            Some(choice) => Decided::sure(choice, sure, format!("the tool {name}")),
            None if has(TOOL_LLM) => {
                Decided::sure(ToolChoice::llm(request), CONFIDENCE_ELSE, "the tool that answers with words")
            }
            None => Decided::unclear("none of the tools fits, or what it needs isn't there"),
        }
    }
}

/// How much has to speak for an agent: more where the request begins like a question of general knowledge, with no day or place.
fn least(reading: &Reading) -> f32 {
    const GENERAL: &str = "why how is are does do can who whose porque como quem sera";
    let first = reading.tokens.iter().find(|token| token.is_word()).map_or("", |token| token.folded.as_str());
    let all = reading.all();
    let dated = reading.has(Set::TimeWord, &all) || reading.has_code;
    if is_one_of(first, GENERAL) && !dated { REMOTE_MIN_OF_QUESTION } else { REMOTE_MIN }
}

/// The request; of one that shortens "this", the text said before.
fn with_text_before(reading: &Reading, request: &str, history: &[Turn]) -> String {
    let shortens = intent(reading, &reading.all()).is_some_and(|intent| intent.tool == Tool::Summarize);
    let before = || history.iter().rev().max_by_key(|turn| turn.text.len()).map(|turn| turn.text.clone());
    match shortens && !reading.has_content() {
        true => before().unwrap_or_else(|| request.to_owned()),
        false => request.to_owned(),
    }
}

/// What speaks for whom: of the request, and where it only carries on, of what was said before.
fn evidence(index: &Index, reading: &Reading, history: &[Turn]) -> Vec<Found> {
    let all = reading.all();
    let is_words = composes(reading, &all) || explains(reading, &all);
    let share = if is_words { ONLY_SUBJECT } else { 1.0 };
    let mut found = index.find(reading, &all);
    found.iter_mut().for_each(|found| found.evidence *= share);
    let enough = found.first().is_some_and(|best| best.evidence >= CLAUSE_MIN);
    const SHORT_WORDS_MAX: usize = 8;
    let short = reading.tokens.iter().filter(|token| token.is_word()).count() <= SHORT_WORDS_MAX;
    if enough || !short || is_words || history.is_empty() {
        return found;
    }
    for turn in newest(history) {
        let before = Reading::new(&turn.text);
        for earlier in index.find(&before, &before.all()) {
            let more = earlier.evidence * BEFORE;
            match found.iter_mut().find(|found| found.target == earlier.target) {
                Some(found) => found.evidence += more,
                None => found.push(Found { evidence: more, ..earlier }),
            }
        }
    }
    found.sort_by(|a, b| b.evidence.total_cmp(&a.evidence).then_with(|| a.target.id.cmp(&b.target.id)));
    found
}

/// What a request may carry on from: the last thing that either side said.
fn newest(history: &[Turn]) -> impl Iterator<Item = &Turn> {
    let last = |by: Speaker| history.iter().rev().find(move |turn| turn.by == by);
    [last(Speaker::User), last(Speaker::Assistant)].into_iter().flatten()
}

/// How sure, from a score and the next best.
fn margin(own: f32, second: f32) -> f32 {
    const OF_OWN: f32 = 0.6;
    const OF_LEAD: f32 = 0.4;
    (own * OF_OWN + (own - second).max(0.0) * OF_LEAD).clamp(0.36, 1.0)
}
