//! Questions that any message answers, and files in answers.

use callboard_message::capabilities::PARTS_META_KEY;
use callboard_message::{Elicitation, Question};

use super::content::put_meta;
use crate::wire::{A2aMessage, Part, PartContent};

/// Marks an elicitation as one that any message answers, because the message itself is passed on.
pub(crate) fn accepting_parts(mut elicitation: Elicitation) -> Elicitation {
    put_meta(&mut elicitation.0, PARTS_META_KEY, true);
    elicitation
}

/// Returns whether any message answers the question ([`PARTS_META_KEY`]).
pub(crate) fn accepts_parts(question: &Question) -> bool {
    let meta = question.body().object("_meta");
    matches!(question, Question::Elicit(_))
        && meta.and_then(|meta| meta.read(PARTS_META_KEY)) == Some(true)
}

/// Returns the parts of a message that are files: bytes or URLs.
pub(super) fn file_parts(message: &A2aMessage) -> Vec<&Part> {
    let is_file = |part: &&Part| matches!(part.content, PartContent::Raw(_) | PartContent::Url(_));
    message.parts.iter().filter(is_file).collect()
}
