//! Tasks as their owner sees them, in the canonical model: state, artifacts, history, and what messages refer to.

use std::collections::HashMap;

use callboard_message::json::{Walk, raw};
use callboard_message::surface::SAID;
use callboard_message::{Content, RawObject, TaskState};
use callboard_runtime::{OpenQuestion, Task, TaskOutcome, TaskStep};
use serde_json::value::RawValue;

use super::{Calls, Who};
use crate::A2aError;
use crate::convert::{
    EVENT, QUESTION, is_address, is_said_at_once, parts_of, question_parts, said_parts, write_block,
};
use crate::wire::{
    self, Artifact, Message, Part, Role, TaskStatus, Wire as _, Writer, written_about,
};

/// Member of [`Task::extra`]: the conversation.
pub(super) const CONTEXT: &str = "context";
/// How what a task says begins where an answer didn't fit its question.
pub(super) const NEEDED: &str = "still needed: ";
/// Room for what a task has besides its bodies where it is written, in bytes.
const WRITTEN_ROOM_BYTES: usize = 512;
/// What is said of a result that was held in memory only.
const NOT_KEPT: &str = "the result was of a kind that isn't kept over a restart of the server";

/// The conversation that a task belongs to.
pub(super) fn context(task: &Task) -> String {
    task.extra.text(CONTEXT).unwrap_or_default()
}

/// The same, as JSON.
pub(super) fn written_context(task: &Task) -> &str {
    task.extra.get(CONTEXT).map_or("\"\"", RawValue::get)
}

/// Where a task stands. One that only sends its owner to an address waits for a credential.
pub(super) fn state(task: &Task) -> TaskState {
    let is_auth = !task.open.is_empty() && task.open.iter().all(|open| is_address(&open.question));
    match task.state {
        TaskState::InputRequired if is_auth => TaskState::AuthRequired,
        state => state,
    }
}

/// Whether it waits for its owner.
pub(super) fn is_interrupted(task: &Task) -> bool {
    matches!(
        task.state,
        TaskState::InputRequired | TaskState::AuthRequired
    )
}

/// Metadata that says how far a task has come.
pub(super) fn event(number: u64) -> Option<RawObject> {
    Some(RawObject::of(EVENT, number))
}

/// The task, with `history` as far as that was asked for.
pub(super) fn task(task: &Task, history: Option<Vec<Message>>, with_artifacts: bool) -> wire::Task {
    wire::Task {
        id: task.id.as_str().to_owned(),
        context_id: context(task),
        status: status(task),
        artifacts: with_artifacts.then(|| artifacts(task)),
        history,
        metadata: event(task.last_event),
    }
}

/// The same as 1.0 writes it, at the end of `out`, without reading what is written already. `false`, and nothing written, where
/// that can't be: more was said than the message that began it, or it goes on with what it made.
pub(super) fn write(task: &Task, messages_max: Option<u32>, out: &mut String) -> bool {
    let ([] | [_]) = &*task.artifacts else {
        return false;
    };
    let Some(first) = only_message(task) else {
        return false;
    };
    let bytes = task.bytes() + WRITTEN_ROOM_BYTES;
    out.reserve(bytes);
    let mut object = Writer::new(out).into_object();
    object.text("id", task.id.as_str());
    let context = written_context(task);
    object.member("contextId").json(context);
    status(task).write(&mut object.member("status"));
    let made = task
        .artifacts
        .iter()
        .filter_map(|kept| kept.get("artifact"));
    object.list("artifacts", made, |made, out| out.json(made.get()));
    if messages_max != Some(0) {
        object.list("history", first, |said, out| {
            let mut message = out.object();
            message.member("contextId").json(context);
            message.text("taskId", task.id.as_str());
            // As it came, it may have named neither.
            let others = Walk::object(said).into_iter().flatten();
            for (name, value) in others.filter(|(name, _)| name != "contextId" && name != "taskId")
            {
                message.named(&name).json(value.get());
            }
            message.end();
        });
    }
    let mut metadata = object.member("metadata").into_object();
    metadata.member(EVENT).json(&task.last_event.to_string());
    metadata.end();
    object.end();
    true
}

/// Where it stands, and what it says about that.
pub(super) fn status(task: &Task) -> TaskStatus {
    let (parts, metadata) = said(task);
    let message = |parts| said_by_agent(task, task.last_event, parts, metadata);
    TaskStatus {
        state: state(task),
        message: (!parts.is_empty()).then(|| message(parts)),
        timestamp: Some(task.updated),
    }
}

