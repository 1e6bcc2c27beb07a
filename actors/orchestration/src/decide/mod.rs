//! What is decided on the way from a request to an answer, point by point, and who decides it.
//!
//! Each point is a message with an outcome ([`Decision`]); rules, a language model, a person or an agent elsewhere may answer
//! it, as the configuration says. [`Deciders`] is the one place that asks: it times, checks, falls back and records.

mod context;
mod deciders;
mod decision;
pub mod intake;
pub mod limits;
mod messages;
pub mod model;
mod person;
mod point;
pub mod rules;
mod steps;
#[cfg(test)]
mod tests;

/// The tool that answers with words: what is used where nothing else is.
pub use crate::tool_name::LLM as TOOL_LLM;
pub use context::{Action, AgentView, Risk, SkillView, ToolView, Turn, World};
pub(crate) use context::{TAG_DESTRUCTIVE, text_member};
pub use deciders::{Asked, Decider, Deciders, DecisionRecord, FallbackWhy, RunId, Settled, Who};
pub(crate) use deciders::{with_caller, withheld};
pub use decision::Decision;
pub(crate) use messages::told_instead;
pub use messages::{
    AWAY_AFTER_FAILURES, Clarity, Confirm, ConfirmWhy, DecideClarity, DecideConfirm,
    DecideFollowUp, DecideRecovery, DecideRoute, DecideSplit, DecideTool, ErrorClass, FollowUp,
    MakeSteps, Outcome, Recovery, Route, Split, Synthesis, Synthesize, ToolChoice, WriteAnswer,
    class_of,
};
pub use person::PersonDecider;
pub use point::{Cost, Decided, Point};
pub use steps::{StepDefinition, StepMetadata, StepPlan, StepPlanError, StepReport, is_step_id};
