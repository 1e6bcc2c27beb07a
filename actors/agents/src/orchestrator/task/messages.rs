//! What a run is made of, as its tasks ask for it. Only a node's own runner asks: no list of tools shows them.

use callboard_macros::Message;
use callboard_message::{RawObject, ToolResult};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::decide::intake::{PlannedStep, RoutingDecision};
use crate::decide::{DecisionRecord, RunId, StepDefinition};

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
