//! The cast.
//!
//! - Clinic pipeline, which stores nothing: [`orchestrator`], [`planner`], [`plan`], [`router`], [`guardrail`], [`verifier`],
//!   [`clinic`].
//! - General orchestrator, whose plans are stored tasks: [`task`], with [`decide`], [`tools`], [`peer_registry`] and [`memory`].
//!
//! Both order the steps of a plan with one function, `plan::in_order`, and share nothing else.
//!
//! - Agents for others: [`model`], [`answering`], [`bundle`], [`mailroom`], [`hmcp`].

pub mod answering;
pub mod bundle;
pub mod clinic;
pub mod decide;
#[cfg(test)]
mod frozen_tests;
pub mod guardrail;
pub mod hmcp;
pub mod mailroom;
pub mod memory;
pub mod model;
pub mod orchestrator;
pub mod peer_registry;
pub mod plan;
pub mod planner;
#[cfg(test)]
mod recording;
pub mod router;
pub mod task;
mod text;
pub mod tools;
pub mod verifier;
