//! Decision points between a request and its answer, and the deciders that serve them.
//!
//! Each decision point is a message with a typed outcome ([`DecisionRequest`]). Rules, a language
//! model, a person or another agent may answer it, as configured. [`Deciders`] is the only place
//! that asks a decider: it applies time limits, checks the outcome, falls back and records the
//! decision.

mod context;
mod deciders;
mod decision;
pub mod embedding;
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

/// Name of the tool that writes an answer with the answering decider; the fallback where no other
/// tool is chosen.
pub use crate::tool_name::LLM as TOOL_LLM;
pub use context::{Action, PeerAgentView, Risk, RoutingContext, SkillView, ToolView, Turn};
pub(crate) use context::{DESTRUCTIVE_TAG, only_text_param};
pub use deciders::{
    Decider, DeciderChain, DeciderKind, DeciderRef, Deciders, DecisionRecord, DecisionResult,
    FallbackReason, RunId, SkippedDecider,
};
pub(crate) use deciders::{describe_outcome, suppress_artifacts, with_caller};
pub use decision::DecisionRequest;
pub(crate) use messages::replacement_text;
pub use messages::{
    Clarity, Confirm, ConfirmReason, DecideClarity, DecideConfirm, DecideFollowUp, DecideIntake,
    DecideRecovery, DecideRoute, DecideSplit, DecideTool, DecisionOutcome, ErrorClass, FollowUp,
    Intake, MakeSteps, Recovery, Route, Split, Synthesis, Synthesize, ToolChoice,
    UNAVAILABLE_AFTER_FAILURES, WriteAnswer, classify_failure,
};
pub use person::PersonDecider;
pub use point::{DeciderReply, DecisionCost, DecisionPoint};
pub use steps::{StepDefinition, StepMetadata, StepPlan, StepPlanError, StepReport, is_step_id};
