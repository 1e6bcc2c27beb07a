//! Plans as stored tasks: a root task for the plan and one task per step, created all together or
//! not at all. The message of a step task is [`RunStep`], that of the root task is [`RunPlan`].

use std::sync::Arc;
use std::time::SystemTime;

use callboard_guardrail::TextOrigin;
use callboard_macros::Message;
use callboard_message::text::{cut_bytes, fold};
use callboard_message::{
    Failure, FailureKind, Message, PARENT_META_KEY, Principal, RawObject, TaskState, ToolResult,
};
use callboard_runtime::{
    Context, NewTask, OnRestart, Task, TaskError, TaskId, TaskOutcome, TaskOwner, TaskStore,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::to_raw_value;

use super::question_dedup::{QuestionStore, dedup_questions};
use super::{
    OrchestratorShared, SharedStateMessage, TaskOrchestratorOptions, current_routing_context,
};
use crate::decide::intake::{PlannedStep, RoutingDecision};
use crate::decide::limits::{STEP_INPUT_BYTES_MAX, STEP_RESULT_BYTES_MAX};
use crate::decide::{
    Action, ConfirmReason, DecisionRecord, RoutingContext, RunId, StepDefinition, StepMetadata,
    StepReport, Synthesis, Synthesize,
};
use crate::task::execution::{
    CONFIRM_KEY, CompletedStep, ConfirmationRequest, RESULTS_HEADING, StepExecution,
    check_guardrail, confirm, result_text,
};
use crate::tool_name::EXECUTE_COMMAND;

/// Step id in the plan of a request that wasn't split into steps.
const SINGLE_STEP_ID: &str = "step";
/// Key of the stored synthesis (NP4) in the run's data.
const SYNTHESIS_KEY: &str = "synthesis";
/// Phrases, separated by commas, by which a sentence states a failure: in lower case, without
/// accents.
const FAILURE_PHRASES: &str = "not done, not succe, not avail, could not, couldn't, cannot, can't, did not, didn't, unable, unavailable, \
    fail, error, missing, reject, refus, cancel, timed out, falh, nao foi possivel";

/// Plan of a run, to be stored as a root task and step tasks.
pub(super) struct NewPlan<'a> {
    pub run: &'a RunId,
    pub owner: &'a TaskOwner,
    pub principal: &'a Principal,
    pub goal: &'a str,
    pub context: &'a str,
    /// Task that the request came from, if any.
    pub origin: Option<&'a TaskId>,
    pub steps: Vec<PlannedStep>,
    pub records: Vec<DecisionRecord>,
    pub recovers: bool,
}

/// Creates the step of a plan that consists of a single step.
pub(super) fn single_step(text: &str, action: RoutingDecision) -> PlannedStep {
    let step = StepDefinition {
        id: SINGLE_STEP_ID.to_owned(),
        input_message: cut_bytes(text, STEP_INPUT_BYTES_MAX).to_owned(),
        metadata: StepMetadata::default(),
    };
    PlannedStep { step, action }
}

/// Returns the id of the root task of a run.
pub(super) fn root_task_id(run: &RunId) -> Result<TaskId, Failure> {
    Ok(TaskId::new(run.as_str())?)
}

/// Returns the id of a step's task.
fn step_task_id(run: &RunId, step: &str) -> Result<TaskId, Failure> {
    Ok(TaskId::new(format!("{run}.{step}"))?)
}

/// Whether the action uses the tool that runs programs.
pub(super) fn is_command(action: &RoutingDecision) -> bool {
    matches!(action, RoutingDecision::Local { tool_name, .. } if tool_name == EXECUTE_COMMAND)
}

