//! Deterministic rules that decide without a model or an API key, in English and Portuguese.
//!
//! A request is classified by everyday words (`lexicon.toml`). Each tool and agent gets evidence
//! from its description (`candidates`): shared words, similar letters, and patterns of words.
//! `refusals.toml` lists requests that are always refused. Quoted text is never interpreted; it
//! only counts as text to work on.

mod candidates;
mod clarity;
mod command;
mod decider;
pub mod execution;
mod lexicon;
mod matcher;
mod pattern;
mod plan;
mod reading;
mod refusal;
#[cfg(test)]
mod tests;
mod tokens;
mod tools;

pub use self::decider::{RulesDecider, request_vagueness};
