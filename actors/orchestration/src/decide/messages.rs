use std::fmt;
use std::sync::Arc;

use callboard_macros::Message;
use callboard_message::{Failure, FailureKind, RawObject};
use callboard_models::RefusedPart;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::context::{Action, RoutingContext, ToolView, Turn};
use super::point::DeciderReply;
use super::steps::{StepPlan, StepReport};
use crate::tool_name::LLM as TOOL_LLM;

/// DP1: decides whether a user's reply to another agent's question is passed on as it is, or the
/// user is asked again.
#[derive(Message, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[message(name = "decide_follow_up", reply = DeciderReply<FollowUp>, fallible, read_only, idempotent)]
#[serde(deny_unknown_fields)]
pub struct DecideFollowUp {
    /// Earlier turns of the conversation.
    pub history: Vec<Turn>,
    /// Question of the other agent.
    pub reason: String,
    /// Reply of the user.
    pub message: String,
}

/// DP0: decides clarity, split, route and tool of a request at once.
#[derive(Message, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[message(name = "decide_intake", reply = DeciderReply<Intake>, fallible, read_only, idempotent)]
#[serde(deny_unknown_fields)]
pub struct DecideIntake {
    /// Text of the request or of the step.
    pub request: String,
    /// Earlier turns of the conversation; empty for a step of a plan.
    pub history: Vec<Turn>,
    /// Available tools and agents.
    pub world: Arc<RoutingContext>,
    /// Whether a clarifying question may be asked.
    #[serde(default)]
    pub may_clarify: bool,
    /// Whether the request may be split into steps.
    #[serde(default)]
    pub may_split: bool,
    /// Operator's instructions for answers, which may be empty; `None` if no answer may be written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_prompt: Option<String>,
}

/// NP1: decides whether the request is clear enough to work on.
#[derive(Message, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[message(name = "decide_clarity", reply = DeciderReply<Clarity>, fallible, read_only, idempotent)]
#[serde(deny_unknown_fields)]
pub struct DecideClarity {
    /// Earlier turns of the conversation.
    pub history: Vec<Turn>,
    /// Text of the request.
    pub request: String,
    /// Available tools and agents.
    #[serde(default)]
    pub world: Arc<RoutingContext>,
}

/// NP2.A: decides whether the request needs several steps by different tools or agents.
#[derive(Message, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[message(name = "decide_split", reply = DeciderReply<Split>, fallible, read_only, idempotent)]
#[serde(deny_unknown_fields)]
pub struct DecideSplit {
    /// Text of the request.
    pub request: String,
    /// Earlier turns of the conversation.
    pub history: Vec<Turn>,
    /// Available tools and agents.
    pub world: Arc<RoutingContext>,
}

/// NP2.B: splits the request into the steps of a plan.
#[derive(Message, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[message(name = "make_steps", reply = DeciderReply<StepPlan>, fallible, read_only, idempotent)]
#[serde(deny_unknown_fields)]
pub struct MakeSteps {
    /// Text of the request.
    pub request: String,
    /// Available tools and agents.
    pub world: Arc<RoutingContext>,
}

/// DP2: decides whether the request goes to a local tool, to another agent, or is rejected.
#[derive(Message, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[message(name = "decide_route", reply = DeciderReply<Route>, fallible, read_only, idempotent)]
#[serde(deny_unknown_fields)]
pub struct DecideRoute {
    /// Text of the request or of the step.
    pub request: String,
    /// Earlier turns of the conversation; empty if `slim`.
    pub history: Vec<Turn>,
    /// Available tools and agents.
    pub world: Arc<RoutingContext>,
    /// Whether the text is one step of a plan.
    #[serde(default)]
    pub slim: bool,
}

