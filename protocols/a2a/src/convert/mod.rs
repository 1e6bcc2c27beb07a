//! Conversion between the runtime's content, questions and results and those of A2A.

mod answer_parts;
mod content;
mod object_schema;
mod question;
mod reply;
mod task_reference;
#[cfg(test)]
mod tests;

pub(crate) use answer_parts::{accepting_parts, accepts_parts};
pub(crate) use content::{content_to_parts, parts_to_content, write_part_as_block};
pub(crate) use object_schema::ObjectSchema;
pub(crate) use question::{
    QUESTION_METADATA, check_answer_files, is_elicit_answer, is_url_question, parse_answer,
    question_parts,
};
pub(crate) use reply::{
    EVENT_METADATA, TaskCompletion, direct_reply_parts, parse_direct_reply, task_completion,
};
pub(crate) use task_reference::{
    REMOTE_METADATA, RemoteTaskReference, origin_of_reply, stated_decision,
};

/// Key of a message's metadata: the number of agents that the call has passed through. Other
/// implementations ignore it.
pub(crate) const HOPS_METADATA: &str = "callboard/hops";
