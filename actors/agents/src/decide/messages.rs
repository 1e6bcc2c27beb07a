use std::fmt;
use std::sync::Arc;

use callboard_macros::Message;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::context::{Action, ToolView, Turn, World};
use super::decided::Decided;
use super::outcomes::{Clarity, Confirm, ErrorClass, FollowUp, Recovery, Route, Split, Synthesis, ToolChoice};
use super::steps::{StepPlan, StepReport};

/// DP1: somebody answered what another agent asked. Does that go to it as it is, or does a person have to say more?
#[derive(Message, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[message(name = "decide_follow_up", reply = Decided<FollowUp>, fallible, read_only, idempotent)]
#[serde(deny_unknown_fields)]
pub struct DecideFollowUp {
    /// What was said before.
    pub history: Vec<Turn>,
    /// What was asked.
    pub reason: String,
    /// What was answered.
    pub message: String,
}

/// NP1: is the request clear enough to be worked on?
#[derive(Message, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[message(name = "decide_clarity", reply = Decided<Clarity>, fallible, read_only, idempotent)]
#[serde(deny_unknown_fields)]
pub struct DecideClarity {
    /// What was said before.
    pub history: Vec<Turn>,
    /// The request.
    pub request: String,
}

/// NP2.A: does the request need several steps by different tools or agents?
#[derive(Message, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[message(name = "decide_split", reply = Decided<Split>, fallible, read_only, idempotent)]
#[serde(deny_unknown_fields)]
pub struct DecideSplit {
    /// The request.
    pub request: String,
    /// What was said before.
    pub history: Vec<Turn>,
    /// Who can do what.
    pub world: Arc<World>,
}

/// NP2.B: which steps does the request come to?
#[derive(Message, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[message(name = "make_steps", reply = Decided<StepPlan>, fallible, read_only, idempotent)]
#[serde(deny_unknown_fields)]
pub struct MakeSteps {
    /// The request.
    pub request: String,
    /// Who can do what.
    pub world: Arc<World>,
}

/// DP2: is the request done here, by another agent, or not at all?
#[derive(Message, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[message(name = "decide_route", reply = Decided<Route>, fallible, read_only, idempotent)]
#[serde(deny_unknown_fields)]
pub struct DecideRoute {
    /// The request.
    pub request: String,
    /// What was said before; empty where `slim`.
    pub history: Vec<Turn>,
    /// Who can do what.
    pub world: Arc<World>,
    /// Whether it is one step of a plan.
    #[serde(default)]
    pub slim: bool,
}

/// DP3: which of our tools does the request, with which parameters?
#[derive(Message, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[message(name = "decide_tool", reply = Decided<ToolChoice>, fallible, read_only, idempotent)]
#[serde(deny_unknown_fields)]
pub struct DecideTool {
    /// The request.
    pub request: String,
    /// What was said before; empty where `slim`.
    pub history: Vec<Turn>,
    /// Our tools.
    pub tools: Vec<ToolView>,
    /// Whether it is one step of a plan.
    #[serde(default)]
    pub slim: bool,
}

/// DP4: what is the answer to the request?
#[derive(Message, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[message(name = "write_answer", reply = Decided<String>, fallible, read_only)]
#[serde(deny_unknown_fields)]
pub struct WriteAnswer {
    /// The request.
    pub request: String,
    /// What was said before.
    pub history: Vec<Turn>,
    /// What whoever runs the agent says about how it answers; may be empty.
    #[serde(default)]
    pub system_prompt: String,
}

/// NP3: what is done about a step that failed?
#[derive(Message, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[message(name = "decide_recovery", reply = Decided<Recovery>, fallible, read_only, idempotent)]
#[serde(deny_unknown_fields)]
pub struct DecideRecovery {
    /// The task that the step is of.
    pub task_id: String,
    /// What all of it is for.
    pub root_goal: String,
    /// What failed.
    pub action: Action,
    /// How.
    pub class: ErrorClass,
    /// The error, screened: at most [`ERROR_CHARS_MAX`](super::limits::ERROR_CHARS_MAX) characters.
    pub error: String,
    /// How often it was tried, this time included.
    pub attempts: u32,
    /// Tools that could be used instead: not those that were tried.
    pub tools: Vec<String>,
    /// Agents that could be asked instead: not those that were tried.
    pub agents: Vec<String>,
    /// Whether a person can be asked.
    pub may_ask: bool,
}

/// NP4: what do the steps' results come to?
#[derive(Message, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[message(name = "synthesize", reply = Decided<Synthesis>, fallible, read_only, idempotent)]
#[serde(deny_unknown_fields)]
pub struct Synthesize {
    /// What all of it was for.
    pub goal: String,
    /// How each step ended, in the plan's order.
    pub results: Vec<StepReport>,
}

/// Why it is asked whether a person has to confirm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConfirmWhy {
    /// The answer isn't sure enough.
    Confidence,
    /// The action may do harm.
    Risk,
    /// It may cost more than is allowed.
    Cost,
}

/// NP5: does a person have to confirm?
#[derive(Message, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[message(name = "decide_confirm", reply = Decided<Confirm>, fallible, read_only, idempotent)]
#[serde(deny_unknown_fields)]
pub struct DecideConfirm {
    /// What is planned, as JSON.
    pub action: Value,
    /// Why it is asked.
    pub why: ConfirmWhy,
    /// How risky, 0 to 1; where `why` is the confidence, 1 less that.
    pub risk: f32,
    /// Whether the person said before that such things are fine.
    pub preference_known: bool,
}

macro_rules! quiet {
    ($($name:ident)*) => {$(
        // They hold what people said.
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    )*};
}

quiet! {
    DecideFollowUp DecideClarity DecideSplit MakeSteps DecideRoute DecideTool WriteAnswer DecideRecovery Synthesize
    DecideConfirm
}