/// DP3: chooses the local tool for the request, and its parameters.
#[derive(Message, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[message(name = "decide_tool", reply = DeciderReply<ToolChoice>, fallible, read_only, idempotent)]
#[serde(deny_unknown_fields)]
pub struct DecideTool {
    /// Text of the request or of the step.
    pub request: String,
    /// Earlier turns of the conversation; empty if `slim`.
    pub history: Vec<Turn>,
    /// Local tools to choose from.
    pub tools: Vec<ToolView>,
    /// Whether the text is one step of a plan.
    #[serde(default)]
    pub slim: bool,
}

/// DP4: writes the answer to the request.
#[derive(Message, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[message(name = "write_answer", reply = DeciderReply<String>, fallible, read_only)]
#[serde(deny_unknown_fields)]
pub struct WriteAnswer {
    /// Text of the request.
    pub request: String,
    /// Earlier turns of the conversation.
    pub history: Vec<Turn>,
    /// Operator's instructions for answers; may be empty.
    #[serde(default)]
    pub system_prompt: String,
}

/// NP3: chooses the recovery strategy for a failed step.
#[derive(Message, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[message(name = "decide_recovery", reply = DeciderReply<Recovery>, fallible, read_only, idempotent)]
#[serde(deny_unknown_fields)]
pub struct DecideRecovery {
    /// Id of the step's task: run id, `.`, step id.
    pub task_id: String,
    /// Goal of the whole run.
    pub root_goal: String,
    /// Action that failed.
    pub action: Action,
    /// Class of the failure.
    pub class: ErrorClass,
    /// Error message, screened by the guardrail: at most
    /// [`ERROR_CHARS_MAX`](super::limits::ERROR_CHARS_MAX) characters.
    pub error: String,
    /// Number of attempts, including the failed one.
    pub attempts: u32,
    /// Names of alternative tools that haven't been tried.
    pub tools: Vec<String>,
    /// Ids of alternative agents that haven't been tried.
    pub agents: Vec<String>,
    /// Whether a person can be asked.
    pub may_ask: bool,
}

/// NP4: combines the results of all steps into one answer.
#[derive(Message, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[message(name = "synthesize", reply = DeciderReply<Synthesis>, fallible, read_only, idempotent)]
#[serde(deny_unknown_fields)]
pub struct Synthesize {
    /// Goal of the whole run.
    pub goal: String,
    /// Report of each step, in plan order.
    pub results: Vec<StepReport>,
}

/// Reason for a confirmation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "ConfirmWhy")]
pub enum ConfirmReason {
    /// Confidence of the answer is below the threshold.
    Confidence,
    /// Risk of the action is above the threshold.
    Risk,
    /// Expected cost is above the limit.
    Cost,
}

/// NP5: decides whether a person has to confirm.
#[derive(Message, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[message(name = "decide_confirm", reply = DeciderReply<Confirm>, fallible, read_only, idempotent)]
#[serde(deny_unknown_fields)]
pub struct DecideConfirm {
    /// Planned action as JSON.
    pub action: Value,
    /// Reason for the confirmation.
    pub why: ConfirmReason,
    /// Risk, 0 to 1. For [`ConfirmReason::Confidence`], 1 minus the confidence.
    pub risk: f32,
    /// Whether the person has agreed to actions of this kind before.
    pub preference_known: bool,
}

macro_rules! redacted_debug {
    ($($name:ident)*) => {$(
        // User text stays out of logs.
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    )*};
}

redacted_debug! {
    DecideFollowUp DecideIntake DecideClarity DecideSplit MakeSteps DecideRoute DecideTool WriteAnswer DecideRecovery
    Synthesize DecideConfirm
}

/// Outcome of a decision point.
pub trait DecisionOutcome: Clone + PartialEq + Serialize + Send + 'static {
    /// Returns one or two words for records and progress messages: names and ids, never user text.
    /// The default is the variant's name in JSON.
    fn label(&self) -> String {
        match serde_json::to_value(self) {
            Ok(Value::String(variant)) => variant,
            Ok(Value::Object(variant)) => variant.into_iter().map(|(name, _)| name).collect(),
            _ => String::new(),
        }
    }
}

