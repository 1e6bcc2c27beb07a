//! One request, from what somebody says to the answer.

use std::sync::Arc;

use callboard_message::surface::Converse;
use callboard_message::{Elicitation, Failure, FailureKind, ToolResult};
use callboard_runtime::{Cx, TaskOwner};
use serde_json::json;

use super::Shared;
use super::follow::follow;
use super::notes::RunNotes;
use super::once::{Kept, asked_once};
use super::plan::{Plan, is_command, only, root_id};
use super::said::{Said, bounded};
use super::state::{Event, Standing, State, end_of};
use super::world::world;
use crate::decide::intake::{From, Intake, IntakeOptions, PlannedStep, Request, RoutingDecision, route};
use crate::decide::limits::CLARIFY_ROUNDS_MAX;
use crate::decide::{Action, ConfirmWhy, DecisionRecord, RunId, Turn, World};
use crate::guardrail::Origin;
use crate::router::task::{CONFIRM, Doubt, Errand, confirm, passes, text_member, text_of};

/// The name of the one thing that a call does itself, among what its run does.
const STEP: &str = "act";
/// The key of the question that clarifies, and the member of its answer.
const CLARIFY: &str = "clarify";
const ANSWER: &str = "answer";

/// Where a call stands.
pub(super) struct Life(Standing);

impl Life {
    /// Something happens to it.
    pub(super) fn on(&mut self, event: Event) {
        match self.0.next(event) {
            Some(next) => self.0 = next,
            None => tracing::warn!(standing = ?self.0, ?event, "that can't happen to a call"),
        }
    }

    pub(super) fn state(&self) -> State {
        self.0.state
    }
}

/// What somebody says in words, to its answer.
pub(super) async fn converse(shared: &Shared, said: Converse, cx: &Cx) -> Result<ToolResult, Failure> {
    let takes = |name: &str| Some(text_member(&shared.options.tools.spec(name)?.params));
    answer(shared, Said::read(&said, takes)?, cx).await
}

/// What somebody says, to its answer.
pub(super) async fn answer(shared: &Shared, said: Said, cx: &Cx) -> Result<ToolResult, Failure> {
    let _place = shared.place()?;
    let session = cx.call().and_then(|call| call.session.as_ref()).map(|session| session.id.to_string());
    let owner = TaskOwner::of(cx.principal(), session.as_deref());
    let run = RunId::of(&shared.options.id, owner.as_str(), &said.context, &said.key);
    let notes = shared.notes(cx, &run);
    // What nobody can ask for again needn't be found again.
    let once = match said.key.is_empty() {
        true => cx.clone(),
        false => asked_once(cx, Kept::Notes(notes.clone())),
    };
    let (text, context) = (said.text.clone(), said.context.clone());
    let mut call = Call { shared, cx: once, said, owner, run, notes: notes.clone(), life: Life(Standing::NEW) };
    let answer = call.through().await;
    call.life.on(answer.as_ref().map_or_else(end_of, |_| Event::Done));
    shared.count(call.life.state());
    if !shared.options.ending.is_cancelled() {
        notes.forget().await;
    }
    let said = answer.as_ref().ok().map(|answer| Turn::assistant(text_of(answer, usize::MAX)));
    shared.conversations.add(call.owner.as_str(), &context, [Turn::user(text)].into_iter().chain(said));
    answer
}

struct Call<'a> {
    shared: &'a Shared,
    cx: Cx,
    said: Said,
    owner: TaskOwner,
    run: RunId,
    notes: RunNotes,
    life: Life,
}

