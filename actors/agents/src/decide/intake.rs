//! What becomes of a request, decided and not done: NP1, NP2.A, NP2.B, DP2, DP3.

use std::sync::Arc;

use callboard_message::RawObject;
use callboard_runtime::Cx;
use futures::future::join_all;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Clarity, DecideClarity, DecideRoute, DecideSplit, DecideTool, Deciders, DecisionRecord, MakeSteps, Route, RunId,
    Settled, Split, StepDefinition, Turn, World,
};

/// The tool that answers where nothing else does.
pub const TOOL_OF_LAST_RESORT: &str = "llm";
/// The member of its params that takes the text.
const TEXT: &str = "text";

/// What a request becomes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RoutingDecision {
    /// A tool of this agent's own.
    Local {
        /// Which.
        tool_name: String,
        /// What it is given.
        params: RawObject,
    },
    /// Another agent.
    Remote {
        /// Its id in the directory.
        agent_id: String,
    },
    /// It isn't done.
    Reject {
        /// Why, for whoever asked.
        reason: String,
    },
    /// Whoever asked has to say more first.
    NeedsClarification {
        /// One sentence.
        question: String,
    },
    /// It is done in steps.
    Decompose {
        /// At most [`super::STEPS_MAX`], none before those that it depends on.
        subtasks: Vec<PlannedStep>,
    },
}

/// A step of a plan, and who does it: [`RoutingDecision::Local`], [`RoutingDecision::Remote`] or [`RoutingDecision::Reject`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlannedStep {
    /// What is to be done, and after which others.
    pub step: StepDefinition,
    /// By whom.
    pub action: RoutingDecision,
}

impl RoutingDecision {
    /// The last resort: the text itself, to the language model.
    pub fn to_last_resort(text: &str) -> Self {
        Self::Local { tool_name: TOOL_OF_LAST_RESORT.to_owned(), params: RawObject::new().with(TEXT, text) }
    }
}

/// What somebody wants.
#[derive(Debug, Clone)]
pub struct Request {
    /// The run that the decisions belong to.
    pub run: RunId,
    /// In the words of whoever wants it; what was asked and answered since stands below.
    pub text: String,
    /// What was said before, newest last.
    pub history: Vec<Turn>,
}

/// What is decided before anything is done.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct IntakeOptions {
    /// Whether NP1 is asked.
    pub clarification: bool,
    /// Whether NP2 is asked.
    pub decomposition: bool,
    /// NP1 is asked where fewer turns than that came before.
    pub clarify_turns: usize,
    /// And where the request is vaguer than that, 0 to 1, by [`super::rules::vagueness`].
    pub vague_above: f32,
    /// A route (DP2) that is less sure than that has NP1 asked, where it was not.
    pub confidence_min_route: f32,
}

impl Default for IntakeOptions {
    fn default() -> Self {
        Self {
            clarification: true,
            decomposition: true,
            clarify_turns: 3,
            vague_above: 0.8,
            confidence_min_route: 0.35,
        }
    }
}

/// Where the decisions begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// With whether it is clear: a new request.
    Clarity,
    /// Behind that: whoever asked has just said more.
    Split,
}

/// What was decided, and how each decision was made, in order.
#[derive(Debug, Clone)]
pub struct Intake {
    /// What the request becomes.
    pub decision: RoutingDecision,
    /// One a decision.
    pub records: Vec<DecisionRecord>,
}

/// Decides what becomes of `request`. Nothing is done: whatever a decider leaves unclear has the outcome that its
/// [`super::Decision::fallback`] says.
pub async fn route(
    deciders: &Deciders,
    cx: &Cx,
    request: &Request,
    world: &Arc<World>,
    options: &IntakeOptions,
    from: From,
) -> Intake {
    let mut deciding = Deciding { deciders, cx, request, world, options, records: Vec::new() };
    let decision = deciding.all(from).await;
    Intake { decision, records: deciding.records }
}

struct Deciding<'a> {
    deciders: &'a Deciders,
    cx: &'a Cx,
    request: &'a Request,
    world: &'a Arc<World>,
    options: &'a IntakeOptions,
    records: Vec<DecisionRecord>,
}

