//! One request, from what somebody says to the answer.

use std::sync::Arc;

use callboard_guardrail::Origin;
use callboard_message::surface::Converse;
use callboard_message::{Failure, FailureKind, ToolResult};
use callboard_runtime::{Cx, TaskOwner};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::follow::follow;
use super::plan::{Plan, action_of, is_command, only, root_id};
use super::question_dedup::{Asked, Kept, RunNotes, asked_once};
use super::request::{Said, bounded};
use super::{Shared, world};
use crate::decide::intake::{
    From, Intake, IntakeOptions, PlannedStep, Request, RoutingDecision, route,
};
use crate::decide::limits::CLARIFY_ROUNDS_MAX;
use crate::decide::{ConfirmWhy, DecisionRecord, RunId, Turn, World, text_member};
use crate::task::execution::{Doubt, Errand, confirm, passes, text_of};
use crate::tools::{plain_field, text_answer, text_question};

/// The name of the one thing that a call does itself, among what its run does.
const STEP: &str = "act";
/// The key of the question that clarifies.
const CLARIFY: &str = "clarify";
/// The key of the question about what it may cost: what is done then may have to be confirmed for other reasons.
const CONFIRM_COST: &str = "confirm-cost";
/// The name of where a request goes, in a run's notes.
const ROUTED: &str = "routed";

/// A request, and where it goes.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Routed {
    /// Request, and below it the clarifications.
    text: String,
    decision: RoutingDecision,
    /// Decisions on the way, without those before a restart.
    records: Vec<DecisionRecord>,
    /// Questions and answers on the way.
    clarified: Vec<Turn>,
}

/// Answers a message in words.
pub(super) async fn converse(
    shared: &Shared,
    said: Converse,
    cx: &Cx,
) -> Result<ToolResult, Failure> {
    let takes = |name: &str| Some(text_member(&shared.options.tools.spec(name)?.params));
    answer(shared, Said::read(&said, takes)?, cx).await
}

/// Answers a request.
pub(super) async fn answer(shared: &Shared, said: Said, cx: &Cx) -> Result<ToolResult, Failure> {
    let _place = shared.place()?;
    let session = cx
        .call()
        .and_then(|call| call.session.as_ref())
        .map(|session| session.id.to_string());
    let owner = TaskOwner::of(cx.principal(), session.as_deref());
    let run = RunId::of(&shared.options.id, owner.as_str(), &said.context, &said.key);
    let notes = shared.notes(cx, &run);
    // What nobody can ask for again needn't be found again.
    let (once, asked) = match said.key.is_empty() {
        true => (cx.clone(), Asked::default()),
        false => asked_once(cx, Kept::Notes(notes.clone())),
    };
    let (text, context) = (said.text.clone(), said.context.clone());
    let mut call = Call {
        shared,
        cx: once,
        asked,
        said,
        owner,
        run,
        notes: notes.clone(),
        clarified: Vec::new(),
    };
    let answer = call.through().await;
    shared.count(&answer);
    if !shared.options.ending.is_cancelled() {
        notes.forget().await;
    }
    let said = answer
        .as_ref()
        .ok()
        .map(|answer| Turn::assistant(text_of(answer, usize::MAX)));
    let turns = [Turn::user(text)]
        .into_iter()
        .chain(call.clarified)
        .chain(said);
    shared
        .conversations
        .add(call.owner.as_str(), &context, turns);
    answer
}

struct Call<'a> {
    shared: &'a Shared,
    cx: Cx,
    asked: Asked,
    said: Said,
    owner: TaskOwner,
    run: RunId,
    notes: RunNotes,
    /// Questions and answers before the request was clear.
    clarified: Vec<Turn>,
}

