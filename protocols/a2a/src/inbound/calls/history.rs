//! What was said in the course of a task.

use callboard_message::json::Walk;
use callboard_message::surface::SAID;
use callboard_message::{Content, RawObject};
use callboard_runtime::{JournalError, Task, TaskStep, Tasks};
use serde_json::value::RawValue;

use super::view::context;
use crate::convert::{QUESTION, parts_of, question_parts, said_by_agent};
use crate::wire::{Message, Role, Wire as _};

/// Events that are read at once.
const EVENTS_READ_MAX: usize = 100;
/// Member of [`Task::request`]: the message that began it.
pub(super) const MESSAGE: &str = "message";

/// The message that began a task, as far as it is still held.
pub(super) fn first(task: &Task) -> Option<Message> {
    let request = RawObject::parse(task.request.as_deref()?).ok()?;
    let said = Message::from_raw(request.get(MESSAGE)?).ok()?;
    // As it came, it may have named neither.
    Some(Message { task_id: task.id.as_str().to_owned(), context_id: context(task), ..said })
}

/// Whether nobody said anything but the message that began it: there was a beginning, what it made, and an end.
fn is_only_first(task: &Task) -> bool {
    let made = u64::try_from(task.artifacts.len()).unwrap_or(u64::MAX);
    task.last_event.saturating_sub(made) <= 2
}

/// The message that began a task as it came, as far as it is still held, where nobody said anything else; else `None`.
pub(super) fn only(task: &Task) -> Option<Option<&RawValue>> {
    let said = |request| Walk::object(request)?.find(|(name, _)| name == MESSAGE).map(|(_, said)| said);
    is_only_first(task).then(|| task.request.as_deref().and_then(said))
}

/// What was said, oldest first: the owner's messages and the agent's questions, but for those that still wait. At most the last
/// `messages_max`; `None` where none are wanted.
pub(super) async fn of(
    store: &dyn Tasks,
    task: &Task,
    messages_max: Option<u32>,
) -> Result<Option<Vec<Message>>, JournalError> {
    if messages_max == Some(0) {
        return Ok(None);
    }
    let mut said: Vec<Message> = first(task).into_iter().collect();
    if !is_only_first(task) {
        later(store, task, &mut said).await?;
    }
    if let Some(messages_max) = messages_max.and_then(|max| usize::try_from(max).ok()) {
        said.drain(..said.len().saturating_sub(messages_max));
    }
    Ok(Some(said))
}

async fn later(store: &dyn Tasks, task: &Task, said: &mut Vec<Message>) -> Result<(), JournalError> {
    let mut after = 0;
    while after < task.last_event {
        let events = store.events(&task.id, after, EVENTS_READ_MAX).await?;
        let Some(last) = events.last() else { break };
        after = last.number;
        for event in events.into_iter().filter(|event| event.number <= task.last_event) {
            match event.step {
                TaskStep::History(message) => said.extend(Message::from_raw(&message.to_raw()).ok()),
                TaskStep::Asked(open) if task.open.iter().all(|waits| waits.key != open.key) => {
                    let parts = question_parts(&open.key, &open.question);
                    let metadata = RawObject::new().with(QUESTION, &open.key);
                    let id = task.id.as_str();
                    said.push(said_by_agent(id, &context(task), event.number, parts, Some(metadata)));
                }
                TaskStep::Answered { answer, .. } => said.extend(answered(task, &answer, said)),
                _ => {}
            }
        }
    }
    Ok(())
}

/// The message that an answer came by, where it was taken by another than its worker: then it stands there only.
fn answered(task: &Task, answer: &RawValue, said: &[Message]) -> Option<Message> {
    let told = RawObject::parse(answer).ok()?.object("_meta")?.object(SAID)?;
    let message_id = told.text("key")?;
    let content: Vec<Content> = told.read("content").unwrap_or_default();
    let message = Message {
        message_id,
        context_id: context(task),
        task_id: task.id.as_str().to_owned(),
        role: Role::User,
        parts: parts_of(&content),
        metadata: told.object("metadata"),
        ..Message::default()
    };
    (!said.iter().any(|known| is_same(known, &message))).then_some(message)
}

/// Whether two messages are one that was sent twice. The id alone doesn't say: some clients use one for several.
pub(super) fn is_same(a: &Message, b: &Message) -> bool {
    a.message_id == b.message_id && a.parts == b.parts
}
