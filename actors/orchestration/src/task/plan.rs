//! A plan as stored tasks: a root task for the plan and one for each step, stored together or not at all. Each task
//! asks for its part with a message: [`RunStep`] does a step, [`RunPlan`] makes the answer.

use std::sync::Arc;
use std::time::SystemTime;

use callboard_guardrail::Origin;
use callboard_macros::Message;
use callboard_message::text::{cut_bytes, fold};
use callboard_message::{
    Failure, FailureKind, Message, Principal, RawObject, TaskState, ToolResult,
};
use callboard_runtime::{
    Cx, NewTask, OnRestart, Task, TaskError, TaskId, TaskOutcome, TaskOwner, Tasks,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::to_raw_value;

use super::question_dedup::{Kept, asked_once};
use super::{Shared, TaskOptions, world};
use crate::decide::intake::{PlannedStep, RoutingDecision};
use crate::decide::limits::{STEP_INPUT_BYTES_MAX, STEP_RESULT_BYTES_MAX};
use crate::decide::{
    Action, ConfirmWhy, DecisionRecord, RunId, StepDefinition, StepMetadata, StepReport, Synthesis,
    Synthesize, World,
};
use crate::task::execution::{CONFIRM, Done, Doubt, Errand, confirm, passes, text_of};
use crate::tool_name::EXECUTE_COMMAND;

/// The id of the step of a plan that has but one, and was never planned.
const ONLY: &str = "step";
/// The member of a part's extra that names what it is a part of.
const PARENT: &str = "parent_id";
/// The name of what NP4 came to, in a run's notes.
const SYNTHESIS: &str = "synthesis";
/// Phrases of a sentence in which something fails, folded.
const FAILS: &str = "not done, not succe, not avail, could not, couldn't, cannot, can't, did not, didn't, unable, unavailable, \
    fail, error, missing, reject, refus, cancel, timed out, falh, nao foi possivel";

/// A plan that is to be kept.
pub(super) struct Plan<'a> {
    pub run: &'a RunId,
    pub owner: &'a TaskOwner,
    pub principal: &'a Principal,
    pub goal: &'a str,
    pub context: &'a str,
    pub steps: Vec<PlannedStep>,
    pub records: Vec<DecisionRecord>,
    pub recovers: bool,
}

/// The only step of a plan.
pub(super) fn only(text: &str, action: RoutingDecision) -> PlannedStep {
    let step = StepDefinition {
        id: ONLY.to_owned(),
        input_message: cut_bytes(text, STEP_INPUT_BYTES_MAX).to_owned(),
        metadata: StepMetadata::default(),
    };
    PlannedStep { step, action }
}

/// The root of a run.
pub(super) fn root_id(run: &RunId) -> Result<TaskId, Failure> {
    Ok(TaskId::new(run.as_str())?)
}

/// The task of a step.
fn step_id(run: &RunId, step: &str) -> Result<TaskId, Failure> {
    Ok(TaskId::new(format!("{run}.{step}"))?)
}

/// Whether that is done by running a program.
pub(super) fn is_command(action: &RoutingDecision) -> bool {
    matches!(action, RoutingDecision::Local { tool_name, .. } if tool_name == EXECUTE_COMMAND)
}

impl Plan<'_> {
    /// Keeps it, unless the run is there already: then that is the plan.
    pub async fn keep(self, options: &TaskOptions, tasks: &dyn Tasks) -> Result<(), Failure> {
        match tasks.begin_all(self.tasks(options)?).await {
            Ok(_) | Err(TaskError::KeyReused) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn tasks(self, options: &TaskOptions) -> Result<Vec<NewTask>, Failure> {
        let expires = SystemTime::now() + options.task_ttl;
        let root_id = root_id(self.run)?;
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
                .map(|need| step_id(self.run, need));
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
                request: Some(raw(&message)?),
                // What a program did before the process ended nobody knows.
                on_restart: if is_command(action) {
                    OnRestart::Fail
                } else {
                    OnRestart::Resume
                },
                extra: RawObject::of(PARENT, &root_id),
                ..new(step_id(self.run, &step.id)?, RunStep::NAME)
            });
        }
        let message = RunPlan {
            run: self.run.clone(),
            goal: self.goal.to_owned(),
            steps: self.steps,
            records: self.records,
        };
        let root = NewTask {
            request: Some(raw(&message)?),
            ..new(root_id, RunPlan::NAME)
        };
        all.insert(0, root);
        Ok(all)
    }
}

fn raw(message: &impl Serialize) -> Result<Box<serde_json::value::RawValue>, Failure> {
    to_raw_value(message)
        .map_err(|error| Failure::internal(format!("a task can't be written: {error}")))
}