impl Call<'_> {
    async fn through(&mut self) -> Result<ToolResult, Failure> {
        let options = &self.shared.options;
        passes(options.guard.as_ref(), &self.said.text, Origin::User).await?;
        if self.is_there().await? {
            self.life.on(Event::Decided);
            self.life.on(Event::Kept);
            return self.follow().await;
        }
        let world = world(options).await;
        if let Some((name, params)) = self.said.tool.take() {
            let action = RoutingDecision::Local { tool_name: name, params };
            self.life.on(Event::Decided);
            return self.act(self.said.text.clone(), action, &world, Vec::new(), false).await;
        }
        let mut history = self.shared.conversations.history(self.owner.as_str(), &self.said.context);
        if let Some(told) = self.said.history.take() {
            // What the caller tells of comes from elsewhere; where it is the same conversation, it is told once.
            history.retain(|turn| !told.contains(turn));
            history = bounded(told.into_iter().chain(history).collect());
        }
        let mut request = Request { run: self.run.clone(), text: self.said.text.clone(), history };
        let (decision, records) = self.decided(&mut request, &world).await?;
        self.life.on(Event::Decided);
        match decision {
            RoutingDecision::Reject { reason } => Err(Failure::new(FailureKind::Rejected, reason)),
            RoutingDecision::Decompose { subtasks } => {
                self.affordable(&subtasks, &records).await?;
                self.plan(&request.text, subtasks, records, true).await
            }
            action => self.act(request.text, action, &world, request.history, true).await,
        }
    }

    /// Whether the run is kept already: the same was said before, and the process ended since, or the answer was lost.
    async fn is_there(&self) -> Result<bool, Failure> {
        if self.said.key.is_empty() {
            return Ok(false);
        }
        let root = self.cx.system().store().tasks.get(&root_id(&self.run)?).await?;
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
            let intake = IntakeOptions { clarification: may_clarify, ..options.intake.clone() };
            let taken = route(&options.deciders, &self.cx, request, world, &intake, from).await;
            let Intake { decision, records } = taken;
            all.extend(records);
            let RoutingDecision::NeedsClarification { question } = decision else { return Ok((decision, all)) };
            let answer = self.clarified(round, question).await?;
            request.text = format!("{}\nClarification: {answer}", request.text);
            from = From::Split;
        }
        Err(Failure::internal("a request is clarified without end"))
    }

    /// NP1's question goes to whoever asked, in its own words and no others.
    async fn clarified(&mut self, round: u32, question: String) -> Result<String, Failure> {
        let key = if round == 0 { CLARIFY.to_owned() } else { format!("{CLARIFY}-{}", round + 1) };
        let schema = json!({
            "type": "object",
            "properties": { ANSWER: { "type": "string", "title": "Answer" } },
            "required": [ANSWER],
        });
        self.life.on(Event::Asked);
        let answer = self.cx.elicit(Elicitation::form(&question, schema).key(&key)).await.map_err(|failure| {
            match failure.kind {
                FailureKind::NobodyToAsk => {
                    Failure { message: format!("nobody could be asked: {question}"), ..failure }
                }
                _ => failure,
            }
        })?;
        self.life.on(Event::Answered);
        let said = answer.content().and_then(|content| Some(content.get(ANSWER)?.as_str()?.trim().to_owned()));
        let unsaid = || Failure::new(FailureKind::Cancelled, format!("not answered: {question}"));
        said.filter(|said| !said.is_empty()).ok_or_else(unsaid)
    }

    /// NP5 for what a plan may cost.
    async fn affordable(&mut self, steps: &[PlannedStep], records: &[DecisionRecord]) -> Result<(), Failure> {
        let options = &self.shared.options;
        let Some(most) = options.cost_micro_usd_max else { return Ok(()) };
        let spent: u64 = records.iter().map(|record| record.cost.micro_usd).sum();
        let decisions = u64::try_from(records.len()).unwrap_or(u64::MAX).max(1);
        // A decision or two a step, and one about all of them.
        let left = u64::try_from(2 * steps.len() + 1).unwrap_or(u64::MAX);
        let estimate = spent.saturating_mul(left) / decisions;
        if spent.saturating_add(estimate) <= most {
            return Ok(());
        }
        let ids: Vec<&str> = steps.iter().map(|planned| &*planned.step.id).collect();
        let doubt = Doubt {
            what: format!("Do it in {} steps: {}", ids.len(), ids.join(", ")),
            action: json!({ "steps": ids, "micro_usd": estimate, "micro_usd_max": most }),
            why: ConfirmWhy::Cost,
            risk: 1.0,
            always: false,
            key: CONFIRM,
        };
        self.life.on(Event::Asked);
        confirm(&options.deciders, &self.cx, &self.run, doubt).await?;
        self.life.on(Event::Answered);
        Ok(())
    }

    /// One tool, or one agent.
    async fn act(
        &mut self,
        text: String,
        action: RoutingDecision,
        world: &World,
        history: Vec<Turn>,
        recovers: bool,
    ) -> Result<ToolResult, Failure> {
        // What must not be done twice is kept before it is done.
        if is_command(&action) {
            return self.plan(&text, vec![only(&text, action)], Vec::new(), recovers).await;
        }
        self.life.on(Event::Begun);
        let action = match action {
            RoutingDecision::Local { tool_name, params } => Action::Local { tool: tool_name, params },
            RoutingDecision::Remote { agent_id } => Action::Remote { agent: agent_id, text: text.clone() },
            _ => return Err(Failure::internal("that is nothing that one does")),
        };
        let errand = Errand {
            options: &self.shared.options,
            cx: &self.cx,
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
        &mut self,
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
        plan.keep(&self.shared.options, &*self.cx.system().store().tasks.clone()).await?;
        self.life.on(Event::Kept);
        self.follow().await
    }

    async fn follow(&mut self) -> Result<ToolResult, Failure> {
        let Self { shared, cx, run, owner, life, notes, .. } = self;
        notes.may_be_there();
        follow(shared, cx, run, owner, life).await
    }
}
