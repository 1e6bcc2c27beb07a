//! Rules that decide without a model and without a key: English and Portuguese, the same answer to the same question.
//!
//! A request is read by everyday words (`lexicon.toml`), by what tools take, and by what nobody here does (`refusals.toml`); a model
//! fitted on all that (`kinds/`) says of what kind it is, and that is matched with what tools and agents say of themselves (`aim.rs`).
//! No rule reads text that is only quoted, but to know that there is something to work on.

mod aim;
mod clauses;
mod command;
mod decider;
mod index;
mod kinds;
mod lexicon;
mod matcher;
mod points;
mod reading;
mod refusal;
pub mod run_time;
mod signs;
#[cfg(test)]
mod tests;
mod tools;
mod vague;
mod weights;
mod wish;
mod words;

pub use self::decider::RulesDecider;
use self::points::Rules;
pub use self::points::vague;