/// Does one step of a run.
#[derive(derive_more::Debug, Message, Clone, Serialize, Deserialize, JsonSchema)]
// What is said is anybody's.
#[debug("RunStep({}: {:?} by {:?})", run, step, action)]
#[message(name = "callboard.agent.step", reply = StepDone, fallible)]
#[serde(deny_unknown_fields)]
pub(super) struct RunStep {
    /// Of which run.
    #[schemars(with = "String")]
    pub run: RunId,
    /// What all of it is for.
    pub goal: String,
    /// What is to be done.
    pub step: StepDefinition,
    /// By whom.
    pub action: RoutingDecision,
    /// The conversation that it belongs to; empty where it is in none.
    pub context: String,
    /// Whether errors are recovered from: what somebody asked for by its name is done as it was asked for, or not at all.
    pub recovers: bool,
}

/// What a step came to.
#[derive(derive_more::Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[debug("StepDone(by {}, {} bytes, {} attempts)", by, text.len(), attempts)]
#[serde(deny_unknown_fields)]
pub(super) struct StepDone {
    /// Who did it: a tool's name or an agent's id.
    pub by: String,
    /// At most [`crate::decide::limits::STEP_RESULT_BYTES_MAX`] bytes.
    pub text: String,
    /// How often it was tried.
    pub attempts: u32,
}

/// Makes one answer of what a run's steps came to.
#[derive(derive_more::Debug, Message, Clone, Serialize, Deserialize, JsonSchema)]
#[debug("RunPlan({}: {:?})", run, steps)]
#[message(name = "callboard.agent.plan", reply = ToolResult, fallible)]
#[serde(deny_unknown_fields)]
pub(super) struct RunPlan {
    /// Which run.
    #[schemars(with = "String")]
    pub run: RunId,
    /// What all of it is for.
    pub goal: String,
    /// Its steps, none before those that it needs.
    pub steps: Vec<PlannedStep>,
    /// How it was decided that these are the steps.
    #[schemars(with = "Vec<RawObject>")]
    pub records: Vec<DecisionRecord>,
}

pub(super) async fn run_step(
    shared: &Shared,
    message: RunStep,
    cx: &Cx,
) -> Result<StepDone, Failure> {
    let RunStep {
        run,
        goal,
        step,
        action,
        context,
        recovers,
    } = message;
    let (tasks, id) = (cx.system().store().tasks.clone(), step_id(&run, &step.id)?);
    let ringer = shared.bells.ringer(run.clone(), id.clone());
    ringer.ring();
    let mut text = step.input_message.clone();
    let mut results = String::new();
    for need in &step.metadata.depends_on {
        let said = result_of(&*tasks, &step_id(&run, need)?).await?;
        results.push_str(&format!(
            "\n- {need}: {}",
            cut_bytes(&said, STEP_RESULT_BYTES_MAX)
        ));
    }
    if !results.is_empty() {
        results.insert_str(0, "\n\nResults of earlier steps:");
        text.push_str(&results);
    }
    let world = world(&shared.options).await;
    let action = action_of(action, &text, &results, &world)?;
    let (cx, asked) = asked_once(
        cx,
        Kept::Task {
            tasks,
            id,
            ringer: ringer.clone(),
        },
    );
    let errand = Errand {
        options: &shared.options,
        cx: &cx,
        asked: &asked,
        run: &run,
        step: &step.id,
        goal: &goal,
        text: &text,
        context: &context,
        history: &[],
        world: &world,
        recovers,
    };
    let Done {
        by,
        result,
        attempts,
    } = errand.run(action).await?;
    Ok(StepDone {
        by,
        text: text_of(&result, STEP_RESULT_BYTES_MAX),
        attempts,
    })
}

/// Action of a step, with the results of earlier steps.
pub(super) fn action_of(
    action: RoutingDecision,
    text: &str,
    results: &str,
    world: &World,
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
        RoutingDecision::NeedsClarification { .. } | RoutingDecision::Decompose { .. } => Err(
            Failure::internal("a step of a plan is neither unclear nor a plan"),
        ),
    }
}

/// What a step came to that this one needs: it has completed.
async fn result_of(tasks: &dyn Tasks, id: &TaskId) -> Result<String, Failure> {
    let unreadable = |_| Failure::internal("what an earlier step came to can't be read");
    match tasks
        .get(id)
        .await?
        .as_ref()
        .and_then(|task| task.outcome.as_ref())
    {
        Some(TaskOutcome::Reply(reply)) => serde_json::from_str(reply.get())
            .map(|done: StepDone| done.text)
            .map_err(unreadable),
        _ => Err(Failure::unavailable(
            "what an earlier step came to isn't kept any more",
        )),
    }
}

