//! A call's words and A2A's, both ways.

mod answer;
mod content;
mod failure;
mod question;
mod reply;
mod status;
#[cfg(test)]
mod tests;

pub(crate) use answer::{Fit, answered};
pub(crate) use content::{content_of, parts_of, write_block};
pub(crate) use failure::{of_failure, of_store, of_tasks};
pub(crate) use question::{QUESTION, is_address, question_parts};
pub(crate) use reply::{Ended, ended, is_said_at_once, said_parts};
pub(crate) use status::{EVENT, said_by_agent};

/// The member of a message's metadata that says how many agents its call has passed through. Others need not know it.
pub(crate) const HOPS: &str = "callboard/hops";
