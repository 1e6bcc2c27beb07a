//! Routing of a request, without performing any of it: DP0 decides at once what the points NP1 →
//! NP2.A → NP2.B → DP2 → DP3 decide one by one.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use callboard_message::RawObject;
use callboard_runtime::Context;
use futures::future::join_all;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Clarity, DecideClarity, DecideIntake, DecideRoute, DecideSplit, DecideTool, Decider, Deciders,
    DecisionPoint, DecisionRecord, DecisionRequest, DecisionResult, FallbackReason, Intake,
    MakeSteps, Route, RoutingContext, RunId, Split, StepDefinition, StepPlan, ToolChoice, Turn,
    rules,
};

/// Options for routing requests.
#[derive(Debug, Clone, PartialEq)]
pub struct IntakeOptions {
    /// Whether the user is asked a clarifying question if a request is unclear (NP1).
    pub clarification: bool,
    /// Whether a request may be split into the steps of a plan (NP2).
    pub decomposition: bool,
    /// Number of conversation turns below which the clarity of a request is always checked (NP1).
    pub clarify_turns_max: u32,
    /// Vagueness of a request, 0 to 1, above which its clarity is checked (NP1): see
    /// [`rules::request_vagueness`].
    pub vagueness_max: f32,
    /// Minimum confidence of a route, 0 to 1. Below it, the clarity of the request is checked
    /// (NP1), unless that was done already.
    pub confidence_min_route: f32,
    /// Operator's instructions for answers, which may be empty: the combined decision (DP0) may
    /// answer a request itself. `None` if it may not.
    pub answer_prompt: Option<String>,
}

impl Default for IntakeOptions {
    fn default() -> Self {
        Self {
            clarification: true,
            decomposition: true,
            clarify_turns_max: 3,
            vagueness_max: 0.8,
            confidence_min_route: 0.35,
            answer_prompt: None,
        }
    }
}

/// Request to route, with its conversation.
#[derive(Clone, PartialEq)]
pub struct RoutingRequest {
    /// Id of the run that handles the request.
    pub run: RunId,
    /// Text of the request, followed by clarifying questions and answers.
    pub text: String,
    /// Earlier turns of the conversation, the newest last.
    pub history: Vec<Turn>,
}

/// Stage at which routing begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntakeStage {
    /// New request: routing begins with the check of its clarity (NP1).
    Clarity,
    /// Request with the user's clarification: routing begins with the split into steps (NP2).
    Split,
}

/// Route of a request.
// `Debug` omits parameters and texts: they may contain user text.
#[derive(derive_more::Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RoutingDecision {
    /// A local tool performs the request.
    #[debug("Local({tool_name})")]
    Local {
        /// Name of the tool.
        tool_name: String,
        /// Parameters of the tool.
        params: RawObject,
    },
    /// Another agent performs the request.
    #[debug("Remote({agent_id})")]
    Remote {
        /// Id of the agent.
        agent_id: String,
    },
    /// The request is rejected.
    #[debug("Reject")]
    Reject {
        /// Reason for the user.
        reason: String,
    },
    /// Information is missing.
    #[debug("NeedsClarification")]
    NeedsClarification {
        /// Clarifying question to the user.
        question: String,
    },
    /// The request needs several steps.
    #[debug("Decompose({subtasks:?})")]
    Decompose {
        /// Steps with their routes, in dependency order.
        subtasks: Vec<PlannedStep>,
    },
}

/// Step of a plan with its route.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlannedStep {
    /// Step definition.
    pub step: StepDefinition,
    /// Route of the step: local, remote or rejected.
    pub action: RoutingDecision,
}

/// Result of routing a request.
#[derive(Debug, Clone, PartialEq)]
pub struct IntakeResult {
    /// Route of the request.
    pub decision: RoutingDecision,
    /// Answer to the request, if the combined decision (DP0) wrote it; the route is then the tool
    /// `llm`.
    pub answer: Option<String>,
    /// Records of the decisions made while routing, in order.
    pub records: Vec<DecisionRecord>,
}

