//! Pipeline of federated clinics. It has no store and stores nothing.
//!
//! [`orchestrator`] takes a question of a clinician through [`planner`], [`router`] and [`verifier`], with a guardrail
//! before and after each clinic. [`plan`] holds plans, the registry and the catalogue, which those share. [`clinic`] is a
//! clinic's own data on SQLite; [`hmcp`] has two agents that answer like models.

pub mod clinic;
pub mod hmcp;
pub mod orchestrator;
pub mod plan;
pub mod planner;
#[cfg(test)]
#[path = "../../../tests/kit/recording.rs"]
mod recording;
pub mod router;
pub mod verifier;