pub(super) async fn run_plan(
    shared: &Shared,
    message: RunPlan,
    cx: &Cx,
) -> Result<ToolResult, Failure> {
    let RunPlan {
        run, goal, steps, ..
    } = message;
    let (tasks, id) = (cx.system().store().tasks.clone(), root_id(&run)?);
    let ringer = shared.bells.ringer(run.clone(), id.clone());
    ringer.ring();
    let mut ends = Vec::with_capacity(steps.len());
    for planned in &steps {
        let task = tasks.get(&step_id(&run, &planned.step.id)?).await?;
        ends.push((report(planned, task.as_deref()), task));
    }
    if ends
        .iter()
        .all(|(report, _)| report.state != TaskState::Completed)
    {
        return Err(nothing_done(&ends));
    }
    let reports: Vec<StepReport> = ends.into_iter().map(|(report, _)| report).collect();
    if let [only] = &*reports {
        let answer = Synthesis {
            final_answer: only.text.clone(),
            confidence: 1.0,
            notes: None,
        };
        return Ok(result(&answer, &reports, &run));
    }
    let (cx, asked) = asked_once(
        cx,
        Kept::Task {
            tasks,
            id,
            ringer: ringer.clone(),
        },
    );
    let answer = synthesis(shared, &run, &goal, &reports, &cx).await?;
    // What others said is shown as one text now.
    passes(
        shared.options.guard.as_ref(),
        &answer.final_answer,
        Origin::ToolResult,
    )
    .await?;
    if answer.confidence < shared.options.confidence_min {
        let doubt = Doubt {
            what: answer.final_answer.clone(),
            action: json!({ "final_answer": answer.final_answer, "confidence": to_hundredths(answer.confidence) }),
            why: ConfirmWhy::Confidence,
            risk: 1.0 - answer.confidence,
            always: false,
            key: CONFIRM,
        };
        confirm(&shared.options.deciders, &cx, &run, &asked, doubt).await?;
    }
    Ok(result(&answer, &reports, &run))
}

/// NP4, once: what it came to is kept before anybody sees it.
async fn synthesis(
    shared: &Shared,
    run: &RunId,
    goal: &str,
    reports: &[StepReport],
    cx: &Cx,
) -> Result<Synthesis, Failure> {
    let notes = shared.notes(cx, run);
    if let Some(there) = notes.get::<Synthesis>(SYNTHESIS).await? {
        return Ok(there);
    }
    let message = Synthesize {
        goal: goal.to_owned(),
        results: reports.to_vec(),
    };
    let settled = shared.options.deciders.decide(cx, run, message).await;
    let unsaid = || Failure::internal("nobody made one answer of the results");
    let mut answer = settled.outcome.ok_or_else(unsaid)?;
    name_missing_steps(&mut answer, reports);
    match notes.keep(SYNTHESIS, &answer).await {
        Ok(()) => {}
        // An answer too long to be kept is made again after a restart.
        Err(failure) if failure.kind == FailureKind::InvalidInput => {
            callboard_message::log::warn!(%run, "what the steps of a run came to is too long to be kept");
        }
        Err(failure) => return Err(failure),
    }
    Ok(answer)
}

fn report(planned: &PlannedStep, task: Option<&Task>) -> StepReport {
    let PlannedStep { step, action } = planned;
    let planned_by = match action {
        RoutingDecision::Local { tool_name, .. } => tool_name.clone(),
        RoutingDecision::Remote { agent_id } => agent_id.clone(),
        _ => String::new(),
    };
    let state = task.map_or(TaskState::Failed, |task| task.state);
    let said = || {
        task.and_then(|task| task.said.clone())
            .unwrap_or_else(|| "it isn't kept any more".to_owned())
    };
    let (by, text, attempts) = match task.and_then(|task| task.outcome.as_ref()) {
        Some(TaskOutcome::Reply(reply)) => match serde_json::from_str::<StepDone>(reply.get()) {
            Ok(done) => (done.by, done.text, done.attempts),
            Err(_) => (planned_by, "what it came to can't be read".to_owned(), 1),
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

/// Failure of a run of which no step completed.
fn nothing_done(ends: &[(StepReport, Option<Arc<Task>>)]) -> Failure {
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

fn result(answer: &Synthesis, reports: &[StepReport], run: &RunId) -> ToolResult {
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
    ToolResult::text(&answer.final_answer).structured(told)
}

/// As people write it: 0.35 is not exactly a number of a computer's.
fn to_hundredths(share: f32) -> f64 {
    (f64::from(share) * 100.0).round() / 100.0
}

/// Names in the answer whatever didn't complete, unless the answer says so itself.
fn name_missing_steps(answer: &mut Synthesis, reports: &[StepReport]) {
    let said = fold(&answer.final_answer).replace('’', "'");
    let is_missing =
        |report: &&StepReport| report.state != TaskState::Completed && !is_told(&said, report);
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

/// Whether a sentence names the step, and says that something failed: an answer that names what it was about may say it all.
fn is_told(said: &str, report: &StepReport) -> bool {
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
                FAILS
                    .split(", ")
                    .any(|fails| begin.contains(fails) || rest.contains(fails))
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what failed is told, by the answer or behind it. Method: answers about a step `weather` that failed: silent, only about
    /// the subject, in so many words, by the agent, and about another step.
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