impl NewPlan<'_> {
    /// Stores the plan as tasks. If the run is stored already, keeps the existing plan.
    ///
    /// # Errors
    /// Failures of the task store.
    pub async fn store(
        self,
        options: &TaskOrchestratorOptions,
        tasks: &dyn TaskStore,
    ) -> Result<(), Failure> {
        match tasks.create_all(self.into_tasks(options)?).await {
            Ok(_) | Err(TaskError::KeyReused) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn into_tasks(self, options: &TaskOrchestratorOptions) -> Result<Vec<NewTask>, Failure> {
        let expires = SystemTime::now() + options.task_ttl;
        let root_id = root_task_id(self.run)?;
        let new = |id: TaskId, message: &str| {
            let new = NewTask::new(self.principal.clone(), &options.id, message, expires);
            let key = Some(id.as_str().to_owned());
            NewTask {
                id,
                key,
                owner: self.owner.clone(),
                class: options.class,
                on_restart: OnRestart::Resume,
                ..new
            }
        };
        let mut all = Vec::with_capacity(self.steps.len() + 1);
        for PlannedStep { step, action } in &self.steps {
            let needs = step
                .metadata
                .depends_on
                .iter()
                .map(|need| step_task_id(self.run, need));
            let message = RunStep {
                run: self.run.clone(),
                goal: self.goal.to_owned(),
                step: step.clone(),
                action: action.clone(),
                context: self.context.to_owned(),
                recovers: self.recovers,
            };
            all.push(NewTask {
                parent: Some(root_id.clone()),
                needs: needs.collect::<Result<_, _>>()?,
                request: Some(to_raw(&message)?),
                // After a crash it is unknown how far the program got, so it isn't run again.
                on_restart: if is_command(action) {
                    OnRestart::Fail
                } else {
                    OnRestart::Resume
                },
                extra: RawObject::single(PARENT_META_KEY, &root_id),
                ..new(step_task_id(self.run, &step.id)?, RunStep::NAME)
            });
        }
        let message = RunPlan {
            run: self.run.clone(),
            goal: self.goal.to_owned(),
            steps: self.steps,
            records: self.records,
        };
        let root = NewTask {
            request: Some(to_raw(&message)?),
            // Not as `parent`: the request's task may be in another store, and ends by itself.
            extra: match self.origin {
                Some(origin) => RawObject::single(PARENT_META_KEY, origin),
                None => RawObject::new(),
            },
            ..new(root_id, RunPlan::NAME)
        };
        all.insert(0, root);
        Ok(all)
    }
}

fn to_raw(message: &impl Serialize) -> Result<Box<serde_json::value::RawValue>, Failure> {
    to_raw_value(message)
        .map_err(|error| Failure::internal(format!("a task can't be encoded as JSON: {error}")))
}

/// Message of a step task: runs one step of a run.
#[derive(derive_more::Debug, Message, Clone, Serialize, Deserialize, JsonSchema)]
// `Debug` omits texts and parameters: they may contain user text.
#[debug("RunStep({}: {:?} by {:?})", run, step, action)]
#[message(name = "callboard.agent.step", reply = StepResult, fallible)]
#[serde(deny_unknown_fields)]
pub(super) struct RunStep {
    /// Id of the run.
    #[schemars(with = "String")]
    pub run: RunId,
    /// Goal of the run.
    pub goal: String,
    /// Definition of the step.
    pub step: StepDefinition,
    /// Action that performs the step.
    pub action: RoutingDecision,
    /// Conversation that the run belongs to; empty if none.
    pub context: String,
    /// Whether failures are recovered from (NP3). Off for a tool that the caller named: it runs as
    /// requested or not at all.
    pub recovers: bool,
}

/// Result of a completed step.
#[derive(derive_more::Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[debug("StepDone(by {}, {} bytes, {} attempts)", by, text.len(), attempts)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "StepDone")]
pub(super) struct StepResult {
    /// Name of the tool or id of the agent that performed the step.
    pub by: String,
    /// Text of the result, at most [`crate::decide::limits::STEP_RESULT_BYTES_MAX`] bytes.
    pub text: String,
    /// Number of attempts.
    pub attempts: u32,
}

/// Message of a root task: makes one answer from the results of all steps.
#[derive(derive_more::Debug, Message, Clone, Serialize, Deserialize, JsonSchema)]
#[debug("RunPlan({}: {:?})", run, steps)]
#[message(name = "callboard.agent.plan", reply = ToolResult, fallible)]
#[serde(deny_unknown_fields)]
pub(super) struct RunPlan {
    /// Id of the run.
    #[schemars(with = "String")]
    pub run: RunId,
    /// Goal of the run.
    pub goal: String,
    /// Steps with their routes, in dependency order.
    pub steps: Vec<PlannedStep>,
    /// Records of the decisions that led to these steps.
    #[schemars(with = "Vec<RawObject>")]
    pub records: Vec<DecisionRecord>,
}

impl SharedStateMessage for RunStep {
    async fn handle(
        self,
        shared: &OrchestratorShared,
        cx: &Context,
    ) -> Result<StepResult, Failure> {
        run_step(shared, self, cx).await
    }
}

impl SharedStateMessage for RunPlan {
    async fn handle(
        self,
        shared: &OrchestratorShared,
        cx: &Context,
    ) -> Result<ToolResult, Failure> {
        run_plan(shared, self, cx).await
    }
}

async fn run_step(
    shared: &OrchestratorShared,
    message: RunStep,
    cx: &Context,
) -> Result<StepResult, Failure> {
    let RunStep {
        run,
        goal,
        step,
        action,
        context,
        recovers,
    } = message;
    let (tasks, id) = (
        cx.system().store().tasks.clone(),
        step_task_id(&run, &step.id)?,
    );
    let notifications = shared.notifier.sender(run.clone(), id.clone());
    notifications.notify();
    let mut text = step.input_message.clone();
    let mut results = String::new();
    for need in &step.metadata.depends_on {
        let said = step_result(&*tasks, &step_task_id(&run, need)?).await?;
        results.push_str(&format!(
            "\n- {need}: {}",
            cut_bytes(&said, STEP_RESULT_BYTES_MAX)
        ));
    }
    if !results.is_empty() {
        results.insert_str(0, RESULTS_HEADING);
        text.push_str(&results);
    }
    let root_id = root_task_id(&run)?;
    let root = tasks.get(&root_id).await?;
    let parent = root.and_then(|root| root.parent_id()).unwrap_or(root_id);
    let world = current_routing_context(&shared.options).await;
    let action = step_action(action, &text, &results, &world)?;
    let (cx, asked) = dedup_questions(
        cx,
        QuestionStore::Task {
            tasks,
            id,
            notifications: notifications.clone(),
        },
    );
    let execution = StepExecution {
        options: &shared.options,
        cx: &cx,
        question_history: &asked,
        run: &run,
        step: &step.id,
        goal: &goal,
        text: &text,
        context: &context,
        parent: Some(&parent),
        history: &[],
        routing_context: &world,
        recovers_errors: recovers,
    };
    let CompletedStep {
        performed_by: by,
        result,
        attempts,
    } = execution.run(action).await?;
    Ok(StepResult {
        by,
        text: result_text(&result, STEP_RESULT_BYTES_MAX),
        attempts,
    })
}

/// Turns the route of a step into its action. For a tool, `results`, the text with the results of
/// earlier steps, is appended to its only text parameter; an agent gets `text`, which contains them
/// already.
///
/// # Errors
/// `Rejected` with the reason of a rejected route; `Internal` for a route that isn't a single
/// action.
pub(super) fn step_action(
    action: RoutingDecision,
    text: &str,
    results: &str,
    world: &RoutingContext,
) -> Result<Action, Failure> {
    match action {
        RoutingDecision::Local {
            tool_name,
            mut params,
        } => {
            if !results.is_empty() {
                world.append_text(&tool_name, &mut params, results);
            }
            Ok(Action::Local {
                tool: tool_name,
                params,
            })
        }
        RoutingDecision::Remote { agent_id } => Ok(Action::Remote {
            agent: agent_id,
            text: text.to_owned(),
        }),
        RoutingDecision::Reject { reason } => Err(Failure::rejected(reason)),
        RoutingDecision::NeedsClarification { .. } | RoutingDecision::Decompose { .. } => {
            Err(Failure::internal(
                "plan step routed to more than one action: send the request again and name the tool or agent",
            ))
        }
    }
}

/// Returns the result text of a completed step that another step depends on.
///
/// # Errors
/// `Unavailable` if the result is no longer stored, `Internal` if it is malformed, and failures of
/// the store.
async fn step_result(tasks: &dyn TaskStore, id: &TaskId) -> Result<String, Failure> {
    let unreadable = |_| {
        Failure::internal(
            "the stored result of an earlier step is malformed: send the request again",
        )
    };
    match tasks
        .get(id)
        .await?
        .as_ref()
        .and_then(|task| task.outcome.as_ref())
    {
        Some(TaskOutcome::Reply(reply)) => serde_json::from_str(reply.get())
            .map(|done: StepResult| done.text)
            .map_err(unreadable),
        _ => Err(Failure::unavailable(
            "the result of an earlier step is no longer stored: send the request again",
        )),
    }
}

async fn run_plan(
    shared: &OrchestratorShared,
    message: RunPlan,
    cx: &Context,
) -> Result<ToolResult, Failure> {
    let RunPlan {
        run, goal, steps, ..
    } = message;
    let (tasks, id) = (cx.system().store().tasks.clone(), root_task_id(&run)?);
    let notifications = shared.notifier.sender(run.clone(), id.clone());
    notifications.notify();
    let mut ends = Vec::with_capacity(steps.len());
    for planned in &steps {
        let task = tasks.get(&step_task_id(&run, &planned.step.id)?).await?;
        ends.push((step_report(planned, task.as_deref()), task));
    }
    if ends
        .iter()
        .all(|(report, _)| report.state != TaskState::Completed)
    {
        return Err(no_step_completed(&ends));
    }
    let reports: Vec<StepReport> = ends.into_iter().map(|(report, _)| report).collect();
    if let [only] = &*reports {
        let answer = Synthesis {
            final_answer: only.text.clone(),
            confidence: 1.0,
            notes: None,
        };
        return Ok(plan_result(&answer, &reports, &run));
    }
    let (cx, asked) = dedup_questions(
        cx,
        QuestionStore::Task {
            tasks,
            id,
            notifications: notifications.clone(),
        },
    );
    let answer = synthesize_once(shared, &run, &goal, &reports, &cx).await?;
    // The guardrail checks the combined text of all results, because single results were checked
    // apart.
    check_guardrail(
        shared.options.guard.as_ref(),
        &answer.final_answer,
        TextOrigin::ToolResult,
        &cx,
    )
    .await?;
    if answer.confidence < shared.options.confidence_min {
        let confirmation = ConfirmationRequest {
            description: answer.final_answer.clone(),
            action: json!({ "final_answer": answer.final_answer, "confidence": to_hundredths(answer.confidence) }),
            reason: ConfirmReason::Confidence,
            risk: 1.0 - answer.confidence,
            always_asks: false,
            key: CONFIRM_KEY,
        };
        confirm(&shared.options.deciders, &cx, &run, &asked, confirmation).await?;
    }
    Ok(plan_result(&answer, &reports, &run))
}

/// Combines the step results into the answer (NP4), once per run. The answer is stored before it is
/// returned, so that a restart yields the same answer, unless it is too long to be stored.
///
/// # Errors
/// `Internal` if no decider gives an answer; failures of the store.
async fn synthesize_once(
    shared: &OrchestratorShared,
    run: &RunId,
    goal: &str,
    reports: &[StepReport],
    cx: &Context,
) -> Result<Synthesis, Failure> {
    let notes = shared.run_store(cx, run);
    if let Some(there) = notes.get::<Synthesis>(SYNTHESIS_KEY).await? {
        return Ok(there);
    }
    let message = Synthesize {
        goal: goal.to_owned(),
        results: reports.to_vec(),
    };
    let settled = shared.options.deciders.decide(cx, run, message).await;
    let unsaid = || {
        Failure::internal("no decider combined the results into an answer: send the request again")
    };
    let mut answer = settled.outcome.ok_or_else(unsaid)?;
    name_missing_steps(&mut answer, reports);
    match notes.put(SYNTHESIS_KEY, &answer).await {
        Ok(()) => {}
        // After a restart, the answer is made anew.
        Err(failure) if failure.kind == FailureKind::InvalidInput => {
            callboard_message::log::warn!(%run, "the answer of a run is too long to be stored: it is made again after a restart");
        }
        Err(failure) => return Err(failure),
    }
    Ok(answer)
}

fn step_report(planned: &PlannedStep, task: Option<&Task>) -> StepReport {
    let PlannedStep { step, action } = planned;
    let planned_by = match action {
        RoutingDecision::Local { tool_name, .. } => tool_name.clone(),
        RoutingDecision::Remote { agent_id } => agent_id.clone(),
        _ => String::new(),
    };
    let state = task.map_or(TaskState::Failed, |task| task.state);
    let said = || {
        task.and_then(|task| task.status_message.clone())
            .unwrap_or_else(|| "its result is no longer stored".to_owned())
    };
    let (by, text, attempts) = match task.and_then(|task| task.outcome.as_ref()) {
        Some(TaskOutcome::Reply(reply)) => match serde_json::from_str::<StepResult>(reply.get()) {
            Ok(done) => (done.by, done.text, done.attempts),
            Err(_) => (planned_by, "its stored result is malformed".to_owned(), 1),
        },
        Some(TaskOutcome::Failed(failure)) => (planned_by, failure.message.clone(), 1),
        Some(TaskOutcome::NotKept) | None => (planned_by, said(), 0),
    };
    let text = cut_bytes(&text, STEP_RESULT_BYTES_MAX).to_owned();
    StepReport {
        id: step.id.clone(),
        goal: step.input_message.clone(),
        by,
        state,
        text,
        attempts,
    }
}

/// Returns the failure of a run without a completed step. It is `Rejected` or `Cancelled` if all
/// steps were, else of the kind of the first failed step.
fn no_step_completed(ends: &[(StepReport, Option<Arc<Task>>)]) -> Failure {
    let all = |state| ends.iter().all(|(report, _)| report.state == state);
    let failed = ends
        .iter()
        .find_map(|(_, task)| match task.as_ref()?.outcome.as_ref()? {
            TaskOutcome::Failed(failure) => Some(failure.kind),
            _ => None,
        });
    let kind = match failed {
        _ if all(TaskState::Rejected) => FailureKind::Rejected,
        _ if all(TaskState::Canceled) => FailureKind::Cancelled,
        Some(kind) if !matches!(kind, FailureKind::Rejected | FailureKind::Cancelled) => kind,
        _ => FailureKind::Internal,
    };
    if let [(only, _)] = ends {
        return Failure::new(kind, only.text.clone());
    }
    let told: Vec<String> = ends
        .iter()
        .map(|(report, _)| format!("{} {}: {}", report.id, report.state, report.text))
        .collect();
    Failure::new(kind, format!("no step succeeded. {}", told.join("; ")))
}

fn plan_result(answer: &Synthesis, reports: &[StepReport], run: &RunId) -> ToolResult {
    let steps = reports
        .iter()
        .map(|report| json!({ "id": report.id, "by": report.by, "state": report.state, "attempts": report.attempts }));
    let told = json!({
        "final_answer": answer.final_answer,
        "confidence": to_hundredths(answer.confidence),
        "notes": answer.notes,
        "steps": steps.collect::<Vec<_>>(),
        "run": run,
    });
    ToolResult::text(&answer.final_answer).with_structured_content(told)
}

/// Rounds to two decimals and converts to `f64`, because an `f32` such as 0.35 has a longer form as
/// JSON.
pub(super) fn to_hundredths(share: f32) -> f64 {
    (f64::from(share) * 100.0).round() / 100.0
}

/// Appends the steps that didn't complete to the answer, unless the answer states their failure
/// already.
fn name_missing_steps(answer: &mut Synthesis, reports: &[StepReport]) {
    let said = fold(&answer.final_answer).replace('’', "'");
    let is_missing = |report: &&StepReport| {
        report.state != TaskState::Completed && !mentions_failed_step(&said, report)
    };
    let missing: Vec<String> = reports
        .iter()
        .filter(is_missing)
        .map(|report| format!("{} ({})", report.id, report.state))
        .collect();
    if !missing.is_empty() {
        answer.final_answer.push_str(&format!(
            "\n\nNot everything succeeded: {}.",
            missing.join(", ")
        ));
    }
}

/// Whether one sentence of the answer `said`, which is folded, names the step by id, performer or
/// goal and states a failure.
fn mentions_failed_step(said: &str, report: &StepReport) -> bool {
    let StepReport { id, by, goal, .. } = report;
    let is_end = |c: char| matches!(c, '.' | '!' | '?' | '\n');
    let is_in = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    [id, by, goal]
        .into_iter()
        .map(|name| fold(name))
        .filter(|name| !name.trim().is_empty())
        .any(|name| {
            said.match_indices(&*name).any(|(at, _)| {
                let (before, after) = (&said[..at], &said[at + name.len()..]);
                if is_in(before.chars().next_back()) || is_in(after.chars().next()) {
                    return false;
                }
                let begin = before.rfind(is_end).map_or(before, |end| &before[end..]);
                let rest = after.find(is_end).map_or(after, |end| &after[..end]);
                FAILURE_PHRASES
                    .split(", ")
                    .any(|fails| begin.contains(fails) || rest.contains(fails))
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a failed step is mentioned once, by the answer itself or appended to it. Method:
    /// answers about a failed step `weather`: silent, only about the subject, explicit, by the
    /// agent's name, and about another step.
    #[test]
    fn told_once() {
        let report = StepReport {
            id: "weather".into(),
            goal: "What is the weather in Paris?".into(),
            by: "meteo".into(),
            state: TaskState::Failed,
            text: "away".into(),
            attempts: 3,
        };
        for (answer, is_added) in [
            ("The hotel is booked.", true),
            ("The weather in Paris is lovely; the hotel is booked.", true),
            ("The weathercock failed.", true),
            ("The weather is fine. The train could not be found.", true),
            (
                "The hotel is booked. I couldn’t look up the weather.",
                false,
            ),
            ("Meteo is unavailable.", false),
            (
                "1 of 2 steps succeeded. Not done: What is the weather in Paris? (failed: away).",
                false,
            ),
        ] {
            let mut synthesis = Synthesis {
                final_answer: answer.into(),
                confidence: 0.9,
                notes: None,
            };
            name_missing_steps(&mut synthesis, std::slice::from_ref(&report));
            let added = synthesis.final_answer.strip_prefix(answer).unwrap();
            let expect = if is_added {
                "\n\nNot everything succeeded: weather (failed)."
            } else {
                ""
            };
            assert_eq!(added, expect, "{answer}");
        }
    }
}