/// Decides the route of `request`, beginning at the given stage. Where a decider is unclear,
/// [`DecisionRequest::fallback`](super::DecisionRequest::fallback) applies.
pub async fn route(
    deciders: &Deciders,
    cx: &Context,
    request: &RoutingRequest,
    world: &Arc<RoutingContext>,
    options: &IntakeOptions,
    from: IntakeStage,
) -> IntakeResult {
    let mut taking = IntakeRun {
        deciders,
        cx,
        request,
        world,
        options,
        records: Vec::new(),
        answer: None,
    };
    let decision = taking.route_request(from).await;
    IntakeResult {
        decision,
        answer: taking.answer,
        records: taking.records,
    }
}

struct IntakeRun<'a> {
    deciders: &'a Deciders,
    cx: &'a Context,
    request: &'a RoutingRequest,
    world: &'a Arc<RoutingContext>,
    options: &'a IntakeOptions,
    records: Vec<DecisionRecord>,
    answer: Option<String>,
}

/// Deciders of the combined decision (DP0) that gave none that can be used.
#[derive(Default)]
struct Undecided {
    /// Labels of the deciders.
    by: Vec<String>,
    /// Whether the last of them failed or timed out, so that it isn't asked again.
    has_failed: bool,
}

impl Undecided {
    /// Returns the place of the first decider to ask at a decision point: those that were asked for
    /// the combined decision are left out. If there are no others, they are asked again, unless they
    /// failed.
    fn first_decider(&self, chain: &[Decider]) -> usize {
        let asked = chain
            .iter()
            .take_while(|decider| self.by.contains(&decider.label))
            .count();
        match asked == chain.len() && !self.has_failed {
            true => 0,
            false => asked,
        }
    }
}

