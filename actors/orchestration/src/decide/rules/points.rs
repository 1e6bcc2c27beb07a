//! The decision points before anything runs: what is missing, which parts there are, who does it, with which tool.

use std::sync::Arc;

use super::aim::{Aim, aim, least_of, of_tools};
use super::clauses;
use super::index::Index;
use super::kinds::{CLARIFY, Likely, REJECT, SEVERAL};
use super::reading::Reading;
use super::refusal::{Refusal, SELF_HARM, refusal, refusal_unnamed, tells_of_harm};
use super::tools::{self, intent};
use super::vague::{Missing, carries_on, question, vagueness};
use super::weights::{
    ASK_FROM, CONFIDENCE_ELSE, REFUSE_FROM, REFUSE_FROM_OF_PATTERN, REFUSE_FROM_OF_SELF_HARM, REFUSE_FROM_OF_WORD,
};
use crate::decide::{
    Clarity, Decided, Route, Split, StepPlan, StepPlanError, TOOL_LLM, ToolChoice, ToolView, Turn, World,
};
use crate::tools::Tool;

/// The rules, and the world that they last saw, ready to be matched.
#[derive(Debug)]
pub(crate) struct Rules {
    index: Index,
    /// What was read last: one request is asked about at several points.
    last: Option<Arc<Read>>,
}

/// A request, read.
#[derive(Debug)]
struct Read {
    request: String,
    reading: Reading,
    likely: Likely,
}

impl Default for Rules {
    fn default() -> Self {
        Self { index: Index::empty(), last: None }
    }
}

/// How vague a request is, 0 to 1: above 0.8 somebody should be asked.
pub fn vague(request: &str, history: &[Turn]) -> f32 {
    let reading = Reading::new(request);
    vagueness_of(&reading, &Likely::of(&reading), history).0
}

/// How vague it is by its kind, and what is missing.
fn vagueness_of(reading: &Reading, likely: &Likely, history: &[Turn]) -> (f32, Missing) {
    /// So vague is what is asked about, at least.
    const ASKED: f32 = 0.85;
    let (vague, missing) = vagueness(reading, history);
    let missing = if missing == Missing::Nothing { Missing::Everything } else { missing };
    if carries_on(history) {
        return (vague.min(0.3), missing);
    }
    let share = likely.share(CLARIFY);
    match likely.best().0 == CLARIFY || share >= ASK_FROM {
        true => (share.max(ASKED), missing),
        false => (share.min(0.5), missing),
    }
}

/// The refusal of a request that is likely one, or nearly and of a known pattern; of what else is in question, but for `but`.
fn refused(reading: &Reading, likely: &Likely, but: &[&str]) -> Option<Refusal> {
    let share = likely.share_but(REJECT, but);
    let known = refusal(reading);
    let from = match &known {
        // Better one too many who hears where help is.
        Some(known) if known.class == SELF_HARM => REFUSE_FROM_OF_SELF_HARM,
        Some(_) => REFUSE_FROM_OF_PATTERN,
        None if tells_of_harm(reading) => REFUSE_FROM_OF_WORD,
        None => REFUSE_FROM,
    };
    if share < from {
        return None;
    }
    let refusal = known.unwrap_or_else(|| refusal_unnamed(reading, share));
    Some(Refusal { score: share.max(refusal.score), ..refusal })
}

impl Rules {
    /// The index of this world: made anew only where it is another.
    fn index(&mut self, world: &Arc<World>) -> &Index {
        if !self.index.is_of(world) {
            self.index = Index::new(world);
        }
        &self.index
    }

    /// The request, read: only where it isn't the last one.
    fn read(&mut self, request: &str) -> Arc<Read> {
        if let Some(last) = self.last.as_ref().filter(|last| last.request == request) {
            return Arc::clone(last);
        }
        let reading = Reading::new(request);
        let likely = Likely::of(&reading);
        let read = Arc::new(Read { request: request.to_owned(), reading, likely });
        self.last = Some(Arc::clone(&read));
        read
    }

    /// NP1.
    pub(crate) fn clarity(&mut self, request: &str, history: &[Turn]) -> Decided<Clarity> {
        let read = self.read(request);
        let reading = &read.reading;
        if refused(reading, &read.likely, &[SEVERAL]).is_some() {
            return Decided::sure(Clarity::Clear, 0.9, "it is to be refused, not asked about");
        }
        let (vague, missing) = vagueness_of(reading, &read.likely, history);
        const VAGUE_ABOVE: f32 = 0.8;
        if vague > VAGUE_ABOVE {
            let question = question(reading, missing);
            let why = format!("vagueness {vague:.2}: {missing:?}");
            return Decided::sure(Clarity::NeedsClarify { question }, vague, why);
        }
        Decided::sure(Clarity::Clear, 1.0 - vague, format!("vagueness {vague:.2}"))
    }