fn said(task: &Task) -> (Vec<Part>, Option<RawObject>) {
    let text = task.said.as_deref().filter(|said| !said.is_empty());
    if let Some(open) = task.open.first() {
        let lacks = text.filter(|said| said.starts_with(NEEDED)).map(Part::text);
        // The question first: what it is about stands in its first line.
        let parts = question_parts(&open.key, &open.question)
            .into_iter()
            .chain(lacks)
            .collect();
        return (parts, Some(RawObject::of(QUESTION, &open.key)));
    }
    let parts = match &task.outcome {
        Some(TaskOutcome::NotKept) => vec![Part::text(NOT_KEPT)],
        Some(TaskOutcome::Reply(reply)) => is_said_at_once(reply)
            .map(|said| said_parts(&said))
            .unwrap_or_default(),
        Some(TaskOutcome::Failed(failure)) => vec![Part::text(&failure.message)],
        None => text.map(Part::text).into_iter().collect(),
    };
    (parts, None)
}

/// An answer that no task stands for: what a call said at once.
pub(super) fn message(task: &Task) -> Option<Message> {
    let Some(TaskOutcome::Reply(reply)) = &task.outcome else {
        return None;
    };
    let parts = said_parts(&is_said_at_once(reply)?);
    let message = said_by_agent(task, task.last_event, parts, None);
    Some(Message {
        task_id: String::new(),
        ..message
    })
}

/// What it has made so far, in the order in which each first came.
fn artifacts(task: &Task) -> Vec<Artifact> {
    let mut all: Vec<Artifact> = Vec::new();
    let mut places = HashMap::new();
    for kept in &task.artifacts {
        let Some((artifact, append, _)) = artifact(kept) else {
            continue;
        };
        match places
            .get(&artifact.artifact_id)
            .and_then(|place: &usize| all.get_mut(*place))
        {
            None => {
                places.insert(artifact.artifact_id.clone(), all.len());
                all.push(artifact);
            }
            Some(there) if append => there.parts.extend(artifact.parts),
            Some(there) => *there = artifact,
        }
    }
    all
}

/// An artifact as it is kept: itself, whether it goes on with one, whether it is whole.
pub(super) fn artifact(kept: &RawObject) -> Option<(Artifact, bool, bool)> {
    let artifact = Artifact::from_raw(kept.get("artifact")?).ok()?;
    let is = |name| kept.read::<bool>(name).unwrap_or_default();
    Some((artifact, is("append"), is("lastChunk")))
}

/// An artifact, as 1.0 writes it, as it is kept.
pub(super) fn kept(artifact: Box<RawValue>, append: bool, last: bool) -> RawObject {
    let mut kept = RawObject::new();
    kept.set_raw("artifact", artifact);
    if append {
        kept.set_raw("append", RawValue::TRUE.to_owned());
    }
    if last {
        kept.set_raw("lastChunk", RawValue::TRUE.to_owned());
    }
    kept
}

/// What an artifact of mid-call is kept as.
pub(super) fn made(given: &callboard_message::Artifact) -> RawObject {
    let artifact = Artifact {
        artifact_id: given.id(),
        name: given.0.text("name").unwrap_or_default(),
        description: given.0.text("description").unwrap_or_default(),
        parts: parts_of(&given.content()),
        metadata: given.0.object("metadata"),
        ..Artifact::default()
    };
    kept(artifact.to_raw(), given.is_appended(), given.is_last())
}

/// Events that are read at once.
const EVENTS_READ_MAX: usize = 100;
/// Member of [`Task::request`]: the message that began it.
pub(super) const MESSAGE: &str = "message";

/// The message that began a task, as far as it is still held.
pub(super) fn first_message(task: &Task) -> Option<Message> {
    let request = RawObject::parse(task.request.as_deref()?).ok()?;
    let said = Message::from_raw(request.get(MESSAGE)?).ok()?;
    // As it came, it may have named neither.
    Some(Message {
        task_id: task.id.as_str().to_owned(),
        context_id: context(task),
        ..said
    })
}

/// Whether nobody said anything but the message that began it: there was a beginning, what it made, and an end.
fn is_only_first(task: &Task) -> bool {
    let made = u64::try_from(task.artifacts.len()).unwrap_or(u64::MAX);
    task.last_event.saturating_sub(made) <= 2
}

/// The message that began a task as it came, as far as it is still held, where nobody said anything else; else `None`.
fn only_message(task: &Task) -> Option<Option<&RawValue>> {
    let said = |request| {
        Walk::object(request)?
            .find(|(name, _)| name == MESSAGE)
            .map(|(_, said)| said)
    };
    is_only_first(task).then(|| task.request.as_deref().and_then(said))
}