/// Outcome of DP1: pass the reply on, or ask the user again.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FollowUp {
    /// Pass the reply on as it is.
    HandleDirectly,
    /// Ask the user again.
    NeedHumanInput {
        /// Question to the user; `None` repeats the original question.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        question: Option<String>,
    },
}

/// Outcome of DP0: what is done with the request.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Intake {
    /// Information is missing.
    NeedsClarify {
        /// Clarifying question, as in [`Clarity::NeedsClarify`].
        question: String,
    },
    /// The request needs these steps.
    Split(StepPlan),
    /// A local tool handles the request.
    Local(ToolChoice),
    /// Another agent handles the request.
    Remote {
        /// Exact id of the agent.
        agent: String,
    },
    /// The request is rejected.
    Reject {
        /// Reason for the user, one or two sentences.
        reason: String,
    },
    /// The request is answered with this text.
    Answer {
        /// Text of the answer.
        text: String,
    },
}

/// Outcome of NP1: clear, or a question to the user.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Clarity {
    /// Clear enough to work on.
    Clear,
    /// Information is missing.
    NeedsClarify {
        /// Clarifying question: one sentence, at most
        /// [`QUESTION_CHARS_MAX`](super::limits::QUESTION_CHARS_MAX) characters.
        question: String,
    },
}

/// Outcome of NP2.A: one step or several.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Split {
    /// The request needs several steps.
    Yes,
    /// One step suffices.
    No,
}

/// Outcome of DP2: local tool, other agent, or rejection.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Route {
    /// A local tool handles the request.
    Local,
    /// Another agent handles the request.
    Remote {
        /// Exact id of the agent.
        agent: String,
    },
    /// The request is rejected.
    Reject {
        /// Reason for the user, one or two sentences.
        reason: String,
    },
}

/// Outcome of DP3: a local tool and its parameters.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolChoice {
    /// Exact name of the tool.
    pub tool_name: String,
    /// Parameters of the tool.
    pub params: RawObject,
}

impl ToolChoice {
    /// Chooses the tool [`TOOL_LLM`] with the request as its text.
    pub fn llm(request: &str) -> Self {
        Self {
            tool_name: TOOL_LLM.to_owned(),
            params: RawObject::single("text", request),
        }
    }
}

/// Class of a step's failure, by which the recovery strategy is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ErrorClass {
    /// Timeout, overload or network error that may pass.
    TransientNetwork,
    /// Missing permission or rejected credentials.
    PermissionAuth,
    /// Invalid use of a tool, for example wrong parameters.
    ToolSyntax,
    /// The agent can't be reached.
    AgentUnavailable,
    /// Any other failure.
    #[serde(rename = "Unknown/Other")]
    Unknown,
}

impl fmt::Display for ErrorClass {
    /// Writes the name used in JSON.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Number of consecutive failures of one tool or agent after which it counts as unavailable.
pub const UNAVAILABLE_AFTER_FAILURES: u32 = 3;

/// Returns the class of a failure. `run_of_same` is the number of consecutive failures of the same
/// tool or agent, including this one. `None` if the step must not be recovered: it was rejected,
/// blocked or cancelled, or had no responder.
pub fn classify_failure(failure: &Failure, run_of_same: u32) -> Option<ErrorClass> {
    if RefusedPart::from_failure(failure) == Some(RefusedPart::Key) {
        return Some(ErrorClass::PermissionAuth);
    }
    Some(match failure.kind {
        FailureKind::TimedOut | FailureKind::Overloaded => ErrorClass::TransientNetwork,
        FailureKind::Unavailable if run_of_same < UNAVAILABLE_AFTER_FAILURES => {
            ErrorClass::TransientNetwork
        }
        FailureKind::Unavailable => ErrorClass::AgentUnavailable,
        FailureKind::Denied => ErrorClass::PermissionAuth,
        FailureKind::InvalidInput | FailureKind::NotFound => ErrorClass::ToolSyntax,
        FailureKind::Rejected
        | FailureKind::Blocked
        | FailureKind::Cancelled
        | FailureKind::NoResponder => {
            return None;
        }
        _ => ErrorClass::Unknown,
    })
}

/// Outcome of NP3: recovery strategy for a failed step.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Recovery {
    /// Repeat the same action after a pause.
    RetrySame,
    /// Repeat the action with other parameters.
    RetryModified {
        /// New parameters, merged into the old ones: null removes one. Used alone if the merged
        /// ones do not fit the schema.
        params: RawObject,
    },
    /// Use another tool or agent.
    UseAlternative {
        /// Exact name of the tool or id of the agent.
        which: String,
    },
    /// Ask a person how to go on.
    AskHuman {
        /// Question to the person.
        message: String,
    },
    /// Give up.
    Abandon {
        /// Reason, used as the step's error message.
        reason: String,
    },
}

