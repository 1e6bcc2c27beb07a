//! Tasks in the canonical model, as their owner sees them: status and artifacts.

use std::collections::HashMap;

use callboard_message::json::RawCursor;
use callboard_message::{DECISION_META_KEY, PARENT_META_KEY, RawObject, TaskState};
use callboard_runtime::{Task, TaskOutcome};
use serde_json::value::RawValue;

use crate::convert::{
    EVENT_METADATA, QUESTION_METADATA, REMOTE_METADATA, RemoteTaskReference, content_to_parts,
    direct_reply_parts, is_url_question, parse_direct_reply, question_parts, stated_decision,
};
use crate::wire::{
    self, A2aArtifact, A2aMessage, JsonWriter, Part, Role, TaskStatus, WireType as _, append_parts,
};

/// Key in [`Task::extra`] of the conversation's id.
pub(super) const CONTEXT_MEMBER: &str = "context";
/// Prefix of a task's status message after an answer that lacks required fields. The names of the
/// fields follow.
pub(super) const NEEDED_PREFIX: &str = "still needed: ";
/// Estimated size of a task's JSON without its contents, in bytes. Used for the initial capacity of
/// buffers.
const TASK_OVERHEAD_BYTES: usize = 512;
/// Status message of a completed task whose result was only in memory and was lost when the server
/// restarted.
const RESULT_NOT_STORED: &str = "the task completed, but its result was kept in memory only and was lost when the server restarted";

/// Returns the id of the task's conversation.
pub(super) fn context_id(task: &Task) -> String {
    task.extra.text(CONTEXT_MEMBER).unwrap_or_default()
}

/// Returns the id of the task's conversation as a JSON string.
pub(super) fn context_id_json(task: &Task) -> &str {
    task.extra.get(CONTEXT_MEMBER).map_or("\"\"", RawValue::get)
}

/// Returns the task's state as shown to clients. If all open questions ask the owner to visit a
/// URL, it is `AuthRequired`.
pub(super) fn task_state(task: &Task) -> TaskState {
    let is_auth = !task.open_questions.is_empty()
        && task
            .open_questions
            .iter()
            .all(|open| is_url_question(&open.question));
    match task.state {
        TaskState::InputRequired if is_auth => TaskState::AuthRequired,
        state => state,
    }
}

/// Returns whether the task waits for an answer of its owner.
pub(super) fn is_interrupted(task: &Task) -> bool {
    matches!(
        task.state,
        TaskState::InputRequired | TaskState::AuthRequired
    )
}

/// Returns the metadata of a task: that of its status, and the id of the task that it belongs to,
/// if it has one.
fn task_metadata(task: &Task) -> Option<RawObject> {
    let metadata = status_metadata(task)?;
    Some(match task.parent_id() {
        Some(parent) => metadata.with(PARENT_META_KEY, &parent),
        None => metadata,
    })
}

/// Returns the metadata of an event: the number of the task's latest event.
pub(super) fn event_metadata(number: u64) -> Option<RawObject> {
    Some(RawObject::single(EVENT_METADATA, number))
}

/// Returns the metadata of an event about the task's status: the number of the task's latest event,
/// the remote agent's ids if such an agent performed it, and the decision that its result states.
pub(super) fn status_metadata(task: &Task) -> Option<RawObject> {
    event_metadata(task.last_event).map(|metadata| with_origin(metadata, task))
}

/// Adds the remote agent's ids, if such an agent performed the task, and the decision that the
/// task's result states.
fn with_origin(mut metadata: RawObject, task: &Task) -> RawObject {
    let place = RemoteTaskReference::from_task(task).map(|place| place.to_object());
    metadata.set_some(REMOTE_METADATA, &place);
    if let Some(TaskOutcome::Reply(reply)) = &task.outcome {
        metadata.set_some(DECISION_META_KEY, &stated_decision(reply));
    }
    metadata
}

