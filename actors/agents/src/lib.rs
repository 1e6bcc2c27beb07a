//! The cast: orchestrator, planner, router, verifier, guardrail, clinic
pub mod guardrail;
pub mod verifier;
