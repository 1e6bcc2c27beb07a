//! Pipeline of one request: guardrail, routing, confirmation of cost, execution.

use std::sync::Arc;

use callboard_guardrail::TextOrigin;
use callboard_message::capabilities::Converse;
use callboard_message::{DECISION_META_KEY, Failure, FailureKind, RawObject, ToolResult};
use callboard_runtime::{Context, TaskOwner};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::plan::{NewPlan, is_command, root_task_id, single_step, step_action, to_hundredths};
use super::question_dedup::{QuestionHistory, QuestionStore, RunStore, dedup_questions};
use super::request::{ParsedRequest, truncate_history};
use super::run_follower::follow_run;
use super::{OrchestratorShared, SharedStateMessage, current_routing_context};
use crate::decide::intake::{
    IntakeOptions, IntakeResult, IntakeStage, PlannedStep, RoutingDecision, RoutingRequest, route,
};
use crate::decide::limits::CLARIFY_ROUNDS_MAX;
use crate::decide::{
    ConfirmReason, DecisionPoint, DecisionRecord, RoutingContext, RunId, Turn, only_text_param,
};
use crate::task::execution::{
    ConfirmationRequest, StepExecution, check_guardrail, confirm, result_text,
};
use crate::tools::{plain_field, text_answer, text_question};

/// Step id of the single action of a call without a plan.
const DIRECT_STEP_ID: &str = "act";
/// Key of the first clarifying question of a run. Later ones append their number.
const CLARIFY_KEY: &str = "clarify";
/// Key of the question for confirming the cost. It differs from the default confirmation key,
/// because the action may need a confirmation too.
const CONFIRM_COST_KEY: &str = "confirm-cost";
/// Key of the stored route in a run's data.
const ROUTED_KEY: &str = "routed";

/// Request with its decided route.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RoutedRequest {
    /// Text of the request, followed by clarifying questions and answers.
    text: String,
    decision: RoutingDecision,
    /// Answer that was written with the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answer: Option<String>,
    /// Records of the decisions made while routing. Decisions before a restart are missing.
    records: Vec<DecisionRecord>,
    /// Clarifying questions and answers.
    clarified: Vec<Turn>,
}

/// Message in natural language, or a tool call written as text.
impl SharedStateMessage for Converse {
    async fn handle(
        self,
        shared: &OrchestratorShared,
        cx: &Context,
    ) -> Result<ToolResult, Failure> {
        let takes = |name: &str| Some(only_text_param(&shared.options.tools.spec(name)?.params));
        handle_request(shared, ParsedRequest::parse(&self, takes)?, cx).await
    }
}

pub(super) async fn handle_request(
    shared: &OrchestratorShared,
    said: ParsedRequest,
    cx: &Context,
) -> Result<ToolResult, Failure> {
    let _place = shared.acquire_call_permit(cx)?;
    let session = cx
        .call()
        .and_then(|call| call.session.as_ref())
        .map(|session| session.id.to_string());
    let owner = TaskOwner::from_principal(cx.principal(), session.as_deref());
    let run = RunId::of(&shared.options.id, owner.as_str(), &said.context, &said.key);
    let notes = shared.run_store(cx, &run);
    // A request without a key can't be repeated, so its questions needn't be stored.
    let (once, asked) = match said.key.is_empty() {
        true => (cx.clone(), QuestionHistory::default()),
        false => dedup_questions(cx, QuestionStore::Notes(notes.clone())),
    };
    let (text, context) = (said.text.clone(), said.context.clone());
    if said.tool.is_none() {
        shared.resubmissions.count(owner.as_str(), &context, &text);
    }
    let mut call = RequestPipeline {
        shared,
        cx: once,
        question_history: asked,
        request: said,
        owner,
        run,
        notes: notes.clone(),
        clarified: Vec::new(),
    };
    let answer = call.run().await;
    shared.count_outcome(&answer);
    if !shared.options.shutdown.is_cancelled() {
        notes.clear().await;
    }
    let said = answer
        .as_ref()
        .ok()
        .map(|answer| Turn::assistant(result_text(answer, usize::MAX)));
    let turns = [Turn::user(text)]
        .into_iter()
        .chain(call.clarified)
        .chain(said);
    shared
        .conversations
        .append(call.owner.as_str(), &context, turns);
    answer
}

