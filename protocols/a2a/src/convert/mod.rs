//! A call's words and A2A's, both ways.

mod content;
mod form;
mod question;
mod reply;
#[cfg(test)]
mod tests;

pub(crate) use content::{content_of, parts_of, write_block};
pub(crate) use form::Form;
pub(crate) use question::{QUESTION, answered, is_address, question_parts};
pub(crate) use reply::{EVENT, Ended, ended, is_said_at_once, said_parts};

/// The member of a message's metadata that says how many agents its call has passed through. Others need not know it.
pub(crate) const HOPS: &str = "callboard/hops";