    /// NP2.A.
    pub(crate) fn split(&mut self, request: &str, history: &[Turn], world: &Arc<World>) -> Decided<Split> {
        let read = self.read(request);
        let (reading, likely) = (&read.reading, read.likely.after(&read.reading, history));
        if refused(reading, &likely, &[CLARIFY]).is_some() {
            return Decided::sure(Split::No, 0.9, "it is to be refused as a whole");
        }
        let index = self.index(world);
        let parts = clauses::parts(reading, &likely, index, world);
        let sure = parts.iter().map(|part| part.score).fold(1.0, f32::min);
        let targets = parts.iter().map(|part| part.target.as_str()).collect::<Vec<_>>().join(", ");
        match clauses::is_several(&parts) {
            true => Decided::sure(Split::Yes, sure, format!("parts for {targets}")),
            false => Decided::sure(Split::No, 0.7, "one part"),
        }
    }

    /// NP2.B.
    pub(crate) fn steps(&mut self, request: &str, world: &Arc<World>) -> Decided<StepPlan> {
        let read = self.read(request);
        let Read { reading, likely, .. } = &*read;
        let index = self.index(world);
        let parts = clauses::parts(reading, likely, index, world);
        let sure = parts.iter().map(|part| part.score).fold(1.0, f32::min);
        match StepPlan::checked(clauses::steps(reading, &parts)) {
            Ok(plan) => Decided::sure(plan, sure, "a step for each part"),
            Err(StepPlanError::Empty) => Decided::unclear("no part of it is for anybody in particular"),
            Err(error) => Decided::unclear(error.to_string()),
        }
    }

    /// DP2.
    pub(crate) fn route(&mut self, request: &str, history: &[Turn], world: &Arc<World>) -> Decided<Route> {
        let read = self.read(request);
        let (reading, likely) = (&read.reading, read.likely.after(&read.reading, history));
        if let Some(refusal) = refused(reading, &likely, &[CLARIFY, SEVERAL]) {
            let reason = refusal.reason;
            return Decided::sure(Route::Reject { reason }, refusal.score, format!("refused: {}", refusal.class));
        }
        let index = self.index(world);
        let Aim { target, score, next, down, .. } = aim(reading, &likely, index, &world.tools, least_of(reading));
        let down = down.map(|id| format!("; {id} is down")).unwrap_or_default();
        match target {
            Some(target) if target.is_agent => {
                let why = format!("score {score:.2}, next {next:.2}{down}");
                Decided::sure(Route::Remote { agent: target.id }, margin(score, next), why)
            }
            Some(target) => Decided::sure(Route::Local, margin(score, next), format!("the tool {}{down}", target.id)),
            None => Decided::sure(Route::Local, CONFIDENCE_ELSE, format!("nobody's skill{down}")),
        }
    }

    /// DP3.
    pub(crate) fn tool(&mut self, request: &str, history: &[Turn], tools: &[ToolView]) -> Decided<ToolChoice> {
        let read = self.read(request);
        let (reading, likely) = (&read.reading, read.likely.after(&read.reading, history));
        let has = |name: &str| tools.iter().any(|tool| tool.name == name);
        let (name, sure) = of_tools(reading, &likely, tools);
        let name = name.as_deref().unwrap_or(TOOL_LLM);
        let text = with_text_before(reading, request, history);
        match tools::choose(reading, &text, tools, name) {
            Some(choice) => Decided::sure(choice, sure, format!("the tool {name}")),
            None if has(TOOL_LLM) => {
                Decided::sure(ToolChoice::llm(request), CONFIDENCE_ELSE, "the tool that answers with words")
            }
            None => Decided::unclear("none of the tools fits, or what it needs isn't there"),
        }
    }
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

/// How sure, from a score and the next best.
fn margin(own: f32, second: f32) -> f32 {
    const OF_OWN: f32 = 0.6;
    const OF_LEAD: f32 = 0.4;
    (own * OF_OWN + (own - second).max(0.0) * OF_LEAD).clamp(0.36, 1.0)
}
