//! Agents of a federation of clinics: a pipeline that answers a clinician's question from several
//! clinics. The crate itself persists nothing but the clinics' own databases and the EMR file.
//!
//! [`orchestrator`] passes a question through [`planner`], [`router`] and [`verifier`]. A guardrail
//! screens the question once, and the answer of each clinic. [`plan`] holds the plans, the clinic
//! registry and the tool catalogue that these share. [`clinic`] serves one clinic's own data from
//! SQLite. [`hmcp`] has two agents that answer `sampling/createMessage` like models. [`access`] decides
//! which data a credential opens.

pub mod access;
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