impl Calls {
    /// Messages of a task, oldest first: the owner's and the agent's questions, but for those that still wait. At most the
    /// last `messages_max`; `None` where none are wanted.
    pub(super) async fn history(
        &self,
        task: &Task,
        messages_max: Option<u32>,
    ) -> Result<Option<Vec<Message>>, A2aError> {
        if messages_max == Some(0) {
            return Ok(None);
        }
        let mut said: Vec<Message> = first_message(task).into_iter().collect();
        let mut after = if is_only_first(task) {
            task.last_event
        } else {
            0
        };
        while after < task.last_event {
            let events = self
                .store
                .tasks
                .events(&task.id, after, EVENTS_READ_MAX)
                .await?;
            let Some(last) = events.last() else { break };
            after = last.number;
            for event in events
                .into_iter()
                .filter(|event| event.number <= task.last_event)
            {
                match event.step {
                    TaskStep::History(message) => {
                        said.extend(Message::from_raw(&message.to_raw()).ok())
                    }
                    TaskStep::Asked(open)
                        if task.open.iter().all(|waits| waits.key != open.key) =>
                    {
                        said.push(question_message(task, event.number, &open));
                    }
                    TaskStep::Answered { answer, .. } => {
                        said.extend(answered(task, &answer, &said))
                    }
                    _ => {}
                }
            }
        }
        if let Some(messages_max) = messages_max.and_then(|max| usize::try_from(max).ok()) {
            said.drain(..said.len().saturating_sub(messages_max));
        }
        Ok(Some(said))
    }
}

/// A question as the message that asked it, in event `number`.
fn question_message(task: &Task, number: u64, open: &OpenQuestion) -> Message {
    let metadata = RawObject::of(QUESTION, &open.key);
    said_by_agent(
        task,
        number,
        question_parts(&open.key, &open.question),
        Some(metadata),
    )
}

/// A message of the agent's about a task. Its id is the same whenever it is made again of the same event.
fn said_by_agent(
    task: &Task,
    event: u64,
    parts: Vec<Part>,
    metadata: Option<RawObject>,
) -> Message {
    Message {
        message_id: format!("{}-{event}", task.id),
        context_id: context(task),
        task_id: task.id.as_str().to_owned(),
        role: Role::Agent,
        parts,
        metadata,
        ..Message::default()
    }
}

/// The message that an answer came by, where it was taken by another than its worker: then it stands there only.
fn answered(task: &Task, answer: &RawValue, said: &[Message]) -> Option<Message> {
    let told = RawObject::parse(answer)
        .ok()?
        .object("_meta")?
        .object(SAID)?;
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

/// Messages of one task that are told, its last.
const MESSAGES_EACH_MAX: u32 = 16;
/// Bytes of what is told of all of them. The first that doesn't fit, and those after it, aren't told.
const TOLD_BYTES_MAX: usize = 256 * 1024;
/// Room for the words around a turn, in bytes.
const TURN_ROOM_BYTES: usize = 32;

/// What was said, by whom.
struct Turn {
    is_users: bool,
    parts: Vec<Part>,
}

impl Turn {
    fn bytes(&self) -> usize {
        self.parts.iter().map(Part::bytes).sum::<usize>() + TURN_ROOM_BYTES
    }
}

impl Calls {
    /// The arguments of a conversation, with what was said and made in the tasks that a message refers to as its `history`, in
    /// their order; `None` where there is nothing to tell. What isn't `who`'s, or is no more, isn't told from what never was: it is
    /// left out.
    ///
    /// # Errors
    /// The store's.
    pub(super) async fn with_referenced(
        &self,
        who: &Who,
        said: &Message,
        arguments: &RawValue,
    ) -> Result<Option<Box<RawValue>>, A2aError> {
        let (mut turns, mut bytes) = (Vec::new(), 0);
        for id in &said.reference_task_ids {
            let Ok(found) = self.find(who, id).await else {
                continue;
            };
            let task = &found.task;
            let said = self.history(task, Some(MESSAGES_EACH_MAX)).await?;
            let said = said.into_iter().flatten().map(|said| Turn {
                is_users: said.role == Role::User,
                parts: said.parts,
            });
            let last = status(task).message.into_iter().map(|said| said.parts);
            let made = artifacts(task).into_iter().map(|made| made.parts);
            let answered = last.chain(made).map(|parts| Turn {
                is_users: false,
                parts,
            });
            for turn in said.chain(answered).filter(|turn| !turn.parts.is_empty()) {
                bytes += turn.bytes();
                if bytes > TOLD_BYTES_MAX {
                    return Ok(with_history(arguments, &turns));
                }
                turns.push(turn);
            }
        }
        Ok(with_history(arguments, &turns))
    }
}

fn with_history(arguments: &RawValue, turns: &[Turn]) -> Option<Box<RawValue>> {
    let said = arguments
        .get()
        .strip_suffix('}')
        .filter(|_| !turns.is_empty())?;
    let history = written_about(turns.iter().map(Turn::bytes).sum(), |out| {
        out.list(turns, |turn, out| {
            let mut object = out.object();
            object.text("role", if turn.is_users { "user" } else { "assistant" });
            object.list("content", &turn.parts, write_block);
            object.end();
        });
    });
    Some(raw([said, ",\"history\":", history.get(), "}"].concat()))
}
