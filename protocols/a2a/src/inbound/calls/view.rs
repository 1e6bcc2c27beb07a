//! A task as its owner sees it, in the canonical model.

use std::collections::HashMap;

use callboard_message::json::Walk;
use callboard_message::{RawObject, TaskState};
use callboard_runtime::{Task, TaskOutcome};
use serde_json::value::RawValue;

use super::history;
use crate::convert::{
    EVENT, QUESTION, is_address, is_said_at_once, parts_of, question_parts, said_by_agent, said_parts,
};
use crate::wire::{self, Artifact, Message, Part, TaskStatus, Wire as _, Writer};

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
    matches!(task.state, TaskState::InputRequired | TaskState::AuthRequired)
}

/// Metadata that says how far a task has come.
pub(super) fn event(number: u64) -> Option<RawObject> {
    Some(RawObject::new().with(EVENT, number))
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
    let ([] | [_]) = &*task.artifacts else { return false };
    let Some(first) = history::only(task) else { return false };
    let bytes = task.bytes() + WRITTEN_ROOM_BYTES;
    out.reserve(bytes);
    let mut object = Writer::new(out).into_object();
    object.text("id", task.id.as_str());
    let context = written_context(task);
    object.member("contextId").json(context);
    status(task).write(&mut object.member("status"));
    let made = task.artifacts.iter().filter_map(|kept| kept.get("artifact"));
    object.list("artifacts", made, |made, out| out.json(made.get()));
    if messages_max != Some(0) {
        object.list("history", first, |said, out| {
            let mut message = out.object();
            message.member("contextId").json(context);
            message.text("taskId", task.id.as_str());
            // As it came, it may have named neither.
            let others = Walk::object(said).into_iter().flatten();
            for (name, value) in others.filter(|(name, _)| name != "contextId" && name != "taskId") {
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
    let message = |parts| said_by_agent(task.id.as_str(), &context(task), task.last_event, parts, metadata.clone());
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
        let parts = question_parts(&open.key, &open.question).into_iter().chain(lacks).collect();
        return (parts, Some(RawObject::new().with(QUESTION, &open.key)));
    }
    let parts = match &task.outcome {
        Some(TaskOutcome::NotKept) => vec![Part::text(NOT_KEPT)],
        Some(TaskOutcome::Reply(reply)) => is_said_at_once(reply).map(|said| said_parts(&said)).unwrap_or_default(),
        Some(TaskOutcome::Failed(failure)) => vec![Part::text(&failure.message)],
        None => text.map(Part::text).into_iter().collect(),
    };
    (parts, None)
}

/// An answer that no task stands for: what a call said at once.
pub(super) fn message(task: &Task) -> Option<Message> {
    let Some(TaskOutcome::Reply(reply)) = &task.outcome else { return None };
    let parts = said_parts(&is_said_at_once(reply)?);
    let message = said_by_agent(task.id.as_str(), &context(task), task.last_event, parts, None);
    Some(Message { task_id: String::new(), ..message })
}

/// What it has made so far, in the order in which each first came.
pub(super) fn artifacts(task: &Task) -> Vec<Artifact> {
    let mut all: Vec<Artifact> = Vec::new();
    let mut places = HashMap::new();
    for kept in &task.artifacts {
        let Some((artifact, append, _)) = artifact(kept) else { continue };
        match places.get(&artifact.artifact_id).and_then(|place: &usize| all.get_mut(*place)) {
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