impl Deciding<'_> {
    async fn all(&mut self, from: From) -> RoutingDecision {
        let may_clarify = self.options.clarification;
        let asks_first = may_clarify && from == From::Clarity && self.may_be_unclear();
        if asks_first && let Some(question) = self.unclear().await {
            return RoutingDecision::NeedsClarification { question };
        }
        if self.options.decomposition
            && let Some(subtasks) = self.steps().await
        {
            return RoutingDecision::Decompose { subtasks };
        }
        let (settled, mut decided) = self.one(&self.request.text, false).await;
        let is_unsure = settled.first().is_some_and(|route| {
            route.fallback.is_none() && route.confidence < self.options.confidence_min_route
        });
        self.records.extend(settled);
        // The same question of the same words would have the same answer.
        if may_clarify
            && is_unsure
            && !asks_first
            && let Some(question) = self.unclear().await
        {
            decided = RoutingDecision::NeedsClarification { question };
        }
        decided
    }

    /// Whether NP1 is worth asking.
    fn may_be_unclear(&self) -> bool {
        let Request { text, history, .. } = self.request;
        history.len() < self.options.clarify_turns
            || super::rules::vagueness(text, history, self.world) > self.options.vague_above
    }

    /// NP1: what has to be asked first.
    async fn unclear(&mut self) -> Option<String> {
        let Request { text, history, .. } = self.request;
        let message = DecideClarity { history: history.clone(), request: text.clone() };
        match self.decide(message).await {
            Some(Clarity::NeedsClarify { question }) => Some(question),
            Some(Clarity::Clear) | None => None,
        }
    }

    /// NP2.A to NP2.C: the steps, where it has some.
    async fn steps(&mut self) -> Option<Vec<PlannedStep>> {
        let Request { text, history, .. } = self.request;
        let split =
            DecideSplit { request: text.clone(), history: history.clone(), world: self.world.clone() };
        if self.decide(split).await != Some(Split::Yes) {
            return None;
        }
        let steps = self.decide(MakeSteps { request: text.clone(), world: self.world.clone() }).await?.steps;
        let this = &*self;
        let deciding = steps.into_iter().map(|step| async move {
            let (records, action) = this.one(&step.input_message, true).await;
            (records, PlannedStep { step, action })
        });
        let mut planned = Vec::new();
        for (records, step) in join_all(deciding).await {
            self.records.extend(records);
            planned.push(step);
        }
        Some(planned)
    }

    /// DP2 and DP3: who does one thing.
    async fn one(&self, text: &str, slim: bool) -> (Vec<DecisionRecord>, RoutingDecision) {
        let history = if slim { Vec::new() } else { self.request.history.clone() };
        let (request, world) = (text.to_owned(), self.world.clone());
        let message = DecideRoute { request: request.clone(), history: history.clone(), world, slim };
        let Settled { outcome, record } = self.deciders.decide(self.cx, &self.request.run, message).await;
        let fell_back = record.fallback.is_some();
        let mut records = vec![record];
        let decided = match outcome {
            Some(Route::Reject { reason }) => RoutingDecision::Reject { reason },
            // Ids are exact, whoever decided.
            Some(Route::Remote { agent }) if self.world.agents.iter().any(|known| known.id == agent) => {
                RoutingDecision::Remote { agent_id: agent }
            }
            Some(Route::Local) if !fell_back => {
                let message = DecideTool { request, history, tools: self.world.tools.clone(), slim };
                let Settled { outcome, record } = self.deciders.decide(self.cx, &self.request.run, message).await;
                let is_there = |name: &str| self.world.tools.iter().any(|tool| tool.name == name);
                let chosen = outcome.filter(|choice| record.fallback.is_none() && is_there(&choice.tool_name));
                records.push(record);
                match chosen {
                    Some(choice) => {
                        RoutingDecision::Local { tool_name: choice.tool_name, params: choice.params }
                    }
                    None => RoutingDecision::to_last_resort(text),
                }
            }
            _ => RoutingDecision::to_last_resort(text),
        };
        (records, decided)
    }

    async fn decide<D: super::Decision>(&mut self, message: D) -> Option<D::Outcome> {
        let Settled { outcome, record } = self.deciders.decide(self.cx, &self.request.run, message).await;
        self.records.push(record);
        outcome
    }
}