/// Returns the value of the only member of `params` if it is a non-empty text. With
/// [`Recovery::RetryModified`], this text replaces the request to an agent.
pub(crate) fn replacement_text(params: &RawObject) -> Option<String> {
    let (name, _) = params.iter().next().filter(|_| params.len() == 1)?;
    params.text(name).filter(|text| !text.trim().is_empty())
}

/// Outcome of NP4: the answer made from all steps.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Synthesis {
    /// Answer for the user. It states conflicts between results first and names failed steps.
    pub final_answer: String,
    /// Confidence, 0 to 1.
    pub confidence: f32,
    /// Diagnostic notes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
}

/// Outcome of NP5: whether a person has to confirm.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Confirm {
    /// A person has to confirm.
    ConfirmNeeded,
    /// No confirmation is needed.
    SafeToProceed,
}

impl DecisionOutcome for FollowUp {}
impl DecisionOutcome for Clarity {}
impl DecisionOutcome for Split {}
impl DecisionOutcome for Confirm {}

impl DecisionOutcome for StepPlan {
    fn label(&self) -> String {
        match self.steps().len() {
            1 => "1 step".to_owned(),
            count => format!("{count} steps"),
        }
    }
}

impl DecisionOutcome for Intake {
    fn label(&self) -> String {
        match self {
            Self::NeedsClarify { .. } => "needs_clarify".to_owned(),
            Self::Split(plan) => format!("split {}", plan.label()),
            Self::Local(choice) => format!("tool {}", choice.tool_name),
            Self::Remote { agent } => format!("remote {agent}"),
            Self::Reject { .. } => "reject".to_owned(),
            Self::Answer { text } => format!("answer {}", text.label()),
        }
    }
}

impl DecisionOutcome for Route {
    fn label(&self) -> String {
        match self {
            Self::Local => "local".to_owned(),
            Self::Remote { agent } => format!("remote {agent}"),
            Self::Reject { .. } => "reject".to_owned(),
        }
    }
}

impl DecisionOutcome for ToolChoice {
    fn label(&self) -> String {
        self.tool_name.clone()
    }
}

impl DecisionOutcome for String {
    fn label(&self) -> String {
        format!("{} bytes", self.len())
    }
}

impl DecisionOutcome for Recovery {
    fn label(&self) -> String {
        match self {
            Self::RetrySame => "retry_same".to_owned(),
            Self::RetryModified { .. } => "retry_modified".to_owned(),
            Self::UseAlternative { which } => format!("use_alternative {which}"),
            Self::AskHuman { .. } => "ask_human".to_owned(),
            Self::Abandon { .. } => "abandon".to_owned(),
        }
    }
}

impl DecisionOutcome for Synthesis {
    fn label(&self) -> String {
        format!("confidence {:.2}", self.confidence)
    }
}

macro_rules! debug_as_label {
    ($($name:ident)*) => {$(
        // Everything but the label may contain user text.
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.label())
            }
        }
    )*};
}

debug_as_label! { FollowUp Clarity Split Route ToolChoice Recovery Synthesis Confirm }
