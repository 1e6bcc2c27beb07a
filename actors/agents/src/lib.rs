//! The cast: orchestrator, planner, router, verifier, guardrail, clinic
pub mod verifier;
