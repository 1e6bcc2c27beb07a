use callboard_message::{RawObject, TaskState};
use serde_json::value::RawValue;

use crate::Dialect;
use crate::v03::{self, state_name, write_message, write_part};
use crate::wire::*;

const DIALECT: Dialect = Dialect::V01;

/// Two states are younger: what waits for a credential waits for input, and what was refused has failed, saying why.
fn write_status(status: &TaskStatus, out: &mut Writer<'_>) {
    let mut object = out.object();
    let state = match status.state {
        TaskState::AuthRequired => TaskState::InputRequired,
        TaskState::Rejected => TaskState::Failed,
        state => state,
    };
    object.text("state", &state_name(state));
    let rejected = (status.state == TaskState::Rejected).then(|| rejection(status.message.as_ref()));
    if let Some(message) = rejected.as_ref().or(status.message.as_ref()) {
        write_message(DIALECT, message, &mut object.member("message"));
    }
    object.optional("timestamp", &status.timestamp);
    object.end();
}

fn rejection(message: Option<&Message>) -> Message {
    let reason = message.into_iter().flat_map(|message| &message.parts).find_map(Part::as_text);
    let text = reason.map_or_else(|| "Task rejected".to_owned(), |reason| format!("Task rejected: {reason}"));
    Message { role: Role::Agent, parts: vec![Part::text(text)], ..Default::default() }
}

fn write_artifact(artifact: &Artifact, index: usize, pieces: Option<(bool, bool)>, out: &mut Writer<'_>) {
    let mut object = out.object();
    object.words("name", &artifact.name);
    object.words("description", &artifact.description);
    object.list("parts", &artifact.parts, |part, out| write_part(DIALECT, part, out));
    object.member("index").json(&index.to_string());
    if let Some((append, last_chunk)) = pieces {
        object.always("append", &append);
        object.always("lastChunk", &last_chunk);
    }
    object.optional("metadata", &artifact.metadata);
    object.end();
}

/// `ends` is given for a task that stands in a stream, where it also is a status event.
fn task(of: &Task, ends: Option<bool>, out: &mut Writer<'_>) {
    let mut object = out.object();
    object.text("id", &of.id);
    object.words("sessionId", &of.context_id);
    write_status(&of.status, &mut object.member("status"));
    if let Some(ends) = ends {
        object.always("final", &ends);
    }
    if let Some(artifacts) = &of.artifacts {
        object.list("artifacts", artifacts.iter().enumerate(), |(index, artifact), out| {
            write_artifact(artifact, index, None, out);
        });
    }
    if let Some(history) = &of.history {
        object.list("history", history, |message, out| write_message(DIALECT, message, out));
    }
    object.optional("metadata", &of.metadata);
    object.end();
}

/// 0.1 has no answer without a task: a message is a completed one, whose result it is.
fn of_message(message: &Message) -> Task {
    let id = if message.task_id.is_empty() { &message.message_id } else { &message.task_id };
    let artifact = Artifact { artifact_id: "0".to_owned(), parts: message.parts.clone(), ..Default::default() };
    let status = TaskStatus::new(TaskState::Completed);
    Task {
        artifacts: Some(vec![artifact]),
        metadata: message.metadata.clone(),
        ..Task::new(id, &message.context_id, status)
    }
}

pub(crate) fn write_task(of: &Task) -> Box<RawValue> {
    written(|out| task(of, None, out))
}

pub(crate) fn write_send_response(response: &SendMessageResponse) -> Box<RawValue> {
    match response {
        SendMessageResponse::Task(task) => write_task(task),
        SendMessageResponse::Message(message) => write_task(&of_message(message)),
    }
}

pub(crate) fn write_event(event: &StreamResponse, ends: bool, seen: &mut Vec<String>) -> Box<RawValue> {
    match event {
        StreamResponse::Task(of) => {
            of.artifacts.iter().flatten().for_each(|artifact| _ = index_of(&artifact.artifact_id, seen));
            written(|out| task(of, Some(ends), out))
        }
        StreamResponse::Message(message) => written(|out| task(&of_message(message), Some(true), out)),
        StreamResponse::StatusUpdate(update) => written(|out| {
            let mut object = out.object();
            object.text("id", &update.task_id);
            write_status(&update.status, &mut object.member("status"));
            object.always("final", &ends);
            object.optional("metadata", &update.metadata);
            object.end();
        }),
        StreamResponse::ArtifactUpdate(update) => {
            let index = index_of(&update.artifact.artifact_id, seen);
            let pieces = Some((update.append, update.last_chunk));
            written(|out| {
                let mut object = out.object();
                object.text("id", &update.task_id);
                write_artifact(&update.artifact, index, pieces, &mut object.member("artifact"));
                object.optional("metadata", &update.metadata);
                object.end();
            })
        }
    }
}

/// In the order of first sight.
fn index_of(id: &str, seen: &mut Vec<String>) -> usize {
    seen.iter().position(|other| other == id).unwrap_or_else(|| {
        seen.push(id.to_owned());
        seen.len() - 1
    })
}

pub(crate) fn read_task(raw: &RawValue) -> Result<Task, ReadError> {
    let mut task = v03::read_task(DIALECT, raw)?;
    name_parts(&mut task);
    Ok(task)
}

/// Gives ids to artifacts and messages, which have none of their own.
fn name_parts(task: &mut Task) {
    for (index, artifact) in task.artifacts.iter_mut().flatten().enumerate() {
        if artifact.artifact_id.is_empty() {
            artifact.artifact_id = index.to_string();
        }
    }
    let (id, history) = (&task.id, task.history.iter_mut().flatten());
    for (n, message) in history.chain(task.status.message.iter_mut()).enumerate() {
        if message.message_id.is_empty() {
            message.message_id = format!("{id}-{n}");
        }
    }
}

pub(crate) fn read_event(raw: &RawValue) -> Result<StreamResponse, ReadError> {
    let mut event = v03::read_event(DIALECT, raw)?;
    match &mut event {
        StreamResponse::Task(task) => name_parts(task),
        StreamResponse::ArtifactUpdate(update) => {
            if update.artifact.artifact_id.is_empty() {
                update.artifact.artifact_id = "0".to_owned();
            }
            // There the artifact says which piece it is.
            let inner = RawObject::parse(raw).ok().and_then(|all| all.object("artifact")).unwrap_or_default();
            update.append |= inner.read("append").unwrap_or(false);
            update.last_chunk |= inner.read("lastChunk").unwrap_or(false);
        }
        StreamResponse::Message(_) | StreamResponse::StatusUpdate(_) => {}
    }
    Ok(event)
}