impl Call<'_> {
    async fn through(&mut self) -> Result<ToolResult, Failure> {
        let options = &self.shared.options;
        passes(options.guard.as_ref(), &self.said.text, Origin::User).await?;
        if self.is_there().await? {
            return self.follow().await;
        }
        let world = world(options).await;
        if let Some((name, params)) = self.said.tool.take() {
            let action = RoutingDecision::Local {
                tool_name: name,
                params,
            };
            return self
                .act(self.said.text.clone(), action, &world, Vec::new(), false)
                .await;
        }
        let mut history = self
            .shared
            .conversations
            .history(self.owner.as_str(), &self.said.context);
        if let Some(told) = self.said.history.take() {
            // What the caller tells of comes from elsewhere; where it is the same conversation, it is told once.
            history.retain(|turn| !told.contains(turn));
            history = bounded(told.into_iter().chain(history).collect());
        }
        let Routed {
            text,
            decision,
            records,
            ..
        } = self.routed(&history, &world).await?;
        match decision {
            RoutingDecision::Reject { reason } => Err(Failure::rejected(reason)),
            RoutingDecision::Decompose { subtasks } => {
                let ids: Vec<&str> = subtasks.iter().map(|planned| &*planned.step.id).collect();
                let what = format!("Do it in {} steps: {}", ids.len(), ids.join(", "));
                // A decision or two a step, and one about all of them.
                self.affordable(what, json!({ "steps": ids }), 2 * ids.len() + 1, &records)
                    .await?;
                self.plan(&text, subtasks, records, true).await
            }
            action => {
                let (what, target, left) = match &action {
                    // It is written by whoever decides.
                    RoutingDecision::Local { tool_name, .. } => {
                        (format!("Use {tool_name}"), tool_name, 1)
                    }
                    RoutingDecision::Remote { agent_id } => {
                        (format!("Ask {agent_id}"), agent_id, 0)
                    }
                    _ => return Err(Failure::internal("that is nothing that one does")),
                };
                self.affordable(
                    format!("{what}: {text}"),
                    json!({ "by": target }),
                    left,
                    &records,
                )
                .await?;
                self.act(text, action, &world, history, true).await
            }
        }
    }

    /// Where the request goes: what was decided before the process ended holds, if anybody was asked since.
    async fn routed(&mut self, history: &[Turn], world: &Arc<World>) -> Result<Routed, Failure> {
        let is_named = !self.said.key.is_empty();
        if is_named && let Some(there) = self.notes.get::<Routed>(ROUTED).await? {
            self.clarified.clone_from(&there.clarified);
            return Ok(there);
        }
        let mut request = Request {
            run: self.run.clone(),
            text: self.said.text.clone(),
            history: history.to_vec(),
        };
        let (decision, records) = self.decided(&mut request, world).await?;
        let routed = Routed {
            text: request.text,
            decision,
            records,
            clarified: self.clarified.clone(),
        };
        if is_named {
            self.notes.stage(ROUTED, &routed);
        }
        Ok(routed)
    }

    /// Whether the run is kept already: the same was said before, and the process ended since, or the answer was lost.
    async fn is_there(&self) -> Result<bool, Failure> {
        if self.said.key.is_empty() {
            return Ok(false);
        }
        let root = self
            .cx
            .system()
            .store()
            .tasks
            .get(&root_id(&self.run)?)
            .await?;
        Ok(root.is_some_and(|root| root.owner == self.owner))
    }

    /// NP1 to DP3, and again with what was asked and answered.
    async fn decided(
        &mut self,
        request: &mut Request,
        world: &Arc<World>,
    ) -> Result<(RoutingDecision, Vec<DecisionRecord>), Failure> {
        let options = &self.shared.options;
        let (mut all, mut from) = (Vec::new(), From::Clarity);
        for round in 0..=CLARIFY_ROUNDS_MAX {
            let may_clarify = options.intake.clarification && round < CLARIFY_ROUNDS_MAX;
            let question = match self.asked.before(&clarify_key(round)).await? {
                // Whoever asked has seen it: it is what is answered.
                Some(question) => question.message(),
                None => {
                    let intake = IntakeOptions {
                        clarification: may_clarify,
                        ..options.intake.clone()
                    };
                    let taken =
                        route(&options.deciders, &self.cx, request, world, &intake, from).await;
                    let Intake { decision, records } = taken;
                    all.extend(records);
                    let RoutingDecision::NeedsClarification { question } = decision else {
                        return Ok((decision, all));
                    };
                    question
                }
            };
            let answer = self.clarified(round, &question).await?;
            request.text = format!("{}\nClarification: {answer}", request.text);
            self.clarified
                .extend([Turn::assistant(question), Turn::user(answer)]);
            from = From::Split;
        }
        Err(Failure::internal("a request is clarified without end"))
    }

    /// NP1's question goes to whoever asked, in its own words and no others.
    async fn clarified(&self, round: u32, question: &str) -> Result<String, Failure> {
        let form = text_question(question, &clarify_key(round), plain_field());
        let answer = self
            .cx
            .elicit(form)
            .await
            .map_err(|failure| match failure.kind {
                FailureKind::NobodyToAsk => Failure {
                    message: format!("nobody could be asked: {question}"),
                    ..failure
                },
                _ => failure,
            })?;
        text_answer(&answer).ok_or_else(|| Failure::cancelled(format!("not answered: {question}")))
    }

    /// NP5 for what it may cost: what was decided so far, and about as much for each of `left` decisions.
    async fn affordable(
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
        let doubt = Doubt {
            what,
            action: json!({ "action": action, "micro_usd": estimate, "micro_usd_max": most }),
            why: ConfirmWhy::Cost,
            risk: 1.0,
            always: false,
            key: CONFIRM_COST,
        };
        confirm(&options.deciders, &self.cx, &self.run, &self.asked, doubt).await
    }

    /// One tool, or one agent.
    async fn act(
        &self,
        text: String,
        action: RoutingDecision,
        world: &World,
        history: Vec<Turn>,
        recovers: bool,
    ) -> Result<ToolResult, Failure> {
        // What must not be done twice is kept before it is done.
        if is_command(&action) {
            return self
                .plan(&text, vec![only(&text, action)], Vec::new(), recovers)
                .await;
        }
        let action = action_of(action, &text, "", world)?;
        let errand = Errand {
            options: &self.shared.options,
            cx: &self.cx,
            asked: &self.asked,
            run: &self.run,
            step: STEP,
            goal: &text,
            text: &text,
            context: &self.said.context,
            history: &history,
            world,
            recovers,
        };
        Ok(errand.run(action).await?.result)
    }

    async fn plan(
        &self,
        goal: &str,
        steps: Vec<PlannedStep>,
        records: Vec<DecisionRecord>,
        recovers: bool,
    ) -> Result<ToolResult, Failure> {
        let plan = Plan {
            run: &self.run,
            owner: &self.owner,
            principal: self.cx.principal(),
            goal,
            context: &self.said.context,
            steps,
            records,
            recovers,
        };
        plan.keep(
            &self.shared.options,
            &*self.cx.system().store().tasks.clone(),
        )
        .await?;
        self.follow().await
    }

    async fn follow(&self) -> Result<ToolResult, Failure> {
        self.notes.may_be_there();
        follow(self.shared, &self.cx, &self.run, &self.owner).await
    }
}

/// The key of the question that clarifies, the `round`th time.
fn clarify_key(round: u32) -> String {
    if round == 0 {
        CLARIFY.to_owned()
    } else {
        format!("{CLARIFY}-{}", round + 1)
    }
}