/// Converts a task; `history` is `None` if it wasn't requested.
pub(super) fn wire_task(
    task: &Task,
    history: Option<Vec<A2aMessage>>,
    with_artifacts: bool,
) -> wire::A2aTask {
    wire::A2aTask {
        id: task.id.as_str().to_owned(),
        context_id: context_id(task),
        status: task_status(task),
        artifacts: with_artifacts.then(|| merge_artifacts(task)),
        history,
        metadata: task_metadata(task),
    }
}

/// Appends a task as JSON of 1.0 to `out`, without parsing its stored contents. This works only for
/// a task with a single message and at most one piece of an artifact. For any other task it returns
/// `false` and appends nothing.
pub(super) fn write_task_json(task: &Task, messages_max: Option<u32>, out: &mut String) -> bool {
    let ([] | [_]) = &*task.artifacts else {
        return false;
    };
    let Some(first) = only_message(task) else {
        return false;
    };
    let bytes = task.bytes() + TASK_OVERHEAD_BYTES;
    out.reserve(bytes);
    let mut object = JsonWriter::new(out).into_object();
    object.text("id", task.id.as_str());
    let context = context_id_json(task);
    object.member("contextId").json(context);
    task_status(task).write(&mut object.member("status"));
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
            // The stored message may lack these ids.
            let others = RawCursor::object(said).into_iter().flatten();
            for (name, value) in others.filter(|(name, _)| name != "contextId" && name != "taskId")
            {
                message.member_named(&name).json(value.get());
            }
            message.end();
        });
    }
    object.optional("metadata", &task_metadata(task));
    object.end();
    true
}

/// Returns the task's status, including the agent's message about it.
pub(super) fn task_status(task: &Task) -> TaskStatus {
    let (parts, metadata) = status_parts(task);
    let message = |parts| agent_message(task, task.last_event, parts, metadata);
    TaskStatus {
        state: task_state(task),
        message: (!parts.is_empty()).then(|| message(parts)),
        timestamp: Some(task.updated),
    }
}

fn status_parts(task: &Task) -> (Vec<Part>, Option<RawObject>) {
    let text = task
        .status_message
        .as_deref()
        .filter(|said| !said.is_empty());
    if let Some(open) = task.open_questions.first() {
        let lacks = text
            .filter(|said| said.starts_with(NEEDED_PREFIX))
            .map(Part::text);
        // The question comes first, because its first line states the topic.
        let parts = question_parts(&open.key, &open.question)
            .into_iter()
            .chain(lacks)
            .collect();
        return (parts, Some(RawObject::single(QUESTION_METADATA, &open.key)));
    }
    let parts = match &task.outcome {
        Some(TaskOutcome::NotKept) => vec![Part::text(RESULT_NOT_STORED)],
        Some(TaskOutcome::Reply(reply)) => parse_direct_reply(reply)
            .map(|said| direct_reply_parts(&said))
            .unwrap_or_default(),
        Some(TaskOutcome::Failed(failure)) => vec![Part::text(&failure.message)],
        None => text.map(Part::text).into_iter().collect(),
    };
    (parts, None)
}

/// Returns the call's reply as a message, if the call gave a direct reply, which needs no task.
pub(super) fn direct_reply(task: &Task) -> Option<A2aMessage> {
    let Some(TaskOutcome::Reply(reply)) = &task.outcome else {
        return None;
    };
    let parts = direct_reply_parts(&parse_direct_reply(reply)?);
    let metadata = with_origin(RawObject::new(), task);
    let metadata = (!metadata.is_empty()).then_some(metadata);
    let message = agent_message(task, task.last_event, parts, metadata);
    Some(A2aMessage {
        task_id: String::new(),
        ..message
    })
}

