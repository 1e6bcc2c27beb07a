//! The cast: orchestrator, planner, router, verifier, guardrail, clinic, the agents of HMCP

pub mod answering;
pub mod bundle;
pub mod clinic;
pub mod decide;
#[cfg(test)]
mod frozen_tests;
pub mod guardrail;
pub mod hmcp;
pub mod known;
pub mod mailroom;
pub mod memory;
pub mod model;
pub mod orchestrator;
pub mod plan;
pub mod planner;
#[cfg(test)]
mod recording;
pub mod router;
mod text;
pub mod tools;
pub mod verifier;
