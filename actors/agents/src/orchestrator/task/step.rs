//! One step of a run, as its task asks for it.

use callboard_message::Failure;
use callboard_runtime::{Cx, TaskOutcome, Tasks};

use super::Shared;
use super::messages::{RunStep, StepDone};
use super::once::{Kept, asked_once};
use super::plan::step_id;
use super::world::world;
use crate::decide::intake::RoutingDecision;
use crate::decide::limits::{STEP_RESULT_BYTES_MAX, cut_bytes};
use crate::decide::{Action, World};
use crate::router::task::{Done, Errand, text_member, text_of};

pub(super) async fn run(shared: &Shared, message: RunStep, cx: &Cx) -> Result<StepDone, Failure> {
    let RunStep { run, goal, step, action, context, recovers } = message;
    let (tasks, id) = (cx.system().store().tasks.clone(), step_id(&run, &step.id)?);
    let ringer = shared.bells.ringer(run.clone(), id.clone());
    ringer.ring();
    let mut text = step.input_message.clone();
    let mut results = String::new();
    for need in &step.metadata.depends_on {
        let said = result_of(&*tasks, &step_id(&run, need)?).await?;
        results.push_str(&format!("\n- {need}: {}", cut_bytes(&said, STEP_RESULT_BYTES_MAX)));
    }
    if !results.is_empty() {
        results.insert_str(0, "\n\nResults of earlier steps:");
        text.push_str(&results);
    }
    let world = world(&shared.options).await;
    let action = action_of(action, &text, &results, &world)?;
    let (cx, asked) = asked_once(cx, Kept::Task { tasks, id, ringer: ringer.clone() });
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
    let Done { by, result, attempts } = errand.run(action).await?;
    Ok(StepDone { by, text: text_of(&result, STEP_RESULT_BYTES_MAX), attempts })
}

/// What a step is to do, with what others came to before it.
fn action_of(action: RoutingDecision, text: &str, results: &str, world: &World) -> Result<Action, Failure> {
    match action {
        RoutingDecision::Local { tool_name, mut params } => {
            let member = world.tool(&tool_name).and_then(|tool| text_member(&tool.params));
            if let Some(member) = member.filter(|_| !results.is_empty()) {
                let before = params.text(&member).unwrap_or_default();
                params.set(&member, format!("{before}{results}"));
            }
            Ok(Action::Local { tool: tool_name, params })
        }
        RoutingDecision::Remote { agent_id } => Ok(Action::Remote { agent: agent_id, text: text.to_owned() }),
        RoutingDecision::Reject { reason } => Err(Failure::rejected(reason)),
        RoutingDecision::NeedsClarification { .. } | RoutingDecision::Decompose { .. } => {
            Err(Failure::internal("a step of a plan is neither unclear nor a plan"))
        }
    }
}

/// What a step came to that this one needs: it has completed.
async fn result_of(tasks: &dyn Tasks, id: &callboard_runtime::TaskId) -> Result<String, Failure> {
    let task = tasks.get(id).await?;
    match task.as_ref().and_then(|task| task.outcome.as_ref()) {
        Some(TaskOutcome::Reply(reply)) => match serde_json::from_str::<StepDone>(reply.get()) {
            Ok(done) => Ok(done.text),
            Err(_) => Err(Failure::internal("what an earlier step came to can't be read")),
        },
        _ => Err(Failure::unavailable("what an earlier step came to isn't kept any more")),
    }
}