struct RequestPipeline<'a> {
    shared: &'a OrchestratorShared,
    cx: Context,
    question_history: QuestionHistory,
    request: ParsedRequest,
    owner: TaskOwner,
    run: RunId,
    notes: RunStore,
    /// Clarifying questions and answers so far.
    clarified: Vec<Turn>,
}

impl RequestPipeline<'_> {
    async fn run(&mut self) -> Result<ToolResult, Failure> {
        let options = &self.shared.options;
        let (guard, text) = (options.guard.as_ref(), &self.request.text);
        check_guardrail(guard, text, TextOrigin::User, &self.cx).await?;
        if self.is_stored().await? {
            return self.follow_stored_run().await;
        }
        let world = current_routing_context(options).await;
        if let Some((name, params)) = self.request.tool.take() {
            let action = RoutingDecision::Local {
                tool_name: name,
                params,
            };
            return self
                .execute(self.request.text.clone(), action, &world, Vec::new(), false)
                .await;
        }
        let mut history = self
            .shared
            .conversations
            .history(self.owner.as_str(), &self.request.context);
        if let Some(told) = self.request.history.take() {
            // The caller's history comes first. Turns that occur in both histories are kept once.
            history.retain(|turn| !told.contains(turn));
            history = truncate_history(told.into_iter().chain(history).collect());
        }
        let RoutedRequest {
            text,
            decision,
            answer,
            records,
            ..
        } = self.route_once(&history, &world).await?;
        match decision {
            RoutingDecision::Reject { reason } => Err(Failure::rejected(reason)),
            RoutingDecision::Decompose { subtasks } => {
                let ids: Vec<&str> = subtasks.iter().map(|planned| &*planned.step.id).collect();
                let what = format!("Do it in {} steps: {}", ids.len(), ids.join(", "));
                // Estimated number of decisions: two per step and one synthesis.
                self.confirm_cost(what, json!({ "steps": ids }), 2 * ids.len() + 1, &records)
                    .await?;
                self.start_plan(&text, subtasks, records, true).await
            }
            action => {
                let (what, target, left) = match &action {
                    // A local tool may still cost one decision, such as the text of the answer.
                    RoutingDecision::Local { tool_name, .. } => {
                        let left = usize::from(answer.is_none());
                        (format!("Use {tool_name}"), tool_name, left)
                    }
                    RoutingDecision::Remote { agent_id } => {
                        (format!("Ask {agent_id}"), agent_id, 0)
                    }
                    _ => {
                        return Err(Failure::internal(
                            "the request was routed to no single action: send it again",
                        ));
                    }
                };
                self.confirm_cost(
                    format!("{what}: {text}"),
                    json!({ "by": target }),
                    left,
                    &records,
                )
                .await?;
                let done = match answer {
                    Some(answer) => ToolResult::text(answer),
                    None => self.execute(text, action, &world, history, true).await?,
                };
                Ok(with_decision(done, &self.run, &records))
            }
        }
    }

    /// Returns the route of the request. A stored route from before a restart is reused.
    ///
    /// # Errors
    /// Failures of the store, and those of [`Self::decide_route`].
    async fn route_once(
        &mut self,
        history: &[Turn],
        world: &Arc<RoutingContext>,
    ) -> Result<RoutedRequest, Failure> {
        let is_named = !self.request.key.is_empty();
        if is_named && let Some(there) = self.notes.get::<RoutedRequest>(ROUTED_KEY).await? {
            self.clarified.clone_from(&there.clarified);
            return Ok(there);
        }
        let mut request = RoutingRequest {
            run: self.run.clone(),
            text: self.request.text.clone(),
            history: history.to_vec(),
        };
        let IntakeResult {
            decision,
            answer,
            records,
        } = self.decide_route(&mut request, world).await?;
        let routed = RoutedRequest {
            text: request.text,
            decision,
            answer,
            records,
            clarified: self.clarified.clone(),
        };
        if is_named {
            self.notes.stage(ROUTED_KEY, &routed);
        }
        Ok(routed)
    }

    /// Whether the run's plan is stored already, because the caller repeats the request after a
    /// restart or a lost answer. `false` for a request without a key.
    ///
    /// # Errors
    /// Failures of the store.
    async fn is_stored(&self) -> Result<bool, Failure> {
        if self.request.key.is_empty() {
            return Ok(false);
        }
        let root = self
            .cx
            .system()
            .store()
            .tasks
            .get(&root_task_id(&self.run)?)
            .await?;
        Ok(root.is_some_and(|root| root.owner == self.owner))
    }

    /// Decides the route of the request (NP1 to DP3), and decides again after each clarifying
    /// answer, which is appended to the text of `request`. Returns the route and the records of all
    /// decisions, in order.
    ///
    /// # Errors
    /// `NoResponder` if nobody can be asked, `Cancelled` without an answer, `Internal` if the
    /// request stays unclear, and failures of the store.
    async fn decide_route(
        &mut self,
        request: &mut RoutingRequest,
        world: &Arc<RoutingContext>,
    ) -> Result<IntakeResult, Failure> {
        let options = &self.shared.options;
        let (mut all, mut from) = (Vec::new(), IntakeStage::Clarity);
        for round in 0..=CLARIFY_ROUNDS_MAX {
            let may_clarify = options.intake.clarification && round < CLARIFY_ROUNDS_MAX;
            let question = match self
                .question_history
                .find_question(&clarification_key(round))
                .await?
            {
                // The stored question is repeated as it was: its answer belongs to these words.
                Some(question) => question.message(),
                None => {
                    let intake = IntakeOptions {
                        clarification: may_clarify,
                        ..options.intake.clone()
                    };
                    let taken =
                        route(&options.deciders, &self.cx, request, world, &intake, from).await;
                    all.extend(taken.records);
                    let RoutingDecision::NeedsClarification { question } = taken.decision else {
                        return Ok(IntakeResult {
                            records: all,
                            ..taken
                        });
                    };
                    question
                }
            };
            let answer = self.ask_clarification(round, &question).await?;
            // A tool may pass the text on as it is, so nothing but the user's words is added.
            request.text = format!("{}\n{answer}", request.text);
            self.clarified
                .extend([Turn::assistant(question), Turn::user(answer)]);
            from = IntakeStage::Split;
        }
        Err(Failure::internal(
            "the request is still unclear after the maximum number of questions: send it with more detail",
        ))
    }

    /// Sends the clarifying question (NP1) to the caller unchanged and returns the answer. `round`
    /// counts the questions of the request from 0.
    ///
    /// # Errors
    /// `NoResponder` if nobody can be asked, `Cancelled` if the answer is empty or declined, and
    /// failures of the caller.
    async fn ask_clarification(&self, round: u32, question: &str) -> Result<String, Failure> {
        let form = text_question(question, &clarification_key(round), plain_field());
        let answer = self
            .cx
            .elicit(form)
            .await
            .map_err(|failure| match failure.kind {
                FailureKind::NoResponder => Failure {
                    message: format!(
                        "the request has to be clarified, and nobody could be asked: {question}"
                    ),
                    ..failure
                },
                _ => failure,
            })?;
        text_answer(&answer).ok_or_else(|| Failure::cancelled(format!("not answered: {question}")))
    }

    /// Asks for confirmation (NP5) if the expected cost is above the limit. The expected cost is
    /// the cost so far plus the average cost of a decision for each of `left` further decisions.
    /// Without a configured limit, nobody is asked.
    ///
    /// # Errors
    /// Fails like [`confirm`].
    async fn confirm_cost(
        &self,
        what: String,
        action: Value,
        left: usize,
        records: &[DecisionRecord],
    ) -> Result<(), Failure> {
        let options = &self.shared.options;
        let Some(most) = options.cost_micro_usd_max else {
            return Ok(());
        };
        let spent: u64 = records.iter().map(|record| record.cost.micro_usd).sum();
        let decisions = u64::try_from(records.len()).unwrap_or(u64::MAX).max(1);
        let estimate = spent.saturating_mul(u64::try_from(left).unwrap_or(u64::MAX)) / decisions;
        if spent.saturating_add(estimate) <= most {
            return Ok(());
        }
        let confirmation = ConfirmationRequest {
            description: what,
            action: json!({ "action": action, "micro_usd": estimate, "micro_usd_max": most }),
            reason: ConfirmReason::Cost,
            risk: 1.0,
            always_asks: false,
            key: CONFIRM_COST_KEY,
        };
        confirm(
            &options.deciders,
            &self.cx,
            &self.run,
            &self.question_history,
            confirmation,
        )
        .await
    }

    /// Performs an action that needs only one tool or one agent. A program runs as a stored plan of
    /// one step, so that it doesn't run twice. With `recovers`, a failed attempt is followed by
    /// recovery (NP3).
    ///
    /// # Errors
    /// The failure of the action or of its confirmation.
    async fn execute(
        &self,
        text: String,
        action: RoutingDecision,
        world: &RoutingContext,
        history: Vec<Turn>,
        recovers: bool,
    ) -> Result<ToolResult, Failure> {
        // A program must not run twice, so it becomes a stored plan of one step.
        if is_command(&action) {
            return self
                .start_plan(
                    &text,
                    vec![single_step(&text, action)],
                    Vec::new(),
                    recovers,
                )
                .await;
        }
        let action = step_action(action, &text, "", world)?;
        let execution = StepExecution {
            options: &self.shared.options,
            cx: &self.cx,
            question_history: &self.question_history,
            run: &self.run,
            step: DIRECT_STEP_ID,
            goal: &text,
            text: &text,
            context: &self.request.context,
            parent: self.request.origin.as_ref(),
            history: &history,
            routing_context: world,
            recovers_errors: recovers,
        };
        Ok(execution.run(action).await?.result)
    }

    async fn start_plan(
        &self,
        goal: &str,
        steps: Vec<PlannedStep>,
        records: Vec<DecisionRecord>,
        recovers: bool,
    ) -> Result<ToolResult, Failure> {
        let plan = NewPlan {
            run: &self.run,
            owner: &self.owner,
            principal: self.cx.principal(),
            goal,
            context: &self.request.context,
            origin: self.request.origin.as_ref(),
            steps,
            records,
            recovers,
        };
        plan.store(
            &self.shared.options,
            &*self.cx.system().store().tasks.clone(),
        )
        .await?;
        self.follow_stored_run().await
    }

    async fn follow_stored_run(&self) -> Result<ToolResult, Failure> {
        self.notes.mark_written();
        follow_run(self.shared, &self.cx, &self.run, &self.owner).await
    }
}

/// Returns the key of the clarifying question of this round, counted from 0.
fn clarification_key(round: u32) -> String {
    if round == 0 {
        CLARIFY_KEY.to_owned()
    } else {
        format!("{CLARIFY_KEY}-{}", round + 1)
    }
}

/// Adds the decision that a result comes from to its `_meta` ([`DECISION_META_KEY`]): the latest
/// decision on the route or the tool.
fn with_decision(result: ToolResult, run: &RunId, records: &[DecisionRecord]) -> ToolResult {
    let is_route = |record: &&DecisionRecord| {
        use DecisionPoint::{Intake, Route, Tool};
        matches!(record.point, Intake | Route | Tool)
    };
    let Some(record) = records.iter().rfind(is_route) else {
        return result;
    };
    let decision = RawObject::single("run", run.as_str())
        .with("outcome", &record.outcome)
        .with("by", &record.by)
        .with("confidence", to_hundredths(record.confidence))
        .with("decisions", records.len());
    let ToolResult(result) = result;
    let meta = result.object("_meta").unwrap_or_default();
    ToolResult(result.with("_meta", meta.with(DECISION_META_KEY, decision)))
}
