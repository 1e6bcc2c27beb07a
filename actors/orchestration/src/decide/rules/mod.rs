//! Rules that decide without a model and without a key: English and Portuguese, the same answer to the same question.
//!
//! A request is read by everyday words (`lexicon.toml`). Each tool and agent has evidence by what it says of itself (`candidates`):
//! words that both have, letters that are alike, patterns of words. `refusals.toml` says what nobody here does. No rule reads text that
//! is only quoted, but to know that there is something to work on.

mod candidates;
mod clarity;
mod command;
mod decider;
mod lexicon;
mod matcher;
mod pattern;
mod plan;
mod reading;
mod refusal;
pub mod run_time;
#[cfg(test)]
mod tests;
mod tools;
mod words;

pub use self::decider::{RulesDecider, vague};
