//! A plan as tasks: a root, and a part a step. They are kept together or not at all.

use std::time::SystemTime;

use callboard_message::{Failure, Message, Principal, RawObject};
use callboard_runtime::{NewTask, OnRestart, TaskError, TaskId, TaskOwner, Tasks};
use serde::Serialize;
use serde_json::value::to_raw_value;

use super::TaskOptions;
use super::messages::{RunPlan, RunStep};
use crate::decide::intake::{PlannedStep, RoutingDecision};
use crate::decide::limits::{STEP_INPUT_BYTES_MAX, cut_bytes};
use crate::decide::{DecisionRecord, RunId, StepDefinition, StepMetadata};
use crate::router::task::TOOL_COMMAND;

/// The id of the step of a plan that has but one, and was never planned.
const ONLY: &str = "step";
/// The member of a part's extra that names what it is a part of.
const PARENT: &str = "parent_id";

/// A plan that is to be kept.
pub(super) struct Plan<'a> {
    pub(super) run: &'a RunId,
    pub(super) owner: &'a TaskOwner,
    pub(super) principal: &'a Principal,
    pub(super) goal: &'a str,
    pub(super) context: &'a str,
    pub(super) steps: Vec<PlannedStep>,
    pub(super) records: Vec<DecisionRecord>,
    pub(super) recovers: bool,
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
pub(super) fn step_id(run: &RunId, step: &str) -> Result<TaskId, Failure> {
    Ok(TaskId::new(format!("{run}.{step}"))?)
}

/// Whether that is done by running a program.
pub(super) fn is_command(action: &RoutingDecision) -> bool {
    matches!(action, RoutingDecision::Local { tool_name, .. } if tool_name == TOOL_COMMAND)
}

impl Plan<'_> {
    /// Keeps it, unless the run is there already: then that is the plan.
    pub(super) async fn keep(self, options: &TaskOptions, tasks: &dyn Tasks) -> Result<(), Failure> {
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
            NewTask { id, key, owner: self.owner.clone(), class: options.class, on_restart: OnRestart::Resume, ..new }
        };
        let mut all = Vec::with_capacity(self.steps.len() + 1);
        for PlannedStep { step, action } in &self.steps {
            let needs = step.metadata.depends_on.iter().map(|need| step_id(self.run, need));
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
                on_restart: if is_command(action) { OnRestart::Fail } else { OnRestart::Resume },
                extra: RawObject::of(PARENT, &root_id),
                ..new(step_id(self.run, &step.id)?, RunStep::NAME)
            });
        }
        let message =
            RunPlan { run: self.run.clone(), goal: self.goal.to_owned(), steps: self.steps, records: self.records };
        let root = NewTask { request: Some(raw(&message)?), ..new(root_id, RunPlan::NAME) };
        all.insert(0, root);
        Ok(all)
    }
}

fn raw(message: &impl Serialize) -> Result<Box<serde_json::value::RawValue>, Failure> {
    to_raw_value(message).map_err(|error| Failure::internal(format!("a task can't be written: {error}")))
}
