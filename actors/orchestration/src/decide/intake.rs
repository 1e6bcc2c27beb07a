//! Routing of a request: NP1 → NP2.A → NP2.B → DP2 → DP3, without performing any of it.

use std::sync::Arc;

use callboard_message::RawObject;
use callboard_runtime::Context;
use futures::future::join_all;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Clarity, DecideClarity, DecideRoute, DecideSplit, DecideTool, Deciders, DecisionRecord,
    DecisionRequest, DecisionResult, MakeSteps, Route, RoutingContext, RunId, Split,
    StepDefinition, ToolChoice, Turn, rules,
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
}

impl Default for IntakeOptions {
    fn default() -> Self {
        Self {
            clarification: true,
            decomposition: true,
            clarify_turns_max: 3,
            vagueness_max: 0.8,
            confidence_min_route: 0.35,
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
    };
    let decision = taking.route_request(from).await;
    IntakeResult {
        decision,
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
}

impl IntakeRun<'_> {
    async fn route_request(&mut self, from: IntakeStage) -> RoutingDecision {
        let may_clarify = self.options.clarification;
        let asks_first = may_clarify && from == IntakeStage::Clarity && self.should_check_clarity();
        if asks_first && let Some(question) = self.clarifying_question().await {
            return RoutingDecision::NeedsClarification { question };
        }
        if self.options.decomposition
            && let Some(subtasks) = self.plan_steps().await
        {
            return RoutingDecision::Decompose { subtasks };
        }
        let (records, decision) = self.route_part(&self.request.text, false).await;
        let is_unsure = records.first().is_some_and(|route| {
            route.fallback.is_none() && route.confidence < self.options.confidence_min_route
        });
        self.records.extend(records);
        // The same question about the same text would get the same answer.
        if may_clarify
            && is_unsure
            && !asks_first
            && let Some(question) = self.clarifying_question().await
        {
            return RoutingDecision::NeedsClarification { question };
        }
        decision
    }

    fn should_check_clarity(&self) -> bool {
        let RoutingRequest { text, history, .. } = self.request;
        let is_early =
            u32::try_from(history.len()).is_ok_and(|turns| turns < self.options.clarify_turns_max);
        is_early || rules::request_vagueness(text, history) > self.options.vagueness_max
    }

    /// Returns a clarifying question if the request is unclear (NP1); `None` if it is clear or that
    /// can't be decided.
    async fn clarifying_question(&mut self) -> Option<String> {
        let RoutingRequest { text, history, .. } = self.request;
        let (request, history, world) = (text.clone(), history.clone(), self.world.clone());
        match self
            .record_and_decide(DecideClarity {
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

    /// Returns the steps with their routes if the request needs several steps (NP2.A to NP2.C);
    /// `None` if one step suffices or no valid plan was made.
    async fn plan_steps(&mut self) -> Option<Vec<PlannedStep>> {
        let (RoutingRequest { text, history, .. }, world) = (self.request, self.world);
        let split = DecideSplit {
            request: text.clone(),
            history: history.clone(),
            world: world.clone(),
        };
        if self.record_and_decide(split).await != Some(Split::Yes) {
            return None;
        }
        let plan = self
            .record_and_decide(MakeSteps {
                request: text.clone(),
                world: world.clone(),
            })
            .await?;
        let this = &*self;
        let routing = plan.into_steps().into_iter().map(|step| async move {
            let (records, action) = this.route_part(&step.input_message, true).await;
            (records, PlannedStep { step, action })
        });
        let mut planned = Vec::new();
        for (records, step) in join_all(routing).await {
            self.records.extend(records);
            planned.push(step);
        }
        Some(planned)
    }

    /// Routes one request or step: decides between tool, agent and rejection (DP2), and chooses the
    /// tool (DP3). Returns the records of these decisions, in order, and the route. If `slim`, the
    /// text is a step of a plan, and the deciders don't see the history.
    async fn route_part(&self, text: &str, slim: bool) -> (Vec<DecisionRecord>, RoutingDecision) {
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
                let DecisionResult {
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
        // Without a decision, the text goes to the model unchanged.
        let ToolChoice {
            tool_name,
            mut params,
        } = choice.unwrap_or_else(|| ToolChoice::llm(text));
        // Models often name the tool and leave out the text that they were just given.
        self.world.fill_text(&tool_name, &mut params, text);
        (records, RoutingDecision::Local { tool_name, params })
    }

    async fn record_and_decide<D: DecisionRequest>(&mut self, message: D) -> Option<D::Outcome> {
        let DecisionResult {
            outcome, record, ..
        } = self
            .deciders
            .decide(self.cx, &self.request.run, message)
            .await;
        self.records.push(record);
        outcome
    }
}
