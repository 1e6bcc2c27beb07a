use std::fmt;
use std::sync::Arc;

use callboard_macros::Message;
use callboard_message::{Failure, FailureKind, RawObject};
use callboard_models::Refused;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::context::{Action, ToolView, Turn, World};
use super::point::Decided;
use super::steps::{StepPlan, StepReport};
use crate::tool_name::LLM as TOOL_LLM;

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
    /// Who can do what.
    #[serde(default)]
    pub world: Arc<World>,
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

/// Something that is decided at one point.
pub trait Outcome: Clone + PartialEq + Serialize + Send + 'static {
    /// In a word or two, for records and people: names and ids, never what was said. By default the variant's name in JSON.
    fn word(&self) -> String {
        match serde_json::to_value(self) {
            Ok(Value::String(variant)) => variant,
            Ok(Value::Object(variant)) => variant.into_iter().map(|(name, _)| name).collect(),
            _ => String::new(),
        }
    }
}

/// DP1.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FollowUp {
    /// What was answered goes on as it is.
    HandleDirectly,
    /// A person has to say more.
    NeedHumanInput {
        /// What they are asked; `None`: the same again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        question: Option<String>,
    },
}

/// NP1.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Clarity {
    /// It can be worked on.
    Clear,
    /// Something is missing.
    NeedsClarify {
        /// One sentence, at most [`QUESTION_CHARS_MAX`](super::limits::QUESTION_CHARS_MAX) characters.
        question: String,
    },
}

/// NP2.A.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Split {
    /// It needs several steps.
    Yes,
    /// One is enough.
    No,
}

/// DP2.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Route {
    /// One of our tools does it.
    Local,
    /// Another agent does it.
    Remote {
        /// Its exact id.
        agent: String,
    },
    /// Nobody does it.
    Reject {
        /// Why, in a sentence or two for whoever asked.
        reason: String,
    },
}

/// DP3.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolChoice {
    /// Its exact name.
    pub tool_name: String,
    /// Its parameters.
    pub params: RawObject,
}

impl ToolChoice {
    /// The tool [`TOOL_LLM`], with this request.
    pub fn llm(request: &str) -> Self {
        Self {
            tool_name: TOOL_LLM.to_owned(),
            params: RawObject::of("text", request),
        }
    }
}

/// How a step failed, as far as it matters for what is done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ErrorClass {
    /// The way there, or too much at once: it may pass.
    TransientNetwork,
    /// Not allowed.
    PermissionAuth,
    /// The tool was used wrongly.
    ToolSyntax,
    /// The agent is away.
    AgentUnavailable,
    /// Something else.
    #[serde(rename = "Unknown/Other")]
    Unknown,
}

impl fmt::Display for ErrorClass {
    /// Its name, as in JSON.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Failures in a row at one target after which it counts as away.
pub const AWAY_AFTER_FAILURES: u32 = 3;

/// The class of a failure; `run_of_same`: failures in a row at that target, this one included. `None` where the failure is the
/// step's end: nothing is to be recovered of what was refused, stopped or cancelled.
pub fn class_of(failure: &Failure, run_of_same: u32) -> Option<ErrorClass> {
    if Refused::of(failure) == Some(Refused::Key) {
        return Some(ErrorClass::PermissionAuth);
    }
    Some(match failure.kind {
        FailureKind::TimedOut | FailureKind::Overloaded => ErrorClass::TransientNetwork,
        FailureKind::Unavailable if run_of_same < AWAY_AFTER_FAILURES => {
            ErrorClass::TransientNetwork
        }
        FailureKind::Unavailable => ErrorClass::AgentUnavailable,
        FailureKind::Denied => ErrorClass::PermissionAuth,
        FailureKind::InvalidInput | FailureKind::NotFound => ErrorClass::ToolSyntax,
        FailureKind::Rejected
        | FailureKind::Blocked
        | FailureKind::Cancelled
        | FailureKind::NobodyToAsk => {
            return None;
        }
        _ => ErrorClass::Unknown,
    })
}

/// NP3.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Recovery {
    /// The same again, after a pause.
    RetrySame,
    /// Again with other parameters.
    RetryModified {
        /// All of them.
        params: RawObject,
    },
    /// By another tool or agent.
    UseAlternative {
        /// Its exact name or id.
        which: String,
    },
    /// A person is asked.
    AskHuman {
        /// What.
        message: String,
    },
    /// It is given up.
    Abandon {
        /// Why.
        reason: String,
    },
}

/// What an agent is told instead, by modified parameters: the only member, a text.
pub(crate) fn told_instead(params: &RawObject) -> Option<String> {
    let (name, _) = params.iter().next().filter(|_| params.len() == 1)?;
    params.text(name).filter(|text| !text.trim().is_empty())
}

/// NP4.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Synthesis {
    /// For whoever asked. A conflict between results comes first; what failed is named.
    pub final_answer: String,
    /// How sure, 0 to 1.
    pub confidence: f32,
    /// Diagnostics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
}

/// NP5.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Confirm {
    /// A person has to.
    ConfirmNeeded,
    /// Nobody has to.
    SafeToProceed,
}

impl Outcome for FollowUp {}
impl Outcome for Clarity {}
impl Outcome for Split {}
impl Outcome for Confirm {}

impl Outcome for StepPlan {
    fn word(&self) -> String {
        match self.steps().len() {
            1 => "1 step".to_owned(),
            count => format!("{count} steps"),
        }
    }
}

impl Outcome for Route {
    fn word(&self) -> String {
        match self {
            Self::Local => "local".to_owned(),
            Self::Remote { agent } => format!("remote {agent}"),
            Self::Reject { .. } => "reject".to_owned(),
        }
    }
}

impl Outcome for ToolChoice {
    fn word(&self) -> String {
        self.tool_name.clone()
    }
}

impl Outcome for String {
    fn word(&self) -> String {
        format!("{} bytes", self.len())
    }
}

impl Outcome for Recovery {
    fn word(&self) -> String {
        match self {
            Self::RetrySame => "retry_same".to_owned(),
            Self::RetryModified { .. } => "retry_modified".to_owned(),
            Self::UseAlternative { which } => format!("use_alternative {which}"),
            Self::AskHuman { .. } => "ask_human".to_owned(),
            Self::Abandon { .. } => "abandon".to_owned(),
        }
    }
}

impl Outcome for Synthesis {
    fn word(&self) -> String {
        format!("confidence {:.2}", self.confidence)
    }
}

macro_rules! shown_by_word {
    ($($name:ident)*) => {$(
        // The rest may be what people said.
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.word())
            }
        }
    )*};
}

shown_by_word! { FollowUp Clarity Split Route ToolChoice Recovery Synthesis Confirm }
