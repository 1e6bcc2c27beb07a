//! The end of a run, as its root task asks for it: NP4 makes one answer of the steps' results, NP5 has it confirmed.

use std::sync::Arc;

use callboard_message::{Failure, FailureKind, TaskState, ToolResult};
use callboard_runtime::{Cx, Task, TaskOutcome};
use serde_json::json;

use super::messages::{RunPlan, StepDone};
use super::once::{Kept, asked_once};
use super::plan::{root_id, step_id};
use super::{Shared, missing};
use crate::decide::intake::{PlannedStep, RoutingDecision};
use crate::decide::limits::{STEP_RESULT_BYTES_MAX, cut_bytes};
use crate::decide::{ConfirmWhy, Decision, RunId, StepReport, Synthesis, Synthesize};
use crate::guardrail::Origin;
use crate::router::task::{CONFIRM, Doubt, confirm, passes};

/// The name of what NP4 came to, in a run's notes.
const SYNTHESIS: &str = "synthesis";

pub(super) async fn run(shared: &Shared, message: RunPlan, cx: &Cx) -> Result<ToolResult, Failure> {
    let RunPlan { run, goal, steps, .. } = message;
    let (tasks, id) = (cx.system().store().tasks.clone(), root_id(&run)?);
    let ringer = shared.bells.ringer(run.clone(), id.clone());
    ringer.ring();
    let mut ends = Vec::with_capacity(steps.len());
    for planned in &steps {
        let task = tasks.get(&step_id(&run, &planned.step.id)?).await?;
        ends.push((report(planned, task.as_deref()), task));
    }
    if ends.iter().all(|(report, _)| report.state != TaskState::Completed) {
        return Err(nothing_done(&ends));
    }
    let reports: Vec<StepReport> = ends.into_iter().map(|(report, _)| report).collect();
    if let [only] = &*reports {
        let answer = Synthesis { final_answer: only.text.clone(), confidence: 1.0, notes: None };
        return Ok(result(&answer, &reports, &run));
    }
    let (cx, asked) = asked_once(cx, Kept::Task { tasks, id, ringer: ringer.clone() });
    let answer = synthesis(shared, &run, &goal, &reports, &cx).await?;
    // What others said is shown as one text now.
    passes(shared.options.guard.as_ref(), &answer.final_answer, Origin::ToolResult).await?;
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
    let message = Synthesize { goal: goal.to_owned(), results: reports.to_vec() };
    let fallback = message.fallback();
    let settled = shared.options.deciders.decide(cx, run, message).await;
    let unsaid = || Failure::internal("nobody made one answer of the results");
    let mut answer = settled.outcome.or(fallback).ok_or_else(unsaid)?;
    missing::name(&mut answer, reports);
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
    let said = || task.and_then(|task| task.said.clone()).unwrap_or_else(|| "it isn't kept any more".to_owned());
    let (by, text, attempts) = match task.and_then(|task| task.outcome.as_ref()) {
        Some(TaskOutcome::Reply(reply)) => match serde_json::from_str::<StepDone>(reply.get()) {
            Ok(done) => (done.by, done.text, done.attempts),
            Err(_) => (planned_by, "what it came to can't be read".to_owned(), 1),
        },
        Some(TaskOutcome::Failed(failure)) => (planned_by, failure.message.clone(), 1),
        Some(TaskOutcome::NotKept) | None => (planned_by, said(), 0),
    };
    let text = cut_bytes(&text, STEP_RESULT_BYTES_MAX).to_owned();
    StepReport { id: step.id.clone(), goal: step.input_message.clone(), by, state, text, attempts }
}

/// What a run fails with of which no step completed.
fn nothing_done(ends: &[(StepReport, Option<Arc<Task>>)]) -> Failure {
    let all = |state| ends.iter().all(|(report, _)| report.state == state);
    let failed = ends.iter().find_map(|(_, task)| match task.as_ref()?.outcome.as_ref()? {
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
    let told: Vec<String> =
        ends.iter().map(|(report, _)| format!("{} {}: {}", report.id, report.state, report.text)).collect();
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
