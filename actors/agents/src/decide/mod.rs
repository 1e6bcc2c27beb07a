//! What is decided on the way from a request to an answer, point by point, and who decides it.
//!
//! Each point is a message with an outcome ([`Decision`]); rules, a language model, a person or an agent elsewhere may answer
//! it, as the configuration says. [`Deciders`] is the one place that asks: it times, checks, falls back and records.

mod context;
mod decided;
mod deciders;
mod decision;
pub mod intake;
pub mod limits;
mod messages;
pub mod model;
mod outcomes;
mod person;
mod point;
mod record;
pub mod rules;
mod steps;
#[cfg(test)]
mod tests;
mod withheld;

pub use context::{Action, AgentView, Risk, SkillView, ToolView, Turn, World};
pub(crate) use context::{TAG_DESTRUCTIVE, text_member};
pub use decided::{Cost, Decided};
pub use deciders::{Asked, Decider, Deciders, Settled, Who};
pub use decision::Decision;
pub use messages::{
    ConfirmWhy, DecideClarity, DecideConfirm, DecideFollowUp, DecideRecovery, DecideRoute, DecideSplit, DecideTool,
    MakeSteps, Synthesize, WriteAnswer,
};
pub(crate) use outcomes::told_instead;
pub use outcomes::{
    AWAY_AFTER_FAILURES, Clarity, Confirm, ErrorClass, FollowUp, Outcome, Recovery, Route, Split, Synthesis, TOOL_LLM,
    ToolChoice, class_of,
};
pub use person::PersonDecider;
pub use point::Point;
pub use record::{DecisionRecord, FallbackWhy, RunId};
pub use steps::{StepDefinition, StepMetadata, StepPlan, StepPlanError, StepReport, is_step_id};
pub(crate) use withheld::{with_caller, withheld};
