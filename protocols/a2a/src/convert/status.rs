//! What a task says about where it stands.

use callboard_message::RawObject;

use crate::wire::{Message, Part, Role};

/// Member of the metadata of tasks and events: the number of the task's last event, which only grows.
pub(crate) const EVENT: &str = "callboard/event";

/// A message of the agent's about a task. Its id is the same whenever it is made again of the same event.
pub(crate) fn said_by_agent(
    task: &str,
    context: &str,
    event: u64,
    parts: Vec<Part>,
    metadata: Option<RawObject>,
) -> Message {
    Message {
        message_id: format!("{task}-{event}"),
        context_id: context.to_owned(),
        task_id: task.to_owned(),
        role: Role::Agent,
        parts,
        metadata,
        ..Message::default()
    }
}
