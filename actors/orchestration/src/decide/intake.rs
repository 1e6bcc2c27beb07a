//! From a request to where it goes: NP1 → NP2.A → NP2.B → DP2 → DP3, without doing any of it.

use std::sync::Arc;

use callboard_message::RawObject;
use callboard_runtime::Cx;
use futures::future::join_all;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Clarity, DecideClarity, DecideRoute, DecideSplit, DecideTool, Deciders, Decision,
    DecisionRecord, MakeSteps, Route, RunId, Settled, Split, StepDefinition, ToolChoice, Turn,
    World, rules,
};

/// Options of the intake of requests.
#[derive(Debug, Clone, PartialEq)]
pub struct IntakeOptions {
    /// Whether unclear requests are asked about (NP1).
    pub clarification: bool,
    /// Whether requests are split (NP2).
    pub decomposition: bool,
    /// NP1 is asked while the conversation has fewer turns than this.
    pub clarify_turns: u32,
    /// NP1 is asked where the request is vaguer than this, 0 to 1: see [`rules::vague`].
    pub vague_above: f32,
    /// A route less sure than this has NP1 asked, where it was not, 0 to 1.
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

/// Request with its history.
#[derive(Clone, PartialEq)]
pub struct Request {
    /// Of which run.
    pub run: RunId,
    /// Request; questions and answers since stand below it.
    pub text: String,
    /// History, the newest turn last.
    pub history: Vec<Turn>,
}

/// At which point a request comes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// NP1: it is new.
    Clarity,
    /// NP2: it has been clarified.
    Split,
}

/// Where a request goes.
// What is said is anybody's.
#[derive(derive_more::Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RoutingDecision {
    /// One of our tools does it.
    #[debug("Local({tool_name})")]
    Local {
        /// Its name.
        tool_name: String,
        /// Its parameters.
        params: RawObject,
    },
    /// Another agent does it.
    #[debug("Remote({agent_id})")]
    Remote {
        /// Its id.
        agent_id: String,
    },
    /// Nobody does it.
    #[debug("Reject")]
    Reject {
        /// Why, for whoever asked.
        reason: String,
    },
    /// Something is missing.
    #[debug("NeedsClarification")]
    NeedsClarification {
        /// What whoever asked is asked.
        question: String,
    },
    /// It needs several steps.
    #[debug("Decompose({subtasks:?})")]
    Decompose {
        /// Which, each with where it goes, and none before those that it needs.
        subtasks: Vec<PlannedStep>,
    },
}

/// A step, and where it goes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlannedStep {
    /// The step.
    pub step: StepDefinition,
    /// Local, remote or rejected.
    pub action: RoutingDecision,
}

/// A request taken in.
#[derive(Debug, Clone, PartialEq)]
pub struct Intake {
    /// Where it goes.
    pub decision: RoutingDecision,
    /// Decisions on the way, in order.
    pub records: Vec<DecisionRecord>,
}

/// Decides where `request` goes. Whatever a decider leaves unclear goes where [`Decision::fallback`] says.
pub async fn route(
    deciders: &Deciders,
    cx: &Cx,
    request: &Request,
    world: &Arc<World>,
    options: &IntakeOptions,
    from: From,
) -> Intake {
    let mut taking = Taking {
        deciders,
        cx,
        request,
        world,
        options,
        records: Vec::new(),
    };
    let decision = taking.all(from).await;
    Intake {
        decision,
        records: taking.records,
    }
}

struct Taking<'a> {
    deciders: &'a Deciders,
    cx: &'a Cx,
    request: &'a Request,
    world: &'a Arc<World>,
    options: &'a IntakeOptions,
    records: Vec<DecisionRecord>,
}

impl Taking<'_> {
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
        let (records, decision) = self.one(&self.request.text, false).await;
        let is_unsure = records.first().is_some_and(|route| {
            route.fallback.is_none() && route.confidence < self.options.confidence_min_route
        });
        self.records.extend(records);
        // Asked the same of the same words, NP1 would say the same.
        if may_clarify
            && is_unsure
            && !asks_first
            && let Some(question) = self.unclear().await
        {
            return RoutingDecision::NeedsClarification { question };
        }
        decision
    }

    /// Whether NP1 is worth asking.
    fn may_be_unclear(&self) -> bool {
        let Request { text, history, .. } = self.request;
        let is_early =
            u32::try_from(history.len()).is_ok_and(|turns| turns < self.options.clarify_turns);
        is_early || rules::vague(text, history) > self.options.vague_above
    }

    /// NP1: what is missing.
    async fn unclear(&mut self) -> Option<String> {
        let Request { text, history, .. } = self.request;
        let (request, history, world) = (text.clone(), history.clone(), self.world.clone());
        match self
            .decide(DecideClarity {
                history,
                request,
                world,
            })
            .await
        {
            Some(Clarity::NeedsClarify { question }) => Some(question),
            Some(Clarity::Clear) | None => None,
        }
    }

    /// NP2.A to NP2.C: the steps, where it needs some.
    async fn steps(&mut self) -> Option<Vec<PlannedStep>> {
        let (Request { text, history, .. }, world) = (self.request, self.world);
        let split = DecideSplit {
            request: text.clone(),
            history: history.clone(),
            world: world.clone(),
        };
        if self.decide(split).await != Some(Split::Yes) {
            return None;
        }
        let plan = self
            .decide(MakeSteps {
                request: text.clone(),
                world: world.clone(),
            })
            .await?;
        let this = &*self;
        let routing = plan.into_steps().into_iter().map(|step| async move {
            let (records, action) = this.one(&step.input_message, true).await;
            (records, PlannedStep { step, action })
        });
        let mut planned = Vec::new();
        for (records, step) in join_all(routing).await {
            self.records.extend(records);
            planned.push(step);
        }
        Some(planned)
    }

    /// DP2 and DP3: who does one thing.
    async fn one(&self, text: &str, slim: bool) -> (Vec<DecisionRecord>, RoutingDecision) {
        let (request, world) = (text.to_owned(), self.world.clone());
        let history = if slim {
            Vec::new()
        } else {
            self.request.history.clone()
        };
        let message = DecideRoute {
            request: request.clone(),
            history: history.clone(),
            world,
            slim,
        };
        let Settled {
            outcome, record, ..
        } = self
            .deciders
            .decide(self.cx, &self.request.run, message)
            .await;
        let fell_back = record.fallback.is_some();
        let mut records = vec![record];
        let choice = match outcome {
            Some(Route::Reject { reason }) => return (records, RoutingDecision::Reject { reason }),
            Some(Route::Remote { agent }) => {
                return (records, RoutingDecision::Remote { agent_id: agent });
            }
            Some(Route::Local) if !fell_back => {
                let message = DecideTool {
                    request,
                    history,
                    tools: self.world.tools.clone(),
                    slim,
                };
                let Settled {
                    outcome, record, ..
                } = self
                    .deciders
                    .decide(self.cx, &self.request.run, message)
                    .await;
                records.push(record);
                outcome
            }
            Some(Route::Local) | None => None,
        };
        // Nobody decided: the words go to the model as they are.
        let ToolChoice { tool_name, params } = choice.unwrap_or_else(|| ToolChoice::llm(text));
        (records, RoutingDecision::Local { tool_name, params })
    }

    async fn decide<D: Decision>(&mut self, message: D) -> Option<D::Outcome> {
        let Settled {
            outcome, record, ..
        } = self
            .deciders
            .decide(self.cx, &self.request.run, message)
            .await;
        self.records.push(record);
        outcome
    }
}