impl IntakeRun<'_> {
    async fn route_request(&mut self, from: IntakeStage) -> RoutingDecision {
        let RoutingRequest { text, history, .. } = self.request;
        let asks_first = self.options.clarification
            && from == IntakeStage::Clarity
            && self.should_check_clarity();
        let at_once = DecideIntake {
            request: text.clone(),
            history: history.clone(),
            world: self.world.clone(),
            may_clarify: asks_first,
            may_split: self.options.decomposition,
            answer_prompt: self.options.answer_prompt.clone(),
        };
        let (record, decided) = self.decide_at_once(at_once).await;
        let confidence = record.as_ref().map_or(1.0, |record| record.confidence);
        self.records.extend(record);
        let undecided = match decided {
            Ok(Intake::NeedsClarify { question }) => {
                return RoutingDecision::NeedsClarification { question };
            }
            Ok(Intake::Split(plan)) => {
                let subtasks = self.route_steps(plan).await;
                return RoutingDecision::Decompose { subtasks };
            }
            Ok(outcome) => {
                let is_unsure = confidence < self.options.confidence_min_route;
                if is_unsure && let Some(question) = self.late_question(asks_first).await {
                    return RoutingDecision::NeedsClarification { question };
                }
                if let Intake::Answer { text } = &outcome {
                    self.answer = Some(text.clone());
                }
                return self.route_of(outcome, text);
            }
            Err(undecided) => undecided,
        };
        if undecided.has_failed && !self.has_other_decider(&undecided, asks_first) {
            // Nobody else decides: the fallback of DP2.
            return self.local_route(ToolChoice::llm(text), text);
        }
        self.route_by_points(&undecided, asks_first).await
    }

    /// Returns whether one of the points that routing begins with has a decider that can be asked
    /// after the combined decision.
    fn has_other_decider(&self, undecided: &Undecided, asks_first: bool) -> bool {
        let can_ask = |point: DecisionPoint| {
            let chain = self.deciders.chain_at(point);
            undecided.first_decider(chain) < chain.len()
        };
        can_ask(DecisionPoint::Route)
            || asks_first && can_ask(DecisionPoint::Clarity)
            || self.options.decomposition && can_ask(DecisionPoint::Split)
    }

    /// Routes the request by the decision points one by one.
    async fn route_by_points(
        &mut self,
        undecided: &Undecided,
        asks_first: bool,
    ) -> RoutingDecision {
        if asks_first && let Some(question) = self.clarifying_question(undecided).await {
            return RoutingDecision::NeedsClarification { question };
        }
        if self.options.decomposition
            && let Some(subtasks) = self.plan_steps(undecided).await
        {
            return RoutingDecision::Decompose { subtasks };
        }
        let (records, decision) = self.route_part(&self.request.text, false, undecided).await;
        let is_unsure = records.first().is_some_and(|route| {
            route.fallback.is_none() && route.confidence < self.options.confidence_min_route
        });
        self.records.extend(records);
        if is_unsure && let Some(question) = self.late_question(asks_first).await {
            return RoutingDecision::NeedsClarification { question };
        }
        decision
    }

    /// Returns a clarifying question about a request whose route is unsure; `None` if it is clear,
    /// or was found clear before. The same question about the same text would get the same answer.
    async fn late_question(&mut self, has_asked: bool) -> Option<String> {
        match self.options.clarification && !has_asked {
            true => self.clarifying_question(&Undecided::default()).await,
            false => None,
        }
    }

    /// Asks for the combined decision (DP0). Returns its record, `None` without a decider, and the
    /// outcome, or else the deciders that gave none.
    async fn decide_at_once(
        &self,
        message: DecideIntake,
    ) -> (Option<DecisionRecord>, Result<Intake, Undecided>) {
        let chain = self.deciders.chain_at(DecisionPoint::Intake);
        if chain.is_empty() {
            return (None, Err(Undecided::default()));
        }
        let run = &self.request.run;
        let DecisionResult {
            outcome, record, ..
        } = self.deciders.decide(self.cx, run, message).await;
        let undecided = || Undecided {
            by: chain.iter().map(|decider| decider.label.clone()).collect(),
            has_failed: matches!(
                record.fallback,
                Some(FallbackReason::Failed(_) | FallbackReason::TimedOut)
            ),
        };
        let decided = outcome.ok_or_else(undecided);
        (Some(record), decided)
    }

    /// Returns the route of a combined decision for one tool, agent or rejection.
    fn route_of(&self, outcome: Intake, text: &str) -> RoutingDecision {
        match outcome {
            Intake::Remote { agent } => RoutingDecision::Remote { agent_id: agent },
            Intake::Reject { reason } => RoutingDecision::Reject { reason },
            Intake::Local(choice) => self.local_route(choice, text),
            Intake::Answer { .. } | Intake::NeedsClarify { .. } | Intake::Split(_) => {
                self.local_route(ToolChoice::llm(text), text)
            }
        }
    }

    /// Returns the route to a tool. The text is filled in where the parameters lack it: models often
    /// name the tool and leave out the text that they were just given.
    fn local_route(&self, choice: ToolChoice, text: &str) -> RoutingDecision {
        let ToolChoice {
            tool_name,
            mut params,
        } = choice;
        self.world.fill_text(&tool_name, &mut params, text);
        RoutingDecision::Local { tool_name, params }
    }

    fn should_check_clarity(&self) -> bool {
        let RoutingRequest { text, history, .. } = self.request;
        let is_early =
            u32::try_from(history.len()).is_ok_and(|turns| turns < self.options.clarify_turns_max);
        is_early || rules::request_vagueness(text, history) > self.options.vagueness_max
    }

    /// Returns a clarifying question if the request is unclear (NP1); `None` if it is clear or that
    /// can't be decided.
    async fn clarifying_question(&mut self, undecided: &Undecided) -> Option<String> {
        let RoutingRequest { text, history, .. } = self.request;
        let (request, history, world) = (text.clone(), history.clone(), self.world.clone());
        let message = DecideClarity {
            history,
            request,
            world,
        };
        match self.record_and_decide(message, undecided).await {
            Some(Clarity::NeedsClarify { question }) => Some(question),
            Some(Clarity::Clear) | None => None,
        }
    }

    /// Returns the steps with their routes if the request needs several steps (NP2.A to NP2.C);
    /// `None` if one step suffices or no valid plan was made.
    async fn plan_steps(&mut self, undecided: &Undecided) -> Option<Vec<PlannedStep>> {
        let (RoutingRequest { text, history, .. }, world) = (self.request, self.world);
        let split = DecideSplit {
            request: text.clone(),
            history: history.clone(),
            world: world.clone(),
        };
        if self.record_and_decide(split, undecided).await != Some(Split::Yes) {
            return None;
        }
        let message = MakeSteps {
            request: text.clone(),
            world: world.clone(),
        };
        let plan = self.record_and_decide(message, undecided).await?;
        Some(self.route_steps(plan).await)
    }

    /// Returns the steps of a plan with their routes (NP2.C), which are decided at the same time.
    async fn route_steps(&mut self, plan: StepPlan) -> Vec<PlannedStep> {
        let this = &*self;
        let routing = plan.into_steps().into_iter().map(|step| async move {
            let (records, action) = this.route_step(&step.input_message).await;
            (records, PlannedStep { step, action })
        });
        let mut planned = Vec::new();
        for (records, step) in join_all(routing).await {
            self.records.extend(records);
            planned.push(step);
        }
        planned
    }

    /// Routes one step of a plan. Returns the records of the decisions and the route.
    async fn route_step(&self, text: &str) -> (Vec<DecisionRecord>, RoutingDecision) {
        let message = DecideIntake {
            request: text.to_owned(),
            history: Vec::new(),
            world: self.world.clone(),
            may_clarify: false,
            may_split: false,
            answer_prompt: None,
        };
        let (record, decided) = self.decide_at_once(message).await;
        let mut records: Vec<DecisionRecord> = record.into_iter().collect();
        match decided {
            Ok(outcome) => (records, self.route_of(outcome, text)),
            Err(undecided) => {
                let (further, route) = self.route_part(text, true, &undecided).await;
                records.extend(further);
                (records, route)
            }
        }
    }

    /// Routes one request or step: decides between tool, agent and rejection (DP2), and chooses the
    /// tool (DP3). Returns the records of these decisions, in order, and the route. If `slim`, the
    /// text is a step of a plan, and the deciders don't see the history.
    async fn route_part(
        &self,
        text: &str,
        slim: bool,
        undecided: &Undecided,
    ) -> (Vec<DecisionRecord>, RoutingDecision) {
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
        let DecisionResult {
            outcome, record, ..
        } = self.decide(message, undecided).await;
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
                let DecisionResult {
                    outcome, record, ..
                } = self.decide(message, undecided).await;
                records.push(record);
                outcome
            }
            Some(Route::Local) | None => None,
        };
        // Without a decision, the text goes to the model unchanged.
        let choice = choice.unwrap_or_else(|| ToolChoice::llm(text));
        (records, self.local_route(choice, text))
    }

    async fn record_and_decide<D: DecisionRequest>(
        &mut self,
        message: D,
        undecided: &Undecided,
    ) -> Option<D::Outcome> {
        let DecisionResult {
            outcome, record, ..
        } = self.decide(message, undecided).await;
        self.records.push(record);
        outcome
    }

    async fn decide<D: DecisionRequest>(
        &self,
        message: D,
        undecided: &Undecided,
    ) -> DecisionResult<D::Outcome> {
        let first = undecided.first_decider(self.deciders.chain_at(D::POINT));
        let run = &self.request.run;
        self.deciders
            .decide_from(self.cx, run, message, first)
            .await
    }
}
