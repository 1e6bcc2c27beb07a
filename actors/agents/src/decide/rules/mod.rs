//! Rules that decide without a model and without a key: English and Portuguese, the same answer to the same question.
//!
//! Requests are matched with what tools and agents say of themselves, and with everyday words (`lexicon.toml`); what nobody here
//! does is in `refusals.toml`. No rule reads text that is only quoted, but to know that there is something to work on.

mod aim;
mod clauses;
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
mod words;

pub use self::decider::RulesDecider;
use self::points::Rules;
pub use self::points::vague;