/// Returns the task's artifacts, each joined from its stored pieces, in the order of their first
/// piece.
pub(super) fn merge_artifacts(task: &Task) -> Vec<A2aArtifact> {
    let mut all: Vec<A2aArtifact> = Vec::new();
    let mut places = HashMap::new();
    for kept in &task.artifacts {
        let Some((artifact, append, _)) = read_artifact(kept) else {
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
            Some(there) if append => append_parts(&mut there.parts, artifact.parts),
            Some(there) => *there = artifact,
        }
    }
    all
}

/// Parses a stored artifact. The two flags tell whether it is appended to an earlier piece, and
/// whether it is complete with this piece.
pub(super) fn read_artifact(kept: &RawObject) -> Option<(A2aArtifact, bool, bool)> {
    let artifact = A2aArtifact::from_raw(kept.get("artifact")?).ok()?;
    let is = |name| kept.read::<bool>(name).unwrap_or_default();
    Some((artifact, is("append"), is("lastChunk")))
}

/// Returns an artifact (JSON of 1.0) in the format of the task store. `append` tells whether it is
/// appended to an earlier piece, `last` whether it is complete.
pub(super) fn stored_artifact(artifact: Box<RawValue>, append: bool, last: bool) -> RawObject {
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

/// Converts an artifact that an agent reported during its call to the format of the task store.
pub(super) fn convert_artifact(given: &callboard_message::Artifact) -> RawObject {
    let artifact = A2aArtifact {
        artifact_id: given.id(),
        name: given.0.text("name").unwrap_or_default(),
        description: given.0.text("description").unwrap_or_default(),
        parts: content_to_parts(&given.content()),
        metadata: given.0.object("metadata"),
        ..A2aArtifact::default()
    };
    stored_artifact(artifact.to_raw(), given.is_appended(), given.is_last())
}

/// Key in [`Task::request`] of the message that began the task.
pub(super) const MESSAGE_MEMBER: &str = "message";

/// Returns the message that began a task, if it is still stored.
pub(super) fn first_message(task: &Task) -> Option<A2aMessage> {
    let request = RawObject::parse(task.request.as_deref()?).ok()?;
    let said = A2aMessage::from_raw(request.get(MESSAGE_MEMBER)?).ok()?;
    // The stored message may lack these ids.
    Some(A2aMessage {
        task_id: task.id.as_str().to_owned(),
        context_id: context_id(task),
        ..said
    })
}

/// Returns whether the message that began a task is its only one. That is the case if the task's
/// only events are its start, artifacts and end.
pub(super) fn has_single_message(task: &Task) -> bool {
    let made = u64::try_from(task.artifacts.len()).unwrap_or(u64::MAX);
    task.last_event.saturating_sub(made) <= 2
}

/// Returns the message that began a task, if it is the task's only one. The outer `None` means that
/// there are further messages, the inner one that the message isn't stored.
fn only_message(task: &Task) -> Option<Option<&RawValue>> {
    let said = |request| {
        RawCursor::object(request)?
            .find(|(name, _)| name == MESSAGE_MEMBER)
            .map(|(_, said)| said)
    };
    has_single_message(task).then(|| task.request.as_deref().and_then(said))
}

/// Returns a message of the agent about a task. Its id is made from the task's id and the event's
/// number, so it is the same every time.
pub(super) fn agent_message(
    task: &Task,
    event: u64,
    parts: Vec<Part>,
    metadata: Option<RawObject>,
) -> A2aMessage {
    A2aMessage {
        message_id: format!("{}-{event}", task.id),
        context_id: context_id(task),
        task_id: task.id.as_str().to_owned(),
        role: Role::Agent,
        parts,
        metadata,
        ..A2aMessage::default()
    }
}

/// Returns whether two messages have the same id and parts, so that one is a repetition of the
/// other. The id alone isn't sufficient, because some clients use it for several messages.
pub(super) fn is_same_message(a: &A2aMessage, b: &A2aMessage) -> bool {
    a.message_id == b.message_id && a.parts == b.parts
}
